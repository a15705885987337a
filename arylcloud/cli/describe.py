"""Events as sentences. ``logs --provision``, ``events`` and ``launch`` all render these."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from arylcloud.cli.output import rate, usd
from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase

if TYPE_CHECKING:
    from arylcloud.launcher.state import JobState


def clock_text(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def line(record: ev.Record, state: JobState) -> str | None:
    """``12:30:05  got …``; None for records that say nothing new to a person watching."""
    text = sentence(record.event, state)
    return None if text is None else f"{clock_text(record.at_s)}  {text}"


def sentence(event: ev.Event, state: JobState) -> str | None:
    """One line per kind of event; None where there is nothing to say."""
    match event:
        case ev.JobSubmitted():
            return f"submitted as {state.job_id}, files in {event.prefix_uri}"
        case ev.JobPhaseChanged():
            # the migration has just been said, with its reason
            return None if event.phase is JobPhase.MIGRATING else f"{event.phase}: {event.text}"
        case ev.LauncherStarted():
            what = "adopted by" if event.adopted else "launcher"
            return f"{what} {event.launcher_id} on {event.host}, pid {event.pid}"
        case ev.LeaseIntended():
            what = f"{event.offer.instance_type} {event.offer.market} in {event.offer.place}"
            why = "to move there" if event.purpose == "migrate" else event.why
            return f"asking for {what} ({why})"
        case ev.LeaseCreated():
            return f"got {event.instance_id} at {rate(event.usd_per_hour)}"
        case ev.LeaseRefused():
            return f"refused ({event.kind}): {event.message}"
        case ev.CreateUncertain():
            tail = "looking whether a machine came of it"
            return f"no clear answer from the cloud ({event.kind}): {event.message}; {tail}"
        case ev.LeasePhaseChanged():
            return f"{event.lease_id} is {event.phase}: {event.text}"
        case ev.LeasePriced():
            return None
        case ev.PricesChecked():
            return f"prices of {event.lease_id}: {event.text}"
        case ev.LimitUnknown():
            return f"the {event.limit} cannot be watched: {event.text}"
        case ev.LeaseEnding():
            return f"ending {event.lease_id}: {event.why}"
        case ev.LeaseReleased():
            ends = {"interrupted": "was taken back by the cloud", "self": "ended itself"}
            return f"{event.lease_id} {ends.get(event.cause, 'is gone')}"
        case ev.NoticeSeen():
            when = clock_text(event.acts_at_s)
            return f"notice: the cloud takes {event.lease_id} back at {when} ({event.action})"
        case ev.EpochOpened():
            if not event.members:
                return f"asked to save and hand over ({event.reason})"
            start = "from the beginning" if event.resume_from is None else f"from step {event.resume_step:,}"
            return f"epoch {event.number}, attempt {event.attempt}: starting {start} ({event.reason})"
        case ev.TrainingStarted():
            return f"training at step {event.step:,}"
        case ev.TrainingStopped():
            lost = max(0, event.last_step - event.committed_step)
            tail = f", {lost:,} steps to repeat" if event.how == "lost" else ""
            return f"training stopped at step {event.last_step:,} ({event.how}){tail}"
        case ev.CommandEnded():
            where = "setup" if event.in_setup else "command"
            return f"the {where} exited {event.exit_code}"
        case ev.CheckpointCommitted():
            return f"checkpoint of step {event.step:,} committed ({size(event.total_bytes)})"
        case ev.CheckpointRejected():
            return f"checkpoint refused, the one before is used: {event.message}"
        case ev.RequestSeen():
            return f"{event.verb} requested by {event.by}"
        case ev.MigrationStarted():
            why = event.why.removeprefix(event.to.key).strip()
            return f"moving from {event.from_offer} to {event.to.key}: {why}"
        case ev.MigrationEnded():
            return f"moved: {event.text}" if event.done else f"move given up: {event.text}"
        case ev.OfferBarred():
            return f"not asking {event.scope} for a while ({event.code}): {event.why}"
        case ev.Charged():
            return f"{event.what} {usd(event.usd)} for {event.gb:.3f} GB: {event.text}"
        case ev.BaselineQuoted():
            return None
        case ev.Notified():
            return None if event.ok else f"notification failed: {event.text}"


def size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
