"""GCP: ``/v1/services/6F81-5844-456A/skus`` of the Cloud Billing Catalog.

Prices of parts are made so that a machine's parts add up to what the bundled catalogue says of one machine of
its family; what the other machines cost follows, and ``machine_usd`` says it in numbers of its own.
"""

from __future__ import annotations

import json
import re
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
_KINDS: dict[str | None, str] = {
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-a100-80gb",
    "H100": "nvidia-h100-80gb",
    "L4": "nvidia-l4",
    "RTXPRO6000": "nvidia-rtx-pro-6000",
}
NEW_TYPE = "a4-highgpu-8g"
"""What the bundled catalogue does not know."""
NEW_USD = {Market.ON_DEMAND: 16.11, Market.SPOT: 4.9542}
"""Per GPU, all inclusive."""
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
        for market, usd in NEW_USD.items():
            text = "A4 Nvidia B200 (1 gpu slice) running in Americas"
            text = text if market is Market.ON_DEMAND else f"Spot Preemptible {text}"
            found.append(_document(text, "Compute", "GPU", "OnDemand", ("us-central1",), usd, "h"))
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
        found = re.fullmatch(r"/compute/v1/projects/([a-z][-a-z0-9]+)/aggregated/machineTypes", request.path)
        if found:
            return self._machine_types(found.group(1), request.query)
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

    def _machine_types(self, project: str, query: dict[str, str]) -> Response:
        self.served["machineTypes"] += 1
        if project == "forbidden":
            return _error(403, "PERMISSION_DENIED", "Required 'compute.machineTypes.list' permission")
        pattern = re.fullmatch(r'name eq "([^"]*)"', query["filter"])
        assert pattern is not None, query
        rows = [row for row in self.machine_types() if re.fullmatch(pattern.group(1), row[1]["name"])]
        start, size = int(query.get("pageToken", "0")), int(query.get("maxResults", 500))
        items: dict[str, Any] = {
            f"regions/{r}": {"warning": {"code": "NO_RESULTS_ON_PAGE"}} for r in self.regions
        }
        for zone, row in rows[start : start + size]:
            items.setdefault(f"zones/{zone}", {"machineTypes": []})["machineTypes"].append(row)
        body: dict[str, Any] = {"kind": "compute#machineTypeAggregatedList", "items": items}
        if start + size < len(rows):
            body["nextPageToken"] = str(start + size)
        return Response(body=json.dumps(body).encode())

    def machine_types(self) -> list[tuple[str, dict[str, Any]]]:
        """(zone, machine type): the catalogue's zones, else two per region; a new type in one of them; one
        that is deprecated; some without a GPU."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for offer in self.offers:
            zones = [offer.zone] if offer.zone else [f"{offer.region}-a", f"{offer.region}-b"]
            for zone in zones:
                row = _machine(
                    offer.instance_type, offer.vcpus, offer.mem_gib, _KINDS[offer.gpu], offer.gpu_count
                )
                found[zone, offer.instance_type] = row
        found["us-central1-b", NEW_TYPE] = _machine(NEW_TYPE, 224, 3968, "nvidia-b200", 8)
        old = _machine("a2-oldgpu-1g", 12, 85, "nvidia-tesla-a100", 1)
        found["us-central1-b", "a2-oldgpu-1g"] = {**old, "deprecated": {"state": "DEPRECATED"}}
        found["us-central1-b", "n2-standard-8"] = {"name": "n2-standard-8", "guestCpus": 8, "memoryMb": 32768}
        return [(zone, row) for (zone, _), row in sorted(found.items())]


def _machine(
    name: str, vcpus: float | None, mem_gib: float | None, kind: str, count: int | None
) -> dict[str, Any]:
    return {
        "name": name,
        "guestCpus": int(vcpus or 0),
        "memoryMb": int((mem_gib or 0) * 1024),
        "accelerators": [{"guestAcceleratorType": kind, "guestAcceleratorCount": count or 1}],
    }


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
