"""CPU seconds to load the catalogue: bundled, and 200,000 synthetic offers (target: 0.03 above numpy's
import, whole process).

    python benchmarks/bench_catalogue.py [--runs 7]

Each figure is the median over fresh processes of user + system time, interpreter included.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from synthetic_catalogue import save_file, synthetic_catalogue

IMPORT = "import numpy"
MODULES = f"{IMPORT}; import arylcloud.pricing.catalogue"
LOAD = "from arylcloud.pricing.catalogue import load; load()"
HAZARD = "from arylcloud.pricing.hazard import hazard_per_hour; hazard_per_hour(load())"


def cpu_s(code: str, runs: int, environ: dict[str, str]) -> float:
    """Median CPU seconds of ``python -c code``."""
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    environ = {k: v for k, v in os.environ.items() if k != "ARYLCLOUD_CATALOGUE"} | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "offers.bin"
        save_file(synthetic_catalogue(200_000, seed=0), large)
        of_large = environ | {"ARYLCLOUD_CATALOGUE": str(large)}
        numpy_s = cpu_s(IMPORT, runs, environ)
        print(f"python, numpy imported         {numpy_s:.3f} CPU s")
        for name, code, env in (
            ("our modules, above that", MODULES, environ),
            ("bundled, loaded, above numpy", LOAD, environ),
            ("200,000, loaded, above numpy", LOAD, of_large),
            ("200,000, with hazards", f"{LOAD}; {HAZARD}", of_large),
        ):
            print(f"{name:30} {cpu_s(code, runs, env) - numpy_s:.3f} CPU s")
        print(f"file of 200,000 offers         {large.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
