"""How often a running job saves, and why: what its heartbeat says of it, as a line and as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import IntegrityError, StoreError

if TYPE_CHECKING:
    from arylcloud.core.ports import ObjectStore


def read_saves(store: ObjectStore, beat: mail.Heartbeat) -> dict[str, Any]:
    """``interval_s``: as advised now (None: no advice, the training decides); ``losses_per_hour``: of the
    whole gang, wall hours; ``skipped``: saves that a newer one overtook before they could be sent."""
    losses = None
    try:
        data = store.get(mail.epoch_key(beat.epoch))
        if data is not None:
            losses = loads(mail.EpochDoc, data, what=mail.epoch_key(beat.epoch)).losses_per_hour
    except (IntegrityError, StoreError):
        pass  # shown as "not known": a screen never stops a job
    return {
        "interval_s": beat.checkpoint_interval_s,
        "save_s": beat.save_s,
        "upload_s": beat.upload_s,
        "losses_per_hour": losses,
        "committed_step": beat.committed_step,
        "uploading_step": beat.uploading_step,
        "skipped": beat.saves_skipped,
    }


def saves_text(saves: dict[str, Any], *, fixed: bool) -> str | None:
    """``every 4 min (a save holds up 1.2 s, an upload takes 8 s; 1 loss per 9 h)``; None = nothing to say.
    ``fixed``: the job's file gives the interval."""
    from arylcloud.cli.output import seconds

    why = []
    if saves["save_s"] is not None:
        why.append(f"a save holds up {_short(saves['save_s'])}")
    if saves["upload_s"] is not None:
        why.append(f"an upload takes {_short(saves['upload_s'])}")
    if saves["losses_per_hour"]:
        why.append(f"1 loss per {seconds(3600.0 / saves['losses_per_hour'])}")
    interval_s = saves["interval_s"]
    if interval_s is None and not why:
        return None
    every = "as the training decides" if interval_s is None else f"every {_short(interval_s)}"
    if fixed:
        why.append("as the job file says")
    text = f"{every} ({', '.join(why)})" if why else every
    if saves["uploading_step"] is not None:
        text += f"; step {saves['uploading_step']:,} is on its way to the store"
    if saves["skipped"]:
        text += f"; {saves['skipped']:,} overtaken by a newer one: they come faster than they can be sent"
    return text


def _short(span_s: float) -> str:
    from arylcloud.cli.output import seconds

    return f"{span_s:.1f} s" if span_s < 10 else seconds(span_s)
