"""The PyTorch example, where PyTorch is: it learns, and an interruption does not change a bit of it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHARGPT = ROOT / "examples" / "chargpt"
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed (pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu)",
)


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ARYL_")}
    return subprocess.Popen(
        [sys.executable, str(CHARGPT / "train.py"), *flags],
        env={**clean, "PYTHONPATH": str(ROOT), "ARYL_CHECKPOINT_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@needs_torch
def test_it_learns_and_resumes_to_the_bit(tmp_path: Path) -> None:
    import torch

    flags = ["--steps", "60", "--log-every", "1"]
    process = start(tmp_path / "whole", *flags)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    losses = [float(line.split()[3]) for line in out.splitlines() if line.startswith("step ")]
    assert len(losses) == 60
    assert losses[-1] < 3.2 < 5.0 < losses[0]

    again: list[float] = []
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        process = start(tmp_path / "parts", *flags)
        assert process.stdout is not None
        head = [process.stdout.readline() for _ in range(18)]
        if number is not None:
            process.send_signal(number)
        rest, _ = process.communicate()
        lines = [line for line in "".join([*head, rest]).splitlines() if line.startswith("step ")]
        steps = {
            int(line.split()[1].split("/")[0]): float(line.split()[3]) for line in lines if "loss" in line
        }
        again = [loss for at, loss in enumerate(again, 1) if at not in steps] + list(steps.values())
    assert process.returncode == 0, rest
    assert again == losses
    whole, parts = (torch.load(tmp_path / name / "step-60/state.pt") for name in ("whole", "parts"))
    assert whole["step"] == parts["step"] == 60
    assert all(torch.equal(whole["model"][name], parts["model"][name]) for name in whole["model"])
    moments = zip(whole["optimiser"]["state"].values(), parts["optimiser"]["state"].values(), strict=True)
    assert all(torch.equal(one[name], two[name]) for one, two in moments for name in one)


def test_its_job_file_says_what_the_model_is() -> None:
    from arylcloud.cli.jobfile import load_job

    spec, _ = load_job(CHARGPT / "job.yaml")
    assert spec.profile is not None
    shape = spec.profile.shape
    assert shape is not None
    width, layers, context = shape.hidden, shape.layers, shape.seq_len
    norms = 2 * width * (2 * layers + 1)
    block = 12 * width * width + 9 * width
    assert shape.params == pytest.approx(256 * width + context * width + layers * block + norms, rel=0.01)
    assert spec.work is not None
    assert spec.work.amount == pytest.approx(2000 * 16 * context)


def test_its_text_is_small_and_named() -> None:
    assert (CHARGPT / "apache-2.0.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "Apache License" in (CHARGPT / "NOTICE").read_text()
