"""Everything that may happen to a job, as rules; run by ``test_world_stateful`` and by the mutants."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arylcloud.core.events import NoticeSeen
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.pipeline import PipelineSpec
from support.harness import TIMING, Harness, spec

SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
TROUBLES = ("capacity", "quota", "throttled", "lost_answer", "lost_call")
SHORT, LONG = 60, 100_000
"""Steps of a job: one that ends amid its troubles, and one that outlasts them all (``quiet`` then says that
it has almost finished: a world in which the job is over can show nothing any more)."""
HOLDING = (LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.READY, LeasePhase.SUSPECT)
REQUESTS = 5
"""Of a user, in one story."""


def _under_way(self: HostileWorld) -> bool:
    return self.h is not None and not self.h.state.phase.ended


def _has_machines(self: HostileWorld) -> bool:
    return _under_way(self) and bool(self.harness.running)


def _may_ask(self: HostileWorld) -> bool:
    return _under_way(self) and self.harness.requests < REQUESTS


def _may_move(self: HostileWorld) -> bool:
    return _may_ask(self) and self.harness.state.phase is JobPhase.RUNNING


under_way = precondition(_under_way)
has_machines = precondition(_has_machines)
may_ask = precondition(_may_ask)
may_move = precondition(_may_move)
"""Rules that are drawn where they would do nothing take the place of those that would do something."""


class HostileWorld(RuleBasedStateMachine):
    """A launcher that may die between any two facts, in a world that may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.h: Harness | None = None
        self.lost: set[str] = set()

    @property
    def harness(self) -> Harness:
        assert self.h is not None
        return self.h

    # ------------------------------------------------------------ starts

    GANGS: tuple[tuple[int, int], ...] = ((1, 1), (2, 2), (1, 3), (2, 3))
    """Least and most machines; of several, the job may shrink and grow."""
    PIPELINE: PipelineSpec | None = None

    @initialize(
        gang=st.sampled_from(range(len(GANGS))),
        warm=st.booleans(),
        steps=st.sampled_from([SHORT, LONG, LONG]),
        calm_s=st.sampled_from([0.0, 5.0]),
    )
    def start(self, gang: int, warm: bool, steps: int, calm_s: float) -> None:
        """Cold: nothing exists. Warm: it trains, with one checkpoint committed."""
        least, most = self.GANGS[gang % len(self.GANGS)]
        rule = "shrink" if least < most else "replace"
        job = spec(most, nodes_min=least, on_node_loss=rule, pipeline=self.PIPELINE)
        self.h = Harness(self.folder, spec=job, calm_every_s=calm_s)
        self.h.agents.collective = least < most
        self.h.world.list_every_s = calm_s
        self.h.agents.total_steps = steps
        if warm:
            self.h.until(JobPhase.RUNNING)
            self.h.tick(13)
            assert self.h.state.checkpoints

    # ------------------------------------------------------------ the launcher

    @rule(times=st.integers(1, 12))
    def tick(self, times: int) -> None:
        self.harness.tick(times)

    @under_way
    @rule(seconds=st.integers(1, 40))
    def launcher_away(self, seconds: int) -> None:
        self.harness.pass_time(seconds)
        self.harness.restart()

    @under_way
    @rule(seconds=st.sampled_from([-3600.0, -20.0, 20.0, 3600.0]))
    def its_clock_is_set(self, seconds: float) -> None:
        self.harness.watch.ahead_s += seconds

    @under_way
    @rule(point=st.integers(1, 12), times=st.integers(1, 4))
    def crash(self, point: int, times: int) -> None:
        self.harness.crash_in = point
        self.harness.tick(times)
        self.harness.crash_in = None

    # ------------------------------------------------------------ the cloud

    @under_way
    @rule(
        trouble=st.sampled_from(TROUBLES),
        late=st.integers(1, 40),
    )
    def trouble_at_create(self, trouble: str, late: int) -> None:
        self.harness.world.troubles.append(trouble)  # type: ignore[arg-type]
        self.harness.world.landing_s = float(late)

    @under_way
    @rule()
    def dead_on_arrival(self) -> None:
        self.harness.agents.duds += 1

    @under_way
    @rule(lag=st.sampled_from([0.0, 3.0, 7.0]))
    def lists_lag(self, lag: float) -> None:
        self.harness.world.list_lag_s = lag

    @under_way
    @rule(seconds=st.integers(1, 60))
    def lists_fail(self, seconds: int) -> None:
        self.harness.world.lists_fail = True
        self.harness.tick(seconds)
        self.harness.world.lists_fail = False

    @under_way
    @rule(seconds=st.integers(1, 60))
    def histories_fail(self, seconds: int) -> None:
        self.harness.world.histories_fail = True
        self.harness.tick(seconds)
        self.harness.world.histories_fail = False

    @under_way
    @rule(fail=st.booleans())
    def ends_fail(self, fail: bool) -> None:
        """Until it says otherwise: what is asked to end meanwhile has to be asked again."""
        self.harness.world.ends_fail = fail

    @under_way
    @rule(data=st.data())
    def no_capacity(self, data: st.DataObject) -> None:
        offers = [o.key for o in self.harness.ranking]
        self.harness.world.full = set(data.draw(st.lists(st.sampled_from(offers), max_size=4)))

    @has_machines
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.harness.running))
        self.harness.world.interrupt(victim.instance_id)

    @has_machines
    @rule(data=st.data(), lead=st.integers(2, 30))
    def notice(self, data: st.DataObject, lead: int) -> None:
        victim = data.draw(st.sampled_from(self.harness.running))
        self.harness.world.notice(victim.instance_id, float(lead))

    @has_machines
    @may_ask
    @rule(late=st.sampled_from([4, 14, 14, 32, 40]), stop=st.booleans())
    def replacement_lands_late(self, late: int, stop: bool) -> None:
        """A loss; the answer to the next create is lost; perhaps the user has had enough."""
        h = self.harness
        h.world.troubles.clear()
        h.world.troubles.append("lost_answer")
        h.world.landing_s = float(late)
        h.world.interrupt(h.running[0].instance_id)
        h.tick(2)
        if stop:
            h.request("stop")
            h.tick(2)

    # ------------------------------------------------------------ mailbox and machines

    @under_way
    @rule(seconds=st.sampled_from([-600.0, -6.0, 0.0, 6.0, 600.0]))
    def clocks_differ(self, seconds: float) -> None:
        """Of the machines to come, from everybody else's."""
        self.harness.agents.clock_ahead_s = seconds

    @under_way
    @rule(seconds=st.integers(1, 60))
    def mailbox_down(self, seconds: int) -> None:
        self.harness.store.down = True
        self.harness.tick(seconds)
        self.harness.store.down = False

    @under_way
    @rule(seconds=st.integers(1, 60))
    def fence_cannot_be_read(self, seconds: int) -> None:
        """Nothing new is ended, and nothing new is asked for."""
        h = self.harness
        before = {x.lease_id for x in h.state.open_leases if x.phase is not LeasePhase.ENDING}
        h.store.fence_hidden = True
        h.tick(seconds)
        h.store.fence_hidden = False
        ending = {x.lease_id for x in h.state.open_leases if x.phase is LeasePhase.ENDING}
        assert not before & ending, "ended without a look at the fence"

    @under_way
    @rule()
    def mailbox_loses_an_answer(self) -> None:
        self.harness.store.lose_answers = 1
        self.harness.tick()
        self.harness.store.lose_answers = 0

    @has_machines
    @rule(data=st.data(), seconds=st.integers(1, 50))
    def machine_cut_off(self, data: st.DataObject, seconds: int) -> None:
        machine = data.draw(st.sampled_from(self.harness.running))
        self.harness.agents.silence(machine.instance_id, float(seconds))

    # ------------------------------------------------------------ the user

    @may_move
    @rule(where=st.sampled_from(["aws/us-east-1", "aws/us-west-2", "aws/eu-west-1"]))
    def migrate(self, where: str) -> None:
        self.harness.request("migrate", to=where)
        self.harness.tick()

    @may_move
    @rule(where=st.sampled_from(["aws/us-west-2", "aws/eu-west-1"]))
    def migrate_in_vain(self, where: str) -> None:
        """Of several new machines the last is not to be had."""
        h = self.harness
        h.world.full.clear()
        h.world.troubles.clear()
        h.world.troubles.extend(["none"] * (h.state.wanted - 1) + ["capacity"])
        h.request("migrate", to=where)
        h.tick(3)

    @may_move
    @rule(nodes=st.integers(1, 4))
    def scale(self, nodes: int) -> None:
        self.harness.request("scale", nodes=nodes)
        self.harness.tick(2)

    @may_ask
    @rule()
    def stop(self) -> None:
        self.harness.request("stop")

    @precondition(lambda self: self.h is not None and self.h.state.phase is JobPhase.STOPPED)
    @rule()
    def resume(self) -> None:
        self.harness.resume()

    # ------------------------------------------------------------ what must always hold

    @invariant()
    def holds(self) -> None:
        if self.h is not None:
            self.h.check()

    @invariant()
    def nothing_new_once_it_ends(self) -> None:
        """No create after a stop or a terminal intent (a machine that was asked for may still land)."""
        if self.h is None or self.h.state.phase not in (JobPhase.STOPPING, JobPhase.STOPPED):
            return
        late = [x for x in self.h.state.leases.values() if x.intended_at_s > self.h.state.phase_since_s]
        assert not late, f"{late[0].lease_id} was asked for after {self.h.state.phase}"

    @invariant()
    def one_machine_per_slot(self) -> None:
        """At most one lease that fills a slot, beside the target of a move; and beside what is left of a gang
        and works until it hands over to more machines of another offer (those of a move that has failed)."""
        if self.h is None:
            return
        state = self.h.state
        filling = [x for x in state.leases.values() if x.phase in HOLDING]
        slots = Counter(key for key, _ in {(x.offer.key, x.index) for x in filling})
        full = max(slots.values(), default=0)
        left = {x for x in self._at_work() if slots[state.leases[x].offer.key] < full}
        most = 2 if state.migration is not None or not self.h.clean else 1
        for index in range(state.spec.nodes_max):
            found = [x.lease_id for x in filling if x.index == index and x.lease_id not in left]
            assert len(found) <= most, found

    def _at_work(self) -> set[str]:
        """Members of the newest epoch that has some."""
        working = next((e for e in reversed(self.harness.state.epochs) if e.members), None)
        return {m.lease_id for m in working.members} if working is not None else set()

    @invariant()
    def no_more_than_are_wanted(self) -> None:
        """Beside a move, and machines that have yet to hand over; a silent one counts as one of them."""
        if self.h is None or self.h.state.migration is not None or not self.h.clean:
            return
        state = self.h.state
        spec = state.spec
        wanted = spec.nodes_max if state.size is None else state.size
        filling = [x for x in state.leases.values() if x.phase in HOLDING]
        assert len([x for x in filling if x.lease_id not in self._at_work()]) <= wanted

    @invariant()
    def cut_off_is_not_lost(self) -> None:
        """A machine that its cloud lists as running is neither ended nor replaced for its silence."""
        if self.h is None:
            return
        for lease in self.h.state.leases.values():
            if lease.ending_code == "lost" and lease.lease_id not in self.lost:
                self.lost.add(lease.lease_id)
                cut_off_s = self.h.clock.at_s - self.h.listed_at_s
                assert cut_off_s >= TIMING.lost_s, f"given up after {cut_off_s} s without its cloud"
        for lease in self.h.state.leases.values():
            if lease.phase is LeasePhase.RELEASED and lease.cause == "unknown":
                machine = self.h.machine_of(lease) if lease.instance_id else None
                assert machine is None or machine.ended_s is not None, "released, and its cloud lists it"

    @invariant()
    def first_try_is_elsewhere(self) -> None:
        """After a loss or a notice, the next first choice of a lone machine is in another region, unless
        every other one is barred."""
        if self.h is None or self.h.state.spec.nodes_max > 1:
            return
        noticed = {e.lease_id for e in self.h.of(NoticeSeen)}  # type: ignore[attr-defined]
        for lease in self.h.state.leases.values():
            if lease.purpose != "replace":
                continue
            before = [
                x
                for x in self.h.state.leases.values()
                if x.attempt < lease.attempt and (x.cause == "interrupted" or x.lease_id in noticed)
            ]
            if not before or before[-1].attempt != lease.attempt - 1:
                continue
            lost = before[-1]
            regions = {o.region for o in self.h.ranking}
            cool = lease.intended_at_s - (lost.ended_at_s or lost.since_s) < TIMING.region_cooldown_market_s
            bars = [b for b in self.h.state.bars if b.until_s > lease.intended_at_s]
            others = list(self.h.state.cooling)
            if cool and not bars and len(others) < len(regions) and not self.h.world.full:
                assert lease.offer.region != lost.offer.region, "back to the region that just took one away"

    def teardown(self) -> None:
        try:
            if self.h is not None:
                self.quiet()
        finally:
            if self.h is not None:
                self.h.journal.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def comes_to_its_size(self) -> None:
        """An elastic job that runs on has as many machines as it should, once nothing stands in the way."""
        h = self.harness
        if h.state.spec.nodes_min == h.state.spec.nodes_max or h.agents.total_steps < LONG:
            return
        for _ in range(600):
            state = h.state
            if state.phase.ended or state.phase is JobPhase.STOPPING:
                return
            size = state.spec.nodes_max if state.size is None else state.size
            if state.epoch is not None and len(state.epoch.members) == size and state.migration is None:
                return
            h.tick()
            h.check()
        raise AssertionError(f"{h.state.epochs[-1]} after 600 s, though nothing stands in the way")

    def quiet(self) -> None:
        """The world heals; the job must come to rest, and everything must add up."""
        h = self.harness
        h.world.troubles.clear()
        h.world.full = set()
        h.world.ends_fail = False
        h.world.list_lag_s = 0.0
        h.agents.duds = 0
        h.crash_in = None
        self.comes_to_its_size()
        done = max((agent.step for agent in h.agents.by_instance.values()), default=0)
        h.agents.total_steps = min(h.agents.total_steps, done + 15)
        for _ in range(400):
            if h.state.phase.ended and not h.world.landing:
                break
            h.tick()
            h.check()
            if h.state.phase.ended and h.world.landing:
                h.pass_time()
        h.check_ended()
        tired = h.state.phase_code == "bad_starts"  # five in a row: that is what it is for
        assert tired or h.state.phase in (JobPhase.SUCCEEDED, JobPhase.STOPPED), h.state.phase_text
        before = len(h.events)
        h.restart()
        assert len(h.events) == before, "an ended job is left alone"
