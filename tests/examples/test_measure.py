"""The PyTorch training steps for ``profile measure``, where PyTorch is: on a CPU, in miniature."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "measure"
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed (pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu)",
)
MODELS = ("gpt2", "bert-large", "resnet-50")


@pytest.mark.parametrize("model", MODELS)
def test_the_job_files_name_the_script(model: str) -> None:
    from arylcloud.cli.jobfile import load_job

    spec, _ = load_job(FOLDER / f"{model}.yaml")
    assert spec.run.strip() == f"python3 train_steps.py {model}"


@needs_torch
@pytest.mark.parametrize("model", MODELS)
def test_steps_in_miniature(model: str, tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    done = subprocess.run(
        [sys.executable, str(FOLDER / "train_steps.py"), model, "--tiny", "--device", "cpu", "--steps", "8"],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "ARYL_PROGRESS_FILE": str(progress),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[3]) for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert '"total_steps": 8' in progress.read_text()


@needs_torch
def test_the_models_have_their_published_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    steps = importlib.import_module("train_steps")
    for name, millions in (("gpt2", 124.4), ("bert-large", 334.1), ("resnet-50", 25.56)):
        model, _, _, _ = steps.build(name, tiny=False, batch=1, device="cpu")
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=1e-3)
