"""The real launcher under a deadline policy, beside the replay of that policy: cost and lateness by setting.

    python benchmarks/deadline_live.py [--policy default] [--work-h 8] [--starts 4] [--seeds 1,2]
        [--ratios .6,.8,.9] [--gang 2..4] [--write]

``--gang``: an elastic gang on zones that often have only some of its machines, beside the launcher's own
rules (``policy: off``) on the same starts.

Invented zones in three regions; real journal, observer, executor, reconcile and planner in a world in memory
that follows the trace (``arylcloud/simulation/duelive.py``). Exit code 1 if a deadline is missed that the
replay meets, a machine is left, or a wait goes beyond the latest safe start. ``--write``: into the page
docs/results/deadlines.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.simulation.deadline.elastic import elastic_grid, elastic_replay
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.deadline.sweep import drawn_starts, flat_egress, market_of
from arylcloud.simulation.duegang import GangLive, in_parts, planned
from arylcloud.simulation.duelive import CAN, DueLive, Lived, named
from arylcloud.simulation.spottraces import grid

RATIOS = (0.6, 0.8, 0.9)
GANG_RATIOS = (0.4, 0.6, 0.8)
STARTUP_H = 0.2
EGRESS_USD = 0.1
STEP_S = 20.0
"""Of work, and between two looks of launcher and agents; and they reckon with it."""
GANG_STEP_S = 60.0
"""Likewise, of gangs: coarser, because there are many machines."""
SAVE_S = 300.0
SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "deadlines.md"
HEAD = (
    "| zones | C/R | starts | replay $ | live $ | live ÷ replay | kept, by launch | late: replay, live |"
    " late though said to be kept | on demand h: replay, live | waited h | CPU s |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)

GANG_HEAD = (
    "| zones, gang | C/R | starts | replay $ | live $ | live ÷ replay | own rules $ | own ÷ replay |"
    " kept, by launch | late: replay, live, own | of live though said to be kept |"
    " on demand machine-hours: replay, live, own | CPU s |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--work-h", type=float, default=8.0)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--ratios", type=lambda text: tuple(float(x) for x in text.split(",")))
    parser.add_argument("--gang", type=lambda text: tuple(int(n) for n in text.split("..")))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    lines, bad = list(GANG_HEAD if asked.gang else HEAD), 0
    mark = "live gang" if asked.gang else "live"
    for seed in (int(text) for text in asked.seeds.split(",")):
        for ratio in asked.ratios or (GANG_RATIOS if asked.gang else RATIOS):
            if asked.gang:
                line, faults = gang_setting(
                    asked.policy, seed, asked.work_h, ratio, asked.starts, *asked.gang
                )
            else:
                line, faults = setting(asked.policy, seed, asked.work_h, ratio, asked.starts)
            lines.append(line)
            bad += faults
            print(line, file=sys.stderr, flush=True)
    print("\n".join(lines))
    if asked.write:
        before, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- /{mark} -->")
        PAGE.write_text(before + begin + "\n".join(lines) + "\n" + end + after, encoding="utf-8")
    return 1 if bad else 0


def live_runs(kind: Callable[..., DueLive], starts: NDArray[np.intp], **what: Any) -> list[Lived]:
    """A live run from each start."""
    found = []
    for start in starts.tolist():
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            step_s = GANG_STEP_S if kind is GangLive else STEP_S
            one = kind(
                start=start,
                folder=Path(folder),
                egress_usd=EGRESS_USD,
                step_s=step_s,
                save_every=round(SAVE_S / step_s),
                **what,
            )
            found.append(one.run())
    return found


def setting(name: str, seed: int, work_h: float, ratio: float, count: int) -> tuple[str, int]:
    world = grid(named(invented(seed, zones=6, regions=3, days=20)))
    job = Job(work_h=work_h, deadline_h=work_h / ratio)
    market = market_of(world, startup_h=STARTUP_H, egress_usd=flat_egress(3, EGRESS_USD))
    starts = drawn_starts(world, job, count, np.random.default_rng(0))
    replayed = replay(world, market, deadline_policy(name), job, starts)
    began_s = time.process_time()
    lives = live_runs(DueLive, starts, grid=world, job=job, policy=name)
    cpu_s = (time.process_time() - began_s) / len(lives)
    usd = sum(lived.usd for lived in lives)
    faults = faults_of(lives)
    cells = (
        f"invented, seed {seed}",
        f"{ratio:g}",
        f"{len(lives)}",
        f"{replayed.usd.sum():.2f}",
        f"{usd:.2f}",
        f"{usd / replayed.usd.sum():.3f}",
        f"{sum(lived.said == CAN for lived in lives)}",
        f"{int(replayed.missed.sum())}, {sum(lived.missed for lived in lives)}",
        f"{broken(lives)}",
        f"{replayed.on_demand_h.sum():.1f}, {sum(lived.on_demand_h for lived in lives):.1f}",
        f"{sum(lived.waited_h for lived in lives):.1f}",
        f"{cpu_s:.1f}",
    )
    return "| " + " | ".join(cells) + " |", faults


def gang_setting(
    name: str, seed: int, work_h: float, ratio: float, count: int, least: int, most: int
) -> tuple[str, int]:
    gang = planned(least, most)
    trace = in_parts(named(invented(seed, zones=6, regions=3, days=20)), most, seed)
    world, sizes = elastic_grid(trace, gang)
    job = Job(work_h=work_h, deadline_h=work_h / ratio)
    market = market_of(world, startup_h=STARTUP_H, egress_usd=flat_egress(3, EGRESS_USD))
    starts = drawn_starts(world, job, count, np.random.default_rng(0))
    replayed = elastic_replay(world, sizes, market, deadline_policy(name), job, starts)
    began_s = time.process_time()
    found = {
        policy: live_runs(GangLive, starts, grid=world, sizes=sizes, job=job, policy=policy)
        for policy in (name, "off")
    }
    cpu_s = (time.process_time() - began_s) / count / 2
    usd = {policy: sum(x.usd for x in lives) for policy, lives in found.items()}
    late = [int(replayed.missed.sum()), *(sum(x.missed for x in lives) for lives in found.values())]
    spent = [replayed.on_demand_h.sum() * most, *(sum(x.on_demand_h for x in v) for v in found.values())]
    cells = (
        f"invented, seed {seed}, {least}..{most}",
        f"{ratio:g}",
        f"{count}",
        f"{replayed.usd.sum():.2f}",
        f"{usd[name]:.2f}",
        f"{usd[name] / replayed.usd.sum():.3f}",
        f"{usd['off']:.2f}",
        f"{usd['off'] / replayed.usd.sum():.3f}",
        f"{sum(x.said == CAN for x in found[name])}",
        ", ".join(f"{n}" for n in late),
        f"{broken(found[name])}",
        ", ".join(f"{h:.1f}" for h in spent),
        f"{cpu_s:.1f}",
    )
    return "| " + " | ".join(cells) + " |", faults_of(found[name])


def broken(lives: list[Lived]) -> int:
    """Late, though it had been said that the deadline would be kept."""
    return sum(lived.missed and lived.said == CAN for lived in lives)


def faults_of(lives: list[Lived]) -> int:
    for why in sorted({lived.said for lived in lives if lived.said != CAN}):
        print(f"launch refuses: {why}", file=sys.stderr, flush=True)
    return broken(lives) + sum(x.leaked for x in lives) + sum(x.waited_too_long_s > 120.0 for x in lives)


if __name__ == "__main__":
    raise SystemExit(main())
