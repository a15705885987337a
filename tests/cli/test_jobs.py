"""``resolve_job``, ``resolve_running``: which job the user means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from arylcloud.cli.jobs import resolve_job, resolve_running
from arylcloud.core.errors import NoSuchJob, UsageError
from arylcloud.core.events import JobPhaseChanged, JobSubmitted, Record
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import JobPhase


class Journal:
    def __init__(self, *jobs: tuple[str, str, float]) -> None:
        self._jobs = {
            job_id: Record(
                job_id=job_id,
                seq=1,
                at_s=at_s,
                writer="w",
                cause_id=None,
                event=JobSubmitted(
                    spec=JobSpec(name=name, run="true"),
                    prefix_uri="file:///x",
                    journal_id="j",
                    market_origin_s=0.0,
                    market_scale=1.0,
                ),
            )
            for job_id, name, at_s in jobs
        }

    def jobs(self) -> Iterable[str]:
        return list(self._jobs)

    def records(self, job_id: str) -> Iterable[Record]:
        return [self._jobs[job_id]]


THREE = Journal(("gpt-11aa", "gpt", 100.0), ("gpt-12bb", "gpt", 300.0), ("digits-99ff", "digits", 200.0))


def test_newest_is_by_submission_not_by_order() -> None:
    assert resolve_job(THREE, None) == "gpt-12bb"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpt-11aa", "gpt-11aa"),  # the id
        ("gpt", "gpt-12bb"),  # the name: newest of two, though it begins both ids
        ("digits", "digits-99ff"),
        ("gpt-11", "gpt-11aa"),  # the beginning of one id
        ("d", "digits-99ff"),
    ],
)
def test_finds(text: str, found: str) -> None:
    assert resolve_job(THREE, text) == found


def test_an_id_wins_over_a_name() -> None:
    journal = Journal(("a-1", "x", 1.0), ("x-2", "a-1", 2.0))
    assert resolve_job(journal, "a-1") == "a-1"


def test_a_beginning_of_several_ids_is_a_question_not_a_guess() -> None:
    with pytest.raises(UsageError, match="fits 2 jobs"):
        resolve_job(THREE, "gpt-1")


@pytest.mark.parametrize("text", ["nope", ""])
def test_unknown_is_102_and_names_what_there_is(text: str) -> None:
    with pytest.raises(NoSuchJob) as caught:
        resolve_job(THREE, text)
    assert caught.value.exit_code == 102
    assert caught.value.hint is not None
    assert "digits-99ff" in caught.value.hint


def test_an_empty_journal_says_how_to_start() -> None:
    with pytest.raises(NoSuchJob, match="no job") as caught:
        resolve_job(Journal(), None)
    assert "--infra local`" in str(caught.value.hint), "a first try costs nothing"


class Phased(Journal):
    """Some of the jobs have ended."""

    def __init__(self, *jobs: tuple[str, str, float], ended: tuple[str, ...]) -> None:
        super().__init__(*jobs)
        self.ended = ended

    def records(self, job_id: str) -> Iterable[Record]:
        first = self._jobs[job_id]
        phase = JobPhase.SUCCEEDED if job_id in self.ended else JobPhase.RUNNING
        changed = JobPhaseChanged(phase=phase, code="x", text="x")
        return [first, replace(first, seq=2, event=changed)]


def test_what_acts_on_a_job_takes_the_one_that_runs_not_the_newest() -> None:
    three = (("gpt-11aa", "gpt", 100.0), ("gpt-12bb", "gpt", 300.0), ("digits-99ff", "digits", 200.0))
    one = Phased(*three, ended=("gpt-12bb", "digits-99ff"))
    assert resolve_running(one, None) == "gpt-11aa"
    assert resolve_running(one, "gpt") == "gpt-11aa", "of several of that name, too"
    assert resolve_running(one, "gpt-12bb") == "gpt-12bb", "an id is that job, ended or not"
    assert resolve_running(one, "dig") == "digits-99ff"
    none = Phased(*three, ended=("gpt-11aa", "gpt-12bb", "digits-99ff"))
    assert resolve_running(none, None) == "gpt-12bb"
    several = Phased(*three, ended=())
    with pytest.raises(UsageError, match="3 jobs run: gpt-11aa, gpt-12bb, digits-99ff") as caught:
        resolve_running(several, None)
    assert caught.value.hint == "name one of them by its id"
    with pytest.raises(UsageError, match="2 jobs run by the name gpt: gpt-11aa, gpt-12bb"):
        resolve_running(several, "gpt")
    assert resolve_running(several, "digits") == "digits-99ff"
