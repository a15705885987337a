"""What this home has seen of spot capacity and prices, as a trace to replay on (``backtest --trace own``).

Every launch is a look: a machine that was had says that there was capacity, a refusal for want of it that
there was none, and so does an interruption. Between two looks at a zone the last one stands, and before the
first one the first: capacity that nobody asked for is not known. A trace of few looks says little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import EndCause
from arylcloud.simulation.spottraces import SpotTrace, ZoneSteps

LOCAL: Final = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One answer of a cloud. Seconds are its market's."""

    offer: Offer
    at_s: float
    up: bool | None = None
    """Whether there was capacity; None: only the price was seen."""
    usd_per_hour: float | None = None


def looks(records: Iterable[tuple[str, float, ev.Event]]) -> tuple[Look, ...]:
    """Of ``(job id, wall seconds, event)`` in the journal's order, at spot offers. Pure."""
    clocks: dict[str, MarketClock] = {}
    offers: dict[tuple[str, str], Offer] = {}
    found: list[Look] = []
    for job_id, at_s, event in records:
        if isinstance(event, ev.JobSubmitted):
            clocks[job_id] = MarketClock(origin_s=event.market_origin_s, scale=event.market_scale)
            continue
        lease_id = getattr(event, "lease_id", None)
        if isinstance(event, ev.LeaseIntended) and event.offer.market is Market.SPOT:
            offers[job_id, event.lease_id] = event.offer
        offer = offers.get((job_id, lease_id)) if lease_id is not None else None
        if offer is None or job_id not in clocks:
            continue
        now_s = clocks[job_id].market_s(at_s)
        match event:
            case ev.LeaseIntended():
                found.append(Look(offer=offer, at_s=now_s, usd_per_hour=offer.usd_per_hour))
            case ev.LeaseCreated():
                found.append(
                    Look(offer=offer, at_s=event.launched_s, up=True, usd_per_hour=event.usd_per_hour)
                )
            case ev.LeasePriced():
                found.append(Look(offer=offer, at_s=event.from_s, usd_per_hour=event.usd_per_hour))
            case ev.LeaseRefused() if event.kind == "capacity":
                found.append(Look(offer=offer, at_s=now_s, up=False))
            case ev.LeaseReleased() if event.cause in (EndCause.INTERRUPTED, EndCause.NO_ROOM):
                found.append(Look(offer=offer, at_s=event.ended_s, up=False))
            case _:
                pass
    return tuple(sorted(found, key=lambda look: look.at_s))


def own_trace(
    found: Iterable[Look],
    *,
    until_s: float,
    listed: Callable[[Offer], float | None],
    elsewhere: Callable[[Offer], float | None] = lambda _: None,
    kind: str | None = None,
) -> SpotTrace:
    """The zones of one instance type (``kind``; None: the one with most looks), from the first look on.

    ``until_s``: market seconds of its end; ``listed``: on-demand $/h where an offer is, None = not known;
    ``elsewhere``: the same type's in other regions, taken then. Of neither the zone is left out. The trace's
    ``notes`` tell of what was left out or taken from elsewhere. Raises UsageError where nothing is known,
    with the types there are.
    """
    found = tuple(found)
    real = tuple(look for look in found if look.offer.cloud != LOCAL)
    found = real or found  # the local cloud's market is invented, and its time compressed: never both
    by_kind: dict[str, dict[str, list[Look]]] = defaultdict(lambda: defaultdict(list))
    for look in found:
        o = look.offer
        by_kind[o.instance_type][f"{o.cloud}/{o.region}/{o.zone or o.region}"].append(look)
    told = {name: _told(zones) for name, zones in by_kind.items()}
    able = {name: zones for name, zones in told.items() if zones}
    if kind is None and able:
        kind = max(able, key=lambda name: (sum(map(len, able[name].values())), name))
    if kind is None or kind not in able:
        raise UsageError(
            f"this home has seen no spot capacity of {kind}"
            if kind
            else "this home has seen no spot capacity yet",
            hint=f"it has seen {', '.join(sorted(able))}"
            if able
            else "spot jobs launched here tell of it; `arylcloud backtest --invent 1` has an invented one",
        )
    begin_s = min(looks[0].at_s for looks in able[kind].values())
    places, steps, notes = [], [], []
    for place, looks in sorted(by_kind[kind].items()):
        if place not in able[kind]:
            lacks = "capacity" if any(look.usd_per_hour for look in looks) else "price"
            notes.append(f"{place} is left out: no spot {lacks} of {kind} was seen there")
            continue
        on_demand = listed(looks[0].offer)
        if on_demand is None and (on_demand := elsewhere(looks[0].offer)) is not None:
            notes.append(
                f"{place}: no on-demand price of {kind} is known; taken at ${on_demand:g}/h,"
                " the highest known in other regions"
            )
        if on_demand is None:
            notes.append(f"{place} is left out: no on-demand price of {kind} is known there or elsewhere")
            continue
        places.append(place)
        steps.append(_steps(looks, begin_s, until_s, on_demand))
    if not places:
        raise UsageError(
            f"no on-demand price of {kind} is known where this home has seen spot capacity",
            hint="`arylcloud prices --refresh` brings today's; a catalogue of your own may say it, too",
        )
    first = next(iter(able[kind].values()))[0].offer
    return SpotTrace(
        name="own" if real else "own, of the local cloud",
        places=tuple(places),
        instance_type=kind,
        gpu=first.gpu,
        gpu_count=first.gpu_count,
        zones=tuple(steps),
        notes=tuple(notes),
    )


def _told(zones: Mapping[str, list[Look]]) -> dict[str, list[Look]]:
    """Zones of which both are known at some time: capacity, and a price."""
    return {
        place: looks
        for place, looks in zones.items()
        if any(look.up is not None for look in looks) and any(look.usd_per_hour for look in looks)
    }


def _steps(looks: list[Look], begin_s: float, until_s: float, on_demand: float) -> ZoneSteps:
    up = next(look.up for look in looks if look.up is not None)
    price = next(look.usd_per_hour for look in looks if look.usd_per_hour)
    at, available, prices = [0.0], [int(up)], [price]
    for look in looks:
        up = look.up if look.up is not None else bool(available[-1])
        price = look.usd_per_hour or prices[-1]
        offset_s = max(0.0, look.at_s - begin_s)
        if offset_s > at[-1]:
            at.append(offset_s)
            available.append(int(up))
            prices.append(price)
        else:  # of one moment the last word counts
            available[-1], prices[-1] = int(up), price
    return ZoneSteps(
        offset_s=np.array(at),
        available=np.array(available, dtype=np.int64),
        spot_usd_per_hour=np.array(prices),
        on_demand_usd_per_hour=np.full(len(at), on_demand),
        end_s=max(until_s - begin_s, at[-1] + 1.0),
    )
