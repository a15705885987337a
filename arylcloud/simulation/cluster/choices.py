"""Policies that choose a configuration for every job (Sia's family): held until the next decision.

The policy is asked when jobs came or went, and at least every ``reset_s``; growth is limited as the policy
limits it. A job may run at every number of GPUs for which the table has a rate of its type, with the
same number of steps to do (Gavel's steps/s count the steps of all workers together); ``rigid``: at its own
number only. What changes its configuration starts anew (``restart_s``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import Configs, ElasticProblem, F, I
from arylcloud.planner.policies.registry import Choose, Policy
from arylcloud.simulation.cluster.roster import Placement, Roster
from arylcloud.simulation.cluster.workload import Workload


def _ints() -> I:
    return np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True)
class Choices:
    """Shapes (n,) over the roster's jobs; k configurations (type × GPUs)."""

    policy: Policy
    roster: Roster
    usd_per_hour: F
    reset_s: float
    restart_s: float
    rigid: bool
    rng: np.random.Generator
    choose: Choose
    decisions: int = 0
    stale: bool = False
    last_s: float = 0.0
    memory: object | None = None
    configs: Configs | None = None
    current: I = field(default_factory=_ints)
    restarts: I = field(default_factory=_ints)
    run_s: F = field(default_factory=lambda: np.zeros(0))
    attained_gpu_s: F = field(default_factory=lambda: np.zeros(0))
    rate: F = field(default_factory=lambda: np.zeros(0))
    """Steps/s in the configuration held."""
    refused: set[int] = field(default_factory=set)
    """Jobs to which the policy, at some decision, would not promise their deadline."""

    def arrive(self, jobs: I) -> None:
        more = len(jobs)
        self.current = np.concatenate((self.current, np.full(more, -1)))
        self.restarts = np.concatenate((self.restarts, np.zeros(more, np.int64)))
        self.run_s = np.concatenate((self.run_s, np.zeros(more)))
        self.attained_gpu_s = np.concatenate((self.attained_gpu_s, np.zeros(more)))
        self.rate = np.concatenate((self.rate, np.zeros(more)))
        self.stale = True

    def leave(self, mask: NDArray[np.bool_]) -> None:
        self.current, self.restarts = self.current[mask], self.restarts[mask]
        self.run_s, self.attained_gpu_s = self.run_s[mask], self.attained_gpu_s[mask]
        self.rate = self.rate[mask]
        self.stale = True

    def force(self) -> None:
        self.stale = True

    def select(self, now_s: float, workload: Workload) -> Placement:
        if self.configs is None:
            self.configs = _configs(workload)
        if self.stale or now_s - self.last_s >= self.reset_s:
            self._decide(now_s, workload, self.configs)
        who = np.flatnonzero(self.current >= 0)
        config = self.current[who]
        return Placement(
            who=who,
            worker_type=self.configs.worker_type[config],
            rate=self.rate[who],
            gpus=self.configs.gpus[config],
            slot=config,
        )

    def account(self, placement: Placement, held_s: F) -> None:
        self.run_s[placement.who] += held_s
        self.attained_gpu_s[placement.who] += held_s * placement.gpus

    def _decide(self, now_s: float, workload: Workload, configs: Configs) -> None:
        roster = self.roster
        rate = _rates(workload, roster.job, configs, rigid=self.rigid)
        rate[:, configs.gpus > roster.workers[configs.worker_type]] = 0.0
        rate[np.floor(rate * roster.round_s) <= 0] = 0.0
        ahead = roster.deadline_s - now_s
        problem = ElasticProblem(
            worker_types=workload.worker_types,
            workers=roster.workers.astype(np.float64),
            usd_per_hour=self.usd_per_hour,
            configs=configs,
            rate=rate,
            work_left=roster.left.copy(),
            age_s=now_s - roster.arrival_s,
            run_s=self.run_s.copy(),
            attained_gpu_s=self.attained_gpu_s.copy(),
            weight=workload.weight[roster.job],
            current=self.current.copy(),
            restarts=self.restarts.copy(),
            restart_s=np.full(len(roster), self.restart_s),
            deadline_s=ahead if self.policy.deadlines else None,
            job_id=roster.job,
            memory=self.memory,
        )
        choice = self.choose(problem, self.rng)
        self.decisions += 1
        self.memory, self.stale, self.last_s = choice.memory, False, now_s
        self.restarts += (choice.config != self.current) & (choice.config >= 0) & roster.started
        self.current = choice.config.copy()
        self.rate = np.where(self.current >= 0, rate[np.arange(len(roster)), self.current], 0.0)
        if choice.refused is not None:
            self.refused.update(roster.job[choice.refused].tolist())


def _configs(workload: Workload) -> Configs:
    """Every type × every number of GPUs that a job asks for or the table knows for one of their types."""
    known = [int(workload.class_gpus[i]) for c in np.unique(workload.job_class) for i in workload.scales[c]]
    sizes = np.unique(np.concatenate((np.array(known, np.int64), workload.gpus)))
    m = len(workload.worker_types)
    return Configs(
        worker_type=np.repeat(np.arange(m), len(sizes)),
        gpus=np.tile(sizes, m),
        nodes=np.ones(m * len(sizes), np.int64),
    )


def _rates(workload: Workload, job: I, configs: Configs, *, rigid: bool) -> F:
    """(n, k) steps/s; 0 = not possible."""
    rate = np.zeros((len(job), len(configs)))
    classes = workload.job_class[job]
    own = workload.gpus[job]
    for c in np.unique(classes):
        of_class = np.flatnonzero(classes == c)
        for size in np.unique(own[of_class]):
            rows = of_class[own[of_class] == size]
            # beyond the table's sizes a job has the rate of the largest one below, and no other size
            family = (int(c),) if rigid or workload.class_gpus[c] != size else workload.scales[c]
            for i in family:
                gpus = size if i == c else int(workload.class_gpus[i])
                columns = np.flatnonzero(configs.gpus == gpus)
                rate[np.ix_(rows, columns)] = workload.rate[i, configs.worker_type[columns]]
    return rate
