"""How soon a launcher knows: of a notice, of a machine that is silent, of one that is gone.

    python benchmarks/bench_detection.py [--times 3] [--json]

A job on two machines of the local cloud (launcher, agents, store and machines share this host and its clock),
which may go on with one. What is measured, each ``--times`` times, and its bar:

* notice: from the metadata service's first word of it to the journal's NoticeSeen: 2 s
* silent: from SIGSTOP of every process of one machine to its lease's SUSPECT, and to the next epoch: 12 s
* lost: from the moment at which the cloud's list says that a killed machine is gone to its release: 30 s

That ten minutes of silence cause no relaunch is a test in simulated time (``tests/launcher/test_hung.py``).
Exits 1 where a figure is over its bar.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arylcloud.core.codec import encode
from arylcloud.launcher.journal import Journal
from arylcloud.providers.local import log as cloud_log
from arylcloud.providers.local import processes
from arylcloud.providers.local.wire import FOLDER, LOG_FILE

BARS = {"notice": 2.0, "suspect": 12.0, "out of the epoch": 12.0, "lost": 30.0}
TRAIN = """\
import json, os, signal, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
step = 0
while not stop:
    time.sleep(0.1)
    step += 1
    with open(os.environ["ARYL_PROGRESS_FILE"] + ".part", "w") as file:
        json.dump({"step": step, "at_s": time.time()}, file)
    os.replace(file.name, os.environ["ARYL_PROGRESS_FILE"])
"""


class Bench:
    """A home of its own, with a local cloud that takes a machine back now and then."""

    def __init__(self, folder: Path, strikes: int) -> None:
        self.folder, self.home = folder, folder / "home"
        offer = {
            "region": "a",
            "zone": None,
            "instance_type": "g.small",
            "gpu": "T4",
            "gpu_count": 1,
            "gpu_mem_gib": 16,
            "vcpus": 4,
            "mem_gib": 16,
            "market": "spot",
            "steps": [[0, 0.1, 8]],
            "interruptions": [{"t_market_s": 0.0, "notice_s": 6.0, "min_age_s": 6.0}] * strikes,
            "source": "bench",
        }
        market = {"schema_version": 1, "name": "bench", "time_scale": 1.0, "boot_s": 0.1, "notice_s": 6.0}
        market |= {"minimum_s": 60, "until_grace_s": 60, "offers": [offer], "faults": []}
        folder.mkdir(parents=True)
        (folder / "market.json").write_text(json.dumps(market))
        (folder / "work").mkdir()
        (folder / "work" / "train.py").write_text(TRAIN)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ARYL", "SKYPILOT"))}
        self.env |= {
            "ARYLCLOUD_HOME": str(self.home),
            "ARYLCLOUD_LOCAL__MARKET": str(folder / "market.json"),
            "ARYLCLOUD_LOCAL__IDLE_EXIT_S": "20",
        }
        self.job = ""

    def launch(self, nodes: str) -> None:
        aryl = {"migrate": "off", "nodes": nodes, "on_node_loss": "shrink", "max_runtime": "2h"}
        spec = {
            "name": "watched",
            "workdir": str(self.folder / "work"),
            "resources": {"accelerators": ["T4:1"]},
            "run": f"exec {sys.executable} train.py",
            "aryl": {**aryl, "objective": "time", "checkpoint": {"size_gb": 0.0001}},
        }
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(spec))
        self.job = self.cli("launch", str(path), "--infra", "local", "-y", "-d").strip()

    def cli(self, *args: str) -> str:
        command = [sys.executable, "-m", "arylcloud", *args]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300)
        if done.returncode not in (0, 101, 103):
            raise SystemExit(f"{' '.join(args)}: exit {done.returncode}\n{done.stderr[-3000:]}")
        return done.stdout

    def events(self) -> list[dict[str, Any]]:
        with Journal(self.home / "state" / "journal.db") as journal:
            records = journal.records(self.job)
        return [
            {"seq": r.seq, "at_s": r.at_s, "kind": type(r.event).__name__, "body": encode(r.event)}
            for r in records
        ]

    def after(self, seen: int, what: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first record after ``seen`` of them that fits."""
        until = time.monotonic() + 120.0
        while time.monotonic() < until:
            found = [e for e in self.events()[seen:] if fits(e)]
            if found:
                return found[0]
            time.sleep(0.3)
        raise SystemExit(f"no {what} in two minutes")

    def working(self, members: int) -> dict[str, Any]:
        """The newest epoch, once it has so many members and all of them train."""

        def going(events: list[dict[str, Any]]) -> dict[str, Any] | None:
            opened = [e["body"] for e in events if e["kind"] == "EpochOpened"]
            if not opened or len(opened[-1]["members"]) != members:
                return None
            number = opened[-1]["number"]
            begun = [e for e in events if e["kind"] == "TrainingStarted" and e["body"]["epoch"] == number]
            return opened[-1] if len(begun) == members else None

        until = time.monotonic() + 180.0
        while time.monotonic() < until:
            if (epoch := going(self.events())) is not None:
                return epoch
            time.sleep(0.3)
        last = [(e["kind"], e["body"]) for e in self.events()[-5:]]
        raise SystemExit(f"no epoch of {members} in three minutes: {last}")

    def instance(self, lease_id: str) -> str:
        made = [e["body"] for e in self.events() if e["kind"] == "LeaseCreated"]
        return next(str(e["instance_id"]) for e in made if e["lease_id"] == lease_id)

    def cloud(self) -> list[dict[str, Any]]:
        return cloud_log.read(self.home / "state" / FOLDER / LOG_FILE)[0]

    def stop(self) -> None:
        if self.job:
            with contextlib.suppress(SystemExit, subprocess.TimeoutExpired):
                self.cli("stop", self.job)


@contextlib.contextmanager
def bench(folder: Path, strikes: int = 0) -> Iterator[Bench]:
    made = Bench(folder, strikes)
    try:
        yield made
    finally:
        made.stop()


def notices(folder: Path, times: int) -> list[float]:
    """Of so many machines, one after the other."""
    with bench(folder, times) as b:
        b.launch("1")
        found: list[float] = []
        while len(found) < times:
            seen = [e["at_s"] for e in b.events() if e["kind"] == "NoticeSeen"]
            told = [r["wall_s"] for r in b.cloud() if r["kind"] == "notice"]
            found = [at_s - wall_s for at_s, wall_s in zip(seen, told, strict=False)][:times]
            time.sleep(0.3)
        return found


def silence(folder: Path) -> tuple[float, float]:
    """Until SUSPECT, until the epoch without it."""
    with bench(folder) as b:
        b.launch("1..2")
        last = _last(b.working(2))
        pids = processes.members(b.instance(last), None)
        seen, began_s = len(b.events()), time.time()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            suspect = b.after(seen, "SUSPECT", lambda e: e["body"].get("phase") == "suspect")
            without = b.after(
                seen, "next epoch", lambda e: e["kind"] == "EpochOpened" and len(e["body"]["members"]) == 1
            )
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    return suspect["at_s"] - began_s, without["at_s"] - began_s


def loss(folder: Path) -> float:
    with bench(folder) as b:
        b.launch("1..2")
        last = _last(b.working(2))
        instance, seen = b.instance(last), len(b.events())
        for pid in processes.members(instance, None):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        released = b.after(
            seen, "release", lambda e: e["kind"] == "LeaseReleased" and e["body"]["lease_id"] == last
        )
        gone = next(r["wall_s"] for r in b.cloud() if r["kind"] == "end" and r["instance_id"] == instance)
    return float(released["at_s"] - gone)


def _last(epoch: dict[str, Any]) -> str:
    return str(max(epoch["members"], key=lambda m: m["rank"])["lease_id"])


def main() -> int:
    parser = argparse.ArgumentParser(description="How soon a launcher knows.")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured = {"notice": notices(folder / "notice", args.times)}
        silent = [silence(folder / f"silent-{n}") for n in range(args.times)]
        measured["suspect"], measured["out of the epoch"] = ([x[i] for x in silent] for i in (0, 1))
        measured["lost"] = [loss(folder / f"lost-{n}") for n in range(args.times)]
    over = {what: max(seconds) > BARS[what] for what, seconds in measured.items()}
    if args.json:
        figures = {w: {"seconds": s, "bar_s": BARS[w], "ok": not over[w]} for w, s in measured.items()}
        print(json.dumps({"figures": figures, "load": os.getloadavg()[0]}, indent=1))
    else:
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seconds")
        for what, seconds in measured.items():
            each = "  ".join(f"{s:5.2f}" for s in seconds)
            verdict = "  OVER" if over[what] else ""
            print(f"{what:18} {each}   worst {max(seconds):5.2f}, bar {BARS[what]:g}{verdict}")
    return 1 if any(over.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
