"""Which offers may be tried now: bars, cool-downs, and what a refusal bars. Pure.

A bar's ``scope`` is written like the beginning of ``Offer.key``: ``place[:type[:market]]``, where a place
covers everything inside it and a type may hold ``*`` (an instance family).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from arylcloud.core.events import OfferBarred
from arylcloud.core.offer import Offer
from arylcloud.launcher.actions import Timing

DETERMINISTIC: Final = frozenset({"usage", "missing_extra", "access", "infeasible", "local_state"})
"""Kinds of error that no other offer and no second try can mend: the job fails at once."""

THROTTLE_MARKET_S: Final = 30.0


def covers(scope: str, offer: Offer) -> bool:
    """Whether ``scope`` speaks of ``offer``.

    >>> o = Offer(cloud="aws", region="us-east-1", zone="use1-az4", instance_type="p4d.24xlarge",
    ...     gpu="A100", gpu_count=8, gpu_mem_gib=40, vcpus=96, mem_gib=1152, market="spot",
    ...     usd_per_hour=9.8, as_of=None, source="x")
    >>> [covers(s, o) for s in ("aws/us-east-1", "aws/us-east-1:p4d.*", "aws/us-east", "aws:p3.*")]
    [True, True, False, False]
    """
    place, _, rest = scope.partition(":")
    kind, _, market = rest.partition(":")
    return (
        (offer.place == place or offer.place.startswith(place + "/"))
        and (not kind or fnmatchcase(offer.instance_type, kind))
        and (not market or offer.market == market)
    )


def barred(offer: Offer, bars: Iterable[OfferBarred], now_market_s: float) -> OfferBarred | None:
    """The bar in force that ends last, or None."""
    found = [bar for bar in bars if now_market_s < bar.until_s and covers(bar.scope, offer)]
    return max(found, key=lambda bar: bar.until_s, default=None)


def acceptable(
    ranking: Sequence[Offer],
    bars: Iterable[OfferBarred],
    cooling: Iterable[tuple[float, str]],
    now_market_s: float,
    timing: Timing,
) -> tuple[Offer, ...]:
    """``ranking`` without barred offers; regions that cool down only where nothing else is left.

    A throttled API is no reason to go elsewhere, so that throttle bars do not count here.
    """
    bars = [bar for bar in bars if bar.code != "throttled"]
    free = [offer for offer in ranking if barred(offer, bars, now_market_s) is None]
    cool = {region for at_s, region in cooling if now_market_s < at_s + timing.region_cooldown_market_s}
    calm = [offer for offer in free if f"{offer.cloud}/{offer.region}" not in cool]
    return tuple(calm or free)


def bar_for(kind: str, offer: Offer, now_market_s: float, timing: Timing) -> OfferBarred | None:
    """What an error of ``kind`` (ArylError.kind) on creating ``offer`` bars, and for how long.

    None for what is the same everywhere (:data:`DETERMINISTIC`) or says nothing about the offer.
    """
    region = f"{offer.cloud}/{offer.region}"
    if kind in DETERMINISTIC or kind == "store":
        return None
    if kind == "quota":
        scope = f"{region}:{family(offer)}:{offer.market}"
        why, length_s = f"no quota for {scope}", timing.quota_bar_market_s
    elif kind == "throttled":
        scope = region
        why, length_s = f"{offer.cloud} asks us to call {offer.region} less often", THROTTLE_MARKET_S
    else:
        scope = offer.key
        why, length_s = f"{kind}: {offer.key} could not be had", timing.capacity_bar_market_s
    return OfferBarred(scope=scope, until_s=now_market_s + length_s, code=kind, why=why)


def family(offer: Offer) -> str:
    """The pattern of instance types that share a quota: ``p4d.*``, ``a2-*``, ``Standard_NC*ads_A100_v4``."""
    if offer.cloud == "aws":
        return offer.instance_type.split(".")[0] + ".*"
    if offer.cloud == "gcp":
        return offer.instance_type.split("-")[0] + "-*"
    return re.sub(r"\d+", "*", offer.instance_type, count=1)


def why_none(ranking: Sequence[Offer], bars: Sequence[OfferBarred], now_market_s: float) -> tuple[str, str]:
    """(code, text) of a wait: the commonest bar, and all of them with their counts."""
    counts = Counter(
        bar.code for bar in (barred(offer, bars, now_market_s) for offer in ranking) if bar is not None
    )
    if not counts:
        return "no_offer", "no offer satisfies the constraints at present"
    parts = ", ".join(f"{code} {count}" for code, count in counts.most_common())
    return counts.most_common(1)[0][0], f"every acceptable offer is barred ({parts}); tried again as bars end"
