"""Running a job's own command here for a stated time, and hearing how far it gets.

Where the steps are told, in this order: ``--pattern`` over the output, if it is given; the progress file
of ``arylcloud.training``; folders ``$ARYL_CHECKPOINT_DIR/step-N``. Checkpoints go to a scratch folder, and
scripts that save by arylcloud.training are told to wait with it: what saving costs is the plan's business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arylcloud.agent import progress
from arylcloud.agent.process import Command, shell_argv
from arylcloud.core.errors import UsageError, UserCommandFailed
from arylcloud.core.job import JobSpec
from arylcloud.planner.steprate import Reading

POLL_S: Final = 0.05
_SMI_S: Final = 2.0
_GRACE_S: Final = 10.0
_TAIL: Final = 8
_LONGEST_LINE: Final = 65536
_CHECKPOINT: Final = re.compile(r"step-(\d{1,18})")
_NO_SAVE_S: Final = "86400"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was seen of one run."""

    readings: tuple[Reading, ...]
    how: str
    """``pattern``, ``progress`` or ``checkpoints``."""
    exit_code: int | None
    """None: it was still running and was stopped."""
    peak_memory_gib: float | None
    """Largest sum over the GPUs, as nvidia-smi saw it; None without it."""


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """A group called ``step``, or the first group, is the number of steps done; UsageError otherwise."""
    if pattern is None:
        return None
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--pattern {pattern!r} is no regular expression: {error}") from error
    if not found.groups:
        raise UsageError(
            f"--pattern {pattern!r} has no group for the number of steps", hint=r"--pattern 'step (\d+)'"
        )
    return found


def environment(spec: JobSpec, secrets: Mapping[str, str], scratch: Path, gpus: int) -> dict[str, str]:
    """As on a machine of the job, one node; ``arylcloud.training`` can be imported, last on the path."""
    library = scratch / "lib" / "arylcloud"
    ours = Path(__file__).resolve().parents[1]
    shutil.copytree(ours / "training", library / "training", ignore=shutil.ignore_patterns("__pycache__"))
    env = {**os.environ, **spec.envs, **secrets}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (env.get("PYTHONPATH", ""), str(library.parent)) if p)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.pop("ARYL_NOTICE_FILE", None)
    env.pop("ARYL_WARNING_FILE", None)
    env.update(
        ARYL_JOB_ID=f"measure-{spec.name}",
        ARYL_ATTEMPT="1",
        ARYL_CHECKPOINT_DIR=str(scratch / "checkpoints"),
        ARYL_CHECKPOINT_INTERVAL_S=_NO_SAVE_S,
        ARYL_PROGRESS_FILE=str(scratch / "progress.json"),
        ARYL_NODE_RANK="0",
        ARYL_NUM_NODES="1",
        ARYL_NODE_IPS="127.0.0.1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        SKYPILOT_NODE_RANK="0",
        SKYPILOT_NODE_IPS="127.0.0.1",
        SKYPILOT_NUM_NODES="1",
        SKYPILOT_NUM_GPUS_PER_NODE=str(gpus),
        SKYPILOT_TASK_ID=f"measure-{spec.name}",
    )
    return env


class Listener:
    """Collects the command's lines: readings by the pattern, and the last ones for a message."""

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self.readings: list[Reading] = []
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self.fault: UsageError | None = None
        """What the pattern found and is no number; raised by whoever waits, not in the reader's thread."""
        self._pattern = pattern
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        now = time.monotonic()
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + data)  # progress bars rewrite their line
        self._rest = self._rest[-_LONGEST_LINE:]
        for raw in lines:
            line = raw.decode(errors="replace")
            if line.strip():
                self.tail.append(line)
            match = self._pattern.search(line) if self._pattern else None
            if match is not None:
                self._note(match, now)

    def _note(self, match: re.Match[str], now: float) -> None:
        text = match.groupdict().get("step") or match.group(1) or ""
        try:
            self.readings.append((now, float(text.replace(",", ""))))
        except ValueError:
            self.fault = UsageError(f"--pattern: {text!r} is no number of steps", hint=r"step (\d+)")


def run_for(
    spec: JobSpec,
    env: Mapping[str, str],
    scratch: Path,
    *,
    for_s: float,
    warmup_s: float,
    start_s: float,
    pattern: re.Pattern[str] | None,
    wish: Callable[[], object],
    set_up: bool,
) -> Run:
    """The job's command until ``warmup_s`` + ``for_s`` after its first step, then stopped.

    ``start_s``: how long it may take to the first step. ``wish``: true when the user wants to end it.
    ``set_up``: the job's ``setup:``, where it has one, has been run here.
    UserCommandFailed where it fails, UsageError where nothing tells steps.
    """
    listener = Listener(pattern)
    folder = Path(spec.workdir) if spec.workdir else scratch
    memory = _Memory()
    command = Command(shell_argv(spec.run, scratch), cwd=folder, env=env, output=listener)
    begun = time.monotonic()
    seen = _Sources(Path(env["ARYL_PROGRESS_FILE"]), Path(env["ARYL_CHECKPOINT_DIR"]), listener, pattern)
    try:
        code: int | None = None
        while code is None:
            code = command.poll()
            seen.look()
            first = seen.first_s()
            now = time.monotonic()
            if listener.fault is not None:
                raise listener.fault
            if wish() or (first is not None and now - first > warmup_s + for_s):
                break
            if first is None and now - begun > start_s:
                break
            if code is None:
                time.sleep(POLL_S)
        if code not in (None, 0):
            unprepared = (
                "setup: has not been run here; --setup runs it; " if spec.setup and not set_up else ""
            )
            last = "its last lines: " + " | ".join(listener.tail) if listener.tail else "it printed nothing"
            raise UserCommandFailed(
                f"the job's command failed with exit code {code} before it was measured",
                hint=unprepared + last,
            )
    finally:
        _end(command, spec.stop_signal)
        peak = memory.stop()
    how, readings = seen.best()
    if not readings:
        raise UsageError(
            "nothing tells how many steps are done: no progress by arylcloud.training, no folder "
            f"$ARYL_CHECKPOINT_DIR/step-N{', no line that the pattern finds' if pattern else ''} "
            f"in {time.monotonic() - begun:.0f} s",
            hint=r"say where the output has it: --pattern 'step (\d+)'; --start-within gives it more time",
        )
    return Run(readings=tuple(readings), how=how, exit_code=code, peak_memory_gib=peak)


class _Sources:
    def __init__(self, file: Path, folder: Path, listener: Listener, pattern: re.Pattern[str] | None) -> None:
        self._file, self._folder, self._listener = file, folder, listener
        self._pattern = pattern
        self._progress: list[Reading] = []
        self._checkpoints: list[Reading] = []
        self._last_at: float | None = None

    def look(self) -> None:
        found = progress.read(self._file)
        if found.step is not None and found.at_s is not None and found.at_s != self._last_at:
            self._last_at = found.at_s
            # its own clock says when; both clocks run alike
            self._progress.append((time.monotonic() - max(0.0, time.time() - found.at_s), found.step))
        if not self._progress and self._folder.is_dir():
            steps = [int(m[1]) for p in self._folder.iterdir() if (m := _CHECKPOINT.fullmatch(p.name))]
            if steps and (not self._checkpoints or max(steps) > self._checkpoints[-1][1]):
                self._checkpoints.append((time.monotonic(), max(steps)))

    def best(self) -> tuple[str, list[Reading]]:
        if self._pattern is not None:
            return "pattern", list(self._listener.readings)
        if self._progress:
            return "progress", self._progress
        return "checkpoints", self._checkpoints

    def first_s(self) -> float | None:
        """When the first step was done. The counter of a job at rest stands at 0."""
        _, readings = self.best()
        return next((t for t, step in readings if step > readings[0][1] or step > 0), None)


def _end(command: Command, stop_signal: str) -> None:
    from arylcloud.agent.process import signal_number

    if command.poll() is None:
        command.signal(signal_number(stop_signal))
        try:
            command.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait(_GRACE_S)
    command.close()


# ---------------------------------------------------------------- the machine


def smi(field: str) -> list[str] | None:
    """One line per GPU; None where there is no nvidia-smi or it has no answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, f"--query-gpu={field}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] or None


def gpu_device() -> bool:
    """The kernel shows a GPU that computes: NVIDIA's, AMD's, or Windows' under its Linux."""
    dev = Path("/dev")
    return any(dev.glob("nvidia[0-9]*")) or any((dev / name).exists() for name in ("kfd", "dxg"))


class _Memory:
    """Asks nvidia-smi now and then; starts nothing where there is none."""

    def __init__(self) -> None:
        self._peak: float | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if shutil.which("nvidia-smi") is not None:
            self._thread = threading.Thread(target=self._watch, name="gpu memory", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_SMI_S):
            used = [float(v) for v in smi("memory.used") or () if v.replace(".", "").isdigit()]
            if used:
                self._peak = max(self._peak or 0.0, sum(used) / 1024)

    def stop(self) -> float | None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=25)
        return self._peak
