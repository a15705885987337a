"""What own machines say of assumed hazards: a Gamma–Poisson update, from the nearest evidence outwards.

The assumed rate of a place is right up to an unknown factor θ, with a Gamma prior of mean 1 that is worth
``WEIGHT`` expected losses. Machines watched for ``expected`` losses (hours × assumed rate), of which
``losses`` came, make of it

    θ = (WEIGHT · θ_around + losses) / (WEIGHT + expected)

A zone's surroundings are the other zones of its region with that type, theirs the other types and regions of
the cloud, theirs 1. Everything is counted once: what a place says itself is not in its surroundings. And a
neighbour says no more than another neighbour is like it: whatever was watched there, it counts for at most
``WEIGHT`` expected losses. θ is never 0, however long nothing was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final

WEIGHT: Final = 2.0
"""Losses that the assumed rate, and what surrounds a place, count for."""
CLOUD_BOUND: Final = 2.0
"""What types and regions say of another one may halve its assumed rate or double it, not more."""

Kind = tuple[str, str, str]
"""Cloud, region, instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Machines of one place, by how much each still says."""

    losses: float
    expected: float
    """Losses in their hours at the assumed rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """θ by place, where there is something to go by."""

    cloud: Mapping[str, float]
    """Of types and regions that were never used."""
    kind: Mapping[Kind, float]
    """Of zones that were never used, and of offers without one."""
    zone: Mapping[tuple[Kind, str], float]


def factors(kinds: Mapping[Kind, Tally], zones: Mapping[tuple[Kind, str], Tally]) -> Factors:
    """``kinds``: each with all of its machines; ``zones``: those of them of which the zone is known.

    >>> kind = ("aws", "us-east-1", "p3.2xlarge")
    >>> found = factors({kind: Tally(losses=0, expected=4.0)}, {})
    >>> round(found.kind[kind], 3), round(found.cloud["aws"], 3)
    (0.333, 0.6)
    """
    by_cloud: dict[str, list[tuple[Kind, Tally]]] = {}
    by_kind: dict[Kind, list[tuple[str, Tally]]] = {}
    for kind, tally in kinds.items():
        by_cloud.setdefault(kind[0], []).append((kind, tally))
    for (kind, zone), tally in zones.items():
        by_kind.setdefault(kind, []).append((zone, tally))
    cloud: dict[str, float] = {}
    of_kind: dict[Kind, float] = {}
    of_zone: dict[tuple[Kind, str], float] = {}
    for name, members in by_cloud.items():
        said = [_said(tally) for _, tally in members]
        losses, expected = (sum(column) for column in zip(*said, strict=True))
        cloud[name] = _around(1.0, losses, expected, CLOUD_BOUND)
        for (kind, tally), (own_losses, own_expected) in zip(members, said, strict=True):
            others = _around(1.0, losses - own_losses, expected - own_expected, CLOUD_BOUND)
            of_kind[kind] = _updated(others, tally)
            for zone, own in by_kind.get(kind, ()):
                rest = _rest(tally, own)
                of_zone[kind, zone] = _updated(_around(others, *_said(rest)), own)
    return Factors(cloud=cloud, kind=of_kind, zone=of_zone)


def adverse(losses: float, most: float) -> float:
    """p90 / mean: ``most`` where nothing was ever lost, and closer to 1 as losses are seen; like the error of
    a Gamma law, by the root of what is known.

    >>> [round(adverse(n, 3.0), 2) for n in (0, 2, 6, 16)]
    [3.0, 2.41, 2.0, 1.67]
    """
    return 1.0 + (most - 1.0) * sqrt(WEIGHT / (WEIGHT + losses))


def _updated(around: float, own: Tally) -> float:
    return (WEIGHT * around + own.losses) / (WEIGHT + own.expected)


def _said(neighbour: Tally) -> tuple[float, float]:
    """Losses and expected losses, by how much of them goes for another place."""
    share = WEIGHT / (WEIGHT + neighbour.expected)
    return share * neighbour.losses, share * neighbour.expected


def _around(around: float, losses: float, expected: float, bound: float | None = None) -> float:
    """``around``, and what the neighbours say (sums, of which one was taken out again)."""
    found = (WEIGHT * around + max(losses, 0.0)) / (WEIGHT + max(expected, 0.0))
    return found if bound is None else min(max(found, 1.0 / bound), bound)


def _rest(whole: Tally, part: Tally) -> Tally:
    """The other zones together; what differs by rounding only is nothing."""
    return Tally(
        losses=max(whole.losses - part.losses, 0.0),
        expected=max(whole.expected - part.expected, 0.0),
    )
