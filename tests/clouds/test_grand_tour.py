"""The grand tour: one job over three clouds, its launcher killed twice, nothing lost, nothing left.

AWS spot, from a bucket of its own · the launcher dies · a notice, and AWS has nothing any more: on to GCP,
and the launcher dies while that machine is being made · prices have turned: on to Azure, where it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="needs arylcloud[aws]")
pytest.importorskip("moto.server", reason="needs moto[server]")
pytest.importorskip("google.cloud.compute_v1", reason="needs arylcloud[gcp]")
pytest.importorskip("azure.mgmt.compute", reason="needs arylcloud[azure]")
pytest.importorskip("trustme", reason="needs trustme")

from clouds.asking import DIGITS, arylcloud, begin, state
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from clouds.azure.emulator import AzureEmulator
from clouds.azure.subscription import Size, Subscription
from clouds.boots import Boots
from clouds.gcp.emulator import GcpEmulator
from clouds.gcp.project import Project
from e2e.support import Child
from providers.contract import wait_for

from arylcloud.core.offer import Market, Offer
from arylcloud.core.stores import address_of
from arylcloud.pricing.catalogue import load
from arylcloud.pricing.select import Query, select
from arylcloud.pricing.usercsv import write_csv
from arylcloud.providers.aws import bucket

STEPS = 4000
HURRY = "hurry"
"""Once this file is there, steps take the time that they need: what was to happen on the way has happened."""
PLACES = {
    "aws": ("aws/us-east-1", "g4dn.xlarge"),
    "gcp": ("gcp/us-central1", "g2-standard-4"),
    "azure": ("azure/eastus", "Standard_NC4as_T4_v3"),
}
SPOT = {"aws": 36.0, "gcp": 54.0, "azure": 72.0}
"""Dollars per hour: a hundred times what they cost, so that a minute is more than a cent."""
ON_DEMAND = 200.0
TURNED = 9.0
ROOT = "s3://arylcloud-grand-tour"
ZONE = "use1-az4"


@dataclass
class World:
    aws: AwsEmulator
    account: Account
    gcp: GcpEmulator
    project: Project
    azure: AzureEmulator
    subscription: Subscription
    home: Path
    launchers: list[Child] = field(default_factory=list)

    def cli(self, *args: str) -> Any:
        done = arylcloud(self.home, *args, "--json")
        assert done.returncode == 0, f"{args}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def serve(self, job_id: str) -> Child:
        self.launchers.append(begin(self.home, "serve", "--job", job_id))
        return self.launchers[-1]

    def job(self, job_id: str) -> Any:
        """As ``status`` shows it: a look that costs something, and is not taken all the time."""
        time.sleep(0.2)
        (found,) = self.cli("status", job_id)["jobs"]
        return found

    def moved(self, job_id: str) -> bool:
        events = self.cli("events", job_id)["events"]
        return any(e["kind"] == "MigrationEnded" and e["body"]["done"] for e in events)

    def consoles(self) -> str:
        ids = [*self.account.lives, *self.project.lives, *(vm.id for vm in self.subscription.vms.values())]
        texts = [b.console(i) for b in (self.aws.boots, self.gcp.boots, self.azure.boots) if b for i in ids]
        return "\n".join([text[-2000:] for text in texts if text] + [one.err for one in self.launchers])

    @property
    def bill(self) -> float:
        bills = (self.account.bill(), self.project.bill(), self.subscription.bill())
        return sum(usd for bill in bills for usd in bill.values())


def offers() -> tuple[Offer, ...]:
    """What is to be had in this world, and what it costs."""
    table = load()
    found = []
    for cloud, (infra, name) in PLACES.items():
        rows = table.take(select(table, Query(infra=(infra,))) & table.plannable).offers()
        plain = next(o for o in rows if o.instance_type == name and o.market is Market.ON_DEMAND)
        priced = replace(plain, usd_per_hour=ON_DEMAND, source="the grand tour")
        spot = replace(priced, market=Market.SPOT, usd_per_hour=SPOT[cloud])
        found += [priced, replace(spot, zone=ZONE) if cloud == "aws" else spot]
    return tuple(found)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name, raising=False)
    then_s = time.time() - 86400
    rows = offers()
    with ExitStack() as stack:
        boots = Boots(tmp_path / "aws")
        stack.callback(boots.close)
        aws = stack.enter_context(AwsEmulator(boots))
        gcp = stack.enter_context(GcpEmulator(tmp_path / "gcp"))
        azure = stack.enter_context(AzureEmulator(ca=tmp_path, boots=tmp_path / "azure"))
        account = aws.account(
            spot={(ZONE, "g4dn.xlarge"): [(then_s, SPOT["aws"])]},
            on_demand={("us-east-1", "g4dn.xlarge"): ON_DEMAND},
            boot_s=0.3,
            end_s=0.3,
        )
        project = gcp.project(tuple(o for o in rows if o.cloud == "gcp"), boot_s=0.3, end_s=0.3, op_s=1.5)
        subscription = azure.subscription(
            usd={
                (o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour or 0.0)]
                for o in rows
                if o.cloud == "azure"
            },
            sizes={PLACES["azure"][1]: Size(family="standardNCASv3_T4Family", vcpus=4, gpus=1)},
            allocate_s=0.1,
            boot_s=0.3,
            end_s=0.3,
        )
        environs = aws.environ(account), gcp.environ(project), azure.environ(subscription)
        for name, value in [pair for environ in environs for pair in environ.items()]:
            monkeypatch.setenv(name, value)
        home = tmp_path / "home"
        monkeypatch.setenv("ARYLCLOUD_HOME", str(home))
        (home / "config").mkdir(parents=True)
        from arylcloud.cli.settings import folders

        folders().user_catalogue.write_text(write_csv(rows), encoding="utf-8")
        bucket.create(Path(), {}).make(address_of(ROOT), "us-east-1", "the-grand-tour")
        made = World(aws, account, gcp, project, azure, subscription, home)
        yield made
        for launcher in made.launchers:
            launcher.kill()


def job_file(folder: Path) -> Path:
    places = "".join(f"\n    - {{infra: {infra}, instance_type: {name}}}" for infra, name in PLACES.values())
    work = folder / "digits"
    shutil.copytree(DIGITS, work)
    script = (work / "train.py").read_text(encoding="utf-8")
    hurried = script.replace("time.sleep(", f"os.path.exists({str(folder / HURRY)!r}) or time.sleep(")
    assert hurried != script
    (work / "train.py").write_text(hurried, encoding="utf-8")
    path = folder / "job.yaml"
    path.write_text(
        f"""name: tour
workdir: {work}
resources:
  any_of:{places}
envs: {{DIGITS_STEP_S: "0.05"}}
setup: python3 -c 'import numpy'
run: python3 train.py --steps {STEPS}
aryl:
  profile: {{T4:1: 0.05, L4:1: 0.05, unit: steps/s}}
  work: {STEPS} steps
  market: spot
  checkpoint: {{size_gb: 0.0002, interval: 2s}}
  migrate: {{min_saving: 5%, at_most_every: 0h}}
""",
        encoding="utf-8",
    )
    return path


def undisturbed(folder: Path) -> dict[str, str]:
    """Digests of the last checkpoint of a run that nobody disturbs."""
    environ = {**os.environ, "ARYL_CHECKPOINT_DIR": str(folder), "DIGITS_STEP_S": "0"}
    command = [sys.executable, str(DIGITS / "train.py"), "--steps", str(STEPS)]
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, cwd=DIGITS)
    return digests(folder / f"step-{STEPS}")


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "_COMPLETE")
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def final_weights(world: World, prefix_uri: str, folder: Path) -> dict[str, str]:
    from arylcloud.checkpoint.manifest import list_manifests, read_manifest
    from arylcloud.checkpoint.restore import restore
    from arylcloud.checkpoint.store import open_store

    uri = address_of(prefix_uri)
    store = open_store(prefix_uri, **bucket.create(Path(), {}).options(uri))
    return digests(restore(store, read_manifest(store, list_manifests(store)[-1]), folder))


def killed(home: Path) -> None:
    """The launcher's process, wherever it came from."""
    found = state(home)
    assert found is not None
    assert found.launcher is not None
    os.kill(found.launcher.pid, signal.SIGKILL)


@pytest.mark.timeout(1500)
def test_the_grand_tour(world: World, tmp_path: Path) -> None:
    def stepping(cloud: str) -> Any:
        """Its steps, once a machine of ``cloud`` has trained."""

        def look() -> Any:
            job = world.job(job_id)
            here = [lease for lease in job["leases"] if lease["offer"].startswith(cloud + "/")]
            return any(lease["phase"] == "ready" for lease in here) and job["progress"]["done"]

        return look

    done = world.cli("launch", str(job_file(tmp_path)), "--store", ROOT, "-y", "-d")
    job_id = done["job_id"]
    try:
        first = wait_for(stepping("aws"), "training on AWS", 180.0)
        assert [life.market for life in world.account.live()] == ["spot"]

        killed(world.home)
        launcher = world.serve(job_id)
        wait_for(lambda: world.job(job_id)["progress"]["done"] > first, "steps after the first kill", 180.0)
        assert len(world.account.lives) == 1, "its machine went on"

        with world.account.lock:
            for market in ("spot", "on_demand"):
                world.account.capacity[ZONE, "g4dn.xlarge", market] = 0
        (life,) = world.account.live()
        world.aws.interrupt(world.account, life.instance_id, notice_s=15.0)
        wait_for(lambda: world.project.called["instances.insert"], "an order at GCP", 180.0)
        killed(world.home)
        assert launcher.wait() == -signal.SIGKILL
        region, name = PLACES["azure"][0].partition("/")[2], PLACES["azure"][1]
        with world.subscription.lock:
            world.subscription.usd[region, name, "spot"].append((time.time(), TURNED))
        launcher = world.serve(job_id)
        wait_for(stepping("gcp"), "training on GCP", 180.0)
        assert len(world.project.lives) == 1, "the order of the launcher that died is its machine"
        wait_for(stepping("azure"), "training on Azure", 240.0)
        wait_for(lambda: world.moved(job_id), "the end of the move", 120.0)  # else it may be done before that
        (tmp_path / HURRY).touch()
        assert launcher.wait(400.0) == 0
    except BaseException:
        print(world.consoles())
        print(json.dumps(world.cli("events", job_id), indent=1)[-6000:])
        raise

    report = world.cli("report", job_id)
    assert report["phase"] == "succeeded"
    assert (report["final_step"], report["interruptions"], report["migrations"]) == (STEPS, 1, 1)
    assert final_weights(world, done["prefix_uri"], tmp_path / "final") == undisturbed(tmp_path / "alone")
    assert report["usd"]["compute"] == pytest.approx(world.bill, abs=0.005)
    assert world.bill > 0.5

    swept = world.cli("gc")
    assert swept["found"] == []
    assert not world.account.live()
    assert not world.project.live()
    assert not world.subscription.live()
    assert (world.project.disks, world.project.networks, world.project.firewalls) == ({}, {}, {})
    wait_for(lambda: not world.subscription.left(), "an empty subscription")
    assert world.subscription.roles == {}
    assert world.cli("gc")["resources"] == [], "no network, group or role of ours anywhere"
    for boots in (world.aws.boots, world.gcp.boots, world.azure.boots):
        assert boots is not None
        assert boots.running == []
