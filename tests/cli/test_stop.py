"""``stop`` where the job cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import offer
from support.twohomes import JOB, Shared

from arylcloud.cli.main import run
from arylcloud.core import events as ev
from arylcloud.core.ports import Billing


@pytest.mark.parametrize("machines", [0, 1, 2])
def test_without_a_mailbox_it_says_what_to_do(
    tmp_path: Path, machines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and a hint that names what may be costing."""
    shared = Shared(tmp_path)
    shared.submit("a")
    for n in range(machines):
        lease = {"lease_id": f"{JOB}-n{n}-a{n + 1}"}
        shared.say(
            "a",
            ev.LeaseIntended(
                **lease, token=f"t{n}", offer=offer(), index=n, attempt=n + 1, purpose="start",
                until_s=1e9, why="test",
            ),
            ev.LeaseCreated(
                **lease, instance_id=f"i-{n}", launched_s=1.0, usd_per_hour=1.0, address=None,
                billing=Billing(),
            ),
        )  # fmt: skip
    shared.folder.rename(tmp_path / "unmounted")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    assert run(["stop", JOB]) == 5
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {JOB} was not asked to stop, its mailbox cannot be reached: ")
    assert f"arylcloud stop {JOB}" in hint
    for n in range(machines):
        assert f"aws i-{n}" in hint
    assert not shared.folder.exists(), "nothing was made where it should be"
