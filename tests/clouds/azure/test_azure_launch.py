"""The whole road on the emulated Azure: machines that boot, a job that trains, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds.azure.emulator import AzureEmulator, pretty
from clouds.azure.subscription import Size, Subscription
from providers.contract import wait_for

from arylcloud.core.offer import Offer
from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
HERE = "azure/eastus"
FIRST = "DIGITS_STEP_S=0.005"


def rows() -> tuple[Offer, ...]:
    table = load()
    return table.take(select(table, Query(infra=(HERE,))) & table.plannable).offers()


@pytest.fixture
def booting(tmp_path: Path) -> Iterator[AzureEmulator]:
    with AzureEmulator(ca=tmp_path, boots=tmp_path / "azure") as emulator:
        yield emulator


@pytest.fixture
def rich(booting: AzureEmulator, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    """A subscription for which everything in the catalogue is to be had, at the catalogue's prices."""
    then_s = time.time() - 86400
    offers = rows()
    sizes = {
        o.instance_type: Size(family=f"standard{o.gpu}Family", vcpus=int(o.vcpus or 4), gpus=o.gpu_count or 0)
        for o in offers
    }
    usd = {(o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour or 0.0)] for o in offers}
    made = booting.subscription(usd=usd, sizes=sizes, allocate_s=0.1, boot_s=0.3, end_s=0.3)
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


def arylcloud(home: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "arylcloud", *args],
        env={**os.environ, "ARYLCLOUD_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def launch(home: Path, store: Path, pace: str = FIRST) -> list[str]:
    job = str(DIGITS / "job.yaml")
    return ["launch", job, "--infra", HERE, "--env", pace, "--store", store.as_uri(), "-y", "--json"]


def test_digits_train_on_azure(booting: AzureEmulator, rich: Subscription, tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = arylcloud(home, *launch(home, tmp_path / "store"))
    assert booting.boots is not None
    consoles = "\n".join(booting.boots.console(vm.id) for vm in rich.vms.values())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{consoles}\n{pretty(rich)}"
    (vm,) = rich.vms.values()
    assert vm.cause in ("delete", "self")
    wait_for(lambda: vm.gone, "its end")
    assert booting.boots.running == []
    report = json.loads(arylcloud(home, "report", json.loads(done.stdout)["job_id"], "--json").stdout)
    assert report["usd"]["total"] == pytest.approx(rich.bill()[vm.name], abs=0.0005)
    swept = arylcloud(home, "gc", "--json")
    assert swept.returncode == 0, swept.stderr
    assert [r["kind"] for r in json.loads(swept.stdout)["resources"] if r["removed"]] == ["resource-group"]
    wait_for(lambda: not rich.left(), "an empty subscription")
    assert rich.roles == {}
