"""Live prices of Azure: the Retail Prices API, which anyone may ask without an account.

One part per region, and one of eviction rates, for those who have an account. The list has no versions and no
conditional requests, so an answer holds for a day. Of a machine's many meters we want two: Linux
pay-as-you-go and Linux spot. The others are told apart by names, as the API has no field for them: Windows
(`` Windows``, `` Win``), low priority (Batch only: no virtual machine can be had at it), Cloud Services,
dedicated hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from arylcloud.core import gpus
from arylcloud.core.live import Answer, Known, Memory, Meter, Part, PriceColumns, Shape
from arylcloud.core.offer import Market
from arylcloud.providers.azure import evictions
from arylcloud.providers.bounds import Paging
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web, endpoint

DEFAULT: Final = "https://prices.azure.com"
PATH: Final = "/api/retail/prices"
VERSION: Final = "2023-01-01-preview"
"""The first one with pages of 1,000; names are compared with case."""
SOURCE: Final = "Azure Retail Prices"
MAX_AGE_S: Final = 24 * 3600.0
_EVICTIONS: Final = "evictions"
_VIRTUAL_MACHINES: Final = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption'"
_GPU_SERIES: Final = "startswith(armSkuName, 'Standard_N')"
_EVERYWHERE: Final = "Standard_NC4as_T4_v3"
"""Sold in nearly every region: its rows name the regions there are."""
_NOT_PUBLIC: Final = re.compile(r"usgov|usdod|china|att|sgx|delos|bleu|.*(euap|stg)$")
"""Sovereign clouds, carriers' edge zones, staging: not to be had with a usual subscription."""


class AzurePrices:
    """``LiveSource`` of Azure."""

    cloud = "azure"

    def __init__(self, base: str, patience: Patience, settings: Mapping[str, str] | None = None) -> None:
        """``settings``: of the account that eviction rates are asked with."""
        self._base = base
        self._web = Web("azure", patience)
        self._evictions = evictions.Evictions(settings or {}, patience, self._web)
        self._clock = patience.clock

    def parts(self, known: Known, regions: Sequence[str], meter: Meter) -> list[Part]:
        wanted = list(regions) or sorted(known.regions | self._regions(meter))
        both = (Market.ON_DEMAND, Market.SPOT)
        found = [
            Part(name=f"retail/{region}", regions=(region,), markets=both, max_age_s=MAX_AGE_S)
            for region in wanted
        ]
        return [*found, Part(name=_EVICTIONS, regions=(), markets=(), max_age_s=evictions.MAX_AGE_S)]

    def ask(self, part: Part, memory: Memory, known: Known, meter: Meter) -> Answer:  # noqa: ARG002
        if part.name == _EVICTIONS:
            return self._evictions.ask(known.shapes, meter)
        (region,) = part.regions
        place = f"{_VIRTUAL_MACHINES} and armRegionName eq '{region}' and {_GPU_SERIES}"
        best: dict[tuple[str, Market], tuple[bool, float, float]] = {}
        left_out: Counter[str] = Counter()
        now_s = self._clock.now_s()
        for item in self._items(place, meter):
            reason, name, market, rank = _read(item, region, now_s)
            if reason is not None:
                left_out[reason] += 1
            elif (held := best.get((name, market))) is None or rank > held:
                left_out["another meter of the same machine"] += held is not None
                best[name, market] = rank
            else:
                left_out["another meter of the same machine"] += 1
        prices = PriceColumns()
        for (name, market), (_, since_s, usd) in best.items():
            prices.add(region, None, name, market, usd, since_s)
        unknown = {name for name, _ in best} - known.shapes.keys()
        return Answer(
            prices=prices,
            source=SOURCE,
            shapes={name: described(name) for name in unknown},
            left_out=left_out,
        )

    def of_size(self, region: str, name: str) -> dict[Market, list[tuple[float, float]]]:
        """(since, $/h) of one size, oldest first, as far as the list still has rows. Raises as ``ask``."""
        condition = f"{_VIRTUAL_MACHINES} and armRegionName eq '{region}' and armSkuName eq '{name}'"
        best: dict[tuple[Market, float], tuple[bool, float, float]] = {}
        now_s = self._clock.now_s()
        for item in self._items(condition, Meter()):
            reason, _, market, rank = _read(item, region, now_s)
            key = (market, rank[1])
            if reason is None and (key not in best or rank > best[key]):
                best[key] = rank
        found: dict[Market, list[tuple[float, float]]] = {}
        for (market, since_s), (primary, _, usd) in sorted(best.items()):
            others = any(rank[0] for (other, _), rank in best.items() if other is market)
            if primary or not others:  # meters of other regions count only where there is no own one
                found.setdefault(market, []).append((since_s, usd))
        return found

    def _regions(self, meter: Meter) -> set[str]:
        found = self._items(f"{_VIRTUAL_MACHINES} and armSkuName eq '{_EVERYWHERE}'", meter)
        names = {str(item.get("armRegionName", "")).lower() for item in found}
        return {name for name in names if name and not _NOT_PUBLIC.match(name)}

    def _items(self, condition: str, meter: Meter) -> Iterator[Mapping[str, Any]]:
        url: str | None = f"{self._base}{PATH}?api-version={VERSION}&$filter={quote(condition)}"
        paging = Paging(f"azure: {SOURCE}")
        while url:
            page = self._web.get_json(url, meter)
            items = page.get("Items") or []
            meter.count(raw_rows=len(items))
            yield from items
            if (url := self._following(page.get("NextPageLink"))) is not None:
                paging.turn(url)

    def _following(self, link: str | None) -> str | None:
        """The next page, at the address that we were told to ask: a proxy's answers name Microsoft's."""
        if not link:
            return None
        parts = urlsplit(link)
        return f"{self._base}{PATH}?{parts.query}"


def _read(
    item: Mapping[str, Any], region: str, now_s: float
) -> tuple[str | None, str, Market, tuple[bool, float, float]]:
    """(why it is left out or None, instance type, market, its rank among meters of the same machine: those
    of the region itself before others, then the newest, then the dearest, and its price last)."""
    name, sku = str(item.get("armSkuName") or ""), str(item.get("skuName") or "")
    product, meter_name = str(item.get("productName") or ""), str(item.get("meterName") or "")
    market = Market.SPOT if " Spot" in sku or " Spot" in meter_name else Market.ON_DEMAND
    usd = float(item.get("retailPrice") or 0.0)
    since_s = _since_s(item.get("effectiveStartDate"))
    rank = (item.get("isPrimaryMeterRegion") is not False, since_s, usd)
    reason = None
    if " Win" in product:
        reason = "Windows"
    elif "Low Priority" in sku or "Low Priority" in meter_name:
        reason = "low priority (Batch only)"
    elif "CloudServices" in product or "Cloud Services" in product:
        reason = "Cloud Services"
    elif "Dedicated Host" in product:
        reason = "dedicated host"
    elif item.get("type") != "Consumption" or item.get("unitOfMeasure") != "1 Hour" or not name:
        reason = "no hourly price of a machine"
    elif item.get("currencyCode") != "USD" or not usd > 0 or float(item.get("tierMinimumUnits") or 0) > 0:
        reason = "no price in US dollars"
    elif str(item.get("armRegionName", "")).lower() != region:
        reason = "another region"
    elif since_s > now_s:
        reason = "not in force yet"
    return reason, name, market, rank


def _since_s(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def described(name: str) -> Shape:
    """What the name of an unknown size tells: its GPU and vCPUs, not how many GPUs.

    >>> described("Standard_ND96isr_H200_v5")
    Shape(gpu='H200', gpu_count=None, gpu_mem_gib=None, vcpus=96.0, mem_gib=None)
    """
    words = name.split("_")
    found = next((gpu for word in words[2:] if (gpu := gpus.find(word)) is not None), None)
    vcpus = re.match(r"[A-Z]+(\d+)", words[1]) if len(words) > 1 else None
    return Shape(
        gpu=found,
        gpu_count=None,
        gpu_mem_gib=None,
        vcpus=float(vcpus.group(1)) if vcpus else None,
        mem_gib=None,
    )


def create(settings: Mapping[str, str], patience: Patience) -> AzurePrices:
    """``retail_prices`` is where the API is; nothing else is needed for prices, no account either."""
    base = endpoint(settings.get("retail_prices"), DEFAULT, what="[azure] retail_prices")
    return AzurePrices(base, patience, settings)
