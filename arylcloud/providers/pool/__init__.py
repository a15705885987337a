"""The provider ``pool``: machines of one's own, reached by ``ssh`` (or this very machine).

What a machine is doing is written on the machine itself, as a cloud's tags are: whoever may log in sees it,
and two launchers cannot both have it. ``hostside`` is the program that runs there.
"""
