"""Quotas of Compute Engine: GPUs by model, region and market, and all GPUs of the project. Read once,
compared before anything is created.

What already runs is not counted: Compute Engine itself does that (QUOTA_EXCEEDED).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import AccessError, ArylError, QuotaError
from arylcloud.core.offer import Market, Offer
from arylcloud.providers.bounds import QUOTA_KEPT_S, refuse_surely
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.errors import ALL_REGIONS, limit_of
from arylcloud.providers.gcp.place import Kind, attached

log = logging.getLogger("arylcloud.gcp")
_MODELS: Final = {
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100",
    "nvidia-a100-80gb": "A100_80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100_MEGA",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "nvidia-rtx-pro-6000": "RTX_PRO_6000",
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-v100": "V100",
    "nvidia-tesla-p100": "P100",
    "nvidia-tesla-p4": "P4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    name: str
    """``PREEMPTIBLE_NVIDIA_L4_GPUS``."""
    gpus: float | None
    """None = Compute Engine does not let us read it, or has none of that name."""
    region: str | None
    """None = of all regions together."""


class Quotas:
    """Kept for ``QUOTA_KEPT_S``: then one that has been raised is seen."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._known: dict[str, tuple[dict[str, float] | None, float]] = {}

    def of(self, offer: Offer, kind: Kind, fresh_s: float = QUOTA_KEPT_S) -> tuple[Quota, ...]:
        """Those that count for the offer; empty where its type has no GPUs that we know of."""
        model = _model(offer, kind)
        if model is None:
            return ()
        names = [f"NVIDIA_{model}_GPUS", f"PREEMPTIBLE_NVIDIA_{model}_GPUS"]
        limits = self._limits(offer.region, fresh_s)
        if offer.market is Market.SPOT:
            names.reverse()
        values = [None if limits is None else limits.get(name) for name in names]
        # a project without preemptible quota takes the other for spot; machines that are deleted within
        # seven days may take either
        named, value = names[0], values[0]
        if value == 0 and values[1]:
            named, value = names[1], values[1]
        everywhere = self._limits(None, fresh_s)
        return (
            Quota(name=named, gpus=value, region=offer.region),
            Quota(
                name=ALL_REGIONS,
                gpus=None if everywhere is None else everywhere.get(ALL_REGIONS),
                region=None,
            ),
        )

    def check(self, offer: Offer, kind: Kind, machines: int = 1) -> None:
        """Raises QuotaError where ``machines`` of them cannot fit even with nothing else running."""
        refuse_surely(lambda fresh_s: self._refusal(offer, kind, machines, fresh_s))

    def _refusal(self, offer: Offer, kind: Kind, machines: int, fresh_s: float) -> QuotaError | None:
        needed = gpus_of(offer, kind) * machines
        for quota in self.of(offer, kind, fresh_s):
            if quota.gpus is not None and needed > quota.gpus:
                return QuotaError(
                    f"gcp {quota.region or 'all regions'}: quota {quota.name} allows {quota.gpus:g} GPUs, "
                    f"{offer.instance_type} needs {needed:g}",
                    code=quota.name,
                    hint=where_to_ask(quota, self._calls.project),
                    scope="account" if quota.region is None else "family",
                )
        return None

    def _limits(self, region: str | None, fresh_s: float) -> dict[str, float] | None:
        """None = may launch, may not read quotas: the insertion itself will tell."""
        with self._lock:
            key = region or ""
            known = self._known.get(key)
            if known is None or time.monotonic() - known[1] >= fresh_s:
                project = self._calls.project
                limits: dict[str, float] | None = None
                try:
                    if region is None:
                        found = self._calls.read("Projects", "get", project=project)
                    else:
                        found = self._calls.read("Regions", "get", project=project, region=region)
                    limits = {str(one.metric): float(one.limit) for one in found.quotas}
                except AccessError as error:
                    log.info("quotas cannot be read: %s", error.message)
                known = self._known[key] = (limits, time.monotonic())
            return known[0]


def gpus_of(offer: Offer, kind: Kind) -> float:
    return float(kind.gpus or offer.gpu_count or 0)


def in_use(refusal: ArylError, offer: Offer, kind: Kind) -> bool:
    """Whether the quota that Compute Engine itself has refused for is large enough for one such machine: then
    others have it at present, and it comes free."""
    quoted = limit_of(refusal)
    if quoted is None:
        return False
    metric, limit = quoted
    if metric.endswith(("_GPUS", ALL_REGIONS)):
        needed: float | None = gpus_of(offer, kind)
    elif metric.endswith(("CPUS", "CPUS_ALL_REGIONS")):
        needed = offer.vcpus
    else:
        needed = 1.0 if metric in ("INSTANCES", "IN_USE_ADDRESSES") else None
    return needed is not None and limit >= max(needed, 1.0)


def _model(offer: Offer, kind: Kind) -> str | None:
    with_it = attached(offer, kind)
    name = kind.accelerator or (with_it[0] if with_it is not None else None)
    if name is None:
        return None
    return _MODELS.get(name) or re.sub(r"[^A-Z0-9]+", "_", name.removeprefix("nvidia-").upper())


def where_to_ask(quota: Quota, project: str) -> str:
    """For a person, to click."""
    place = f" in {quota.region}" if quota.region else ""
    return f"ask for {quota.name}{place}: https://console.cloud.google.com/iam-admin/quotas?project={project}"
