"""What ``gc`` ends, what it leaves alone, and what it says of it: with clouds that show what we like."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arylcloud.checkpoint.store import file_path, file_uri, open_store
from arylcloud.cli import assemble
from arylcloud.cli.main import run as aryl
from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import AccessError, ArylError, StoreError, ThrottledError
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineState, ObjectStore, Resource
from arylcloud.core.protocol import (
    JOB_KEY,
    LAUNCHER_KEY,
    AgentPhase,
    Heartbeat,
    JobDoc,
    LauncherBeat,
    beat_key,
    journal_key,
)
from arylcloud.core.stores import Address
from arylcloud.launcher.journal import Journal
from tests.support.harness import offer

HOUR_S = 3600.0
JOB = "digits-0a1b2c3d"
LEASE = f"{JOB}-r0-a1"
OTHER = "journal-of-another"


class Cloud:
    """A provider that shows ``machines``; ``renews`` says whether their ``until`` is a renewed one."""

    def __init__(
        self, name: str, *machines: Machine, renews: bool = False, error: ArylError | None = None
    ) -> None:
        self.name = name
        self.machines = machines
        self.renews = renews
        self.error = error
        self.stubborn: ArylError | None = None
        self.ended: list[str] = []

    def capabilities(self) -> Capabilities:
        return Capabilities(
            notice_s=120.0,
            billing=Billing(),
            market_clock=MarketClock(),
            boot_s=60.0,
            renews_until=self.renews,
        )

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        assert journal_id is None
        if self.error is not None:
            raise self.error
        return self.machines

    def terminate(self, machine: Machine) -> None:
        if self.stubborn is not None:
            raise self.stubborn
        self.ended.append(machine.instance_id)


def machine(
    instance_id: str = "i-1", *, until_in_s: float | None = HOUR_S, journal_id: str = OTHER
) -> Machine:
    return Machine(
        instance_id=instance_id,
        token="t",
        journal_id=journal_id,
        job_id=JOB,
        lease_id=LEASE,
        cloud="aws",
        region="us-east-1",
        zone=None,
        instance_type="p3.2xlarge",
        market="spot",
        state=MachineState.RUNNING,
        usd_per_hour=1.0,
        launched_s=time.time() - 20 * HOUR_S,
        until_s=None if until_in_s is None else time.time() + until_in_s,
    )


class Beside:
    """What a cloud holds beside machines."""

    def __init__(self, *there: Resource) -> None:
        self.there = there
        self.removed: list[str] = []

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        assert journal_id is None
        return self.there

    def remove(self, resource: Resource) -> None:
        self.removed.append(resource.resource_id)


def role(journal_id: str, job_id: str | None = JOB) -> Resource:
    return Resource(
        cloud="aws",
        region="us-east-1",
        kind="role",
        resource_id="aryl-role",
        journal_id=journal_id,
        job_id=job_id,
    )


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ARYLCLOUD_STORE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(
        *clouds: Cloud, beside: Beside | None = None, args: Sequence[str] = (), code: int = 0
    ) -> dict[str, Any]:
        known = {cloud.name: cloud for cloud in clouds}
        monkeypatch.setattr(assemble, "providers_for", lambda asked, places: known)
        monkeypatch.setattr(assemble, "infrastructure_for", lambda cloud, places: beside)
        assert aryl(["gc", "--json", *args]) == code
        document = dict(json.loads(capsys.readouterr().out))
        assert aryl(["gc", "--dryrun", *args]) == code
        document["said"] = capsys.readouterr().err
        return document

    return call


def mailbox(folder: Path, *, launcher_s: float | None = None, agent_s: float | None = None) -> str:
    """The store of another owner; ages in seconds of who was heard last. Its URI."""
    root = file_uri(folder)
    store = open_store(f"{root}/jobs/{JOB}")
    spec = JobSpec(name="digits", run="x", unattended_s=12 * HOUR_S)
    store.put(JOB_KEY, dumps(JobDoc(job_id=JOB, journal_id=OTHER, spec=spec, submitted_s=0.0)))
    if launcher_s is not None:
        say_launcher(store, launcher_s)
    if agent_s is not None:
        beat = Heartbeat(lease_id=LEASE, seq=1, at_s=time.time() - agent_s, phase=AgentPhase.RUNNING)
        store.put(beat_key(LEASE), dumps(beat))
        written(store, beat_key(LEASE), agent_s)
    return root


def say_launcher(store: ObjectStore, age_s: float) -> None:
    """By a launcher with a clock of its own."""
    store.put(LAUNCHER_KEY, dumps(LauncherBeat(launcher_id="l", host="h", pid=1, at_s=12345.0)))
    written(store, LAUNCHER_KEY, age_s)


def written(store: ObjectStore, key: str, age_s: float) -> None:
    """So long ago, by the store's clock: on a disk, the file's own time."""
    at_s = time.time() - age_s
    os.utime(file_path(store.uri) / key, (at_s, at_s))


# ---------------------------------------------------------------- machines of others


def test_a_lease_that_is_only_said_to_be_over_ends_nothing(run: Run) -> None:
    """No cloud renews a tag by itself: twelve hours after its start, a healthy machine looks like this."""
    cloud = Cloud("aws", machine(until_in_s=-HOUR_S))
    found = run(cloud, args=["--owner", OTHER])
    assert found["found"][0]["lease_expired"] is None
    assert (found["terminated"], cloud.ended) == ([], [])
    assert "may have been renewed" in found["said"]
    assert "last heartbeat is not known" in found["said"]


@pytest.mark.parametrize(
    ("launcher_s", "agent_s", "expired", "ended"),
    [
        (100.0, None, False, False),  # renewed a moment ago
        (13 * HOUR_S, None, True, True),
        (13 * HOUR_S, 13 * HOUR_S, True, True),
        (13 * HOUR_S, 5.0, True, False),  # it is alive: saving, and about to end itself
        (None, None, True, True),  # its launcher has ended and taken its beat away
    ],
)
def test_the_owners_mailbox_tells_of_renewals(
    run: Run, tmp_path: Path, launcher_s: float | None, agent_s: float | None, expired: bool, ended: bool
) -> None:
    root = mailbox(tmp_path / "theirs", launcher_s=launcher_s, agent_s=agent_s)
    cloud = Cloud("aws", machine(until_in_s=-HOUR_S))
    found = run(cloud, args=["--owner", OTHER, "--store", root])
    (row,) = found["found"]
    assert row["lease_expired"] is expired
    assert (row["launcher_heard_s"] is None) == (launcher_s is None)
    assert (row["machine_heard_s"] is None) == (agent_s is None)
    assert cloud.ended == (["i-1"] if ended else [])
    if launcher_s is not None:
        assert "its owner was heard" in found["said"]


@pytest.mark.parametrize(("until_in_s", "expired"), [(-60.0, True), (60.0, False), (None, None)])
def test_a_cloud_whose_machines_renew_their_lease_is_believed(
    run: Run, until_in_s: float | None, expired: bool | None
) -> None:
    cloud = Cloud("local", machine(until_in_s=until_in_s), renews=True)
    found = run(cloud, args=["--owner", OTHER])
    assert found["found"][0]["lease_expired"] is expired
    assert cloud.ended == (["i-1"] if expired else [])


def test_nobody_elses_machine_is_ended_unasked(run: Run) -> None:
    cloud = Cloud("local", machine(until_in_s=-60.0), renews=True)
    assert run(cloud)["terminated"] == []
    assert run(cloud, args=["--owner", "somebody"])["terminated"] == []
    assert cloud.ended == []


def test_a_job_id_that_climbs_opens_no_folder(run: Run, tmp_path: Path) -> None:
    root = mailbox(tmp_path / "theirs", launcher_s=1.0)
    sly = replace(machine(until_in_s=-60.0), job_id="../../etc")
    found = run(Cloud("aws", sly), args=["--owner", OTHER, "--store", root])
    assert found["found"][0]["lease_expired"] is None


# ---------------------------------------------------------------- clouds that do not answer


def test_one_clouds_error_does_not_stop_the_others(run: Run) -> None:
    away = Cloud("aws", error=ThrottledError("slow down"))
    here = Cloud("local", machine(until_in_s=-60.0), renews=True)
    found = run(away, here, args=["--owner", OTHER], code=5)
    assert here.ended == ["i-1"]
    assert [(e["cloud"], e["kind"]) for e in found["errors"]] == [("aws", "throttled")]
    assert "slow down" in found["said"]
    assert "nothing found" not in found["said"]


def test_one_machine_that_cannot_be_ended_does_not_stop_the_others(run: Run) -> None:
    stuck = Cloud("aws", machine("i-1", until_in_s=-60.0), machine("i-2", until_in_s=-60.0), renews=True)
    stuck.stubborn = AccessError("no permission")
    here = Cloud("local", machine("i-3", until_in_s=-60.0), renews=True)
    known = {"aws": stuck, "local": here}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "providers_for", lambda asked, places: known)
        patch.setattr(assemble, "infrastructure_for", lambda cloud, places: None)
        assert aryl(["gc", "--owner", OTHER]) == 4
    assert here.ended == ["i-3"]


# ---------------------------------------------------------------- machines of our own


@pytest.fixture
def own(home: Path, tmp_path: Path) -> tuple[Journal, ObjectStore]:
    """A job of this home, one machine of which is in the journal, and no launcher."""
    (home / "state").mkdir(parents=True)
    journal = Journal(home / "state" / "journal.db")
    store = open_store(f"{file_uri(tmp_path / 'store')}/jobs/{JOB}")
    facts: list[ev.Event] = [
        ev.JobSubmitted(
            spec=JobSpec(name="digits", run="x"),
            prefix_uri=store.uri,
            journal_id=journal.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
        ),
        ev.LeaseIntended(
            lease_id=LEASE,
            token="t",
            offer=offer(),
            index=0,
            attempt=1,
            purpose="start",
            until_s=1e10,
            why="x",
        ),
        ev.LeaseCreated(
            lease_id=LEASE,
            instance_id="i-1",
            launched_s=1.0,
            usd_per_hour=1.0,
            address=None,
            billing=Billing(),
        ),
    ]
    for fact in facts:
        journal.append(JOB, time.time(), "w", fact, None, mirror=store)
    return journal, store


def test_an_open_lease_without_a_launcher_is_said_with_its_remedy(
    run: Run, own: tuple[Journal, ObjectStore]
) -> None:
    journal, store = own
    cloud = Cloud("aws", machine(journal_id=journal.journal_id))
    found = run(cloud)
    (entry,) = found["unattended"]
    assert entry["job_id"] == JOB
    assert [m["instance_id"] for m in entry["machines"]] == ["i-1"]
    assert f"`arylcloud resume {JOB}`" in found["said"]
    assert "known and worked with" not in found["said"]
    assert (found["found"], cloud.ended) == ([], [])
    # also one that is being ended, by nobody
    journal.append(
        JOB, time.time(), "w", ev.LeaseEnding(lease_id=LEASE, code="x", why="x"), None, mirror=store
    )
    assert "ending" in run(cloud)["said"]


def test_a_launcher_here_or_elsewhere_is_all_that_is_needed(
    run: Run, own: tuple[Journal, ObjectStore]
) -> None:
    journal, store = own
    cloud = Cloud("aws", machine(journal_id=journal.journal_id))
    with journal.claim(JOB):
        assert run(cloud)["unattended"] == []
    say_launcher(store, 2.0)
    found = run(cloud)
    assert (found["unattended"], found["found"]) == ([], [])
    assert "known and worked with" in found["said"]
    say_launcher(store, HOUR_S)
    assert len(run(cloud)["unattended"]) == 1


def test_a_machine_that_no_lease_knows_is_ended(run: Run, own: tuple[Journal, ObjectStore]) -> None:
    journal, store = own
    say_launcher(store, 1.0)  # of this home, and dead: it holds no claim
    cloud = Cloud("aws", machine("i-9", journal_id=journal.journal_id))
    assert run(cloud)["terminated"] == ["i-9"]
    assert cloud.ended == ["i-9"]


def test_a_job_whose_records_are_damaged_is_left_alone(run: Run, own: tuple[Journal, ObjectStore]) -> None:
    journal, store = own
    away = ev.LeaseEnding(lease_id="unknown", code="x", why="x")  # no fold takes this
    journal.append(JOB, time.time(), "w", away, None, mirror=store)
    cloud = Cloud("aws", machine(journal_id=journal.journal_id), machine("i-2", journal_id="adopted-from"))
    found = run(cloud, code=7)
    assert (found["found"], found["terminated"], cloud.ended) == ([], [], [])
    assert found["said"].count("cannot be read") == 2
    assert [(one["instance_id"], "cannot be read" in one["why"]) for one in found["unknown"]] == [
        ("i-1", True),
        ("i-2", True),
    ]


# ---------------------------------------------------------------- a job that has gone on elsewhere


class Abroad:
    """Another home, which goes on with the job of ``own``."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        folder.mkdir()
        self.journal = Journal(folder / "journal.db")
        self.store = store
        self.say(ev.LauncherStarted(launcher_id="l-far", host="h", pid=1, home=self.journal.journal_id))

    def say(self, *facts: ev.Event) -> None:
        self.journal.catch_up(JOB, self.store)
        for fact in facts:
            self.journal.append(JOB, time.time(), "far", fact, None, mirror=self.store)

    def phase(self, phase: JobPhase) -> None:
        self.say(ev.JobPhaseChanged(phase=phase, code="x", text="x"))


@pytest.fixture
def stopped(own: tuple[Journal, ObjectStore]) -> tuple[Journal, ObjectStore]:
    """As this home last knew it."""
    journal, store = own
    for fact in (
        ev.LeaseReleased(lease_id=LEASE, cause="terminated", ended_s=2.0),
        ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="x", text="x"),
    ):
        journal.append(JOB, time.time(), "w", fact, None, mirror=store)
    return journal, store


def test_what_a_job_needs_that_another_home_has_resumed_stays(
    run: Run, stopped: tuple[Journal, ObjectStore], tmp_path: Path
) -> None:
    """It runs on another cloud's machines, to whom this role's sessions are lent: no machine of ours is here,
    and this home's journal says that the job has ended."""
    journal, store = stopped
    abroad = Abroad(tmp_path / "abroad", store)
    abroad.phase(JobPhase.PENDING)
    beside = Beside(role(journal.journal_id))
    for age_s in (1.0, HOUR_S):  # its launcher need not be awake
        say_launcher(store, age_s)
        found = run(Cloud("aws"), beside=beside)
        assert [one["removed"] for one in found["resources"]] == [False]
        assert f"job {JOB} has not ended: another home goes on with it" in found["said"]
    abroad.phase(JobPhase.STOPPED)
    say_launcher(store, 1.0)
    assert "a launcher at work" in run(Cloud("aws"), beside=beside)["said"]
    assert beside.removed == []
    say_launcher(store, HOUR_S)
    assert [one["removed"] for one in run(Cloud("aws"), beside=beside)["resources"]] == [True]
    assert beside.removed == ["aryl-role"]


def test_what_a_job_needs_stays_where_its_mailbox_cannot_be_read(
    run: Run, stopped: tuple[Journal, ObjectStore]
) -> None:
    journal, store = stopped
    head = journal.head(JOB)
    store.put(journal_key(head + 1), b"?")
    beside = Beside(role(journal.journal_id))
    assert "cannot be read" in run(Cloud("aws"), beside=beside)["said"]
    assert beside.removed == []


def test_of_another_journal_a_jobs_role_goes_once_its_mailbox_says_that_it_has_ended(
    run: Run, stopped: tuple[Journal, ObjectStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--owner`` names the journal; the job's machines may be on another cloud."""
    journal, store = stopped
    owner, root = journal.journal_id, store.uri.removesuffix(f"/jobs/{JOB}")
    beside = Beside(role(owner))
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "third"))
    (tmp_path / "third" / "state").mkdir(parents=True)
    assert "name its store" in run(Cloud("aws"), beside=beside, args=["--owner", owner])["said"]
    abroad = Abroad(tmp_path / "abroad", store)
    abroad.phase(JobPhase.PENDING)
    there = ["--owner", owner, "--store", root]
    assert "has not ended" in run(Cloud("aws"), beside=beside, args=there)["said"]
    assert beside.removed == []
    abroad.phase(JobPhase.STOPPED)
    run(Cloud("aws"), beside=beside, args=there)
    assert beside.removed == ["aryl-role"]


def test_of_a_home_that_is_lost_a_jobs_role_goes_when_its_machines_are_over(
    run: Run, own: tuple[Journal, ObjectStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never ended: its launcher died, and ``unattended`` after that its machines ended themselves."""
    journal, store = own
    owner, root = journal.journal_id, store.uri.removesuffix(f"/jobs/{JOB}")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "third"))
    (tmp_path / "third" / "state").mkdir(parents=True)
    beside, there = Beside(role(owner)), ["--owner", owner, "--store", root]

    def kept() -> bool:
        return "has not ended" in run(Cloud("aws"), beside=beside, args=there)["said"]

    say_launcher(store, 13 * HOUR_S)
    assert kept(), "somebody wrote a record just now"
    for seq in range(1, journal.head(JOB) + 1):
        written(store, journal_key(seq), 14 * HOUR_S)
    for age_s in (1.0, 11 * HOUR_S):
        say_launcher(store, age_s)
        assert kept()
    say_launcher(store, 13 * HOUR_S)
    beat = Heartbeat(lease_id=LEASE, seq=1, at_s=1.0, phase=AgentPhase.RUNNING)
    store.put(beat_key(LEASE), dumps(beat))
    assert kept(), "its machine is still there"
    assert beside.removed == []
    written(store, beat_key(LEASE), HOUR_S)
    run(Cloud("aws"), beside=beside, args=there)
    assert beside.removed == ["aryl-role"]


def test_a_job_that_the_store_which_was_named_does_not_hold_needs_nothing(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (tmp_path / "store" / "jobs").mkdir(parents=True)
    beside, root = Beside(role(OTHER)), file_uri(tmp_path / "store")
    owner, absent = ["--owner", OTHER], file_uri(tmp_path / "not-mounted")
    monkeypatch.setenv("ARYLCLOUD_STORE", root)
    assert "name its store" in run(Cloud("aws"), beside=beside, args=owner)["said"], "may be in any other"
    assert "name its store" in run(Cloud("aws"), beside=beside, args=[*owner, "--store", absent])["said"]
    assert beside.removed == []
    run(Cloud("aws"), beside=beside, args=[*owner, "--store", root])
    assert beside.removed == ["aryl-role"]


class Buckets:
    """A cloud whose buckets cannot be read; ``gone`` says whether they are there."""

    gone = False

    def missing(self, address: Address) -> bool:
        return self.gone

    def open_uri(self, uri: str, **_: object) -> ObjectStore:
        raise StoreError(f"{uri} cannot be read")


@pytest.fixture
def bucket(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Journal, Buckets]:
    """A job of this home in a bucket."""
    (home / "state").mkdir(parents=True)
    journal, buckets = Journal(home / "state" / "journal.db"), Buckets()
    submitted = ev.JobSubmitted(
        spec=JobSpec(name="digits", run="x"),
        prefix_uri=f"s3://box/jobs/{JOB}",
        journal_id=journal.journal_id,
        market_origin_s=0.0,
        market_scale=1.0,
    )
    journal.append(JOB, time.time(), "w", submitted, None, mirror=None, strict=False)
    monkeypatch.setattr("arylcloud.cli.stores.open_uri", buckets.open_uri)
    monkeypatch.setattr("arylcloud.cli.stores.storage_of", lambda *_: buckets)
    return journal, buckets


def test_nobody_goes_on_with_a_job_whose_bucket_is_deleted(run: Run, bucket: tuple[Journal, Buckets]) -> None:
    journal, buckets = bucket
    stopped = ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="x", text="x")
    journal.append(JOB, time.time(), "w", stopped, None, mirror=None, strict=False)
    beside = Beside(role(journal.journal_id))
    assert "cannot be read" in run(Cloud("aws"), beside=beside)["said"]
    assert beside.removed == []
    buckets.gone = True
    run(Cloud("aws"), beside=beside)
    assert beside.removed == ["aryl-role"]


def test_a_machine_of_which_nothing_can_be_known_is_no_silence(
    run: Run, bucket: tuple[Journal, Buckets]
) -> None:
    journal, _buckets = bucket
    cloud = Cloud("aws", machine(journal_id=journal.journal_id))
    found = run(cloud, code=5)
    (one,) = found["unknown"]
    assert (one["instance_id"], one["ours"]) == ("i-1", True)
    assert "mailbox cannot be read" in one["why"]
    assert "known and worked with" not in found["said"]
    assert cloud.ended == []


def test_a_machine_that_a_launcher_elsewhere_is_making_is_no_stray(
    run: Run, own: tuple[Journal, ObjectStore], tmp_path: Path
) -> None:
    """The cloud shows it before its launcher has heard of it: its lease has no machine yet."""
    journal, store = own
    abroad, second = Abroad(tmp_path / "abroad", store), f"{JOB}-r0-a2"
    abroad.say(
        ev.LeaseIntended(
            lease_id=second,
            token="t2",
            offer=offer(),
            index=0,
            attempt=2,
            purpose="replace",
            until_s=1e10,
            why="x",
        )
    )
    new = replace(machine("i-new", journal_id=journal.journal_id), lease_id=second)
    cloud = Cloud("aws", new)
    say_launcher(store, 2.0)
    found = run(cloud)
    assert (found["found"], found["unattended"], cloud.ended) == ([], [], [])
    say_launcher(store, HOUR_S)
    assert run(cloud)["terminated"] == ["i-new"], "nobody is left who would take it up"


def test_of_a_home_whose_job_was_adopted_nothing_else_is_ours(
    run: Run,
    home: Path,
    stopped: tuple[Journal, ObjectStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its other jobs run over there, under the same journal's id."""
    owner = stopped[0].journal_id
    third = tmp_path / "third"
    (third / "state").mkdir(parents=True)
    Journal(third / "state" / "journal.db").catch_up(JOB, stopped[1])  # as adopt does
    monkeypatch.setenv("ARYLCLOUD_HOME", str(third))
    theirs = replace(machine("i-theirs", journal_id=owner), job_id="other-0a1b2c3d", lease_id="x")
    adopted = machine("i-stray", journal_id=owner)
    cloud, beside = Cloud("aws", theirs, adopted), Beside(role(owner, None), role(owner, "other-0a1b2c3d"))
    found = run(cloud, beside=beside)
    assert cloud.ended == ["i-stray"]
    assert beside.removed == []
    assert f"of journal {owner}" in found["said"]
