"""What the clouds of the chaos do, by one seeded generator: capacity that comes and goes, prices that move,
lists that lag or fail, answers that are lost, machines that are taken with a word or without.

Everything stays within what the ports promise (a create lands within ``Timing.landing_s``, a list lags less
than ``Timing.list_lag_s``, ends are shown for ten minutes): beyond that nothing could be promised either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from arylcloud.core.clock import ManualClock
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Billing, EndCause, MachineSpec, PricePoint
from arylcloud.simulation.chaos_store import OUTAGES
from arylcloud.simulation.story import MachineTruth
from arylcloud.simulation.world import Trouble, World, WorldMachine

TYPES = {"aws": "p3.2xlarge", "gcp": "n1-standard-8-v100-1"}
REGIONS = {"aws": ("us-east-1", "us-west-2"), "gcp": ("us-central1", "europe-west4")}
SPELLS: Mapping[str, tuple[float, float, float]] = {
    # how often an hour, shortest, longest (seconds)
    "aws cannot be listed": (2.0, 20.0, 150.0),
    "gcp cannot be listed": (2.0, 20.0, 150.0),
    "nothing can be ended": (2.0, 10.0, 60.0),
    "no price history": (2.0, 20.0, 120.0),
    "the store is away": (2.0, 5.0, 100.0),
    "the store is full": (1.0, 5.0, 100.0),
    "the store is read-only": (1.0, 5.0, 100.0),
    "credentials have expired": (1.0, 5.0, 100.0),
    "throttled": (3.0, 10.0, 60.0),
}
LOSSES_PER_S = 1 / (20 * 60)
"""Of each spot machine: half of them announced."""
FULL_EVERY_S, FULL_FOR_S = 720.0, 240.0
PRICE_EVERY_S = 600.0
OUTAGE_WITH_NOTICE = 0.3
"""Share of notices during which the store goes away, too: for a part of the time, or beyond it."""
NOTICE_TOO = 0.3
"""Share of notices with which another machine has one that overlaps with it."""


def offers() -> tuple[Offer, ...]:
    """Two clouds, two regions each, two zones each on spot; one zone each on demand."""
    found = []
    for cloud, regions in REGIONS.items():
        for r, region in enumerate(regions):
            for z, zone in enumerate("ab"):
                usd = 0.9 + 0.1 * r + 0.07 * z + (0.05 if cloud == "gcp" else 0.0)
                found.append(_offer(cloud, region, f"{region}-{zone}", Market.SPOT, usd))
            found.append(_offer(cloud, region, f"{region}-a", Market.ON_DEMAND, 3.06 + 0.02 * r))
    return tuple(found)


def _offer(cloud: str, region: str, zone: str, market: Market, usd: float) -> Offer:
    return Offer(
        cloud=cloud,
        region=region,
        zone=zone,
        instance_type=TYPES[cloud],
        gpu="V100",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=8.0,
        mem_gib=61.0,
        market=market,
        usd_per_hour=usd,
        as_of="2026-11-30",
        source="chaos",
    )


@dataclass(slots=True)
class Sky:
    """The clouds of one home's jobs (a journal sees its own machines alone), and their weather."""

    clock: ManualClock
    rng: np.random.Generator
    hours: float
    began_s: float
    worlds: dict[str, World] = field(default_factory=dict)
    spells: list[tuple[str, float, float]] = field(default_factory=list)
    losses: int = 0
    notices: int = 0
    clear: bool = False
    _offers: tuple[Offer, ...] = field(default_factory=offers)
    _spot: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By cloud: the keys of its offers whose capacity comes and goes."""
    _on: tuple[float, frozenset[str]] = (-math.inf, frozenset())
    _ranked: tuple[Offer, ...] = ()
    _moves_s: dict[str, float] = field(default_factory=dict)
    """By cloud: when the next of its prices moves, by its own clock."""

    def __post_init__(self) -> None:
        for cloud in REGIONS:
            self.worlds[cloud] = World(
                clock=self.clock,
                cloud=cloud,
                notice_s=120.0 if cloud == "aws" else 30.0,
                billing=Billing(first_hour_interruption_free=cloud == "aws"),
                list_every_s=10.0,
                forget_s=900.0,
                ahead_s=float(self.rng.uniform(-60, 60)),
                list_lag_s=float(self.rng.uniform(0, 40)),
                end_lag_s=float(self.rng.uniform(0, 20)),
                trouble_of=self._trouble,
                steps={o.key: self._prices(o) for o in self._offers if o.cloud == cloud},
            )
        self._spot = {
            cloud: tuple(o.key for o in self._offers if o.cloud == cloud and o.market is Market.SPOT)
            for cloud in REGIONS
        }
        self.spells = self._spells()

    def _prices(self, offer: Offer) -> tuple[PricePoint, ...]:
        usd = offer.usd_per_hour or 0.0
        points = [PricePoint(from_s=0.0, usd_per_hour=usd)]
        at_s = self.began_s
        while offer.market is Market.SPOT and at_s < self.began_s + 3 * 3600 * self.hours:
            at_s += float(self.rng.exponential(PRICE_EVERY_S)) + 1.0
            moved = round(usd * float(self.rng.uniform(0.75, 1.3)), 4)
            points.append(PricePoint(from_s=at_s, usd_per_hour=moved))
        return tuple(points)

    def _spells(self) -> list[tuple[str, float, float]]:
        found = []
        for name, (per_hour, least_s, most_s) in SPELLS.items():
            for _ in range(max(1, round(per_hour * self.hours))):
                from_s = self.began_s + float(self.rng.uniform(0.02, 0.9)) * 3600 * self.hours
                found.append((name, from_s, from_s + float(self.rng.uniform(least_s, most_s))))
        return found

    def is_on(self, name: str) -> bool:
        now_s = self.clock.at_s
        if self._on[0] != now_s:
            self._on = (now_s, frozenset(n for n, a, b in self.spells if a <= now_s < b))
        return not self.clear and name in self._on[1]

    @property
    def outage(self) -> str | None:
        """Of the store: one of ``OUTAGES``."""
        return next((name for name in OUTAGES if self.is_on(name)), None)

    def _trouble(self, _spec: MachineSpec) -> Trouble:
        if self.clear:
            return "none"
        if self.is_on("throttled"):
            return "throttled"
        for world in self.worlds.values():
            world.landing_s = float(self.rng.uniform(1, 70))
        chances: dict[Trouble, float] = {
            "throttled": 0.04,
            "capacity": 0.05,
            "lost_answer": 0.05,
            "lost_call": 0.03,
            "capacity_and_lands": 0.02,
            "quota": 0.002,
        }
        drawn = float(self.rng.random())
        for trouble, chance in chances.items():
            drawn -= chance
            if drawn < 0:
                return trouble
        return "none"

    def ranking(self) -> tuple[Offer, ...]:
        """Every offer at its price now, the cheapest first: what a planner would say of one type."""
        own_s = {cloud: self.clock.at_s + world.ahead_s for cloud, world in self.worlds.items()}
        if all(at_s < self._moves_s.get(cloud, -math.inf) for cloud, at_s in own_s.items()):
            return self._ranked
        priced = []
        self._moves_s = dict.fromkeys(self.worlds, math.inf)
        for offer in self._offers:
            cloud, points = offer.cloud, self.worlds[offer.cloud].steps[offer.key]
            usd = [p.usd_per_hour for p in points if p.from_s <= own_s[cloud]][-1]
            to_come = [p.from_s for p in points if p.from_s > own_s[cloud]]
            self._moves_s[cloud] = min([self._moves_s[cloud], *to_come])
            priced.append(replace(offer, usd_per_hour=usd))
        self._ranked = tuple(sorted(priced, key=lambda o: (o.usd_per_hour or 0.0, o.key)))
        return self._ranked

    # ------------------------------------------------------------ time

    def step(self, seconds: float) -> None:
        """The clock has moved by ``seconds``."""
        for cloud, world in self.worlds.items():
            world.lists_fail = self.is_on(f"{cloud} cannot be listed")
            world.ends_fail = self.is_on("nothing can be ended")
            world.histories_fail = self.is_on("no price history")
            world.advance(0.0)
            if self.clear:
                world.full.clear()
                continue
            for key in self._spot[cloud]:
                mean_s = FULL_FOR_S if key in world.full else FULL_EVERY_S
                if self.rng.random() < seconds / mean_s:
                    world.full ^= {key}
            self._take(world, seconds)

    def _take(self, world: World, seconds: float) -> None:
        spot = [m for m in world.alive if m.spec.offer.market is Market.SPOT]
        for _ in range(int(self.rng.poisson(len(spot) * seconds * LOSSES_PER_S)) if spot else 0):
            victim = spot[int(self.rng.integers(len(spot)))]
            if self.rng.random() < 0.5:
                world.interrupt(victim.instance_id)
                self.losses += 1
            elif victim.acts_at_s is None:
                lead_s = self._notice(world, victim)
                if self.rng.random() < NOTICE_TOO:
                    self._notice(world, spot[int(self.rng.integers(len(spot)))])
                if self.rng.random() < OUTAGE_WITH_NOTICE:
                    name = tuple(OUTAGES)[int(self.rng.integers(len(OUTAGES)))]
                    from_s = self.clock.at_s + float(self.rng.uniform(0, 0.6)) * lead_s
                    self.spells.append((name, from_s, from_s + float(self.rng.uniform(0.2, 1.0)) * lead_s))

    def _notice(self, world: World, victim: WorldMachine) -> float:
        """How long before."""
        lead_s = world.notice_s * float(self.rng.uniform(0.5, 1.0))
        if victim.acts_at_s is None:
            world.notice(victim.instance_id, lead_s)
            self.notices += 1
        return lead_s


def bill_micro(world: World, machine: WorldMachine) -> int:
    """What the cloud charges for it, in whole micro-dollars: per second by the price in force, a minute at
    least (what is beyond its end at the last price), nothing for what it took back in the first hour where
    that is free. By its own clock."""
    if machine.ended_s is None:
        raise ValueError(f"{machine.instance_id} has not ended: its bill is not known")
    from_s, ended_s = machine.lands_at_s + world.ahead_s, machine.ended_s + world.ahead_s
    taken = machine.cause is EndCause.INTERRUPTED and machine.spec.offer.market is Market.SPOT
    if taken and world.billing.first_hour_interruption_free and ended_s - from_s < 3600.0:
        return 0
    to_s = max(ended_s, from_s + world.billing.minimum_s)
    usd = Fraction(0)
    points = [p for p in world.steps[machine.spec.offer.key] if p.from_s < ended_s]
    for number, point in enumerate(points):
        next_s = points[number + 1].from_s if number + 1 < len(points) else math.inf
        a, b = max(point.from_s, from_s), min(next_s, to_s)
        if b > a:
            usd += Fraction(point.usd_per_hour) * (Fraction(b) - Fraction(a))
    return round(usd / 3600 * 1_000_000)


def machines_of(sky: Sky, job_id: str, landing_s: float) -> tuple[MachineTruth, ...]:
    """Every machine that there ever was of a job."""
    return tuple(
        MachineTruth(
            instance_id=m.instance_id,
            token=m.spec.token,
            lease_id=m.spec.lease_id,
            landed_s=m.lands_at_s,
            in_time=m.lands_at_s <= m.asked_at_s + landing_s,
            ended_s=m.ended_s,
            bill_micro=None if m.ended_s is None else bill_micro(world, m),
            denied=m.denied,
            listed_s=m.visible_at_s,
        )
        for world in sky.worlds.values()
        for m in world.born.values()
        if m.spec.job_id == job_id
    )
