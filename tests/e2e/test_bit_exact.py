"""Interrupted, moved, resumed: the final weights are those of a run that nothing ever happened to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from e2e.market import job, market, on_demand, rough, spot
from e2e.support import Home, wait_for
from e2e.truth import attempts, folder_weights, last_checkpoint, settled, steps_kept

NewHome = Callable[..., Home]
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


def test_a_notice_repeats_no_step_and_a_loss_few(new_home: NewHome) -> None:
    """The first machine has notice, the second has none."""
    home = new_home(market(spot("a", 0.10), spot("b", 0.12), spot("c", 0.14)))
    job_id = home.submit(job(steps=350, save_every=50, hold=130))
    child = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    home.give_notice(home.state(job_id).open_leases[0].instance_id or "")
    wait_for(lambda: len(attempts(home)) == 2, "the second attempt")
    home.go(230)
    wait_for(lambda: home.state(job_id).checkpoints[-1].step == 200, "its last checkpoint")
    wait_for(lambda: attempts(home)[-1].last == 230, "what will be lost")
    home.give_notice(home.state(job_id).open_leases[-1].instance_id or "", 0)
    wait_for(lambda: len(attempts(home)) == 3, "the third attempt")  # until it is gone, the second one holds
    home.go()
    assert child.wait() == 0, child.err[-3000:]
    settled(home, job_id)
    steps_kept(home, job_id)
    report = home.report(job_id)
    assert (report["interruptions"], report["interruptions_with_notice"]) == (2, 1)
    runs = attempts(home)
    assert [run.ended for run in runs] == [True, False, True]
    done = [step for run in runs for step in run.steps]
    assert done == [*range(1, 231), *range(201, 351)], "each once, but for those after the last checkpoint"


def test_a_migration_repeats_no_step(new_home: NewHome) -> None:
    home = new_home(market(on_demand("a", 0.50), on_demand("b", 0.55)))
    job_id = home.submit(job(steps=700, save_every=50, hold=600, migrate={"at_most_every": "24h"}))
    child = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    here = home.state(job_id).open_leases[0].offer
    there = "local/b" if here.region == "a" else "local/a"
    home.cli("migrate", job_id, "--to", there, no_launcher=True)
    wait_for(lambda: home.state(job_id).migrations_done, "the move")
    home.go()
    assert child.wait() == 0, child.err[-3000:]
    state = settled(home, job_id)
    assert state.migrations_done == 1
    done = [step for attempt in attempts(home) for step in attempt.steps]
    assert done == list(range(1, 701))


def test_digits_is_bit_exact(new_home: NewHome, tmp_path: Path) -> None:
    """The demo's NumPy training: lost once without notice and once with one, launcher killed in between."""
    spec = yaml.safe_load((DIGITS / "job.yaml").read_text())
    spec["workdir"] = str(DIGITS)
    spec["envs"] = {**spec["envs"], "DIGITS_STEP_S": "0.005"}
    spec["aryl"]["checkpoint"]["interval"] = "1s"
    alone = tmp_path / "alone"
    alone.mkdir()
    env = {**os.environ, **{k: str(v) for k, v in (spec.get("envs") or {}).items()}}
    env |= {"ARYL_CHECKPOINT_DIR": str(alone), "PYTHONPATH": str(ROOT), "DIGITS_STEP_S": "0"}
    subprocess.run(["bash", "-c", spec["run"]], cwd=DIGITS, env=env, check=True, stdout=subprocess.DEVNULL)

    home = new_home(rough(age_s=4.0))
    job_id = home.submit(spec)
    child = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    child.kill()
    home.serve_to_the_end(job_id)
    state = settled(home, job_id, truth=folder_weights(last_checkpoint(alone)))
    assert state.interruptions >= 1
