"""Replicas over zones: the loss of a zone is to leave whole replicas.

A replica whose machines lie in two zones is lost with either. So replicas are laid whole into zones, smallest
first, each into the zone that has the fewest of them, and of these into the one with the least room that
does: two zones that can hold a whole replica each do, and whichever zone is lost, one replica is left.
Machines that no whole replica needs make up the replicas that are left, zone after zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Zone = str
"""Any name; machines of one name are lost together."""


def spread(sizes: Sequence[int], zones: Sequence[Zone]) -> tuple[tuple[Zone, ...], ...]:
    """The zone of each place in each replica. ``sizes``: machines of each replica, adding up to
    ``len(zones)``, the machines' own zones; ValueError if they do not.

    >>> spread([2, 2], ["a", "b", "a", "b"])
    (('a', 'a'), ('b', 'b'))
    >>> spread([3, 2], ["a", "b", "a", "b", "a"])
    (('a', 'a', 'a'), ('b', 'b'))
    """
    if sum(sizes) != len(zones):
        raise ValueError(f"{len(zones)} machines for replicas of {sum(sizes)}")
    room, whole = Counter(zones), Counter[Zone]()
    found: dict[int, tuple[Zone, ...]] = {}
    late: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (sizes[i], i)):
        able = [z for z in room if room[z] >= sizes[i]]
        if not able:
            late.append(i)
            continue
        zone = min(able, key=lambda z: (whole[z], room[z], z))
        found[i] = (zone,) * sizes[i]
        room[zone] -= sizes[i]
        whole[zone] += 1
    for i in reversed(late):  # the largest first, from where most is left: it lies in the fewest zones
        places: list[Zone] = []
        while len(places) < sizes[i]:
            zone = max(room, key=lambda z: (room[z], z))
            took = min(room[zone], sizes[i] - len(places))
            places += [zone] * took
            room[zone] -= took
        found[i] = tuple(places)
    return tuple(found[i] for i in range(len(sizes)))
