"""What a look at the world costs, and what it keeps: a launcher runs for weeks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.harness import Harness, Mailbox, spec
from support.scenarios import finish

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import ThrottledError
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Machine, ObjectInfo
from arylcloud.launcher.listing import LATE_S, Ask, Lists
from arylcloud.launcher.observe import Observer
from arylcloud.launcher.pace import Pace
from arylcloud.simulation.world import World


class Counting(Mailbox):
    """Counts what the launcher asks for (the machines' side asks another object)."""

    def __init__(self, real: Mailbox) -> None:
        super().__init__(real._clock)  # type: ignore[arg-type]
        self._objects, self._lock = real._objects, real._lock
        self.calls: Counter[str] = Counter()

    def create(self, key: str, data: bytes) -> bool:
        self.calls["write"] += 1
        return super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.calls["write"] += 1
        super().put(key, data)

    def get(self, key: str) -> bytes | None:
        self.calls["read"] += 1
        return super().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self.calls["list"] += 1
        return super().list(prefix, after=after)


def watched(h: Harness) -> Counter[str]:
    """Of the harness's launcher, from now on."""
    store = Counting(h.store)
    h.launcher.executor.store = h.launcher.observer.store = h.launcher.housekeeper.store = store
    return store.calls


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_job_that_simply_runs_costs_few_requests(tmp_path: Path, nodes: int) -> None:
    """The numbers that ``launcher/observe`` states, as on a bucket: per second at most half a list, a read
    for each machine and two more, and half a write."""
    h = Harness(tmp_path, spec=spec(nodes), calm_every_s=5.0)
    h.agents.total_steps = h.agents.checkpoint_every = 10_000
    h.until(JobPhase.RUNNING)
    h.tick(10)
    h.launcher.housekeeper.every_s = 1e9
    calls = watched(h)
    h.tick(200)
    assert h.state.phase is JobPhase.RUNNING
    assert calls["list"] <= 0.5 * 200
    assert calls["read"] <= (nodes + 2) * 200
    assert calls["write"] <= 0.5 * 200 + 5


def test_what_a_heartbeat_tells_is_looked_for_at_once(tmp_path: Path) -> None:
    """A checkpoint, and the end: not up to a minute later."""
    h = Harness(tmp_path, calm_every_s=60.0)
    h.until(JobPhase.RUNNING)
    while not h.state.checkpoints:
        h.tick()
    assert h.clock.at_s - h.state.checkpoints[0].saved_at_s <= 2.0
    h.until(JobPhase.STOPPING, JobPhase.SUCCEEDED)
    ended_s = h.state.commands_ended[0]
    assert ended_s.exit_code == 0
    finish(h)
    waited_s = h.clock.at_s - (h.state.trainings[0].stopped_at_s or 0.0)
    assert waited_s < 20.0


def test_what_has_been_pruned_is_forgotten(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 400
    h.until(JobPhase.RUNNING)
    h.tick(300)
    observer: Observer = h.launcher.observer
    there = {info.key for info in h.store.list(mail.MANIFESTS_PREFIX)}
    assert len(h.state.checkpoints) > len(there) + 10, "nothing has been pruned"
    assert set(observer._checkpoints) == there
    assert not h.of(ev.CheckpointRejected)


def test_machines_that_have_left_are_forgotten(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 10_000
    for _ in range(8):
        h.until(JobPhase.RUNNING)
        h.tick(5)
        h.world.interrupt(h.running[0].instance_id)
        h.until(JobPhase.RECOVERING, JobPhase.PROVISIONING, JobPhase.WAITING)
    h.until(JobPhase.RUNNING)
    assert len(h.state.leases) >= 8
    assert len(h.launcher.observer._beats) <= 4
    assert len(h.launcher.observer._heard_s) <= 4


def test_a_cloud_is_asked_at_its_pace_and_at_once_when_something_changes(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.list_every_s = 5.0
    h.agents.total_steps = 10_000
    h.until(JobPhase.RUNNING)
    h.tick(40)
    before = h.world.lists
    h.tick(200)
    assert 40 <= h.world.lists - before <= 46
    (lease,) = h.state.open_leases
    h.world.interrupt(h.running[0].instance_id)
    h.tick(6)
    assert h.state.leases[lease.lease_id].phase is LeasePhase.RELEASED
    h.until(JobPhase.RUNNING)
    h.request("stop")
    finish(h, JobPhase.STOPPED)


def test_after_a_create_without_answer_every_look_asks(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.list_every_s = 60.0
    h.world.troubles.append("lost_answer")
    h.until(JobPhase.RUNNING)
    assert len(h.world.born) == 1
    finish(h)


def test_regions_left_long_ago_are_looked_at_less_often(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    pace = Pace(every_s=5.0)
    moments = (1000.0, 1001.0, 1006.0, 1061.0)
    offers = [pace.concerned(h.state, "aws", now_s=at_s, read_s=at_s) for at_s in moments]
    assert offers == [(), None, None, ()]  # no machine of ours there: once a minute, everywhere
    h.agents.total_steps = 10_000
    h.until(JobPhase.RUNNING)
    first = h.state.open_leases[0].offer
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING, JobPhase.PROVISIONING)
    h.until(JobPhase.RUNNING)
    second = h.state.open_leases[0].offer
    assert first.region != second.region
    h.tick(120)
    now_s = h.clock.at_s
    assert pace.concerned(h.state, "aws", now_s=now_s, read_s=now_s) == (first, second)
    assert pace.concerned(h.state, "aws", now_s=now_s + 2, read_s=now_s + 2) is None
    assert pace.concerned(h.state, "aws", now_s=now_s + 5, read_s=now_s + 5) == (second,)


def test_a_request_that_cannot_be_read_keeps_none_behind_it(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.until(JobPhase.RUNNING)
    h.requests = 1
    h.store._objects[mail.request_key(1)] = (b"{", h.clock.at_s)
    h.request("stop")
    finish(h, JobPhase.STOPPED)


def test_an_odd_answer_of_one_cloud_hides_no_machine_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    h = Harness(tmp_path, spec=spec(1))
    h.until(JobPhase.RUNNING)

    class Odd:
        """An adapter with a bug."""

        def __getattr__(self, name: str) -> object:
            return getattr(h.world, name)

        def list_machines(self, **_: object) -> tuple[()]:
            raise ValueError("could not convert string to float: 'n/a'")

    observer = h.launcher.observer
    observer.providers = {**observer.providers, "odd": Odd()}  # type: ignore[dict-item]
    observer.clouds = (*observer.clouds, "odd")
    seen = observer.observe(h.state)
    assert "odd" not in seen.listed
    assert "odd" in seen.unlisted_s
    assert h.world.cloud in seen.listed
    assert len(seen.machines) == 1
    assert "by a bug of ours" in caplog.text


# ---------------------------------------------------------------- a cloud that hangs


class Hanging(World):
    """Its list does not return until it is let go."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock, cloud="gcp")
        self.go_on = threading.Event()
        self.go_on.set()

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        found = super().list_machines(journal_id=journal_id, offers=offers)
        self.go_on.wait()
        return found


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[Harness, Hanging]]:
    """A job on aws that might go to gcp, too; its launcher does not wait long."""
    h = Harness(tmp_path)
    other = Hanging(h.clock)
    h.launcher.executor.providers["gcp"] = other  # type: ignore[index]  # the harness's own dict
    h.launcher.observer.clouds = ("aws", "gcp")
    h.launcher.observer._lists.wait_s = 0.02
    yield h, other
    other.go_on.set()
    h.journal.close()


def test_a_cloud_that_hangs_keeps_nobody_from_the_others(beside: tuple[Harness, Hanging]) -> None:
    h, other = beside
    h.agents.total_steps = 100_000
    h.until(JobPhase.RUNNING)
    other.go_on.clear()
    asked = other.lists
    lost = h.running[0]
    h.world.interrupt(lost.instance_id)
    h.tick(3)
    assert h.state.leases[lost.spec.lease_id].phase is LeasePhase.RELEASED, "aws has said so"
    assert other.lists == asked + 1, "the call under way is not made again"
    seen = h.launcher.observer.observe(h.state)
    assert seen.listed == {"aws"}
    assert seen.unlisted_s["gcp"] >= 2.0
    other.go_on.set()
    while "gcp" not in h.launcher.observer.observe(h.state).listed:
        pass  # its thread has yet to run
    assert "gcp" not in h.launcher.observer.observe(h.state).unlisted_s
    h.request("stop")
    finish(h, JobPhase.STOPPED)


def test_a_late_list_says_nothing_about_leases_that_have_come_since() -> None:
    clock, go_on = ManualClock(0.0), threading.Event()
    lists: Lists[str] = Lists(clock, wait_s=0.0)

    def call() -> str:
        go_on.wait()
        return "what there was"

    def answered(stamp: str) -> dict[str, str | Exception]:
        assert lists.ask({"aws": Ask(call=call, stamp="before")}) == {}
        go_on.set()
        lists._under_way["aws"].done.wait()
        found = lists.ask({"aws": Ask(call=call, stamp=stamp)})
        go_on.clear()
        return found

    assert answered("before") == {"aws": "what there was"}
    assert answered("after") == {}
    assert not lists.waiting("aws"), "it is asked again at the next look"
    assert lists.ask({"aws": Ask(call=call, stamp="before")}) == {}
    clock.at_s += LATE_S + 1
    go_on.set()
    lists._under_way["aws"].done.wait()
    assert lists.ask({"aws": Ask(call=call, stamp="before")}) == {}, "too old"


def test_what_a_list_raises_comes_back_to_whoever_asked() -> None:
    error = ThrottledError("429")

    def call() -> str:
        raise error

    assert Lists(ManualClock(0.0)).ask({"aws": Ask(call=call, stamp=0)}) == {"aws": error}
