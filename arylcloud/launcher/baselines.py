"""What the same work would have cost otherwise: the report's comparisons, each with its assumptions.

Pure, from the journal's quotes (``BaselineQuoted``): what was on offer when the choice was made. A
figure that is missing makes a baseline "not known", and its text names the figure.

Common to all: the work is the machine time whose steps were kept, at the speeds quoted; each machine for the
minute that its cloud bills at least; the same checkpoint storage; no egress. On demand: one boot per node, as
long as this job's boots took on average. On spot: the waste of this run (boots, lost work, idle), since
staying elsewhere would not have spared interruptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from arylcloud.core.events import BaselineQuoted
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import PricePoint
from arylcloud.launcher.leasebill import MICRO, integral_usd
from arylcloud.launcher.ledger import LeaseCost, Report
from arylcloud.launcher.state import JobState

LABELS: Final = {
    "on_demand": "on demand, same type",
    "cheapest_per_hour": "cheapest $/h offer",
    "fixed_zone": "one fixed zone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    name: str
    label: str
    usd_micro: int | None
    hours: float | None
    """Machine hours."""
    basis: str
    """What was assumed; where the cost is not known, what is missing."""

    def saving(self, total_micro: int | None) -> float | None:
        """1 − actual ÷ baseline; negative where the baseline would have been cheaper."""
        if total_micro is None or self.usd_micro is None or self.usd_micro == 0:
            return None
        return 1 - total_micro / self.usd_micro


class _Missing(Exception):
    """The figure that a baseline lacks."""


def baselines(
    state: JobState, report: Report, quotes: Sequence[BaselineQuoted] | None = None
) -> tuple[Baseline, ...]:
    """All three, in a fixed order. ``quotes`` defaults to the journal's."""
    quoted = state.baselines if quotes is None else tuple(quotes)
    found = []
    for name, how in (
        ("on_demand", _on_demand),
        ("cheapest_per_hour", _cheapest),
        ("fixed_zone", _fixed_zone),
    ):
        mine = [q for q in quoted if q.name == name]
        try:
            if not report.leases or report.seconds.useful <= 0:
                raise _Missing("no steps were kept: there is no work to compare")  # noqa: TRY301
            usd, hours, basis = how(report, mine, quoted, _least_s(state, report))
            if report.storage_micro is None:
                raise _Missing("what its storage costs is not known")  # noqa: TRY301
        except _Missing as missing:
            found.append(
                Baseline(name=name, label=LABELS[name], usd_micro=None, hours=None, basis=str(missing))
            )
            continue
        micro = round(usd * MICRO) + report.storage_micro
        found.append(Baseline(name=name, label=LABELS[name], usd_micro=micro, hours=hours, basis=basis))
    return tuple(found)


_Answer = tuple[Fraction, float, str]


def _least_s(state: JobState, report: Report) -> float:
    """What all machines together are billed for at least."""
    return _nodes(report) * state.leases[report.leases[0].lease_id].billing.minimum_s


def _on_demand(
    report: Report, mine: Sequence[BaselineQuoted], _all: Sequence[BaselineQuoted], least_s: float
) -> _Answer:
    usd, seconds = Fraction(0), 0.0
    for cost in report.leases:
        if cost.seconds.useful > 0:
            usd += _rate(_twin(mine, cost.offer)) * Fraction(cost.seconds.useful) / 3600
            seconds += cost.seconds.useful
    boot = max(_boots_s(report), least_s - seconds)
    usd += _rate(_twin(mine, report.leases[0].offer)) * Fraction(boot) / 3600
    return (
        usd,
        (seconds + boot) / 3600,
        "same machine time for the kept steps, uninterrupted, at the on-demand price",
    )


def _cheapest(
    report: Report, mine: Sequence[BaselineQuoted], quoted: Sequence[BaselineQuoted], least_s: float
) -> _Answer:
    if not mine:
        raise _Missing("the cheapest $/h offer was not quoted when the job was submitted")
    quote = mine[-1]
    if quote.speed is None or quote.speed <= 0:
        raise _Missing(f"the job's speed on {quote.offer.instance_type} is not known")
    # a spot machine would have been interrupted there, too: this run's waste stands for that one's
    spot = quote.offer.market is Market.SPOT
    around = report.seconds.waste if spot else _boots_s(report)
    seconds = max(_work_s(report, quoted) / quote.speed + around, least_s)
    usd = _rate(quote.offer) * Fraction(seconds) / 3600
    how = "this run's waste included" if spot else "uninterrupted"
    return usd, seconds / 3600, f"{_words(quote.offer)} at {quote.speed:.2g}× the speed, {how}"


def _fixed_zone(
    report: Report, mine: Sequence[BaselineQuoted], quoted: Sequence[BaselineQuoted], least_s: float
) -> _Answer:
    if not mine:
        raise _Missing("the first placement was not quoted when the job was submitted")
    quote = mine[-1]
    nodes = _nodes(report)
    seconds = max(_work_s(report, quoted) + report.seconds.waste, least_s)
    start = min(cost.launched_s for cost in report.leases)
    if quote.prices and quote.prices[0].from_s <= start:
        prices, what = quote.prices, "its price steps"
    else:
        rate = float(_rate(quote.offer))
        prices, what = (PricePoint(from_s=start, usd_per_hour=rate),), "the price at submission"
    usd = integral_usd(prices, start, start + seconds / nodes) * nodes
    return usd, seconds / 3600, f"{_words(quote.offer)} throughout, this run's waste included, at {what}"


def _work_s(report: Report, quoted: Sequence[BaselineQuoted]) -> float:
    """Kept machine seconds, as seconds on the type that was confirmed: speeds are quoted by it. (What was had
    first may be another, where that one was refused.)"""
    first = next((q.offer for q in quoted if q.name == "fixed_zone"), report.leases[0].offer)
    return sum(
        cost.seconds.useful * _speed(cost, first, quoted) for cost in report.leases if cost.seconds.useful > 0
    )


def _speed(cost: LeaseCost, first: Offer, quoted: Sequence[BaselineQuoted]) -> float:
    if (cost.offer.cloud, cost.offer.instance_type) == (first.cloud, first.instance_type):
        return 1.0
    for quote in quoted:
        same = (quote.offer.cloud, quote.offer.instance_type) == (cost.offer.cloud, cost.offer.instance_type)
        if same and quote.speed is not None:
            return quote.speed
    raise _Missing(f"the job's speed on {cost.offer.instance_type} is not known")


def _twin(mine: Sequence[BaselineQuoted], offer: Offer) -> Offer:
    """The on-demand quote of this type: in the same region, else the cheapest one of the cloud."""
    same = [
        q.offer for q in mine if (q.offer.cloud, q.offer.instance_type) == (offer.cloud, offer.instance_type)
    ]
    near = [o for o in same if o.region == offer.region] or same
    priced = [o for o in near if o.usd_per_hour is not None]
    if not priced:
        raise _Missing(f"the on-demand price of {offer.instance_type} in {offer.region} is not known")
    return min(priced, key=lambda o: (o.usd_per_hour or 0.0, o.key))


def _rate(offer: Offer) -> Fraction:
    if offer.usd_per_hour is None:
        raise _Missing(f"the price of {offer.key} is not known")
    return Fraction(offer.usd_per_hour)


def _boots_s(report: Report) -> float:
    """One boot for each node, as long as the boots of machines that came to train took on average."""
    boots = [
        span.to_s - span.from_s
        for cost in report.leases
        if cost.seconds.useful + cost.seconds.lost_work > 0
        for span in cost.spans
        if span.kind == "boot"
    ]
    return _nodes(report) * sum(boots) / len(boots) if boots else 0.0


def _nodes(report: Report) -> int:
    """Most machines that stepped at the same time."""
    edges = sorted(
        edge
        for cost in report.leases
        for span in cost.spans
        if span.kind in ("useful", "lost_work")
        for edge in ((span.from_s, 1), (span.to_s, -1))
    )
    most = now = 0
    for _at_s, change in edges:
        now += change
        most = max(most, now)
    return max(most, 1)


def _words(offer: Offer) -> str:
    """An offer in a sentence, which a narrow screen can break."""
    return f"{offer.instance_type} {offer.market.replace('_', ' ')} in {offer.place}"
