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
from clouds.asking import DIGITS, arylcloud, spec
from clouds.azure.emulator import AzureEmulator, pretty
from clouds.azure.offers import offer
from clouds.azure.subscription import Size, Subscription
from providers.contract import gone, wait_for

from arylcloud.core.offer import Offer
from arylcloud.core.ports import EndCause
from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select
from arylcloud.providers.azure.adapter import create

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


def test_a_notice_on_the_way(booting: AzureEmulator, rich: Subscription, tmp_path: Path) -> None:
    """Notice by Scheduled Events, handed over, gone on elsewhere; the report is what Azure bills."""
    home, store = tmp_path / "home", tmp_path / "store"
    run = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *launch(home, store, "DIGITS_STEP_S=0.02")],
        env={**os.environ, "ARYLCLOUD_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list(store.glob("jobs/*/ckpt/manifests/*")), "a checkpoint", 120.0)
    (first,) = rich.live()
    booting.machines.notice(rich, first, 25.0)
    assert first.notice_acts_s is not None
    promised_s = first.notice_acts_s
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, err
    assert len(rich.vms) == 2
    assert first.ending_s is not None
    assert first.ending_s < promised_s  # acknowledged by its agent, or ended by the launcher: not waited for
    report = json.loads(arylcloud(home, "report", json.loads(out)["job_id"], "--json").stdout)
    assert report["usd"]["total"] == pytest.approx(sum(rich.bill().values()), abs=0.001)
    assert booting.boots is not None
    wait_for(lambda: booting.boots is not None and booting.boots.running == [], "no machine")


def test_a_machine_deletes_itself(booting: AzureEmulator, rich: Subscription, tmp_path: Path) -> None:
    """By its own identity, with everything that hangs on it, and nobody else's help; it may end no other."""
    settings = booting.settings(rich)
    adapter = create(tmp_path / "state", settings)
    command = adapter.capabilities().machine_env["ARYL_POWEROFF"]
    kept = adapter.create(spec(offer(), user_data="exec sleep 600\n"))
    machine = adapter.create(spec(offer(), user_data=f"#!/bin/sh\n{command}\n"))
    vm = rich.vm(machine.instance_id)
    wait_for(lambda: vm.gone, "its end")
    assert vm.cause == "self"
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF
    assert [one for one in rich.left() if vm.name in one] == []
    assert booting.boots is not None
    assert booting.boots.running == [rich.vm(kept.instance_id).id]
    foreign = command.replace("vm.strip()", json.dumps(rich.vm(kept.instance_id).id))
    assert foreign != command
    thief = adapter.create(spec(offer(), user_data=f"#!/bin/sh\n{foreign}\n".replace("range(6)", "range(1)")))
    wait_for(lambda: rich.vm(thief.instance_id).power == "stopped", "its shutdown")
    assert "403" in booting.boots.console(rich.vm(thief.instance_id).id)
    assert rich.vm(kept.instance_id).live


def test_a_machine_deletes_itself_by_an_identity_of_the_companys(
    booting: AzureEmulator, rich: Subscription, tmp_path: Path
) -> None:
    groups = f"/subscriptions/{rich.id}/resourceGroups"
    identity = f"{groups}/ids/providers/Microsoft.ManagedIdentity/userAssignedIdentities/ender"
    rich.roles["given by somebody"] = (groups, identity)
    rich.denied |= {"PUT roleAssignments", "DELETE roleAssignments"}
    adapter = create(tmp_path / "state", {**booting.settings(rich), "identity": identity})
    command = adapter.capabilities().machine_env["ARYL_POWEROFF"]
    store = identity.replace("ender", "job-1")  # by which it reaches its bucket
    machine = adapter.create(spec(offer(), user_data=f"#!/bin/sh\n{command}\n", identity=store))
    wait_for(lambda: rich.vm(machine.instance_id).gone, "its end")
    assert gone(adapter, machine).end_cause is EndCause.SELF


def test_without_credentials(tmp_path: Path, rich: Subscription, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    done = arylcloud(tmp_path, *launch(tmp_path, tmp_path / "store"))
    assert done.returncode == 4, done.stderr
    assert "hint: az login" in done.stderr
    assert "DefaultAzureCredential" not in done.stderr


def test_without_the_sdk(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "azure.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    done = arylcloud(
        tmp_path,
        *launch(tmp_path, tmp_path / "store"),
        PYTHONPATH=str(hidden),
        AZURE_SUBSCRIPTION_ID="00000000-0000-0000-0000-000000000000",
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'arylcloud[azure]'" in done.stderr


def test_check(rich: Subscription, tmp_path: Path) -> None:
    done = arylcloud(tmp_path, "check", "--infra", HERE, "--json")
    found = json.loads(done.stdout)["findings"]
    assert {f["cloud"] for f in found} == {"azure"}
    assert {f["verdict"] for f in found} == {"ok"}, done.stdout
    assert done.returncode == 0
    rich.denied.add("PUT virtualMachines")
    denied = arylcloud(tmp_path, "check", "--infra", HERE)
    assert denied.returncode == 4
    assert "FAILED" in denied.stdout
    assert not rich.vms
