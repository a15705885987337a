"""The program that runs on a machine of the pool, asked as the adapter asks it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from arylcloud.core.errors import UsageError
from arylcloud.providers.pool.machines import OwnMachine, offers
from arylcloud.providers.pool.reach import call


def ask(folder: Path, verb: str, **more: Any) -> dict[str, Any]:
    here = machine(folder.name, 1.0, folder=str(folder.parent))
    return call(here, {"verb": verb, **more}, timeout_s=60.0)


def claim(folder: Path, token: str, boot: str = "exec sleep 600\n") -> dict[str, Any]:
    spec = {
        "token": token,
        "journal_id": "j",
        "job_id": "job-1",
        "lease_id": f"job-1-{token}",
        "until_s": time.time() + 600,
        "usd_per_hour": 1.0,
    }
    return ask(folder, "claim", spec=spec, boot=boot)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "m"
    assert ask(found, "lend")["lent"]
    return found


def test_a_machine_is_given_back_with_its_disk_and_memory(folder: Path) -> None:
    boot = (
        'echo hello >boot.log; echo big >data; mkdir "/dev/shm/arylcloud-$ARYL_POOL_LEASE"; exec sleep 600\n'
    )
    told = claim(folder, "a", boot)
    memory = Path("/dev/shm") / f"arylcloud-{told['lease']['lease_id']}"
    give_up_s = time.monotonic() + 120
    while not memory.exists():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
    ended = ask(folder, "end", lease_id="job-1-a", cause="terminated")["lease"]
    assert ended["cause"] == "terminated"
    assert not memory.exists()
    assert not (folder / "lease" / "work").exists()
    assert (folder / "lease" / "boot.log").read_text() == "hello\n"


def test_one_at_a_time_and_a_token_makes_no_second(folder: Path) -> None:
    claim(folder, "a")
    assert claim(folder, "b")["error"]["kind"] == "busy"
    assert claim(folder, "a")["lease"]["token"] == "a"
    ask(folder, "end", lease_id="job-1-a", cause="terminated")
    assert claim(folder, "b")["lease"]["token"] == "b"
    again = claim(folder, "a")
    assert again["lease"]["token"] == "b"
    assert [one["token"] for one in again["past"]] == ["a"]
    ask(folder, "end", lease_id="job-1-b", cause="terminated")


def test_what_a_cut_left_behind_keeps_nobody_out(folder: Path) -> None:
    (folder / "lease" / "work").mkdir(parents=True)
    (folder / "lease" / "work" / "big").write_text("x")
    (folder / "fresh").mkdir()
    assert claim(folder, "a")["lease"]["begun"]
    assert not list(folder.glob("old-*"))
    ask(folder, "end", lease_id="job-1-a", cause="terminated")


def test_what_is_not_lent_goes_to_nobody(tmp_path: Path) -> None:
    assert claim(tmp_path / "m", "a")["error"]["kind"] == "not_lent"


def machine(name: str, usd: float, gpu: str = "T4", folder: str = "~/x") -> OwnMachine:
    return OwnMachine(
        name=name, host="localhost", group="g", instance_type="t", usd_per_hour=usd, gpu=gpu, gpu_count=1,
        folder=folder, added_on="2026-11-01T00:00:00+00:00",
    )  # fmt: skip


def test_machines_that_are_alike_cost_what_the_dearest_costs() -> None:
    (only,) = offers([machine("a", 1.0), machine("b", 2.0)])
    assert only.usd_per_hour == 2.0
    with pytest.raises(UsageError, match="other machines called t"):
        offers([machine("a", 1.0), machine("b", 2.0, gpu="A100")])
