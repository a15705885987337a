"""Watching a job: events as they come, progress, ETA and dollars so far; Ctrl-C asks.

The watcher only reads. Whatever happens to it, the launcher behind goes on; a launcher that has
died is started again, since that is always safe.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING

from arylcloud.cli import describe
from arylcloud.cli.interrupts import Interrupts
from arylcloud.cli.output import colour, hanging, note, stderr, usd
from arylcloud.cli.progress import Progress, read_progress
from arylcloud.cli.settings import Folders
from arylcloud.cli.spawn import error_of, last_words, launcher_log, start_launcher
from arylcloud.core.errors import ConflictError, Interrupted

if TYPE_CHECKING:
    import subprocess

    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

POLL_S = 0.25
RESTARTS = 20
FRUITLESS = 3
"""Restarts in a row that did not even get to a record."""


def follow(
    journal: Journal,
    store: ObjectStore,
    job_id: str,
    places: Folders,
    *,
    quiet: bool = False,
    interrupts: Interrupts | None = None,
    since_seq: int = 0,
) -> JobState:
    """Until the job has ended. Raises Interrupted when the user detaches, or the terminal is closed.
    ``interrupts``: those that are noted already; ``since_seq``: what came up to it is not told again."""
    with contextlib.ExitStack() as stack:
        if interrupts is None:
            interrupts = stack.enter_context(Interrupts())
        watcher = _Watcher(journal, store, job_id, places, quiet, interrupts, since_seq)
        while (state := watcher.run()) is None:
            _ask(watcher, interrupts)
        return state


class _Watcher:
    def __init__(
        self,
        journal: Journal,
        store: ObjectStore,
        job_id: str,
        places: Folders,
        quiet: bool,
        interrupts: Interrupts,
        since_seq: int,
    ) -> None:
        self.journal = journal
        self.store = store
        self.job_id = job_id
        self.places = places
        self.quiet = quiet
        self.interrupts = interrupts
        self.since_seq = since_seq
        self.state: JobState | None = None
        self.process: subprocess.Popen[bytes] | None = None
        """The launcher that was started here last."""
        self.restarts = 0
        self.fruitless = 0
        self.restarted_at_seq = 0

    def run(self) -> JobState | None:
        """None: a signal has come."""
        live = self._bar()
        checked_s = time.monotonic()
        try:
            while True:
                self._new_events()
                assert self.state is not None
                if self.state.phase.ended:
                    return self.state
                if self.interrupts.wish is not None:
                    return None
                if live is not None:
                    live.show(self.state, read_progress(self.store, self.state))
                if time.monotonic() - checked_s > 2:
                    self._revive()
                    checked_s = time.monotonic()
                time.sleep(POLL_S)
        finally:
            if live is not None:
                live.close()

    def _bar(self) -> Progress | None:
        return Progress(stderr()) if colour(sys.stderr) and not self.quiet else None

    def _new_events(self) -> None:
        from arylcloud.launcher.fold import apply

        for record in self.journal.records(self.job_id, after=self.state.seq if self.state else 0):
            before, self.state = self.state, apply(self.state, record)
            line = describe.line(record, self.state, before)
            if line is not None and not self.quiet and record.seq > self.since_seq:
                note(hanging(line, 10))

    def _revive(self) -> None:
        if self.journal.claimed(self.job_id):
            return
        self._new_events()
        if self.state is None or self.state.phase.ended:
            return
        holder = self.state.launcher
        if self.restarts and holder is not None and holder.home not in ("", self.journal.journal_id):
            raise ConflictError(
                f"a launcher on {holder.host} has taken {self.job_id} over and runs it",
                hint=f"`arylcloud adopt {self.state.prefix_uri} --force` takes it back",
            )
        died = None if self.process is None else self.process.poll()
        process = start_launcher(self.journal, self.job_id, self.places)
        if process is None:
            return
        self.process = process
        self.restarts += 1
        self.fruitless = self.fruitless + 1 if self.state.seq == self.restarted_at_seq else 1
        self.restarted_at_seq = self.state.seq
        log = launcher_log(self.places, self.job_id)
        note(hanging(f"the launcher had died; it has been started again (its log: {log})", 2))
        if self.restarts > RESTARTS or self.fruitless > FRUITLESS:
            raise error_of(died)(
                f"the launcher of {self.job_id} dies again and again: {last_words(log)}",
                hint=f"machines go on; its log is {log}; `arylcloud resume {self.job_id}` tries again",
            )


def _ask(watcher: _Watcher, interrupts: Interrupts) -> None:
    """Detach or stop; a second Ctrl-C, or no terminal, detaches: the job goes on either way."""
    from arylcloud.cli.request import write_request

    job_id = watcher.job_id
    where = f"`arylcloud status {job_id}` shows it, `arylcloud stop {job_id}` ends it"
    if interrupts.take() is not signal.SIGINT or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Interrupted(f"detached: {job_id} goes on", hint=where, chosen=True)
    try:
        interrupts.impatient = True
        answer = _answer()
    except KeyboardInterrupt:
        answer = "d"
        sys.stderr.write("\n")
        interrupts.take()
    finally:
        interrupts.impatient = False
    if answer == "s":
        write_request(watcher.store, "stop", {})
        note("stopping: final checkpoint, then every machine is released")
    elif answer != "w":
        raise Interrupted(f"detached: {job_id} goes on", hint=where, chosen=True)


def _answer() -> str:
    """``d``, ``s`` or ``w``. An answer that is none of them is no answer: it is asked again. The end of
    the input detaches, as an empty line does."""
    known = {"d": "d", "detach": "d", "s": "s", "stop": "s", "w": "w", "watch": "w", "watch on": "w", "": "d"}
    sys.stderr.write("\n")
    while True:
        sys.stderr.write("[d]etach: the job goes on · [s]top: save, then end · [w]atch on? [d] ")
        sys.stderr.flush()
        said = sys.stdin.readline()
        answer = known.get(said.strip().lower())
        if answer is not None:
            return answer
        note(f"{said.strip()!r} is none of them: d, s or w")


def cost_line(state: JobState, total_usd: float | None) -> str:
    """The last line of every job: how it ended, after what, for how much."""
    from arylcloud.cli.describe import spelled
    from arylcloud.core.phases import JobPhase

    word = {JobPhase.SUCCEEDED: "finished", JobPhase.STOPPED: "stopped", JobPhase.FAILED: "failed"}.get(
        state.phase, str(state.phase)
    )
    parts = [
        f"{state.spec.name} {word}: {spelled(state.phase_text)}",
        f"cost {usd(total_usd)}",
        _count(state.interruptions, "interruption"),
        _count(state.migrations_done, "migration"),
    ]
    return " · ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
