"""A cluster problem as a JSON document, and the answer as one: for whoever checks a policy against a paper.

The format is that of Gavel's policy goldens: ``num_workers, costs, jobs, throughputs, pairs, SLOs_s``; see
docs/problem-file.md for every key. Keys that are not known are ignored.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import (
    Allocation,
    ClusterProblem,
    F,
    I,
    Sharing,
    job_rates,
    unplaceable,
    violation,
)
from arylcloud.planner.problem_reader import HINT, Reader, bad, shown


def instance(document: Any, name: str | None = None, *, where: str = "problem") -> dict[str, Any]:
    """The one problem in ``document``: itself, or the instance of that ``id`` in a file of ``instances``.

    What the file says about all of them (``worker_type_order``) holds for each that does not say so itself.
    """
    if not isinstance(document, dict):
        raise UsageError(f"{where}: an object was expected, not {shown(document)}", hint=HINT)
    instances = document.get("instances")
    if instances is None:
        if name is not None and name != document.get("id"):
            raise UsageError(
                f"{where}: holds one problem and no instance '{name}'", hint="leave --instance out"
            )
        return document
    if not isinstance(instances, list) or not all(isinstance(one, dict) for one in instances):
        raise UsageError(f"{where}: instances: a list of objects was expected", hint=HINT)
    names = [str(one.get("id", i)) for i, one in enumerate(instances)]
    if name is None and len(instances) == 1:
        name = names[0]
    if name not in names:
        said = "say which of its instances" if name is None else f"no instance '{name}'"
        raise UsageError(f"{where}: {said}", hint=f"--instance with one of: {', '.join(names)}")
    shared = {key: document[key] for key in ("worker_type_order",) if key in document}
    return {**shared, **instances[names.index(name)]}


def parse_problem(document: Any, *, where: str = "problem") -> ClusterProblem:
    """UsageError, one line with the place, for whatever does not hold."""
    if not isinstance(document, dict):
        raise bad(where, "an object", document)
    read = Reader(document, where)
    types = read.worker_types()
    m = len(types)
    workers = read.per_type("num_workers", types, least=0.0)
    if not workers.any():
        raise UsageError(f"{where}: num_workers: no worker at all", hint="give at least one type a worker")
    jobs = read.jobs()
    n = len(jobs)
    problem = ClusterProblem(
        worker_types=types,
        workers=workers,
        throughput=read.matrix("throughputs", n, m),
        gpus=read.column(jobs, "scale_factor", 1.0, least=1.0, whole=True),
        weight=read.column(jobs, "weight", 1.0, above=0.0),
        usd_per_hour=read.per_type("costs", types, above=0.0),
        steps_left=read.column(jobs, "num_steps_remaining", None, above=0.0),
        age_s=read.column(jobs, "time_since_start", 0.0, least=0.0),
        isolated_s=read.optional("cumulative_isolated_time", n),
        deadline_s=read.deadlines(n),
        horizon_s=read.scalar("horizon_s"),
        budget_usd=read.scalar("budget_usd"),
        **read.entities(n),
    )
    pairs = read.pairs(n, m)
    if pairs is None:
        return problem
    return replace(problem, sharing=_grouped(problem, [job.get("job_type") for job in jobs], *pairs))


def answer(problem: ClusterProblem, policy: str, allocation: Allocation, seconds: float) -> dict[str, Any]:
    """The document that ``plan --problem`` prints, without its ``schema_version``.

    ``allocation``: a row per job, fractions of time on each type, in the file's order. With pairs,
    ``allocation_rows`` holds ``[[jobs…], fraction per type…]`` for every single job and every pair.
    """
    rows = [[[i], *row] for i, row in enumerate(allocation.shares.tolist())]
    if allocation.pair_shares is not None:
        rows += [
            [pair, *row]
            for pair, row in zip(allocation.pairs.tolist(), allocation.pair_shares.tolist(), strict=True)
        ]
    objective = allocation.objective
    return {
        "policy": policy,
        "objective": [_number(x) for x in objective] if isinstance(objective, tuple) else _number(objective),
        "bound": _number(allocation.bound),
        "allocation": allocation.shares.tolist(),
        **({"allocation_rows": rows} if len(rows) > len(problem) else {}),
        "fallback": allocation.fallback,
        "unmet": _plain(allocation.unmet),
        "unplaceable": unplaceable(problem).tolist(),
        "worker_types": list(problem.worker_types),
        "worker_value": _plain(allocation.worker_value),
        "bought_s": _plain(allocation.seconds),
        "throughputs": job_rates(problem, allocation).tolist(),
        "violation": violation(problem, allocation),
        "seconds": seconds,
    }


def _plain(value: F | I | None) -> Any:
    return None if value is None else value.tolist()


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _grouped(problem: ClusterProblem, kinds: list[Any], ends: I, rates: F) -> Sharing:
    """Classes of jobs that behave alike, if that loses nothing; each job its own class otherwise."""
    n, m = problem.throughput.shape
    keys = [
        (str(kind), float(gpus), row.tobytes())
        for kind, gpus, row in zip(kinds, problem.gpus, problem.throughput, strict=True)
    ]
    number = {key: c for c, key in enumerate(dict.fromkeys(keys))}
    alike = np.array([number[key] for key in keys], dtype=np.int64)
    present = np.zeros((n, n), dtype=bool)
    present[ends[:, 0], ends[:, 1]] = present[ends[:, 1], ends[:, 0]] = True
    for job_class in (alike, np.arange(n)):
        a, b = job_class[ends[:, 0]], job_class[ends[:, 1]]
        rate = np.zeros((int(job_class.max()) + 1,) * 2 + (m,))
        rate[a, b], rate[b, a] = rates[:, 0], rates[:, 1]
        same = np.array_equal(rate[a, b], rates[:, 0]) and np.array_equal(rate[b, a], rates[:, 1])
        absent = ~present & ~np.eye(n, dtype=bool) & (rate[job_class][:, job_class] > 0).any(axis=2)
        if same and not absent.any():
            break
    return Sharing(job_class=job_class, rate=rate)
