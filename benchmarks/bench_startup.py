"""CPU seconds of `arylcloud --help` and `--version`, and the size of a base install without pip.

    python benchmarks/bench_startup.py [--json]

CPU seconds (user + system of the whole process) are the best of several runs: other load makes them
larger, never smaller. The size is that of the files which arylcloud's distribution and its requirements,
extras left out, brought along, bytecode included. Exits 1 over budget (docs/performance.md).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = {"help_s": 0.30, "install_mb": 260.0}
RUNS = 7


def cpu_s(*args: str) -> float:
    """Best CPU seconds of ``python -m arylcloud ARGS`` in a home of its own."""
    found = []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(RUNS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "arylcloud", *args],
                env={**os.environ, "ARYLCLOUD_HOME": home},
                check=True,
                stdout=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def requirements(name: str, seen: set[str]) -> set[str]:
    """Distributions that ``name`` brings into this environment, itself included; extras left out."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen or key == "pip":
        return seen
    try:
        wanted = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return seen  # for another platform or Python
    seen.add(key)
    for line in wanted:
        found = re.match(r"[A-Za-z0-9._-]+", line)
        if found and "extra ==" not in line:
            requirements(found[0], seen)
    return seen


def install_mb() -> float:
    total = 0
    for name in requirements("arylcloud", set()):
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate()))
            total += path.stat().st_size if path.is_file() else 0
    package = Path(str(importlib.util.find_spec("arylcloud").origin)).parent  # type: ignore[union-attr]
    if not any("arylcloud/core" in str(file) for file in importlib.metadata.files("arylcloud") or ()):
        total += sum(p.stat().st_size for p in package.rglob("*") if p.is_file())  # editable: not in RECORD
    return total / 1e6


def main() -> int:
    figures = {"help_s": cpu_s("--help"), "version_s": cpu_s("--version"), "install_mb": install_mb()}
    over = [name for name, limit in BUDGET.items() if figures[name] > limit]
    if "--json" in sys.argv:
        print(json.dumps({"budget": BUDGET, "over": over, **figures}))
    else:
        for name, value in figures.items():
            limit = BUDGET.get(name)
            verdict = "" if limit is None else f"  budget {limit:g}  {'OVER' if name in over else 'ok'}"
            print(f"{name:<12}{value:9.3f}{verdict}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
