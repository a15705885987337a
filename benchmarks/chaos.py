"""Two hundred jobs, an hour of simulated chaos: what came of it, and every law that was broken.

    python benchmarks/chaos.py [--seed S] [--jobs 200] [--hours 1] [--json]

Real launchers (journal, fence, observer, executor, reconcile) in a hostile world in memory, on real ports;
nothing sleeps. The same seed is the same story. Exit code 1 if a job is lost or a law is broken.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from arylcloud.simulation.chaos import Chaos, Outcome
from arylcloud.simulation.checker import LAWS

SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Journals are SQLite files, written through at every record: on a disk that is most of the time."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)  # what launchers say of outages, hundreds of times
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        chaos = Chaos(Path(folder), asked.seed, asked.jobs, asked.hours, tell=tell)
        try:
            outcome = chaos.run()
        finally:
            chaos.close()
    cpu_s = time.process_time() - began_s
    if asked.json:
        document = {"schema_version": 1, "cpu_s": cpu_s, **dataclasses.asdict(outcome)}
        print(json.dumps(document, indent=2))
    else:
        print(table(outcome, cpu_s))
    return 1 if outcome.unfinished or outcome.violations else 0


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(outcome: Outcome, cpu_s: float) -> str:
    rows = [
        ("seed", str(outcome.seed)),
        ("jobs × simulated hours of chaos", f"{outcome.jobs} × {outcome.hours:g}"),
        ("simulated until the last job had ended", f"{outcome.simulated_s / 60:.0f} min"),
        ("CPU", f"{cpu_s:.0f} s"),
        ("jobs lost", str(len(outcome.unfinished))),
        *((f"laws broken: {law.__name__}", str(broken(outcome, law.__name__))) for law in LAWS),
        *((f"ended: {how}", str(number)) for how, number in outcome.ended.items()),
        *((what, str(number)) for what, number in outcome.counts.items()),
        ("the world's own bill, to the micro-dollar the report's", f"${outcome.usd:,.6f}"),
        ("what came after its job's end, ended itself, and is in no report", f"${outcome.beyond_usd:,.6f}"),
    ]
    wide = max(len(what) for what, _ in rows)
    lines = [f"{what:<{wide}}  {value:>12}" for what, value in rows]
    lines += [str(violation) for violation in outcome.violations]
    lines += [f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.machine()}"]
    return "\n".join(lines)


def broken(outcome: Outcome, law: str) -> int:
    return sum(violation.law == law for violation in outcome.violations)


if __name__ == "__main__":
    raise SystemExit(main())
