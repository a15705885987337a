"""The real launcher on a trace as in ``duelive``, with an elastic gang: beside ``deadline.elastic``'s replay.

A zone has as many machines as the trace says; of too many, the youngest are lost. A gang of n works at the
speed that the planner expects of n machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np

from arylcloud.core.job import InlineRate, JobSpec, ProfileRef
from arylcloud.core.offer import Market, Offer
from arylcloud.planner.scaling import step
from arylcloud.simulation.deadline.elastic import Gang, Sizes
from arylcloud.simulation.duelive import DueLive
from arylcloud.simulation.spottraces import SpotTrace, rows_at
from arylcloud.simulation.world_agents import Agent, Agents

GPU: Final = "A100"
PER_NODE: Final = 8
PART_S: Final = 360.0
REGAIN_H: Final = 5 / 60
"""In the replay, of a change of size: half of what is not saved, and two steps to begin anew."""


def planned(least: int, most: int, *, fixed_batch: bool = False) -> Gang:
    """Speeds as the planner has them of machines with 8 GPUs. ``fixed_batch``: of all machines together; more
    of them then gain much less."""
    alone = [_factor(n, fixed_batch) for n in range(1, most + 1)]
    speed = np.array([0.0, *alone]) / alone[-1]
    speed[:least] = 0.0
    return Gang(least=least, most=most, speed=speed, regain_h=REGAIN_H)


def _factor(nodes: int, fixed_batch: bool) -> float:
    return step(GPU, (PER_NODE, 1), (PER_NODE, nodes), fixed_batch=fixed_batch).factor


def in_parts(trace: SpotTrace, most: int, seed: int, *, up_h: float = 8.0, down_h: float = 2.0) -> SpotTrace:
    """Of zones with all or nothing, ones with some of ``most`` machines: each of these comes and goes
    (exponential times) while the zone has any at all."""
    rng, zones = np.random.default_rng(seed), []
    rows = rows_at(trace, int(trace.span_s / PART_S), PART_S)
    leave, come = 1 - np.exp(-PART_S / 3600 / np.array([up_h, down_h]))
    for zone, row in zip(trace.zones, rows, strict=True):
        there = rng.random(most) < up_h / (up_h + down_h)
        count = np.empty(row.size, dtype=np.int64)
        for i, draws in enumerate(rng.random((row.size, most))):
            there = np.where(there, draws >= leave, draws < come)
            count[i] = there.sum()
        zones.append(
            replace(
                zone,
                offset_s=np.arange(row.size, dtype=np.float64) * PART_S,
                available=np.where(zone.available[row] > 0, count, 0),
                spot_usd_per_hour=zone.spot_usd_per_hour[row],
                on_demand_usd_per_hour=zone.on_demand_usd_per_hour[row],
            )
        )
    return replace(trace, zones=tuple(zones))


@dataclass(slots=True)
class Paced(Agents):
    """Commands that make less than a step in a second where they are few."""

    pace: Mapping[int, float] = field(default_factory=dict)
    """Number of ranks → steps in a second, 0 … 1; without an entry 1."""
    owed: dict[tuple[str, int], float] = field(default_factory=dict)
    """(instance, epoch) → the part of a step that is done."""

    def _work(self, agent: Agent, ranks: Counter[int], now_s: float) -> None:
        epoch = agent.running
        if epoch is not None and agent.ends_at_s is None:
            key = agent.machine.instance_id, epoch.number
            done = self.owed.get(key, 0.0) + self.pace.get(len(epoch.members), 1.0)
            self.owed[key] = done % 1.0 if done >= 1.0 else done
            if done < 1.0:
                return
        Agents._work(self, agent, ranks, now_s)


def paced(agents: Agents, pace: Mapping[int, float]) -> Paced:
    return Paced(**{f.name: getattr(agents, f.name) for f in fields(agents)}, pace=pace)


@dataclass(slots=True, kw_only=True)
class GangLive(DueLive):
    sizes: Sizes
    fixed_batch: bool = False

    def __post_init__(self) -> None:
        self.machines = self.sizes.gang.most
        DueLive.__post_init__(self)
        self.agents = paced(self.agents, dict(enumerate(self.sizes.gang.speed.tolist())))

    def spec(self, steps: int) -> JobSpec:
        alone = _factor(self.machines, self.fixed_batch)
        rate = InlineRate(gpu=GPU, count=PER_NODE, rate=1.0 / self.step_s / alone)
        unit = "steps/s" if self.fixed_batch else "samples/s"
        profile = ProfileRef(rates=(rate,), unit=unit, batch=None if self.fixed_batch else 1.0)
        return replace(
            DueLive.spec(self, steps), profile=profile, nodes_min=self.sizes.gang.least, on_node_loss="shrink"
        )

    def confirmed(self, steps: int) -> int | None:
        return self._plan(self.spec(steps), quoted=(), also=()).chosen.nodes

    def _offer(self, place: str, market: Market, usd: float) -> Offer:
        plain = DueLive._offer(self, place, market, usd)
        return replace(
            plain,
            instance_type="p4d.24xlarge",
            gpu=GPU,
            gpu_count=PER_NODE,
            gpu_mem_gib=40.0,
            vcpus=96.0,
            mem_gib=1152.0,
        )

    def _weather(self, tick: int) -> None:
        row = min(self.start + tick, self.grid.up.shape[0] - 1)
        for zone, offer in enumerate(self.offers[: len(self.grid.places)]):
            room = int(self.sizes.machines[row, zone])
            self.world.room[offer.key] = room
            there = [m for m in self.world.alive if m.spec.offer.key == offer.key]
            for machine in there[room:]:
                self.world.interrupt(machine.instance_id)
