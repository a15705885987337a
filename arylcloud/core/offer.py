"""What can be bought: an instance type, in a zone, on a market, at a price of known age."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Market(StrEnum):
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"
    """Only from a user's own catalogue or pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One row of the catalogue. Unknown is ``None``, never 0; an offer without price is not plannable."""

    cloud: str
    region: str
    zone: str | None
    """None = the whole region. AWS zones by zone id (``use1-az4``)."""
    instance_type: str
    gpu: str | None
    gpu_count: int | None
    """None = unknown or a fraction of a GPU: listed, not plannable."""
    gpu_mem_gib: float | None
    """Per GPU."""
    vcpus: float | None
    mem_gib: float | None
    market: Market
    usd_per_hour: float | None
    """Per instance, not per GPU."""
    as_of: str | None
    """ISO date or date-time (UTC) of the price; None = age unknown."""
    source: str

    @property
    def place(self) -> str:
        """``aws/us-east-1/use1-az4``; the region alone where no zone is named."""
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)

    @property
    def key(self) -> str:
        """Identity in events, bars and ``migrate --to``: place, type and market, not price."""
        return f"{self.place}:{self.instance_type}:{self.market.value}"
