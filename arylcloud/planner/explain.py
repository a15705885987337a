"""Why the first one is first, what the next one costs, and what would turn it around: in sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market
from arylcloud.core.plan import Candidate, Quantiles, Usd
from arylcloud.core.units import say_duration, say_limit, say_usd, say_usd_over
from arylcloud.planner.cost import CostInputs, expected
from arylcloud.planner.evaluate import SAME, Evaluation
from arylcloud.planner.rank import score

MOST_FACTOR = 10.0
"""Beyond ten times dearer or slower nobody asks what would flip."""


@dataclass(frozen=True, slots=True)
class Rival:
    at: int
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """As of :func:`~arylcloud.planner.evaluate.rivals_of`, with their figures."""

    elsewhere: Rival | None
    dearer: Rival | None
    ties: int
    other_kind: Rival | None
    other_gpu: Rival | None


def where(c: Candidate) -> str:
    """``2 × g6.12xlarge (4 × L4) spot in aws/us-east-1``."""
    gpus = f" ({c.offer.gpu_count} × {c.offer.gpu})" if c.offer.gpu else ""
    return f"{c.nodes} × {c.offer.instance_type}{gpus} {_market(c)} in {c.offer.place}"


def price_age(c: Candidate) -> str:
    """What the reader must know of the price before believing the rest."""
    if c.offer.as_of is None:
        return f"its price is of UNKNOWN AGE ({c.offer.source}); --max-age TIME leaves such prices out"
    return f"its price is of {c.offer.as_of[:10]}"


def reasons(
    spec: JobSpec,
    every: Evaluation,
    first: int,
    chosen: Candidate,
    rivals: Rivals,
) -> tuple[str, ...]:
    """Sentences, most important first."""
    elsewhere, other_kind = rivals.elsewhere, rivals.other_kind
    usd, hours = _figures(chosen)
    count = int(np.count_nonzero(every.acceptable))
    aim = {"cost": "the lowest expected cost", "time": "the shortest expected time"}.get(
        spec.objective.name,
        f"the lowest cost with an hour of waiting at ${spec.objective.usd_per_hour_of_waiting:g}",
    )
    ways = f"{count:,} ways" if count != 1 else "one way"
    said = [
        f"{where(chosen)}: {aim} of {ways} to run it within the limits: {say_usd(usd.mean)},"
        f" {_hours(hours.p50)}; {price_age(chosen)}"
    ]
    if spec.resources.ordered and every.cands.preference is not None:
        said.append(
            "the resources are ordered: later alternatives were looked at only where earlier ones failed"
        )
    if chosen.offer.market is Market.SPOT:
        life = 1 / chosen.interruptions_per_hour if chosen.interruptions_per_hour else None
        often = f"a machine is lost every {life:.3g} h on average" if life else "no losses are known"
        said.append(f"spot: {often} ({chosen.hazard_source})")
    if chosen.survival is not None and chosen.survival.p90 < 1:
        said.append(
            f"recovery is none: nothing is lost before the end in {chosen.survival.p50:.0%} of runs"
            f" ({chosen.survival.p90:.0%} at p90); a loss ends the job, and what it has cost is gone"
        )
    if elsewhere is None:
        said.append("no other offer is within the limits")
    else:
        said.append(f"without this offer: {_line(elsewhere.candidate, chosen)}")
    if rivals.ties:
        said.append(f"the same within 0.5% in {rivals.ties:,} other place{'s' if rivals.ties > 1 else ''}")
    if other_kind is not None and other_kind != elsewhere:
        said.append(f"best of another type or market: {_line(other_kind.candidate, chosen)}")
    said += _flips(spec, every, first, chosen, rivals)
    return tuple(said)


def one(spec: JobSpec, c: Candidate, first: Candidate) -> str:
    """A candidate's own line beside the first."""
    usd, hours = _figures(c)
    misses = []
    if c.meets_deadline is False and spec.constraints.deadline_s is not None:
        misses.append(
            f"p90 {say_duration(hours.p90 * 3600)} misses the deadline of"
            f" {say_limit(spec.constraints.deadline_s)}"
        )
    if c.meets_budget is False and (budget := spec.constraints.budget_usd) is not None:
        misses.append(f"p90 {say_usd_over(usd.p90, budget)} is over the budget of ${budget:g}")
    if misses:
        return "; ".join(misses)
    if c.rank == 1:
        return f"first by {spec.objective.name}"
    beside = _beside(c, first)
    return f"{beside} {'as' if beside.endswith('cost') else 'than'} the first"


def _line(c: Candidate, first: Candidate) -> str:
    usd, hours = _figures(c)
    return f"{where(c)} at {say_usd(usd.mean)}, {_hours(hours.p50)} ({_beside(c, first)})"


def _figures(c: Candidate) -> tuple[Usd, Quantiles]:
    if c.usd is None or c.hours is None:
        raise ValueError("only candidates with a profile and work are explained here")
    return c.usd, c.hours


def _beside(c: Candidate, first: Candidate) -> str:
    (usd, hours), (usd_first, hours_first) = _figures(c), _figures(first)
    ratio, gap = usd.mean / usd_first.mean, hours.p50 - hours_first.p50
    money = f"{abs(ratio - 1):.1%} {'dearer' if ratio >= 1 else 'cheaper'}"
    if abs(ratio - 1) < SAME:
        money = "the same cost"
    if abs(gap) < min(0.05, 0.02 * hours_first.p50):
        return money
    return f"{money}, {_hours(abs(gap))} {'slower' if gap > 0 else 'faster'}"


def _flips(spec: JobSpec, every: Evaluation, first: int, chosen: Candidate, rivals: Rivals) -> list[str]:
    """A price is one offer's: any other takes over. A hazard is a kind's, a throughput a GPU's, in whatever
    offer: another kind, another GPU takes over."""
    base = every.cands.cost(np.array([first]))
    parts = []

    def factor(name: str, rival: Rival | None) -> float | None:
        return None if rival is None else flip_factor(spec, base, name, float(every.scores[rival.at]))

    price = factor("usd_per_hour", rivals.dearer)
    if price is not None and chosen.offer.usd_per_hour is not None:
        there = ", there and here," if rivals.ties else ""
        parts.append(
            f"its price{there} rises by {price - 1:.1%} (to ${chosen.offer.usd_per_hour * price:.4g}/h)"
        )
    hazard = factor("hazard_per_hour", rivals.other_kind) if every.cands.recovers else None
    if hazard is not None and chosen.interruptions_per_hour > 0:
        parts.append(f"its kind is lost {hazard:.1f} times as often")
    slower = factor("work_s", rivals.other_gpu)
    if slower is not None:
        said_by = {"user": "you say"}.get(chosen.throughput_source or "", chosen.throughput_source)
        parts.append(f"the job runs {1 - 1 / slower:.0%} slower on {chosen.offer.gpu} than {said_by}")
    said = ["another becomes better when " + ", or ".join(parts)] if parts else []
    other = rivals.other_gpu
    if other is not None and bands_overlap(every, first, other.at):
        rival = other.candidate
        gpu = chosen.offer.gpu
        unit = every.cands.estimate(first).unit
        said.append(
            f"too close to call: the bands of {gpu} ({band(chosen)}) and {rival.offer.gpu} ({band(rival)})"
            f" overlap; run some hundred steps on each, and put the rates into the job file:"
            f" profile: {{{gpu}:{chosen.offer.gpu_count}: RATE, {rival.offer.gpu}:{rival.offer.gpu_count}:"
            f" RATE, unit: {unit}}}"
        )
    return said


def band(c: Candidate) -> str:
    """``-33/+100%``: the throughput's band beside the estimate."""
    if c.throughput is None or c.throughput_low is None or c.throughput_high is None:
        return "band unknown"
    low, high = 1 - c.throughput_low / c.throughput, c.throughput_high / c.throughput - 1
    return f"-{low * 100:.0f}/+{high * 100:.0f}%"


def flip_factor(spec: JobSpec, base: CostInputs, name: str, target: float) -> float | None:
    """Smallest factor on one input of a single candidate at which its score reaches ``target``; None
    where ten times as much does not. ``base`` has shape (1,)."""
    low, high = 1.0, MOST_FACTOR
    for _ in range(3):
        grid = np.geomspace(low, high, 33)
        many = base.take(np.zeros(grid.size, dtype=np.intp))
        changed = {name: getattr(many, name) * grid}
        run = expected(replace(many, **changed))
        scores = score(
            run.usd_mean,
            run.hours_p50,
            cost_weight=spec.objective.cost_weight,
            usd_per_hour_of_waiting=spec.objective.usd_per_hour_of_waiting,
        )
        over = np.flatnonzero(scores >= target)
        if not over.size:
            return None
        at = int(over[0])
        if at == 0:
            return float(grid[0])
        low, high = float(grid[at - 1]), float(grid[at])
    return high


def bands_overlap(every: Evaluation, first: int, second: int) -> bool:
    """Whether the throughput bands leave it open which of two is better: the first's score at its low
    end is above the second's at its high end. One GPU in both: their errors are one, nothing is open."""
    cands = every.cands
    one_gpu = cands.configs[cands.config(first)][0] == cands.configs[cands.config(second)][0]
    if one_gpu:
        return False
    a, b = cands.estimate(first), cands.estimate(second)
    worst = every.scores[first] * a.throughput / a.low
    best = every.scores[second] * b.throughput / b.high
    return bool(worst > best)


def _market(c: Candidate) -> str:
    return {"on_demand": "on demand"}.get(c.offer.market.value, c.offer.market.value)


def _hours(value: float) -> str:
    return say_duration(value * 3600)
