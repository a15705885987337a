"""What ``init`` writes beside the job file: it learns, goes on to the bit, and is never written over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.market import quiet
from e2e.support import Home

from arylcloud.cli import starter
from arylcloud.cli.main import run


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """30 steps, and where their checkpoints go."""
    for name in ("ARYL_PROGRESS_FILE", "ARYL_NOTICE_FILE", "ARYL_WARNING_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(starter, "STEPS", 30)
    monkeypatch.setattr(starter.aryl, "install", lambda: None)  # a test keeps its signals
    monkeypatch.setenv("ARYL_CHECKPOINT_DIR", str(tmp_path / "whole"))
    return tmp_path


def saved(folder: Path) -> tuple[str, bytes]:
    newest = starter.aryl.latest(folder)
    assert newest is not None
    return newest.name, (newest / "state.json").read_bytes()


def test_it_goes_on_to_the_bit(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert starter.main() == 0
    asked = iter([False] * 11 + [True])
    monkeypatch.setenv("ARYL_CHECKPOINT_DIR", str(short / "parts"))
    with monkeypatch.context() as once:
        once.setattr(starter.aryl, "should_stop", lambda: next(asked))
        assert starter.main() == 0
    assert saved(short / "parts")[0] == "step-12"
    assert starter.main() == 0
    assert saved(short / "parts") == saved(short / "whole")
    assert saved(short / "whole")[0] == "step-30"


def test_it_learns() -> None:
    state = starter.new_state()
    before = starter.accuracy(state["weights"])
    for step in range(1, 801):
        starter.train_step(state, step)
    assert starter.accuracy(state["weights"]) > max(before, 0.65) + 0.1


def test_after_init_a_launch_just_works(new_home: Callable[..., Home]) -> None:
    home = new_home(quiet())
    found = home.cli("init", "new/job.yaml", "--json", code=0)
    script = home.market_file.parent / "new" / "train.py"
    assert found.json["script"] == "new/train.py"
    assert script.read_text() == Path(starter.__file__).read_text()
    script.write_text(script.read_text().replace("STEPS = 10_000", "STEPS = 40"))
    done = home.cli("launch", "new/job.yaml", "--infra", "local", "-y", "--json", code=0)
    assert done.json["phase"] == "succeeded"
    assert home.cli("report", "--json", code=0).json["final_step"] == 40
    assert "warning" not in done.err


def test_a_train_py_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("mine")
    for flags in ([], ["--force"]):
        assert run(["init", str(tmp_path / "job.yaml"), *flags, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["script"] is None
        assert script.read_text() == "mine"


def test_a_command_of_ones_own_brings_its_own_script(tmp_path: Path) -> None:
    assert run(["init", str(tmp_path / "job.yaml"), "--run", "python3 mine.py", "-y"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
