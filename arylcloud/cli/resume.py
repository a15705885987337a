"""``arylcloud resume``: go on from the last checkpoint; or give a job a launcher again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.cli.resumeterms import Files, NewLimits
    from arylcloud.cli.settings import Folders
    from arylcloud.core.errors import UsageError
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def resume(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest if left out.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="USD", help="A new one, of the whole job: $500.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="A new one: such as 36h, from now.")
    ] = None,
    max_runtime: Annotated[
        str | None, typer.Option("--max-runtime", metavar="TIME", help="A new one, of the whole job: 40h.")
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option("--workdir", metavar="DIR", help="Send this folder, in place of the files it has."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not watch it.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Go on from the last checkpoint. A job that runs without a launcher gets one again."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.launch import finish
    from arylcloud.cli.resumeterms import Files, NewLimits
    from arylcloud.cli.settings import folders
    from arylcloud.launcher.fold import replay

    places = folders()
    journal = open_journal(places)
    job_id = resolve_job(journal, job)
    state = replay(journal.records(job_id))
    _refuse_succeeded(state)
    typed = NewLimits(budget=budget, deadline=deadline, max_runtime=max_runtime)
    store = open_prefix(state.prefix_uri)
    new = bool(typed) or workdir is not None
    if state.phase.ended or (new and not journal.claimed(job_id)):
        state = _caught_up(journal, job_id, store)
    if state.phase.ended:
        files = None if workdir is None else Files.packed(workdir)
        _say_terms(state, typed, files, places, yes)
        with journal.claim(job_id):
            begin_again(journal, job_id, store, typed=typed, files=files)
    elif new:
        raise _has_not_ended(state)
    else:
        give_secrets(store, state)
    return finish(journal, store, job_id, places, detach=detach, as_json=json_, since_seq=state.seq)


def _caught_up(journal: Journal, job_id: str, store: ObjectStore) -> JobState:
    """As its mailbox tells: another home may have gone on with it, used more, and set other limits."""
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.holder import refuse_beside_another

    with journal.claim(job_id):
        journal.catch_up(job_id, store)
    state = replay(journal.records(job_id))
    _refuse_succeeded(state)
    refuse_beside_another(store, state, journal.journal_id)
    return state


def _say_terms(state: JobState, typed: NewLimits, files: Files | None, places: Folders, yes: bool) -> None:
    """What it goes on with, said and asked, before anything is written; nobody waits for the answer."""
    from dataclasses import replace

    from arylcloud.cli.output import hanging, note
    from arylcloud.cli.resumeterms import ask, checked_limits, files_text
    from arylcloud.cli.workdir import check_files

    checked_limits(state, typed, time.time())
    if (text := files_text(state) if files is None else files.text) is not None:
        note(hanging(text, 0))
    if files is not None and (lacks := check_files(replace(state.spec, workdir=files.workdir))) is not None:
        note(hanging(f"warning: {lacks}", 2))
    ask(state, replace(state.spec, constraints=state.spec.constraints.let_go()), places, yes)


def begin_again(
    journal: Journal,
    job_id: str,
    store: ObjectStore,
    *,
    typed: NewLimits | None = None,
    files: Files | None = None,
    by_queue: bool = False,
) -> bool:
    """Journal that an ended job goes on; the caller has the claim. ``typed``: a user's new limits, which are
    judged by what the job has used; None: none is judged. ``files``: what it runs instead of those that it
    has. This home may know less than the mailbox does: another one may have gone on with the job, or have
    finished it, meanwhile. Returns whether it goes on: not where a user has stopped it since the queue
    (``by_queue``) did. Raises ConflictError, OverBudget, UsageError, StoreError, having written nothing (or
    new limits and files alone)."""
    from arylcloud.cli.assemble import new_writer_id
    from arylcloud.cli.resumeterms import checked_limits
    from arylcloud.launcher import resuming
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.holder import refuse_beside_another
    from arylcloud.launcher.journaltime import journal_now_s
    from arylcloud.launcher.queueview import made_way
    from arylcloud.launcher.submit import put_secrets

    journal.catch_up(job_id, store)
    state = replay(journal.records(job_id))
    _refuse_succeeded(state)
    refuse_beside_another(store, state, journal.journal_id)
    if not state.phase.ended:
        if typed or files is not None:
            raise _has_not_ended(state)
        give_secrets(store, state)
        return True
    if by_queue and not made_way(state):
        return False
    limits = None if typed is None else checked_limits(state, typed, time.time())
    secrets, notify = _from_environment(state)
    writer = new_writer_id()
    if limits is not None:
        at_s = journal_now_s(journal, job_id, store, time.time())
        journal.append(job_id, at_s, writer, limits, None, mirror=store)
    if files is not None:
        resuming.send_files(
            journal, job_id, store, files.archive, files.workdir, writer=writer, wall_s=time.time
        )
    resuming.settle_files(journal, job_id, store, writer=writer)
    if not resuming.resume(journal, job_id, store, writer=writer, wall_s=time.time, by_queue=by_queue):
        return False
    put_secrets(store, secrets, notify)
    return True


def give_secrets(store: ObjectStore, state: JobState) -> None:
    """To a job that goes on and lacks them: its launch, or its resume, was cut short before it had
    written them. One that has had machines since can do without, or says so itself."""
    from arylcloud.core import protocol as mail
    from arylcloud.launcher.submit import put_secrets

    lacks = bool(state.spec.secret_names) and store.get(mail.SECRETS_KEY) is None
    if not lacks and (state.spec.notify is None or store.get(mail.LAUNCHER_SECRETS_KEY) is not None):
        return
    secrets, notify = _from_environment(state)
    put_secrets(store, secrets if lacks else {}, notify)


def _refuse_succeeded(state: JobState) -> None:
    from arylcloud.core.errors import UsageError
    from arylcloud.core.phases import JobPhase

    if state.phase is JobPhase.SUCCEEDED:
        raise UsageError(
            f"{state.job_id} has finished: there is nothing to resume",
            hint="`arylcloud launch` runs it anew",
        )


def _has_not_ended(state: JobState) -> UsageError:
    from arylcloud.core.errors import UsageError

    return UsageError(
        f"{state.job_id} is {state.phase}: its limits are changed when it has ended, and so are its files",
        hint=f"`arylcloud stop {state.job_id}`, then resume it with them",
    )


def _from_environment(state: JobState) -> tuple[dict[str, str], str | None]:
    """Secrets are removed when a job ends. Without an address nobody is told, but the job can go on."""
    from arylcloud.cli.jobfile import NOTIFY_ENV
    from arylcloud.cli.notify import checked
    from arylcloud.cli.output import note
    from arylcloud.core.errors import UsageError

    missing = sorted(name for name in state.spec.secret_names if name not in os.environ)
    if missing:
        raise UsageError(
            f"secrets are removed when a job ends; not in the environment: {', '.join(missing)}",
            hint=f"export {missing[0]}=… and resume again",
        )
    secrets = {name: os.environ[name] for name in state.spec.secret_names}
    if state.spec.notify is None:
        return secrets, None
    notify = os.environ.get(NOTIFY_ENV)
    if notify is None:
        note(f"{state.spec.notify} will not be told: its address was removed with the job's secrets")
        note(f"hint: export {NOTIFY_ENV}=… before `arylcloud resume` gives it again")
        return secrets, None
    return secrets, checked(notify, what=NOTIFY_ENV)
