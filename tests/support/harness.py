"""The real journal, observer, executor and reconcile against the hostile world, one tick at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ArylError, ConflictError, IntegrityError, LocalStateError, StoreError
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import ObjectInfo, Provider
from arylcloud.launcher import actions as act
from arylcloud.launcher.executor import Boot, Executor
from arylcloud.launcher.housekeeping import Housekeeper
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.loop import JobLauncher
from arylcloud.launcher.observe import Observer
from arylcloud.launcher.resuming import resume
from arylcloud.launcher.state import JobState, Lease
from arylcloud.simulation.chaos_store import Skewed
from arylcloud.simulation.world import World, WorldMachine
from arylcloud.simulation.world_agents import Agents

JOB = "digits-0a1b2c3d"
TIMING = act.Timing(
    silent_s=5.0,
    lost_s=40.0,
    boot_timeout_s=30.0,
    landing_s=15.0,
    list_lag_s=8.0,
    drain_timeout_s=20.0,
    end_retry_s=3.0,
    prices_patience_s=40.0,
    region_cooldown_market_s=60.0,
    capacity_bar_market_s=25.0,
    quota_bar_market_s=60.0,
    gather_s=12.0,
    grow_every_s=30.0,
    regain_s=10.0,
)


def offer(
    region: str = "us-east-1", zone: str = "a", usd: float = 1.0, market: Market = Market.SPOT
) -> Offer:
    return Offer(
        cloud="aws",
        region=region,
        zone=f"{region}-{zone}",
        instance_type="p3.2xlarge",
        gpu="V100",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=8.0,
        mem_gib=61.0,
        market=Market.SPOT,
        usd_per_hour=usd,
        as_of="2026-09-01",
        source="test",
    )


OFFERS = (offer(usd=1.0), offer(zone="b", usd=1.1), offer("us-west-2", usd=1.2), offer("eu-west-1", usd=1.4))


class Crash(BaseException):
    """The launcher's process is no more. (Not an Exception: nothing may catch it.)"""


class Mailbox(MemoryStore):
    """A store that can be cut off, as a whole or in the middle: the write lands, its answer does not."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(f"memory://jobs/{JOB}", clock=clock)
        self.down = False
        self.fence_hidden = False
        """It answers everything but reads of the journal."""
        self.lose_answers = 0

    def _up(self) -> None:
        if self.down:
            raise StoreError("the mailbox cannot be reached")

    def create(self, key: str, data: bytes) -> bool:
        self._up()
        done = super().create(key, data)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreError("the answer was lost")
        return done

    def put(self, key: str, data: bytes) -> None:
        self._up()
        super().put(key, data)

    def get(self, key: str) -> bytes | None:
        self._up()
        if self.fence_hidden and key.startswith(mail.JOURNAL_PREFIX):
            raise StoreError("this one cannot be read")
        return super().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self._up()
        return super().list(prefix, after=after)


class Watch(Skewed):
    """The clock on the launcher's wall: it may be set. Who sleeps here lets time pass."""

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


def fast(journal: Journal) -> Journal:
    """Without waiting for a disk: these tests are about order, not about power cuts."""
    connection: sqlite3.Connection = journal._db._connection
    connection.execute("PRAGMA synchronous = OFF")
    return journal


@dataclass
class Harness:
    """One job, its world, and a launcher that may be killed at any crash point and started again."""

    folder: Path
    spec: JobSpec = field(default_factory=lambda: JobSpec(name="digits", run="python train.py"))
    ranking: tuple[Offer, ...] = OFFERS
    timing: act.Timing = TIMING
    move: act.MoveAdvice | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    scaling: act.Scaling | None = None
    spent_usd: float | None = None
    calm_every_s: float = 0.0
    """As on a bucket, whose lists cost money."""
    crash_in: int | None = None
    """Crash at so many crash points from now."""
    points: int = 0
    writers: int = 0
    actions: list[act.Action] = field(default_factory=list)
    started: bool = True
    clean: bool = True
    """The last pass went through: no crash, no mailbox that did not answer."""
    ended_at_s: float = 0.0
    """When the last pass over a job that had not ended began: the world's time, as is the next."""
    listed_at_s: float = 0.0
    """When the launcher last looked and the cloud answered."""
    refused: Exception | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.watch = Watch(self.clock)
        self.world = World(clock=self.clock)
        self.store = Mailbox(self.clock)
        self.agents = Agents(world=self.world, store=self.store, job_id=JOB)
        self.journal = fast(Journal(self.folder / "journal.db"))
        self.requests = 0
        submitted = ev.JobSubmitted(
            spec=self.spec,
            prefix_uri=self.store.uri,
            journal_id=self.journal.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
        )
        self.journal.append(JOB, self.clock.at_s, "cli", submitted, None, mirror=self.store)
        self.launcher = self.new_launcher(self.journal)
        self.state = self.launcher.start()

    def new_launcher(self, journal: Journal) -> JobLauncher:
        self.writers += 1
        providers: dict[str, Provider] = {"aws": self.world}
        executor = Executor(
            journal=journal,
            store=self.store,
            providers=providers,
            writer=f"l-{self.writers}",
            clock=self.watch,
            timing=self.timing,
            boot=lambda action: Boot(user_data="stub"),
            notify=lambda topic, text: text,
            probe=self._probe,
        )
        return JobLauncher(
            job_id=JOB,
            journal=journal,
            executor=executor,
            observer=Observer(
                store=self.store,
                providers=providers,
                clouds=("aws",),
                clock=self.watch,
                calm_every_s=self.calm_every_s,
            ),
            desire=self._desire,
            clock=self.watch,
            timing=self.timing,
            housekeeper=Housekeeper(store=self.store, every_s=20.0),
        )

    def _probe(self, _point: str) -> None:
        self.points += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                raise Crash

    def _desire(self, state: JobState, observed: act.Observed, now_s: float) -> act.Desired:
        cap = state.spec.constraints.max_usd_per_hour
        return act.Desired(
            ranking=tuple(o for o in self.ranking if cap is None or (o.usd_per_hour or 0) <= cap),
            move=self.move,
            sizes=self.sizes,
            scaling=self.scaling,
            capabilities={"aws": self.world.capabilities()},
            timing=self.timing,
            spent_usd=self.spent_usd,
        )

    # ------------------------------------------------------------ time

    def pass_time(self, seconds: int = 1) -> None:
        """The world alone: the launcher is away."""
        for _ in range(seconds):
            self.world.advance(1.0)
            self.agents.step()

    def tick(self, times: int = 1) -> JobState:
        """``times`` seconds of world and launcher; a crash is a restart at the next second."""
        for _ in range(times):
            self.pass_time()
            self.launch_once()
        return self.state

    def launch_once(self) -> None:
        """One pass of the launcher, as its loop would do it, errors included."""
        if self.state.phase.ended:
            return
        self.ended_at_s = self.clock.at_s
        if not self.started:
            self.restart()
            return
        self.clean = False
        if not self.world.lists_fail:
            self.listed_at_s = self.clock.at_s
        try:
            self.state = self.launcher.tick(self.state)
            self.clean = True
        except Crash:
            self.restart()
        except ArylError as error:
            if isinstance(error, (ConflictError, IntegrityError, LocalStateError)):
                raise
            self.refused = error
            self.state = self.launcher.refold()

    def restart(self) -> None:
        """A new process: all that it knows lies in the journal and the mailbox. Without a mailbox it
        cannot begin: whoever starts it tries again."""
        self.launcher = self.new_launcher(self.journal)
        self.started = False
        try:
            self.state = self.launcher.start()
            self.started = True
        except StoreError as error:
            self.refused = error
        except Crash:
            self.restart()

    def until(self, *phases: JobPhase, within: int = 200) -> JobState:
        for _ in range(within):
            if self.state.phase in phases:
                return self.state
            self.tick()
        raise AssertionError(f"{self.state.phase} ({self.state.phase_text}) after {within} s, not {phases}")

    # ------------------------------------------------------------ what users and clouds do

    def request(self, verb: str, *, clock_ahead_s: float = 0.0, **args: object) -> None:
        self.requests += 1
        document = mail.RequestDoc(
            number=self.requests,
            verb=verb,  # type: ignore[arg-type]
            args=dict(args),
            at_s=self.clock.at_s + clock_ahead_s,
            by="user@host",
        )
        MemoryStore.create(self.store, mail.request_key(self.requests), dumps(document))

    def resume(self) -> None:
        """Tried again until the mailbox answers, as a user would."""
        try:
            resume(self.journal, JOB, self.store, writer="cli", wall_s=self.watch.now_s)
        except StoreError as error:
            self.refused = error
        self.restart()

    @property
    def running(self) -> tuple[WorldMachine, ...]:
        return self.world.alive

    def machine_of(self, lease: Lease) -> WorldMachine:
        assert lease.instance_id is not None
        return self.world.born[lease.instance_id]

    @property
    def events(self) -> tuple[ev.Event, ...]:
        return tuple(record.event for record in self.journal.records(JOB))

    def of(self, kind: type) -> list[ev.Event]:
        return [event for event in self.events if isinstance(event, kind)]

    # ------------------------------------------------------------ what must always hold

    def check(self) -> None:
        now_s = self.clock.at_s
        leases = self.state.leases
        by_token = {m.spec.token: m for m in self.world.born.values()}
        for machine in self.world.born.values():
            assert machine.spec.lease_id in leases, f"{machine.instance_id} was asked for before the journal"
        for lease in leases.values():
            machine = by_token.get(lease.token)
            if lease.phase is LeasePhase.RELEASED and lease.instance_id is not None and machine is not None:
                late = (lease.created_at_s or 0.0) > (lease.ended_at_s or 0.0)
                assert late or not machine.alive(now_s), f"{lease.lease_id} is RELEASED, and still runs"
                in_time = machine.lands_at_s <= machine.asked_at_s + self.timing.landing_s
                assert not (late and in_time), f"{lease.lease_id} was closed while its machine could land"
        epochs = [e for e in self.state.epochs if e.members]
        for before, after in pairwise(epochs):
            good = [
                c.step
                for c in self.state.checkpoints
                if c.manifest not in self.state.rejected and c.epoch <= before.number
            ]
            assert after.resume_step >= max(good, default=0), "a committed checkpoint was passed over"
        for epoch in epochs:
            ranks = {m.lease_id: m.rank for m in epoch.members}
            spec = self.state.spec
            assert sorted(ranks.values()) == list(range(len(epoch.members))), "ranks have a gap"
            assert spec.nodes_min <= len(ranks) <= spec.nodes_max
            offers = {leases[lease_id].offer.key for lease_id in ranks}
            assert len(offers) == 1, f"epoch {epoch.number} lives in {offers}"

    def check_ended(self) -> None:
        """Observed = desired, everything paid is journaled, every closed lease is really gone."""
        assert self.state.phase.ended, f"{self.state.phase}: {self.state.phase_text}"
        assert self.state.phase_code, "a terminal phase without a cause"
        assert self.state.phase_text, "a terminal phase without a text"
        assert not self.state.open_leases
        leases = self.state.leases
        for machine in self.world.born.values():
            too_late = machine.lands_at_s > machine.asked_at_s + self.timing.landing_s
            if too_late and machine.visible_at_s > self.ended_at_s:
                continue  # beyond what a create may do, and shown after the job: `gc` is for that
            assert machine.ended_s is not None, f"still paid for: {machine.instance_id}"
            lease = leases[machine.spec.lease_id]
            assert lease.instance_id == machine.instance_id, f"{machine.instance_id} is not in the journal"
            assert lease.launched_s == machine.lands_at_s
            assert lease.ended_s is not None
            assert lease.ended_s >= (machine.ended_s or 0.0) - 1e-6, "paid for longer than journaled"
        # replay from the journal, and from the mailbox alone, tell the same story
        assert self.journal.state(JOB) == self.state


def spec(nodes: int = 1, **changes: object) -> JobSpec:
    base = JobSpec(name="digits", run="python train.py", nodes_min=nodes, nodes_max=nodes)
    return replace(base, **changes)  # type: ignore[arg-type]


def capped(usd: float) -> JobSpec:
    return spec(constraints=Constraints(max_usd_per_hour=usd))


def regions(leases: Sequence[Lease]) -> list[str]:
    return [lease.offer.region for lease in leases]
