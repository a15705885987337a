"""The whole road on the emulated Azure: machines that boot, a job that trains, nothing left behind."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clouds import leaks
from clouds.asking import DIGITS, PATIENCE_S, arylcloud, begin, first_checkpoint, spec
from clouds.azure.emulator import AzureEmulator, pretty
from clouds.azure.offers import offer
from clouds.azure.subscription import Size, Subscription
from clouds.stores.blob import Azure
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


@pytest.fixture(scope="module")
def booting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureEmulator]:
    """One for all tests: each has a subscription of its own."""
    folder = tmp_path_factory.mktemp("azure")
    with AzureEmulator(ca=folder, boots=folder / "azure") as emulator:
        yield emulator


def enriched(booting: AzureEmulator) -> Subscription:
    """A subscription for which everything in the catalogue is to be had, at the catalogue's prices."""
    then_s = time.time() - 86400
    offers = rows()
    sizes = {
        o.instance_type: Size(family=f"standard{o.gpu}Family", vcpus=int(o.vcpus or 4), gpus=o.gpu_count or 0)
        for o in offers
    }
    usd = {(o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour or 0.0)] for o in offers}
    return booting.subscription(usd=usd, sizes=sizes, allocate_s=0.1, boot_s=0.3, end_s=0.3)


@pytest.fixture
def rich(booting: AzureEmulator, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    made = enriched(booting)
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


def launch(home: Path, store: Path, pace: str = FIRST) -> list[str]:
    job = str(DIGITS / "job.yaml")
    return ["launch", job, "--infra", HERE, "--env", pace, "--store", store.as_uri(), "-y", "--json"]


@dataclass(frozen=True)
class Road:
    """A job that has gone the whole road: launched without naming a store, warned, gone on elsewhere."""

    home: Path
    emulator: AzureEmulator
    subscription: Subscription
    blobs: Azure
    environ: dict[str, str]
    document: dict[str, Any]
    said: str
    promised_s: float

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        return arylcloud(self.home, *args, **self.environ)


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    folder = tmp_path_factory.mktemp("road")
    home = folder / "home"
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.015", "--json"]
    with AzureEmulator(ca=folder, boots=folder / "azure") as emulator, Azure() as blobs:
        blobs.behind(emulator.arm)
        made = enriched(emulator)
        endpoint = blobs.settings["blob_endpoint"]
        environ = {**emulator.environ(made), "ARYLCLOUD_AZURE__BLOB_ENDPOINT": endpoint}
        run = begin(home, *args, "-y", **environ)
        wait_for(lambda: not run.running or first_checkpoint(home), "a checkpoint", 180.0)
        promised_s = 0.0
        for vm in made.live():
            emulator.machines.notice(made, vm, 25.0)
            promised_s = vm.notice_acts_s or 0.0
        code = run.wait(PATIENCE_S)
        assert emulator.boots is not None
        consoles = "\n".join(emulator.boots.console(vm.id) for vm in made.vms.values())
        assert code == 0, f"{run.out}\n{run.err}\n{consoles}\n{pretty(made)}"
        yield Road(home, emulator, made, blobs, environ, json.loads(run.out), run.err, promised_s)


def test_a_notice_on_the_way(road: Road) -> None:
    """By Scheduled Events: handed over, gone on elsewhere; the report is what Azure bills."""
    first, second = road.subscription.vms.values()
    assert second.cause in ("delete", "self")
    assert first.ending_s is not None
    assert first.ending_s < road.promised_s  # acknowledged by its agent, or ended by the launcher
    report = json.loads(road.cli("report", road.document["job_id"], "--json").stdout)
    assert (report["phase"], report["interruptions"], report["final_step"]) == ("succeeded", 1, 1000)
    assert report["usd"]["compute"] == pytest.approx(sum(road.subscription.bill().values()), abs=0.001)
    boots = road.emulator.boots
    wait_for(lambda: boots is not None and boots.running == [], "no machine")


def test_in_an_account_of_its_own(road: Road) -> None:
    """Machines run as an identity of the job's own."""
    blobs = road.blobs
    assert road.document["prefix_uri"].startswith("az://arylcloud@aryl")
    assert "will make the bucket" in road.said
    for vm in road.subscription.vms.values():
        assert len(vm.doc["identity"]["userAssignedIdentities"]) == 1
        assert len(leaks.links(vm.user_data)) == 1
        assert leaks.of_machine(vm.user_data, [road.subscription.client]) == []
    wait_for(
        lambda: blobs.calls.count("DELETE userAssignedIdentities") == 1, "the end of the identity", 180.0
    )
    assert not [key for key in blobs.things if "/containers/" in key and "/roleassignments/" in key]
    logs = road.cli("logs", road.document["job_id"])
    assert logs.returncode == 0
    assert logs.stdout


def test_gc_leaves_nothing_of_the_job(road: Road) -> None:
    swept = road.cli("gc", "--json")
    assert swept.returncode == 0, swept.stderr
    removed = {one["kind"] for one in json.loads(swept.stdout)["resources"] if one["removed"]}
    assert removed == {"resource-group", "role-definition"}
    kinds = {key.split("/")[-2] for key in road.blobs.things}
    assert kinds == {"storageaccounts", "containers", "roleassignments"}  # the account, and the user's role
    stores = f"/subscriptions/{road.subscription.id}/resourceGroups/arylcloud-stores"
    wait_for(lambda: road.subscription.left() == [stores], "a subscription with nothing but its stores")
    assert road.subscription.roles == {}


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
