"""Which job a command means: by id, by name, by the beginning of its id; the newest when none is named,
or, of a command that acts on what runs, the one that does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from arylcloud.core.errors import NoSuchJob, UsageError
from arylcloud.core.events import JobSubmitted, Record

if TYPE_CHECKING:
    from arylcloud.launcher.state import JobState


class JobIndex(Protocol):
    """What is needed of the journal here."""

    def jobs(self) -> Iterable[str]:
        """Ids of all jobs, oldest submission first."""
        ...

    def records(self, job_id: str) -> Iterable[Record]: ...


def resolve_job(journal: JobIndex, text: str | None) -> str:
    """The id of the job that ``text`` names.

    In this order: the exact id; the exact name (of several jobs with one name, the newest); the
    beginning of exactly one id. None: the newest job of this journal.

    Raises NoSuchJob (102) where nothing fits, UsageError (2) where the beginning fits several.
    """
    ids = list(journal.jobs())
    if text is None:
        if not ids:
            raise NoSuchJob(
                "no job has been launched from here yet",
                hint="start one: `arylcloud launch job.yaml --infra local`",
            )
        return _newest(journal, ids)
    if text in ids:
        return text
    named = [job_id for job_id in ids if _name(journal, job_id) == text]
    if named:
        return _newest(journal, named)
    fitting = [job_id for job_id in ids if text and job_id.startswith(text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(
            f"{text!r} fits {len(fitting)} jobs: {', '.join(fitting[-5:])}", hint="give more of the id"
        )
    known = f"known jobs: {', '.join(ids[-5:])}" if ids else "this journal has no jobs"
    raise NoSuchJob(f"no job is called {text!r}", hint=f"{known} (`arylcloud status` lists them)")


def resolve_running(journal: JobIndex, text: str | None) -> str:
    """As :func:`resolve_job`, for what acts on a job that runs: where none is named, or by a name that
    several have, the one that has not ended; the newest where all have. Raises UsageError (2) where several
    run: nobody wants the wrong one stopped."""
    ids = list(journal.jobs())
    if text is not None:
        if text in ids or not any(_name(journal, job_id) == text for job_id in ids):
            return resolve_job(journal, text)
        ids = [job_id for job_id in ids if _name(journal, job_id) == text]
    running = [state.job_id for state in at_work(journal, ids)]
    if len(running) > 1:
        called = "" if text is None else f" by the name {text}"
        raise UsageError(
            f"{len(running)} jobs run{called}: {', '.join(running)}", hint="name one of them by its id"
        )
    return running[0] if running else resolve_job(journal, text)


def at_work(journal: JobIndex, ids: Iterable[str] | None = None) -> list[JobState]:
    """Jobs that have not ended, or that only made way in a queue and come back; oldest first. One whose
    records are damaged is not among them: whoever names it is told, and no other job stands still for it."""
    from arylcloud.core.errors import IntegrityError
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.queueview import made_way

    found = []
    for job_id in journal.jobs() if ids is None else ids:
        try:
            state = replay(journal.records(job_id))
        except IntegrityError:
            continue
        if not state.phase.ended or made_way(state):
            found.append(state)
    return found


def _submission(journal: JobIndex, job_id: str) -> tuple[float, str]:
    for record in journal.records(job_id):
        if isinstance(record.event, JobSubmitted):
            return record.at_s, record.event.spec.name
    return 0.0, ""


def _name(journal: JobIndex, job_id: str) -> str:
    return _submission(journal, job_id)[1]


def _newest(journal: JobIndex, ids: list[str]) -> str:
    """By submission; of two at the same moment, the later in the journal's order."""
    return max(enumerate(ids), key=lambda pair: (_submission(journal, pair[1])[0], pair[0]))[1]
