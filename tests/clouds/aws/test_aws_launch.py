"""The whole road on the emulated AWS: machines that boot, a job that trains, nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clouds import leaks
from clouds.asking import DIGITS, PATIENCE_S, arylcloud, begin, first_checkpoint
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from clouds.boots import Boots
from providers.contract import wait_for

from arylcloud.core.offer import Market
from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select
from arylcloud.providers.aws import infrastructure

HERE = "aws/us-east-1"


@pytest.fixture(scope="module")
def booting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsEmulator]:
    """One for all tests: each has an account of its own."""
    boots = Boots(tmp_path_factory.mktemp("aws"))
    with AwsEmulator(boots) as emulator:
        yield emulator
    boots.close()


def enriched(booting: AwsEmulator) -> Account:
    """An account for which everything in the catalogue is to be had, at the catalogue's prices."""
    table = load()
    rows = table.take(select(table, Query(infra=(HERE,))) & table.plannable).offers()
    then_s = time.time() - 86400
    return booting.account(
        spot={
            (o.zone or "", o.instance_type): [(then_s, o.usd_per_hour or 0)]
            for o in rows
            if o.market is Market.SPOT
        },
        on_demand={
            (o.region, o.instance_type): o.usd_per_hour or 0 for o in rows if o.market is Market.ON_DEMAND
        },
        boot_s=0.3,
        end_s=0.3,
    )


@pytest.fixture
def rich(booting: AwsEmulator, monkeypatch: pytest.MonkeyPatch) -> Account:
    made = enriched(booting)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in booting.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


@dataclass(frozen=True)
class Road:
    """A job that has gone the whole road: launched without naming a store, warned, gone on elsewhere."""

    home: Path
    account: Account
    environ: dict[str, str]
    document: dict[str, Any]
    said: str

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        return arylcloud(self.home, *args, **self.environ)


@pytest.fixture(scope="module")
def road(booting: AwsEmulator, tmp_path_factory: pytest.TempPathFactory) -> Road:
    home, account = tmp_path_factory.mktemp("road") / "home", enriched(booting)
    environ = booting.environ(account)
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--env", "DIGITS_STEP_S=0.015", "--json"]
    run = begin(home, *args, "-y", **environ)
    wait_for(lambda: not run.running or first_checkpoint(home), "a checkpoint", 180.0)
    for life in account.live():
        booting.interrupt(account, life.instance_id, notice_s=8.0)
    code = run.wait(PATIENCE_S)
    consoles = "\n".join(booting.boots.console(i) for i in account.lives) if booting.boots else ""
    assert code == 0, f"{run.out}\n{run.err}\n{consoles}"
    return Road(home, account, environ, json.loads(run.out), run.err)


def test_a_notice_on_the_way(booting: AwsEmulator, road: Road) -> None:
    """By IMDSv2: handed over, gone, gone on elsewhere; the report is what AWS bills."""
    first, second = road.account.lives.values()
    assert first.notice_acts_s is not None
    assert first.ending_s is not None
    assert (
        first.cause == "Server.SpotInstanceTermination"
    )  # left for AWS to take: its first hour is free then
    assert second.cause == "Client.UserInitiatedShutdown"
    assert road.account.bill()[first.instance_id] == 0.0
    report = json.loads(road.cli("report", road.document["job_id"], "--json").stdout)
    assert (report["phase"], report["interruptions"], report["final_step"]) == ("succeeded", 1, 1000)
    assert report["usd"]["compute"] == pytest.approx(sum(road.account.bill().values()), abs=0.0005)
    assert booting.boots is not None
    assert booting.boots.running == []


def test_in_a_bucket_of_its_own(road: Road) -> None:
    """The account's bucket, made with consent; machines run as a role of the job's own."""
    assert road.document["prefix_uri"].startswith(f"s3://arylcloud-{road.account.id}-us-east-1/jobs/")
    assert "will make the bucket" in road.said
    report = json.loads(road.cli("report", road.document["job_id"], "--json").stdout)
    assert (report["usd"]["egress"], report["unknown"]) == (0.0, []), "its region is known: nothing crosses"
    assert road.account.lives.keys() <= set(road.account.profiles)
    assert road.account.called["CreateRole"] == 1
    wait_for(lambda: road.account.called["DeleteRole"] == 1, "the end of the role", 180.0)
    logs = road.cli("logs", road.document["job_id"])
    assert logs.returncode == 0
    assert logs.stdout


def test_no_secret_leaks(booting: AwsEmulator, road: Road) -> None:
    known = [one for s in booting.sessions.by_key.values() for one in (s.secret, s.token)]
    assert known
    for life in road.account.lives.values():
        assert len(leaks.links(life.user_data)) == 1
        assert leaks.of_machine(life.user_data, known) == []
        tags = {tag["key"]: tag["value"] for tag in life.instance.get_tags()}
        assert leaks.in_texts({"tags": json.dumps(tags)}, [*known, "X-Amz-Signature"]) == []
    assert leaks.in_files([road.home], [*known, "X-Amz-Signature"]) == []


def test_gc_leaves_nothing_of_the_job(road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = road.cli("gc", "--json")
    assert swept.returncode == 0, swept.stderr
    (removed,) = [one for one in json.loads(swept.stdout)["resources"] if one["removed"]]
    for name, value in road.environ.items():
        monkeypatch.setenv(name, value)
    assert infrastructure.create(tmp_path, {}).resources(journal_id=removed["owner"]) == ()


def test_a_bucket_wants_consent(rich: Account, tmp_path: Path) -> None:
    refused = arylcloud(tmp_path, "launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--json")
    assert refused.returncode == 2, refused.stderr


@pytest.mark.slow
def test_a_gang(booting: AwsEmulator, rich: Account, tmp_path: Path) -> None:
    """Two machines beside one another; their groups go with the job."""
    home, work = tmp_path / "home", tmp_path / "digits"
    shutil.copytree(DIGITS, work)
    text = (work / "job.yaml").read_text(encoding="utf-8")
    (work / "job.yaml").write_text(
        text.replace("resources:\n", "num_nodes: 2\nresources:\n"), encoding="utf-8"
    )
    store = (tmp_path / "store").as_uri()
    args = ["--infra", HERE, "--env", "DIGITS_STEP_S=0.005", "--store", store, "-y", "--json"]
    done = arylcloud(home, "launch", str(work / "job.yaml"), *args)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    first, second = rich.lives.values()
    assert first.placement is not None
    assert (first.placement, first.zone_id) == (second.placement, second.zone_id)
    swept = json.loads(arylcloud(home, "gc", "--json").stdout)
    removed = {one["kind"] for one in swept["resources"] if one["removed"]}
    assert removed == {"security-group", "placement-group"}
    assert rich.placements == {}


def test_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    away = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/none",
        "AWS_SHARED_CREDENTIALS_FILE": "/none",
    }
    store = (tmp_path / "store").as_uri()
    done = arylcloud(
        tmp_path, "launch", str(DIGITS / "job.yaml"), "--infra", HERE, "--store", store, "-y", **away
    )
    assert done.returncode == 4, done.stderr
    assert "hint: aws configure" in done.stderr


def test_without_the_sdk(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "botocore"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    done = arylcloud(
        tmp_path, "launch", str(DIGITS / "job.yaml"), "--infra", HERE, "-y", PYTHONPATH=str(hidden.parent)
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'arylcloud[aws]'" in done.stderr


def test_check(rich: Account, tmp_path: Path) -> None:
    place = f"{HERE}/use1-az4"
    done = arylcloud(tmp_path, "check", "--infra", place, "--json")
    found = json.loads(done.stdout)["findings"]
    assert {f["cloud"] for f in found} == {"aws"}
    assert {f["verdict"] for f in found} == {"ok"}, done.stdout
    assert done.returncode == 0
    rich.denied.add("RunInstances")
    denied = arylcloud(tmp_path, "check", "--infra", place)
    assert denied.returncode == 4
    assert "FAILED" in denied.stdout
    job = tmp_path / "job.yaml"
    text = (DIGITS / "job.yaml").read_text(encoding="utf-8")
    job.write_text(text.replace("resources:\n", "resources:\n  infra: aws\n"), encoding="utf-8")
    best = arylcloud(tmp_path, "check", str(job), "--json")
    assert {f["cloud"] for f in json.loads(best.stdout)["findings"]} == {"aws"}
    assert not rich.lives
