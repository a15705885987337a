"""Machines on the emulated Compute Engine: their ends, what is asked of it, what is left and removed."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clouds.asking import spec
from clouds.gcp.emulator import GcpEmulator
from clouds.gcp.offers import connect, offer, sold
from clouds.gcp.project import Fault, Project
from google.auth.credentials import AnonymousCredentials
from providers.contract import gone, of, wait_for

from arylcloud.core.errors import AccessError, CapacityError, ConflictError, OtherCloudError, UsageError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, MachineState, Verdict
from arylcloud.providers.gcp import adapter as adapter_module
from arylcloud.providers.gcp import checks, client, infrastructure, permissions, roster
from arylcloud.providers.gcp.adapter import GcpProvider
from arylcloud.providers.gcp.poweroff import poweroff

DOCS = Path(__file__).parents[3] / "docs" / "clouds" / "gcp.md"


# ------------------------------------------------------------ ends


def test_a_machine_tries_again_to_delete_itself() -> None:
    """A metadata service that is not well at first, and is not behind the company's proxy."""
    asked: list[str] = []

    class Both(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if len(asked) == 1:
                self.send_error(503)
                return
            what = {"token": '{"access_token": "t"}', "zone": "projects/1/zones/z"}
            self._say(what.get(self.path.rpartition("/")[2], "p"))

        def do_DELETE(self) -> None:
            asked.append(f"DELETE {self.path} {self.headers['Authorization']}")
            self._say("{}")

        def _say(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """On nobody's stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Both)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    command = poweroff(f"http://127.0.0.1:{port}").replace("shutdown -h now", "echo off")
    proxied = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}
    env = {**os.environ, **proxied, "ARYL_METADATA_URL": f"http://localhost:{port}"}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=True)
    server.shutdown()
    server.server_close()
    assert asked[-1] == "DELETE /compute/v1/projects/p/zones/z/instances/p Bearer t"
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "this machine cannot delete itself",
        "off",
    ]


def test_an_interruption(gcp: GcpEmulator, project: Project, adapter: GcpProvider) -> None:
    machine = adapter.create(spec(offer()))
    gcp.preempt(project, machine.instance_id, notice_s=0.0)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.INTERRUPTED
    life = project.lives[machine.instance_id]
    assert life.cause == "compute.instances.preempted"
    assert end.ended_s == pytest.approx(life.ended_s, abs=0.05)
    assert project.disks == {}


def test_an_end_that_nobody_tells_of(
    gcp: GcpEmulator, project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations that cannot be found: said to be ending for a while, then gone, cause unknown."""
    project.tells = False
    machine = adapter.create(spec(offer()))
    gcp.preempt(project, machine.instance_id, notice_s=0.0)
    wait_for(lambda: project.lives[machine.instance_id].removed, "its end")
    seen = of(adapter, machine.instance_id, "journal-1")
    assert seen is not None
    assert seen.state is MachineState.STOPPING
    monkeypatch.setattr(roster, "UNTOLD_S", 0.0)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.UNKNOWN
    assert end.ended_s is not None
    assert end.ended_s <= time.time()


def test_operations_that_may_not_be_read_hide_no_machine(project: Project, adapter: GcpProvider) -> None:
    """One machine has ended, and how is not known; the other runs, and is paid for."""
    ended, runs = adapter.create(spec(offer())), adapter.create(spec(offer()))
    adapter.terminate(ended)
    wait_for(lambda: project.lives[ended.instance_id].removed, "its end")
    project.denied.add("compute.zoneOperations.list")
    states = {m.instance_id: m.state for m in adapter.list_machines(journal_id="journal-1")}
    assert states == {ended.instance_id: MachineState.STOPPING, runs.instance_id: MachineState.RUNNING}
    project.denied.clear()
    assert gone(adapter, ended).end_cause is EndCause.TERMINATED


def test_another_project_ends_no_machine(
    gcp: GcpEmulator, project: Project, adapter: GcpProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one home, and none is named in the settings: what it does not list may well run in the other. It is
    not gone, nothing ends it, and its token makes no second one."""
    machine = adapter.create(spec(offer()))
    other = gcp.project(sold())
    settings = gcp.settings(other)
    named = settings.pop("project")
    monkeypatch.setattr(client.Calls, "credentials", lambda self: (AnonymousCredentials(), who[0]))
    who = [project.id]
    home = {key: value for key, value in gcp.settings(project).items() if key != "project"}
    wanted = spec(offer())
    first = connect(tmp_path / "home", home).create(wanted)
    who[0] = named
    second = connect(tmp_path / "home", settings)
    (kept,) = second.list_machines(journal_id="journal-1")
    assert (kept.instance_id, kept.state, kept.ended_s) == (first.instance_id, MachineState.RUNNING, None)
    assert second.list_machines(journal_id="journal-2") == ()
    for ask in (lambda: second.terminate(first), lambda: second.create(wanted)):
        with pytest.raises(AccessError, match=f"{first.instance_id} is in project {project.id}"):
            ask()
    assert (other.called["instances.insert"], project.called["instances.delete"]) == (0, 0)
    who[0] = project.id
    seen = {m.instance_id: m.ended_s for m in connect(tmp_path / "home", home).list_machines(journal_id=None)}
    assert seen == {machine.instance_id: None, first.instance_id: None}


def test_a_machine_that_is_there_after_all(project: Project, adapter: GcpProvider, tmp_path: Path) -> None:
    """An end that was written down wrongly does not hide what Compute Engine shows."""
    machine = adapter.create(spec(offer()))
    adapter._sightings.end(machine.instance_id, time.time(), EndCause.UNKNOWN)
    (seen,) = adapter.list_machines(journal_id="journal-1")
    assert seen.ended_s is None
    assert seen.state is not MachineState.GONE


def test_a_look_at_a_zone_without_room_ends_no_machine(
    project: Project, tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is the same in the next zone, where it runs."""
    one, two = connect(tmp_path, settings), connect(tmp_path, settings)
    wanted = spec(offer(zone=None))
    first, second, _ = one._places.zones(wanted.offer, wanted.token)
    project.capacity[first, "g2-standard-4", "spot"] = 0
    project.op_s = 0.3
    settled = one._calls.settled
    seen = []

    def look() -> None:
        seen.extend((m.zone, m.state) for m in two.list_machines(journal_id="journal-1"))

    def looked_at(operation: Any, **more: Any) -> Any:
        look()
        done = settled(operation, **more)
        look()
        return done

    monkeypatch.setattr(one._calls, "settled", looked_at)
    machine = one.create(wanted)
    assert seen[:2] == [(first, MachineState.PENDING), (first, MachineState.GONE)]
    assert machine.zone == second
    for adapter in (one, two, connect(tmp_path, settings)):
        (found,) = adapter.list_machines(journal_id="journal-1")
        assert (found.zone, found.ended_s) == (second, None)
        assert adapter.create(wanted).state is not MachineState.GONE
    two.terminate(machine)
    assert gone(one, machine).end_cause is EndCause.TERMINATED
    assert connect(tmp_path, settings).create(wanted).end_cause is EndCause.TERMINATED


def test_a_machine_whose_labels_are_gone_is_there(
    gcp: GcpEmulator, project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "UNTOLD_S", 0.0)
    wanted = spec(offer())
    machine = adapter.create(wanted)
    wait_for(lambda: of(adapter, machine.instance_id, "journal-1").state is MachineState.RUNNING, "its start")
    with project.lock:
        project.lives[machine.instance_id].doc["labels"] = {}
    for _ in range(2):
        (seen,) = adapter.list_machines(journal_id="journal-1")
        assert (seen.state, seen.lease_id, seen.ended_s) == (MachineState.RUNNING, wanted.lease_id, None)
    assert adapter.create(wanted).state is MachineState.RUNNING
    gcp.preempt(project, machine.instance_id, notice_s=0.0)
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED


def test_a_machine_missing_twice_for_a_moment_is_not_gone(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between it was well: how long it is missing counts from the second time on."""
    machine = adapter.create(spec(offer()))
    for _ in range(2):
        hidden = project.lives.pop(machine.instance_id)
        (seen,) = adapter.list_machines(journal_id="journal-1")
        assert seen.state is MachineState.STOPPING
        project.lives[machine.instance_id] = hidden
        (seen,) = adapter.list_machines(journal_id="journal-1")
        assert seen.ended_s is None
        monkeypatch.setattr(roster, "UNTOLD_S", 0.5)
        time.sleep(0.5)


def test_a_machine_that_switches_itself_off(
    gcp: GcpEmulator, project: Project, adapter: GcpProvider, tmp_path: Path, settings: dict[str, str]
) -> None:
    """It is stopped, not deleted: its disk is paid for until its end is asked for. A list changes nothing."""
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    gcp.ended_itself(machine.instance_id)
    onlooker = connect(tmp_path / "other", settings)
    for journal, who in ((None, onlooker), ("journal-1", onlooker), ("journal-1", adapter)):
        (seen,) = who.list_machines(journal_id=journal)
        assert (seen.state, seen.ended_s, seen.end_cause) == (MachineState.STOPPING, None, None)
    (left,) = [r for r in infrastructure.create(tmp_path, settings).resources(journal_id=None) if r.costs]
    assert (left.kind, left.journal_id, left.job_id) == ("stopped-instance", "journal-1", "job-1")
    assert project.called["instances.delete"] == 0
    adapter.terminate(seen)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF  # not by us, who only cleared up
    assert end.ended_s == pytest.approx(project.lives[machine.instance_id].ended_s, abs=0.05)
    seen = of(adapter, machine.instance_id, "journal-1")
    assert seen is not None
    wait_for(lambda: project.disks == {}, "the disk's end")
    assert gone(adapter, machine) == end  # its deletion is not its end


def test_a_machine_that_deletes_itself(tmp_path: Path) -> None:
    """By its own command, as its own service account, which may do that and nothing else."""
    with GcpEmulator(tmp_path / "gcp") as booting:
        from clouds.gcp.offers import sold

        project = booting.project(sold(), op_s=0.05, boot_s=1.0, end_s=0.1)
        adapter = connect(tmp_path, booting.settings(project))
        off = adapter.capabilities().machine_env["ARYL_POWEROFF"]
        script = f"cat >off.sh <<'END'\n{off}\nEND\nsh off.sh; exec sleep 600\n"
        account = f"aryl-1@{project.id}.iam.gserviceaccount.com"
        machine = adapter.create(spec(offer(), user_data=script, identity=account))
        end = gone(adapter, machine)
        assert end.end_cause is EndCause.SELF
        (asked,) = [o for o in project.operations.values() if o["operationType"] == "delete"]
        assert asked["user"] == account
        assert project.disks == {}
        # without the right: switched off, and its end is its launcher's to ask for
        project.denied.add("compute.instances.setIamPolicy")
        second = adapter.create(spec(offer(), user_data=script, identity=account))
        wait_for(lambda: project.lives[second.instance_id].cause != "", "its end")
        adapter.terminate(second)
        assert gone(adapter, second).end_cause is EndCause.SELF
        assert project.lives[second.instance_id].cause == "compute.instances.guestTerminate"
        assert booting.boots is not None
        wait_for(lambda: booting.boots is not None and booting.boots.running == [], "no process is left")


def test_the_hard_limit_of_a_life(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    adapter = connect(tmp_path, settings, max_run_hours="0.0003")
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.INTERRUPTED  # an unknown kind of the cloud's own ends
    for wrong in ("0", "3000", "week"):
        with pytest.raises(UsageError, match="max_run_hours"):
            connect(tmp_path, settings, max_run_hours=wrong).create(spec(offer()))


def test_taken_while_it_is_made(gcp: GcpEmulator, project: Project, adapter: GcpProvider) -> None:
    """The operation is fine, and the machine is gone: one life, no second one for its token."""
    project.op_s, project.boot_s = 0.6, 0.0
    wanted = spec(offer())

    def take() -> None:
        wait_for(lambda: wanted.token in project.lives, "the machine")
        gcp.preempt(project, wanted.token, 0.0)

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(take)
        machine = adapter.create(wanted)
        taken.result()
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED
    assert adapter.create(wanted).instance_id == machine.instance_id
    assert project.called["instances.insert"] == 1


def test_its_insertion_takes_longer_than_we_wait(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "MADE_WITHIN_S", 0.05)
    project.op_s = 1.0
    project.faults.append(
        Fault(method="instances.insert", code="ZONE_RESOURCE_POOL_EXHAUSTED", effect="operation")
    )
    machine = adapter.create(spec(offer()))  # it may still fail
    assert machine.state is MachineState.PENDING
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.UNKNOWN
    assert end.ended_s is not None
    assert end.ended_s >= machine.launched_s


def test_it_is_there_before_its_insertion_ends(project: Project, adapter: GcpProvider) -> None:
    """What has its place is not waited for: a launcher has others to look after."""
    project.op_s, project.boot_s = 30.0, 0.1
    for place in ("networks", "firewalls"):
        getattr(project, place)["arylcloud-journal-1" + "-inside" * (place == "firewalls")] = {"name": "x"}
    project.subnetworks["us-central1", "arylcloud-journal-1"] = {"name": "x", "network": "n"}
    machine = adapter.create(spec(offer()))
    assert project.operations
    assert {one["status"] for one in project.operations.values()} == {"RUNNING"}
    assert adapter.create(spec(offer(), token=machine.token)).instance_id == machine.instance_id


def test_a_longer_notice(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    adapter = connect(tmp_path, settings, preemption_notice_s="60")
    able = adapter.capabilities()
    assert (able.notice_s, able.metadata["lead_s"]) == (90.0, "90")
    doc = project.lives[adapter.create(spec(offer())).instance_id].doc
    assert doc["scheduling"]["preemptionNoticeDuration"] == {"seconds": "60"}
    with pytest.raises(UsageError, match="preemption_notice_s"):
        connect(tmp_path, settings, preemption_notice_s="x").create(spec(offer()))


# ------------------------------------------------------------ what is asked


def test_what_is_asked(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    adapter = connect(tmp_path, settings, labels="team=vision, cost-center=42")
    wanted = spec(offer(), disk_gb=140.5, user_data="#!/bin/sh\necho hello\n")
    machine = adapter.create(wanted)
    doc = project.lives[machine.instance_id].doc
    assert doc["labels"] == {
        "team": "vision",
        "cost-center": "42",
        "arylcloud-journal": "journal-1",
        "arylcloud-job": "job-1",
        "arylcloud-lease": wanted.lease_id,
        "arylcloud-token": wanted.token,
        "arylcloud-until": f"{wanted.until_s:.0f}",
    }
    assert doc["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": str(7 * 86400)},
    }
    (disk,) = doc["disks"]
    assert disk["autoDelete"]
    assert disk["initializeParams"]["diskSizeGb"] == "141"
    assert disk["initializeParams"]["diskType"].endswith("pd-balanced")
    assert "2404" in disk["initializeParams"]["sourceImage"]
    assert project.disks["us-central1-a", machine.instance_id]["labels"] == doc["labels"]
    items = {one["key"]: one["value"] for one in doc["metadata"]["items"]}
    assert items["startup-script"].endswith("\necho hello\n")
    assert items["startup-script"].count("#!/bin/sh") == 1
    assert items["block-project-ssh-keys"] == "TRUE"
    assert "serviceAccounts" not in doc
    assert "guestAccelerators" not in doc
    # a network without any way in but from machines of its own
    (firewall,) = project.firewalls.values()
    assert firewall["sourceTags"] == firewall["targetTags"] == doc["tags"]["items"] == ["arylcloud-journal-1"]
    assert "sourceRanges" not in firewall
    (subnetwork,) = project.subnetworks.values()
    assert subnetwork["privateIpGoogleAccess"]
    assert not next(iter(project.networks.values()))["autoCreateSubnetworks"]
    (nic,) = doc["networkInterfaces"]
    assert nic["accessConfigs"] == [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]


def test_gpus_are_attached_to_n1(project: Project, adapter: GcpProvider) -> None:
    machine = adapter.create(spec(offer("n1-standard-8", usd_per_hour=0.5)))
    doc = project.lives[machine.instance_id].doc
    assert doc["guestAccelerators"] == [
        {
            "acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4",
            "acceleratorCount": 1,
        }
    ]
    assert machine.usd_per_hour is None  # no list has the price of such a whole
    with pytest.raises(CapacityError):
        adapter.create(spec(replace(offer("n1-standard-8"), gpu="H100")))
    project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_T4_GPUS"] = 0.0
    project.quotas["us-central1", "NVIDIA_T4_GPUS"] = 0.0


def test_a_gang_is_in_one_zone_and_close(
    project: Project, adapter: GcpProvider, tmp_path: Path, settings: dict[str, str]
) -> None:
    anywhere = offer(zone=None)
    machines = [adapter.create(spec(anywhere, nodes=3, job_id="job-2")) for _ in range(3)]
    (zone,) = {m.zone for m in machines}
    assert zone is not None
    project.capacity[zone, "g2-standard-4", "spot"] = 3
    with pytest.raises(CapacityError):  # not elsewhere: the others are here
        connect(tmp_path, settings).create(spec(anywhere, nodes=4, job_id="job-2"))
    assert project.resource_policies == {}  # L4 machines have no network that is worth it
    pair = [adapter.create(spec(offer("a2-highgpu-1g"), nodes=2, job_id="job-3")) for _ in range(2)]
    ((_, policy),) = project.resource_policies.items()
    assert policy["groupPlacementPolicy"] == {"collocation": "COLLOCATED"}
    for one in pair:
        (link,) = project.lives[one.instance_id].doc["resourcePolicies"]
        assert link.endswith(policy["name"])
    ours = infrastructure.create(tmp_path, settings)
    (left,) = [r for r in ours.resources(journal_id="journal-1") if r.job_id == "job-3"]
    assert (left.kind, left.costs) == ("placement-policy", False)
    with pytest.raises(ConflictError):
        ours.remove(left)
    for one in pair:
        adapter.terminate(one)
        gone(adapter, one)
    ours.remove(left)
    again = spec(offer("a2-highgpu-1g"), nodes=2, job_id="job-3")
    with pytest.raises(OtherCloudError):  # removed under its feet: made again by the next try
        adapter.create(again)
    assert adapter.create(again).zone == "us-central1-a"


def test_a_network_is_made_once(
    project: Project, adapter: GcpProvider, tmp_path: Path, settings: dict[str, str]
) -> None:
    adapter.create(spec(offer()))
    connect(tmp_path, settings).create(spec(offer()))
    far = offer(region="europe-west4", zone="europe-west4-a")
    adapter.create(spec(far))
    assert [call for call in project.calls if "works.insert" in call or "walls.insert" in call] == [
        "networks.insert",
        "firewalls.insert",
        "subnetworks.insert",
        "subnetworks.insert",
    ]
    ranges = {one["ipCidrRange"] for one in project.subnetworks.values()}
    assert len(ranges) == 2
    adapter.create(spec(offer(), journal_id="journal-2"))
    assert set(project.networks) == {"arylcloud-journal-1", "arylcloud-journal-2"}


def test_two_regions_of_a_network_never_overlap(project: Project, adapter: GcpProvider) -> None:
    adapter.create(spec(offer()))
    here = project.subnetworks["us-central1", "arylcloud-journal-1"]
    far = offer(region="europe-west4", zone="europe-west4-a")
    theirs = adapter._networks._range("europe-west4", "arylcloud-journal-1")
    here["ipCidrRange"] = theirs  # as if both names came to the same number
    adapter.create(spec(far))
    made = project.subnetworks["europe-west4", "arylcloud-journal-1"]["ipCidrRange"]
    assert made != theirs
    assert re.fullmatch(r"10\.\d+\.\d+\.0/20", made)


def test_a_network_that_has_gone_is_made_again(project: Project, adapter: GcpProvider) -> None:
    adapter.terminate(adapter.create(spec(offer())))
    project.networks.clear(), project.firewalls.clear(), project.subnetworks.clear()  # type: ignore[func-returns-value]
    again = spec(offer())
    with pytest.raises(OtherCloudError):
        adapter.create(again)
    assert adapter.create(again).state is not MachineState.GONE


def test_a_company_brings_its_own(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    project.subnetworks["us-central1", "theirs"] = {"name": "theirs", "network": "n", "ipCidrRange": "r"}
    adapter = connect(
        tmp_path,
        settings,
        subnetwork="projects/host/regions/us-central1/subnetworks/theirs",
        external_ip="none",
        service_account="trainer@p.iam.gserviceaccount.com",
        image="ours-2026",
        disk_type="pd-ssd",
    )
    doc = project.lives[adapter.create(spec(offer())).instance_id].doc
    (nic,) = doc["networkInterfaces"]
    assert nic["subnetwork"] == "projects/host/regions/us-central1/subnetworks/theirs"
    assert "accessConfigs" not in nic
    assert "tags" not in doc
    assert [a["email"] for a in doc["serviceAccounts"]] == ["trainer@p.iam.gserviceaccount.com"]
    (disk,) = doc["disks"]
    assert disk["initializeParams"]["diskSizeGb"] == "250"  # no smaller than the image
    assert disk["initializeParams"]["diskType"].endswith("pd-ssd")
    assert project.networks == {}
    with pytest.raises(CapacityError) as failed:  # elsewhere there may be one
        adapter.create(spec(offer(region="europe-west4", zone="europe-west4-a")))
    assert (failed.value.code, failed.value.scope) == ("NoSubnet", "region")
    with pytest.raises(UsageError, match="no image"):
        connect(tmp_path, settings, image="nobodys").create(spec(offer()))
    with pytest.raises(UsageError, match="external_ip"):
        connect(tmp_path, settings, external_ip="some").create(spec(offer()))


def test_what_cannot_be_a_label(project: Project, adapter: GcpProvider) -> None:
    with pytest.raises(UsageError, match="label"):
        adapter.create(spec(offer(), lease_id="Job 1"))
    assert project.called["instances.insert"] == 0


def test_user_data_has_a_limit(project: Project, adapter: GcpProvider) -> None:
    with pytest.raises(UsageError, match="200000"):
        adapter.create(spec(offer(), user_data="#" * 200_001))
    assert project.called["instances.insert"] == 0


# ------------------------------------------------------------ calls


def test_many_pages_and_regions(project: Project, adapter: GcpProvider) -> None:
    project.page = 2
    far = offer(region="europe-west4", zone="europe-west4-a")
    made = {adapter.create(spec(offer())).instance_id for _ in range(4)}
    made.add(adapter.create(spec(far)).instance_id)
    before = project.called["instances.list"]
    assert {m.instance_id for m in adapter.list_machines(journal_id="journal-1")} == made
    assert project.called["instances.list"] - before == 3


def test_pages_that_have_no_end(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = adapter._calls
    page = calls.type("InstanceAggregatedList")(next_page_token="same")
    answer = SimpleNamespace(pages=[page])
    monkeypatch.setattr(calls, "read", lambda *_, **__: answer)
    monkeypatch.setattr(calls, "rest", lambda *_: {"nextPageToken": "same"})
    for ask in (lambda: calls.pages("Instances", "aggregated_list"), lambda: adapter._places.kinds("x")):
        with pytest.raises(OtherCloudError, match="no end"):
            ask()


def test_questions_are_asked_again_and_orders_are_not(project: Project, adapter: GcpProvider) -> None:
    throttle = {"code": "rateLimitExceeded", "status": 429, "retry_after_s": 0.1}
    project.faults.append(Fault(method="instances.list", times=2, **throttle))  # type: ignore[arg-type]
    project.faults.append(Fault(method="machineTypes.list", code="backendError", status=503))
    assert adapter.list_machines(journal_id=None) == ()
    assert project.called["instances.list"] == 3
    machine = adapter.create(spec(offer()))
    project.faults.append(Fault(method="instances.delete", code="backendError", status=503))
    with pytest.raises(OtherCloudError):
        adapter.terminate(machine)
    assert project.called["instances.delete"] == 1
    assert project.live()


def test_nothing_is_imported_before_it_is_needed(tmp_path: Path) -> None:
    """google-cloud-compute costs seconds to import."""
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from arylcloud.providers.gcp.adapter import create;"
        f"create(Path({str(tmp_path)!r}), {{'project': 'p'}}).capabilities();"
        "sys.exit(any(name.split('.')[0] in ('google', 'requests') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ------------------------------------------------------------ prices


def test_the_price_turns(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    adapter = connect(tmp_path, settings, prices_every_s="0")
    machine = adapter.create(spec(offer()))
    before = machine.usd_per_hour
    assert before == pytest.approx(0.71 * 0.4, abs=0.001)
    turned_s = float(int(time.time()))
    project.prices.turn("us-central1", "spot", 2.0, turned_s)

    def turned() -> bool:  # the list is read beside
        seen = of(adapter, machine.instance_id, "journal-1")
        return seen is not None and seen.usd_per_hour == pytest.approx(2 * before, abs=1e-5)

    wait_for(turned, "the new price")
    now_s = time.time()
    first, second = adapter.price_history(offer(), turned_s - 60.0, now_s)
    assert (first.from_s, first.usd_per_hour) == (turned_s - 60.0, before)
    assert (second.from_s, second.usd_per_hour) == (turned_s, pytest.approx(2 * before, abs=1e-5))
    # another launcher, after a restart: it cannot know what was before, and says from when on it is certain
    restarted = connect(tmp_path, settings).price_history(offer(), turned_s - 60.0, now_s)
    assert [(one.from_s, one.usd_per_hour) for one in restarted] == [
        (turned_s - 60.0, second.usd_per_hour),
        (turned_s, second.usd_per_hour),
    ]
    assert adapter.quote(offer(market=Market.ON_DEMAND)).usd_per_hour == pytest.approx(0.71, abs=0.01)
    with pytest.raises(UsageError, match="prices_every_s"):
        connect(tmp_path, settings, prices_every_s="often")


def test_the_list_of_prices_is_read_once_an_hour(
    adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []
    plain = adapter._list._read
    monkeypatch.setattr(adapter._list, "_read", lambda: (reads.append(time.time()), plain()))
    for _ in range(3):
        adapter.quote(offer())
        adapter.create(spec(offer()))
    adapter.list_machines(journal_id="journal-1")
    assert len(reads) == 1


# ------------------------------------------------------------ what is left


def test_nothing_is_left_after_the_end(
    project: Project, adapter: GcpProvider, tmp_path: Path, settings: dict[str, str]
) -> None:
    machine = adapter.create(spec(offer()))
    adapter.create(spec(offer(), journal_id="journal-2"))
    ours = infrastructure.create(tmp_path, settings)
    found = ours.resources(journal_id="journal-1")
    assert [(r.kind, r.region, r.costs) for r in found] == [
        ("subnetwork", "us-central1", False),
        ("firewall", "global", False),
        ("network", "global", False),
    ]
    subnetwork, firewall, network = found
    for held in (subnetwork, network):
        with pytest.raises(ConflictError):
            ours.remove(held)
    adapter.terminate(machine)
    gone(adapter, machine)
    for one in (subnetwork, firewall, network, network):  # the missing is success
        ours.remove(one)
    assert ours.resources(journal_id="journal-1") == ()
    assert {r.journal_id for r in ours.resources(journal_id=None)} == {"journal-2"}
    assert [key for key, _ in project.disks.items()] != []  # of the other home's machine only
    assert len(project.disks) == 1


def test_what_was_left_behind_is_found(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    labels = {"arylcloud-journal": "journal-1", "arylcloud-job": "job-1"}
    project.disks["us-central1-a", "left"] = {"name": "left", "id": "1", "labels": labels, "sizeGb": "100"}
    project.networks["arylcloud-like"] = {"name": "arylcloud-like", "description": "somebody's"}
    email = f"aryl-0@{project.id}.iam.gserviceaccount.com"
    told = "arylcloud-journal=journal-1 arylcloud-job=job-1"
    project.identities[email] = {"email": email, "description": told}
    ours = infrastructure.create(tmp_path, settings)
    disk, account = ours.resources(journal_id="journal-1")
    assert (disk.kind, disk.resource_id, disk.job_id, disk.costs) == (
        "disk",
        "us-central1-a/left",
        "job-1",
        True,
    )
    assert (account.kind, account.resource_id, account.job_id) == ("service-account", email, "job-1")
    assert ours.resources(journal_id="journal-2") == ()
    for one in (disk, account):
        ours.remove(one)
    assert ours.resources(journal_id=None) == ()
    project.identities[email] = {"email": email, "description": told}
    project.denied.add("iam.serviceAccounts.list")
    assert ours.resources(journal_id=None) == ()  # who may not look at them has made none


# ------------------------------------------------------------ check


def test_check_makes_nothing(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    found = checks.create(tmp_path, settings).check(
        [offer(), offer(market=Market.ON_DEMAND)], nodes=2, until_s=None
    )
    assert [f.said for f in found if f.verdict is not Verdict.OK] == []
    subjects = {"identity", "permissions", "offered", "quota", "image", "network"}
    assert {f.subject for f in found} == subjects
    assert not [call for call in project.calls if call.endswith((".insert", ".delete"))]


def test_check_names_what_is_missing(project: Project, tmp_path: Path, settings: dict[str, str]) -> None:
    for metric in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS"):
        project.quotas["us-central1", metric] = 1.0
    project.denied.add("compute.instances.create")
    found = checks.create(tmp_path, {**settings, "subnetwork": "theirs"}).check(
        [offer(), offer("a2-highgpu-1g", zone="us-central1-c")], nodes=2, until_s=None
    )
    said = {f.subject: f for f in found if f.verdict is not Verdict.OK}
    assert set(said) == {"permissions", "quota", "offered", "network"}
    assert said["permissions"].said == "missing: compute.instances.create"
    assert "needs 2 GPUs" in said["quota"].said
    assert "has 1" in said["quota"].said
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS in us-central1" in (said["quota"].remedy or "")
    assert "theirs" in said["network"].said


@pytest.mark.parametrize(
    ("instance_type", "nodes", "missing"),
    [("a2-highgpu-1g", 2, True), ("a2-highgpu-1g", 1, False), ("g2-standard-4", 2, False)],
)
def test_check_asks_for_what_a_gang_needs_and_of_gangs_only(
    project: Project, tmp_path: Path, settings: dict[str, str], instance_type: str, nodes: int, missing: bool
) -> None:
    project.denied.add("compute.resourcePolicies.create")
    found = checks.create(tmp_path, settings).check([offer(instance_type)], nodes=nodes, until_s=None)
    (said,) = [f for f in found if f.subject == "permissions"]
    assert (said.verdict is Verdict.FAILED) == missing
    assert ("compute.resourcePolicies.create" in said.said) == missing


def test_check_asks_nothing_more_of_a_stranger(
    project: Project, tmp_path: Path, settings: dict[str, str]
) -> None:
    project.denied.add("compute.projects.get")
    found = checks.create(tmp_path, settings).check([offer()], nodes=1, until_s=None)
    assert [f.verdict for f in found] == [Verdict.FAILED]
    assert set(project.called) == {"projects.get"}


def test_a_token_that_ends_before_the_job(tmp_path: Path, settings: dict[str, str]) -> None:
    from datetime import UTC, datetime, timedelta

    from google.oauth2.credentials import Credentials

    one = checks.create(tmp_path, settings)
    token = Credentials("t", expiry=(datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None))
    one._calls._who = (token, settings["project"])
    until_s = time.time() + 7200
    verdicts = [f.verdict for f in one.check([], nodes=1, until_s=until_s) if "token" in f.said]
    assert verdicts == [Verdict.WARNING]
    verdicts = [f.verdict for f in one.check([], nodes=1, until_s=None) if "token" in f.said]
    assert verdicts == [Verdict.OK]


# ------------------------------------------------------------ permissions


def test_the_role_is_what_the_calls_need(gcp: GcpEmulator, project: Project, tmp_path: Path) -> None:
    """A launch, its end, what is left: with what docs/clouds/gcp.md has one paste, all of it and no more."""
    text = DOCS.read_text(encoding="utf-8")
    role = set(re.findall(r"^- (compute\.\S+)$", text, re.MULTILINE))
    known = {one.permission for one in gcp.server.routes if one.permission.startswith("compute.")}
    project.denied |= known - role
    settings = gcp.settings(project)
    adapter, beside = connect(tmp_path, settings), infrastructure.create(tmp_path, settings)
    account = "aryl-1@p.iam.gserviceaccount.com"
    machine = adapter.create(spec(offer("a2-highgpu-1g"), nodes=2, identity=account))
    adapter.list_machines(journal_id="journal-1")
    adapter.terminate(machine)
    gone(adapter, machine)
    labels = {"arylcloud-journal": "journal-1"}
    project.disks["us-central1-a", "left"] = {"name": "left", "id": "1", "labels": labels}
    for one in beside.resources(journal_id="journal-1"):
        beside.remove(one)
    assert beside.resources(journal_id=None) == ()
    used = {one.permission for one in gcp.server.routes if one.method in project.called}
    unseen = {"compute.disks.create", "compute.networks.updatePolicy", "compute.subnetworks.use"}
    unseen |= {"compute.resourcePolicies.use"}
    unseen |= {"compute.subnetworks.useExternalIp", "compute.disks.setLabels"}
    unseen |= {f"compute.instances.set{what}" for what in ("Labels", "Metadata", "Tags", "ServiceAccount")}
    assert role - unseen == used & known  # the former go with instances.insert, and are asked for inside it
    asked = {
        *permissions.LOOK,
        *permissions.ACT,
        *permissions.NETWORK,
        *permissions.OUTSIDE,
        *permissions.GANG,
    }
    assert role == asked | {one for one in permissions.ACCOUNT if one.startswith("compute.")}
