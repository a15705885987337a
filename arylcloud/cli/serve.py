"""``arylcloud serve``: the launcher itself, for one job (as ``launch`` starts it) or for all."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.cli.settings import Folders
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)
SECRETS_S = 10.0
"""How long a launcher waits for the secrets of a job that has just been submitted."""
LOOK_S = 5.0
"""Between two looks at the journal for jobs without a launcher."""


@app.command()
def serve(
    job: Annotated[
        str | None, typer.Option("--job", help="Only this job; ends when the job has ended.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Run the launcher for all jobs of this journal, until stopped (Ctrl-C): machines go on without it."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    logging.getLogger("arylcloud").setLevel(logging.INFO)  # SDKs tell of every request at that level
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.settings import folders

    places = folders()
    if job is None:
        return _serve_all(places, as_json=json_)
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.jobs import resolve_job

    with open_journal(places) as journal:
        job_id = resolve_job(journal, job)
    state = serve_one(job_id, places)
    if json_:
        emit_json({"job_id": job_id, "phase": state.phase, "code": state.phase_code})
    return 0


def serve_one(job_id: str, places: Folders) -> JobState:
    """The launcher itself, until the job has ended. ``job_id`` is one of this journal."""
    from arylcloud.cli.assemble import (
        Parts,
        build_launcher,
        clouds_of,
        open_journal,
        open_prefix,
        providers_for,
    )
    from arylcloud.cli.spawn import launcher_log
    from arylcloud.core.errors import StoreError
    from arylcloud.launcher.fold import replay

    journal = open_journal(places)
    with journal.claim(job_id), _room_for_last_words(launcher_log(places, job_id)):
        state = replay(journal.records(job_id))
        pause_s = 1.0
        while True:
            try:
                store = open_prefix(state.prefix_uri)
                _await_secrets(store, state)
                providers = providers_for(clouds_of(state.spec), places)
                parts = Parts(journal=journal, store=store, providers=providers)
                launcher = build_launcher(job_id, state, parts, places)
            except StoreError as error:  # machines may have to be ended once it is back: no reason to die
                log.warning("the mailbox cannot be read yet: %s", error.message)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 10.0)
            else:
                return launcher.run()


@contextlib.contextmanager
def _room_for_last_words(path: Path) -> Iterator[None]:
    """A few kilobytes beside the log, given back when this launcher ends: on a disk that is full, the reason
    could not be written down."""
    reserve = path.with_suffix(".reserve")
    try:
        reserve.parent.mkdir(parents=True, exist_ok=True)
        reserve.write_bytes(os.urandom(8192))
    except OSError as error:  # full already: then the journal will say so, here and now
        log.warning("no room is kept for last words: %s", error)
    try:
        yield
    finally:
        reserve.unlink(missing_ok=True)


def _await_secrets(store: ObjectStore, state: JobState) -> None:
    """They are written right after the job's first record. No machine is bought for a job that cannot
    run without them. Raises UsageError, StoreError."""
    from arylcloud.core.errors import UsageError
    from arylcloud.core.protocol import SECRETS_KEY

    deadline_s = time.monotonic() + SECRETS_S
    while state.spec.secret_names and not state.leases and store.get(SECRETS_KEY) is None:
        if time.monotonic() >= deadline_s:
            raise UsageError(
                f"{state.job_id} lacks its secrets: its launch was cut short",
                hint=f"with them in your environment, `arylcloud resume {state.job_id}` gives them",
            )
        time.sleep(0.2)


def _serve_all(places: Folders, *, as_json: bool) -> int:
    """Until Ctrl-C or SIGTERM; then the launchers that it started end with it."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.server import Server

    server = Server(journal=open_journal(places), places=places)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    note("serving all jobs of this journal; Ctrl-C ends it, the machines go on")
    try:
        while True:
            server.look()
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        ended = server.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    note(f"{ended} launchers ended; machines go on: `arylcloud serve` takes them up again")
    if as_json:
        emit_json({"jobs": server.document(), "launchers_ended": ended})
    return 0
