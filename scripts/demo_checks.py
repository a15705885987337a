"""What the demo checks after the run. Nothing here imports arylcloud: bills, weights and processes are
looked at with other eyes than those that made them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

MINIMUM_S = 60


def cloud_log(home: Path) -> list[dict[str, Any]]:
    path = home / "state" / "local-cloud" / "cloud.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bill_usd(records: list[dict[str, Any]]) -> tuple[Fraction, list[str]]:
    """Sum over machines of the price integrated over its time, from the cloud's own log: exact.
    The second value names machines that have not ended."""
    launches = {r["instance"]["instance_id"]: r["instance"] for r in records if r["kind"] == "launch"}
    ends = {r["instance_id"]: r["ended_s"] for r in records if r["kind"] == "end"}
    total = Fraction(0)
    for name, machine in launches.items():
        start = Fraction(machine["launched_s"])
        end = max(Fraction(ends.get(name, start)), start + MINIMUM_S)
        steps = [(start, Fraction(machine["launch_usd_per_hour"]))]
        steps += sorted(
            (Fraction(r["from_s"]), Fraction(r["usd_per_hour"]))
            for r in records
            if r["kind"] == "price"
            and r["offer"] == machine["offer_key"]
            and start < Fraction(r["from_s"]) < end
        )
        for (at, price), (until, _price) in zip(steps, [*steps[1:], (end, Fraction(0))], strict=True):
            total += price * (until - at) / 3600
    return total, sorted(set(launches) - set(ends))


def job_weights(prefix: Path) -> tuple[str, dict[str, str]]:
    """Name and digests of the files of the job's last checkpoint, put together from its chunks."""
    newest = max(
        (
            json.loads(path.read_text(encoding="utf-8"))
            for path in (prefix / "ckpt" / "manifests").glob("*.json")
        ),
        key=lambda manifest: (manifest["step"], manifest["epoch"], manifest["number"]),
    )
    digests = {}
    for file in newest["files"]:
        digest = hashlib.sha256()
        for chunk in file["chunks"]:
            data = (prefix / "ckpt" / "chunks" / chunk["sha256"][:2] / chunk["sha256"]).read_bytes()
            digest.update(data)
        digests[file["path"]] = digest.hexdigest()
    return newest["directory"], digests


def folder_weights(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def processes_of(home: Path) -> list[str]:
    """Processes that have anything to do with ``home``: by command line, environment or folder."""
    mark = str(home)
    if not Path("/proc/self/environ").exists():
        listed = subprocess.run(["ps", "-axwwo", "pid=,command="], capture_output=True, text=True, check=True)
        return [line.strip() for line in listed.stdout.splitlines() if mark in line]
    return [f"{pid} {command}" for pid, command in _proc(mark) if pid != os.getpid()]


def _proc(mark: str) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            text = (
                command
                + b"\0"
                + (entry / "environ").read_bytes()
                + b"\0"
                + str((entry / "cwd").readlink()).encode()
            )
        except OSError:
            continue  # it has gone meanwhile, or belongs to somebody else
        if mark.encode() in text:
            yield int(entry.name), command.replace(b"\0", b" ").decode(errors="replace").strip()
