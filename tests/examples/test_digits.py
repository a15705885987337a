"""The example that the demo runs: real data, it learns, and interruptions do not change a bit of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
STEPS = 600


def start(folder: Path, *flags: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*flags),
        env=environ(folder, env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_in_step(folder: Path, *flags: str, **env: str) -> subprocess.Popen[bytes]:
    """What it says is read as it comes, and it is held up when a page of that has not been read (160 lines):
    however slow we are, it is not done before the signal."""
    return subprocess.Popen(
        command(*flags, "--log-every", "1"),
        env=environ(folder, env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pipesize=4096,
    )


def command(*flags: str) -> list[str]:
    return [sys.executable, str(DIGITS / "train.py"), *flags]


def environ(folder: Path, more: dict[str, str]) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ARYL_", "DIGITS_"))}
    return {**clean, "PYTHONPATH": str(ROOT), "ARYL_CHECKPOINT_DIR": str(folder), **more}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("truth")
    process = start(folder, "--steps", str(STEPS))
    out, _ = process.communicate()
    assert process.returncode == 0, out
    return contents(folder / f"step-{STEPS}")


def test_it_learns(tmp_path: Path) -> None:
    process = start(tmp_path, ARYL_PROGRESS_FILE=str(tmp_path / "p.json"))
    out, _ = process.communicate()
    assert process.returncode == 0, out
    *_, last = out.splitlines()
    assert last.startswith("done: 1000 steps")
    assert float(last.split()[-1]) >= 0.95
    told = json.loads((tmp_path / "p.json").read_text())
    assert (told["step"], told["total_steps"], told["finished"]) == (1000, 1000, True)


def after_lines(process: subprocess.Popen[bytes], count: int, number: signal.Signals) -> str:
    """What it prints until it has ended; the signal comes after ``count`` lines."""
    assert process.stdout is not None
    head = [process.stdout.readline() for _ in range(count)]
    process.send_signal(number)
    rest, _ = process.communicate()
    return b"".join([*head, rest]).decode()


def test_stopped_and_killed_at_random_it_ends_with_the_same_bytes(
    tmp_path: Path, truth: dict[str, bytes]
) -> None:
    chance = random.Random(1)
    flags = ["--steps", str(STEPS), "--step-s", "0.002"]
    asked = killed = 0
    for turn in range(40):
        env = {"ARYL_CHECKPOINT_INTERVAL_S": "0.05", "ARYL_ATTEMPT": str(turn + 1)}
        number = signal.SIGTERM if turn % 2 else signal.SIGKILL
        process = start_in_step(tmp_path, *flags, **env)
        out = after_lines(process, chance.randint(60, 120), number)
        if "done:" in out:
            break
        if number == signal.SIGTERM:
            assert process.returncode == 0, out
            assert "handing over" in out
            asked += 1
        else:
            assert process.returncode == -signal.SIGKILL
            killed += 1
    assert asked >= 1
    assert killed >= 1
    assert contents(tmp_path / f"step-{STEPS}") == truth


def test_no_step_is_repeated_after_it_was_asked_to_stop(tmp_path: Path, truth: dict[str, bytes]) -> None:
    steps: list[int] = []
    for turn in range(30):
        process = start_in_step(tmp_path, "--steps", str(STEPS), "--step-s", "0.001")
        out = after_lines(process, 100, signal.SIGTERM)
        assert process.returncode == 0, out
        steps += [int(line.split()[1].split("/")[0]) for line in out.splitlines() if line.startswith("step ")]
        if "done:" in out:
            assert turn >= 2
            break
    assert steps == list(range(1, STEPS + 1))
    assert contents(tmp_path / f"step-{STEPS}") == truth


def test_the_pace_changes_nothing(tmp_path: Path, truth: dict[str, bytes]) -> None:
    process = start(tmp_path, "--steps", str(STEPS), DIGITS_STEP_S="0.001")
    process.communicate()
    assert contents(tmp_path / f"step-{STEPS}") == truth


def test_finished_work_is_not_done_again(tmp_path: Path) -> None:
    for _ in range(2):
        process = start(tmp_path, "--steps", "20")
        out, _ = process.communicate()
        assert process.returncode == 0
    assert "from step 20" in out
    assert "done: 20 steps" in out


def test_another_seed_is_refused(tmp_path: Path) -> None:
    start(tmp_path, "--steps", "5").communicate()
    process = start(tmp_path, "--steps", "5", "--seed", "1")
    out, _ = process.communicate()
    assert process.returncode == 1
    assert "belongs to a run with seed 0" in out


def test_the_data_is_small_and_named() -> None:
    assert (DIGITS / "optdigits-test.bin.gz").stat().st_size <= 100_000
    notice = (DIGITS / "NOTICE").read_text()
    assert "CC BY 4.0" in notice
    assert "10.24432/C50P49" in notice
    assert "68aea062d35a1277" in notice


def test_its_job_file_is_one() -> None:
    from arylcloud.cli.jobfile import load_job

    spec, _ = load_job(DIGITS / "job.yaml")
    assert spec.work is not None
    assert (spec.work.amount, spec.work.unit) == (1000, "steps")
    assert f"--steps {int(spec.work.amount)}" in spec.run
    assert [a.gpu for a in spec.resources.accelerators] == ["T4", "L4", "V100", "A10G"]
    assert spec.profile is not None
    assert {rate.rate for rate in spec.profile.rates} == {1 / float(spec.envs["DIGITS_STEP_S"])}
