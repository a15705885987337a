"""What the machines cost, recomputed from the cloud's own log and nothing else.

Billed per second from launch to end, at the price in force at each moment, at least ``minimum_s``
(the time that is missing to it at the last price). This knows no journal: a ledger can be held
against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import PricePoint
from arylcloud.providers.local import marketfile
from arylcloud.providers.local.log import Record, read
from arylcloud.providers.local.machines import Instance, Machines
from arylcloud.providers.local.wire import LOG_FILE

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One machine. Seconds are market seconds."""

    instance_id: str
    journal_id: str
    lease_id: str
    offer_key: str
    launched_s: float
    ended_s: float | None
    """None: it runs, and is billed up to the moment that was asked for."""
    end_cause: str | None
    billed_s: float
    prices: tuple[PricePoint, ...]
    """In force while it lived, the first at launch."""
    usd: float


def bill(folder: Path, *, now_wall_s: float) -> tuple[BillLine, ...]:
    """Every machine that the cloud in ``folder`` ever launched, in order of launch, up to
    ``now_wall_s``. Raises IntegrityError for a damaged log."""
    records, _ = read(folder / LOG_FILE)
    if not records:
        return ()
    opened = records[0]
    if opened.get("kind") != "opened":
        raise IntegrityError(f"{folder / LOG_FILE} does not begin with its market")
    clock = MarketClock(origin_s=opened["origin_s"], scale=opened["scale"])
    minimum_s = marketfile.parse(opened["text"], what="the log's market").minimum_s
    machines = Machines.replay(records).by_id.values()
    return tuple(
        _line(instance, records, minimum_s=minimum_s, now_s=clock.market_s(now_wall_s))
        for instance in sorted(machines, key=lambda i: (i.launched_s, i.instance_id))
    )


def _line(instance: Instance, records: Iterable[Record], *, minimum_s: float, now_s: float) -> BillLine:
    end_s = instance.ended_s if instance.ended_s is not None else now_s
    prices = [PricePoint(from_s=instance.launched_s, usd_per_hour=instance.launch_usd_per_hour)]
    prices += [
        PricePoint(from_s=record["from_s"], usd_per_hour=record["usd_per_hour"])
        for record in records
        if record["kind"] == "price"
        and record["offer"] == instance.offer_key
        and instance.launched_s < record["from_s"] < end_s
    ]
    bill_end_s = max(end_s, instance.launched_s + minimum_s)
    ends = [*(point.from_s for point in prices[1:]), bill_end_s]
    usd = sum(
        (until_s - point.from_s) / HOUR_S * point.usd_per_hour
        for point, until_s in zip(prices, ends, strict=True)
    )
    return BillLine(
        instance_id=instance.instance_id,
        journal_id=instance.journal_id,
        lease_id=instance.lease_id,
        offer_key=instance.offer_key,
        launched_s=instance.launched_s,
        ended_s=instance.ended_s,
        end_cause=None if instance.end_cause is None else instance.end_cause.value,
        billed_s=bill_end_s - instance.launched_s,
        prices=tuple(prices),
        usd=usd,
    )
