"""The demo: one job's whole life on this machine, then a check of every promise made on the way.

Exit code 0 only if all checks hold. Started by ``scripts/demo`` in an environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from demo_checks import bill_usd, cloud_log, folder_weights, job_weights, processes_of

ROOT = Path(__file__).resolve().parent.parent
JOB = ROOT / "examples" / "digits" / "job.yaml"
LIMIT_S = 120.0
CLOUD_GOES_S = 10.0


class Demo:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.failed: list[str] = []
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("ARYL", "SKYPILOT"))},
            "ARYLCLOUD_HOME": str(home),
            "ARYLCLOUD_LOCAL__MARKET": "demo",
        }

    def say(self, text: str) -> None:
        bold, plain = (
            ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else ("", "")
        )
        print(f"\n{bold}── {text} {'─' * max(0, 84 - len(text))}{plain}", flush=True)

    def run(self, *args: str) -> None:
        """One command as a user would type it, its output as it comes."""
        print(f"$ arylcloud {' '.join(args)}", flush=True)
        done = subprocess.run([sys.executable, "-m", "arylcloud", *args], env=self.env, cwd=ROOT, check=False)
        if done.returncode != 0:
            sys.exit(
                f"scripts/demo: `arylcloud {' '.join(args)}` exited {done.returncode}; home: {self.home}"
            )

    def ask(self, *args: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "arylcloud", *args, "--json"],
            env=self.env, cwd=ROOT, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def check(self, holds: bool, text: str) -> None:
        print(f"  {'ok  ' if holds else 'FAIL'} {text}", flush=True)
        if not holds:
            self.failed.append(text)


def main() -> int:
    begin = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="arylcloud-demo-")).resolve()
    demo = Demo(home)
    try:
        code = play(demo, begin)
    finally:
        if "--keep" in sys.argv or demo.failed:
            print(f"\nkept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    return code


def play(demo: Demo, begin: float) -> int:
    home = demo.home
    demo.say("1  Plan: the job over every GPU offer of three clouds, at published prices")
    demo.run("plan", str(JOB.relative_to(ROOT)))

    demo.say("2  Launch: on this machine's own little cloud, whose market takes machines back")
    demo.run("launch", str(JOB.relative_to(ROOT)), "--infra", "local", "-y")

    demo.say("3  Report: what it cost, where that went, what it would have cost otherwise")
    page = home / "report.html"
    demo.run("report", "--html", str(page))

    demo.say("4  Check: with other eyes than those that made it")
    report = demo.ask("report")
    truth = uninterrupted(demo)
    verify(demo, report, truth)
    took = time.monotonic() - begin
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    slow = (
        ""
        if took <= LIMIT_S
        else f": over the {LIMIT_S:.0f} s of a machine at rest (load per core here: {load:.1f})"
    )
    print(f"  note all of it took {took:.0f} s{slow}")
    if demo.failed:
        print(f"\n{len(demo.failed)} check(s) failed", flush=True)
        return 1
    print("\nEverything holds. Yours next:  arylcloud init  ·  arylcloud plan job.yaml", flush=True)
    return 0


def uninterrupted(demo: Demo) -> Path:
    """The same training once more, by hand and in one go; returns its last checkpoint's folder."""
    spec = yaml.safe_load(JOB.read_text(encoding="utf-8"))
    folder = demo.home / "uninterrupted"
    folder.mkdir()
    env = {**os.environ, **{k: str(v) for k, v in (spec.get("envs") or {}).items()}}
    env |= {"ARYL_CHECKPOINT_DIR": str(folder), "PYTHONPATH": str(ROOT), "DIGITS_STEP_S": "0"}
    subprocess.run(
        ["bash", "-c", spec["run"]], cwd=JOB.parent, env=env, check=True, stdout=subprocess.DEVNULL
    )
    return max(folder.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))


def verify(demo: Demo, report: dict[str, Any], truth: Path) -> None:
    usd = report["usd"]
    demo.check(report["phase"] == "succeeded", f"the job succeeded, at step {report['final_step']}")
    announced = report["interruptions_with_notice"]
    silent = report["interruptions"] - announced
    demo.check(announced >= 1, f"interruptions with notice survived: {announced}")
    demo.check(silent >= 1, f"interruptions without notice survived: {silent}")
    demo.check(report["migrations"] >= 1, f"migrations: {report['migrations']}")

    prefix = demo.home / "state" / "store" / "jobs" / report["job_id"]
    name, weights = job_weights(prefix)
    same = name == truth.name and weights == folder_weights(truth)
    demo.check(same, f"final weights ({name}) are byte for byte those of an uninterrupted run")

    exact, alive = bill_usd(cloud_log(demo.home))
    agrees = usd["compute"] is not None and abs(float(exact) - usd["compute"]) < 0.005
    said = "unknown" if usd["compute"] is None else f"${usd['compute']:.6f}"
    demo.check(agrees, f"compute {said} = ${float(exact):.6f} recomputed from the cloud's own log")
    parts = usd["compute"] + usd["egress"] + usd["storage"]
    demo.check(abs(parts - usd["total"]) < 1e-9, "compute + egress + storage = total")
    split = usd["useful"] + sum(usd["waste"].values())
    demo.check(abs(split - usd["compute"]) < 1e-9, "useful + boot + lost work + idle = compute")

    demo.check(not alive, "the cloud lists no machine that still runs" + (f": {alive}" if alive else ""))
    found = demo.ask("gc", "--dryrun")["found"]
    demo.check(not found, "gc finds nothing that the journal does not know")
    left = close_cloud(demo.home)
    demo.check(not left, "no process is left" + (f": {left}" if left else ""))


def close_cloud(home: Path) -> list[str]:
    """End the local cloud's daemon, which would end by itself once idle; returns what is left then.

    It has no machine any more: anything else that is left is a leak."""
    daemons = [r["pid"] for r in cloud_log(home) if r["kind"] == "daemon"]
    for line in processes_of(home):
        pid = int(line.split()[0])
        if pid == daemons[-1]:
            os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + CLOUD_GOES_S
    while (left := processes_of(home)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return left


if __name__ == "__main__":
    sys.exit(main())
