"""Asking something of a running job: a numbered document in its mailbox, from any machine."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.ports import ObjectStore

if TYPE_CHECKING:
    from arylcloud.core.events import Event
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

LOOK_S = 0.25
"""Between two looks at what the launcher has journaled."""


def asker() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def write_request(
    store: ObjectStore, verb: Literal["stop", "migrate", "scale", "check"], args: dict[str, Any]
) -> int:
    """Returns its number; two users at once get two numbers."""
    number = 1 + sum(1 for _ in store.list(mail.REQUESTS_PREFIX))
    while True:
        document = mail.RequestDoc(
            number=number,
            verb=verb,
            args=args,
            at_s=time.time(),
            by=asker(),
        )
        if store.create(mail.request_key(number), dumps(document)):
            return number
        number += 1


def answers(
    journal: Journal, state: JobState, number: int, *, quiet: bool
) -> Iterator[tuple[JobState, Event | None]]:
    """What is journaled from request ``number`` on, that request first, as it comes; and after each look
    None, for whoever waits for what the state shows. Tells the job's story meanwhile, unless ``quiet``.
    Raises NotFinished when the job has ended."""
    from arylcloud.cli.describe import line, spelled
    from arylcloud.cli.output import note
    from arylcloud.core.errors import NotFinished
    from arylcloud.core.events import RequestSeen
    from arylcloud.launcher.fold import apply

    job_id, ours = state.job_id, False
    while True:
        for record in journal.records(job_id, after=state.seq):
            before, state = state, apply(state, record)
            text = line(record, state, before)
            if text and not quiet:
                note(text)
            ours = ours or (isinstance(record.event, RequestSeen) and record.event.number == number)
            if ours:
                yield state, record.event
        yield state, None
        if state.phase.ended:
            raise NotFinished(
                f"{job_id} is {state.phase}: {spelled(state.phase_text)}", hint=f"`arylcloud report {job_id}`"
            )
        time.sleep(LOOK_S)
