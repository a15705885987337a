"""Signals at a moment of our choosing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arylcloud.cli.interrupts import SIGNALS, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_breaks_nothing(number: signal.Signals) -> None:
    before = [signal.getsignal(n) for n in SIGNALS]
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        assert interrupts.wish is number
        assert interrupts.take() is number
        assert interrupts.wish is None
    assert [signal.getsignal(n) for n in SIGNALS] == before


def test_a_second_ctrl_c_does_not_wait() -> None:
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_question_hears_the_first() -> None:
    with Interrupts() as interrupts:
        interrupts.impatient = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.wish is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("how", [["-m", "arylcloud"], ["-c", "from arylcloud.cli.main import main; main()"]])
def test_ctrl_c_while_python_is_still_loading_is_one_line(tmp_path: Path, how: list[str]) -> None:
    """The first library that is imported is one that gets a Ctrl-C in the middle of it."""
    lines = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    (tmp_path / "typer.py").write_text(lines)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *how, "status"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr.splitlines() == ["error: interrupted before anything was done"]
    assert done.stdout == ""
