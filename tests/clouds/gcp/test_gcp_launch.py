"""The whole road on the emulated Google Cloud: machines that boot, a job that trains, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import leaks
from clouds.asking import DIGITS, arylcloud
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


@pytest.fixture
def rich(booting: GcpEmulator, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project for which everything in the catalogue is to be had, at the catalogue's prices."""
    table = load()
    rows = table.take(select(table, Query(infra=("gcp",))) & table.plannable).offers()
    made = booting.project(tuple(rows), boot_s=0.2, end_s=0.2)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


def test_digits_train_on_gcp(booting: GcpEmulator, rich: Project, tmp_path: Path) -> None:
    home, store = tmp_path / "home", (tmp_path / "store").as_uri()
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.005"]
    done = arylcloud(home, *args, "--store", store, "-y", "--json")
    assert booting.boots is not None
    consoles = "\n".join(booting.boots.console(name) for name in rich.lives)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{consoles}"
    (life,) = rich.lives.values()
    assert life.cause == "delete"
    assert rich.disks == {}
    wait_for(lambda: booting.boots is not None and booting.boots.running == [], "no process is left")
    report = arylcloud(home, "report", json.loads(done.stdout)["job_id"], "--json")
    cost = json.loads(report.stdout)["usd"]["total"]
    assert cost == pytest.approx(rich.bill()[life.name], abs=CENT / 1000)
    swept = arylcloud(home, "gc", "--json")
    assert swept.returncode == 0, swept.stderr
    resources = json.loads(swept.stdout)["resources"]
    assert [one["kind"] for one in resources if one["removed"]] == ["subnetwork", "firewall", "network"]
    assert infrastructure.create(tmp_path, booting.settings(rich)).resources(journal_id=None) == ()
    assert (rich.networks, rich.firewalls, rich.subnetworks) == ({}, {}, {})


def test_in_a_bucket_of_its_own(
    booting: GcpEmulator, rich: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No store is named: the project's bucket, made with consent; machines run as an account of the job,
    which reaches its prefix, and may delete its machines."""
    home = tmp_path / "home"
    with Gcs(project=rich.id) as gcs:
        for what in ("STORAGE", "IAM", "STS"):
            monkeypatch.setenv(f"ARYLCLOUD_GCP__{what}_ENDPOINT", gcs.url)
        monkeypatch.setattr(booting, "token_for", gcs.machine_token)
        args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.005", "--json"]
        done = arylcloud(home, *args, "-y")
        assert booting.boots is not None
        consoles = "\n".join(booting.boots.console(name) for name in rich.lives)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{consoles}"
        document = json.loads(done.stdout)
        (bucket,) = gcs.buckets
        assert document["prefix_uri"].startswith(f"gs://{bucket}/jobs/")
        (life,) = rich.lives.values()
        (account,) = life.doc["serviceAccounts"]
        assert account["email"].startswith("aryl-")
        (binding,) = rich.policies[life.name]["bindings"]
        assert binding["members"] == [f"serviceAccount:{account['email']}"]
        wait_for(lambda: gcs.accounts == {}, "the end of the account", 60.0)
        known = [token for token in gcs.tokens if token != "anonymous"]
        assert known
        items = {one["key"]: one["value"] for one in life.doc["metadata"]["items"]}
        assert len(leaks.links(items["startup-script"])) == 1
        assert leaks.of_machine(items["startup-script"], known) == []
        told = {"labels": json.dumps(life.doc["labels"]), "log": consoles}
        assert leaks.in_texts(told, [*known, "X-Goog-Signature"]) == []
        assert leaks.in_files([home], [*known, "X-Goog-Signature"]) == []


def test_a_notice_on_the_way(booting: GcpEmulator, rich: Project, tmp_path: Path) -> None:
    """Notice by the metadata service, handed over, gone, gone on elsewhere; the report is the bill, though
    prices turn meanwhile."""
    home, store = tmp_path / "home", (tmp_path / "store").as_uri()
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.02"]
    run = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *args, "--store", store, "-y", "--json"],
        env={**os.environ, "ARYLCLOUD_HOME": str(home), "ARYLCLOUD_GCP__PRICES_EVERY_S": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        found = wait_for(
            lambda: list((tmp_path / "store").glob("jobs/*/ckpt/manifests/*")), "a checkpoint", 120.0
        )
        assert found
        (first,) = rich.live()
        rich.prices.turn("us-central1", "spot", 1.05, float(int(time.time())))
        booting.preempt(rich, first.name, notice_s=8.0)
        out, err = run.communicate(timeout=200)
    finally:
        run.kill()
    assert run.returncode == 0, err
    assert len(rich.lives) == 2
    report = json.loads(arylcloud(home, "report", json.loads(out)["job_id"], "--json").stdout)
    assert report["interruptions"] == 1
    assert report["usd"]["total"] == pytest.approx(sum(rich.bill().values()), abs=CENT / 1000)


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
