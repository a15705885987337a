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
    from arylcloud.cli.server import Server
    from arylcloud.cli.settings import Folders
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)
SECRETS_S = 10.0
"""How long a launcher waits for the secrets of a job that has just been submitted."""


@app.command()
def serve(
    job: Annotated[
        str | None, typer.Option("--job", help="Only this job; ends when the job has ended.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Jobs of `launch --queue` take turns by it (`plan` knows the names)."),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", help="GPUs that they share, as v100=2,k80=2.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Dollars for all queued jobs together.")
    ] = None,
    round_: Annotated[
        str, typer.Option("--round", help="How long a turn lasts at least.", metavar="DURATION")
    ] = "6m",
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Run the launcher for all jobs of this journal, until stopped (Ctrl-C): machines go on without it."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    logging.getLogger("arylcloud").setLevel(logging.INFO)  # SDKs tell of every request at that level
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.settings import folders

    places = folders()
    if job is None:
        return _serve_all(_server(places, policy, capacity, budget, round_), as_json=json_)
    if policy is not None or capacity is not None or budget is not None:
        from arylcloud.core.errors import UsageError

        raise UsageError("--job serves one job alone: there is no queue", hint="leave --policy out, or --job")
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


def _server(
    places: Folders, policy: str | None, capacity: str | None, budget: str | None, round_: str
) -> Server:
    """Of all jobs; with a policy, of a queue, too. Raises UsageError."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.output import note
    from arylcloud.cli.server import Server
    from arylcloud.core.errors import UsageError

    if policy is None:
        if capacity is not None or budget is not None:
            what = "--capacity" if capacity is not None else "--budget"
            raise UsageError(f"{what} belongs to a queue", hint="--policy max_min_fairness_perf, say")
        return Server(journal=open_journal(places), places=places)
    from arylcloud.cli.planmany import counts_of
    from arylcloud.cli.queueserver import QueueServer, queue_policy, told
    from arylcloud.core.units import parse_duration_s, parse_usd

    found = queue_policy(policy)
    if capacity is None:
        raise UsageError(
            "a queue needs --capacity: the GPUs that its jobs share", hint="--capacity v100=2,k80=2"
        )
    server = QueueServer(
        journal=open_journal(places),
        places=places,
        policy=found,
        capacity=counts_of(capacity),
        budget_usd=None if budget is None else parse_usd(budget, what="--budget"),
        round_s=parse_duration_s(round_, what="--round"),
    )
    note(told(server))
    return server


def _serve_all(server: Server, *, as_json: bool) -> int:
    """Until Ctrl-C or SIGTERM; then the launchers that it started end with it."""
    from arylcloud.cli.output import emit_json, note

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    note("serving all jobs of this journal; Ctrl-C ends it, the machines go on")
    try:
        while True:
            server.look()
            time.sleep(server.every_s)
    except KeyboardInterrupt:
        ended = server.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    note(f"{ended} launchers ended; machines go on: `arylcloud serve` takes them up again")
    if as_json:
        emit_json({"jobs": server.document(), "launchers_ended": ended})
    return 0
