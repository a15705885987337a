"""When the limits that nobody renews are reached: the budget and ``max_runtime``. Pure.

A machine's lease has two ends: a *renewable* one, ``unattended`` after the last sign of a launcher, and
this *hard* one, which each launcher beat brings up to date; the earlier counts (``agent/deadman.py``).
"""

from __future__ import annotations

from typing import Final

from arylcloud.launcher.state import JobState

SAVE_S: Final = 30.0
"""Wall seconds of a last save and its upload, where none has been measured."""
END_S: Final = 30.0
"""Until a machine that we end is no longer billed."""
RESERVE_SHARE: Final = 0.05
"""Of a budget: more of it is never kept for the end."""


def hard_left_s(
    state: JobState,
    now_s: float,
    *,
    spent_usd: float | None,
    usd_per_hour: float | None,
    boot_s: float = 0.0,
    reserve_usd: float = 0.0,
) -> float | None:
    """Wall seconds until the budget or ``max_runtime`` is used up if the job goes on as it does now.

    ``spent_usd``: so far; ``usd_per_hour``: of all its machines together (market hours). ``boot_s``: wall
    seconds that a machine may take until it trains: they are not running, and while nothing runs they
    are added, or a short ``max_runtime`` would be over before it has begun. ``reserve_usd``: of the budget,
    what the last save may cost. None = no such limit is set, or what it depends on is not known.
    """
    limits = state.spec.constraints
    left_market_s: list[float] = []
    if limits.budget_usd is not None and spent_usd is not None and usd_per_hour:
        left_market_s.append(max(0.0, limits.budget_usd - reserve_usd - spent_usd) / usd_per_hour * 3600.0)
    if limits.max_runtime_s is not None:
        left_s = max(0.0, limits.max_runtime_s - trained_market_s(state, now_s))
        left_market_s.append(left_s if running(state) else left_s + boot_s * state.market_clock.scale)
    if not left_market_s:
        return None
    return min(left_market_s) / state.market_clock.scale


def reserve_usd(state: JobState, usd_per_hour: float | None, *, save_s: float | None = None) -> float:
    """Of the budget, what is kept for the end: the last save with its upload (``save_s``, wall seconds, as
    measured) and the machines' ends, at ``usd_per_hour`` of all of them."""
    budget_usd = state.spec.constraints.budget_usd
    if budget_usd is None or not usd_per_hour:
        return 0.0
    took_s = (SAVE_S if save_s is None else save_s) + END_S
    return min(usd_per_hour * took_s / 3600.0 * state.market_clock.scale, RESERVE_SHARE * budget_usd)


def burn_usd_per_hour(state: JobState) -> float | None:
    """What all machines together cost that may be paid for now: the price in force, of one that has none
    yet its offer's. None = one is not known."""
    total = 0.0
    for lease in state.open_leases:
        price = lease.usd_per_hour if lease.usd_per_hour is not None else lease.offer.usd_per_hour
        if price is None:
            return None
        total += price
    return total


def running(state: JobState) -> bool:
    """Whether a command is known to train now."""
    return any(t.stopped_at_s is None for t in state.trainings)


def trained_market_s(state: JobState, now_s: float) -> float:
    """Market seconds of running, provisioning excluded: per epoch, of the rank that has run for longest.

    Two moments of a rank are by its machine's clock; of one that runs still, both are by ours."""
    longest: dict[int, float] = {}
    for t in state.trainings:
        ran_s = now_s - t.began_at_s if t.stopped_at_s is None else t.stopped_at_s - t.started_at_s
        longest[t.epoch] = max(longest.get(t.epoch, 0.0), ran_s)
    return sum(longest.values()) * state.market_clock.scale
