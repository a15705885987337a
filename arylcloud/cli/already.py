"""Before a second copy of a job that runs is paid for: that it runs is said, and the user asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arylcloud.cli.jobs import JobIndex
    from arylcloud.core.job import JobSpec
    from arylcloud.launcher.state import JobState


def ask(journal: JobIndex, spec: JobSpec, *, yes: bool) -> None:
    """Nothing where no such job is at work. On a terminal a question, unless ``yes``; else a line on
    stderr. Raises Cancelled."""
    from arylcloud.cli.output import hanging, note
    from arylcloud.core.errors import Cancelled

    found = same(journal, spec)
    if not found:
        return
    runs = ", ".join(_text(state) for state in found[-3:])
    said = f"the same job runs already: {runs}"
    if yes or not sys.stdin.isatty():
        note(hanging(f"warning: {said}; this is another copy, and is paid for, too", 2))
        return
    import typer

    note(hanging(said, 2))
    if not typer.confirm("Launch another?", default=False, err=True):
        raise Cancelled("not launched", hint=f"`arylcloud status {found[-1].job_id}` shows how far it is")


def same(journal: JobIndex, spec: JobSpec) -> list[JobState]:
    """Jobs at work that do the same thing: of this name, command, setup, folder and environment. (Where they
    run, and on what, is no difference: that is what is chosen anew at each launch.)"""
    from arylcloud.cli.jobs import at_work
    from arylcloud.core.tokens import new_job_id

    stem = _stem(new_job_id(spec.name))
    ids = [job_id for job_id in journal.jobs() if _stem(job_id) == stem]
    return [state for state in at_work(journal, ids) if _does(state.spec) == _does(spec)]


def _stem(job_id: str) -> str:
    return job_id.rpartition("-")[0]


def _does(spec: JobSpec) -> tuple[object, ...]:
    return spec.name, spec.run, spec.setup, spec.workdir, spec.envs, spec.secret_names


def _text(state: JobState) -> str:
    """``logreg-7977822a (500 of 1,200 steps)``: as far as its newest checkpoint, or its heartbeat, tells."""
    from arylcloud.cli.assemble import open_prefix
    from arylcloud.cli.progress import read_progress
    from arylcloud.core.errors import StoreError

    try:
        reading = read_progress(open_prefix(state.prefix_uri), state)
    except StoreError:
        reading = read_progress(None, state)
    if reading.done is None:
        return f"{state.job_id} ({state.phase})"
    of = "" if reading.total is None else f" of {reading.total:,.0f}"
    return f"{state.job_id} ({reading.done:,}{of} {reading.unit})"
