"""``resolve_job``: which job the user means."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from arylcloud.cli.jobs import resolve_job
from arylcloud.core.errors import NoSuchJob, UsageError
from arylcloud.core.events import JobSubmitted, Record
from arylcloud.core.job import JobSpec


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
    with pytest.raises(NoSuchJob, match="no job"):
        resolve_job(Journal(), None)
