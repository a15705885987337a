"""What must be true of every job that has ended, looked at from outside: weights, machines, money, steps."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.protocol import JOURNAL_PREFIX
from arylcloud.launcher.state import JobState
from e2e.market import TRAIN
from e2e.support import Home

Digests = dict[str, str]
MICRO = Fraction(1, 1_000_000)


def settled(home: Home, job_id: str, *, truth: Digests | None = None, phase: str = "succeeded") -> JobState:
    """The job has ended as it should, and nothing is left, lost or unaccounted. ``truth``: digests of
    the final checkpoint (None: of ``train.py`` with the settings of the job)."""
    state = home.state(job_id)
    assert state.phase == JobPhase(phase), f"{state.phase}: {state.phase_code}, {state.phase_text}"
    assert state.phase_code
    assert state.phase_text
    if phase == "succeeded":
        name, digests = final_weights(home, state)
        wanted = truth if truth is not None else chain_truth(tuple(sorted(_of_the_weights(state.spec.envs))))
        assert digests == wanted, f"{name} differs from the uninterrupted run's"
    machines_accounted(home, job_id)
    money_accounted(home, job_id)
    mirrored(home, job_id)
    assert not home.machine_processes(), "processes of ended machines"
    return state


# ---------------------------------------------------------------- weights


def final_weights(home: Home, state: JobState) -> tuple[str, Digests]:
    """Name and file digests of the last checkpoint, put together from its chunks."""
    assert state.lineage is not None, "the job has no checkpoint"
    prefix = home.prefix(state.job_id)
    manifest = json.loads((prefix / state.lineage.manifest).read_text())
    found = {}
    for file in manifest["files"]:
        chunks = [prefix / "ckpt" / "chunks" / c["sha256"][:2] / c["sha256"] for c in file["chunks"]]
        found[file["path"]] = hashlib.sha256(b"".join(path.read_bytes() for path in chunks)).hexdigest()
    return manifest["directory"], found


def folder_weights(folder: Path) -> Digests:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def last_checkpoint(folder: Path) -> Path:
    return max(folder.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))


def _of_the_weights(envs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Without the settings that change no weight: most tests share a truth."""
    elsewhere = ("E2E_LOG", "E2E_EXIT", "E2E_STEP_S", "E2E_LATER_STEP_S", "E2E_SAVE_S", "E2E_HOLD")
    return ((name, value) for name, value in envs.items() if name not in elsewhere)


@cache
def chain_truth(envs: tuple[tuple[str, str], ...]) -> Digests:
    """Of ``train.py``, run once, alone, without a pause and without an end before its end."""
    with TemporaryDirectory() as folder:
        env = {**os.environ, **dict(envs), "ARYL_CHECKPOINT_DIR": folder, "E2E_STEP_S": "0"}
        subprocess.run([sys.executable, str(TRAIN)], env=env, check=True, stdout=subprocess.DEVNULL)
        return folder_weights(last_checkpoint(Path(folder)))


# ---------------------------------------------------------------- machines and money


def machines_accounted(home: Home, job_id: str) -> None:
    """Cloud and journal know the same machines, each has one lease, all have ended."""
    state = home.state(job_id)
    records = home.cloud_records()
    launched = {
        r["instance"]["instance_id"]: r["instance"]["lease_id"]
        for r in records
        if r["kind"] == "launch" and r["instance"]["job_id"] == job_id
    }
    ended = {r["instance_id"] for r in records if r["kind"] == "end"}
    assert set(launched) <= ended, f"still running: {set(launched) - ended}"
    known = {lease.instance_id: lease.lease_id for lease in state.leases.values() if lease.instance_id}
    assert launched == known, "the cloud's machines are not the journal's"
    assert len(set(launched.values())) == len(launched), "two machines for one lease"
    open_ = {lease.lease_id: lease.phase for lease in state.leases.values() if lease.open}
    assert not open_, f"leases of an ended job that are open: {open_}"
    released = {x.lease_id for x in state.leases.values() if x.phase is LeasePhase.RELEASED}
    assert set(launched.values()) <= released


def money_accounted(home: Home, job_id: str) -> None:
    """The report's compute is the bill, recomputed from the cloud's own log; its parts sum to it."""
    report = home.report(job_id)
    usd = report["usd"]
    bill = exact_bill(home.cloud_records(), job_id)
    ours = {lease["lease_id"]: lease["usd"] for lease in report["leases"] if lease["instance_id"]}
    assert set(ours) == set(bill)
    for lease_id, exact in bill.items():
        assert abs(Fraction(str(ours[lease_id])) - exact) <= MICRO, (
            f"{lease_id}: {ours[lease_id]} != {float(exact)}"
        )
    assert abs(usd["compute"] - float(sum(bill.values()))) < 0.005
    assert abs(usd["compute"] + usd["egress"] + usd["storage"] - usd["total"]) < 1e-9
    assert abs(usd["useful"] + sum(usd["waste"].values()) - usd["compute"]) < 1e-9


def exact_bill(records: list[dict[str, Any]], job_id: str) -> dict[str, Fraction]:
    """Lease → price integrated over the time from launch to end, at least a minute; exact."""
    ends = {r["instance_id"]: r["ended_s"] for r in records if r["kind"] == "end"}
    found = {}
    for machine in (r["instance"] for r in records if r["kind"] == "launch"):
        if machine["job_id"] != job_id:
            continue
        start = Fraction(machine["launched_s"])
        end = max(Fraction(ends[machine["instance_id"]]), start + 60)
        points = [(start, Fraction(machine["launch_usd_per_hour"]))]
        points += sorted(
            (Fraction(r["from_s"]), Fraction(r["usd_per_hour"]))
            for r in records
            if r["kind"] == "price"
            and r["offer"] == machine["offer_key"]
            and start < Fraction(r["from_s"]) < end
        )
        found[machine["lease_id"]] = sum(
            (
                price * (until - at) / 3600
                for (at, price), (until, _) in pairwise([*points, (end, Fraction(0))])
            ),
            Fraction(0),
        )
    return found


def mirrored(home: Home, job_id: str) -> None:
    """The job's prefix holds the journal, record for record: `adopt` would find all of it."""
    records = home.events(job_id)
    folder = home.prefix(job_id) / JOURNAL_PREFIX
    found = [path.read_bytes() for path in sorted(folder.glob("*.json"))]
    assert found == [record.to_bytes() for record in records]


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of the command, in the training's own words."""

    attempt: int
    epoch: int
    start: int
    steps: tuple[int, ...]
    ended: bool
    """It said that it ended; else it was killed."""

    @property
    def last(self) -> int:
        return self.steps[-1] if self.steps else self.start


def attempts(home: Home, rank: int = 0) -> list[Attempt]:
    """From the training's log of its steps, in order of their start."""
    lines = defaultdict(list)
    for line in home.steps_log.read_text().splitlines() if home.steps_log.exists() else ():
        attempt, epoch, line_rank, what = line.split(maxsplit=3)
        if int(line_rank) == rank:
            lines[int(attempt), int(epoch)].append(what)
    found = []
    for (attempt, epoch), said in sorted(lines.items()):
        starts = [int(what.split()[1]) for what in said if what.startswith("start")]
        if not starts and all(what.startswith("signal") for what in said):
            continue  # it was asked to stop before it had begun
        assert len(starts) == 1, f"attempt {attempt} started {len(starts)} times"
        steps = tuple(int(what) for what in said if what.isdigit())
        assert steps == tuple(range(starts[0] + 1, starts[0] + 1 + len(steps))), "steps out of order"
        ended = any(what.startswith("end") for what in said)
        found.append(Attempt(attempt=attempt, epoch=epoch, start=starts[0], steps=steps, ended=ended))
    return found


def steps_kept(home: Home, job_id: str, *, cut_off: int | None = None) -> None:
    """Every attempt goes on from the newest committed checkpoint of the one before; one that could hand
    over (``ended``) loses nothing. ``cut_off``: the attempt whose machine died before its last save was
    committed."""
    state = home.state(job_id)
    opened = {epoch.number: epoch for epoch in state.epochs}
    committed = {(c.epoch, c.step) for c in state.checkpoints if c.manifest not in state.rejected}
    for path in (home.prefix(job_id) / "ckpt" / "manifests").glob("*.json"):
        if f"ckpt/manifests/{path.name}" not in state.rejected:
            manifest = json.loads(path.read_text())
            committed.add((manifest["epoch"], manifest["step"]))
    for before, after in pairwise(attempts(home)):
        assert after.start == opened[after.epoch].resume_step
        own = [step for epoch, step in committed if epoch == before.epoch]
        assert after.start == max(own, default=before.start), "not the newest committed checkpoint"
        if before.ended and before.attempt != cut_off:
            assert after.start == before.last, f"handed over at step {before.last}, resumed at {after.start}"
