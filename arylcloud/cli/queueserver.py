"""``serve --policy``: queued jobs take turns on a capacity, as a policy of the planner says.

All that it goes by lies in the jobs' journals: started anew it goes on where it was. It acts through what
users have, too: a turn is a ``resume`` on one kind of GPU, making way is a ``stop`` with a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from arylcloud.cli.server import FIRST_PAUSE_S, LOOK_S, Server
from arylcloud.core.events import QueueDecided
from arylcloud.core.plan import Candidate
from arylcloud.launcher.fold import apply
from arylcloud.launcher.queue import Decision, Start, Stop, decide
from arylcloud.launcher.queueview import (
    QueueJob,
    QueueView,
    holds,
    made_way,
    queue_job,
    waits,
    ways,
)
from arylcloud.launcher.state import BY_QUEUE, JobState
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import Policy

PLAN_S = 300.0
"""A plan of what a queued job gets out of the capacity is made again after so long."""
ASKED_S = 60.0
"""A stop that has been asked for is not asked for again before."""
LONGEST_REFUSAL_S = 3600.0
"""Whose turn could not be begun is passed over for a while, twice as long each time, at most so long."""


@dataclass(slots=True, kw_only=True)
class QueueServer(Server):
    policy: Policy
    capacity: Mapping[str, int]
    budget_usd: float | None = None
    round_s: float = 360.0
    seed: int = 0
    _states: dict[str, JobState] = field(default_factory=dict)
    """Of every queued job, ended ones, too: they have had their part of the budget."""
    _plans: dict[str, tuple[float, dict[str, Candidate]]] = field(default_factory=dict)
    _no_plan: dict[str, str] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Job whose turn could not be begun → (not before, on the monotonic clock; the pause after that)."""
    _round_s: float = field(default_factory=time.monotonic)
    """When the present round began, monotonic."""

    @property
    def every_s(self) -> float:
        return min(LOOK_S, self.round_s / 4)

    def look(self) -> None:
        """Every job once, then what the queue decides. One job's trouble is said and is only its own."""
        Server.look(self)
        from arylcloud.core.errors import ArylError

        try:
            self._turns()
        except ArylError as error:
            self._say("the queue", error.message)

    def _serve(self, job_id: str) -> None:
        """A queued job has a launcher while it is its turn, and none while it waits."""
        state = self._read_on(job_id)
        if state is None or not state.queued:
            Server._serve(self, job_id)
            return
        if holds(state) or (state.phase.ended and self.journal.unmirrored(job_id)) or state.open_leases:
            Server._serve(self, job_id)
        else:
            self._reap(job_id)

    def _read_on(self, job_id: str) -> JobState | None:
        """Of a queued job, what its journal says now."""
        state = self._states.get(job_id)
        for record in self.journal.records(job_id, after=state.seq if state is not None else 0):
            state = apply(state, record)
        if state is not None and state.queued:
            self._states[job_id] = state
        return state

    # ------------------------------------------------------------ turns

    def _turns(self) -> None:
        import numpy as np

        if not self._states:
            return
        now_s = time.time()
        boundary = time.monotonic() - self._round_s >= self.round_s
        if boundary:
            self._round_s = time.monotonic()
        decision = Decision()
        for _ in range(len(self._states) + 1):  # nobody makes way for one whose turn cannot begin
            view = self._view(now_s, boundary)
            decision = decide(view, self.policy.name, self.policy.solve(), np.random.default_rng(self.seed))
            if self._begin(decision):
                break
        self._carry_out(decision)

    def _view(self, now_s: float, boundary: bool) -> QueueView:
        from arylcloud.launcher.spent import spent_for_limits_usd

        states = [s for s in self._states.values() if waits(s)]
        changed_s = max(
            (
                s.phase_since_s if s.phase.ended and not made_way(s) else s.submitted_at_s
                for s in self._states.values()
            ),
            default=now_s,
        )
        jobs: list[QueueJob] = []
        for state in states:
            job = queue_job(state, self._ways(state, now_s), now_s, changed_s)
            if job is None:
                reason = self._no_plan.get(state.job_id, "no GPU of the capacity serves it")
                self._say(state.job_id, f"waits: {reason}")
                continue
            if job.on is None and time.monotonic() < self._refused.get(job.job_id, (0.0, 0.0))[0]:
                continue
            if time.monotonic() < self._asked.get(job.job_id, 0.0) and job.on is not None:
                job = replace(job, leaving=True)
            jobs.append(job)
        spent = [spent_for_limits_usd(s, now_s) for s in self._states.values()]
        known = [usd for usd in spent if usd is not None]
        return QueueView(
            capacity=self.capacity,
            jobs=tuple(sorted(jobs, key=lambda job: -job.age_s)),
            round_s=self.round_s,
            boundary=boundary,
            backfill=not self.policy.fifo and self.policy.name != "min_cost",
            market_scale=max((s.market_clock.scale for s in states), default=1.0),
            budget_usd=self.budget_usd,
            spent_usd=sum(known) if len(known) == len(spent) else None,
        )

    def _ways(self, state: JobState, now_s: float) -> dict[str, Candidate]:
        """What it gets out of each kind of GPU, as ``plan`` would say now."""
        from arylcloud.cli.assemble import ALL_OFFERS
        from arylcloud.cli.compose import make_plan
        from arylcloud.core.errors import ArylError
        from arylcloud.launcher.desire import remaining
        from arylcloud.launcher.duedate import within_limits

        made_s, found = self._plans.get(state.job_id, (float("-inf"), {}))
        if time.monotonic() - made_s < PLAN_S:
            return found
        try:
            spec = remaining(replace(state, placed=None), now_s)
            # a limit that cannot be kept any more: it runs all the same, as it would alone
            plan = within_limits(
                spec,
                lambda spec: make_plan(spec, self.places, limit=ALL_OFFERS, store_place=state.store_place),
            )
            found = ways(plan.candidates, self.capacity)
            self._no_plan.pop(state.job_id, None)
        except ArylError as error:  # what was known is better than nothing; else it waits, and says so
            self._no_plan[state.job_id] = error.message
        self._plans[state.job_id] = (time.monotonic(), found)
        return found

    def _begin(self, decision: Decision) -> bool:
        """Give the turns. False: one could not be begun, and what was to be given it is others'."""
        from arylcloud.core.errors import ArylError

        done = True
        for start in decision.starts:
            try:
                self._give_turn(start)
                self._refused.pop(start.job_id, None)
            except ArylError as error:
                self._say(start.job_id, f"cannot have its turn: {error.message}")
                _, pause_s = self._refused.get(start.job_id, (0.0, FIRST_PAUSE_S))
                later = (time.monotonic() + pause_s, min(2 * pause_s, LONGEST_REFUSAL_S))
                self._refused[start.job_id] = later
                done = False
        return done

    def _carry_out(self, decision: Decision) -> None:
        from arylcloud.core.errors import ArylError

        for stop in decision.stops:
            try:
                self._make_way(stop)
            except ArylError as error:
                self._say(stop.job_id, f"cannot be asked to make way: {error.message}")
        for job_id, text in decision.waiting:
            self._say(job_id, f"waits: {text}")

    def _make_way(self, stop: Stop) -> None:
        from arylcloud.cli.assemble import open_prefix
        from arylcloud.cli.request import write_request

        write_request(open_prefix(self._states[stop.job_id].prefix_uri), "stop", {BY_QUEUE: stop.why})
        self._asked[stop.job_id] = time.monotonic() + ASKED_S
        self._say(stop.job_id, f"makes way ({stop.why})")

    def _give_turn(self, start: Start) -> None:
        """Journal the decision, and start its launcher: in this order, so that none runs anywhere else."""
        from arylcloud.cli.assemble import new_writer_id, open_prefix
        from arylcloud.cli.resume import begin_again
        from arylcloud.core.errors import ConflictError
        from arylcloud.launcher.journaltime import journal_now_s

        job_id = start.job_id
        store = open_prefix(self._states[job_id].prefix_uri)
        with self.journal.claim(job_id):
            self._read_on(job_id)
            if self._states[job_id].phase.ended and not begin_again(
                self.journal, job_id, store, by_queue=True
            ):
                self._read_on(job_id)
                raise ConflictError(f"{job_id} has been stopped by a user")
            at_s = journal_now_s(self.journal, job_id, store, time.time())
            way = self._plans[job_id][1][start.gpu]
            count = way.offer.gpu_count
            event = QueueDecided(gpu=start.gpu, why=start.why, nodes=way.nodes, count=count)
            self.journal.append(job_id, at_s, new_writer_id(), event, None, mirror=store)
        self._asked.pop(job_id, None)
        self._pauses.pop(job_id, None)
        self._ended.pop(job_id, None)
        self._say(job_id, f"its turn, on {start.gpu} ({start.why})")
        self._serve(job_id)


def queue_policy(name: str) -> Policy:
    """A policy that a queue can be run by. UsageError says why another cannot."""
    from arylcloud.core.errors import UsageError
    from arylcloud.planner.policies.registry import policy

    found = policy(name)
    if found.kind != "shares":
        raise UsageError(
            f"{name} chooses sizes, and `serve` gives every job the size that it asks for",
            hint="a policy that divides time: max_min_fairness_perf, fifo_perf, min_cost",
        )
    if found.packs:
        raise UsageError(
            f"{name} lets jobs share GPUs, which are whole here", hint="the same without packing"
        )
    if Law.CAPACITY not in found.laws:
        raise UsageError(f"{name} hands out more GPUs than there are", hint="--policy isolated")
    return found


def told(server: QueueServer) -> str:
    """What is served, in one line."""
    gpus = ", ".join(f"{count} {gpu}" for gpu, count in server.capacity.items())
    budget = "" if server.budget_usd is None else f", ${server.budget_usd:,.2f} for all of them"
    return (
        f"queued jobs take turns on {gpus} by {server.policy.name}, in rounds of {server.round_s:g} s{budget}"
    )
