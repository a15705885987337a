"""``scripts/emulators`` as a newcomer meets it: all of the catalogue is there, and nothing outlives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clouds import emulators
from providers.contract import wait_for


def test_what_was_begun_in_there_ends_with_it(tmp_path: Path) -> None:
    """A launcher, for one: the clouds that it looks after are no more. What ignores SIGTERM goes, too."""
    script = "trap '' TERM; echo ready >ready; while :; do sleep 0.05; done"
    environ = {**os.environ, emulators.MARK: str(tmp_path)}
    stubborn = subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, env=environ, start_new_session=True)
    willing = subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], env={**environ, emulators.MARK: f"{tmp_path}2"})
    try:
        wait_for((tmp_path / "ready").exists, "its trap")
        emulators.GRACE_S, before = 2.0, emulators.GRACE_S
        ended = emulators.end_all(str(tmp_path))
        emulators.GRACE_S = before
        assert ended >= 2  # the shell's own sleep may be a third
        assert (stubborn.wait(120), willing.wait(120)) == (-9, -15)
        assert other.poll() is None
    finally:
        for child in (stubborn, willing, other):
            child.kill()
            child.wait()


@pytest.mark.slow
def test_all_prices_and_every_check(tmp_path: Path) -> None:
    for extra in ("moto", "google.cloud.compute_v1", "azure.mgmt.compute", "trustme"):
        pytest.importorskip(extra, reason=f"needs {extra}")
    arylcloud = f"{sys.executable} -m arylcloud"
    script = "; ".join(
        [
            f"{arylcloud} prices --refresh --json >prices.json",
            f"{arylcloud} check --infra aws --infra gcp --infra azure --json >check.json",
            f"{arylcloud} check --infra aws/us-east-1 --json >east.json",
            "sleep 600 & echo $! >pid",
        ]
    )
    done = subprocess.run(
        [sys.executable, emulators.__file__, "/bin/sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "ARYLCLOUD_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "ended with the emulators: 1 in the background" in done.stderr
    assert "faults" not in done.stderr
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    parts = json.loads((tmp_path / "prices.json").read_text())["refresh"]["parts"]
    assert {part["outcome"] for part in parts} == {"answered"}, parts
    assert {part["cloud"] for part in parts} == {"aws", "gcp", "azure"}
    for name in ("check", "east"):
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert found["ok"], found
        assert {one["verdict"] for one in found["findings"]} == {"ok"}
