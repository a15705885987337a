"""``serve`` for all jobs: one process per job, so that none hurts another; a dead one is started again."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from arylcloud.cli.output import note
from arylcloud.cli.settings import Folders
from arylcloud.cli.spawn import launcher_log, start_launcher
from arylcloud.core.errors import ArylError, ConflictError
from arylcloud.launcher.fold import apply
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.state import JobState

LOOK_S = 5.0
END_S = 10.0
"""A launcher that is told to end may be in the middle of a call to a cloud."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Before a launcher that has died is started again; twice as long each time."""
ELSEWHERE_S = 60.0
"""Before a job that another home had is looked at again."""


@dataclass(slots=True, kw_only=True)
class Server:
    """Each job on its own: one that is damaged, or is another home's, is said once and left alone."""

    journal: Journal
    places: Folders
    _running: dict[str, JobState] = field(default_factory=dict)
    """As far as they have been read: only what is new is read again."""
    _ended: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """Job → newest record, phase, code. Not read again unless a record has come (``resume``)."""
    _elsewhere: dict[str, float] = field(default_factory=dict)
    """Job → not before, on the monotonic clock: whoever has it may die, too."""
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _pauses: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Job → (not before, on the monotonic clock; the pause after that)."""
    _said: dict[str, str] = field(default_factory=dict)

    @property
    def every_s(self) -> float:
        """Between two looks at the journal for jobs without a launcher."""
        return LOOK_S

    def look(self) -> None:
        """Every job once. Raises nothing that one job, or a disk that is full, can cause."""
        try:
            jobs = self.journal.jobs()
        except ArylError as error:
            self._say("the journal", error.message)
            return
        for job_id in jobs:
            try:
                self._serve(job_id)
            except ConflictError as error:
                self._leave(job_id, error.message)
            except ArylError as error:
                self._say(job_id, error.message)

    def stop(self) -> int:
        """End the launchers that this one started, and wait for that. Returns how many there were."""
        running = [child for child in self._children.values() if child.poll() is None]
        for child in running:
            child.terminate()
        deadline_s = time.monotonic() + END_S
        for child in running:
            try:
                child.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        return len(running)

    def document(self) -> list[dict[str, Any]]:
        """What became of each job, for ``--json``."""
        running = [(job_id, str(s.phase), s.phase_code) for job_id, s in self._running.items()]
        ended = [(job_id, phase, code) for job_id, (_seq, phase, code) in self._ended.items()]
        return [{"job_id": i, "phase": phase, "code": code} for i, phase, code in sorted(running + ended)]

    def _serve(self, job_id: str) -> None:
        self._reap(job_id)
        if time.monotonic() < self._elsewhere.get(job_id, 0.0):
            return
        known = self._ended.get(job_id)
        if known is not None and self.journal.head(job_id) == known[0]:
            return
        state = self._read(job_id)
        if state is None:
            return
        if state.queued and state.placed is None and not state.open_leases and not state.phase.ended:
            self._say(job_id, "is queued: `arylcloud serve --policy …` says when it runs")
            return
        if state.phase.ended and not self.journal.unmirrored(job_id):
            self._running.pop(job_id, None)
            self._ended[job_id] = (state.seq, str(state.phase), state.phase_code)
            return
        not_before_s, pause_s = self._pauses.get(job_id, (0.0, FIRST_PAUSE_S))
        if time.monotonic() < not_before_s:
            return
        child = start_launcher(self.journal, job_id, self.places)
        if child is not None:
            self._children[job_id] = child
            self._pauses[job_id] = (time.monotonic() + pause_s, min(2 * pause_s, LONGEST_PAUSE_S))

    def _read(self, job_id: str) -> JobState | None:
        state = self._running.get(job_id)
        for record in self.journal.records(job_id, after=state.seq if state is not None else 0):
            state = apply(state, record)
        if state is not None:
            self._running[job_id] = state
        return state

    def _reap(self, job_id: str) -> None:
        child = self._children.get(job_id)
        code = None if child is None else child.poll()
        if code is None:
            return
        del self._children[job_id]
        if code == ConflictError.exit_code:
            self._leave(job_id, "another launcher has it")
        elif code != 0:
            self._say(job_id, f"its launcher has died ({code}); see {launcher_log(self.places, job_id)}")

    def _leave(self, job_id: str, text: str) -> None:
        """To whoever has it, for a while: a launcher that looks again costs less than a job without one."""
        self._elsewhere[job_id] = time.monotonic() + ELSEWHERE_S
        self._pauses.pop(job_id, None)
        self._say(job_id, text)

    def _say(self, what: str, text: str) -> None:
        if self._said.get(what) != text:
            self._said[what] = text
            note(f"{what}: {text}")
