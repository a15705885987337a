"""Live prices of AWS: the Price List for on-demand, the spot price history by zone.

Two kinds of parts. ``list/REGION``: on-demand prices of all GPU types; the list has a version
(``ListPriceLists``), so an unchanged one is not read again. ``spot/REGION``: every change of a spot price
since the last one that we saw, at first of the 90 days that AWS keeps. AWS answers each such question with
the prices that were in force at its beginning, too: what it does not list has no spot market any more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core import gpus
from arylcloud.core.errors import CloudError
from arylcloud.core.live import Answer, Known, Memory, Meter, Part, PriceColumns, Shape
from arylcloud.core.offer import Market
from arylcloud.providers.aws import advisor
from arylcloud.providers.aws.ask import Aws
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web, endpoint

LIST_SOURCE: Final = "AWS Price List"
SPOT_SOURCE: Final = "AWS spot price history"
HISTORY_DAYS: Final = 90
"""So long AWS keeps spot prices."""
EC2: Final = "AmazonEC2"
LINUX: Final = "Linux/UNIX"
WANTED: Final = {
    "instanceFamily": "GPU instance",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""Attributes of the one product per machine that is Linux, shared, on demand and without software."""
_LIST: Final = "list/"
_SPOT: Final = "spot/"
_ADVISOR: Final = "advisor"


class AwsPrices:
    """``LiveSource`` of AWS."""

    cloud = "aws"

    def __init__(self, aws: Aws, web: Web, advisor: str | None) -> None:
        self._aws = aws
        self._web = web
        self._advisor = advisor
        """Where the Spot Advisor's file is; None = AWS's own address."""
        self._no_lists: CloudError | None = None
        """Why the versions of the lists could not be told: then the lists are not asked for, but spot is."""

    def parts(self, known: Known, regions: Sequence[str], meter: Meter) -> list[Part]:
        enabled = self._aws.regions(meter)
        self._no_lists = None
        versions: Mapping[str, str | None]
        try:
            versions = self._versions(regions, meter)
        except CloudError as error:
            self._no_lists = error
            versions = dict.fromkeys(known.regions)
        wanted = set(regions) or (known.regions | enabled)
        lists = [
            Part(
                name=f"{_LIST}{region}",
                regions=(region,),
                markets=(Market.ON_DEMAND,),
                version=versions[region],
            )
            for region in sorted(wanted & versions.keys())
        ]
        spot = [
            Part(name=f"{_SPOT}{region}", regions=(region,), markets=(Market.SPOT,))
            for region in sorted(wanted & enabled)
        ]
        found = lists + spot
        if self._advisor is not None or self._aws.public():
            found.append(Part(name=_ADVISOR, regions=(), markets=(), max_age_s=advisor.MAX_AGE_S))
        return found

    def ask(self, part: Part, memory: Memory, known: Known, meter: Meter) -> Answer:
        if part.name == _ADVISOR:
            bands = advisor.read_bands(self._web, self._advisor or advisor.DEFAULT, known.shapes, meter)
            return Answer(prices=PriceColumns(), source=advisor.SOURCE, bands=bands)
        (region,) = part.regions
        if part.name.startswith(_LIST):
            if self._no_lists is not None:
                raise self._no_lists
            return self._list(region, known, meter)
        return self._spot(region, memory, known, meter)

    def _versions(self, regions: Sequence[str], meter: Meter) -> dict[str, str]:
        """Region → version of its list: the ARN carries it."""
        found: dict[str, str] = {}
        only: Iterable[dict[str, str]] = [{"RegionCode": region} for region in regions] or [{}]
        for narrowed in only:
            asked = {"ServiceCode": EC2, "EffectiveDate": self._aws.now(), "CurrencyCode": "USD", **narrowed}
            for page in self._aws.pages("pricing", None, "list_price_lists", asked, meter):
                found |= {one["RegionCode"]: one["PriceListArn"] for one in page["PriceLists"]}
        return found

    def _list(self, region: str, known: Known, meter: Meter) -> Answer:
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in {"regionCode": region, **WANTED}.items()
        ]
        prices, described = PriceColumns(), dict[str, Shape]()
        left_out: Counter[str] = Counter()
        seen: set[str] = set()
        asked = {"ServiceCode": EC2, "Filters": filters, "FormatVersion": "aws_v1"}
        for page in self._aws.pages("pricing", None, "get_products", asked, meter):
            meter.count(raw_rows=len(page["PriceList"]))
            for text in page["PriceList"]:
                product = json.loads(text)
                attributes = product["product"]["attributes"]
                name = attributes.get("instanceType", "")
                price = hourly(product)
                if price is None or any(attributes.get(k, v) != v for k, v in WANTED.items()):
                    left_out["no hourly on-demand price"] += 1
                elif name in seen:
                    left_out["another price of the same machine"] += 1
                else:
                    seen.add(name)
                    prices.add(region, None, name, Market.ON_DEMAND, *price)
                    described[name] = _listed_shape(attributes)
        unknown = seen - known.shapes.keys()
        return Answer(
            prices=prices,
            source=LIST_SOURCE,
            shapes=self._shapes(region, unknown, described, meter),
            left_out=left_out,
        )

    def _spot(self, region: str, memory: Memory, known: Known, meter: Meter) -> Answer:
        last = memory.get("last")
        since_s = float(last) if last else self._aws.clock.now_s() - HISTORY_DAYS * 86400
        asked = {
            "InstanceTypes": sorted(known.shapes),
            "ProductDescriptions": [LINUX],
            "StartTime": datetime.fromtimestamp(since_s, UTC),
        }
        changes = PriceColumns()
        newest: dict[tuple[str, str], tuple[float, float]] = {}
        zones: dict[str, str] | None = None
        latest_s = since_s
        for page in self._aws.pages("ec2", region, "describe_spot_price_history", asked, meter):
            rows = page["SpotPriceHistory"]
            meter.count(raw_rows=len(rows))
            for row in rows:
                zone = row.get("AvailabilityZoneId")
                if zone is None:  # an older API: names only, which mean another zone in every account
                    zones = self._aws.zone_ids(region, meter) if zones is None else zones
                    zone = zones.get(row["AvailabilityZone"])
                    if zone is None:
                        continue
                at_s, usd, name = _seconds(row["Timestamp"]), float(row["SpotPrice"]), row["InstanceType"]
                held = newest.get((zone, name))
                if held is None or at_s > held[0]:
                    newest[zone, name] = (at_s, usd)
                if last is None or at_s > since_s:
                    changes.add(region, zone, name, Market.SPOT, usd, at_s)
                    latest_s = max(latest_s, at_s)
        prices = PriceColumns()
        for (zone, name), (at_s, usd) in newest.items():
            prices.add(region, zone, name, Market.SPOT, usd, at_s)
        return Answer(prices=prices, source=SPOT_SOURCE, memory={"last": repr(latest_s)}, changes=changes)

    def _shapes(
        self, region: str, unknown: set[str], listed: Mapping[str, Shape], meter: Meter
    ) -> dict[str, Shape]:
        """Of types that the catalogue has never heard of: as EC2 describes them, or, where that cannot be
        asked (a region that is not enabled), as the list does, which does not name the GPU."""
        if not unknown:
            return {}
        shapes = {name: listed[name] for name in unknown}
        try:
            asked = {"Filters": [{"Name": "instance-type", "Values": sorted(unknown)}]}
            for page in self._aws.pages("ec2", region, "describe_instance_types", asked, meter):
                shapes |= {one["InstanceType"]: described_shape(one) for one in page["InstanceTypes"]}
        except CloudError:
            pass  # listed without a GPU's name: shown, and not planned with
        return shapes


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def hourly(product: Mapping[str, Any]) -> tuple[float, float] | None:
    """(US dollars per hour, since when) of a product of the price list."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0.0))
            if dimension.get("unit") == "Hrs" and usd > 0:
                return usd, _seconds(term["effectiveDate"])
    return None


def _listed_shape(attributes: Mapping[str, str]) -> Shape:
    count = attributes.get("gpu", "")
    vcpus, memory = attributes.get("vcpu", ""), attributes.get("memory", "").replace(",", "")
    return Shape(
        gpu=None,
        gpu_count=int(count) if count.isdecimal() and int(count) > 0 else None,
        gpu_mem_gib=None,
        vcpus=float(vcpus) if vcpus.isdecimal() else None,
        mem_gib=float(memory.removesuffix(" GiB")) if memory.endswith(" GiB") else None,
    )


def described_shape(described: Mapping[str, Any]) -> Shape:
    """Of an entry of DescribeInstanceTypes. A type with GPUs of several kinds has none that we could name."""
    found = described.get("GpuInfo", {}).get("Gpus", [])
    one = found[0] if len(found) == 1 else {}
    name, count = one.get("Name"), int(one.get("Count") or 0)
    memory_mib = one.get("MemoryInfo", {}).get("SizeInMiB")
    return Shape(
        gpu=(gpus.find(name) or name) if name else None,
        gpu_count=count or None,
        gpu_mem_gib=memory_mib / 1024 if memory_mib else None,
        vcpus=float(described["VCpuInfo"]["DefaultVCpus"]),
        mem_gib=described["MemoryInfo"]["SizeInMiB"] / 1024,
    )


def create(settings: Mapping[str, str], patience: Patience) -> AwsPrices:
    """``profile``, and where the Spot Advisor is (``spot_advisor``); all else is AWS's own (environment,
    ~/.aws). With an endpoint of one's own nothing is asked of the public Spot Advisor."""
    where = settings.get("spot_advisor")
    base = endpoint(where, advisor.DEFAULT, what="[aws] spot_advisor") if where else None
    return AwsPrices(Aws(settings.get("profile"), patience), Web("aws", patience), base)
