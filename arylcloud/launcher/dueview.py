"""What the deadline policy is shown of a live job: from journal, heartbeats and the present plan. Pure.

One speed for all: of the kinds of machine that the plan holds, the view has those that are at least as fast
as the slowest one in question (the best free candidate's, and the one that runs); an hour of work is an hour
on that one, and prices of faster ones are for as much work. Market hours throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from arylcloud.core.offer import Market as Kind
from arylcloud.core.offer import Offer
from arylcloud.core.phases import LeasePhase
from arylcloud.core.plan import Candidate, Plan
from arylcloud.core.protocol import Heartbeat
from arylcloud.launcher.actions import Observed, Timing
from arylcloud.launcher.duesize import fewest, takes_all, whole
from arylcloud.launcher.duetimes import begin_h, closing_h, lost_h
from arylcloud.launcher.offers import barred
from arylcloud.launcher.sightings import looks, remembered
from arylcloud.launcher.state import JobState, Lease, Training
from arylcloud.planner.deadline.view import NONE, DeadlinePolicy, Market, View
from arylcloud.planner.migrate import through_store
from arylcloud.planner.upkeep import DEAR_USD_PER_GB, data_usd_per_gb
from arylcloud.pricing.tariffs import Tariffs, load_tariffs

MOST_ZONES: Final = 40
"""Spot offers that are weighed: the cheapest for as much work, and what runs."""
SAME_SPEED: Final = 0.98
TICK_H: Final = 1 / 6
"""Refused zones rest about so long (``launcher/offers``); of a short job less."""
TICKS: Final = 144
SPREAD: Final = 1.02
"""Of a speed that has been measured over so many steps and wall seconds, at p90: the next machine of the same
kind may be slower, and after a loss that took all slack there is no time to find out."""
LEAST_STEPS: Final = 20
LEAST_S: Final = 300.0
TRY_H: Final = 1.5 / 60
HANDOVER_H: Final = 2 / 60
UNKNOWN_BOOT_H: Final = 300 / 3600
_HOLDING: Final = frozenset({LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.READY, LeasePhase.SUSPECT})
SOFT: Final = frozenset({"capacity", "no_room", "throttled"})
"""Bars that say no more than that there is nothing now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One live job as a policy sees it, and what its machine numbers stand for."""

    view: View
    """With the work that is left at the typical speed (p50)."""
    worst: View
    """The same at the low end of the speed's band (p90): what the guard goes by."""
    zones: tuple[Offer, ...]
    on_demand: tuple[Offer | None, ...]
    """The cheapest of each region."""
    resting: tuple[bool, ...]
    """Zones that must not be asked now: barred for want of capacity."""

    def offer(self, machine: int) -> Offer | None:
        return self.zones[machine] if machine < len(self.zones) else self.on_demand[machine - len(self.zones)]


def due_of(
    state: JobState,
    observed: Observed,
    plan: Plan,
    now_s: float,
    *,
    policy: DeadlinePolicy,
    timing: Timing,
    handover_s: float,
    seen: Callable[[Offer], bool],
    tariffs: Tariffs | None = None,
) -> Due | None:
    """None where it cannot be made: no deadline, work that is not known in steps, a size that may change, no
    spot or nothing on demand to be had. ``handover_s``: market seconds; ``seen``: whether an offer's price
    has been named lately (a running job moves to no other)."""
    limits, work, planned = state.spec.constraints, state.spec.work, plan.job.work
    if limits.deadline_s is None or work is None or planned is None or work.unit != "steps":
        return None
    now_market_s = state.market_clock.market_s(now_s)
    here = _here(state)
    able = _able(state, plan, now_market_s, None if here is None else here[0])
    fixed = [c for c in able if c.offer.market is not Kind.SPOT and _free(state, c, now_market_s, here)]
    current = None
    if here is not None:
        current = next((c for c in able if c.offer.key == here[0].key), None)
        if current is None:
            return None
    if not fixed or not any(c.offer.market is Kind.SPOT for c in able):
        return None
    first = next((c for c in able if _free(state, c, now_market_s, here)), able[0])
    slowest = min((x for x in (first, current) if x is not None), key=_speed)
    fastest = max(fixed, key=_speed)
    if _speed(fastest) < SAME_SPEED * _speed(slowest):
        slowest = fastest

    def fast(c: Candidate) -> bool:
        return c is current or _speed(c) >= SAME_SPEED * _speed(slowest)

    able, fixed = [c for c in able if fast(c)], [c for c in fixed if fast(c)]
    running = here is not None
    spot = [c for c in able if c.offer.market is Kind.SPOT and (c is current or not running or seen(c.offer))]
    spot = sorted(spot, key=lambda c: (c is not current, _usd(c, slowest)))[:MOST_ZONES]
    if not spot or not fixed:
        return None
    there: dict[str, list[Candidate]] = {_region(c.offer): [] for c in (*spot, *fixed)}
    for c in fixed:
        there[_region(c.offer)].append(c)
    regions = tuple(there)
    cheapest = [_cheapest(candidates, slowest, current) for candidates in there.values()]
    at = regions.index(_last_region(state, able[0].offer, regions))
    egress = _egress_usd(state, regions, at, tariffs)
    boot_h, p50_h, p90_h = _hours(slowest, fixed[0])
    unit_h, worst = p50_h / planned.amount, p90_h / p50_h
    if (measured := _measured(state, observed, able, now_s)) is not None:
        ran_on, step_h = measured
        unit_h, worst = step_h * _speed(ran_on) / _speed(slowest), SPREAD
    left, unsaved = _left(state, observed, work.amount)
    scale_h = state.market_clock.scale / 3600.0
    deadline_h = limits.deadline_s / 3600.0 - closing_h(state, observed, timing)
    begun_s = state.market_clock.market_s(state.submitted_at_s)
    tick_h = max(2 * timing.tick_s * scale_h, min(TICK_H, deadline_h / TICKS))
    lost = lost_h(state, observed, unsaved * unit_h)
    if here is None:
        lost /= 2  # for two starts, one of them on spot: a loss throws work away once (``guard``)
    startup_h = max(3 * timing.tick_s * scale_h, begin_h(state, boot_h, timing) + lost)
    market = Market(
        region=np.array([regions.index(_region(c.offer)) for c in spot], dtype=np.intp),
        egress_usd=egress,
        startup_h=startup_h,
        tick_h=tick_h,
        try_h=min(TRY_H, tick_h),
        handover_h=min(startup_h, max(handover_s / 3600.0, HANDOVER_H)),
    )
    keys = [c.offer.key for c in spot]
    memory, lives = remembered(looks(state, now_s), keys, begun_s, with_lives=policy.keeps_lives)
    elapsed_h = (now_market_s - begun_s) / 3600.0
    machine, boot_left_h = _machine(here, keys, cheapest, now_s, scale_h, startup_h)
    view = View(
        market=market,
        elapsed_h=np.array([elapsed_h]),
        left_h=np.array([deadline_h - elapsed_h]),
        work_h=np.array([left * unit_h]),
        total_h=np.array([work.amount * unit_h]),
        machine=np.array([machine], dtype=np.int64),
        boot_h=np.array([boot_left_h]),
        coming=np.array([NONE], dtype=np.int64),
        coming_boot_h=np.zeros(1),
        at=np.array([at], dtype=np.intp),
        spot_usd=np.array([[_usd(c, slowest) for c in spot]]),
        on_demand_usd=np.array([[np.inf if c is None else _usd(c, slowest) for c in cheapest]]),
        spent=np.zeros(1, dtype=bool),
        seen=memory,
        lives=lives,
    )
    return Due(
        view=view,
        worst=replace(view, work_h=view.work_h * worst),
        zones=tuple(c.offer for c in spot),
        on_demand=tuple(None if c is None else c.offer for c in cheapest),
        resting=tuple(barred(c.offer, state.bars, now_market_s) is not None for c in spot),
    )


Here = tuple[Offer, Lease, bool]
"""The offer of all the machines that the job has, the youngest of them, and whether its command runs."""


def _here(state: JobState) -> Here | None:
    """None: it has no whole gang, and is without one."""
    held = [x for x in state.open_leases if x.phase in _HOLDING]
    epoch = next((e for e in reversed(state.epochs) if e.members), None)
    if epoch is not None and epoch.number > state.history_epoch:
        members = [state.leases[m.lease_id] for m in epoch.members]
        if all(x.phase in _HOLDING for x in members) and len(members) >= fewest(state):
            works = state.epochs[-1] is epoch and any(t.epoch == epoch.number for t in state.trainings)
            return members[0].offer, members[0], works
    by_offer: dict[str, list[Lease]] = {}
    for lease in held:
        by_offer.setdefault(lease.offer.key, []).append(lease)
    for leases in by_offer.values():
        if len({x.index for x in leases}) >= fewest(state):
            by_age = sorted(leases, key=lambda x: x.intended_at_s)
            youngest = by_age[fewest(state) - 1] if takes_all(state) else by_age[-1]
            return leases[0].offer, youngest, False
    return None


def _able(state: JobState, plan: Plan, now_market_s: float, here: Offer | None) -> list[Candidate]:
    """Candidates of this size with figures, but those that are barred for more than want of capacity."""
    found, bars = [], [bar for bar in state.bars if bar.code not in SOFT]
    for c in plan.candidates:
        figures = c.hours is not None and c.usd is not None and c.throughput
        if not figures or c.nodes != whole(state) or c.offer.usd_per_hour is None:
            continue
        if c.throughput_unit != plan.candidates[0].throughput_unit:
            continue
        if (here is not None and c.offer.key == here.key) or barred(c.offer, bars, now_market_s) is None:
            found.append(c)
    return found


def _free(state: JobState, c: Candidate, now_market_s: float, here: Here | None) -> bool:
    at_home = here is not None and here[0].key == c.offer.key
    return at_home or barred(c.offer, state.bars, now_market_s) is None


def _speed(c: Candidate) -> float:
    return c.throughput or 0.0


def _usd(c: Candidate, slowest: Candidate) -> float:
    """Of the gang, for as much work as the slowest does in an hour."""
    return (c.offer.usd_per_hour or 0.0) * c.nodes * _speed(slowest) / _speed(c)


def _region(offer: Offer) -> str:
    return f"{offer.cloud}/{offer.region}"


def _cheapest(there: Sequence[Candidate], slowest: Candidate, current: Candidate | None) -> Candidate | None:
    if any(c is current for c in there):
        return current
    return min(there, key=lambda c: (_usd(c, slowest), c.offer.key), default=None)


def _last_region(state: JobState, first: Offer, regions: Sequence[str]) -> str:
    """Where the last checkpoint is: where the job ran last, or is to begin."""
    for epoch in reversed(state.epochs):
        if epoch.members:
            region = _region(state.leases[epoch.members[0].lease_id].offer)
            return region if region in regions else regions[0]
    return _region(first) if _region(first) in regions else regions[0]


def _egress_usd(state: JobState, regions: Sequence[str], at: int, tariffs: Tariffs | None) -> np.ndarray:
    """Of one move, (R, R): the checkpoint by way of the store. Only the row ``at`` is read for a decision:
    the others are its likes."""
    newest, spec = state.lineage, state.spec
    gb = newest.total_bytes / 1e9 if newest is not None and newest.total_bytes else spec.checkpoint.size_gb
    row = np.zeros(len(regions))
    if not gb and not spec.data:
        return np.tile(row, (len(regions), 1))
    tariffs = tariffs or load_tariffs()
    for i, region in enumerate(regions):
        if i != at:
            usd = through_store(regions[at], region, state.store_place, tariffs)
            row[i] = (gb or 0.0) * (DEAR_USD_PER_GB if usd is None else usd)
            for data in spec.data:
                usd = data_usd_per_gb(data, region, tariffs)
                row[i] += data.size_gb * (DEAR_USD_PER_GB if usd is None else usd)
    found = np.tile(row, (len(regions), 1))
    if len(regions) > 1:
        found[:, at] = row.max()
    np.fill_diagonal(found, 0.0)
    return found


def _hours(c: Candidate, fixed: Candidate) -> tuple[float, float, float]:
    """(boot, work at p50, work at p90) of the planned work on ``c``, by what is planned on a machine that
    nobody takes back: hours there are a boot and work."""
    assert fixed.hours is not None
    assert fixed.usd is not None
    rate = (fixed.offer.usd_per_hour or 0.0) * fixed.nodes
    boot_h = fixed.usd.boot / rate if rate > 0 else UNKNOWN_BOOT_H
    boot_h = min(boot_h, fixed.hours.p50 / 2)
    slower = _speed(fixed) / _speed(c)
    low, least = fixed.throughput_low or _speed(fixed), c.throughput_low or _speed(c)
    p50_h = max(fixed.hours.p50 - boot_h, 1e-6) * slower
    return boot_h, p50_h, max(p50_h, (fixed.hours.p90 - boot_h) * low / least)


def _measured(
    state: JobState, observed: Observed, able: Sequence[Candidate], now_s: float
) -> tuple[Candidate, float] | None:
    """(where, market hours per step) as the job has really trained, saves included; None = not for long
    enough. Of several kinds, the one that is slowest beside its plan: on another, a job would think that
    it has the time to go back."""
    epochs = {epoch.number: epoch for epoch in state.epochs}
    done: dict[str, tuple[int, float]] = {}
    for ran in {t.epoch: t for t in reversed(state.trainings)}.values():
        offer, epoch = state.leases[ran.lease_id].offer, epochs[ran.epoch]
        beat = observed.beats.get(ran.lease_id)
        if len(epoch.members) != whole(state):
            continue
        if ran.stopped_at_s is not None:
            steps, took_s = _between_saves(state, ran) or _whole_run(ran, ran.stopped_at_s)
        elif beat is not None and beat.step is not None and beat.epoch == epoch.number:
            steps = max(0, beat.step - ran.first_step)
            took_s = now_s - ran.began_at_s - (beat.step_age_s or 0.0)  # one that hangs is not slow
            first_s = _first_s(beat)
            if first_s is None:
                continue
            took_s += first_s
        else:
            continue
        before = done.get(offer.instance_type, (0, 0.0))
        done[offer.instance_type] = before[0] + steps, before[1] + took_s
    found = []
    for kind, (steps, took_s) in done.items():
        there = next((c for c in able if c.offer.instance_type == kind), None)
        if there is not None and steps >= LEAST_STEPS and took_s >= LEAST_S:
            found.append((there, took_s / steps * state.market_clock.scale / 3600.0))
    return max(found, key=lambda x: x[1] * _speed(x[0]), default=None)


def _between_saves(state: JobState, ran: Training) -> tuple[int, float] | None:
    """(steps, wall seconds) from its first save to the last but one: its last may be the one that it was
    stopped for, and neither its first step nor its end is in it. None = they tell too little."""
    saves = [c for c in state.checkpoints if c.epoch == ran.epoch][:-1]
    if len(saves) < 2 or saves[-1].step - saves[0].step < LEAST_STEPS:
        return None
    return saves[-1].step - saves[0].step, saves[-1].saved_at_s - saves[0].saved_at_s


def _whole_run(ran: Training, stopped_at_s: float) -> tuple[int, float]:
    """All of it. Where it was lost, its first step began it when it was done; else a last save is in it."""
    steps, took_s = max(0, (ran.last_step or 0) - ran.first_step), stopped_at_s - ran.started_at_s
    return steps, took_s * steps / max(steps - 1, 1) if ran.how == "lost" else took_s


def _first_s(beat: Heartbeat) -> float | None:
    """What the first steps took, which began it when they were done: as long as those after them. Nothing
    where it counts from its command's start; None = too few were seen."""
    if beat.first_step_s is None or beat.first_step_s == beat.command_started_s:
        return 0.0
    return beat.step_gap_s


def _left(state: JobState, observed: Observed, amount: float) -> tuple[float, float]:
    """(steps to do, steps of those done that no checkpoint holds)."""
    saved = state.lineage.step if state.lineage is not None else 0
    shown = [saved]
    if (epoch := state.epoch) is not None:
        beats = [observed.beats.get(member.lease_id) for member in epoch.members]
        shown += [b.step for b in beats if b is not None and b.step is not None and b.epoch == epoch.number]
    step = max(shown)
    return max(amount - step, amount * 1e-3), float(step - saved)


def _machine(
    here: Here | None,
    zones: Sequence[str],
    on_demand: Sequence[Candidate | None],
    now_s: float,
    scale_h: float,
    startup_h: float,
) -> tuple[int, float]:
    """(machine number, hours until it works)."""
    if here is None:
        return NONE, 0.0
    offer, lease, works = here
    boot_h = 0.0 if works else max(startup_h - (now_s - lease.intended_at_s) * scale_h, 1e-3)
    if offer.key in zones:
        return zones.index(offer.key), boot_h
    keys = [None if c is None else c.offer.key for c in on_demand]
    return len(zones) + keys.index(offer.key), boot_h
