"""One machine of the hostile world that saves by the agent's own code, while its store is away: what it could
send is sent; and an agent that gives it up breaks the law that says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arylcloud.agent.saved import Saved
from arylcloud.agent.sync import CheckpointSync
from arylcloud.checkpoint.restore import read_manifest
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.ports import Machine, MachineSpec
from arylcloud.simulation.chaos_sky import offers
from arylcloud.simulation.chaos_store import OUTAGES, Mailbox
from arylcloud.simulation.checker import what_could_be_sent_is
from arylcloud.simulation.story import Commit, Kept, Story
from arylcloud.simulation.world import World
from arylcloud.simulation.world_agents import Agents

JOB = "disks-00000001"
STEP_S = 5.0


@dataclass(slots=True)
class Place:
    """Some machines and their mailbox; the test is the launcher."""

    folder: Path
    shards: bool = False
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000.0))
    world: World = field(init=False)
    mailbox: Mailbox = field(init=False)
    agents: Agents = field(init=False)
    machines: list[Machine] = field(default_factory=list)
    epochs: int = 0

    def __post_init__(self) -> None:
        self.world = World(clock=self.clock)
        self.mailbox = Mailbox("memory://jobs/x", clock=self.clock, ahead_s=7.0, loses=lambda: False)
        self.agents = Agents(
            world=self.world,
            store=self.mailbox,
            job_id=JOB,
            total_steps=1000,
            checkpoint_every=10,
            clock_ahead_s=-40.0,
            disks=self.folder,
            shards=self.shards,
        )

    def buy(self) -> str:
        lease_id = f"{JOB}-{len(self.machines)}"
        offer = next(offer for offer in offers() if offer.cloud == "aws")
        spec = MachineSpec(
            token=lease_id,
            journal_id="j",
            job_id=JOB,
            lease_id=lease_id,
            offer=offer,
            user_data="stub",
            until_s=None,
            max_usd_per_hour=None,
        )
        self.machines.append(self.world.create(spec))
        return lease_id

    def open(self, *leases: str, resume_from: str | None = None) -> None:
        self.epochs += 1
        members = tuple(mail.Member(lease_id=i, rank=n, address="10.0.0.1") for n, i in enumerate(leases))
        document = mail.EpochDoc(
            job_id=JOB,
            number=self.epochs,
            attempt=1,
            opened_s=self.clock.at_s,
            reason="a test",
            members=members,
            resume_from=resume_from,
        )
        assert self.mailbox.create(mail.epoch_key(self.epochs), dumps(document))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.world.advance(STEP_S)
            self.agents.step()

    def beat(self, number: int = 0) -> mail.Heartbeat:
        data = self.mailbox._objects[mail.beat_key(f"{JOB}-{number}")][0]
        return loads(mail.Heartbeat, data)

    @property
    def step(self) -> int:
        return self.agents.by_instance[self.machines[0].instance_id].step

    @property
    def committed(self) -> list[int]:
        return [commit.step for commit in self.mailbox.commits]

    def story(self) -> Story:
        """As the chaos tells it: the way was closed for 55 s."""
        agent = self.agents.by_instance[self.machines[0].instance_id]
        assert agent.disk is not None
        save = agent.disk.saves[1]
        kept = Kept(
            epoch=1,
            step=save.step,
            leases=(f"{JOB}-0",),
            saved_s=save.at_s,
            until_s=agent.machine.acts_at_s or 0.0,
            closed=((save.at_s, save.at_s + 55.0),),
        )
        return story(kept, *self.mailbox.commits)


def story(kept: Kept, *commits: Commit) -> Story:
    return Story(
        job_id=JOB,
        records=(),
        local=(),
        written_s={},
        documents={},
        authors={},
        calls=(),
        machines=(),
        runs=(),
        commits=commits,
        total_steps=1000,
        kept=(kept,),
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.open(found.buy())
    found.tick(15)
    assert found.committed == [10]
    return found


def with_notice(place: Place, outage: str) -> None:
    """A notice, and at once the store is away, until 30 s before the machine is taken."""
    place.world.notice(place.machines[0].instance_id, 90.0)
    place.mailbox.outage = outage
    place.tick(12)
    place.mailbox.outage = None
    place.tick(2)


@pytest.mark.parametrize("outage", OUTAGES)
def test_the_last_save_waits_for_its_store_whatever_that_says(place: Place, outage: str) -> None:
    with_notice(place, outage)
    assert place.committed == [10, place.step]
    assert place.beat().phase is mail.AgentPhase.DRAINED
    assert place.beat().committed_step == place.step > 10
    assert not list(what_could_be_sent_is(place.story()))


def test_two_notices_that_overlap_over_one_checkpoint(tmp_path: Path) -> None:
    """Each machine has a part of it, and the store is full meanwhile."""
    place = Place(tmp_path, shards=True)
    place.open(place.buy(), place.buy())
    place.tick(15)
    assert place.committed == [10]
    place.world.notice(place.machines[1].instance_id, 60.0)
    place.mailbox.outage = "the store is full"
    place.tick(2)
    place.world.notice(place.machines[0].instance_id, 40.0)
    place.tick(4)
    place.mailbox.outage = None
    place.tick(4)
    assert max(place.committed) == place.step > 10
    manifest = read_manifest(place.mailbox, place.mailbox.commits[-1].manifest)
    assert {file.path for file in manifest.files} >= {"weights-0", "weights-1"}


@pytest.mark.parametrize("outage", [None, "the store is full"])
def test_the_last_parts_of_a_finished_command_are_waited_for(tmp_path: Path, outage: str | None) -> None:
    """One of two machines is cut off for two minutes at just that moment: nothing comes after this step."""
    place = Place(tmp_path, shards=True)
    place.agents.total_steps = 14
    place.open(place.buy(), place.buy())
    place.tick(13)
    place.agents.silence(place.machines[1].instance_id, 120.0)
    place.mailbox.outage = outage
    place.tick(6)
    assert (place.step, place.committed) == (14, [10])
    place.mailbox.outage = None
    place.tick(16)
    assert place.beat().phase is mail.AgentPhase.SAVING, "it waits"
    place.tick(4)
    assert place.committed == [10, 14]
    assert place.beat().phase is mail.AgentPhase.EXITED


@pytest.mark.parametrize("outage", ["the store is full", "the store is read-only"])
def test_a_store_that_takes_nothing_makes_no_rank_silent(tmp_path: Path, outage: str) -> None:
    """It answers reads: all heartbeats stand still, rank 0's own, too."""
    place = Place(tmp_path, shards=True)
    place.open(place.buy(), place.buy())
    place.tick(15)
    place.agents.stop_takes_s[place.machines[1].instance_id] = 6.0
    place.open()
    place.tick(2)
    assert place.beat().phase is mail.AgentPhase.SAVING
    place.mailbox.outage = outage
    place.tick(8)
    place.mailbox.outage = None
    place.tick(4)
    assert place.committed == [10, place.step]
    assert place.beat().phase is mail.AgentPhase.DRAINED


def test_they_are_not_waited_for_where_the_job_goes_on_without(tmp_path: Path) -> None:
    place = Place(tmp_path, shards=True)
    place.agents.total_steps = 14
    place.open(place.buy(), place.buy())
    place.tick(13)
    place.agents.silence(place.machines[1].instance_id, 10_000.0)
    place.tick(6)
    assert place.beat().phase is mail.AgentPhase.SAVING
    place.open(f"{JOB}-0", resume_from=place.mailbox.commits[-1].manifest)
    place.tick(4)
    assert place.beat().phase in (mail.AgentPhase.RUNNING, mail.AgentPhase.EXITED)
    assert place.beat().epoch == 2


def test_the_next_machine_goes_on_from_its_files(place: Place) -> None:
    with_notice(place, "the store is read-only")
    step = place.step
    place.open(place.buy(), resume_from=place.mailbox.commits[-1].manifest)
    place.tick(3)
    disk = place.folder / f"aws-{place.machines[1].instance_id}" / "checkpoints"
    assert (disk / f"step-{step}" / "weights-0").read_bytes().endswith(f"step {step}".encode())
    place.tick(12)
    assert place.beat(1).committed_step == place.mailbox.commits[-1].step > step


def test_a_restore_waits_for_the_store(place: Place) -> None:
    place.open()
    place.tick(3)
    assert place.beat().phase is mail.AgentPhase.DRAINED
    place.open(f"{JOB}-0", resume_from=place.mailbox.commits[-1].manifest)
    agent = place.agents.by_instance[place.machines[0].instance_id]
    place.mailbox.outage = "credentials have expired"
    place.tick(20)
    assert agent.running is None
    place.mailbox.outage = None
    place.tick(2)
    assert place.beat().phase is mail.AgentPhase.RUNNING


@pytest.mark.parametrize("outage", ["the store is full", "the store is read-only"])
def test_an_agent_that_gives_such_a_save_up_breaks_the_law(
    place: Place, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it once did: a folder's error is a UsageError by its remedy: so it was the checkpoint's fault."""

    def once(sync: CheckpointSync, saved: Saved, work):  # type: ignore[no-untyped-def]
        try:
            return work()
        except (IntegrityError, UsageError) as error:
            sync._pass_over(saved, error.message)

    monkeypatch.setattr(CheckpointSync, "_try", once)
    with_notice(place, outage)
    assert place.beat().phase is mail.AgentPhase.DRAINED, "it says that it has handed over"
    assert len(list(what_could_be_sent_is(place.story()))) == 1


@pytest.mark.parametrize(
    ("until_s", "closed", "broken"),
    [
        (float("inf"), (), True),
        (119.0, (), False),
        (120.0, (), True),
        (200.0, ((90.0, 179.0),), True),
        (200.0, ((90.0, 181.0),), False),
        (200.0, ((110.0, 130.0), (145.0, 185.0)), False),
        (200.0, ((110.0, 130.0), (150.0, 185.0)), True),
        (200.0, ((0.0, 100.0),), True),
    ],
)
def test_how_long_is_enough(until_s: float, closed: tuple[tuple[float, float], ...], broken: bool) -> None:
    kept = Kept(epoch=1, step=30, leases=("a",), saved_s=100.0, until_s=until_s, closed=closed)
    older = Commit(manifest="m", epoch=1, step=20, at_s=90.0)
    assert bool(list(what_could_be_sent_is(story(kept, older)))) is broken
    newer = Commit(manifest="n", epoch=1, step=30, at_s=190.0)
    assert not list(what_could_be_sent_is(story(kept, older, newer)))
