"""Expected time and money of a run, for many candidates at once. Pure arrays in, arrays out.

**Model.** A gang of ``n`` machines, each lost at rate λ per hour (memoryless), so M = 3600/(n·λ)
seconds between losses. The training needs ``U = work / throughput`` seconds and saves every τ
seconds (Daly), which holds it up for δ. A loss throws away what has been done since the last save
and costs a boot and a restore, B, for the whole gang. With x = (τ+δ)/M and the segments U/τ::

    losses            K = (U/τ)·(eˣ − 1)                  (exact for memoryless losses)
    running           U·(1 + δ/τ)
    lost work         (U/τ)·(τ+δ)·((eˣ − 1)/x − 1)  ≈  K·(τ+δ)/2 : half an interval and half a save
    boots             B₀·g(B₀/M) + K·B·g(B/M),   g(y) = (eʸ − 1)/y   (a boot may be lost, too)

Money: every part of time × ``n`` × price, and each of the 1 + K gangs for its billed minimum at least (what
is missing counts as boot); egress = data (once, and 1/n of it for every lost machine)
+ saves + restores; storage = disks and kept checkpoints × all hours. Parts are means and sum to
``usd_mean``. A run shorter than τ is one segment.

**Quantiles.** p50: the median number of losses, the estimated throughput. p90: expectation under the
adverse hazard (a third of an assumed mean life) and the low end of the throughput's band, at the same
cadence, and at least p50. This stands in for the true quantile: pessimistic in both at once, without the
spread of the losses beyond it. Screens call it pessimistic.

**No recovery.** Where one loss ends the job there is nothing to come back to: time and money are those of
a run without loss, and what matters is how likely that is, e^(−seconds/M).

Lost work counts the losses as if none was announced: a notice that is used makes it smaller.

References: J. T. Daly, FGCS 22 (2006) 303, eq. 20 (total wall time) and 37 (interval).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CostInputs:
    """One entry per candidate, shape (n,), float64; every value finite and ≥ 0."""

    usd_per_hour: F
    """Per machine."""
    nodes: F
    work_s: F
    """Useful seconds of the whole gang: work / throughput."""
    work_adverse_s: F
    """The same at the low end of the throughput's band."""
    hazard_per_hour: F
    """Losses per machine-hour."""
    hazard_adverse_per_hour: F
    """The same at p90: a third of an assumed mean life, the upper end of a measured one."""
    boot_s: F
    """From request to the first step."""
    data_egress_usd: F
    """To bring the data set to the gang once."""
    save_egress_usd: F
    """Of one checkpoint to its store."""
    restore_egress_usd: F
    """Of one checkpoint from its store."""
    storage_usd_per_hour: F
    """Disks of all machines and the kept checkpoints."""
    save_s: float
    """What one checkpoint holds up the training."""
    restore_s: float
    interval_s: F | float | None
    """None = Daly's; else as the user says, also where nothing is ever lost."""
    minimum_s: float = 60.0
    """A machine is billed for so long at least."""
    recovers: bool = True
    """False: the first loss ends the job."""

    def take(self, index: NDArray[np.intp]) -> CostInputs:
        columns = {name: getattr(self, name)[index] for name in _COLUMNS}
        interval_s = self.interval_s
        if isinstance(interval_s, np.ndarray):
            interval_s = interval_s[index]
        return replace(self, **columns, interval_s=interval_s)


_COLUMNS = tuple(f.name for f in fields(CostInputs) if f.type == "F")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Expected:
    """Shapes (n,). Hours of wall clock, means unless said otherwise."""

    hours: F
    hours_p50: F
    run_hours: F
    """Without boots: what ``max_runtime`` limits."""
    losses: F
    interval_s: F
    """inf where nothing is saved on schedule."""
    compute_usd: F
    boot_usd: F
    egress_usd: F
    storage_usd: F
    lost_work_usd: F
    usd_mean: F
    usd_p50: F
    survival: F
    """Probability that the run is not ended by a loss: 1 where it recovers."""


MOST_LOSSES_PER_STEP = 60.0
"""e⁶⁰ tries for one step: beyond it only the size of an absurd number changes, and it stays finite."""


def daly_interval_s(save_s: float, mtbf_s: F) -> F:
    """:func:`arylcloud.core.cadence.daly_interval_s` over an array of mean times; inf where never lost.

    >>> daly_interval_s(10.0, np.array([3600.0, np.inf])).round(1)
    array([261.7,   inf])
    """
    with np.errstate(over="ignore"):  # a mean life near the largest float is as good as none
        x = save_s / (2 * mtbf_s)
        tau = np.sqrt(2 * save_s * mtbf_s) * (1 + np.sqrt(x) / 3 + x / 9) - save_s
    tau = np.where(x >= 1, mtbf_s, tau)
    return np.maximum(tau, save_s)


def _growth(x: F) -> F:
    """(eˣ − 1)/x, 1 at 0. ``exp`` is several times faster than ``expm1`` and exact enough above 1e-4."""
    x = np.minimum(x, MOST_LOSSES_PER_STEP)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x < 1e-4, 1 + x / 2 + x * x / 6, (np.exp(x) - 1) / x)


def poisson_median(mean: F) -> F:
    """⌊K + 1/3 − 0.02/K⌋, exact for almost every K (Choi 1994); 0 below ln 2."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        median = np.floor(mean + 1 / 3 - 0.02 / mean)
    return np.where(mean < np.log(2), 0.0, np.maximum(median, 0.0))


def expected(inputs: CostInputs, *, adverse: bool = False) -> Expected:
    """Evaluate the model above for every candidate; ``adverse`` = the p90 scenario.

    A candidate that is lost faster than it saves has absurdly many hours (up to 1e26), never NaN.

    >>> one = np.ones(1)
    >>> zero = np.zeros(1)
    >>> run = expected(CostInputs(
    ...     usd_per_hour=2 * one, nodes=one, work_s=36000 * one, work_adverse_s=40000 * one,
    ...     hazard_per_hour=zero, hazard_adverse_per_hour=zero, boot_s=360 * one, data_egress_usd=zero,
    ...     save_egress_usd=zero, restore_egress_usd=zero, storage_usd_per_hour=zero, save_s=10.0,
    ...     restore_s=5.0, interval_s=None))
    >>> round(float(run.hours[0]), 3), round(float(run.usd_mean[0]), 3)
    (10.1, 20.2)
    """
    gang = inputs.hazard_per_hour * inputs.nodes / 3600.0
    work = inputs.work_adverse_s if adverse else inputs.work_s
    if not inputs.recovers:
        gang, fatal = np.zeros_like(gang), gang
    interval, save = _cadence(inputs, gang)
    if adverse:
        worse = inputs.hazard_adverse_per_hour * inputs.nodes / 3600.0
        if inputs.recovers:
            gang = worse
        else:
            fatal = worse
    segment = np.minimum(interval, work)
    count = work / np.maximum(segment, 1e-9)
    length = segment + save
    x = length * gang
    growth = _growth(x)
    running = count * length
    losses = running * growth * gang
    lost = running * (growth - 1)
    boot_again_s = inputs.boot_s + inputs.restore_s
    first = inputs.boot_s * _growth(inputs.boot_s * gang)
    again = boot_again_s * _growth(boot_again_s * gang)
    boots = first + losses * again
    rate = inputs.usd_per_hour * inputs.nodes / 3600.0
    seconds = running + lost + boots
    unused = np.maximum(inputs.minimum_s * (1 + losses) - seconds, 0.0)
    median = poisson_median(losses)
    share = np.where(losses > 0, median / np.where(losses > 0, losses, 1.0), 0.0)
    seconds_p50 = running + lost * share + first + median * again
    saves = np.where(np.isinf(interval), 0.0, count)
    per_loss = inputs.data_egress_usd / inputs.nodes + inputs.restore_egress_usd
    egress_fixed = inputs.data_egress_usd + saves * inputs.save_egress_usd
    hourly = inputs.storage_usd_per_hour / 3600.0
    parts = {
        "compute_usd": running * rate,
        "boot_usd": (boots + unused) * rate,
        "egress_usd": egress_fixed + losses * per_loss,
        "storage_usd": seconds * hourly,
        "lost_work_usd": lost * rate,
    }
    mean = np.zeros_like(rate)
    for part in parts.values():
        mean = mean + part
    billed_p50 = np.maximum(seconds_p50, inputs.minimum_s * (1 + median))
    p50 = billed_p50 * rate + seconds_p50 * hourly + egress_fixed + median * per_loss
    return Expected(
        hours=seconds / 3600.0,
        hours_p50=seconds_p50 / 3600.0,
        run_hours=(running + lost) / 3600.0,
        losses=losses,
        interval_s=interval,
        usd_mean=mean,
        usd_p50=p50,
        survival=np.ones_like(gang) if inputs.recovers else np.exp(-np.minimum(fatal * seconds, 700.0)),
        **parts,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Totals:
    """Hours and dollars of (n,) candidates that fall into few groups, (g,); dollars are linear in the price.
    Properties are computed anew."""

    of_group: Expected
    """At $1/h: shapes (g,)."""
    hours_of_group: F
    usd_per_price: F
    """Dollars per $/h of the price, (g,)."""
    usd_fixed: F
    group: NDArray[np.int64]
    """Of each candidate."""
    price: F
    """$/h per machine, (n,)."""

    @property
    def hours(self) -> F:
        return _spread(self.hours_of_group, self.group)

    @property
    def run_hours(self) -> F:
        return _spread(self.of_group.run_hours, self.group)

    @property
    def usd(self) -> F:
        usd = _spread(self.usd_per_price, self.group)
        usd *= self.price
        usd += _spread(self.usd_fixed, self.group)
        return usd


def central(groups: CostInputs, group: NDArray[np.int64], price: F) -> Totals:
    """:func:`expected` of many candidates that differ, within few groups, in their price only: hours are the
    p50, dollars the mean.

    Time does not depend on the price and money is linear in it: the model is evaluated once per group, at
    $1/h, and each candidate then costs one multiplication. ``groups``: shape (g,), its price is not used;
    ``group`` (n,): position of each candidate's group; ``price`` (n,).
    """
    run = expected(replace(groups, usd_per_hour=np.ones_like(groups.nodes)))
    return Totals(
        of_group=run,
        hours_of_group=run.hours_p50,
        usd_per_price=run.compute_usd + run.boot_usd + run.lost_work_usd,
        usd_fixed=run.egress_usd + run.storage_usd,
        group=group,
        price=price,
    )


def pessimistic(groups: CostInputs, typical: Totals) -> Totals:
    """The p90 of hours and dollars beside ``typical`` (of the same ``groups``): never below its p50."""
    run = expected(replace(groups, usd_per_hour=np.ones_like(groups.nodes)), adverse=True)
    usual = typical.of_group
    usual_s = np.maximum(usual.hours_p50 * 3600.0, groups.minimum_s * (1 + poisson_median(usual.losses)))
    usual_per_price = usual_s / 3600.0 * groups.nodes
    per_price = run.compute_usd + run.boot_usd + run.lost_work_usd
    return Totals(
        of_group=run,
        hours_of_group=np.maximum(run.hours, usual.hours_p50),
        usd_per_price=np.maximum(per_price, usual_per_price),
        usd_fixed=np.maximum(run.egress_usd + run.storage_usd, usual.usd_p50 - usual_per_price),
        group=typical.group,
        price=typical.price,
    )


def _spread(by_group: F, group: NDArray[np.int64]) -> F:
    found: F = by_group.take(group)
    return found


def _cadence(inputs: CostInputs, gang: F) -> tuple[F, F]:
    """Interval and save time of every candidate; no saves where nothing is lost and none are asked for."""
    if inputs.interval_s is not None:
        return np.full_like(gang, inputs.interval_s), np.full_like(gang, inputs.save_s)
    with np.errstate(divide="ignore", over="ignore"):
        mtbf = 1.0 / gang
    interval = daly_interval_s(inputs.save_s, mtbf)
    return interval, np.where(gang > 0, inputs.save_s, 0.0)
