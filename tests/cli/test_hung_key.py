"""``aryl: hung``: what a job file may say of commands that do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.cli.jobfile import load_job
from arylcloud.core.errors import UsageError
from arylcloud.core.job import HungSpec


def read(folder: Path, text: str) -> HungSpec:
    path = folder / "job.yaml"
    path.write_text(f"run: python train.py\naryl:\n  hung: {text}\n")
    return load_job(path)[0].hung


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", HungSpec()),
        ("50x", HungSpec(times=50.0)),
        ("45m", HungSpec(times=None, least_s=2700.0)),
        ("{do: restart}", HungSpec(do="restart")),
        (
            "{after: 5 x, at_least: 2m, silent: 30m, do: stop}",
            HungSpec(times=5, least_s=120, silent_s=1800, do="stop"),
        ),
        ("{after: 2h, do: report}", HungSpec(times=None, least_s=7200.0)),
    ],
)
def test_it_is_read(tmp_path: Path, text: str, wanted: HungSpec) -> None:
    assert read(tmp_path, text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1x", "would take every hiccup for a hang"),
        ("soon", "is not a duration"),
        ("30", "has no unit"),
        ("{after: 30m, at_least: 10m}", "after is a duration already"),
        ("{do: kill}", "'kill' is none of"),
        ("{afte: 20x}", "unknown key"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert said in error.value.message
    assert error.value.message.startswith(f"{tmp_path / 'job.yaml'}:3: ")
