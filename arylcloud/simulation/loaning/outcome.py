"""What came of a run: columns per job, and sums over the measured days."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counted while it runs; GPU-seconds within the measured days."""

    measured_s: float = 0.0
    own_gpu_s: float = 0.0
    """Training GPUs in use."""
    lent_gpu_s: float = 0.0
    """Borrowed GPUs in use."""
    inference_gpu_s: float = 0.0
    total_gpu_s: float = 0.0
    """All GPUs of both clusters."""
    own_total_gpu_s: float = 0.0
    work_gpu_s: float = 0.0
    """Training work done and not lost again, in seconds of a job on its own GPUs, times those."""
    loans: int = 0
    returns: int = 0
    """Servers lent and given back."""
    reclaims: int = 0
    """Times that servers in use had to go back."""
    shrunk: int = 0
    """Resizes that a reclaim or an admission forced."""
    resizes: int = 0
    ended: int = 0
    """Jobs ended by a reclaim."""
    preempted: int = 0
    """Jobs ended for a shorter one."""
    lost_gpu_s: float = 0.0
    """Work lost by reclaims, times GPUs, and what the restarts take."""
    vacated_gpus: int = 0
    reclaimed_gpus: int = 0
    """GPUs that the ended jobs left, and GPUs of the servers that went back for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """One run."""

    queue_s: F
    """(n,) time not running, after preemptions too."""
    jct_s: F
    """(n,) submission to finish."""
    measured: NDArray[np.bool_]
    """(n,) submitted in the measured days."""
    tally: Tally
    end_s: float
    submit_s: F


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the measured jobs, and of the measured days."""

    jobs: int
    queue_late_share: float
    """Of all queueing, how much fell on jobs submitted in the last six of the measured days."""
    queue_mean_s: float
    queue_median_s: float
    queue_p95_s: float
    queue_p99_s: float
    queue_max_s: float
    jct_mean_s: float
    jct_median_s: float
    jct_p95_s: float
    usage: float | None
    """In use, of all GPUs of both clusters; None, as the next two, where no time was measured."""
    work_usage: float | None
    """The same, training counted by the work done: what a borrowed GPU or one more worker adds."""
    training_usage: float | None
    ended: int
    preempted: int
    resizes: int
    lost_gpu_h: float
    collateral: float | None
    """(GPUs vacated − GPUs reclaimed)/GPUs reclaimed; None where no job was ended."""


def figures(outcome: Outcome) -> Figures:
    """Means, medians and tails. UsageError: no job was submitted in the measured days."""
    mask = outcome.measured
    if not mask.any():
        raise UsageError("no job is submitted in the measured days", hint="measure others: --days A:B")
    submit = outcome.submit_s[mask]
    queue, jct, t = outcome.queue_s[mask], outcome.jct_s[mask], outcome.tally
    in_use = t.own_gpu_s + t.lent_gpu_s + t.inference_gpu_s
    return Figures(
        jobs=int(mask.sum()),
        queue_late_share=float(queue[submit >= submit.max() - 6 * 86_400.0].sum() / max(queue.sum(), 1e-9)),
        queue_mean_s=float(queue.mean()),
        queue_median_s=float(np.median(queue)),
        queue_p95_s=float(np.percentile(queue, 95)),
        queue_p99_s=float(np.percentile(queue, 99)),
        queue_max_s=float(queue.max()),
        jct_mean_s=float(jct.mean()),
        jct_median_s=float(np.median(jct)),
        jct_p95_s=float(np.percentile(jct, 95)),
        usage=_share(in_use, t.total_gpu_s),
        work_usage=_share(t.work_gpu_s + t.inference_gpu_s, t.total_gpu_s),
        training_usage=_share(t.own_gpu_s, t.own_total_gpu_s),
        ended=t.ended,
        preempted=t.preempted,
        resizes=t.resizes,
        lost_gpu_h=t.lost_gpu_s / 3600.0,
        collateral=(t.vacated_gpus - t.reclaimed_gpus) / t.reclaimed_gpus if t.reclaimed_gpus else None,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
