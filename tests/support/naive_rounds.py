"""Gavel's round mechanism as plainly as it can be written: dictionaries, every pair a row, no arrays.

Written from the rules (scheduler.py read, none of it copied), to hold the simulator against.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import ClusterProblem, Sharing
from arylcloud.planner.policies.registry import Policy, Solve
from arylcloud.simulation.cluster.workload import Workload

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Policy):
    """A policy that is a function at hand."""

    function: Solve

    def solve(self) -> Solve:
        return self.function


def given(function: Solve, *, aware: bool = True, packs: bool = False, fifo: bool = False) -> Given:
    return Given(
        name="given", title="", where="", reference="", function=function, aware=aware, packs=packs, fifo=fifo
    )


def naive(
    jobs: Workload,
    policy: Given,
    workers: list[int],
    order: list[int],
    *,
    round_s: float,
    reset_s: float,
    seed: int,
) -> tuple[list[float], float]:
    """Finish times and the end of the simulation."""
    m, half = len(workers), round_s / 2
    shuffler, rng = random.Random(seed + 5), np.random.default_rng(0)
    active: list[int] = []
    left = {i: float(jobs.steps[i]) for i in range(len(jobs))}
    received: dict[Row, list[float]] = {}
    deficit: dict[Row, list[float]] = {}
    share: dict[Row, list[float]] = {}
    given_s = [0.0] * m
    finish = [float("nan")] * len(jobs)
    now, before, last, stale, coming = float(jobs.arrival_s[0]), 0.0, 0.0, False, 0

    def rate(row: Row, j: int) -> list[float]:
        c = [int(jobs.job_class[i]) for i in row]
        if len(row) == 1:
            return [float(jobs.rate[c[0], j])]
        assert jobs.shared is not None
        return [float(jobs.shared[c[0], c[1], j]), float(jobs.shared[c[1], c[0], j])]

    def runs(row: Row, j: int) -> bool:
        return all(int(r * round_s) > 0 for r in rate(row, j))

    while active or coming < len(jobs):
        while coming < len(jobs) and jobs.arrival_s[coming] <= now:
            rows: list[Row] = [(coming,)]
            if policy.packs:
                rows += [(a, coming) for a in active if jobs.gpus[a] == jobs.gpus[coming]]
            for row in rows:
                received[row] = [half if len(row) == 1 else 0.0] * m
                deficit[row] = [0.0] * m
            active.append(coming)
            coming, stale = coming + 1, True
        if stale and (now - last >= reset_s or last == 0):
            for row in received:
                for j in range(m):
                    owed = share.get(row, [0.0] * m)[j] * (now - last)
                    deficit[row][j] += owed - (received[row][j] - half)
                    received[row][j] = half
            given_s = [half * len(received)] * m
            last, stale = now, False
            problem = ClusterProblem(
                worker_types=jobs.worker_types,
                workers=np.array(workers, float),
                throughput=jobs.rate[jobs.job_class[active]],
                gpus=jobs.gpus[active].astype(float),
                weight=jobs.weight[active],
                usd_per_hour=np.ones(m),
                steps_left=np.array([left[i] for i in active]),
                age_s=now - jobs.arrival_s[active],
                sharing=Sharing(job_class=jobs.job_class[active], rate=jobs.shared)
                if policy.packs and jobs.shared is not None
                else None,
                job_id=np.array(active),
            )
            answer = policy.function(problem, rng)
            share = {row: [0.0] * m for row in received}
            for k, i in enumerate(active):
                share[i,] = answer.shares[k].tolist()
            for q, (a, b) in enumerate(answer.pairs.tolist()):
                assert answer.pair_shares is not None
                share[active[a], active[b]] = answer.pair_shares[q].tolist()
        turns = list(order)
        if not policy.aware and not policy.packs:
            shuffler.shuffle(turns)
        busy: set[int] = set()
        running: list[tuple[Row, int]] = []
        for j in turns:
            rank: dict[Row, tuple[float, float, float]] = {}
            for row in received:
                x = share.get(row, [0.0] * m)[j]
                need = x / (received[row][j] / given_s[j]) if x and all(rate(row, j)) else 0.0
                rank[row] = need, deficit[row][j], x
            free = workers[j]
            for row in sorted(received, key=rank.__getitem__, reverse=True):
                size = int(jobs.gpus[row[0]])
                if busy & set(row) or not runs(row, j) or size > free or (policy.fifo and rank[row][0] <= 0):
                    continue
                free -= size
                busy |= set(row)
                if row in share:
                    running.append((row, j))
        if not running:
            if coming < len(jobs):
                now = float(jobs.arrival_s[coming])
            else:
                last, stale = 0.0, True
            continue
        ends: list[float] = []
        through: list[int] = []
        for row, j in running:
            rates = rate(row, j)
            steps = [min(int(r * round_s), left[i]) for r, i in zip(rates, row, strict=True)]
            end = max(now + s / r for s, r in zip(steps, rates, strict=True))
            for i, s in zip(row, steps, strict=True):
                left[i] -= s
                if left[i] <= 0:
                    finish[i] = end
                    through.append(i)
            received[row][j] += end - before
            given_s[j] += end - before
            ends.append(end)
        now = before = max(ends)
        for i in through:
            active.remove(i)
            stale = True
            for row in [r for r in received if i in r]:
                del received[row], deficit[row]
                share.pop(row, None)
    return finish, now


def random_shares(rng: np.random.Generator, *, packs: bool, sparse: float = 0.5) -> Solve:
    """A policy without sense: random feasible-looking shares, many of them 0 or alike, the same for the same
    jobs."""
    salt = int(rng.integers(1 << 30))

    def solve(problem: ClusterProblem, _: np.random.Generator):  # type: ignore[no-untyped-def]
        from arylcloud.planner.cluster import Allocation

        n, m = problem.throughput.shape
        own = np.random.default_rng([salt, n, int(problem.ids.sum())])
        shares = np.round(own.random((n, m)), 1) * (own.random((n, m)) < sparse)
        if not packs:
            return Allocation(shares=shares)
        every = np.array(list(itertools.combinations(range(n), 2)), dtype=np.int64).reshape(-1, 2)
        every = every[problem.gpus[every[:, 0]] == problem.gpus[every[:, 1]]]
        some = every[own.random(len(every)) < 0.3]
        return Allocation(
            shares=shares,
            pairs=some,
            pair_shares=np.round(own.random((len(some), m)), 1) * (own.random((len(some), m)) < 0.7),
        )

    return solve


def small_cluster(seed: int, *, packs: bool, n: int = 14) -> tuple[Workload, list[int], list[int]]:
    """A random workload of short jobs, workers of three types, and an order of the types."""
    rng = np.random.default_rng(seed)
    c, m = 4, 3
    class_gpus = np.array([1, 1, 1, 2])
    rate = rng.uniform(0.05, 2.0, (c, m)) * (rng.random((c, m)) < 0.85)
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    shared = rng.uniform(0.0, 1.0, (c, c, m)) * rate[:, None, :]
    shared *= (rng.random((c, c, m)) < 0.8) & (class_gpus[:, None] == class_gpus[None, :])[:, :, None]
    job_class = rng.integers(0, c, n)
    arrival = np.sort(np.round(rng.uniform(0, 9000, n) * (rng.random(n) < 0.8)))
    if rng.random() < 0.3:
        arrival[-2:] += 40_000  # an idle gap
    jobs = Workload(
        worker_types=("a", "b", "c"),
        names=[str(i) for i in range(n)],
        job_class=job_class,
        gpus=class_gpus[job_class],
        steps=np.floor(rng.uniform(1, 3000, n)),
        arrival_s=arrival,
        weight=np.ones(n),
        deadline_s=np.full(n, np.inf),
        rate=rate,
        shared=shared if packs else None,
        scales=tuple((i,) for i in range(c)),
        class_gpus=class_gpus,
    )
    workers = rng.integers(1, 4, m)
    workers[0] = max(2, workers[0])
    return jobs, workers.tolist(), rng.permutation(m).tolist()
