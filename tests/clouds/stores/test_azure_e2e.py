"""The whole road on the emulated Azure, with its own store: machines run as an identity of the job's own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.mgmt.compute", reason="needs arylcloud[azure]")
pytest.importorskip("azure.mgmt.network", reason="needs arylcloud[azure]")
pytest.importorskip("azure.identity", reason="needs arylcloud[azure]")
pytest.importorskip("trustme", reason="needs trustme")

from clouds import leaks
from clouds.asking import DIGITS, arylcloud
from clouds.azure.emulator import AzureEmulator, pretty
from clouds.azure.subscription import Size, Subscription
from clouds.stores.blob import Azure
from providers.contract import wait_for

from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select

HERE = "azure/eastus"


@pytest.fixture
def booting(tmp_path: Path) -> Iterator[AzureEmulator]:
    with AzureEmulator(ca=tmp_path, boots=tmp_path / "azure") as emulator:
        yield emulator


@pytest.fixture
def blobs(booting: AzureEmulator) -> Iterator[Azure]:
    with Azure() as server:
        server.behind(booting.arm)
        yield server


@pytest.fixture
def rich(booting: AzureEmulator, blobs: Azure, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    table = load()
    offers = table.take(select(table, Query(infra=(HERE,))) & table.plannable).offers()
    sizes = {
        o.instance_type: Size(family=f"standard{o.gpu}Family", vcpus=int(o.vcpus or 4), gpus=o.gpu_count or 0)
        for o in offers
    }
    then_s = time.time() - 86400
    usd = {(o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour or 0.0)] for o in offers}
    made = booting.subscription(usd=usd, sizes=sizes, allocate_s=0.1, boot_s=0.3, end_s=0.3)
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ARYLCLOUD_AZURE__BLOB_ENDPOINT", blobs.settings["blob_endpoint"])
    return made


def test_in_an_account_of_its_own(
    booting: AzureEmulator, blobs: Azure, rich: Subscription, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.005", "--json"]
    done = arylcloud(home, *args, "-y")
    assert booting.boots is not None
    consoles = "\n".join(booting.boots.console(vm.id) for vm in rich.vms.values())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{consoles}\n{pretty(rich)}"
    document = json.loads(done.stdout)
    assert document["prefix_uri"].startswith("az://arylcloud@aryl")
    assert "will make the bucket" in done.stderr
    (vm,) = rich.vms.values()
    assert len(vm.doc["identity"]["userAssignedIdentities"]) == 1
    user_data = vm.user_data
    assert len(leaks.links(user_data)) == 1
    assert leaks.of_machine(user_data, [rich.client]) == []
    wait_for(lambda: blobs.calls.count("DELETE userAssignedIdentities") == 1, "the end of the identity", 60.0)
    assert not [key for key in blobs.things if "/containers/" in key and "/roleassignments/" in key]
    swept = arylcloud(home, "gc", "--json")
    assert swept.returncode == 0, swept.stderr
    removed = {one["kind"] for one in json.loads(swept.stdout)["resources"] if one["removed"]}
    assert removed == {"resource-group", "role-definition"}
    kinds = {key.split("/")[-2] for key in blobs.things}
    assert kinds == {"storageaccounts", "containers", "roleassignments"}  # the account, and the user's role
    logs = arylcloud(home, "logs", document["job_id"])
    assert logs.returncode == 0
    assert logs.stdout
