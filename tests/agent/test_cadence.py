"""How often the training is told to save: from what has been measured, and told again when that changes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud import training
from arylcloud.agent.cadence import Advisor, interval_s
from arylcloud.core.cadence import daly_interval_s
from arylcloud.core.protocol import EpochDoc


def epoch(losses_per_hour: float | None, interval: float | None = None) -> EpochDoc:
    return EpochDoc(
        job_id="j",
        number=1,
        attempt=1,
        opened_s=0.0,
        reason="",
        members=(),
        resume_from=None,
        checkpoint_interval_s=interval,
        losses_per_hour=losses_per_hour,
    )


def test_the_files_interval_counts_and_what_is_not_known_is_not_advised() -> None:
    assert interval_s(epoch(None, 90.0), save_s=1.0, upload_s=5.0) == 90.0
    assert interval_s(epoch(None), save_s=1.0, upload_s=5.0) is None
    assert interval_s(epoch(0.5), save_s=None, upload_s=5.0) is None
    assert interval_s(epoch(0.0), save_s=1.0, upload_s=None) is None  # never lost
    assert interval_s(epoch(0.5, 77.0), save_s=None, upload_s=None) == 77.0  # measured in an earlier epoch


@given(
    st.floats(0.01, 100.0),
    st.floats(1e-4, 50.0),
    st.one_of(st.none(), st.floats(0.0, 1000.0)),
)
def test_dalys_but_never_faster_than_it_can_be_sent(
    save_s: float, losses: float, upload_s: float | None
) -> None:
    found = interval_s(epoch(losses), save_s=save_s, upload_s=upload_s)
    assert found is not None
    assert math.isclose(found, max(daly_interval_s(save_s, 3600.0 / losses), upload_s or 0.0))


def test_the_training_hears_of_it_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "advice.json"
    monkeypatch.setenv("ARYL_ADVICE_FILE", str(file))
    monkeypatch.setenv("ARYL_CHECKPOINT_INTERVAL_S", "33.0")
    assert training.info().checkpoint_interval_s == 33.0
    advisor = Advisor(file, log=pytest.fail)
    advisor.advise(epoch(0.5), save_s=None, upload_s=None)
    assert not file.exists()
    advisor.advise(epoch(0.5), save_s=1.0, upload_s=2.0)
    first = daly_interval_s(1.0, 7200.0)
    assert training.info().checkpoint_interval_s == advisor.interval_s == first
    advisor.advise(epoch(0.5), save_s=1.05, upload_s=2.0)  # scatter
    assert training.info().checkpoint_interval_s == first
    advisor.advise(epoch(0.5), save_s=1.0, upload_s=1000.0)
    assert training.info().checkpoint_interval_s == 1000.0
    advisor.advise(epoch(None), save_s=1.0, upload_s=1000.0)
    assert json.loads(file.read_text()) == {"checkpoint_interval_s": None}
    assert training.info().checkpoint_interval_s is None
    file.write_text("half of {")
    assert training.info().checkpoint_interval_s == 33.0


def test_a_disk_that_does_not_take_it_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    Advisor(tmp_path / "gone" / "advice.json", log=said.append).advise(epoch(1.0), save_s=1.0, upload_s=None)
    assert "advice.json cannot be written" in said[0]


def test_what_could_not_be_written_is_told_again(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "gone" / "advice.json"
    advisor = Advisor(file, log=said.append)
    for _ in range(3):
        advisor.advise(epoch(1.0), save_s=1.0, upload_s=None)
    assert advisor.interval_s is None
    assert len(said) == 1
    file.parent.mkdir()
    advisor.advise(epoch(1.0), save_s=1.0, upload_s=None)
    assert json.loads(file.read_text()) == {"checkpoint_interval_s": advisor.interval_s}
    assert len(said) == 1
