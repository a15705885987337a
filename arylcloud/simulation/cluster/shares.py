"""Policies that give shares of time, in rounds (Gavel, OSDI 2020, §5; its scheduler.py read for the rules).

* The policy is asked when jobs came or went *and* at least ``reset_s`` passed since it was asked last (or
  that was at time 0); until then a new job has no share: it may be picked for GPUs that are left over, which
  then stay idle, since nothing is started that the allocation does not name.
* Every round each type takes jobs by priority x/(f/F), then deficit, then x, then arrival, work-conserving:
  jobs without a share on this type come last, by their deficit (not under FIFO). Types take turns fastest
  first; for policies blind to types in an order drawn each round.
* At a new allocation the deficit grows by what a job should have got and did not, and the time received
  starts again at half a round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I, Sharing
from arylcloud.planner.kernels.rounds import by_need, fill, priorities
from arylcloud.planner.policies.registry import Policy, Solve
from arylcloud.simulation.cluster.roster import Placement, Roster
from arylcloud.simulation.cluster.workload import Workload

_NOISE, _SPARE = 1e-6, 1e-9
"""A share so small is none where leftovers have an order of their own; the largest entry of that order."""


@dataclass(slots=True, kw_only=True)
class Shares:
    """Shapes (m, n) over worker types and the roster's jobs."""

    policy: Policy
    roster: Roster
    usd_per_hour: F
    order: tuple[int, ...]
    """Worker types, fastest first."""
    reset_s: float
    rng: np.random.Generator
    shuffler: random.Random
    solve: Solve
    sharing_rate: F | None = None
    """(c, c, m), for policies that pack."""
    horizon_s: float | None = None
    decisions: int = 0
    stale: bool = False
    """Jobs came or went since the policy was asked."""
    last_s: float = 0.0
    memory: object | None = None
    share: F = field(default_factory=lambda: np.zeros((0, 0)))
    useful: F = field(default_factory=lambda: np.zeros((0, 0)))
    """``share`` where the job can run, else 0."""
    deficit_s: F = field(default_factory=lambda: np.zeros((0, 0)))
    received_s: F = field(default_factory=lambda: np.zeros((0, 0)))
    given_s: F = field(default_factory=lambda: np.zeros(0))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    ranks: list[I] | None = None
    """Per type the jobs that fit, by deficit, x, arrival: valid until the roster or the shares change."""

    def __post_init__(self) -> None:
        m = len(self.roster.workers)
        self.share = self.useful = self.deficit_s = self.received_s = np.zeros((m, 0))
        self.given_s = np.zeros(m)

    @property
    def half_round_s(self) -> float:
        return self.roster.round_s / 2.0

    @property
    def refused(self) -> set[int]:
        return set()

    def arrive(self, jobs: I) -> None:
        more = np.zeros((len(self.given_s), len(jobs)))
        self.share = np.concatenate((self.share, more), axis=1)
        self.useful = np.concatenate((self.useful, more), axis=1)
        self.deficit_s = np.concatenate((self.deficit_s, more), axis=1)
        self.received_s = np.concatenate((self.received_s, more + self.half_round_s), axis=1)
        self.known = np.concatenate((self.known, np.zeros(len(jobs), np.bool_)))
        self.stale, self.ranks = True, None

    def leave(self, mask: NDArray[np.bool_]) -> None:
        self.share, self.useful = self.share[:, mask], self.useful[:, mask]
        self.deficit_s, self.received_s = self.deficit_s[:, mask], self.received_s[:, mask]
        self.known = self.known[mask]
        self.stale, self.ranks = True, None

    def force(self) -> None:
        """Nothing can run and nothing is to come: the policy is asked again at once."""
        self.last_s = 0.0
        self.stale = True

    def select(self, now_s: float, workload: Workload) -> Placement:
        if self.stale and (now_s - self.last_s >= self.reset_s or self.last_s == 0.0):
            self._reset(now_s, workload)
        return self._pick()

    def account(self, placement: Placement, held_s: F) -> None:
        """``held_s`` (e,) seconds since the round began, own end included."""
        self.received_s[placement.worker_type, placement.who] += held_s
        np.add.at(self.given_s, placement.worker_type, held_s)

    def _turns(self) -> tuple[int, ...]:
        if self.policy.aware or self.policy.packs:
            return self.order
        turns = list(self.order)
        self.shuffler.shuffle(turns)
        return tuple(turns)

    def _pick(self) -> Placement:
        roster = self.roster
        if self.ranks is None:
            self.ranks = [np.lexsort((-self.share[j], -self.deficit_s[j])) for j in range(len(self.given_s))]
            self.ranks = [rank[roster.fits[j][rank]] for j, rank in enumerate(self.ranks)]
        need = priorities(self.useful, self.received_s, self.given_s)
        free = np.ones(len(roster), np.bool_)
        who: list[I] = []
        kinds: list[int] = []
        for j in self._turns():
            rank, workers = self.ranks[j], int(roster.workers[j])
            if who:
                rank = rank[free[rank]]
            if self.policy.fifo:
                rank = rank[need[j][rank] > 0.0]
            if roster.single:
                taken = rank if len(rank) <= workers else by_need(need[j], rank)[:workers]
            else:
                taken, _ = fill(by_need(need[j], rank), roster.gpus, workers)
            free[taken] = False
            who.append(taken[self.known[taken]])
            kinds.append(j)
        chosen = np.concatenate(who)
        at = np.repeat(np.array(kinds), [len(part) for part in who])
        return Placement(who=chosen, worker_type=at, rate=roster.rate[at, chosen], gpus=roster.gpus[chosen])

    def _reset(self, now_s: float, workload: Workload) -> None:
        elapsed = now_s - self.last_s
        owed = np.where(self.known, self.share * elapsed, 0.0)
        self.deficit_s = self.deficit_s + (owed - (self.received_s - self.half_round_s))
        self.received_s = np.full_like(self.received_s, self.half_round_s)
        self.given_s = np.maximum(self.received_s.sum(axis=1), self.half_round_s)
        self.last_s, self.stale, self.ranks = now_s, False, None
        if not len(self.roster):
            return
        allocation = self._ask(now_s, workload)
        self.share = np.ascontiguousarray(allocation.shares.T)
        self.useful = np.where(self.roster.rate > 0.0, self._with_spare(allocation), 0.0)
        self.known = np.ones(len(self.roster), np.bool_)

    def _with_spare(self, allocation: Allocation) -> F:
        """Shares, and far below them the policy's order for GPUs that are left over, where it has one."""
        if allocation.spare is None:
            return self.share
        idle = (self.share <= _NOISE) & self.roster.fits
        order = np.where(idle, allocation.spare.T, 0.0)
        most = float(order.max(initial=0.0))
        return np.where(idle, order * (_SPARE / most) if most else 0.0, self.share)

    def _ask(self, now_s: float, workload: Workload) -> Allocation:
        problem = self._problem(now_s, workload)
        allocation = self.solve(problem, self.rng)
        self.decisions += 1
        self.memory = allocation.memory
        return allocation

    def _problem(self, now_s: float, workload: Workload) -> ClusterProblem:
        roster = self.roster
        job = roster.job
        deadline: F | None = None
        if self.policy.deadlines:
            ahead = roster.deadline_s - now_s
            deadline = np.where(ahead > 0.0, ahead, np.inf)  # what is missed binds no more
        sharing = None
        if self.policy.packs:
            assert self.sharing_rate is not None
            sharing = Sharing(job_class=workload.job_class[job], rate=self.sharing_rate)
        return ClusterProblem(
            worker_types=workload.worker_types,
            workers=roster.workers.astype(np.float64),
            throughput=np.ascontiguousarray(roster.rate.T),
            gpus=roster.gpus.astype(np.float64),
            weight=workload.weight[job],
            usd_per_hour=self.usd_per_hour,
            steps_left=roster.left.copy(),
            age_s=now_s - roster.arrival_s,
            deadline_s=deadline,
            horizon_s=self.horizon_s,
            sharing=sharing,
            job_id=job,
            memory=self.memory,
        )
