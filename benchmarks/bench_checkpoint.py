"""Checkpoints: upload and restore on file://, beside a plain copy of the same files, in one run.

    python benchmarks/bench_checkpoint.py [--mib 512] [--json]

Also what content-defined cutting would save on checkpoints of common shapes, and what its rolling hash
would cost an agent that has the standard library alone: why chunks are cut at fixed places.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arylcloud.checkpoint.restore import read_manifest, restore
from arylcloud.checkpoint.store import file_uri, open_store
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import SystemClock

MIB = 1 << 20


def timed(work: Callable[[], object], mib: float) -> dict[str, float]:
    """MiB/s on the wall, CPU seconds (all threads, system time too) per GiB."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"mib_per_s": round(mib / wall, 1), "cpu_s_per_gib": round(cpu / mib * 1024, 2)}


def transfer(mib: int, tmp: Path) -> dict[str, dict[str, float]]:
    source = tmp / "step-1"
    source.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        (source / f"shard-{number}.bin").write_bytes(rng.bytes(mib // 4 * MIB))
    (source / "_COMPLETE").touch()
    found = {"copy": timed(lambda: shutil.copytree(source, tmp / "copy"), mib)}
    found["sha256, one thread"] = timed(lambda: hash_all(source), mib)
    store = open_store(file_uri(tmp / "store"))
    uploader = Uploader(store)

    def commit(number: int) -> None:
        uploader.commit(
            source,
            job_id="bench",
            lease_id="bench-n0-a1",
            epoch=1,
            number=number,
            step=number,
            saved_at_s=time.time(),
            clock=SystemClock(),
        )

    found["upload"] = timed(lambda: commit(1), mib)
    found["upload, nothing changed"] = timed(lambda: commit(2), mib)
    manifest = read_manifest(store, "ckpt/manifests/e000001-000001.json")
    found["restore"] = timed(lambda: restore(store, manifest, tmp / "in"), mib)
    found["restore, already there"] = timed(lambda: restore(store, manifest, tmp / "in"), mib)
    durable = open_store(file_uri(tmp / "durable"), durable=True)
    uploader = Uploader(durable)
    found["upload, durable"] = timed(lambda: commit(1), mib)
    return found


def hash_all(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


# ---------------------------------------------------------------- fixed against content-defined cuts

FIXED, AVERAGE = 64 << 10, 64 << 10
"""Scaled down 128 times from 8 MiB, as the checkpoints below are from real ones."""


def gear(data: bytes) -> list[bytes]:
    """Content-defined chunks (gear hash, 64 KiB on average), vectorised: the hash at i depends on the last
    16 bytes only, since the mask looks at 16 bits that older bytes have left."""
    table = np.random.default_rng(1).integers(0, 1 << 16, 256, dtype=np.uint16)
    mixed = table[np.frombuffer(data, np.uint8)]
    rolling = np.zeros(len(mixed), np.uint16)
    for back in range(16):
        rolling[back:] += mixed[: len(mixed) - back] << np.uint16(back)
    cuts = [0, *(np.flatnonzero(rolling == 0) + 1).tolist(), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(cuts) if b > a]


def fixed(data: bytes) -> list[bytes]:
    return [data[at : at + FIXED] for at in range(0, len(data), FIXED)]


def resent(before: bytes, after: bytes, cut: Callable[[bytes], list[bytes]]) -> float:
    """Share of ``after`` that has to travel when ``before`` is there."""
    known = {hashlib.sha256(chunk).digest() for chunk in cut(before)}
    new = {hashlib.sha256(chunk).digest(): len(chunk) for chunk in cut(after)}
    return sum(size for digest, size in new.items() if digest not in known) / len(after)


def npz(arrays: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def aligned_zip(arrays: dict[str, Any], pickle_size: int) -> bytes:
    """As torch.save lays it out: a pickle of varying size, then records aligned to 64 bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.pkl", bytes(pickle_size))
        for name, array in arrays.items():
            header = out.tell() + 30 + len(name)
            info = zipfile.ZipInfo(name)
            info.extra = b"FB" + (pad := (-(header + 4)) % 64).to_bytes(2, "little") + bytes(pad)
            archive.writestr(info, array.tobytes())
    return out.getvalue()


def cutting() -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(2)
    frozen = {f"base.{i}": rng.standard_normal(1 << 18).astype(np.float32) for i in range(8)}
    trained = {f"adapter.{i}": rng.standard_normal(1 << 15).astype(np.float32) for i in range(8)}
    moved = {name: value + np.float32(1e-3) for name, value in trained.items()}
    everything = {name: value + np.float32(1e-3) for name, value in frozen.items()}
    cases = {
        "all weights trained (npz)": (npz(frozen), npz(everything)),
        "frozen base + adapter (npz)": (npz(frozen | trained), npz(frozen | moved)),
        "frozen base + adapter (torch zip)": (
            aligned_zip(frozen | trained, 9000),
            aligned_zip(frozen | moved, 9000),
        ),
        "the same, pickle 2 bytes longer": (
            aligned_zip(frozen | trained, 9000),
            aligned_zip(frozen | moved, 9002),
        ),
        "the same, pickle 300 bytes longer": (
            aligned_zip(frozen | trained, 9000),
            aligned_zip(frozen | moved, 9300),
        ),
    }
    return {
        name: {"fixed": round(resent(*pair, fixed), 3), "content_defined": round(resent(*pair, gear), 3)}
        for name, pair in cases.items()
    }


def rolling_cost() -> dict[str, float]:
    """A gear hash byte by byte in Python (what the agent would have to run), against SHA-256."""
    data = os.urandom(MIB)
    table = [int.from_bytes(os.urandom(8), "little") for _ in range(256)]

    def roll() -> None:
        value = 0
        for byte in data:
            value = ((value << 1) + table[byte]) & 0xFFFFFFFFFFFFFFFF

    python = timed(roll, 1)["mib_per_s"]
    big = data * 64
    sha = timed(lambda: hashlib.sha256(big), 64)["mib_per_s"]
    return {"gear in Python, MiB/s": python, "sha256, MiB/s": sha, "ratio": round(sha / python)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tmp = Path(tempfile.mkdtemp(prefix="bench-checkpoint-"))
    try:
        found = {
            "mib": options.mib,
            "cpus": os.cpu_count(),
            "transfer": transfer(options.mib, tmp),
            "share_resent": cutting(),
            "rolling_hash": rolling_cost(),
        }
    finally:
        shutil.rmtree(tmp)
    if options.json:
        print(json.dumps(found))
        return 0
    for title, rows in found.items():
        if not isinstance(rows, dict):
            print(f"{title}: {rows}")
            continue
        print(f"\n{title}")
        for name, row in rows.items():
            print(
                f"  {name:36}",
                row if not isinstance(row, dict) else "  ".join(f"{k} {v}" for k, v in row.items()),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
