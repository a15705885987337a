"""The real launcher under a deadline policy, beside the replay of that policy: cost and lateness by setting.

    python benchmarks/deadline_live.py [--policy default] [--work-h 8] [--starts 4] [--seeds 1,2] [--write]

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
from pathlib import Path

import numpy as np

from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.deadline.sweep import drawn_starts, flat_egress, market_of
from arylcloud.simulation.duelive import DueLive, named
from arylcloud.simulation.spottraces import grid

RATIOS = (0.6, 0.8, 0.9)
STARTUP_H = 0.2
EGRESS_USD = 0.1
SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "deadlines.md"
HEAD = (
    "| zones | C/R | starts | replay $ | live $ | live ÷ replay | late: replay, live |"
    " on demand h: replay, live | waited h | CPU s |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--work-h", type=float, default=8.0)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    lines, bad = list(HEAD), 0
    for seed in (int(text) for text in asked.seeds.split(",")):
        for ratio in RATIOS:
            line, faults = setting(asked.policy, seed, asked.work_h, ratio, asked.starts)
            lines.append(line)
            bad += faults
            print(line, file=sys.stderr, flush=True)
    print("\n".join(lines))
    if asked.write:
        before, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- live -->\n")
        _, end, after = rest.partition("<!-- /live -->")
        PAGE.write_text(before + mark + "\n".join(lines) + "\n" + end + after, encoding="utf-8")
    return 1 if bad else 0


def setting(name: str, seed: int, work_h: float, ratio: float, count: int) -> tuple[str, int]:
    world = grid(named(invented(seed, zones=6, regions=3, days=20)))
    job = Job(work_h=work_h, deadline_h=work_h / ratio)
    market = market_of(world, startup_h=STARTUP_H, egress_usd=flat_egress(3, EGRESS_USD))
    starts = drawn_starts(world, job, count, np.random.default_rng(0))
    replayed = replay(world, market, deadline_policy(name), job, starts)
    began_s, lives = time.process_time(), []
    for start in starts.tolist():
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            live = DueLive(
                grid=world,
                job=job,
                start=start,
                folder=Path(folder),
                policy=name,
                egress_usd=EGRESS_USD,
                step_s=60.0,
                save_every=5,
            )
            lives.append(live.run())
    cpu_s = (time.process_time() - began_s) / len(lives)
    usd = sum(lived.usd for lived in lives)
    late = sum(lived.missed and not missed for lived, missed in zip(lives, replayed.missed, strict=True))
    faults = late + sum(lived.leaked for lived in lives) + sum(x.waited_too_long_s > 120.0 for x in lives)
    cells = (
        f"invented, seed {seed}",
        f"{ratio:g}",
        f"{len(lives)}",
        f"{replayed.usd.sum():.2f}",
        f"{usd:.2f}",
        f"{usd / replayed.usd.sum():.3f}",
        f"{int(replayed.missed.sum())}, {sum(lived.missed for lived in lives)}",
        f"{replayed.on_demand_h.sum():.1f}, {sum(lived.on_demand_h for lived in lives):.1f}",
        f"{sum(lived.waited_h for lived in lives):.1f}",
        f"{cpu_s:.1f}",
    )
    return "| " + " | ".join(cells) + " |", faults


if __name__ == "__main__":
    raise SystemExit(main())
