"""CPU seconds, memory and bytes of ``prices --refresh`` over three emulated clouds of realistic size, whole
process: the first refresh, and a second one an hour later (targets: 60 CPU s and 400 MB; 5 times fewer CPU
seconds and bytes).

    python benchmarks/bench_refresh.py [--runs 1]

The emulators run in a process of their own, which is not counted; they refuse every 23rd call.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EMULATORS = Path(__file__).parents[1] / "tests" / "clouds" / "prices_emulators.py"
MOST_CPU_S = 60.0
MOST_MB = 400.0
LEAST_RATIO = 5.0
LEAST_ROWS = 200_000
REPORT = """
import os, pathlib, resource, sys
from arylcloud.cli.main import run
code = run(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
pathlib.Path(os.environ["PEAK_FILE"]).write_text(str(peak))
sys.exit(code)
"""


def once(environ: dict[str, str], folder: Path) -> dict[str, Any]:
    """One refresh in a fresh process: what it cost and said."""
    peak = folder / "peak"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", REPORT, "prices", "--refresh", "--json", "--limit", "20"],
        env=environ | {"PEAK_FILE": str(peak)},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    clouds = document["refresh"]["clouds"]
    outcomes = [part["outcome"] for part in document["refresh"]["parts"]]
    return {
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "mb": float(peak.read_text()),
        "bytes": sum(cloud["bytes_in"] for cloud in clouds),
        "rows": sum(cloud["raw_rows"] for cloud in clouds),
        "calls": sum(cloud["calls"] for cloud in clouds),
        "stale": outcomes.count("stale"),
        "offers": document["catalogue"]["offers"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1, help="the best of so many")
    runs = parser.parse_args().runs
    server = subprocess.Popen(
        [sys.executable, str(EMULATORS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    emulated = json.loads(server.stdout.readline())

    def tell(**what: float) -> dict[str, Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(what) + "\n")
        server.stdin.flush()
        found: dict[str, Any] = json.loads(server.stdout.readline())
        return found

    firsts, seconds = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as home:
            plain = {k: v for k, v in os.environ.items() if k != "ARYLCLOUD_CATALOGUE"}
            environ = plain | emulated | {"ARYLCLOUD_HOME": home, "OMP_NUM_THREADS": "1"}
            firsts.append(once(environ, Path(home)))
            tell(forward_s=3600)
            seconds.append(once(environ, Path(home)))
    served = tell()
    server.stdin.close()
    server.wait()
    first, second = (min(found, key=lambda one: one["cpu_s"]) for found in (firsts, seconds))
    print(
        f"price rows behind the three APIs   {served['held_rows']:,}, {served['throttled']} calls throttled"
    )
    for name, one in (("first refresh", first), ("second, an hour later", second)):
        print(
            f"{name:34} {one['cpu_s']:.2f} CPU s, {one['mb']:.0f} MB, {one['bytes'] / 1e6:.2f} MB received, "
            f"{one['rows']:,} price rows in {one['calls']} calls, {one['stale']} parts stale, "
            f"{one['offers']:,} offers"
        )
    cpu, size = first["cpu_s"] / second["cpu_s"], first["bytes"] / second["bytes"]
    print(f"the second needs                   {cpu:.1f} times fewer CPU s, {size:.0f} times fewer bytes")
    good = (
        first["cpu_s"] <= MOST_CPU_S
        and max(first["mb"], second["mb"]) <= MOST_MB
        and min(cpu, size) >= LEAST_RATIO
        and first["rows"] >= LEAST_ROWS
        and not first["stale"] + second["stale"]
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
