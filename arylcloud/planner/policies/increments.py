"""What the elastic baselines have in common: a job starts on one type and grows there, step by step.

The papers of AFS, Optimus, ElasticFlow and Tiresias have one type of GPU. Here a job that starts takes the
type on which its smallest configuration is fastest per GPU among those with room, and its ladder is the
configurations of that type in order of GPUs, without those that are not faster than a smaller one.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import ElasticProblem, F, I


class Ladders:
    """Free GPUs and the configuration of every job, while a policy hands out GPUs.

    ``steps[i][j]``: configuration indices of job ``i`` on type ``j``, GPUs and rate both increasing.
    """

    def __init__(self, problem: ElasticProblem) -> None:
        self._gpus = problem.configs.gpus.tolist()
        self._kind = problem.configs.worker_type.tolist()
        self.rate = problem.rate.tolist()
        self.free = problem.workers.astype(np.int64).tolist()
        self.config = [-1] * len(problem)
        order = np.lexsort((problem.configs.nodes, problem.configs.gpus, problem.configs.worker_type))
        types = len(problem.workers)
        self.steps: list[list[list[int]]] = []
        for rates in self.rate:
            ladder: list[list[int]] = [[] for _ in range(types)]
            for c in order.tolist():
                rungs = ladder[self._kind[c]]
                if rates[c] > (rates[rungs[-1]] if rungs else 0.0):
                    if rungs and self._gpus[rungs[-1]] == self._gpus[c]:
                        rungs[-1] = c
                    else:
                        rungs.append(c)
            self.steps.append(ladder)

    def gpus(self, config: int) -> int:
        return self._gpus[config] if config >= 0 else 0

    def first(self, job: int, prefer: int = -1) -> int | None:
        """The smallest configuration on the type on which that is fastest per GPU, of those with room; the
        type of ``prefer`` (the configuration held now) where it has room: moving costs a restart."""
        options = [
            rungs[0]
            for j, rungs in enumerate(self.steps[job])
            if rungs and self.gpus(rungs[0]) <= self.free[j]
        ]
        if not options:
            return None
        if prefer >= 0:
            for c in options:
                if self._kind[c] == self._kind[prefer]:
                    return c
        return max(options, key=lambda c: (self.rate[job][c] / self.gpus(c), -c))

    def next(self, job: int) -> int | None:
        """The next step up on the job's type, where it fits; None at the top or without room."""
        held = self.config[job]
        rungs = self.steps[job][self._kind[held]]
        above = rungs.index(held) + 1
        if above == len(rungs):
            return None
        extra = self.gpus(rungs[above]) - self.gpus(held)
        return rungs[above] if extra <= self.free[self._kind[held]] else None

    def take(self, job: int, config: int) -> None:
        """Give the job that configuration instead of the one it has."""
        held = self.config[job]
        if held >= 0:
            self.free[self._kind[held]] += self.gpus(held)
        self.free[self._kind[config]] -= self.gpus(config)
        self.config[job] = config

    def choice(self) -> I:
        return np.array(self.config, dtype=np.int64)


def remaining_s(problem: ElasticProblem) -> F:
    """(n, k) seconds of work left in each configuration; inf where it cannot run."""
    with np.errstate(divide="ignore"):
        left: F = np.where(problem.rate > 0, problem.work_left[:, None] / problem.rate, np.inf)
    return left
