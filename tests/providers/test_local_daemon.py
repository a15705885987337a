"""The daemon: one of it, private, and of no consequence when it dies."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from providers.contract import gone, of, wait_for
from providers.localcloud import LocalCloud, a_market, an_offer, command_line, listens, local_cloud

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    IntegrityError,
    LocalStateError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)
from arylcloud.core.ports import Machine, MachineState
from arylcloud.providers.local import processes
from arylcloud.providers.local.adapter import create
from arylcloud.providers.local.log import CloudLog, read
from arylcloud.providers.local.start import Endpoint, find
from arylcloud.providers.registry import PROVIDERS, load, settings_for


def test_many_starters_make_one(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market()) as cloud:
        cloud.connect()
        code = (
            "import sys; from pathlib import Path; from arylcloud.providers.local.adapter import create; "
            "print(create(Path(sys.argv[1]), {'market': sys.argv[2]}).capabilities().market_clock.origin_s)"
        )
        argv = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "market.json")]
        starters = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(6)]
        answers = {s.communicate()[0] for s in starters}
        assert {s.returncode for s in starters} == {0}
        assert len(answers) == 1
        assert Counter(r["kind"] for r in cloud.records) == {"opened": 1, "daemon": 1}


def test_it_is_private(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market()) as cloud:
        adapter = cloud.connect()
        adapter.create(cloud.spec(cloud.offer()))
        for path in cloud.folder.iterdir():
            if path.is_file() and path.name != "daemon.log":
                assert path.stat().st_mode & 0o077 == 0, path
        assert cloud.folder.stat().st_mode & 0o077 == 0
        endpoint = find(cloud.folder)
        assert endpoint is not None
        for token in ("", "wrong", endpoint.token[:-1]):
            status, document = Endpoint(port=endpoint.port, token=token).call(
                "list", {"journal_id": None}, 5.0
            )
            assert status == 401
            assert "machines" not in document
        listening = Path("/proc/net/tcp").read_text().splitlines()
        ours = [row for row in listening if row.split()[1].endswith(f":{endpoint.port:04X}")]
        assert all(row.split()[1].startswith("0100007F:") for row in ours if row.split()[3] == "0A")
        assert endpoint.call("nonsense", {}, 5.0)[0] == 400
        assert endpoint.call("create", {}, 5.0)[0] == 400


def test_it_goes_when_idle_and_the_market_goes_on(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(), idle_exit_s=0.3) as cloud:
        adapter = cloud.connect()
        clock = adapter.capabilities().market_clock
        gate = tmp_path / "gate"
        machine = adapter.create(cloud.spec(cloud.offer(), f"while [ ! -e {gate} ]; do sleep 0.05; done\n"))
        first = cloud.pid
        assert first is not None
        time.sleep(0.8)
        assert processes.identify(first) is not None  # not while a machine runs
        gate.touch()
        wait_for(lambda: b"local.daemon" not in command_line(first), "idle exit")
        end = of(adapter, machine.instance_id, "j")
        assert end is not None
        assert end.state is MachineState.GONE
        assert cloud.pid != first
        assert cloud.connect().capabilities().market_clock == clock


def test_its_folder_gone_it_takes_its_machines_along(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market()) as cloud:
        machine = cloud.connect().create(cloud.spec(cloud.offer(), "setsid sleep 609 & sleep 610\n"))
        wait_for(lambda: processes.members(machine.instance_id, None), "boot")
        cloud.folder.rename(tmp_path / "away")
        wait_for(lambda: not processes.members(machine.instance_id, None), "the machines' end")


def test_a_market_is_for_good(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market()) as cloud:
        cloud.connect().offers()
        assert create(tmp_path, {}).offers()[0].region == "here"  # no setting: whatever it runs
        other = tmp_path / "other.json"
        other.write_text(json.dumps(a_market(an_offer("there"))), encoding="utf-8")
        for setting in (str(other), "demo"):
            with pytest.raises(UsageError, match="market"):
                create(tmp_path, {"market": setting}).offers()
        cloud.kill()
        with pytest.raises(UsageError, match="market"):
            create(tmp_path, {"market": str(other)}).offers()
        assert create(tmp_path, {"market": str(tmp_path / "market.json")}).offers()[0].region == "here"


def test_a_bad_market_is_one_clear_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema_version": 1}', encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        create(tmp_path, {"market": str(bad)}).offers()
    assert "name" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "local-cloud").write_text("a file", encoding="utf-8")
    with pytest.raises(LocalStateError):
        create(tmp_path, {}).offers()


def test_settings(tmp_path: Path) -> None:
    assert settings_for("local", {"ARYLCLOUD_LOCAL__MARKET": "m", "ARYLCLOUD_AWS__X": "1"}) == {"market": "m"}
    for environ in ({"ARYLCLOUD_LOCAL__COLOUR": "red"}, {"ARYLCLOUD_LOCAL__TIMEOUT_S": "soon"}):
        with pytest.raises(UsageError):
            load("local", state_dir=tmp_path, environ=environ)
    with pytest.raises(UsageError, match="nimbus"):
        load("nimbus", state_dir=tmp_path, environ={})
    assert {load(name, state_dir=tmp_path, environ={}).name for name in PROVIDERS} == set(PROVIDERS)
    assert list(tmp_path.iterdir()) == []  # no call goes out, nothing is written


# ---------------------------------------------------------------- the log


def test_a_torn_last_line_never_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = CloudLog(path)
    for number in range(3):
        log.append("note", wall_s=1.0, market_s=1.0, number=number)
    log.close()
    data = path.read_bytes()
    ends = [0, *[i + 1 for i, byte in enumerate(data) if byte == 10]]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        log = CloudLog(path)
        kept = sum(1 for end in ends[1:] if end <= size)
        assert len(log) == kept
        assert log.append("more", wall_s=2.0, market_s=2.0)["seq"] == kept + 1
        log.close()
        assert [r["seq"] for r in read(path)[0]] == list(range(1, kept + 2))


def test_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in ("{}\n", 'x\n{"seq":2}\n', '{"seq":1}\n{"seq":3}\n'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(IntegrityError):
            read(path)


# ---------------------------------------------------------------- kill -9


def test_killed_between_boot_record_and_gate(tmp_path: Path) -> None:
    """The record names a first process that never passed the gate: the machine boots, once."""
    with local_cloud(tmp_path, a_market(boot_s=600)) as cloud:  # once begun, it is not waited for again
        machine = cloud.connect().create(cloud.spec(cloud.offer(), "echo once; sleep 611\n"))
        cloud.kill()
        assert [r["kind"] for r in cloud.records][-1] == "launch"
        gate = processes.prepare(cloud.home(machine), tmp_path / "console", {})
        log = CloudLog(cloud.folder / "cloud.jsonl")
        log.append(
            "boot",
            wall_s=time.time(),
            market_s=time.time(),
            instance_id=machine.instance_id,
            pid=gate.leader.pid,
            identity=gate.leader.identity,
        )
        log.close()
        assert gate.child.stdin is not None
        gate.child.stdin.close()  # as the daemon's death does
        assert gate.child.wait() == 125
        wait_for(lambda: cloud.connect().offers() and "once" in cloud.console(machine), "boot")
        time.sleep(0.2)
        assert cloud.console(machine) == "once\n"


def test_machines_outlive_it_and_are_known_again(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market()) as cloud:
        adapter = cloud.connect()
        machine = adapter.create(cloud.spec(cloud.offer(), "echo up; sleep 612\n"))
        wait_for(lambda: "up" in cloud.console(machine), "boot")
        members = processes.members(machine.instance_id, None)
        for _ in range(3):
            cloud.kill()
            seen = of(adapter, machine.instance_id, "j")
            assert seen is not None
            assert (seen.state, seen.launched_s) == (MachineState.RUNNING, machine.launched_s)
            assert processes.members(machine.instance_id, None) == members
        cloud.kill()
        adapter.terminate(machine)
        gone(adapter, machine)
        assert [pid for pid in members if processes.identify(pid) is not None] == []


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Machines come and go while the daemon dies again and again: each runs its user data once, none
    is doubled, none is left, and the log accounts for every one."""
    dice = random.Random(20261130)
    struck = [{"t_market_s": t / 4, "notice_s": 0.1 * (t % 2)} for t in range(2, 40)]
    with local_cloud(tmp_path, a_market(an_offer(interruptions=struck), boot_s=0.05)) as cloud:
        offer = cloud.offer()
        specs = [cloud.spec(offer, "echo start; sleep 613\n") for _ in range(24)]
        made: dict[str, set[str]] = {spec.token: set() for spec in specs}

        def customer(part: int) -> None:
            adapter = cloud.connect()
            random_ = random.Random(part)
            for spec in specs[part::3]:
                while not made[spec.token]:
                    try:
                        made[spec.token].add(adapter.create(spec).instance_id)
                        time.sleep(random_.uniform(0, 0.2))
                        made[spec.token].add(adapter.create(spec).instance_id)
                    except CapacityError:
                        time.sleep(0.05)
                    except OtherCloudError:
                        continue  # it may have been made: the same token tells
                if random_.random() < 0.6:
                    try:
                        for machine in adapter.list_machines(journal_id="j"):
                            if machine.token == spec.token:
                                adapter.terminate(machine)
                    except OtherCloudError:
                        continue

        def killer() -> None:
            for _ in range(12):
                wait_for(alive, "the next daemon")
                time.sleep(dice.uniform(0.0, 0.3))
                cloud.kill()

        def alive() -> bool:
            try:
                return bool(cloud.connect().offers())
            except OtherCloudError:
                return False

        with ThreadPoolExecutor(4) as pool:
            chaos = pool.submit(killer)
            list(pool.map(customer, range(3)))
            chaos.result()
        adapter = cloud.connect()
        machines = adapter.list_machines(journal_id="j")
        assert {m.token for m in machines} == set(made)
        assert len(machines) == len(specs)
        assert all(len(ids) == 1 for ids in made.values())
        assert {i for ids in made.values() for i in ids} == {m.instance_id for m in machines}
        for machine in machines:
            adapter.terminate(machine)
        ends = [gone(adapter, machine) for machine in machines]
        for end in ends:
            assert cloud.console(end).count("start") <= 1
            assert processes.members(end.instance_id, None) == []
            assert not cloud.home(end).exists()
        check_accounts(cloud, ends)
        deaths = sum(r["kind"] == "daemon" for r in cloud.records) - 1
        assert deaths >= 12


def check_accounts(cloud: LocalCloud, ends: list[Machine]) -> None:
    """One launch and one end per machine, in order, and what the API says is what the log says."""
    records = cloud.records
    launches = {r["instance"]["instance_id"]: r for r in records if r["kind"] == "launch"}
    closings = {r["instance_id"]: r for r in records if r["kind"] == "end"}
    kinds = Counter(r["kind"] for r in records)
    assert kinds["launch"] == len(launches) == kinds["end"] == len(closings) == len(ends)
    for end in ends:
        launch, closing = launches[end.instance_id], closings[end.instance_id]
        assert launch["seq"] < closing["seq"]
        assert launch["instance"]["launched_s"] == end.launched_s
        assert closing["ended_s"] == end.ended_s
        assert end.ended_s is not None
        assert end.ended_s >= end.launched_s
        assert end.end_cause is not None
        assert closing["cause"] == end.end_cause.value


# ---------------------------------------------------------------- faults


def faulty(tmp_path: Path, *faults: dict[str, object]) -> LocalCloud:
    return LocalCloud(state=tmp_path, market=a_market(faults=list(faults)))


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttle", ThrottledError),
        ("capacity", CapacityError),
        ("quota", QuotaError),
        ("access", AccessError),
        ("other", OtherCloudError),
    ],
)
def test_a_fault_before_leaves_nothing(tmp_path: Path, kind: str, error: type[ArylError]) -> None:
    market = a_market(faults=[{"op": "create", "kind": kind, "skip": 1, "times": 1}])
    with local_cloud(tmp_path, market) as cloud:
        adapter = cloud.connect()
        adapter.create(cloud.spec(cloud.offer()))
        spec = cloud.spec(cloud.offer())
        with pytest.raises(error) as caught:
            adapter.create(spec)
        assert type(caught.value) is error
        assert caught.value.code
        assert len(adapter.list_machines(journal_id="j")) == 1
        adapter.create(spec)
        assert len(adapter.list_machines(journal_id="j")) == 2


@pytest.mark.parametrize("kind", ["error_after", "hang_after"])
def test_create_fails_and_made_it_anyway(tmp_path: Path, kind: str) -> None:
    market = a_market(faults=[{"op": "create", "kind": kind, "times": 1}])
    with local_cloud(tmp_path, market) as cloud:
        adapter = cloud.connect()
        spec = cloud.spec(cloud.offer())
        with pytest.raises(OtherCloudError):
            adapter.create(spec)
        (machine,) = adapter.list_machines(journal_id="j")
        assert machine.token == spec.token
        assert adapter.create(spec).instance_id == machine.instance_id


def test_a_create_that_takes_longer_than_we_wait(tmp_path: Path) -> None:
    market = a_market(faults=[{"op": "create", "kind": "delay", "times": 1, "seconds": 4.0}])
    with local_cloud(tmp_path, market) as cloud:
        offer = cloud.offer()
        spec = cloud.spec(offer)
        hasty, patient = create(tmp_path, {"timeout_s": "0.3"}), cloud.connect()
        asked_s = time.time()
        with pytest.raises(OtherCloudError):
            hasty.create(spec)
        wait_for(lambda: patient.list_machines(journal_id="j"), "the late landing")
        (machine,) = patient.list_machines(journal_id="j")
        assert machine.launched_s >= asked_s + 4.0


def test_lists_lag(tmp_path: Path) -> None:
    market = a_market(faults=[{"op": "list", "kind": "list_lag", "seconds": 4.0}])
    with local_cloud(tmp_path, market) as cloud:
        adapter = cloud.connect()
        spec = cloud.spec(cloud.offer())
        machine = adapter.create(spec)
        assert adapter.list_machines(journal_id="j") == ()
        assert adapter.create(spec).instance_id == machine.instance_id
        wait_for(lambda: adapter.list_machines(journal_id="j"), "the list")


def test_a_token_means_one_thing(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(an_offer(), an_offer("there"))) as cloud:
        adapter = cloud.connect()
        adapter.create(cloud.spec(cloud.offer(), token="t"))
        with pytest.raises(OtherCloudError) as caught:
            adapter.create(cloud.spec(cloud.offer("there"), token="t"))
        assert caught.value.code == "IdempotentParameterMismatch"
        assert len(adapter.list_machines(journal_id="j")) == 1


def test_another_process_on_the_port_is_not_the_cloud(tmp_path: Path) -> None:
    """A stale port file: somebody else listens there, or nobody."""
    with local_cloud(tmp_path, a_market()) as cloud:
        cloud.connect().offers()
        stale = json.loads((cloud.folder / "daemon.json").read_text(encoding="utf-8"))
        cloud.kill()
        assert not listens(stale["port"])
        with local_cloud(tmp_path / "other", a_market(an_offer("elsewhere"))) as other:
            (tmp_path / "other").mkdir()
            other.connect().offers()
            foreign = json.loads((other.folder / "daemon.json").read_text(encoding="utf-8"))
            stale["port"] = foreign["port"]
            (cloud.folder / "daemon.json").write_text(json.dumps(stale), encoding="utf-8")
            assert cloud.connect().offers()[0].region == "here"


def test_a_launcher_inside_a_machine_starts_a_clean_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the machine's end would take the daemon with it."""
    monkeypatch.setenv(processes.ENV_INSTANCE, "i-outer")
    with local_cloud(tmp_path, a_market()) as cloud:
        cloud.connect().offers()
        assert processes.members("i-outer", None) in ([], [os.getpid()])
