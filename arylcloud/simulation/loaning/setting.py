"""The setting: which jobs are elastic and fungible, how they scale, and how many servers may be borrowed.

Aryl's own traces are private; this is the recipe from public ones, with every assumption a parameter. Elastic
jobs are the first of a ranking by ``sha256("elastic:" + id)``, jobs of two and more GPUs before those of one,
so that larger shares contain smaller ones; fungible are those with ``sha256("fungible:" + id)`` below the
share. A seed s > 0 goes into the text as ``elastic:{s}:``. A flexible worker's worth comes from measured
strong scaling, ``rate(w) = (w/n)^a`` with ``a = log2(r(2n)/r(n))`` of a curve drawn by hash.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F
from arylcloud.simulation.cluster.throughputs import number, rows_of, whole
from arylcloud.simulation.cluster.workload import Jobs

DAY_S = 86_400.0
MOST_DAYS = 3_660
"""Longest series of requests, and longest time that jobs may take: a million ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in order of submission; lists, since a simulation reads them one by one."""

    submit_s: list[float]
    work_s: list[float]
    """Running time on its own number of GPUs."""
    gpus: list[int]
    elastic: list[bool]
    """May hold up to twice its GPUs."""
    fungible: list[bool]
    """May run on loaned servers."""
    power: list[float]
    """``rate(w) = (w/gpus)^power``; 1 = linear."""

    def __len__(self) -> int:
        return len(self.gpus)


Curves = Mapping[int, Sequence[float]]
"""GPUs → exponents ``log2(r(2n)/r(n))`` of measured curves, in the file's order."""


def read_curves(path: Path) -> dict[int, list[float]]:
    """From a CSV of ``gpu_type,model,global_batch_size,num_gpus,iterations_per_s``; UsageError if bad."""
    measured: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    columns = ("gpu_type", "model", "global_batch_size", "num_gpus", "iterations_per_s")
    for line, row in rows_of(path, columns):
        where = f"{path}:{line}"
        rate = number(row["iterations_per_s"], where, "iterations_per_s")
        key = (row["gpu_type"], row["model"], row["global_batch_size"])
        measured[key][whole(row["num_gpus"], where, "num_gpus", least=1)] = rate
    found: dict[int, list[float]] = defaultdict(list)
    for key, curve in measured.items():
        for gpus, rate in sorted(curve.items()):
            double = curve.get(2 * gpus, 0.0)
            if rate > 0 and double > 0:
                ratio = double / rate
                if not 1e-3 <= ratio <= 1e3:
                    raise UsageError(
                        f"{path}: {' '.join(key)}: {rate:g} iterations/s on {gpus} GPUs, {double:g} on twice "
                        "as many",
                        hint="twice the GPUs do not change a rate a thousandfold: the same unit in all rows",
                    )
                found[gpus].append(float(np.log2(ratio)))
    if not found:
        raise UsageError(
            f"{path}: no curve with rates at n and 2n GPUs",
            hint="rows of one gpu_type, model and global_batch_size at 1, 2, 4… GPUs",
        )
    return dict(found)


def workload(
    jobs: Jobs,
    *,
    seed: int = 0,
    elastic_share: float = 0.05,
    fungible_share: float = 0.21,
    curves: Curves | None = None,
    largest: bool = False,
) -> Workload:
    """``jobs`` with their roles drawn. Without ``curves`` scaling is linear. ``largest``: the elastic jobs
    are those with most GPU-seconds instead. Durations must be given (a jobs CSV)."""
    salt = f"{seed}:" if seed else ""
    count = len(jobs)
    if largest:
        rank: list[tuple[float, float]] = [
            (0.0, -float(g * d)) for g, d in zip(jobs.gpus, jobs.duration_s, strict=True)
        ]
    else:
        draws = (_unit(f"elastic:{salt}{name}") for name in jobs.names)
        rank = [(float(g < 2), u) for g, u in zip(jobs.gpus, draws, strict=True)]
    chosen = set(sorted(range(count), key=rank.__getitem__)[: round(elastic_share * count)])
    gpus = [int(g) for g in jobs.gpus]
    return Workload(
        submit_s=jobs.arrival_s.tolist(),
        work_s=jobs.duration_s.tolist(),
        gpus=gpus,
        elastic=[i in chosen for i in range(count)],
        fungible=[_unit(f"fungible:{salt}{name}") < fungible_share for name in jobs.names],
        power=[
            _power(curves, g, f"curve:{salt}{name}") if curves and i in chosen else 1.0
            for i, (g, name) in enumerate(zip(gpus, jobs.names, strict=True))
        ],
    )


def _unit(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _power(curves: Curves, gpus: int, text: str) -> float:
    """A curve measured at that number of GPUs, or at the next smaller one that was measured."""
    at = max((n for n in curves if n <= gpus), default=min(curves))
    return curves[at][int(_unit(text) * len(curves[at]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """The inference cluster's own load: (t,) shares of its GPUs in use, one per ``step_s``, repeating."""

    share: F
    step_s: float
    servers: int
    headroom: float = 0.03

    def used(self, step: int) -> float:
        return float(self.share[step % len(self.share)])

    def loanable(self, step: int) -> int:
        """Servers that may be lent: ``⌊N·(1 − u − headroom)⌋``, at least 0."""
        return max(0, int(self.servers * (1.0 - self.used(step) - self.headroom)))


def read_inference(
    path: Path,
    servers: int,
    *,
    series: str = "servegen:language/m-small",
    low: float = 0.42,
    high: float = 0.95,
    headroom: float = 0.03,
    step_s: float = 300.0,
) -> Inference:
    """Request rates as utilisation: zeros are gaps and interpolated, then a centred mean over an hour, then
    the 1st percentile becomes ``low`` and the 99th ``high``. Columns ``trace,timestamp_s,requests_per_s``;
    the series' rows in order of time, evenly spaced, 1 s or more. UsageError for others, and for a load that
    never changes: where its percentiles coincide, what it means as utilisation is not known."""
    times: list[float] = []
    rates: list[float] = []
    others: dict[str, None] = {}
    for line, row in rows_of(path, ("trace", "timestamp_s", "requests_per_s")):
        if row["trace"] == series:
            times.append(number(row["timestamp_s"], f"{path}:{line}", "timestamp_s"))
            rates.append(number(row["requests_per_s"], f"{path}:{line}", "requests_per_s"))
            _evenly(times, f"{path}:{line}")
        elif len(others) < 5:
            others.setdefault((row["trace"] or "")[:60])
    at, rate = np.array(times), np.array(rates)
    if len(at) < 2 or not (rate > 0).any():
        there = f"; there are rows of {', '.join(map(repr, others))}" if others else ""
        raise UsageError(
            f"{path}: no requests of {series!r} in it",
            hint=f"two rows or more of that trace, not all 0{there}",
        )
    rate = np.interp(at, at[rate > 0], rate[rate > 0])
    spacing = float(at[1] - at[0])
    around = round(1800.0 / spacing)
    kernel = np.ones(2 * around + 1)
    kernel[[0, -1]] = 0.5 if around else 1.0
    kernel /= kernel.sum()
    smooth = np.convolve(np.pad(rate, around, mode="wrap"), kernel, mode="valid")
    bottom, top = np.percentile(smooth, [1, 99])
    if top - bottom <= 1e-9 * top:
        raise UsageError(
            f"{path}: the requests of {series!r} do not change, seen over hours",
            hint="a series of a day or more: its quietest hours become "
            f"{low:.0%} and its busiest {high:.0%} of the servers",
        )
    share = np.clip(low + (smooth - bottom) / (top - bottom) * (high - low), 0.0, 1.0)
    span = at[-1] - at[0] + spacing
    steps = np.arange(0.0, span, step_s)
    fine = np.interp(steps, np.append(at - at[0], span), np.append(share, share[0]))
    return Inference(share=fine, step_s=step_s, servers=servers, headroom=headroom)


def _evenly(times: Sequence[float], where: str) -> None:
    """The last of these times follows as the second followed the first."""
    if len(times) < 2:
        return
    spacing, last = times[1] - times[0], times[-1] - times[-2]
    if spacing < 1.0 or abs(last - spacing) > 1e-3 * spacing:
        wanted = "1 or more" if spacing < 1.0 else f"{spacing:.10g} as between the first two"
        raise UsageError(
            f"{where}: timestamp_s is {last:.10g} s after the row before, not {wanted}",
            hint="a trace's rows in order of time, evenly spaced; requests_per_s 0 where it is not known",
        )
    if times[-1] - times[0] > MOST_DAYS * DAY_S:
        raise UsageError(
            f"{where}: timestamp_s is more than {MOST_DAYS:,} days after the first",
            hint="timestamp_s is in seconds",
        )
