"""GCP: ``/v1/services/6F81-5844-456A/skus`` of the Cloud Billing Catalog.

Prices of parts are made so that a machine's parts add up to what the bundled catalogue says of one machine of
its family; what the other machines cost follows, and ``machine_usd`` says it in numbers of its own.
"""

from __future__ import annotations

import json
import zlib
from functools import cached_property
from typing import Any

from clouds.prices.server import Emulator, Request, Response

from arylcloud.core.offer import Market, Offer

COMPUTE = "6F81-5844-456A"
MACHINES: dict[str, tuple[str, str, str, float]] = {
    # family: core and RAM as described, GPU as described on demand, on spot; local SSD, GiB per GPU
    "a2-highgpu": ("A2 Instance", "Nvidia Tesla A100 GPU", "Nvidia Tesla A100 GPU", 0),
    "a2-megagpu": ("A2 Instance", "Nvidia Tesla A100 GPU", "Nvidia Tesla A100 GPU", 0),
    "a2-ultragpu": ("A2 Instance", "Nvidia Tesla A100 80GB GPU", "Nvidia Tesla A100 80GB GPU", 375),
    "a3-highgpu": ("A3 Instance", "Nvidia H100 80GB GPU", "Nvidia H100 80GB GPU", 750),
    "a3-megagpu": ("A3Plus Instance", "Nvidia H100 80GB Plus GPU", "Nvidia H100 80GB Mega GPU", 750),
    "g2-standard": ("G2 Instance", "Nvidia L4 GPU", "Nvidia L4 GPU", 0),
    "g4-standard": ("G4 Instance", "RTX 6000 96GB", "RTX 6000 96GB", 0),
}
SSD_USD_PER_MONTH = {Market.ON_DEMAND: 0.08, Market.SPOT: 0.032}
_NOISE = (
    *(
        "N1 Predefined Instance",
        "N1 Custom Instance",
        "N2 Instance",
        "N2 Custom Instance",
        "N2D AMD Instance",
        "E2 Instance",
    ),
    *(
        "C2D AMD Instance",
        "C3 Instance",
        "C3D Instance",
        "C4 Instance",
        "C4A Arm Instance",
        "N4 Instance",
        "M3 Memory-optimized Instance",
    ),
    *(
        "T2D AMD Instance",
        "T2A Arm Instance",
        "H3 Instance",
        "Z3 Instance",
        "Compute optimized",
        "N2 Sole Tenancy Instance",
    ),
    *(
        "A2 Sole Tenancy Instance",
        "G2 Custom Instance",
        "A3 Reserved Instance",
        "M1 Memory-optimized Premium Upgrade",
    ),
)


class GcpPriceEmulator(Emulator):
    def __init__(self, offers: tuple[Offer, ...], *, copies: int = 6) -> None:
        super().__init__()
        self._copies = copies
        self.offers = [o for o in offers if o.cloud == "gcp" and o.usd_per_hour]
        self.regions = sorted({o.region for o in self.offers})
        self.parts: dict[tuple[str, str, Market], float] = {}
        """(part as described, region, market) → US dollars per hour (SSD: per month)."""
        for offer in sorted(self.offers, key=lambda o: -(o.gpu_count or 0)):
            self._price_parts(offer)

    def _price_parts(self, offer: Offer) -> None:
        family = offer.instance_type.rpartition("-")[0]
        core, gpu, spot_gpu, ssd = MACHINES[family]
        gpu = spot_gpu if offer.market is Market.SPOT else gpu
        where = (offer.region, offer.market)
        if not offer.gpu_count or (gpu, *where) in self.parts:
            return
        usd, n = offer.usd_per_hour or 0.0, offer.gpu_count
        core_usd = self.parts.setdefault((f"{core} Core", *where), round(0.10 * usd / (offer.vcpus or 1), 6))
        ram_usd = self.parts.setdefault((f"{core} Ram", *where), round(0.05 * usd / (offer.mem_gib or 1), 6))
        ssd_usd = self.parts.setdefault(("SSD", *where), SSD_USD_PER_MONTH[offer.market])
        rest = usd - core_usd * (offer.vcpus or 0) - ram_usd * (offer.mem_gib or 0) - ssd * n * ssd_usd / 730
        self.parts[gpu, *where] = round(rest / n, 9)

    def machine_usd(self, offer: Offer) -> float:
        """What a machine of ``offer``'s type costs there, part by part."""
        core, gpu, spot_gpu, ssd = MACHINES[offer.instance_type.rpartition("-")[0]]
        where = (offer.region, offer.market)
        n = offer.gpu_count or (offer.vcpus or 0) / 48
        gpu_usd = self.parts[spot_gpu if offer.market is Market.SPOT else gpu, *where]
        cores = self.parts[f"{core} Core", *where] * (offer.vcpus or 0)
        ram = self.parts[f"{core} Ram", *where] * (offer.mem_gib or 0)
        return n * gpu_usd + cores + ram + ssd * n * self.parts["SSD", *where] / 730

    @cached_property
    def skus(self) -> list[dict[str, Any]]:
        found = [
            self._sku(part, (region,), market, usd) for (part, region, market), usd in self.parts.items()
        ]
        for copy in range(self._copies):
            for region in self.regions:
                for name in _NOISE:
                    for kind in ("Core", "Ram"):
                        for usage in ("OnDemand", "Preemptible", "Commit1Yr", "Commit3Yr"):
                            seed = zlib.crc32(f"{copy}{region}{name}{kind}{usage}".encode())
                            found.append(_noise(name, kind, region, usage, 0.01 + seed % 1000 / 1e5, seed))
        for region in self.regions:  # what looks like ours and is not
            for text, usd in (
                ("Nvidia Tesla A100 GPU attached to Sole Tenancy VMs running in", 0.01),
                ("DWS Calendar Mode A3 Instance Core running in", 0.0001),
                ("Nvidia L4 Virtual Workstation GPU running in", 0.02),
                ("Commitment v1: A2 Cpu in", 0.001),
            ):
                usage = "Commit1Yr" if "Commitment" in text else "OnDemand"
                found.append(_document(f"{text} {region}", "Compute", "GPU", usage, (region,), usd, "h"))
        return found

    def _sku(self, part: str, regions: tuple[str, ...], market: Market, usd: float) -> dict[str, Any]:
        spot, (city, *_) = market is Market.SPOT, regions
        usage = "Preemptible" if spot else "OnDemand"
        if part == "SSD":
            text = "SSD backed Local Storage" + (" attached to Spot Preemptible VMs" if spot else "")
            return _document(f"{text} in {city}", "Storage", "LocalSSD", usage, regions, usd, "GiBy.mo")
        if part.endswith((" Core", " Ram")):
            group, unit = ("CPU", "h") if part.endswith("Core") else ("RAM", "GiBy.h")
            text = f"{'Spot Preemptible ' if spot else ''}{part} running in {city}"
            return _document(text, "Compute", group, usage, regions, usd, unit)
        text = f"{part}{' attached to Spot Preemptible VMs' if spot else ''} running in {city}"
        return _document(text, "Compute", "GPU", usage, regions, usd, "h")

    def held_rows(self) -> int:
        return len(self.skus)

    @cached_property
    def _pages(self) -> dict[int, bytes]:
        return {}

    def throttle(self, request: Request) -> Response:
        headers = (
            {} if self.faults.retry_after_s is None else {"Retry-After": f"{self.faults.retry_after_s:g}"}
        )
        return _error(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Requests'", headers)

    def answer(self, request: Request) -> Response:
        if request.path != f"/v1/services/{COMPUTE}/skus":
            return _error(404, "NOT_FOUND", f"Requested entity was not found: {request.path}")
        if "global" in self.faults.down:
            return _error(503, "UNAVAILABLE", "The service is currently unavailable.")
        if request.headers.get("x-goog-api-key") == "wrong":
            return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        self.served["skus"] += 1
        size = min(int(request.query.get("pageSize") or 5000), 5000)
        start = int(request.query.get("pageToken", "")[2:] or 0)
        page = self.skus[start : start + size]
        token = f"Ch{start + size}" if start + size < len(self.skus) else ""
        body = json.dumps({"skus": page, "nextPageToken": token}).encode()
        return Response(body=body, rows=len(page))


def _noise(name: str, kind: str, region: str, usage: str, usd: float, seed: int) -> dict[str, Any]:
    spot = "Spot Preemptible " if usage == "Preemptible" else ""
    text = f"{spot}{name} {kind} running in {region}"
    if usage.startswith("Commit"):
        text = f"Commitment v1: {name} {kind} in {region} for {usage[6]} Year"
    group, unit = ("CPU", "h") if kind == "Core" else ("RAM", "GiBy.h")
    return _document(text, "Compute", group, usage, (region,), usd, unit, seed)


def _document(
    text: str,
    family: str,
    group: str,
    usage: str,
    regions: tuple[str, ...],
    usd: float,
    unit: str,
    seed: int | None = None,
) -> dict[str, Any]:
    number = zlib.crc32(f"{text}{usage}{seed}".encode())
    sku_id = f"{number >> 16:04X}-{number & 0xFFFF:04X}-{number % 65521:04X}"
    nanos = round(usd * 1e9)
    return {
        "name": f"services/{COMPUTE}/skus/{sku_id}",
        "skuId": sku_id,
        "description": text,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {
                                "currencyCode": "USD",
                                "units": str(nanos // 10**9),
                                "nanos": nanos % 10**9,
                            },
                        }
                    ],
                    "usageUnitDescription": "hour",
                    "baseUnit": "s",
                    "baseUnitDescription": "second",
                    "baseUnitConversionFactor": 3600,
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-30T00:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions)},
    }


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": {"code": status, "message": message, "status": code}}
    return Response(status=status, body=json.dumps(body).encode(), headers=headers or {})
