"""The real launcher under a deadline policy on a trace: beside the replay of that policy on that trace.

Journal, observer, executor, reconcile, the planner behind ``desire``: the product's. Modelled are the cloud
(``world``), whose zones are full and whose machines are lost as the trace says, and the agents' effects
(``world_agents``). Time goes in steps of half a minute; nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import CheckpointSpec, Constraints, InlineRate, JobSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase
from arylcloud.core.plan import Plan
from arylcloud.core.ports import Billing, PricePoint
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.desire import Desires
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.loop import JobLauncher
from arylcloud.launcher.probe import no_probe
from arylcloud.launcher.quotes import Quotes
from arylcloud.launcher.reconcile.lifecycle import FINISHED
from arylcloud.launcher.state import JobState
from arylcloud.planner.single import plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers, overlay
from arylcloud.simulation.chaos_launcher import build
from arylcloud.simulation.chaos_sky import bill_micro
from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.spottraces import Grid, SpotTrace
from arylcloud.simulation.world import World
from arylcloud.simulation.world_agents import Agents

BEGAN_S: Final = 1_000_000.0
CLOUD: Final = "aws"
REGIONS: Final = ("us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1")
JOB_ID: Final = "due-0a1b2c3d"
CAN: Final = "can"
NEWS: Final = 8
"""Passes of the launcher in one step, as long as it journals something: its loop then comes back at once."""


def named(trace: SpotTrace) -> SpotTrace:
    """An invented trace with regions that have tariffs."""
    renamed = {region: f"{CLOUD}/{REGIONS[i]}" for i, region in enumerate(trace.regions)}
    places = []
    for place in trace.places:
        region, _, zone = place.rpartition("/")
        places.append(f"{renamed[region]}/{renamed[region].partition('/')[2]}{zone[-1]}")
    return replace(trace, places=tuple(places), instance_type="p3.2xlarge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What came of one run."""

    usd: float
    """Machines by the world's own bill, and egress."""
    egress_usd: float
    said: str
    """Of its deadline, at submission: what ``launch`` says (``can``), or why it would refuse."""
    near: str | None
    """What the launcher said of it first, as soon as not even p90 was in time; None = it never did."""
    near_h: float | None
    """And when."""
    finish_h: float
    """When its work was done. Infinite: not at twice its deadline."""
    missed: bool
    interruptions: int
    moves: int
    """Starts at another offer than before."""
    refused: int
    spot_h: float
    on_demand_h: float
    waited_h: float
    """By the policy's choice."""
    waited_too_long_s: float
    """Beyond the latest safe start that was stated, at most."""
    leaked: int
    """Machines that run after the end, or that no lease stands for."""


@dataclass(slots=True)
class DueLive:
    grid: Grid
    job: Job
    start: int
    folder: Path
    policy: str | None = None
    egress_usd: float = 0.1
    """Of a checkpoint, between any two regions; for the bill."""
    checkpoint_gb: float = 5.0
    machines: int = 1
    boot_s: float = 600.0
    step_s: float = 30.0
    save_every: int = 10
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGAN_S))
    world: World = field(init=False)
    agents: Agents = field(init=False)
    launcher: JobLauncher = field(init=False)
    state: JobState = field(init=False)
    journal: Journal = field(init=False)
    offers: tuple[Offer, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.offers = self._offers()
        self.world = World(
            clock=self.clock,
            cloud=CLOUD,
            billing=Billing(first_hour_interruption_free=False),
            steps={offer.key: self._steps(offer) for offer in self.offers},
            end_takes_s=1.0,
        )
        store = MemoryStore(f"memory://jobs/{JOB_ID}", clock=self.clock)
        steps = round(self.job.work_h * 3600 / self.step_s)
        self.agents = Agents(
            world=self.world,
            store=store,
            job_id=JOB_ID,
            total_steps=steps,
            checkpoint_every=self.save_every,
            boot_s=self.boot_s,
        )
        self.journal = Journal(self.folder / "journal.db")
        timing = Timing(
            tick_s=self.step_s,
            silent_s=4 * self.step_s,
            boot_timeout_s=3 * self.boot_s,
            list_lag_s=2 * self.step_s,
        )
        submitted = ev.JobSubmitted(
            spec=self.spec(steps),
            prefix_uri=store.uri,
            journal_id=self.journal.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
            nodes=self.confirmed(steps),
        )
        self.journal.append(JOB_ID, self.clock.at_s, "cli", submitted, None, mirror=store)
        self.launcher = build(
            job_id=JOB_ID,
            writer="l-1",
            journal=self.journal,
            store=store,
            providers={CLOUD: self.world},
            clock=self.clock,
            timing=timing,
            desire=Desires(
                providers={CLOUD: self.world},
                plan=self._plan,
                timing=timing,
                quotes=Quotes({}, self.clock),
                refresh_s=600.0,
            ),
            probe=no_probe,
        )
        self.state = self.launcher.start()

    def confirmed(self, steps: int) -> int | None:
        """The number of machines that a user has confirmed; None: all."""
        del steps
        return None

    def promised(self) -> str:
        """``can``, or why ``launch`` would refuse: no place keeps the deadline if things go badly (p90)."""
        try:
            self._plan(self.spec(self.agents.total_steps), quoted=(), also=())
        except InfeasibleError as error:
            return error.message
        return CAN

    def spec(self, steps: int) -> JobSpec:
        rate = InlineRate(gpu="V100", count=1, rate=1.0 / self.step_s / self.machines)
        return JobSpec(
            name="due",
            run="python train.py",
            profile=ProfileRef(rates=(rate,), unit="steps/s"),
            work=Work(amount=float(steps), unit="steps"),
            constraints=Constraints(deadline_s=self.job.deadline_h * 3600.0),
            checkpoint=CheckpointSpec(size_gb=self.checkpoint_gb, interval_s=self.save_every * self.step_s),
            nodes_min=self.machines,
            nodes_max=self.machines,
            policy=self.policy,
        )

    def run(self) -> Lived:
        region: str | None = None
        egress, moves, last = 0.0, 0, None
        waited_s = too_long_s = 0.0
        tick, done_h, said = -1, np.inf, self.promised()
        while not self.state.phase.ended and self.hours < 2 * self.job.deadline_h:
            now = int((self.clock.at_s - BEGAN_S) // self.grid.tick_s)
            if now != tick:
                tick = now
                self._weather(tick)
            self.agents.step()
            for _ in range(NEWS):
                before = self.state.seq
                self.state = self.launcher.tick(self.state)
                if self.state.phase is JobPhase.STOPPING and self.state.phase_code == FINISHED:
                    done_h = min(done_h, (self.state.phase_since_s - BEGAN_S) / 3600.0)
                if self.state.seq == before or self.state.phase.ended:
                    break
            if self.state.phase is JobPhase.WAITING and self.state.phase_until_s is not None:
                waited_s += self.step_s
                too_long_s = max(too_long_s, self.clock.at_s - self.state.phase_until_s)
            if not self.state.phase.ended:
                self.world.advance(self.step_s)
        for epoch in self.state.epochs:
            if not epoch.members:
                continue
            offer = self.state.leases[epoch.members[0].lease_id].offer
            moves += last is not None and offer.key != last
            egress += self.egress_usd if region is not None and offer.region != region else 0.0
            region, last = offer.region, offer.key
        born = self.world.born.values()
        ended = self.state.phase is JobPhase.SUCCEEDED
        hours = dict.fromkeys(Market, 0.0)
        for machine in born:
            if machine.ended_s is not None:
                hours[machine.spec.offer.market] += (machine.ended_s - machine.lands_at_s) / 3600.0
        usd = sum(bill_micro(self.world, m) for m in born if m.ended_s is not None) / 1e6 + egress
        unknown = sum(m.spec.lease_id not in self.state.leases for m in born)
        near = next(
            (r for r in self.journal.records(JOB_ID) if isinstance(r.event, ev.LimitNear)),
            None,
        )
        self.journal.close()
        return Lived(
            usd=usd,
            egress_usd=egress,
            said=said,
            near=near.event.text if near is not None and isinstance(near.event, ev.LimitNear) else None,
            near_h=None if near is None else (near.at_s - BEGAN_S) / 3600.0,
            finish_h=done_h if ended else np.inf,
            missed=not ended or done_h > self.job.deadline_h,
            interruptions=self.state.interruptions,
            moves=moves,
            refused=sum(x.refusal is not None for x in self.state.leases.values()),
            spot_h=hours[Market.SPOT],
            on_demand_h=hours[Market.ON_DEMAND],
            waited_h=waited_s / 3600.0,
            waited_too_long_s=too_long_s,
            leaked=len(self.world.alive) + unknown,
        )

    @property
    def hours(self) -> float:
        """Since submission."""
        return (self.clock.at_s - BEGAN_S) / 3600.0

    # ------------------------------------------------------------ the trace

    def _offers(self) -> tuple[Offer, ...]:
        grid = self.grid
        spot = [
            self._offer(place, Market.SPOT, grid.spot_usd[self.start, z])
            for z, place in enumerate(grid.places)
        ]
        listed = [
            self._offer(
                f"{region}/{region.partition('/')[2]}a", Market.ON_DEMAND, grid.on_demand_usd[self.start, r]
            )
            for r, region in enumerate(grid.regions)
        ]
        return (*spot, *listed)

    def _offer(self, place: str, market: Market, usd: float) -> Offer:
        cloud, region, zone = place.split("/")
        return Offer(
            cloud=cloud,
            region=region,
            zone=zone,
            instance_type="p3.2xlarge",
            gpu="V100",
            gpu_count=1,
            gpu_mem_gib=16.0,
            vcpus=8.0,
            mem_gib=61.0,
            market=market,
            usd_per_hour=float(usd) / self.machines,
            as_of="2026-11-30",
            source="trace",
        )

    def _column(self, offer: Offer) -> np.ndarray:
        at = self.offers.index(offer)
        zones = len(self.grid.places)
        usd = self.grid.spot_usd[:, at] if at < zones else self.grid.on_demand_usd[:, at - zones]
        return usd[self.start :] / self.machines

    def _steps(self, offer: Offer) -> tuple[PricePoint, ...]:
        usd = self._column(offer)
        changed = np.flatnonzero(np.append(True, usd[1:] != usd[:-1]))
        return tuple(
            PricePoint(from_s=BEGAN_S + float(i) * self.grid.tick_s, usd_per_hour=float(usd[i]))
            for i in changed
        )

    def _weather(self, tick: int) -> None:
        row = min(self.start + tick, self.grid.up.shape[0] - 1)
        spot = self.offers[: len(self.grid.places)]
        self.world.full = {o.key for z, o in enumerate(spot) if not self.grid.up[row, z]}
        for machine in self.world.alive:
            if machine.spec.offer.key in self.world.full:
                self.world.interrupt(machine.instance_id)

    def _plan(self, spec: JobSpec, *, quoted: Sequence[Offer], also: Sequence[Offer]) -> Plan:
        now_s = self.clock.at_s
        priced = [
            replace(
                o, usd_per_hour=[p.usd_per_hour for p in self.world.steps[o.key] if p.from_s <= now_s][-1]
            )
            for o in self.offers
        ]
        assumed = Assumptions(default_boot_s=self.boot_s, boot_s={CLOUD: self.boot_s})
        table = overlay(from_offers(priced), from_offers(quoted)) if quoted else from_offers(priced)
        return plan_job(spec, table, also=tuple(also), limit=200, assumptions=assumed)
