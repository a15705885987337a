"""The Spot Advisor's public file: in which of five bands each instance type's interruptions were last month.

They are ranks, not rates, and say nothing of a zone (``pricing/hazard`` shows them as assumed).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from arylcloud.core.errors import OtherCloudError
from arylcloud.core.live import Meter
from arylcloud.providers.web import Web

DEFAULT: Final = "https://spot-bid-advisor.s3.amazonaws.com"
PATH: Final = "/spot-advisor-data.json"
SOURCE: Final = "AWS Spot Advisor"
MAX_AGE_S: Final = 24 * 3600.0
_BANDS: Final = {"<5%": "<5%", "5-10%": "5-10%", "10-15%": "10-15%", "15-20%": "15-20%", ">20%": ">20%"}


def read_bands(web: Web, base: str, types: Collection[str], meter: Meter) -> dict[tuple[str, str], str]:
    """(region, instance type) → band, of ``types`` on Linux. Raises as ``Web.get_json``; OtherCloudError
    where the file speaks of none of them, or of bands that we do not know."""
    document: Any = web.get_json(base + PATH, meter)
    labels = {one["index"]: _BANDS.get(str(one["label"]).replace(" ", "")) for one in document["ranges"]}
    found: dict[tuple[str, str], str] = {}
    for region, systems in document["spot_advisor"].items():
        linux = systems.get("Linux") or {}
        meter.count(raw_rows=len(linux))
        for name in linux.keys() & set(types):
            band = labels.get(linux[name]["r"])
            if band is None:
                raise OtherCloudError(f"aws: {SOURCE}: band {linux[name]['r']} of {region} {name} is unknown")
            found[region, name] = band
    if not found:
        raise OtherCloudError(f"aws: {SOURCE} speaks of no GPU machine")
    return found
