"""What machines' disks held at the end of the chaos, for whoever judges what became of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from arylcloud.core.ports import EndCause
from arylcloud.simulation.chaos_sky import Sky
from arylcloud.simulation.chaos_store import OUTAGES
from arylcloud.simulation.story import Kept
from arylcloud.simulation.world import WorldMachine
from arylcloud.simulation.world_agents import Agent, Agents
from arylcloud.simulation.world_disks import Save


def kept_of(agents: Sequence[Agents], sky: Sky) -> tuple[Kept, ...]:
    """For each epoch what its command had saved last, where all ranks that have to send it have it."""
    ranks: dict[int, dict[int, tuple[Agent, Save]]] = {}
    shards: dict[int, bool] = {}
    for agent in (one for of_cloud in agents for one in of_cloud.by_instance.values()):
        for epoch, save in agent.disk.saves.items() if agent.disk is not None else ():
            ranks.setdefault(epoch, {})[save.rank] = (agent, save)
            shards[epoch] = agent.disk is not None and agent.disk.shards
    away = tuple((from_s, to_s) for name, from_s, to_s in sky.spells if name in OUTAGES)
    return tuple(_kept(epoch, having, away) for epoch, having in _whole(ranks, shards, agents))


def _whole(
    ranks: dict[int, dict[int, tuple[Agent, Save]]], shards: dict[int, bool], agents: Sequence[Agents]
) -> Iterator[tuple[int, list[tuple[Agent, Save]]]]:
    for epoch, having in sorted(ranks.items()):
        size = next(n for of_cloud in agents if (n := of_cloud.sizes.get(epoch)) is not None)
        wanted = size if shards[epoch] else 1
        found = [having[rank] for rank in range(wanted) if rank in having]
        if len(found) == wanted and len({save.step for _, save in found}) == 1:
            yield epoch, found


def _kept(epoch: int, having: list[tuple[Agent, Save]], away: tuple[tuple[float, float], ...]) -> Kept:
    return Kept(
        epoch=epoch,
        step=having[0][1].step,
        leases=tuple(agent.machine.spec.lease_id for agent, _ in having),
        saved_s=max(save.at_s for _, save in having),
        until_s=min(_taken_s(agent.machine) for agent, _ in having),
        closed=(*away, *(silence for agent, _ in having for silence in agent.silences)),
        said=_said(*having[0]),
    )


def _said(agent: Agent, save: Save) -> str:
    lines = agent.disk.said if agent.disk is not None else ()
    return next((line for line in reversed(lines) if f"step-{save.step} " in line), "nothing")


def _taken_s(machine: WorldMachine) -> float:
    """When its cloud took it, or would have."""
    if machine.cause is EndCause.INTERRUPTED and machine.ended_s is not None:
        return machine.ended_s
    return math.inf if machine.acts_at_s is None else machine.acts_at_s
