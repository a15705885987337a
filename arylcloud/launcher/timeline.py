"""What happened to a job, in order, for the report: its journal with everything else left out.

Pure; moments are market seconds, as prices and bills are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.ports import EndCause

EntryKind = Literal[
    "submitted",
    "launch",
    "refused",
    "price",
    "epoch",
    "training",
    "checkpoint",
    "damaged",
    "notice",
    "interruption",
    "release",
    "migration",
    "migrated",
    "command",
    "phase",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at_s: float
    """Market seconds."""
    kind: EntryKind
    text: str
    lease_id: str | None = None
    offer: str | None = None
    usd_per_hour: float | None = None
    step: int | None = None
    noticed: bool | None = None
    """Of an interruption: it had been announced."""


def timeline(records: Iterable[ev.Record]) -> tuple[Entry, ...]:
    """Entries in order of market time; of one moment, in the journal's order."""
    clock = MarketClock()
    offers: dict[str, str] = {}
    noticed: set[str] = set()
    entries: list[Entry] = []
    for record in records:
        event = record.event
        if isinstance(event, ev.JobSubmitted):
            clock = MarketClock(origin_s=event.market_origin_s, scale=event.market_scale)
        elif isinstance(event, ev.LeaseIntended):
            offers[event.lease_id] = event.offer.key
        elif isinstance(event, ev.NoticeSeen):
            noticed.add(event.lease_id)
        entry = _entry(event, record.at_s, clock, offers, noticed)
        if entry is not None:
            entries.append(entry)
    return tuple(sorted(entries, key=lambda entry: entry.at_s))


def _entry(
    event: ev.Event, wall_s: float, clock: MarketClock, offers: dict[str, str], noticed: set[str]
) -> Entry | None:
    at_s = clock.market_s(wall_s)
    match event:
        case ev.JobSubmitted():
            return Entry(at_s=at_s, kind="submitted", text=f"{event.spec.name} submitted")
        case ev.LeaseCreated():
            offer = offers.get(event.lease_id)
            return Entry(
                at_s=event.launched_s,
                kind="launch",
                text=f"machine {event.instance_id} launched: {offer}",
                lease_id=event.lease_id,
                offer=offer,
                usd_per_hour=event.usd_per_hour,
            )
        case ev.LeaseRefused():
            return Entry(
                at_s=at_s,
                kind="refused",
                text=f"{offers.get(event.lease_id)} refused ({event.kind}): {event.message}",
                lease_id=event.lease_id,
                offer=offers.get(event.lease_id),
            )
        case ev.LeasePriced():
            return Entry(
                at_s=event.from_s,
                kind="price",
                text=f"{offers.get(event.lease_id)} at ${event.usd_per_hour:,.4f}/h",
                lease_id=event.lease_id,
                offer=offers.get(event.lease_id),
                usd_per_hour=event.usd_per_hour,
            )
        case ev.EpochOpened():
            what = f"{len(event.members)} machine(s)" if event.members else "drain"
            return Entry(
                at_s=at_s,
                kind="epoch",
                text=f"epoch {event.number}, {what}: {event.reason}",
                step=event.resume_step if event.members else None,
            )
        case ev.TrainingStarted():
            return Entry(
                at_s=clock.market_s(event.at_s),
                kind="training",
                text=f"steps from {event.step} in epoch {event.epoch}",
                lease_id=event.lease_id,
                step=event.step,
            )
        case ev.TrainingStopped():
            return Entry(
                at_s=clock.market_s(event.at_s),
                kind="training",
                text=f"{event.how} at step {event.last_step}, {event.committed_step} committed",
                lease_id=event.lease_id,
                step=event.last_step,
            )
        case ev.CheckpointCommitted():
            return Entry(
                at_s=clock.market_s(event.saved_at_s),
                kind="checkpoint",
                text=f"checkpoint of step {event.step} ({event.total_bytes:,} bytes)",
                step=event.step,
            )
        case ev.CheckpointRejected():
            return Entry(at_s=at_s, kind="damaged", text=f"{event.manifest}: {event.message}")
        case ev.NoticeSeen():
            return Entry(
                at_s=at_s,
                kind="notice",
                text=f"{event.lease_id}: the cloud takes it back ({event.action})",
                lease_id=event.lease_id,
                offer=offers.get(event.lease_id),
            )
        case ev.LeaseReleased():
            return _released(event, offers, noticed)
        case ev.MigrationStarted():
            return Entry(
                at_s=at_s,
                kind="migration",
                text=f"{event.from_offer} → {event.to.key}: {event.why}",
                offer=event.to.key,
            )
        case ev.MigrationEnded():
            return Entry(at_s=at_s, kind="migrated", text=event.text)
        case ev.CommandEnded():
            where = "setup" if event.in_setup else f"rank {event.rank}"
            return Entry(at_s=at_s, kind="command", text=f"{where} exited {event.exit_code}")
        case ev.JobPhaseChanged():
            return Entry(at_s=at_s, kind="phase", text=f"{event.phase.value}: {event.text}")
        case _:
            return None


def _released(event: ev.LeaseReleased, offers: dict[str, str], noticed: set[str]) -> Entry:
    interrupted = event.cause == EndCause.INTERRUPTED.value
    announced = event.lease_id in noticed
    how = "announced" if announced else "without notice"
    return Entry(
        at_s=event.ended_s,
        kind="interruption" if interrupted else "release",
        text=f"{event.lease_id} interrupted, {how}"
        if interrupted
        else f"{event.lease_id} released ({event.cause})",
        lease_id=event.lease_id,
        offer=offers.get(event.lease_id),
        noticed=announced if interrupted else None,
    )
