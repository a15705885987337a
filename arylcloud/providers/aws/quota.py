"""Quotas of EC2, in vCPUs per region and family: read once, compared before anything is created."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import AccessError, ArylError, QuotaError
from arylcloud.core.offer import Market, Offer
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.bounds import QUOTA_KEPT_S, refuse_surely

CODES: Final = {
    ("p", Market.ON_DEMAND): "L-417A185B",
    ("g", Market.ON_DEMAND): "L-DB2E81BA",
    ("p", Market.SPOT): "L-7212CCBC",
    ("g", Market.SPOT): "L-3819A6DF",
}
"""Service Quotas' codes: P, and G with VT, for each market."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    code: str
    vcpus: float | None
    """None = AWS does not let us read it."""


class Quotas:
    """Kept for ``QUOTA_KEPT_S``: then one that has been raised is seen."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float | None, float]] = {}

    def of(self, offer: Offer, fresh_s: float = QUOTA_KEPT_S) -> Quota | None:
        """None where the family has no quota that we know of."""
        code = CODES.get((offer.instance_type[:1], offer.market))
        if code is None:
            return None
        with self._lock:
            key = (offer.region, code)
            known = self._known.get(key)
            if known is None or time.monotonic() - known[1] >= fresh_s:
                known = self._known[key] = (self._ask(offer.region, code), time.monotonic())
            return Quota(code=code, vcpus=known[0])

    def check(self, offer: Offer, machines: int = 1) -> None:
        """Raises QuotaError where ``machines`` of them cannot fit even with nothing else running."""
        refuse_surely(lambda fresh_s: self._refusal(offer, machines, fresh_s))

    def _refusal(self, offer: Offer, machines: int, fresh_s: float) -> QuotaError | None:
        quota = self.of(offer, fresh_s)
        if quota is None or quota.vcpus is None:
            return None
        needed = (offer.vcpus or 1) * machines  # whatever it has, it does not fit into a quota of 0
        if needed <= quota.vcpus:
            return None
        what = offer.instance_type if machines == 1 else f"{machines} × {offer.instance_type}"
        return QuotaError(
            f"aws {offer.region}: quota {quota.code} allows {quota.vcpus:g} vCPUs of this family "
            f"({offer.market.value}), {what} needs {needed:g}",
            code=quota.code,
            hint=where_to_ask(offer.region, quota.code),
        )

    def _ask(self, region: str, code: str) -> float | None:
        try:
            answer = self._calls.read(
                "service-quotas", region, "get_service_quota", ServiceCode="ec2", QuotaCode=code
            )
        except AccessError:
            return None  # may launch, may not read quotas: RunInstances itself will tell
        except ArylError as error:
            if error.code == "NoSuchResourceException":
                return None
            raise
        return float(answer["Quota"]["Value"])


def where_to_ask(region: str, code: str) -> str:
    """For a person, to click."""
    console = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"
    return f"ask for more: {console}"
