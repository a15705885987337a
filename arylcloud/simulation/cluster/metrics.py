"""The figures that a simulation is judged by.

Over the jobs of the window (all, without one): job completion time (own end − arrival), queueing (the part
of it in which the job held no GPUs), preemptions, deadlines. Over the whole run: makespan, utilisation, cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import F
from arylcloud.simulation.cluster.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Hours and dollars. None = not asked for (no prices, no deadlines)."""

    avg_jct_h: float
    median_jct_h: float
    p99_jct_h: float
    makespan_h: float
    """When the last of the jobs waited for was through."""
    utilization: float
    """GPU-time held over GPU-time there was; a shared GPU counts once."""
    cost_usd: float | None
    """As charged to jobs: a GPU that two jobs share is charged to both (as Gavel counts)."""
    gpu_cost_usd: float | None
    """Every GPU-hour once: what the cluster's owner pays."""
    queue_h: float
    """Mean time per job without GPUs."""
    preemptions: int
    jobs: int
    slo_violations: int | None
    refused: int
    """Deadlines that an admission control would not promise (their jobs may run all the same)."""
    rounds: int
    decisions: int


def metrics(
    outcome: Outcome, *, window: tuple[int, int] | None = None, usd_per_hour: F | None = None
) -> Metrics:
    """``usd_per_hour`` (m,) of one GPU of each type."""
    jobs = outcome.workload
    part = slice(*window) if window else slice(None)
    jct_s = (outcome.finish_s - jobs.arrival_s[: len(outcome.finish_s)])[part]
    deadline_s = jobs.deadline_s[: len(outcome.finish_s)][part]
    bound = np.isfinite(deadline_s)
    there_s = outcome.end_s * float(outcome.workers.sum())

    def usd(gpu_s: F) -> float | None:
        return None if usd_per_hour is None else float(gpu_s @ usd_per_hour) / 3600.0

    return Metrics(
        avg_jct_h=float(jct_s.mean()) / 3600.0,
        median_jct_h=float(np.median(jct_s)) / 3600.0,
        p99_jct_h=float(np.percentile(jct_s, 99)) / 3600.0,
        makespan_h=outcome.end_s / 3600.0,
        utilization=float(outcome.held_gpu_s.sum()) / there_s,
        cost_usd=usd(outcome.charged_gpu_s),
        gpu_cost_usd=usd(outcome.held_gpu_s),
        queue_h=float((jct_s - outcome.run_s[part]).mean()) / 3600.0,
        preemptions=int(outcome.preemptions[part].sum()),
        jobs=len(jct_s),
        slo_violations=int((outcome.finish_s[part] > deadline_s)[bound].sum()) if bound.any() else None,
        refused=outcome.refused,
        rounds=outcome.rounds,
        decisions=outcome.decisions,
    )
