"""A look at the GPUs before work begins: are they all there, are they what was paid for, are they sound?

By ``nvidia-smi`` and the kernel's log, in a few seconds: they know the faults that a driver has noticed. (A
matrix product would tell more; it needs the job's own libraries.) A machine that fails is replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import IntegrityError
from arylcloud.core.gpus import BY_NAME, same_chip
from arylcloud.core.protocol import BAD_HARDWARE

TOOL: Final = "nvidia-smi"
CHECK_S: Final = 60.0
LEAST_MEMORY: Final = 0.85
"""Of what its type should have: drivers and ECC take up to a tenth."""
_FIELDS: Final = ",".join(
    (
        "memory.total",
        "ecc.errors.uncorrected.volatile.total",
        "remapped_rows.failure",
        "remapped_rows.pending",
    )
)
_LISTED: Final = re.compile(r"GPU (\d+): (.+?)(?: \(UUID: .*\))?\s*\Z")
_XID: Final = re.compile(r"NVRM: Xid \([^)]*\): (\d+)")
_FATAL_XIDS: Final = {
    48: "a memory error that cannot be corrected",
    64: "its memory cannot be repaired",
    74: "NVLink",
    79: "it has fallen off the bus",
    95: "a memory error that was not contained",
    119: "its own processor does not answer",
    120: "its own processor has failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    count: int
    gpu: str | None = None
    """Canonical name; None = not said."""
    own_host: bool = False
    """The user's own machine: without ``nvidia-smi`` it is taken at its word, and its kernel's log is old."""


def check_gpus(wanted: Wanted) -> str:
    """What was found, in one line. IntegrityError names what is wrong: no driver on the image, or (with
    ``BAD_HARDWARE`` in front) a machine that is not what it should be."""
    spec = BY_NAME.get(wanted.gpu or "")
    if spec is not None and spec.vendor != "NVIDIA":
        return f"{wanted.gpu} is not NVIDIA's: not looked at"
    try:
        listed = _run(TOOL, "-L")
    except FileNotFoundError:
        if wanted.own_host:
            return f"no {TOOL} on this machine: its GPUs are not looked at"
        raise IntegrityError(
            f"no {TOOL} on this machine: its image has no NVIDIA driver",
            hint="name an image with it: resources: {image_id: …}",
        ) from None
    except subprocess.TimeoutExpired:
        raise _bad(f"{TOOL} has not answered for {CHECK_S:.0f} s") from None
    names = [found[2] for line in listed.stdout.splitlines() if (found := _LISTED.match(line))]
    if listed.returncode != 0 or len(names) < wanted.count:
        said = (listed.stderr or listed.stdout).strip().partition("\n")[0]
        raise _bad(f"{len(names)} of {wanted.count} GPUs answer on this machine: {said[:200]}")
    if wanted.gpu is not None:
        others = [name for name in names[: wanted.count] if not same_chip(wanted.gpu, name)]
        if others:
            raise _bad(f"{wanted.gpu} was asked for, this machine has {', '.join(dict.fromkeys(others))}")
    _sound(wanted)
    if not wanted.own_host:
        _kernel_log()
    return f"{len(names)} × {names[0]}" if names else "no GPU"


def _sound(wanted: Wanted) -> None:
    """Memory and its errors. What this driver does not know, or tells in another form, is not judged."""
    try:
        told = _run(TOOL, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
    except OSError:
        return
    except subprocess.TimeoutExpired:
        raise _bad(f"{TOOL} has not answered for {CHECK_S:.0f} s") from None
    if told.returncode != 0:
        return
    spec = BY_NAME.get(wanted.gpu or "")
    least_mib = LEAST_MEMORY * 1024 * spec.mem_gib if spec is not None and spec.mem_gib else 0.0
    for number, line in enumerate(told.stdout.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_FIELDS.split(",")):
            return
        mib, errors, failed, pending = cells
        if errors.isdigit() and int(errors) > 0:
            raise _bad(f"GPU {number} has {errors} memory errors that cannot be corrected")
        if failed.lower() == "yes" or failed == "1":
            raise _bad(f"the memory of GPU {number} has faults that cannot be repaired")
        if pending.lower() == "yes" or pending == "1":
            raise _bad(f"the memory of GPU {number} has faults, to be repaired at its next reset")
        if mib.isdigit() and int(mib) < least_mib:
            raise _bad(f"GPU {number} has {int(mib) / 1024:.0f} GiB, which is less than {wanted.gpu} has")


def _kernel_log() -> None:
    """XIDs that mean hardware, since this machine has booted. A log that cannot be read says nothing."""
    try:
        log = _run("dmesg")
    except (OSError, subprocess.TimeoutExpired):
        return
    for found in _XID.finditer(log.stdout):
        if (meaning := _FATAL_XIDS.get(int(found[1]))) is not None:
            raise _bad(f"the driver has reported Xid {found[1]}: {meaning}")


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Raises OSError; TimeoutExpired after CHECK_S, also if the process cannot be killed: one that waits in
    the kernel for a GPU that has gone does not end, and nobody waits for it."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=CHECK_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        threading.Thread(target=process.wait, name="gpucheck-wait", daemon=True).start()  # no zombie, if ever
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _bad(text: str) -> IntegrityError:
    return IntegrityError(f"{BAD_HARDWARE}{text}")
