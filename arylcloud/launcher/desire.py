"""What should be, asked of the planner again and again: the ranking for what work is left, and whether
moving pays. The same functions as ``plan``; only the remaining work and the prices are newer.

A limit that can no longer be met (deadline, budget at p90) stops no running job: the ranking then
leaves that limit out, and is by time where the deadline is the one.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from arylcloud.core.cadence import daly_interval_s
from arylcloud.core.errors import ArylError
from arylcloud.core.events import BaselineQuoted
from arylcloud.core.job import JobSpec, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Candidate, Plan
from arylcloud.core.ports import Provider
from arylcloud.core.units import say_duration
from arylcloud.launcher.actions import Desired, DueStart, MoveAdvice, Observed, Scaling, Timing
from arylcloud.launcher.duedate import late, way_out, within_limits
from arylcloud.launcher.duesize import takes_all, whole
from arylcloud.launcher.offers import barred
from arylcloud.launcher.queueview import held_to, on_gpu
from arylcloud.launcher.quotes import KEEP_S, Quotes, deciding
from arylcloud.launcher.scaling import all_unless_dear, scaling_of
from arylcloud.launcher.spent import known_spent_usd, spent_for_limits_usd
from arylcloud.launcher.state import JobState, Lease
from arylcloud.planner.migrate import advise

log = logging.getLogger(__name__)


class Planner(Protocol):
    """The composition root's one road from a job to a plan."""

    def __call__(self, spec: JobSpec, *, quoted: Sequence[Offer], also: Sequence[Offer]) -> Plan:
        """On the catalogue with ``quoted`` laid over it; ``also``: candidates in any case."""
        ...


LIKELY = 20
"""Candidates whose on-demand twins are quoted: where the job may come to run."""
SCALING_S = 15.0
"""Sizes are not compared more often than this, however often the plan is made (wall seconds)."""
ASKED_FOR = "asked for by "
"""How the reason of a move begins that a user wants (``reconcile/migration``)."""
COMMAND_START_S = 3.0
"""From a restored checkpoint to the first step: imports, data, model."""


ByPolicy = tuple[DueStart | None, MoveAdvice | None]


@dataclass(slots=True)
class Desires:
    providers: Mapping[str, Provider]
    plan: Planner
    timing: Timing
    quotes: Quotes
    refresh_s: float = 60.0
    """A plan this old (wall seconds) is made again; so is one when a machine is missing."""
    _plan: Plan | None = None
    _planned_at_s: float = 0.0
    _planned_for: tuple[object, ...] = ()
    _scaling: Scaling | None = None
    _scaled_at_s: float = 0.0
    _scaled_for: tuple[object, ...] = ()
    _said: ByPolicy | None = None
    _due_at_s: float = 0.0
    _due_for: tuple[object, ...] = ()

    def __call__(self, state: JobState, observed: Observed, now_s: float) -> Desired:
        plan = self._current_plan(state, now_s)
        left_s = remaining(state, now_s).constraints.deadline_s
        by_policy = None if plan is None or left_s is None else self._due(state, observed, plan, now_s)
        return Desired(
            ranking=tuple(c.offer for c in plan.candidates) if plan is not None else (),
            move=None if plan is None else self._advice(state, observed, plan, now_s, by_policy),
            due=None if by_policy is None else by_policy[0],
            by_policy=by_policy is not None,
            capabilities={name: p.capabilities() for name, p in self.providers.items()},
            timing=self.timing,
            checkpoint_interval_s=self._interval_s(state, observed, plan),
            losses_per_hour=_losses_per_hour(state, plan),
            sizes={} if plan is None else _sizes(plan),
            scaling=None if plan is None else self._current_scaling(state, observed, plan, now_s),
            late=None if plan is None else late(left_s, plan.candidates),
            spent_usd=spent_for_limits_usd(state, now_s),
        )

    def _current_plan(self, state: JobState, now_s: float) -> Plan | None:
        wanted = (
            len(state.losses),
            state.attempts,
            state.migrate_request,
            self.quotes.version,
            state.size if state.size_pinned else None,
        )
        fresh = now_s - self._planned_at_s < self.refresh_s and wanted == self._planned_for
        if self._plan is None or not fresh:
            try:
                self._plan = self._make_plan(state, now_s)
            except ArylError as error:
                # prices that cannot be asked now: what was known a moment ago is better than nothing
                log.warning("no new plan: %s", error.message)
            self._planned_at_s, self._planned_for = now_s, wanted
            if self._plan is not None:
                self.quotes.ask(deciding(self._plan))
        return self._plan

    def _make_plan(self, state: JobState, now_s: float) -> Plan:
        spec, here = remaining(state, now_s), _where_it_runs(state)
        if state.size_pinned and state.size is not None:
            spec = dataclasses.replace(spec, nodes_min=state.size, nodes_max=state.size)
        elif takes_all(state) and state.attempts:  # (it begins on what was confirmed)
            spec = dataclasses.replace(spec, nodes_min=whole(state))
        quoted = self._quoted(state, here, now_s)
        also = () if here is None else (here,)
        plan = within_limits(spec, lambda spec: self.plan(spec, quoted=quoted, also=also))
        return plan if state.placed is None else held_to(plan, state.placed)

    def _quoted(self, state: JobState, here: Offer | None, now_s: float) -> tuple[Offer, ...]:
        known = {o.key: o for o in state.quoted} if now_s - state.submitted_at_s < KEEP_S else {}
        known |= {o.key: o for o in self.quotes.newest()}
        quoted = tuple(o for o in known.values() if here is None or o.key != here.key)
        if here is not None and here.usd_per_hour is not None:
            quoted += (here,)
        return quoted

    def _current_scaling(
        self, state: JobState, observed: Observed, plan: Plan, now_s: float
    ) -> Scaling | None:
        """Of a job whose number of machines may change, where it runs now."""
        epoch = next((e for e in reversed(state.epochs) if e.members), None)
        here, lease = _where_it_runs(state), _current_lease(state)
        if state.spec.nodes_min == state.spec.nodes_max or epoch is None or here is None or lease is None:
            return None
        best = _sizes(plan).get(here.key)
        sizes = {len(epoch.members), *(n for n in (state.size, best) if n is not None)}
        wanted = (here.key, tuple(sorted(sizes)))
        pause_s = max(self.refresh_s, SCALING_S)
        if wanted != self._scaled_for or now_s - self._scaled_at_s >= pause_s:
            quoted = self._quoted(state, here, now_s)
            try:
                compared = scaling_of
                if takes_all(state):
                    compared = functools.partial(all_unless_dear, now=len(epoch.members))
                self._scaling = compared(
                    remaining(state, now_s),
                    here,
                    sizes,
                    lambda spec: self.plan(spec, quoted=quoted, also=(here,)),
                    handover_market_s=_handover_s(observed, lease) * state.market_clock.scale,
                )
            except ArylError as error:
                log.warning("sizes cannot be compared: %s", error.message)
                self._scaling = None
            self._scaled_at_s, self._scaled_for = now_s, wanted
        return self._scaling

    def _due(self, state: JobState, observed: Observed, plan: Plan, now_s: float) -> ByPolicy | None:
        """What the policy of a job with a deadline says; None = it has none, or no say."""
        from arylcloud.launcher import duepolicy  # numpy: jobs without a deadline do without

        if duepolicy.policy_of(state.spec) is None:
            return None
        wanted = (state.seq, id(plan), self.quotes.version)
        if wanted != self._due_for or not 0 <= now_s - self._due_at_s < duepolicy.again_s(state, self.timing):
            lease = _current_lease(state)
            handover_s = 0.0 if lease is None else _handover_s(observed, lease) * state.market_clock.scale
            self._said = duepolicy.asked(
                state,
                observed,
                plan,
                now_s,
                timing=self.timing,
                handover_s=handover_s,
                seen=self.quotes.seen,
            )
            self._due_for, self._due_at_s = wanted, now_s
        return self._said

    def _advice(
        self, state: JobState, observed: Observed, plan: Plan, now_s: float, by_policy: ByPolicy | None
    ) -> MoveAdvice | None:
        """How often it may move is ``reconcile``'s to check; here only whether it pays. Where a deadline
        policy has its say, it alone says so."""
        lease = _current_lease(state)
        if lease is None or state.migration is not None:
            return None
        if by_policy is not None:
            stays = _by_user(lease) and by_policy[1] is not None and by_policy[1].to.market is Market.SPOT
            return None if stays else by_policy[1]
        now_market_s = state.market_clock.market_s(now_s)
        free = [
            c
            for c in plan.candidates
            if barred(c.offer, state.bars, now_market_s) is None and self.quotes.seen(c.offer)
        ]
        here = next((c for c in plan.candidates if c.offer.key == lease.offer.key), None)
        newest = state.lineage
        move = advise(
            here,
            free,
            min_saving=state.spec.migrate.min_saving,
            checkpoint_gb=newest.total_bytes / 1e9 if newest is not None else 0.0,
            store_place=state.store_place,
            handover_s=_handover_s(observed, lease) * state.market_clock.scale,
        )
        left_s = remaining(state, now_s).constraints.deadline_s
        out = way_out(left_s, here, free) if move is None else None
        if out is not None and here is not None and left_s is not None:
            saving = (here.usd.mean if here.usd else 0.0) - (out.usd.mean if out.usd else 0.0)
            why = f"{say_duration(left_s)} left to the deadline: on demand it is still kept"
            return MoveAdvice(
                to=out.offer, saving_usd=saving, move_usd=None, why=why, nodes=out.nodes, urgent=True
            )
        if move is None or (late(left_s, plan.candidates) is not None and not _sooner(plan, move.to, here)):
            return None
        return MoveAdvice(
            to=move.to,
            saving_usd=move.saving_usd,
            move_usd=move.move_usd,
            why=move.why,
            nodes=move.nodes,
            urgent=here is not None and here.meets_deadline is False,
        )

    def _interval_s(self, state: JobState, observed: Observed, plan: Plan | None) -> float | None:
        """Daly's, from the measured save time and the hazard of where the job runs (wall seconds)."""
        if state.spec.checkpoint.interval_s is not None:
            return state.spec.checkpoint.interval_s
        saves = [beat.save_s for beat in observed.beats.values() if beat.save_s]
        losses = _losses_per_hour(state, plan)
        if not saves or losses is None:
            return None
        return daly_interval_s(max(saves), 3600.0 / losses)


def _losses_per_hour(state: JobState, plan: Plan | None) -> float | None:
    """Of the whole gang, wall hours, where it runs or is about to: what was asked for last."""
    newest = max(state.open_leases, key=lambda lease: lease.intended_at_s, default=None)
    if plan is None or newest is None or state.spec.checkpoint.interval_s is not None:
        return None
    key = newest.offer.key
    hazard = next((c.interruptions_per_hour for c in plan.candidates if c.offer.key == key), None)
    if not hazard:
        return None
    return hazard * _members(state) * state.market_clock.scale


def _sizes(plan: Plan) -> dict[str, int]:
    """Offer → its best number of machines, where the planner can tell one from another."""
    found: dict[str, int] = {}
    for candidate in plan.candidates:
        if candidate.usd is not None:
            found.setdefault(candidate.offer.key, candidate.nodes)
    return found


def _members(state: JobState) -> int:
    epoch = next((e for e in reversed(state.epochs) if e.members), None)
    return state.spec.nodes_max if epoch is None else len(epoch.members)


def _sooner(plan: Plan, to: Offer, here: Candidate | None) -> bool:
    """A job that is late moves to be done sooner, not cheaper."""
    there = next((c for c in plan.candidates if c.offer.key == to.key), None)
    if here is None or here.hours is None or there is None or there.hours is None:
        return False
    return there.hours.p50 < here.hours.p50


def _handover_s(observed: Observed, lease: Lease) -> float:
    """Wall seconds from the last step here to the first step there, as far as it has been measured."""
    beat = observed.beats.get(lease.lease_id)
    save_s = (beat.save_s if beat is not None else None) or 1.0
    upload_s = (beat.upload_s if beat is not None else None) or 1.0
    return save_s + 2 * upload_s + COMMAND_START_S


def _current_lease(state: JobState) -> Lease | None:
    """Rank 0's machine of the open epoch."""
    epoch = next((e for e in reversed(state.epochs) if e.members), None)
    if epoch is None:
        return None
    lease = state.leases[epoch.members[0].lease_id]
    return lease if lease.open else None


def _by_user(lease: Lease) -> bool:
    """A user has sent the job there: it stays until it is lost, or has to leave."""
    return lease.purpose == "migrate" and lease.why.startswith(ASKED_FOR)


def _where_it_runs(state: JobState) -> Offer | None:
    """At the price that is paid there now: nobody has to be asked for it."""
    lease = _current_lease(state)
    return None if lease is None else dataclasses.replace(lease.offer, usd_per_hour=lease.usd_per_hour)


def remaining(state: JobState, now_s: float) -> JobSpec:
    """The job as it still is to be done: work after the last checkpoint, limits less what is used."""
    spec = state.spec
    work = spec.work
    newest = state.lineage
    if work is not None and newest is not None and work.unit == "steps":
        # never nothing: the end of a run still needs a machine
        work = Work(amount=max(work.amount - newest.step, work.amount * 1e-3), unit=work.unit)
    limits = spec.constraints
    used_s = state.market_clock.market_s(now_s) - state.market_clock.market_s(state.submitted_at_s)
    if limits.deadline_s is not None:
        limits = dataclasses.replace(limits, deadline_s=max(limits.deadline_s - used_s, 1.0))
    if limits.budget_usd is not None:
        spent = spent_for_limits_usd(state, now_s)
        left = max(limits.budget_usd - (known_spent_usd(state, now_s) if spent is None else spent), 0.01)
        limits = dataclasses.replace(limits, budget_usd=left)
    if state.placed is not None:
        spec = on_gpu(spec, state.placed.gpu, state.placed.count)
        if state.turn_nodes is not None:
            spec = dataclasses.replace(spec, nodes_min=state.wanted, nodes_max=state.wanted)
    return dataclasses.replace(spec, work=work, constraints=limits)


def quotes(plan: Plan, on_demand: Plan | None) -> tuple[BaselineQuoted, ...]:
    """What the report will compare with: the plan that the job starts on, and the same job planned on
    demand only (None: nothing acceptable is to be had on demand)."""
    chosen = plan.chosen
    everything = [*plan.candidates, *(on_demand.candidates if on_demand is not None else ())]
    priced = [c for c in everything if c.offer.usd_per_hour is not None]
    kinds = {c.offer.instance_type for c in plan.candidates[:LIKELY]}
    found: list[tuple[Literal["on_demand", "cheapest_per_hour", "fixed_zone"], Candidate]]
    found = [("fixed_zone", chosen)]
    if priced:
        cheapest = min(priced, key=lambda c: ((c.offer.usd_per_hour or 0.0) * c.nodes, c.offer.key))
        found.append(("cheapest_per_hour", cheapest))
    for kind in sorted(kinds):
        twins = [c for c in priced if c.offer.market == "on_demand" and c.offer.instance_type == kind]
        by_region = {c.offer.region: c for c in sorted(twins, key=lambda c: -(c.offer.usd_per_hour or 0.0))}
        found += [("on_demand", c) for c in by_region.values()]
    return tuple(BaselineQuoted(name=name, offer=c.offer, speed=_speed(c, chosen)) for name, c in found)


def _speed(candidate: Candidate, chosen: Candidate) -> float | None:
    if candidate.throughput is None or not chosen.throughput:
        return None
    return candidate.throughput / chosen.throughput
