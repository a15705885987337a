"""Events as sentences. ``logs --provision``, ``events`` and ``launch`` all render these."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from arylcloud.cli.output import rate, seconds, usd
from arylcloud.cli.pipelines import pipelines_text
from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.core.units import say_usd_limit

if TYPE_CHECKING:
    from arylcloud.launcher.state import JobState


_HOW: Final = {
    "drained": "saved and handed over",
    "exited": "the command ended",
    "lost": "the machine is gone",
}


_OFFER_KEY: Final = re.compile(r"[\w.-]+/[\w./-]+:[\w.-]+:(?:spot|on_demand|reserved)\b")


def _stopped(event: ev.TrainingStopped, state: JobState) -> str:
    from arylcloud.launcher.worktime import unsaved

    lost, saved_s = max(0, event.last_step - event.committed_step), event.committed_saved_at_s
    how = _HOW[event.how]
    if event.how == "drained" and (lost or unsaved(event, state)):
        how = "handed over without saving"
        if saved_s is not None:
            how += f" again: its last checkpoint was {max(0.0, event.at_s - saved_s):.0f} s old"
    tail = f", {lost:,} step{'' if lost == 1 else 's'} to repeat"
    shown = event.how == "lost" or (event.how == "drained" and lost > 0)
    return f"training stopped at step {event.last_step:,} ({how}){tail if shown else ''}"


def _said_again(event: ev.Event, before: JobState) -> bool:
    """A start that is put right, of a training that runs: only the ledger needs its moment."""
    return isinstance(event, ev.TrainingStarted) and any(
        (t.epoch, t.lease_id, t.stopped_at_s) == (event.epoch, event.lease_id, None) for t in before.trainings
    )


def clock_text(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def line(record: ev.Record, state: JobState, before: JobState | None = None) -> str | None:
    """``12:30:05  got …``; None for records that say nothing new to a person watching. ``state``: with the
    record in it; ``before``: without it, to know what has been said already."""
    if before is not None and _said_again(record.event, before):
        return None
    text = sentence(record.event, state)
    return None if text is None else f"{clock_text(record.at_s)}  {spelled(text)}"


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
            why = "to move there" if event.purpose == "migrate" else event.why
            if state.spec.nodes_max == 1:
                why = why.removeprefix("rank 0: ")  # of one machine there is but one
            return f"asking for {offer_text(event.offer.key)} ({why})"
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
        case ev.LimitNear():
            return f"{event.limit}: {event.text}"
        case ev.FilesChanged():
            number = f"{event.files:,} file{'' if event.files == 1 else 's'}"
            return f"it runs {number} of {event.workdir} from here on"
        case ev.LimitsChanged():
            return f"new limits: {limits_text(event)}"
        case ev.QueueDecided():
            return f"its turn, on {event.gpu}: {event.why}"
        case ev.StallSeen():
            then = {"report": "", "restart": "; starting it again", "stop": "; stopping the job"}[event.do]
            return f"{event.kind}: {event.text}{then}"
        case ev.LeaseEnding():
            return f"ending {event.lease_id}: {event.why}"
        case ev.LeaseReleased():
            ends = {
                "interrupted": "was taken back by the cloud",
                "self": "ended itself",
                "no_room": "found no room after all",
            }
            said = f": {event.text}" if event.text else ""
            return f"{event.lease_id} {ends.get(event.cause, 'is gone')}{said}"
        case ev.NoticeSeen():
            when = clock_text(event.acts_at_s)
            return f"notice: the cloud takes {event.lease_id} back at {when} ({event.action})"
        case ev.RiskSeen():
            return f"warning: the cloud may take {event.lease_id} back"
        case ev.SizeChosen():
            who = "the planner" if event.code == "plan" else "a user"
            return f"{event.nodes} machines are wanted, says {who}: {event.why}"
        case ev.ScaleRefused():
            return f"not scaled: {event.text}"
        case ev.EpochOpened():
            if not event.members:
                return f"asked to save and hand over ({event.reason})"
            start = "from the beginning" if event.resume_from is None else f"from step {event.resume_step:,}"
            said = f"epoch {event.number}, attempt {event.attempt}: starting {start} ({event.reason})"
            return said if event.pipelines is None else f"{said}; {pipelines_text(event.pipelines)}"
        case ev.TrainingStarted():
            return f"training at step {event.step:,}"
        case ev.TrainingStopped():
            return _stopped(event, state)
        case ev.CommandEnded():
            where = "setup" if event.in_setup else "command"
            return f"the {where} exited {event.exit_code}"
        case ev.CheckpointCommitted():
            return f"checkpoint of step {event.step:,} committed ({size(event.total_bytes)})"
        case ev.CheckpointRejected():
            return f"checkpoint refused, the one before is used: {event.message}"
        case ev.RequestSeen():
            if event.verb == "check":
                scopes = ", ".join(str(scope) for scope in event.args.get("scopes", ()))
                return f"the quota does now, as `check` by {event.by} has found: {scopes} may be tried again"
            return f"{event.verb} requested by {event.by}"
        case ev.MigrationStarted():
            why = event.why.removeprefix(event.to.key).strip()
            here, there = _apart(event.from_offer, event.to.key)
            saving = event.expected_saving_usd
            cost = "" if event.move_usd is None else f", for a move of {usd(event.move_usd)}"
            pays = "" if saving is None else f"; expected to save {usd(saving)} of what is left{cost}"
            if "the move costs" in why:  # the policy's own words say it already
                pays = ""
            return f"moving from {here} to {there}: {why}{pays}"
        case ev.MigrationEnded():
            here, arrow, there = event.text.partition(" → ")
            text = " → ".join(_apart(here, there)) if arrow else event.text
            return f"moved: {text}{_took(event)}" if event.done else f"move given up: {text}"
        case ev.OfferBarred():
            return f"not asking {event.scope} for a while ({event.code}): {event.why}"
        case ev.Charged():
            vague = f"; no price is known of {event.unknown}" if event.unknown else ""
            return f"{event.what} {usd(event.usd)} for {event.gb:.3f} GB: {event.text}{vague}"
        case ev.BaselineQuoted():
            return None
        case ev.Notified():
            return None if event.ok else f"notification failed: {event.text}"


def limits_text(limits: ev.LimitsChanged) -> str:
    """``budget $20.00, deadline 36.0 h after its submission``."""
    parts = []
    if limits.budget_usd is not None:
        parts.append(f"budget {say_usd_limit(limits.budget_usd)}")
    if limits.deadline_s is not None:
        parts.append(f"deadline {seconds(limits.deadline_s)} after its submission")
    if limits.max_runtime_s is not None:
        parts.append(f"max_runtime {seconds(limits.max_runtime_s)}")
    return ", ".join(parts) or "none"


def _took(event: ev.MigrationEnded) -> str:
    """``; expected to save $41.00, took $0.38 and 95 s``."""
    parts = []
    if event.expected_saving_usd is not None:
        parts.append(f"expected to save {usd(event.expected_saving_usd)}")
    if event.took_usd is not None and event.took_s is not None:
        parts.append(f"took {usd(event.took_usd)} and {event.took_s:.0f} s")
    return "; " + ", ".join(parts) if parts else ""


def offer_text(key: str) -> str:
    """``g5.xlarge spot in aws/us-east-1`` of an offer's key; what is no key stays as it is."""
    place, _, rest = key.partition(":")
    kind, _, market = rest.rpartition(":")
    return f"{kind} {market.replace('_', '-')} in {place}" if kind and market else key


def spelled(text: str) -> str:
    """A journal's sentence for people: offers' keys in it as words, on every screen alike.

    >>> spelled("epoch 1 on 2 × aws/us-east-1/use1-az4:g5.xlarge:spot")
    'epoch 1 on 2 × g5.xlarge spot in aws/us-east-1/use1-az4'
    """
    return _OFFER_KEY.sub(lambda key: offer_text(key[0]), text)


def _apart(here: str, there: str) -> tuple[str, str]:
    """Two offers by what tells them apart: their places alone, where type and market are the same."""
    if here.partition(":")[2] == there.partition(":")[2]:
        return here.partition(":")[0], there.partition(":")[0]
    return offer_text(here), offer_text(there)


def cause_text(cause_id: str) -> str:
    """What an event was seen in, in words; an id that is none of ours stays as it is."""
    kind, _, rest = cause_id.partition(" ")
    if kind == "beat":
        return f"heartbeat {rest}"
    if kind == "manifest":
        return f"manifest {rest.rpartition('/')[2].removesuffix('.json')}"
    if kind == "end" and (found := re.fullmatch(r"e(\d+) r(\d+)", rest)):
        return f"end of epoch {found[1]}, rank {found[2]}"
    return f"the list of machines of {rest[3:]}" if cause_id.startswith("list of ") else cause_id


def size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
