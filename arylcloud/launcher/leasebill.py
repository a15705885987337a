"""The bill of one lease: how long it is billed for, whether at all, and the integral of its price. Market
seconds throughout."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, PricePoint
from arylcloud.launcher.state import Lease

MICRO = 1_000_000
FIRST_HOUR_S = 3600.0


def ended_s(lease: Lease, launched_s: float, as_of_s: float) -> float:
    """Of an open lease: so far."""
    return max(launched_s, lease.ended_s if lease.ended_s is not None else as_of_s)


def billed_until_s(lease: Lease, launched_s: float, as_of_s: float) -> float:
    """At least the minimum that its cloud bills (at ``in_force``'s last price)."""
    return max(ended_s(lease, launched_s, as_of_s), launched_s + lease.billing.minimum_s)


def is_free(lease: Lease, as_of_s: float) -> bool:
    """Never ran; or taken back by its cloud in the first hour, where that is not charged."""
    if lease.cause == EndCause.NO_ROOM.value:
        return True
    return (
        lease.launched_s is not None
        and lease.billing.first_hour_interruption_free
        and lease.cause == EndCause.INTERRUPTED.value
        and lease.offer.market is Market.SPOT
        and ended_s(lease, lease.launched_s, as_of_s) - lease.launched_s < FIRST_HOUR_S
    )


def in_force(lease: Lease) -> tuple[PricePoint, ...]:
    """The price steps that are this machine's: those before its end. What its cloud bills beyond that (its
    minimum) is at the last of them. A launcher may have read later ones while lists still showed it alive."""
    launched_s, end_s = lease.launched_s, lease.ended_s
    if launched_s is None or end_s is None:
        return lease.prices
    return tuple(point for point in lease.prices if point.from_s < end_s or point.from_s <= launched_s)


def is_priced(lease: Lease) -> bool:
    """A price is known from the launch on, and all later ones are; then one is always in force."""
    known = lease.launched_s is not None and lease.prices_missing_since_s is None
    return known and bool(lease.prices) and lease.prices[0].from_s <= (lease.launched_s or 0.0)


def integral_usd(prices: Sequence[PricePoint], from_s: float, to_s: float) -> Fraction:
    """∫ price dt in USD, exact: each price holds from its moment to the next one's, the last for good.

    ``prices`` in order of time; the caller has seen to it that the first is at or before ``from_s``.

    >>> steps = (PricePoint(from_s=0.0, usd_per_hour=1.0), PricePoint(from_s=1800.0, usd_per_hour=3.0))
    >>> integral_usd(steps, 0.0, 3600.0)
    Fraction(2, 1)
    """
    usd_seconds = Fraction(0)
    ends = [*(point.from_s for point in prices[1:]), max(to_s, prices[-1].from_s)]
    for point, end_s in zip(prices, ends, strict=True):
        start, end = max(point.from_s, from_s), min(end_s, to_s)
        if end > start:
            usd_seconds += Fraction(point.usd_per_hour) * (Fraction(end) - Fraction(start))
    return usd_seconds / 3600


def micro_of(usd: Fraction) -> int:
    """Whole micro-dollars, half to even."""
    return round(usd * MICRO)
