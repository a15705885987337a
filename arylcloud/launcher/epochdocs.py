"""An epoch that is journaled, told to its machines: one document in the mailbox, written once."""

from __future__ import annotations

import logging
from dataclasses import replace

from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import ConflictError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.probe import Probe
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)


def publish(
    store: ObjectStore,
    state: JobState,
    number: int,
    *,
    checkpoint_interval_s: float | None,
    losses_per_hour: float | None,
    probe: Probe,
) -> None:
    """Write the document of epoch ``number``, unless it is there. A mailbox that does not answer is no error
    here: ``reconcile`` asks again. Raises ConflictError if another launcher has opened this epoch."""
    epoch = next(e for e in state.epochs if e.number == number)
    document = mail.EpochDoc(
        job_id=state.job_id,
        number=epoch.number,
        attempt=epoch.attempt,
        opened_s=epoch.opened_at_s,
        reason=epoch.reason,
        members=epoch.members,
        resume_from=epoch.resume_from,
        checkpoint_interval_s=checkpoint_interval_s if epoch.members else None,
        losses_per_hour=losses_per_hour if epoch.members else None,
        grace_s=epoch.grace_s,
        pipelines=epoch.pipelines,
    )
    probe("before epoch document")
    key = mail.epoch_key(number)
    try:
        created = store.create(key, dumps(document))
    except StoreError as error:
        log.warning("epoch %d is journaled, its document is not written yet: %s", number, error.message)
        return
    if not created and not _same_epoch(store.get(key), document):
        raise ConflictError(
            f"another launcher has opened epoch {number} of {state.job_id}",
            hint="`arylcloud status` shows which one holds the job",
        )
    probe("after epoch document")


def _same_epoch(data: bytes | None, document: mail.EpochDoc) -> bool:
    """Ours from before a crash? (The advice on cadence may have changed since.)"""
    if data is None:
        return False
    found = loads(mail.EpochDoc, data, what=mail.epoch_key(document.number))
    advice = (document.checkpoint_interval_s, document.losses_per_hour)
    return replace(found, checkpoint_interval_s=advice[0], losses_per_hour=advice[1]) == document
