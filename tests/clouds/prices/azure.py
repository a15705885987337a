"""Azure: ``/api/retail/prices``: an OData filter, pages of 1,000, links that name Microsoft's host."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import quote

from clouds.prices.server import Emulator, Request, Response

from arylcloud.core.offer import Market, Offer

MOST = 1000
_CONDITION = re.compile(
    r"\s*(?:(?P<field>\w+) eq '(?P<value>[^']*)'"
    r"|(?P<call>startswith|contains)\((?P<of>\w+), ?'(?P<text>[^']*)'\))\s*"
)
_FIELDS = {"priceType": "type"}
_SERIES = ("D", "Das", "Dds", "Ds", "E", "Eas", "Eds", "F", "Fs", "L", "Ls", "B", "M", "HB", "DC", "EC")


class AzurePriceEmulator(Emulator):
    def __init__(self, offers: tuple[Offer, ...], *, other_sizes: int = 500) -> None:
        super().__init__()
        self._other_sizes = other_sizes
        self.page = MOST
        self.usd = {
            (o.region, o.instance_type, o.market): o.usd_per_hour
            for o in offers
            if o.cloud == "azure" and o.usd_per_hour
        }
        self.regions = sorted({region for region, _, _ in self.usd})
        self.items = cache(self._items)

    def spot_usd(self, region: str, name: str) -> float:
        """The catalogue knows few spot prices; the others are a fraction of their own."""
        known = self.usd.get((region, name, Market.SPOT))
        if known is not None:
            return known
        share = 0.15 + zlib.crc32(f"{region}{name}".encode()) % 400 / 1000
        return round(self.usd[region, name, Market.ON_DEMAND] * share, 6)

    def _items(self, region: str) -> list[dict[str, Any]]:
        """Every meter of virtual machines in a region, GPU or not."""
        found = []
        for (where, name, market), usd in self.usd.items():
            if where == region and market is Market.ON_DEMAND:
                found += _machine(region, name, usd, self.spot_usd(region, name))
        for number in range(self._other_sizes):
            series = _SERIES[number % len(_SERIES)]
            usd = 0.05 + zlib.crc32(f"{region}{number}".encode()) % 1000 / 200
            found += _machine(region, f"Standard_{series}{2 + number // 8}s_v{number % 8}", usd, usd * 0.2)
        return found

    def held_rows(self) -> int:
        return sum(len(self.items(region)) for region in self.regions)

    def throttle(self, request: Request) -> Response:
        headers = (
            {} if self.faults.retry_after_s is None else {"Retry-After": f"{self.faults.retry_after_s:g}"}
        )
        return _error(429, "TooManyRequests", "Too many requests", headers)

    def answer(self, request: Request) -> Response:
        if request.path != "/api/retail/prices":
            return _error(404, "NotFound", request.path)
        text = request.query["$filter"]
        skip = int(request.query.get("$skip", 0))
        try:
            conditions = [_condition(part) for part in text.split(" and ")]
        except ValueError as error:
            return _error(400, "BadRequest", str(error))
        named = re.search(r"armRegionName eq '([^']*)'", text)
        if named and named.group(1) in self.faults.down:
            return _error(503, "ServiceUnavailable", "The service is unavailable.")
        self.served["prices"] += 1
        regions = [named.group(1)] if named else self.regions
        matching = [item for item in self._all(regions) if all(holds(item) for holds in conditions)]
        page = matching[skip : skip + self.page]
        link = None
        if skip + self.page < len(matching):
            version = request.query.get("api-version", "")
            link = (
                f"https://prices.azure.com:443/api/retail/prices?api-version={version}"
                f"&$filter={quote(text)}&$skip={skip + self.page}"
            )
        body = {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": page,
            "NextPageLink": link,
            "Count": len(page),
        }
        return Response(body=json.dumps(body).encode(), rows=len(page))

    def _all(self, regions: list[str]) -> Iterator[dict[str, Any]]:
        for region in regions:
            if region in self.regions:
                yield from self.items(region)


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid OData parameters supplied: {text}")
    if found["field"]:
        field, value = _FIELDS.get(found["field"], found["field"]), found["value"]
        return lambda item: item[field] == value
    field, value = _FIELDS.get(found["of"], found["of"]), found["text"]
    if found["call"] == "startswith":
        return lambda item: str(item[field]).startswith(value)
    return lambda item: value in str(item[field])


def _machine(region: str, name: str, usd: float, spot_usd: float) -> list[dict[str, Any]]:
    """Its meters: Linux and Windows; pay-as-you-go, spot, low priority; a secondary meter, one that is over,
    one that is not in force yet; a reservation and one for developers."""
    size = name.removeprefix("Standard_").replace("_", " ")
    product = f"Virtual Machines {size.split(' ')[0]} Series"
    common = {"region": region, "name": name, "size": size}
    return [
        _item(**common, product=product, suffix="", usd=usd),
        _item(**common, product=f"{product} Windows", suffix="", usd=usd * 1.5),
        _item(**common, product=product, suffix=" Spot", usd=spot_usd),
        _item(**common, product=f"{product} Windows", suffix=" Spot", usd=spot_usd * 2),
        _item(**common, product=product, suffix=" Low Priority", usd=usd * 0.2),
        _item(**common, product=product, suffix="", usd=usd * 0.9, primary=False),
        _item(**common, product=product, suffix="", usd=usd * 0.8, since="2021-01-01T00:00:00Z"),
        _item(**common, product=product, suffix="", usd=usd * 0.1, since="2099-01-01T00:00:00Z"),
        _item(**common, product=product, suffix="", usd=usd * 5000, kind="Reservation"),
        _item(**common, product=product, suffix="", usd=usd * 0.7, kind="DevTestConsumption"),
    ]


def _item(
    *,
    region: str,
    name: str,
    size: str,
    product: str,
    suffix: str,
    usd: float,
    primary: bool = True,
    since: str = "2024-03-01T00:00:00Z",
    kind: str = "Consumption",
) -> dict[str, Any]:
    number = zlib.crc32(f"{region}{name}{product}{suffix}{since}{kind}{primary}".encode())
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": round(usd, 6),
        "unitPrice": round(usd, 6),
        "armRegionName": region,
        "location": region.title(),
        "effectiveStartDate": since,
        "meterId": f"{number:08x}-5c1b-5de5-9be2-{number:012x}",
        "meterName": f"{size}{suffix}",
        "productId": f"DZH318Z0BQ{number % 9999:04d}",
        "skuId": f"DZH318Z0BQ{number % 9999:04d}/00{number % 97:02d}",
        "productName": product,
        "skuName": f"{size}{suffix}",
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": kind,
        "isPrimaryMeterRegion": primary,
        "armSkuName": name,
    }


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": {"code": code, "message": message}}
    return Response(status=status, body=json.dumps(body).encode(), headers=headers or {})
