"""How near the optimum one could come who knows a trace's statistics and sees every zone for nothing.

    python benchmarks/deadline_informed.py --spot-traces spot-traces [--only aws22-v100_8-600] [--starts 40]

For the held-out traces of one region and one price (deadline_heldout.py): which zones have capacity, and
for how long they have had it or not (under 1 h, under 3 h, longer; of more than two zones: under 1 h,
longer), is a Markov chain whose chances are counted on the very trace that is replayed. The policy is that
chain's exact optimum by a dynamic program over ticks, machine, zones and work left; it is then replayed on
the trace, from the starts of deadline_heldout.py, and divided by the optimum that knows the future, under
the same rules.

Nobody can know those chances beforehand, sight costs nothing here, and no attempt is refused: where this is
above a bar, the bar is out of reach on that trace for whoever knows no more of the future than such a
chain.

Rules: as the replay's, in whole ticks: a machine works 4/5 of the second tick after it was asked for; who
moves between spot and on demand keeps the old machine until then. Never late.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from deadline_heldout import of_spot_traces
from deadline_results import RATIOS, Setting
from numpy.typing import NDArray

from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.deadline.sweep import drawn_starts

Floats = NDArray[np.float64]
TICK, FIRST = 5, 4
"""Units of work in a tick, and in the one in which a machine begins."""
LATE = 1e9
"""Dollars: more than any job, and finite, since 0 × infinity is nothing."""
IDLE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    state: NDArray[np.intp]
    """At each tick of the trace, (T,)."""
    up: NDArray[np.bool_]
    """Of each state, (S, Z)."""
    chance: Floats
    """(S, S), counted."""


def chain(up: NDArray[np.bool_], tick_h: float) -> Chain:
    ticks, zones = up.shape
    edges = np.array([1.0, 3.0] if zones <= 2 else [1.0]) / tick_h
    age = np.zeros((ticks, zones), dtype=np.intp)
    for t in range(1, ticks):
        age[t] = np.where(up[t] == up[t - 1], age[t - 1] + 1, 0)
    code = np.searchsorted(edges, age, side="right") * 2 + up
    rows, state = np.unique(code, axis=0, return_inverse=True)
    state = state.reshape(-1).astype(np.intp)
    counts = np.zeros((len(rows), len(rows)))
    np.add.at(counts, (state[:-1], state[1:]), 1.0)
    counts[counts.sum(axis=1) == 0] += 1.0 / len(rows)
    return Chain(state=state, up=rows % 2 == 1, chance=counts / counts.sum(axis=1, keepdims=True))


def after(value: Floats, units: int, usd: float) -> tuple[Floats, Floats]:
    """What follows ``units`` of work, by the work left before it; and the tick's cost, billed to the end."""
    left = np.arange(value.shape[-1])
    moved = value[..., np.maximum(left - units, 0)]
    idle = TICK - units  # of the tick in which it begins to work
    return moved, usd * np.minimum(1.0, (left + idle) / TICK) * (left > 0)


def plan(
    chance: Floats, up: NDArray[np.bool_], later: NDArray[np.bool_], value: Floats, spot: float, demand: float
) -> tuple[Floats, NDArray[np.int8]]:
    """One tick backward, from ``later`` (zones up in each state of the next tick, (S', Z)) to ``up``, (S, Z).
    ``value``: (M, S', W + 1) at the next tick, machines that are lost there counted as idle.
    M = 1 + 2 Z + 2: none; Z that begin, Z that work, on demand that begins, that works. Answers value and
    choice: 0 = as it is (from none: wait), z + 1 = start zone z, Z + 1 = start on demand."""
    zones = up.shape[1]
    begun, works = 1 + np.arange(zones), 1 + zones + np.arange(zones)
    od_begun, od_works = 1 + 2 * zones, 2 + 2 * zones
    expected = np.einsum("st,mtw->msw", chance, value, optimize=True)
    found = np.full_like(expected, LATE)
    choice = np.zeros(expected.shape, dtype=np.int8)

    def offer(machine: int, option: int, usd: Floats) -> None:
        better = usd < found[machine]
        found[machine] = np.where(better, usd, found[machine])
        choice[machine][better] = option

    def runs(machine: int, units: int, rate: float) -> Floats:
        moved, usd = after(expected[machine], units, rate)
        return moved + usd

    offer(IDLE, 0, expected[IDLE])
    offer(IDLE, zones + 1, expected[od_begun] + demand)
    for z in range(zones):
        offer(IDLE, z + 1, np.where(up[:, z, None], expected[begun[z]] + spot, LATE))
        offer(int(begun[z]), 0, runs(int(works[z]), FIRST, spot))
        offer(int(works[z]), 0, runs(int(works[z]), TICK, spot))
        moved, usd = after(expected[od_begun], TICK, spot + demand)
        offer(int(works[z]), zones + 1, moved + usd)
        # the new one may be gone when it would begin: the old one is still there
        either = chance @ np.where(later[:, z, None], value[begun[z]], value[od_works])
        moved, usd = after(either, TICK, spot + demand)
        offer(od_works, z + 1, np.where(up[:, z, None], moved + usd, LATE))
    offer(od_begun, 0, runs(od_works, FIRST, demand))
    offer(od_works, 0, runs(od_works, TICK, demand))
    found[..., 0] = 0.0
    for z in range(zones):  # lost: what it does without
        for machine in (int(begun[z]), int(works[z])):
            found[machine] = np.where(up[:, z, None], found[machine], found[IDLE])
            choice[machine] = np.where(up[:, z, None], choice[machine], choice[IDLE])
    return found, choice


def informed_usd(
    found: Chain, starts: NDArray[np.intp], ticks: int, work: int, spot: float, demand: float
) -> Floats:
    """Of the chain's best policy on the trace, (n,)."""
    states, zones = found.up.shape
    value = np.full((3 + 2 * zones, states, work + 1), LATE)
    value[..., 0] = 0.0
    choices = []
    for _ in range(ticks):
        value, choice = plan(found.chance, found.up, found.up, value, spot, demand)
        choices.append(choice)
    left = np.full(len(starts), work)
    machine = np.full(len(starts), IDLE)
    usd = np.zeros(len(starts))
    od_begun, od_works = 1 + 2 * zones, 2 + 2 * zones
    for t in range(ticks):
        state = found.state[starts + t]
        zone = np.where((machine > 0) & (machine <= 2 * zones), (machine - 1) % zones, -1)
        machine = np.where((zone >= 0) & ~found.up[state, np.maximum(zone, 0)], IDLE, machine)
        option = choices[ticks - 1 - t][machine, state, left]
        going = left > 0
        begins = (machine > 0) & (machine <= zones) | (machine == od_begun)
        works = (machine > zones) & (machine <= 2 * zones) | (machine == od_works)
        units = np.where(works, TICK, np.where(begins, FIRST, 0))
        rate = np.where(machine == IDLE, 0.0, np.where(machine <= 2 * zones, spot, demand))
        share = np.minimum(1.0, (left + TICK - units) / TICK)
        new = np.where(option == 0, 0.0, np.where(option <= zones, spot, demand))
        usd += going * (rate + new) * np.where(machine == IDLE, 1.0, share)
        stays = np.where(begins, np.where(machine == od_begun, od_works, machine + zones), machine)
        up_next = found.up[found.state[np.minimum(starts + t + 1, len(found.state) - 1)]]
        to_zone = np.maximum(option - 1, 0) % max(zones, 1)
        alive = up_next[np.arange(len(starts)), to_zone] | (machine != od_works)
        started = np.where(option == zones + 1, od_begun, np.where(alive, option, machine))
        machine = np.where(option == 0, stays, started)
        left = np.maximum(left - units, 0)
    if left.any():
        raise AssertionError(f"{int((left > 0).sum())} starts are late")
    return usd


def foreseen_usd(found: Chain, start: int, ticks: int, work: int, spot: float, demand: float) -> float:
    """The future known: the same program over what came."""
    zones = found.up.shape[1]
    value = np.full((3 + 2 * zones, 1, work + 1), LATE)
    value[..., 0] = 0.0
    ups = found.up[found.state]
    for t in range(start + ticks - 1, start - 1, -1):
        value, _ = plan(np.ones((1, 1)), ups[t : t + 1], ups[t + 1 : t + 2], value, spot, demand)
    return float(value[IDLE, 0, work])


def row(setting: Setting, count: int) -> list[float]:
    world, market = setting.grid, setting.market
    spot = float(world.spot_usd[0, 0]) * market.tick_h
    demand = float(world.on_demand_usd[0, 0]) * market.tick_h
    if market.regions != 1 or np.ptp(world.spot_usd) or np.ptp(world.on_demand_usd):
        print(f"{setting.name}: more than one region, or more than one price", file=sys.stderr)
        return []
    found = chain(world.up, market.tick_h)
    work = round(setting.work_h / market.tick_h * TICK)
    ratios = []
    for ratio in RATIOS:
        job = Job(work_h=setting.work_h, deadline_h=setting.work_h / ratio)
        starts = drawn_starts(world, job, setting.starts, np.random.default_rng(0))[:count]
        ticks = int(job.deadline_h / market.tick_h + 1e-9)
        usd = informed_usd(found, starts, ticks, work, spot, demand)
        least = [foreseen_usd(found, s, ticks, work, spot, demand) for s in starts.tolist()]
        ratios.append(float(usd.sum() / sum(least)))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spot-traces", type=Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--starts", type=int, default=100)
    given = parser.parse_args()
    print("| trace | " + " | ".join(f"C/R {r:g}" for r in RATIOS) + " |")
    print("|---" * (1 + len(RATIOS)) + "|")
    for setting in of_spot_traces(given.spot_traces, given.starts):
        if given.only in (None, setting.name) and (found := row(setting, given.starts)):
            shown = " | ".join(f"{value:.3f}" for value in found)
            print(f"| {setting.name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
