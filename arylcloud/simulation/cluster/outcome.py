"""What a simulated cluster did: one row per job, totals per worker type."""

from __future__ import annotations

from dataclasses import dataclass

from arylcloud.planner.cluster import F, I
from arylcloud.simulation.cluster.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """Shapes (n,) over all jobs that arrived or were to arrive, (m,) over worker types."""

    workload: Workload
    workers: I
    """(m,)"""
    finish_s: F
    """When each job ended; NaN = not before the simulation did."""
    run_s: F
    """Time in which each job held GPUs."""
    preemptions: I
    """How often each job, unfinished, lost its GPUs or was moved."""
    held_gpu_s: F
    """(m,) GPU-seconds held, each GPU counted once even where two jobs shared it."""
    charged_gpu_s: F
    """(m,) GPU-seconds as charged to jobs: a GPU that two share is charged to both (Gavel's accounting)."""
    end_s: float
    rounds: int
    decisions: int
    """How often the policy was asked."""
    refused: int = 0
    """Jobs whose deadline an admission control would not promise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Round:
    """One round, as a recorder sees it: e entries, one per running job; a pair has two with one unit."""

    start_s: float
    end_s: float
    job: I
    """(e,) index in the workload."""
    worker_type: I
    gpus: I
    unit: I
    """(e,) which GPUs: entries of one unit share theirs."""
    steps: F
    restarted: I
    """(e,) 1 where the job had to be started anew."""
