"""What a job has seen of spot capacity, from its journal: the memory of its deadline policy. Pure.

Every machine that was had says that there was capacity as long as it lived, a refusal for want of it (before
or after a machine was promised) and a loss say that there was none. Of a gang, all or nothing: capacity is
there while all its machines are; of an elastic one, while enough of them are.
Nothing is probed: what nobody has asked for is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from arylcloud.core.offer import Market
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import EndCause
from arylcloud.launcher.duesize import fewest, takes_all
from arylcloud.launcher.state import JobState, Lease
from arylcloud.planner.deadline.lives import Lives
from arylcloud.planner.deadline.sightings import Sightings

STEP_S: Final = 3600.0
"""Between two sightings of a machine that lives: well below what still gives credit (``CREDIT_H``)."""
SEEN_S: Final = 600.0
"""A machine that was lost was seen at work so long before, as in a replay."""
LOSSES: Final = frozenset({"interrupted", "unknown"})
"""End causes that say that there was no capacity any more."""

NO_ROOM: Final = EndCause.NO_ROOM.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """At ``at_s`` (market seconds) the offer gave (still) what the job needs, or did not."""

    at_s: float
    key: str
    up: bool


def looks(state: JobState, now_s: float) -> tuple[Look, ...]:
    """In order of time, up to ``now_s`` (wall seconds); of spot offers alone."""
    now_market_s = state.market_clock.market_s(now_s)
    by_offer: dict[str, list[Lease]] = defaultdict(list)
    for lease in state.leases.values():
        if lease.offer.market is Market.SPOT:
            by_offer[lease.offer.key].append(lease)
    found: list[Look] = []
    for key, leases in by_offer.items():
        had = [x for x in leases if x.launched_s is not None and not _no_room(x)]
        spans = [_span(state, lease, now_market_s) for lease in had]
        whole = _whole(spans, fewest(state))
        for begin_s, end_s, lost in whole:
            last_s = max(begin_s, end_s - SEEN_S) if lost else end_s
            steps = int((last_s - begin_s) // STEP_S)
            at = [begin_s + i * STEP_S for i in range(steps + 1)]
            found += [Look(at_s=s, key=key, up=True) for s in dict.fromkeys((*at, last_s))]
        shrinks = takes_all(state)
        gone = whole if shrinks else spans
        found += [Look(at_s=end_s, key=key, up=False) for _, end_s, lost in gone if lost]
        for lease in leases:
            if (at_s := _refused_s(state, lease)) is None:
                continue
            if not (shrinks and any(begin_s <= at_s <= end_s for begin_s, end_s, _ in whole)):
                found.append(Look(at_s=min(at_s, now_market_s), key=key, up=False))
    return tuple(sorted(found, key=lambda look: (look.at_s, not look.up)))


def remembered(
    found: Iterable[Look], keys: Sequence[str], since_s: float, *, with_lives: bool
) -> tuple[Sightings, Lives | None]:
    """The looks at ``keys`` as a policy's memory, shapes (1, Z); hours count from ``since_s`` (market)."""
    at = {key: i for i, key in enumerate(keys)}
    seen = Sightings.none(1, len(keys))
    lives = Lives.none(1, len(keys)) if with_lives else None
    row = np.zeros(1, dtype=np.intp)
    for look in found:
        if look.key not in at:
            continue
        zone, up = np.array([at[look.key]], dtype=np.intp), np.array([look.up])
        now_h = np.array([(look.at_s - since_s) / 3600.0])
        if lives is not None and seen.up[0, zone[0]]:
            last, since = seen.last_h[row, zone], seen.since_h[row, zone]
            lives.note(row, zone, last - since, now_h - last, ~up)
        seen.note(row, zone, now_h, up)
    return seen, lives


def _no_room(lease: Lease) -> bool:
    """Its cloud made it, and then had no room for it: it never ran."""
    return NO_ROOM in (lease.cause, lease.ending_code)


def _refused_s(state: JobState, lease: Lease) -> float | None:
    """Market seconds at which its cloud said that there was no capacity; None = it did not."""
    if not _no_room(lease):
        if lease.refusal is None or lease.refusal.kind != "capacity":
            return None
        return state.market_clock.market_s(lease.ended_at_s or lease.intended_at_s)
    if lease.ended_s is None:  # asked to end since then
        return state.market_clock.market_s(lease.since_s)
    return lease.ended_s


def _span(state: JobState, lease: Lease, now_market_s: float) -> tuple[float, float, bool]:
    """(from, to, lost) of one machine, in market seconds."""
    assert lease.launched_s is not None
    begin_s = min(lease.launched_s, now_market_s)
    ends = [now_market_s]
    if lease.ended_s is not None:
        ends.append(lease.ended_s)
    elif lease.phase is LeasePhase.ENDING:
        ends.append(state.market_clock.market_s(lease.since_s))
    noticed = lease.notice_acts_at_s is not None
    if lease.notice_acts_at_s is not None:  # whoever leaves in time has lost the machine all the same
        ends.append(state.market_clock.market_s(lease.notice_acts_at_s))
    return begin_s, max(begin_s, min(ends)), noticed or lease.cause in LOSSES


def _whole(spans: Sequence[tuple[float, float, bool]], size: int) -> list[tuple[float, float, bool]]:
    """When ``size`` of the machines were there at once, and whether it was a loss that ended that."""
    moves = sorted(
        [(begin_s, 1, False) for begin_s, _, _ in spans] + [(end_s, -1, lost) for _, end_s, lost in spans],
        key=lambda move: (move[0], move[1]),
    )
    found: list[tuple[float, float, bool]] = []
    count, since_s = 0, 0.0
    for at_s, step, lost in moves:
        before, count = count, count + step
        if before < size <= count:
            since_s = at_s
        elif count < size <= before:
            found.append((since_s, at_s, lost))
    return found
