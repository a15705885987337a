"""AWS: the Price List API (JSON 1.1) and EC2's price questions (query and XML), one server for all regions.

The region of a call is the one in its signature, as with moto. Spot prices are random walks of every pool
over the 90 days that AWS keeps, and go on after ``now``: whoever moves ``now_s`` finds new changes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from clouds.prices.server import Emulator, Request, Response

from arylcloud.core.offer import Market, Offer

NOT_ENABLED = ("af-south-1", "ap-east-1", "me-south-1")
"""Sold in, but not enabled in this account."""
KEPT_S = 90 * 86400
NEW_TYPE = "p9.48xlarge"
"""What no catalogue knows yet; EC2 describes it."""
_NS = "http://ec2.amazonaws.com/doc/2016-11-15/"
_VARIANTS = (
    {},
    {"operatingSystem": "Windows", "operation": "RunInstances:0002"},
    {"operatingSystem": "RHEL", "operation": "RunInstances:0010"},
    {"tenancy": "Dedicated"},
    {"capacitystatus": "UnusedCapacityReservation"},
    {"preInstalledSw": "SQL Std"},
    {"marketoption": "CapacityBlock"},
)


@dataclass(frozen=True, slots=True)
class Pool:
    region: str
    zone_id: str
    zone_name: str
    instance_type: str
    at_s: Any
    usd: Any


class AwsPriceEmulator(Emulator):
    def __init__(self, offers: tuple[Offer, ...], now_s: float, *, changes_per_day: float = 0.7) -> None:
        super().__init__()
        self.now_s = now_s
        self._changes_per_day = changes_per_day
        self.on_demand = {
            (o.region, o.instance_type): o
            for o in offers
            if o.cloud == "aws" and o.market is Market.ON_DEMAND and o.usd_per_hour
        }
        self.usd = {key: o.usd_per_hour for key, o in self.on_demand.items()}
        """(region, type) → on-demand price; tests change it, and ``versions``."""
        self.regions = sorted({region for region, _ in self.on_demand})
        self.versions = dict.fromkeys(self.regions, 1)
        self.zone_ids_in_answers = True
        self._tokens: dict[str, list[Any]] = {}
        self._numbers = count()
        self.pools = cache(self._pools)

    # ---------------------------------------------------------------- what there is

    def enabled(self) -> list[str]:
        return [r for r in self.regions if r not in NOT_ENABLED and not r.startswith("us-gov")]

    def types(self, region: str) -> list[str]:
        return [name for where, name in self.on_demand if where == region]

    def zones(self, region: str) -> list[tuple[str, str]]:
        """(name, id): the account's letters are another order than the ids."""
        first, *words, number = region.split("-")
        short = {"northeast": "ne", "southeast": "se"}
        head = first + "".join(short.get(word, word[0]) for word in words) + number
        return [
            (f"{region}{letter}", f"{head}-az{number}")
            for letter, number in zip("abc", (4, 1, 6), strict=True)
        ]

    def _pools(self, region: str) -> list[Pool]:
        found = []
        for name in self.types(region):
            for zone_name, zone_id in self.zones(region):
                seed = zlib.crc32(f"{zone_id}:{name}".encode())
                if seed % 5 == 0:
                    continue  # not every zone has every type
                generator = np.random.default_rng(seed)
                days = 90 + 20  # 20 of them in the future
                n = max(2, int(days * self._changes_per_day))
                at_s = np.sort(generator.uniform(self.now_s - KEPT_S, self.now_s + 20 * 86400, n)).astype(int)
                at_s[0] = self.now_s - KEPT_S - 5 * 86400  # in force when the 90 days began
                walk = np.clip(
                    np.cumsum(generator.normal(0, 0.02, n)) + generator.uniform(0.3, 0.6), 0.15, 0.95
                )
                usd = np.round(self.on_demand[region, name].usd_per_hour * walk, 6)
                found.append(Pool(region, zone_id, zone_name, name, at_s, usd))
        return found

    def price_at(self, region: str, zone_id: str, name: str, at_s: float) -> float:
        pool = next(p for p in self.pools(region) if (p.zone_id, p.instance_type) == (zone_id, name))
        return float(pool.usd[np.searchsorted(pool.at_s, at_s, side="right") - 1])

    def held_rows(self) -> int:
        spot = sum(int((p.at_s <= self.now_s).sum()) for r in self.enabled() for p in self.pools(r))
        return spot + len(_VARIANTS) * len(self.on_demand)

    # ---------------------------------------------------------------- HTTP

    def throttle(self, request: Request) -> Response:
        headers = (
            {} if self.faults.retry_after_s is None else {"Retry-After": f"{self.faults.retry_after_s:g}"}
        )
        if "x-amz-target" in request.headers:
            body = json.dumps({"__type": "ThrottlingException", "message": "Rate exceeded"}).encode()
            return Response(status=400, body=body, kind="application/x-amz-json-1.1", headers=headers)
        return _error(503, "RequestLimitExceeded", "Request limit exceeded.", headers)

    def answer(self, request: Request) -> Response:
        if request.path == "/spot-advisor-data.json":
            return self._advisor()
        signed = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/", request.headers.get("authorization", ""))
        if signed is None:
            return _error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
        region, service = signed.groups()
        if service == "pricing" and "pricing" in self.faults.down:
            body = json.dumps({"__type": "InternalErrorException", "message": "An error on the server."})
            return Response(status=500, body=body.encode(), kind="application/x-amz-json-1.1")
        if service == "pricing":
            target = request.headers["x-amz-target"].partition(".")[2]
            self.served[target] += 1
            return getattr(self, f"_{target}")(json.loads(request.body))
        if region in self.faults.down:
            return _error(503, "Unavailable", "The service is unavailable. Please try again shortly.")
        action = request.query["Action"]
        self.served[action] += 1
        if region not in self.enabled():
            return _error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
        return getattr(self, f"_{action}")(region, request.query)

    def _advisor(self) -> Response:
        self.served["advisor"] += 1
        labels = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
        body = {
            "global_rate": "<10%",
            "instance_types": {},
            "ranges": [
                {"index": i, "label": label, "dots": i, "max": 5 * i} for i, label in enumerate(labels)
            ],
            "spot_advisor": {
                region: {
                    "Linux": {name: {"s": 60, "r": self.band(region, name)} for name in self.types(region)},
                    "Windows": {name: {"s": 50, "r": 4} for name in self.types(region)},
                }
                for region in self.regions
            },
        }
        return Response(body=json.dumps(body).encode(), kind="binary/octet-stream", rows=len(self.on_demand))

    def band(self, region: str, name: str) -> int:
        return zlib.crc32(f"{region}{name}".encode()) % 5

    # ---------------------------------------------------------------- pricing

    def _ListPriceLists(self, asked: dict[str, Any]) -> Response:
        assert asked["ServiceCode"] == "AmazonEC2", asked
        assert asked["CurrencyCode"] == "USD", asked
        assert asked["EffectiveDate"], asked
        lists = [
            {
                "PriceListArn": f"arn:aws:pricing:::price-list/aws/AmazonEC2/USD/202611{v:08d}/{region}",
                "RegionCode": region,
                "CurrencyCode": "USD",
                "FileFormats": ["json", "csv"],
            }
            for region, v in self.versions.items()
            if asked.get("RegionCode") in (None, region)
        ]
        page, token = self._page(lists, asked.get("NextToken"), min(int(asked.get("MaxResults", 100)), 100))
        return _json({"PriceLists": page} | ({"NextToken": token} if token else {}))

    def _GetProducts(self, asked: dict[str, Any]) -> Response:
        wanted = {}
        for condition in asked["Filters"]:
            assert condition["Type"] == "TERM_MATCH", condition
            wanted[condition["Field"]] = condition["Value"]
        if asked.get("NextToken"):
            page, token = self._page([], asked["NextToken"], 100)
        else:
            found = list(self._products(wanted))
            page, token = self._page(found, None, min(int(asked.get("MaxResults", 100)), 100))
        body = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(one) for one in page]}
        return _json(body | ({"NextToken": token} if token else {}), rows=len(page))

    def _products(self, wanted: dict[str, str]) -> Iterator[dict[str, Any]]:
        for (region, name), offer in self.on_demand.items():
            if wanted.get("regionCode", region) != region or wanted.get("instanceType", name) != name:
                continue
            for number, variant in enumerate(_VARIANTS):
                attributes = {**_attributes(region, offer), **variant}
                if all(attributes.get(field) == value for field, value in wanted.items()):
                    yield _product(attributes, self.usd[region, name] * (1 + 0.5 * number), number)

    # ---------------------------------------------------------------- EC2

    def _DescribeRegions(self, region: str, query: dict[str, str]) -> Response:
        items = "".join(
            f"<item><regionName>{r}</regionName><regionEndpoint>ec2.{r}.amazonaws.com</regionEndpoint>"
            "<optInStatus>opt-in-not-required</optInStatus></item>"
            for r in self.enabled()
        )
        return _xml("DescribeRegions", f"<regionInfo>{items}</regionInfo>")

    def _DescribeAvailabilityZones(self, region: str, query: dict[str, str]) -> Response:
        items = "".join(
            f"<item><zoneName>{name}</zoneName><zoneState>available</zoneState><regionName>{region}</regionName>"
            f"<zoneId>{zone_id}</zoneId><zoneType>availability-zone</zoneType></item>"
            for name, zone_id in self.zones(region)
        )
        return _xml("DescribeAvailabilityZones", f"<availabilityZoneInfo>{items}</availabilityZoneInfo>")

    def _DescribeSpotPriceHistory(self, region: str, query: dict[str, str]) -> Response:
        types = {value for key, value in query.items() if key.startswith("InstanceType.")}
        products = {value for key, value in query.items() if key.startswith("ProductDescription.")}
        token, rows = query.get("NextToken"), []
        if not token:
            start_s = datetime.fromisoformat(query["StartTime"]).timestamp() if "StartTime" in query else 0.0
            start_s = max(start_s, self.now_s - KEPT_S)
            if not products or "Linux/UNIX" in products:
                for pool in self.pools(region):
                    if not types or pool.instance_type in types:
                        rows += self._rows(pool, start_s)
            rows.sort(key=lambda row: row[0], reverse=True)
        page, token = self._page(rows, token, min(int(query.get("MaxResults", 1000)), 1000))
        items = "".join(row[1] for row in page)
        body = f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token or ''}</nextToken>"
        return _xml("DescribeSpotPriceHistory", body, rows=len(page))

    def _rows(self, pool: Pool, start_s: float) -> list[tuple[int, str]]:
        """Changes from ``start_s`` on, and the one that was in force then."""
        first = max(int(np.searchsorted(pool.at_s, start_s, side="left")) - 1, 0)
        end = int(np.searchsorted(pool.at_s, self.now_s, side="right"))
        zone = f"<availabilityZone>{pool.zone_name}</availabilityZone>"
        if self.zone_ids_in_answers:
            zone += f"<availabilityZoneId>{pool.zone_id}</availabilityZoneId>"
        return [
            (
                at_s,
                f"<item><instanceType>{pool.instance_type}</instanceType>"
                "<productDescription>Linux/UNIX</productDescription>"
                f"<spotPrice>{usd:.6f}</spotPrice><timestamp>{_iso(at_s)}</timestamp>{zone}</item>",
            )
            for at_s, usd in zip(pool.at_s[first:end].tolist(), pool.usd[first:end].tolist(), strict=True)
        ]

    def _DescribeInstanceTypes(self, region: str, query: dict[str, str]) -> Response:
        assert query["Filter.1.Name"] == "instance-type", query
        wanted = [value for key, value in query.items() if key.startswith("Filter.1.Value.")]
        items = "".join(_described(self.on_demand[region, name]) for name in wanted)
        return _xml("DescribeInstanceTypes", f"<instanceTypeSet>{items}</instanceTypeSet>")

    def _page(self, rows: list[Any], token: str | None, size: int) -> tuple[list[Any], str | None]:
        if token:
            key, _, at = token.rpartition("-")
            rows, start = self._tokens[key], int(at)
        else:
            key, start = f"T{next(self._numbers)}", 0
        if start + size >= len(rows):
            return rows[start:], None
        self._tokens[key] = rows
        return rows[start : start + size], f"{key}-{start + size}"


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _json(document: dict[str, Any], *, rows: int = 0) -> Response:
    return Response(body=json.dumps(document).encode(), kind="application/x-amz-json-1.1", rows=rows)


def _xml(action: str, body: str, *, rows: int = 0) -> Response:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{_NS}"><requestId>r-1</requestId>'
        f"{body}</{action}Response>"
    )
    return Response(body=text.encode(), kind="text/xml;charset=UTF-8", rows=rows)


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    text = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
        "<RequestID>r-1</RequestID></Response>"
    )
    return Response(status=status, body=text.encode(), kind="text/xml", headers=headers or {})


def _attributes(region: str, offer: Offer) -> dict[str, str]:
    return {
        "servicecode": "AmazonEC2",
        "servicename": "Amazon Elastic Compute Cloud",
        "location": f"Somewhere ({region})",
        "locationType": "AWS Region",
        "regionCode": region,
        "instanceType": offer.instance_type,
        "currentGeneration": "Yes",
        "instanceFamily": "GPU instance",
        "instanceFamilyCategory": "Accelerated Computing",
        "vcpu": f"{offer.vcpus or 4:.0f}",
        "physicalProcessor": "Intel Xeon Platinum 8275L",
        "clockSpeed": "3 GHz",
        "memory": f"{offer.mem_gib or 16:,.0f} GiB",
        "storage": "8 x 1000 SSD",
        "networkPerformance": "400 Gigabit",
        "processorArchitecture": "64-bit",
        "tenancy": "Shared",
        "operatingSystem": "Linux",
        "licenseModel": "No License required",
        "usagetype": f"USE1-BoxUsage:{offer.instance_type}",
        "operation": "RunInstances",
        "availabilityzone": "NA",
        "capacitystatus": "Used",
        "gpu": str(offer.gpu_count or 1),
        "gpuMemory": "NA",
        "intelAvx2Available": "Yes",
        "marketoption": "OnDemand",
        "normalizationSizeFactor": "192",
        "preInstalledSw": "NA",
        "processorFeatures": "Intel AVX; Intel AVX2; Intel AVX512; Intel Turbo",
        "vpcnetworkingsupport": "true",
    }


def _product(attributes: dict[str, str], usd: float, number: int) -> dict[str, Any]:
    sku = f"{zlib.crc32(str(sorted(attributes.items())).encode()):016X}"
    on_demand = {
        f"{sku}.JRTCKXETXF": {
            "priceDimensions": {
                f"{sku}.JRTCKXETXF.6YS6EN2CT7": {
                    "unit": "Hrs",
                    "endRange": "Inf",
                    "description": f"${usd} per On Demand {attributes['operatingSystem']} Instance Hour",
                    "appliesTo": [],
                    "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
                    "beginRange": "0",
                    "pricePerUnit": {"USD": "0.0000000000" if number == 4 else f"{usd:.10f}"},
                }
            },
            "sku": sku,
            "effectiveDate": "2026-11-01T00:00:00Z",
            "offerTermCode": "JRTCKXETXF",
            "termAttributes": {},
        }
    }
    reserved = {
        f"{sku}.{code}": {
            "priceDimensions": {
                f"{sku}.{code}.6YS6EN2CT7": {
                    "unit": "Hrs",
                    "endRange": "Inf",
                    "description": "Linux/UNIX (Amazon VPC), reserved instance applied",
                    "appliesTo": [],
                    "rateCode": f"{sku}.{code}.6YS6EN2CT7",
                    "beginRange": "0",
                    "pricePerUnit": {"USD": f"{usd * 0.6:.10f}"},
                }
            },
            "sku": sku,
            "effectiveDate": "2026-11-01T00:00:00Z",
            "offerTermCode": code,
            "termAttributes": {
                "LeaseContractLength": "1yr",
                "OfferingClass": "standard",
                "PurchaseOption": "No Upfront",
            },
        }
        for code in ("4NA7Y494T4", "38NPMPTW36", "HU7G6KETJZ", "NQ3QZPMQV9", "BPH4J8HBKS", "Z2E3P23VKM")
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": on_demand, "Reserved": reserved},
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
    }


def _described(offer: Offer) -> str:
    memory = int((offer.gpu_mem_gib or 1) * 1024)
    return (
        f"<item><instanceType>{offer.instance_type}</instanceType>"
        f"<vCpuInfo><defaultVCpus>{offer.vcpus:.0f}</defaultVCpus></vCpuInfo>"
        f"<memoryInfo><sizeInMiB>{int((offer.mem_gib or 1) * 1024)}</sizeInMiB></memoryInfo>"
        f"<gpuInfo><gpus><item><name>{offer.gpu}</name><manufacturer>NVIDIA</manufacturer>"
        f"<count>{offer.gpu_count}</count><memoryInfo><sizeInMiB>{memory}</sizeInMiB></memoryInfo></item></gpus>"
        f"<totalGpuMemoryInMiB>{memory * (offer.gpu_count or 1)}</totalGpuMemoryInMiB></gpuInfo></item>"
    )
