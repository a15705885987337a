"""Gavel's policy goldens from the study data, and each policy's objective by its formula, not by our code."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, job_rates
from arylcloud.planner.problem import parse_problem

FOLDER = os.environ.get("ARYLCLOUD_STUDY_DATA")
ABSENT = "ARYLCLOUD_STUDY_DATA does not name the study data"
INPUTS = ("SLOs_s", "cumulative_isolated_time", "entities", "entity_weights", "per_entity_policy")
"""Inputs that the file keeps beside an output."""


def instances() -> list[dict[str, Any]]:
    assert FOLDER is not None
    with gzip.open(Path(FOLDER) / "gavel" / "policy_goldens.json.gz") as file:
        found: list[dict[str, Any]] = json.load(file)["instances"]
    return found


def document(instance: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    """The problem that the golden ``output`` answers, as a problem file has it."""
    found = {key: value for key, value in instance.items() if key != "outputs"}
    found |= {key: output[key] for key in INPUTS if key in output}
    if "times_since_start" in output:
        later = zip(instance["jobs"], output["num_steps_remaining"], output["times_since_start"], strict=True)
        found["jobs"] = [{**job, "num_steps_remaining": n, "time_since_start": t} for job, n, t in later]
    return found


def problem(instance: dict[str, Any], output: dict[str, Any]) -> ClusterProblem:
    return parse_problem(document(instance, output))


def on_v100(problem: ClusterProblem) -> F:
    """(n, m) the rates of Gavel's agnostic policies."""
    return np.repeat(
        problem.throughput[:, [problem.worker_types.index("v100")]], len(problem.workers), axis=1
    )


def las(problem: ClusterProblem, found: Allocation) -> float:
    mix = problem.throughput @ problem.workers / problem.workers.sum()
    return float((problem.gpus / (problem.weight * mix) * job_rates(problem, found)).min())


def las_agnostic(problem: ClusterProblem, found: Allocation) -> float:
    return float((problem.gpus / problem.weight * found.shares.sum(axis=1)).min())


def throughput(problem: ClusterProblem, found: Allocation) -> float:
    return float(job_rates(problem, found).sum())


def per_dollar(problem: ClusterProblem, found: Allocation) -> float:
    total = (problem.throughput / problem.prices * found.shares).sum()
    if found.pair_shares is not None:
        assert problem.sharing is not None
        c = problem.sharing.job_class[found.pairs]
        own = np.broadcast_to(problem.prices, problem.throughput.shape)
        both = problem.sharing.rate[c[:, 0], c[:, 1]] / own[found.pairs[:, 0]]
        both += problem.sharing.rate[c[:, 1], c[:, 0]] / own[found.pairs[:, 1]]
        total += (both * found.pair_shares).sum()
    return float(total)


def ftf(problem: ClusterProblem, rates: F, alone: F) -> float:
    n = len(problem)
    z = problem.workers / (n * problem.gpus[:, None])
    z = z / np.maximum(1.0, z.sum(axis=1, keepdims=True))
    past = np.zeros(n) if problem.isolated_s is None else problem.isolated_s
    shared = problem.age_s + problem.steps_left / rates
    return float((shared / (past + problem.steps_left / (alone * z).sum(axis=1))).max())


def ftf_perf(problem: ClusterProblem, found: Allocation) -> float:
    return ftf(problem, job_rates(problem, found), problem.throughput)


def ftf_agnostic(problem: ClusterProblem, found: Allocation) -> float:
    rate = on_v100(problem)
    return ftf(problem, (rate * found.shares).sum(axis=1), rate)


def makespan(problem: ClusterProblem, found: Allocation) -> float:
    return float((problem.steps_left / job_rates(problem, found)).max())


def makespan_agnostic(problem: ClusterProblem, found: Allocation) -> float:
    return float((problem.steps_left / (on_v100(problem) * found.shares).sum(axis=1)).max())


def sorted_rates(problem: ClusterProblem, found: Allocation) -> F:
    """(n,) ascending ``s_i·rate_i/(w_i·p_i)``: what water filling maximises lexicographically."""
    mix = problem.throughput @ problem.workers / problem.workers.sum()
    return np.sort(problem.gpus / (problem.weight * mix) * job_rates(problem, found))


FORMULAS: dict[str, Callable[[ClusterProblem, Allocation], float]] = {
    "max_min_fairness": las_agnostic,
    "max_min_fairness_perf": las,
    "max_min_fairness_packed": las,
    "max_sum_throughput_perf": throughput,
    "max_sum_throughput_normalized_by_cost_perf": per_dollar,
    "max_sum_throughput_normalized_by_cost_perf_SLOs": per_dollar,
    "max_sum_throughput_normalized_by_cost_packed_SLOs": per_dollar,
    "finish_time_fairness": ftf_agnostic,
    "finish_time_fairness_perf": ftf_perf,
    "finish_time_fairness_packed": ftf_perf,
    "min_total_duration": makespan_agnostic,
    "min_total_duration_perf": makespan,
    "min_total_duration_packed": makespan,
}
"""Policies with an ``exact_objective``, by name."""
