"""Eviction rates: in which of five bands Azure took spot machines of each size back, by region, in 28 days.

Told by Azure Resource Graph, to whoever may read a subscription; the price list, which anyone may ask, has
none. They are ranks, not rates, as AWS's are (``pricing/hazard`` shows them as assumed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from arylcloud.core.errors import AccessError, MissingExtraError, OtherCloudError
from arylcloud.core.live import Answer, Meter, NotAsked, PriceColumns
from arylcloud.providers.azure.client import Arm
from arylcloud.providers.bounds import Paging
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web

SOURCE: Final = "Azure eviction rate"
PATH: Final = "/providers/Microsoft.ResourceGraph/resources"
VERSION: Final = "2021-03-01"
MAX_AGE_S: Final = 24 * 3600.0
QUERY: Final = (
    "SpotResources"
    " | where type =~ 'microsoft.compute/skuspotevictionrate/location'"
    " | where tostring(sku.name) startswith 'standard_n'"
    " | project id, skuName = tostring(sku.name), location, evictionRate = tostring(properties.evictionRate)"
    " | order by id asc"
)
"""Of GPU sizes, in lower case as they come. Only rows with an id are given in pages."""
PAGE: Final = 1000
"""The most that there is."""
_BANDS: Final = {"0-5": "<5%", "5-10": "5-10%", "10-15": "10-15%", "15-20": "15-20%", "20+": ">20%"}


class Evictions:
    """Asked with the credentials that a launch would use."""

    def __init__(self, settings: Mapping[str, str], patience: Patience, web: Web) -> None:
        self._arm = Arm(settings, patience=patience)
        self._web = web

    def ask(self, sizes: Collection[str], meter: Meter) -> Answer:
        """Bands of ``sizes``. Raises NotAsked without an account, AccessError where the one there is is
        refused, ThrottledError, OtherCloudError."""
        headers, subscription = self._account()
        named = {name.lower(): name for name in sizes}
        bands: dict[tuple[str, str], str] = {}
        left_out: Counter[str] = Counter()
        options: dict[str, Any] = {"resultFormat": "objectArray", "$top": PAGE}
        paging = Paging(f"azure: {SOURCE}")
        while True:
            question = {"subscriptions": [subscription], "query": QUERY, "options": options}
            url = f"{self._arm.base}{PATH}?api-version={VERSION}"
            page = self._web.ask_json(url, question, meter, headers)
            meter.count(raw_rows=len(page["data"]))
            for row in page["data"]:
                band = _BANDS.get(str(row["evictionRate"]).replace("%", "").strip())
                name = named.get(str(row["skuName"]).lower())
                if band is None:
                    left_out[f"eviction rate {row['evictionRate']!r}"] += 1
                elif name is None:
                    left_out["eviction rate of a size without a price"] += 1
                else:
                    bands[str(row["location"]).lower(), name] = band
            following = page.get("$skipToken")
            if not following:
                break
            options = {**options, "$skipToken": paging.turn(following)}
        if str(page.get("resultTruncated", "false")).lower() == "true":
            raise OtherCloudError(f"azure: {SOURCE}: only {len(bands):,} of {page.get('totalRecords')} came")
        if not bands:
            raise OtherCloudError(f"azure: {SOURCE}: nothing is said of any GPU size")
        return Answer(prices=PriceColumns(), source=SOURCE, bands=bands, left_out=left_out)

    def _account(self) -> tuple[dict[str, str], str]:
        try:
            subscription = self._arm.subscription
            return {"Authorization": f"Bearer {self._arm.token().token}"}, subscription
        except (AccessError, MissingExtraError) as error:
            if isinstance(error, AccessError) and error.code not in ("NoSubscription", "NoCredentials"):
                raise
            why = error.message.removeprefix("azure: ").removeprefix("a token: ")
            hint = f" ({error.hint})" if error.hint else ""
            raise NotAsked(f"eviction rates are not asked for: {why}{hint}") from error
