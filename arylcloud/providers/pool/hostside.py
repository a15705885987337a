"""What runs on a machine of the pool, sent there with each call: standard library only, Python 3.11.

One call = one request (JSON on standard input) and one answer (JSON on standard output). Everything that is
known of the machine lies in one folder, changed under one lock:

    lent                    it may be used (``pool loan``); absent: its owner has it (``pool reclaim``)
    lease/spec.json         who has it: token, journal, job, lease, price, since when
    lease/leader.json       the first process of what runs there
    lease/notice.json       it is to be given back: when
    lease/ended.json        when, and why, it ended
    lease/work/             where the boot stub runs; its processes carry ARYL_POOL_LEASE; gone with the lease
    past/<lease_id>.json    former leases, for a while
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "ARYL_POOL_LEASE"
PAST = 50
"""Former leases that are remembered: their tokens make no second machine."""
TERM_S = 1.0
"""Between SIGTERM and SIGKILL, once the time that a notice gave is over."""
STARTING_S = 60.0
"""A lease without a process for this long has never begun: its claim was cut short."""

Document = dict[str, Any]


def answer(request: Document, source: str) -> Document:
    """``{verb, folder, …}`` → what there is now. An error is ``{"error": {"kind", "message"}}``."""
    folder = Path(request["folder"]).expanduser()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder):
        _settle(folder)
        match request["verb"]:
            case "look":
                return _told(folder)
            case "lend":
                (folder / "lent").touch(mode=0o600)
                return _told(folder)
            case "claim":
                return _claim(folder, request)
            case "end":
                if _is(folder, request["lease_id"]):
                    _end(folder, request["cause"])
                return _told(folder)
            case "reclaim":
                return _reclaim(folder, request, source)
            case "due":
                due = _read(folder / "lease" / "notice.json")
                if due is not None and _is(folder, request["lease_id"]) and time.time() >= due["at_s"]:
                    _end(folder, "interrupted")
                return {}
            case verb:
                return _no("usage", f"{verb!r} is no verb of this version")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- what there is


def _told(folder: Path) -> Document:
    current = _lease(folder / "lease")
    past = [_read(path) for path in sorted((folder / "past").glob("*.json"))]
    return {
        "lent": (folder / "lent").exists(),
        "lease": current,
        "past": [one for one in past if one is not None],
    }


def _lease(lease: Path) -> Document | None:
    spec = _read(lease / "spec.json")
    if spec is None:
        return None
    notice = _read(lease / "notice.json")
    return {
        **spec,
        **(_read(lease / "ended.json") or {}),
        "begun": (lease / "leader.json").exists(),
        "notice_at_s": None if notice is None else notice["at_s"],
    }


def _is(folder: Path, lease_id: str) -> bool:
    """The lease is this one, and has not ended."""
    lease = _lease(folder / "lease")
    return lease is not None and lease["lease_id"] == lease_id and "ended_s" not in lease


def _settle(folder: Path) -> None:
    """A lease whose first process is gone is over; nothing that it started may stay."""
    lease = _lease(folder / "lease")
    if lease is None or "ended_s" in lease:
        return
    if not lease["begun"]:
        if time.time() - lease["launched_s"] > STARTING_S:
            _end(folder, "unknown")
        return
    leader = _read(folder / "lease" / "leader.json")
    if leader is not None and _started(leader["pid"]) == leader["started"]:
        return
    code = folder / "lease" / "exit"
    _end(folder, "self" if code.exists() else "unknown", code.stat().st_mtime if code.exists() else None)


# ---------------------------------------------------------------- claim


def _claim(folder: Path, request: Document) -> Document:
    """One lease at a time. The same token gets the same lease, ended or not."""
    spec: Document = request["spec"]
    told = _told(folder)
    known = [one for one in [told["lease"], *told["past"]] if one and one["token"] == spec["token"]]
    if known and (known[0].get("ended_s") is not None or known[0].get("begun")):
        return told
    if not known:
        if told["lease"] is not None and told["lease"].get("ended_s") is None:
            return _no("busy", f"{told['lease']['job_id']} has it")
        if not told["lent"]:
            return _no("not_lent", "its owner has it")
        _archive(folder)
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        (fresh / "work").mkdir(parents=True, mode=0o700)
        (fresh / "boot.sh").write_text(request["boot"], encoding="utf-8")
        _write(fresh / "spec.json", {**spec, "launched_s": time.time()})
        fresh.rename(folder / "lease")
    _start(folder / "lease")
    return _told(folder)


def _start(lease: Path) -> None:
    """The stub in a session of its own; its exit code says afterwards that it ended by itself."""
    env = {**os.environ, MARK: lease_id(lease)}
    with (lease / "console.log").open("ab") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'sh ../boot.sh; echo "$?" >../exit.part; mv ../exit.part ../exit'],
            cwd=lease / "work",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _write(lease / "leader.json", {"pid": process.pid, "started": _started(process.pid)})


def lease_id(lease: Path) -> str:
    spec = _read(lease / "spec.json")
    return "" if spec is None else str(spec["lease_id"])


def _archive(folder: Path) -> None:
    """Make room for the next lease: in one step, whatever becomes of this call afterwards."""
    if not (folder / "lease").exists():
        return
    lease = _lease(folder / "lease")
    if lease is not None:
        past = folder / "past"
        past.mkdir(exist_ok=True, mode=0o700)
        _write(past / f"{lease['launched_s']:017.6f}.json", lease)
        for path in sorted(past.glob("*.json"))[:-PAST]:
            path.unlink()
    (folder / "lease").rename(folder / f"old-{time.time_ns()}")
    for old in folder.glob("old-*"):  # files that are not ours to remove are left where they harm nobody
        shutil.rmtree(old, ignore_errors=True)


# ---------------------------------------------------------------- the end


def _reclaim(folder: Path, request: Document, source: str) -> Document:
    """From now on nobody new gets it; who has it is told, and ended when the time is over."""
    (folder / "lent").unlink(missing_ok=True)
    lease = _lease(folder / "lease")
    if lease is None or "ended_s" in lease or lease["notice_at_s"] is not None:
        return _told(folder)
    at_s = time.time() + float(request["within_s"])
    _write(folder / "lease" / "notice.json", {"action": "terminate", "at_s": at_s})
    due = {"verb": "due", "folder": str(folder), "lease_id": lease["lease_id"]}
    program = f"import time; time.sleep({float(request['within_s'])!r}); SOURCE = {source!r}; exec(SOURCE)"
    env = {key: value for key, value in os.environ.items() if key != MARK}
    waiter = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert waiter.stdin is not None
    waiter.stdin.write(json.dumps(due))
    waiter.stdin.close()
    return _told(folder)


def _end(folder: Path, cause: str, ended_s: float | None = None) -> None:
    lease = folder / "lease"
    leader = _read(lease / "leader.json")
    name = lease_id(lease)
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, 10.0)):
        give_up_s = time.monotonic() + patience_s
        while (found := _processes(name, leader)) and time.monotonic() < give_up_s:
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            time.sleep(0.05)
    if found:
        raise OSError(f"processes of {name} cannot be ended: {found}")
    _give_back(lease, name)
    _write(lease / "ended.json", {"ended_s": ended_s or time.time(), "cause": cause})


def _give_back(lease: Path, name: str) -> None:
    """Memory, disk and what was lent to the job: the owner has them again, not only the machine."""
    with contextlib.suppress(OSError):
        (lease / "work" / "boot.log").replace(lease / "boot.log")
    shutil.rmtree(lease / "work", ignore_errors=True)
    shutil.rmtree(f"/dev/shm/arylcloud-{name}", ignore_errors=True)  # noqa: S108 - see agent/inmemory.py


def _processes(name: str, leader: Document | None) -> list[int]:
    """Of the lease: whatever carries its mark, or is of its first process' session."""
    session = (
        leader["pid"] if leader is not None and _started(leader["pid"]) in (None, leader["started"]) else 0
    )
    mark = f"{MARK}={name}".encode()
    found = []
    for pid in _all_pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            ours = (session and os.getsid(pid) == session) or mark in _environ(pid)
            if ours and _started(pid) is not None:
                found.append(pid)
    return found


def _all_pids() -> list[int]:
    if Path("/proc/self").exists():
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    rows = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=True).stdout
    return [int(row) for row in rows.split()]


def _environ(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _started(pid: int) -> str | None:
    """When a process began, which tells it from a later one of the same number; None = it runs no more."""
    if Path("/proc/self").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    rows = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not rows or rows.startswith("Z") else rows.partition(" ")[2].strip()


# ---------------------------------------------------------------- files


def _read(path: Path) -> Document | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, document: Document) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(path)


def _no(kind: str, message: str) -> Document:
    return {"error": {"kind": kind, "message": message}}


if "SOURCE" in globals():  # sent here: see reach.py
    try:
        told = answer(json.load(sys.stdin.buffer), globals()["SOURCE"])
    except (OSError, ValueError, KeyError) as error:
        told = _no("other", f"{type(error).__name__}: {error}")
    json.dump(told, sys.stdout)
