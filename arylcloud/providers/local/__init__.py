"""The local cloud: a daemon on this machine that rents out process groups.

=============  =============================================================================
market         values of a market file: offers, price and capacity steps, interruptions, faults
marketfile     reading and checking such a file
log            the cloud's own append-only record of everything that it did
machines       what the log says of each machine (a fold)
processes      starting, recognising and ending a machine's processes
book           what cloud and clockwork share: log, machines, market, lock
cloud          the API: create, list, terminate, prices
clockwork      what happens by itself: boots, price moves, interruptions, ends
metadata       EC2's IMDSv2 spot protocol, per machine
wire           names that daemon and adapter agree on
control        the HTTP API that the adapter speaks
daemon, start  the background process, and how exactly one of it is started
adapter        the ``Provider`` port over that API
bill           what the machines cost, from the log alone
=============  =============================================================================

Its state outlives any launcher and any of its own deaths: machines run on while the daemon is
gone, and it recognises them when it is back.
"""
