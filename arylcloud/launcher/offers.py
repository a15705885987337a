"""Which offers may be tried now: bars, cool-downs, and what a refusal bars. Pure.

A bar's ``scope`` is written like the beginning of ``Offer.key``: ``place[:type[:market]]``, where a place
covers everything inside it, a type may hold ``*`` (an instance family), and may be left empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from arylcloud.core.errors import Scope
from arylcloud.core.events import OfferBarred
from arylcloud.core.offer import Offer
from arylcloud.launcher.actions import Timing

DETERMINISTIC: Final = frozenset({"usage", "missing_extra", "access", "infeasible", "local_state"})
"""Kinds of error that no other offer and no second try can mend: the job fails at once (of ``access``, once
every cloud of the job has said so)."""

THROTTLE_MARKET_S: Final = 30.0
LONGEST: Final = 6.0
"""A bar that is set again lasts twice as long each time, up to this many times its usual length: of capacity,
an hour."""
_USUAL: Final[dict[str, Scope]] = {"quota": "family", "access": "account"}
"""What an error speaks of that does not say so itself; any other: the type in its zone."""


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


def holds(bar: OfferBarred, offer: Offer) -> bool:
    """Whether ``bar`` is one for ``offer``, at some time."""
    return offer.zone not in bar.spared and covers(bar.scope, offer)


def barred(offer: Offer, bars: Iterable[OfferBarred], now_market_s: float) -> OfferBarred | None:
    """The bar in force that ends last, or None."""
    found = [bar for bar in bars if now_market_s < bar.until_s and holds(bar, offer)]
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


def bar_for(
    kind: str,
    offer: Offer,
    now_market_s: float,
    timing: Timing,
    *,
    scope: Scope | None = None,
    elsewhere: tuple[str, ...] = (),
    in_use: bool = False,
    before: Iterable[OfferBarred] = (),
) -> OfferBarred | None:
    """What an error of ``kind`` (ArylError.kind) on creating ``offer`` bars, and for how long.

    ``scope``, ``elsewhere``, ``in_use``: as the error says; ``before``: bars so far, for one that comes again
    lasts longer. None for what is the same everywhere (:data:`DETERMINISTIC`, but for an account of which
    nothing can be had: another cloud may do) or says nothing about the offer.
    """
    if (kind in DETERMINISTIC and kind != "access") or kind == "store":
        return None
    region = f"{offer.cloud}/{offer.region}"
    if kind == "throttled":
        why = f"{offer.cloud} asks us to call {offer.region} less often"
        return OfferBarred(scope=region, until_s=now_market_s + THROTTLE_MARKET_S, code=kind, why=why)
    speaks_of = scope or _USUAL.get(kind, "zone")
    what = {
        "zone": offer.key,
        "region": f"{region}:{offer.instance_type}:{offer.market}",
        "family": f"{region}:{family(offer)}:{offer.market}",
        "market": f"{region}::{offer.market}",
        "account": offer.cloud,
    }[speaks_of]
    if speaks_of == "zone" and elsewhere:
        what = f"{region}:{offer.instance_type}:{offer.market}"
    why = f"no quota for {what}" if kind == "quota" else f"{kind}: {offer.key} could not be had"
    if elsewhere:
        why += f"; its cloud names {', '.join(elsewhere)}"
    base_s = timing.capacity_bar_market_s
    if kind == "quota" and not in_use:  # nobody raises it by waiting
        base_s, before = timing.quota_bar_market_s, ()
    spared = tuple(zone for zone in elsewhere if zone != offer.zone)
    return _again(what, kind, why, base_s, now_market_s, before, spared)


def bar_offer(
    offer: Offer, code: str, why: str, now_market_s: float, timing: Timing, before: Iterable[OfferBarred]
) -> OfferBarred:
    """Of an offer whose machine turned out to be no good."""
    return _again(offer.key, code, why, timing.capacity_bar_market_s, now_market_s, before)


def _again(
    scope: str,
    code: str,
    why: str,
    base_s: float,
    now_market_s: float,
    before: Iterable[OfferBarred],
    spared: tuple[str, ...] = (),
) -> OfferBarred:
    """Twice as long as the last time, unless that has been over for as long as it lasted."""
    times = 1
    for bar in before:
        over_s = bar.until_s + _lasts(base_s, bar.times)
        if (bar.scope, bar.code) == (scope, code) and now_market_s < over_s:
            times = max(times, bar.times + 1)
    until_s = now_market_s + _lasts(base_s, times)
    return OfferBarred(scope=scope, until_s=until_s, code=code, why=why, times=times, spared=spared)


def _lasts(base_s: float, times: int) -> float:
    return base_s * min(2.0 ** min(times - 1, 10), LONGEST)


def family(offer: Offer) -> str:
    """The pattern of instance types that share a quota: ``p*``, ``[gv]*`` (G and VT), ``a2-highgpu-*``,
    ``Standard_NC*ads_A100_v4``."""
    if offer.cloud == "aws":
        letters = re.match(r"[a-z]*", offer.instance_type)
        name = letters[0] if letters else ""
        return "[gv]*" if name[:1] in ("g", "v") else f"{'p' if name.startswith('p') else name}*"
    if offer.cloud == "gcp":
        return offer.instance_type.rpartition("-")[0] + "-*"
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
