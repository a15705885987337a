"""The whole road on the emulated Google Cloud: machines that boot, a job that trains, nothing left behind."""

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
from clouds.asking import DIGITS, PATIENCE_S, arylcloud, begin, first_checkpoint
from clouds.gcp.emulator import GcpEmulator
from clouds.gcp.project import Project
from clouds.stores.gcs import Gcs
from providers.contract import wait_for

from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select
from arylcloud.providers.gcp import infrastructure

HERE = "gcp/us-central1"
CENT = 0.01


@pytest.fixture(scope="module")
def booting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcpEmulator]:
    with GcpEmulator(tmp_path_factory.mktemp("gcp")) as emulator:
        yield emulator


def enriched(booting: GcpEmulator) -> Project:
    """A project for which everything in the catalogue is to be had, at the catalogue's prices."""
    table = load()
    rows = table.take(select(table, Query(infra=("gcp",))) & table.plannable).offers()
    return booting.project(tuple(rows), boot_s=0.2, end_s=0.2)


@pytest.fixture
def rich(booting: GcpEmulator, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = enriched(booting)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


@dataclass(frozen=True)
class Road:
    """A job that has gone the whole road: launched without naming a store, warned, gone on elsewhere, while
    prices turned."""

    home: Path
    project: Project
    gcs: Gcs
    environ: dict[str, str]
    document: dict[str, Any]
    consoles: str

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        return arylcloud(self.home, *args, **self.environ)


@pytest.fixture(scope="module")
def road(booting: GcpEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    home, project = tmp_path_factory.mktemp("road") / "home", enriched(booting)
    environ = {**booting.environ(project), "ARYLCLOUD_GCP__PRICES_EVERY_S": "0"}
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.015", "--json"]
    with Gcs(project=project.id) as gcs, pytest.MonkeyPatch.context() as patch:
        environ |= {f"ARYLCLOUD_GCP__{what}_ENDPOINT": gcs.url for what in ("STORAGE", "IAM", "STS")}
        patch.setattr(booting, "token_for", gcs.machine_token)
        run = begin(home, *args, "-y", **environ)
        wait_for(lambda: not run.running or first_checkpoint(home), "a checkpoint", 180.0)
        for life in project.live():
            project.prices.turn("us-central1", "spot", 1.05, float(int(time.time())))
            booting.preempt(project, life.name, notice_s=8.0)
        code = run.wait(PATIENCE_S)
        assert booting.boots is not None
        consoles = "\n".join(booting.boots.console(name) for name in project.lives)
        assert code == 0, f"{run.out}\n{run.err}\n{consoles}"
        yield Road(home, project, gcs, environ, json.loads(run.out), consoles)


def test_a_notice_on_the_way(booting: GcpEmulator, road: Road) -> None:
    """By the metadata service: handed over, gone, gone on elsewhere; the report is the bill, though prices
    turn meanwhile."""
    _, second = road.project.lives.values()
    assert second.cause == "delete"
    assert road.project.disks == {}
    wait_for(lambda: booting.boots is not None and booting.boots.running == [], "no process is left")
    report = json.loads(road.cli("report", road.document["job_id"], "--json").stdout)
    assert (report["phase"], report["interruptions"], report["final_step"]) == ("succeeded", 1, 1000)
    assert report["usd"]["compute"] == pytest.approx(sum(road.project.bill().values()), abs=CENT / 1000)


def test_in_a_bucket_of_its_own(road: Road) -> None:
    """The project's bucket, made with consent; machines run as an account of the job, which reaches its
    prefix, and may delete its machines."""
    (bucket,) = road.gcs.buckets
    assert road.document["prefix_uri"].startswith(f"gs://{bucket}/jobs/")
    for life in road.project.lives.values():
        (account,) = life.doc["serviceAccounts"]
        assert account["email"].startswith("aryl-")
        (binding,) = road.project.policies[life.name]["bindings"]
        assert binding["members"] == [f"serviceAccount:{account['email']}"]
    wait_for(lambda: road.gcs.accounts == {}, "the end of the account", 180.0)


def test_no_secret_leaks(road: Road) -> None:
    known = [token for token in road.gcs.tokens if token != "anonymous"]
    assert known
    for life in road.project.lives.values():
        items = {one["key"]: one["value"] for one in life.doc["metadata"]["items"]}
        assert len(leaks.links(items["startup-script"])) == 1
        assert leaks.of_machine(items["startup-script"], known) == []
        told = {"labels": json.dumps(life.doc["labels"]), "log": road.consoles}
        assert leaks.in_texts(told, [*known, "X-Goog-Signature"]) == []
    assert leaks.in_files([road.home], [*known, "X-Goog-Signature"]) == []


def test_gc_leaves_nothing_of_the_job(booting: GcpEmulator, road: Road, tmp_path: Path) -> None:
    swept = road.cli("gc", "--json")
    assert swept.returncode == 0, swept.stderr
    resources = json.loads(swept.stdout)["resources"]
    assert [one["kind"] for one in resources if one["removed"]] == ["subnetwork", "firewall", "network"]
    project = road.project
    assert infrastructure.create(tmp_path, booting.settings(project)).resources(journal_id=None) == ()
    assert (project.networks, project.firewalls, project.subnetworks) == ({}, {}, {})


def test_check(rich: Project, tmp_path: Path) -> None:
    done = arylcloud(tmp_path, "check", "--infra", f"{HERE}/us-central1-a", "--json")
    found = json.loads(done.stdout)["findings"]
    assert {f["cloud"] for f in found} == {"gcp"}
    assert {f["verdict"] for f in found} == {"ok"}, done.stdout
    assert done.returncode == 0
    assert not rich.lives


def test_without_the_sdk(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "sitecustomize.py"
    hidden.parent.mkdir()
    hidden.write_text("import sys\nsys.modules['google.cloud'] = None\n", encoding="utf-8")
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "-y"]
    away = {"ARYLCLOUD_GCP__PROJECT": "p", "ARYLCLOUD_GCP__API_ENDPOINT": "http://127.0.0.1:1"}
    done = arylcloud(tmp_path, *args, PYTHONPATH=str(hidden.parent), **away)
    assert done.returncode == 2, done.stderr
    assert "pip install 'arylcloud[gcp]'" in done.stderr


def test_a_key_for_prices_is_no_account(tmp_path: Path) -> None:
    """gc asks the clouds that this home has settings for: a key for the list of prices alone is not one."""
    done = arylcloud(tmp_path, "gc", "--json", ARYLCLOUD_GCP__API_KEY="k")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["errors"] == []
