"""POP: split jobs and workers at random into k parts, solve each, put the answers together.

Narayanan et al., *Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP*, SOSP
2021: a random part of many small jobs looks like the whole, so that its optimum is close to the whole's,
and k small problems cost far less than one large. Feasible always; near-optimal where no job is a large
part of the cluster. Worth it for what has no structured kernel: the exact ones here solve 100,000 jobs whole.
There are never so many parts that a job which the whole could place fits none of them.

Where workers are counted (choices), a part gets whole GPUs: the remainder goes to the first parts, drawn at
random for each type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, Choice, ClusterProblem, ElasticProblem, F, I
from arylcloud.planner.policies.registry import Choose, Solve


def partitioned(solve: Solve, problem: ClusterProblem, parts: int, rng: np.random.Generator) -> Allocation:
    """``solve`` on each of ``parts`` random parts (no more than there are jobs) with W/parts workers each.
    ``objective`` is None: what the parts' mean together is the policy's own affair; ask
    :func:`~arylcloud.planner.cluster.job_rates`. ``memory`` is not kept."""
    shares = np.zeros_like(problem.throughput)
    pairs, pair_shares, fallback = [], [], False
    seconds, hours = np.zeros_like(problem.throughput), False
    values: list[F] = []
    unmet: list[I] = []
    split = _split(len(problem), min(parts, _most_parts(problem)), rng)
    parts = len(split)
    for index in split:
        budget = None if problem.budget_usd is None else problem.budget_usd / parts
        part = replace(_jobs(problem, index), workers=problem.workers / parts, budget_usd=budget)
        found = solve(part, rng)
        shares[index] = found.shares
        fallback |= found.fallback
        if found.unmet is not None:
            unmet.append(index[found.unmet])
        if found.pair_shares is not None and len(found.pairs):
            pairs.append(index[found.pairs])
            pair_shares.append(found.pair_shares)
        if found.worker_value is not None:
            values.append(found.worker_value / parts)
        if found.seconds is not None:
            seconds[index] = found.seconds
            hours = True
    return Allocation(
        shares=shares,
        pairs=np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64),
        pair_shares=np.concatenate(pair_shares) if pair_shares else None,
        worker_value=np.sum(values, axis=0) if values and len(values) == parts else None,
        seconds=seconds if hours else None,
        fallback=fallback,
        unmet=np.sort(np.concatenate(unmet)) if unmet else None,
    )


def partitioned_choice(
    choose: Choose, problem: ElasticProblem, parts: int, rng: np.random.Generator
) -> Choice:
    """The same for policies that choose configurations; the objective is the sum over the parts, None where
    the policy has none. ``memory`` is not kept: promises made to jobs (ElasticFlow) do not outlive a call."""
    config = np.full(len(problem), -1, dtype=np.int64)
    split = _split(len(problem), min(parts, _most_parts_elastic(problem)), rng)
    parts = max(len(split), 1)
    whole, rest = np.divmod(problem.workers.astype(np.int64), parts)
    extra = np.zeros((parts, len(whole)), dtype=np.int64)
    for j, count in enumerate(rest.tolist()):
        extra[rng.permutation(parts)[:count], j] = 1
    totals: list[float] = []
    refused: list[I] = []
    for k, index in enumerate(split):
        workers = (whole + extra[k]).astype(np.float64)
        found = choose(replace(_elastic_jobs(problem, index), workers=workers), rng)
        config[index] = found.config
        if found.objective is not None:
            totals.append(found.objective)
        if found.refused is not None:
            refused.append(index[found.refused])
    return Choice(
        config=config,
        objective=sum(totals) if len(totals) == len(split) else None,
        refused=np.sort(np.concatenate(refused)) if refused else None,
    )


def _most_parts(problem: ClusterProblem) -> int:
    """So many that every job which fits some type as a whole fits that type's part."""
    room = np.where(problem.throughput > 0, problem.workers, 0.0).max(axis=1, initial=0.0)
    return _least(np.floor(room / problem.gpus))


def _most_parts_elastic(problem: ElasticProblem) -> int:
    """The same, for each job's smallest configuration by its type's GPUs; parts hold whole GPUs."""
    configs = problem.configs
    times = np.floor(problem.workers[configs.worker_type] / configs.gpus)
    return _least(np.where(problem.rate > 0, times, 0.0).max(axis=1, initial=0.0))


def _least(times: F) -> int:
    """(n,) how often a type holds each job; 0 = it fits nowhere, whatever the parts."""
    return int(times[times > 0].min()) if (times > 0).any() else 1


def _split(jobs: int, parts: int, rng: np.random.Generator) -> list[I]:
    if parts < 1:
        raise ValueError(f"{parts} parts")
    return [np.sort(index) for index in np.array_split(rng.permutation(jobs), parts) if len(index)]


def _some(column: F | None, index: I) -> F | None:
    return None if column is None else column[index]


def _jobs(problem: ClusterProblem, index: I) -> ClusterProblem:
    """The problem of some of its jobs."""
    sharing = problem.sharing
    return replace(
        problem,
        throughput=problem.throughput[index],
        gpus=problem.gpus[index],
        weight=problem.weight[index],
        steps_left=problem.steps_left[index],
        age_s=problem.age_s[index],
        isolated_s=_some(problem.isolated_s, index),
        deadline_s=_some(problem.deadline_s, index),
        own_usd_per_hour=_some(problem.own_usd_per_hour, index),
        sharing=None if sharing is None else replace(sharing, job_class=sharing.job_class[index]),
        entity=None if problem.entity is None else problem.entity[index],
        job_id=problem.ids[index],
        memory=None,
    )


def _elastic_jobs(problem: ElasticProblem, index: I) -> ElasticProblem:
    return replace(
        problem,
        rate=problem.rate[index],
        work_left=problem.work_left[index],
        age_s=problem.age_s[index],
        run_s=problem.run_s[index],
        attained_gpu_s=problem.attained_gpu_s[index],
        weight=problem.weight[index],
        current=problem.current[index],
        restarts=problem.restarts[index],
        restart_s=problem.restart_s[index],
        deadline_s=_some(problem.deadline_s, index),
        job_id=None if problem.job_id is None else problem.job_id[index],
        memory=None,
    )
