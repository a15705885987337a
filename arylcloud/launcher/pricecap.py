"""The most that a machine may cost per hour: the user's cap, and for spot what on demand would cost there.

Nobody wants to pay more for a machine that can be taken back than for one that cannot (DESIGN: "Spot cap =
on-demand price unless the user says less").
"""

from __future__ import annotations

from arylcloud.core.offer import Market, Offer
from arylcloud.launcher.state import JobState


def max_usd_per_hour(state: JobState, offer: Offer) -> float | None:
    """For one machine of ``offer``; None = no limit is known."""
    limits = [state.spec.constraints.max_usd_per_hour]
    if offer.market is Market.SPOT:
        limits.append(_on_demand_twin(state, offer))
    return min((limit for limit in limits if limit is not None), default=None)


def _on_demand_twin(state: JobState, offer: Offer) -> float | None:
    """Of the same type at the same place, as quoted when the job was submitted: the zone's own quote
    where there is one, else the region's. A quote of another region says nothing here."""
    there = [
        quote.offer
        for quote in state.baselines
        if quote.name == "on_demand"
        and quote.offer.market is Market.ON_DEMAND
        and (quote.offer.cloud, quote.offer.region) == (offer.cloud, offer.region)
        and quote.offer.instance_type == offer.instance_type
    ]
    own = [found for found in there if found.zone == offer.zone] or there
    return min((found.usd_per_hour for found in own if found.usd_per_hour is not None), default=None)
