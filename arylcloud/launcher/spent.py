"""What is owed so far, without its split: asked every tick, for the budget and for the screen. Pure."""

from __future__ import annotations

from fractions import Fraction

from arylcloud.core.ports import PricePoint
from arylcloud.launcher.leasebill import (
    MICRO,
    billed_until_s,
    in_force,
    integral_usd,
    is_free,
    is_priced,
    micro_of,
)
from arylcloud.launcher.state import JobState


def unpriced(state: JobState) -> dict[str, str]:
    """``egress`` and ``storage`` → what of it has no known price, in words; without those that are known."""
    newest = {charge.what: charge.unknown for charge in state.charges}
    return {what: text for what, text in newest.items() if text}


def spent_usd(state: JobState, now_s: float) -> float | None:
    """All that is owed at ``now_s`` (wall seconds): machines, egress, storage. None: the price of some of it
    is not known, so that no budget can be said to hold (``known_spent_usd`` is a lower bound)."""
    bills = _bills(state, now_s)
    return None if None in bills else sum(bill for bill in bills if bill is not None) / MICRO


def known_spent_usd(state: JobState, now_s: float) -> float:
    """The part of ``spent_usd`` whose prices are known: a lower bound, for stopping in time."""
    return sum(bill for bill in _bills(state, now_s) if bill is not None) / MICRO


def spent_for_limits_usd(state: JobState, now_s: float) -> float | None:
    """What a budget is judged by: all that is owed; where a machine's price is not known, at the price that
    is known for later, else at its offer's quote. (No report says this figure.) Traffic of which no price is
    known (``unpriced``) is not in it. None: a machine has neither price nor quote, and nobody can say."""
    as_of_s = state.market_clock.market_s(now_s)
    total = sum(micro_of(Fraction(charge.usd)) for charge in state.charges)
    for lease in state.leases.values():
        if lease.launched_s is None or is_free(lease, as_of_s):
            continue
        quote = lease.prices[0].usd_per_hour if lease.prices else lease.offer.usd_per_hour
        if quote is None:
            return None
        prices = in_force(lease)
        if not prices or prices[0].from_s > lease.launched_s:
            prices = (PricePoint(from_s=lease.launched_s, usd_per_hour=quote), *prices)
        until_s = billed_until_s(lease, lease.launched_s, as_of_s)
        total += micro_of(integral_usd(prices, lease.launched_s, until_s))
    return total / MICRO


def _bills(state: JobState, now_s: float) -> list[int | None]:
    """What each machine and each charge comes to, as in the report but without its split."""
    as_of_s = state.market_clock.market_s(now_s)
    bills: list[int | None] = [micro_of(Fraction(charge.usd)) for charge in state.charges]
    bills += [None for _ in unpriced(state)]
    for lease in state.leases.values():
        if lease.launched_s is None or is_free(lease, as_of_s):
            continue
        until = billed_until_s(lease, lease.launched_s, as_of_s)
        priced = is_priced(lease)
        bills.append(micro_of(integral_usd(in_force(lease), lease.launched_s, until)) if priced else None)
    return bills
