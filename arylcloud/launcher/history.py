"""How long machines lived that the clouds could take back: from one job's journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import EndCause
from arylcloud.launcher.lifebook import Life

KINDS: Final = ("JobSubmitted", "LeaseIntended", "LeaseCreated", "NoticeSeen", "LeaseReleased")
"""What is read; all else says nothing of lives."""


def lives(records: Iterable[tuple[float, ev.Event]], last_s: float) -> tuple[Life, ...]:
    """Of the spot machines in one job's ``(wall seconds, event)``, in the journal's order. Pure.

    ``last_s``: wall seconds of the job's newest record of any kind. What was never released counts until then
    and no longer: a launcher that is gone sees no losses, either.
    """
    clock: MarketClock | None = None
    offers: dict[str, Offer] = {}
    launched: dict[str, float] = {}
    noticed: set[str] = set()
    found: list[Life] = []
    for at_s, event in records:
        match event:
            case ev.JobSubmitted():
                clock = MarketClock(origin_s=event.market_origin_s, scale=event.market_scale)
            case ev.LeaseIntended() if event.offer.market is Market.SPOT:
                offers[event.lease_id] = event.offer
            case ev.LeaseCreated() if event.lease_id in offers:
                launched[event.lease_id] = event.launched_s
            case ev.NoticeSeen():
                # whoever leaves in time has lost the machine all the same
                noticed.add(event.lease_id)
            case ev.LeaseReleased() if event.lease_id in launched:
                hours = (event.ended_s - launched.pop(event.lease_id)) / 3600.0
                lost = event.cause == EndCause.INTERRUPTED or event.lease_id in noticed
                found.append(_life(offers[event.lease_id], hours, lost, at_s))
            case _:
                pass
    for lease_id, from_s in launched.items():
        if clock is not None:
            found.append(
                _life(offers[lease_id], (clock.market_s(last_s) - from_s) / 3600.0, lost=False, at_s=last_s)
            )
    return tuple(life for life in found if life.hours > 0)


def _life(offer: Offer, hours: float, lost: bool, at_s: float) -> Life:
    return Life(
        cloud=offer.cloud,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        hours=hours,
        lost=lost,
        at_s=at_s,
    )


def fold(rows: Iterable[tuple[float, bytes]], last_s: float, what: str) -> tuple[Life, ...]:
    """Of one job's records of these kinds as they stand in the journal. IntegrityError: they do not."""
    return lives(((at_s, ev.Record.from_bytes(body, what=what).event) for at_s, body in rows), last_s)
