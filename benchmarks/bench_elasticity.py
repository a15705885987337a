"""From a loss to the next step, machines in network namespaces; and what a warm interpreter saves of it.

    python benchmarks/bench_elasticity.py [--torch PYTHON] [--only kill,agent,frozen,cut,join] [--json]

Four machines of the local cloud, a namespace each, train together (``tests/netns``): by sockets, and, where
there is a Python with PyTorch (``--torch``, else this one), over Gloo. One of them dies, or falls silent, and
the seconds to the next step of the three others are printed; and how long a join holds up the training.
Needs Linux and root for namespaces; without, it says so, and exits 0.

* a machine that is dead, or whose agent is: at most 6 s
* one that is silent: at most 15 s
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from netns.hub import Hub, missing
from netns.story import Story

from arylcloud.agent.warmth import Warmth

BARS = {"kill": 6.0, "agent": 6.0, "frozen": 15.0, "cut": 15.0}
MODULES = "torch,torch.distributed"


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def starts(python: str, modules: str) -> dict[str, float]:
    """Seconds of a whole ``import …`` script, plain and warm: medians of five."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "s.py"
        script.write_text(f"import {modules}\n")
        package = str(Path(__file__).resolve().parents[1])
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": package, "ARYL_WARM_DIR": str(folder / "warm")}
        warmth = Warmth(folder / "warm", environ=env, log=print)
        warmth.start()
        warm = [python, "-m", "arylcloud.training.warm", "--import", modules, str(script)]
        plain = [python, str(script)]
        try:
            for argv in (plain, warm):  # bytecode, caches, and the server
                subprocess.run(argv, env=env, cwd=folder, check=True)
            return {
                "plain_s": statistics.median(_seconds(plain, env, folder) for _ in range(5)),
                "warm_s": statistics.median(_seconds(warm, env, folder) for _ in range(5)),
            }
        finally:
            warmth.stop()


def _seconds(argv: list[str], env: dict[str, str], folder: Path) -> float:
    begun_s = time.perf_counter()
    subprocess.run(argv, env=env, cwd=folder, check=True)
    return time.perf_counter() - begun_s


def story(hub: Hub, folder: Path, torch: str | None, **more: Any) -> Story:
    run, envs, setup = "python3 -m arylcloud.training.warm train.py", {}, None
    if torch is not None:
        setup = f"{torch} -m arylcloud.training.warm --import {MODULES} --prepare"
        run = f"{torch} -m arylcloud.training.warm --import {MODULES} train.py"
        envs = {"E2E_TORCH": "1"}
    return Story(
        folder,
        hub,
        nodes="1..4",
        steps=more.pop("steps", 400),
        step_s=0.05,
        capacity=4,
        envs=envs,
        run=run,
        setup=setup,
        objective="time",
        on_node_loss="shrink",
        **more,
    )


def outage(hub: Hub, torch: str | None, strike: Callable[[Story], object]) -> float:
    """Seconds without a step. The job is not waited for: what the curve must be is the tests' affair."""
    with tempfile.TemporaryDirectory() as name, story(hub, Path(name), torch) as one:
        one.until_step(60)
        strike(one)
        one.wait(lambda: one.outage_s(one.faults[0]) is not None, "the next step")
        found = one.outage_s(one.faults[0])
        assert found is not None
        return found


def joining(hub: Hub, torch: str | None) -> float:
    """Seconds between the last step without the machine that joins, and the first with it."""
    with tempfile.TemporaryDirectory() as name, story(hub, Path(name), torch, steps=4000) as one:
        one.until_step(60)
        one.kill(3)
        one.until_world(3)
        one.until_world(4)
        epochs = sorted({s.epoch for s in one.seen()})[-2:]
        before, after = ([s.at_s for s in one.seen() if s.epoch == epoch] for epoch in epochs)
        return min(after) - max(before)


STRIKES: dict[str, Callable[[Story], object]] = {
    "kill": lambda one: one.kill(1),
    "agent": lambda one: one.kill_agent(1),
    "frozen": lambda one: one.freeze(1),
    "cut": lambda one: one.cut_off(1),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", default="kill,agent,frozen,cut,join", help="which, separated by commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch = options.torch if has_torch(options.torch) else None
    found: dict[str, Any] = {"start": starts(torch or sys.executable, MODULES if torch else "numpy")}
    say = sys.stderr if options.json else sys.stdout
    what = "torch" if torch else "numpy (there is no torch)"
    start = found["start"]
    print(
        f"import {what}: plain {start['plain_s']:.2f} s, warm {start['warm_s']:.2f} s", file=say, flush=True
    )
    why = missing()
    if why is not None:
        print(f"{why}: nothing else is measured", file=say)
        return 0
    over = False
    with Hub() as hub:
        for kind in ("sockets", *(["gloo"] if torch else [])):
            for name in options.only.split(","):
                python = torch if kind == "gloo" else None
                seconds = joining(hub, python) if name == "join" else outage(hub, python, STRIKES[name])
                bar = BARS.get(name)
                found[f"{kind} {name}"] = seconds
                over = over or (bar is not None and seconds > bar)
                print(
                    f"{kind:8} {name:8} {seconds:6.1f} s"
                    + ("" if bar is None else f"   (at most {bar:.0f})"),
                    file=say,
                    flush=True,
                )
    if options.json:
        print(json.dumps(found))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
