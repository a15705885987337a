"""A job that has ended goes on: the one record that says so, and what it overtakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.bundle import Archive
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.journaltime import journal_now_s
from arylcloud.launcher.state import BY_QUEUE


def send_files(
    journal: Journal,
    job_id: str,
    store: ObjectStore,
    archive: Archive,
    workdir: str,
    *,
    writer: str,
    wall_s: Callable[[], float],
) -> None:
    """Other files for a job that has ended. The caller has the claim, and has caught up with the mailbox;
    ``settle_files`` follows. Idempotent. Raises StoreError, ConflictError."""
    store.create(mail.workdir_key(archive.sha256), archive.data)
    at_s = journal_now_s(journal, job_id, store, wall_s())
    event = ev.FilesChanged(workdir=workdir, sha256=archive.sha256, files=archive.files)
    journal.append(job_id, at_s, writer, event, None, mirror=store)


def settle_files(journal: Journal, job_id: str, store: ObjectStore, *, writer: str) -> None:
    """The document that machines begin with names the files that the journal does: whoever sent them may have
    died in between. Of a job that has ended, before it goes on. Raises StoreError, ConflictError."""
    state = journal.state(job_id)
    data = store.get(mail.JOB_KEY) if state.files_sha256 is not None else None
    if data is None:
        return
    job = loads(mail.JobDoc, data, what=f"{store.uri}/{mail.JOB_KEY}")
    if job.workdir_sha256 == state.files_sha256:
        return
    journal.check_fence(job_id, store, writer)
    spec = replace(job.spec, workdir=state.spec.workdir)
    store.put(mail.JOB_KEY, dumps(replace(job, spec=spec, workdir_sha256=state.files_sha256)))


def resume(
    journal: Journal,
    job_id: str,
    store: ObjectStore,
    *,
    writer: str,
    wall_s: Callable[[], float],
    by_queue: bool = False,
) -> bool:
    """Journal that an ended job goes on. The caller has the claim, and has caught up with the mailbox.

    Requests that lie in the mailbox were asked of the run before: they are seen first, as overtaken. (By
    their being there, not by their moments: those are by their askers' clocks.) ``by_queue``: the queue
    goes on with whom it has made stop itself; a user's stop that has come since is no such, and counts.
    Returns whether the job goes on. Raises StoreError, ConflictError; to be called again after either.
    """
    state = journal.state(job_id)

    def note(event: ev.Event, cause_id: str | None = None) -> None:
        at_s = journal_now_s(journal, job_id, store, wall_s())
        journal.append(job_id, at_s, writer, event, cause_id, mirror=store)

    stopped = False
    for info in store.list(mail.REQUESTS_PREFIX, after=mail.request_key(state.requests_seen)):
        data = store.get(info.key)
        if data is None:
            continue
        try:
            asked = loads(mail.RequestDoc, data, what=info.key)
        except IntegrityError:
            continue  # no launcher reads it either
        users_stop = by_queue and asked.verb == "stop" and BY_QUEUE not in asked.args
        args = asked.args if users_stop else {**asked.args, "stale": True}
        seen = ev.RequestSeen(number=asked.number, verb=asked.verb, args=args, by=asked.by)
        note(seen, f"request {asked.number}")
        stopped = stopped or users_stop
    if stopped:
        return False
    by = "queue" if by_queue else "user"
    note(ev.JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text=f"resumed by the {by}"))
    return True
