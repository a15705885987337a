"""What a move costs and when one is made: the launcher's rule (``planner/migrate``) over arrays of rentals.

    move   = boot there + egress of what must cross + (price here + price there) × hand-over
    saving = rest of the work at today's prices, here − there
    moved when  saving ≥ 1.25 × move  and  saving ≥ min_saving × cost of staying

Of several places the one with the least rest + move is considered, as there; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import MigrateSpec
from arylcloud.planner.migrate import HANDOVER_S, HYSTERESIS
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.tariffs import Tariffs
from arylcloud.simulation.dynamic.series import Floats, Index, Rental


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """Make before break: the old GPUs work while the new boot; in the hand-over both are paid, none works."""

    boot_s: float
    handover_s: float
    egress_usd: Floats
    """From row to column for the bytes of one move, shape (m, m); NaN = tariff not known: never moved."""
    min_saving: float
    hysteresis: float = HYSTERESIS

    @property
    def lost_s(self) -> float:
        """From the decision to the first step there."""
        return self.boot_s + self.handover_s

    def fee(self, here: Index, to: Index, old: Floats, new: Floats, worth: float = 0.0) -> Floats:
        """$ of a move at those prices per GPU-hour, broadcast; ``worth``: an hour of the user's time."""
        time_usd = new * self.boot_s + (old + new + worth) * self.handover_s
        return time_usd / 3600.0 + self.egress_usd[here, to]


def free_moves(rentals: int) -> Moving:
    """The study's: moving costs nothing and takes no time, so the job is always where it is cheapest."""
    return Moving(boot_s=0.0, handover_s=0.0, egress_usd=np.zeros((rentals, rentals)), min_saving=0.0)


def priced_moves(
    rentals: Sequence[Rental], tariffs: Tariffs, *, gb: float, unknown_usd_per_gb: float | None = None
) -> Moving:
    """The launcher's own figures. ``gb``: checkpoint, and data where the other side has no copy of it.

    ``unknown_usd_per_gb``: what a byte out of a cloud without a known tariff is taken to cost.
    """
    regions = sorted({f"{r.cloud}/{r.region}" for r in rentals})
    fee = np.full((len(regions), len(regions)), np.nan)
    for i, source in enumerate(regions):
        for j, to in enumerate(regions):
            usd = tariffs.egress(source, to).usd
            usd = unknown_usd_per_gb if usd is None else usd
            fee[i, j] = np.nan if usd is None else usd * gb
    at = np.array([regions.index(f"{r.cloud}/{r.region}") for r in rentals], dtype=np.intp)
    return Moving(
        boot_s=Assumptions().default_boot_s,
        handover_s=HANDOVER_S,
        egress_usd=fee[at[:, None], at[None, :]],
        min_saving=MigrateSpec().min_saving,
    )


def considered(
    moving: Moving, here: Index, price: Floats, rest_h: Floats, usd_per_hour_of_time: float = 0.0
) -> tuple[Index, Floats, NDArray[np.bool_]]:
    """Where each of ``s`` jobs would go, what the move would cost, and whether it goes; shapes (s,).

    ``here``: (s,); ``price``: $ per GPU-hour now, (m, s), NaN = not to be had; ``rest_h``: hours that the
    rest of the work takes, (m, s), infinite where it cannot run.
    """
    jobs = np.arange(here.size)
    worth = usd_per_hour_of_time
    rest = (price + worth) * rest_h
    here_price, stay = price[here, jobs], rest[here, jobs]
    there = np.arange(price.shape[0])[:, None]
    cost = moving.fee(here[None], there, here_price[None], price, worth)
    total = rest + cost
    total = np.where(np.isfinite(total), total, np.inf)
    total[here, jobs] = np.inf
    to = np.argmin(total, axis=0)
    saving, usd = stay - rest[to, jobs], cost[to, jobs]
    goes = (
        np.isfinite(total[to, jobs])
        & (saving > 0.0)
        & (saving >= moving.hysteresis * usd)
        & (saving >= moving.min_saving * stay)
        & (rest_h[here, jobs] * 3600.0 > moving.lost_s)
    )
    return to.astype(np.intp), usd, goes
