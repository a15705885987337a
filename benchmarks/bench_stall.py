"""What a checkpoint holds up the training: ``arylcloud.training.save`` beside plain files written to memory.

    python benchmarks/bench_stall.py [--mib 512] [--rounds 5] [--json]

In turn, in one process: the same bytes written to a file in /dev/shm; saved into ``$ARYL_CHECKPOINT_DIR`` (in
memory, too; and on the disk) while the agent's upload thread, in a process of its own, has nothing to do; and
saved while it is at work on the one before. The training may go on as soon as ``save`` returns: what is
counted is the time until then. Bar: 1.1 times the plain write, where the folder is in memory: CPU seconds
of the training's thread, which other load changes little; wall seconds are those of the load.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arylcloud import training

BAR = 1.1
AGENT = """\
import sys
from pathlib import Path
from arylcloud.agent.sync import CheckpointSync
from arylcloud.checkpoint.store import open_store
from arylcloud.core.clock import SystemClock

def say(text):
    print(text, flush=True)

store, folder = open_store(sys.argv[1]), Path(sys.argv[2])
sync = CheckpointSync(store, folder, job_id="bench", lease_id="l", clock=SystemClock(), log=say)
sync.begin(1)
sync.start()
say("ready")
sys.stdin.read()
"""


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(wall, CPU seconds of this thread)."""
    wall, cpu = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - wall, time.thread_time() - cpu


class Bench:
    def __init__(self, mib: int, place: Path, memory: Path) -> None:
        """``place``: where the training saves."""
        block = os.urandom(1 << 20)
        self.state = bytearray(b"".join(n.to_bytes(8, "little") + block[8:] for n in range(mib)))
        self.folder, self.memory = place / "checkpoints", memory
        self.folder.mkdir()
        os.environ |= {"ARYL_JOB_ID": "bench", "ARYL_CHECKPOINT_DIR": str(self.folder)}
        # the store in memory: a machine's is behind the network, and not on its disk
        command = [sys.executable, "-c", AGENT, (memory / "store").as_uri(), str(self.folder)]
        self.agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.step = 0
        self.hear("ready")

    def hear(self, word: str) -> None:
        assert self.agent.stdout is not None
        while line := self.agent.stdout.readline():
            if word in line:
                return
        raise SystemExit("the agent has ended")

    def change(self) -> None:
        """Every chunk is another one."""
        self.step += 1
        for at in range(0, len(self.state), 1 << 20):
            self.state[at + 8 : at + 16] = self.step.to_bytes(8, "little")

    def plain(self) -> None:
        folder = self.memory / f"plain-{self.step}"
        folder.mkdir()
        (folder / "state").write_bytes(self.state)

    def save(self) -> None:
        with training.save(self.step) as folder:
            (folder / "state").write_bytes(self.state)

    def close(self) -> None:
        assert self.agent.stdin is not None
        self.agent.stdin.close()
        self.agent.kill()
        self.agent.wait()


def measure(bench: Bench, rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "agent idle": [], "agent at work": []}
    for number in range(rounds + 1):  # the first warms up
        bench.change()
        rows = {"plain": timed(bench.plain)}
        shutil.rmtree(bench.memory / f"plain-{bench.step}")
        rows["agent idle"] = timed(bench.save)
        time.sleep(0.3)  # it has seen it
        bench.change()
        rows["agent at work"] = timed(bench.save)
        bench.hear(f"committed step-{bench.step}")
        for chunk in bench.memory.glob("store/ckpt/chunks/*/*"):
            chunk.unlink()
        for name, row in rows.items():
            if number:
                found[name].append(row)
    return found


def run(mib: int, rounds: int, root: str | None) -> dict[str, dict[str, float]]:
    memory = Path(tempfile.mkdtemp(prefix="stall-", dir="/dev/shm"))
    place = Path(tempfile.mkdtemp(prefix="stall-", dir=root))
    bench = Bench(mib, place, memory)
    try:
        rows = measure(bench, rounds)
    finally:
        bench.close()
        shutil.rmtree(memory)
        shutil.rmtree(place)
    return {
        name: {
            "wall_s": round(statistics.median(wall for wall, _ in all_), 3),
            "cpu_s": round(statistics.median(cpu for _, cpu in all_), 3),
        }
        for name, all_ in rows.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        f"{name}, {where}": row
        for where, root in (("in memory", "/dev/shm"), ("on the disk", None))
        for name, row in run(options.mib, options.rounds, root).items()
    }
    ratio = found["agent idle, in memory"]["cpu_s"] / found["plain, in memory"]["cpu_s"]
    holds = ratio <= BAR
    if options.json:
        print(json.dumps({"mib": options.mib, "measured": found, "cpu_ratio": ratio, "holds": holds}))
        return 0 if holds else 1
    print(f"{options.mib} MiB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, row in found.items():
        print(f"{name:28} wall {row['wall_s']:6.2f} s   CPU {row['cpu_s']:6.3f} s")
    print(
        f"CPU of a save in memory, of a plain write: {ratio:.2f}  bar {BAR:g}  {'ok' if holds else 'MISSED'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
