"""Quotas of Azure, in vCPUs per region: read once, compared before anything is created.

All spot machines of a region share ``lowPriorityCores``. On demand there are two: the size's family, and
``cores`` for everything together.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import AccessError, QuotaError, Scope
from arylcloud.core.offer import Market, Offer
from arylcloud.providers.azure.client import Arm, all_of
from arylcloud.providers.azure.errors import WHERE_TO_ASK
from arylcloud.providers.azure.skus import Skus
from arylcloud.providers.bounds import QUOTA_KEPT_S, refuse_surely

SPOT: Final = "lowPriorityCores"
TOTAL: Final = "cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    name: str
    limit: float | None
    """None = Azure does not let us read it, or has none of that name."""
    used: float | None
    """When it was read."""
    needs_each: float
    """vCPUs of one machine; at least 1: whatever it has, it does not fit into 0."""


class Quotas:
    """Kept for ``QUOTA_KEPT_S``: then one that has been raised is seen."""

    def __init__(self, arm: Arm, skus: Skus) -> None:
        self._arm = arm
        self._skus = skus
        self._lock = threading.Lock()
        self._known: dict[str, tuple[dict[str, tuple[str, float, float]] | None, float]] = {}

    def of(self, offer: Offer, fresh_s: float = QUOTA_KEPT_S) -> list[Quota]:
        """Those that a machine of this offer counts against."""
        sku = self._skus.of(offer.region, offer.instance_type)
        each = (sku.vcpus if sku is not None else None) or offer.vcpus or 1.0
        wanted = [SPOT] if offer.market is Market.SPOT else [sku.family if sku is not None else "", TOTAL]
        found = self._region(offer.region, fresh_s)
        quotas = []
        for name in filter(None, wanted):
            known = (found or {}).get(name.lower())
            spelled, limit, used = known if known is not None else (name, None, None)
            quotas.append(Quota(name=spelled, limit=limit, used=used, needs_each=each))
        return quotas

    def check(self, offer: Offer, machines: int = 1) -> None:
        """Raises QuotaError where ``machines`` of them cannot fit even with nothing else running."""
        refuse_surely(lambda fresh_s: self._refusal(offer, machines, fresh_s))

    def _refusal(self, offer: Offer, machines: int, fresh_s: float) -> QuotaError | None:
        for quota in self.of(offer, fresh_s):
            needed = quota.needs_each * machines
            if quota.limit is not None and needed > quota.limit:
                return QuotaError(
                    f"azure {offer.region}: quota {quota.name} allows {quota.limit:g} vCPUs "
                    f"({offer.market.value}), {offer.instance_type} needs {needed:g}",
                    code=quota.name,
                    hint=where_to_ask(offer.region, quota.name),
                    scope=_scope(quota),
                )
        return None

    def _region(self, region: str, fresh_s: float) -> dict[str, tuple[str, float, float]] | None:
        with self._lock:
            known = self._known.get(region)
            if known is None or time.monotonic() - known[1] >= fresh_s:
                known = self._known[region] = (self._ask(region), time.monotonic())
            return known[0]

    def _ask(self, region: str) -> dict[str, tuple[str, float, float]] | None:
        what, usage = f"quotas in {region}", self._arm.compute.usage
        try:
            listed = self._arm.read(what, lambda: all_of(what, usage.list(region)))
        except AccessError:
            return None  # may launch, may not read quotas: Azure itself will tell
        named = [(str(one.name.value), float(one.limit), float(one.current_value)) for one in listed]
        return {name.lower(): (name, limit, used) for name, limit, used in named}


def _scope(quota: Quota) -> Scope:
    """Where there is some of it, a smaller size may fit."""
    if quota.limit:
        return "region"
    return "market" if quota.name in (SPOT, TOTAL) else "family"


def where_to_ask(region: str, name: str) -> str:
    """For a person, to click."""
    return f"ask for more of {name} in {region}: {WHERE_TO_ASK}"
