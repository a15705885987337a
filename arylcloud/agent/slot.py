"""The one place where a command runs: starting it, watching it, and telling how it ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from arylcloud.agent import environment, progress
from arylcloud.agent.config import Config
from arylcloud.agent.decide import Outcome, Run
from arylcloud.agent.process import Command, shell_argv, signal_number
from arylcloud.agent.pulse import Pulse
from arylcloud.agent.shipper import Shipper, Stream, one_line
from arylcloud.agent.sync import Saved
from arylcloud.core.clock import Clock
from arylcloud.core.job import JobSpec
from arylcloud.core.protocol import EndDoc, EpochDoc, rank_stream

PROGRESS_S = 0.4
REAP_S = 10.0


class Slot:
    """Used by the deciding thread only. ``failed`` and ``ended`` are facts for ``decide``."""

    def __init__(
        self,
        config: Config,
        shipper: Shipper,
        *,
        saved: Callable[[], list[Saved]],
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        self._config = config
        self._shipper = shipper
        self._saved = saved
        self._clock = clock
        self._log = log
        self._command: Command | None = None
        self._stream: Stream | None = None
        self._read_s = float("-inf")
        self._resumed_step: int | None = None
        self.failed: Outcome | None = None
        """It could not even be started."""
        self.ended: Outcome | None = None
        self.ended_s: float | None = None
        self.started_s: float | None = None
        self.first_step_s: float | None = None
        self.progress = progress.Progress()
        self.pulse: Pulse | None = None

    def progress_file(self, epoch: EpochDoc) -> Path:
        return self._config.scratch / f"progress-{epoch.number:06d}.json"

    def environment(
        self, spec: JobSpec, secrets: Mapping[str, str], epoch: EpochDoc, rank: int
    ) -> dict[str, str]:
        env = environment.base(self._config, spec, secrets)
        return environment.of_rank(env, epoch, rank, self.progress_file(epoch))

    def clear(self) -> None:
        """Make way for the next epoch's command."""
        self.failed = self.ended = None
        self.started_s = self.first_step_s = self.ended_s = None
        self.progress = progress.Progress()
        self.pulse = None
        self._read_s = float("-inf")

    def start(
        self, spec: JobSpec, secrets: Mapping[str, str], epoch: EpochDoc, rank: int, resumed_step: int | None
    ) -> None:
        """What goes wrong is in ``failed``: the machine is at fault, not the job."""
        self._resumed_step = resumed_step
        try:
            if epoch.pipelines is not None:
                told = environment.pipeline_document(epoch.pipelines, rank)
                environment.pipeline_file(self.progress_file(epoch)).write_text(json.dumps(told))
            stream = self._stream = self._shipper.stream(rank_stream(epoch.number, rank))
            pulse = self.pulse = Pulse(self._clock.monotonic_s(), resumed_step or 0)

            def output(data: bytes) -> None:
                pulse.said(self._clock.monotonic_s())
                stream.write(data)

            self._command = Command(
                shell_argv(spec.run, self._config.scratch),
                cwd=self._config.workdir,
                env=self.environment(spec, secrets, epoch, rank),
                output=output,
                secrets=secrets.values(),
            )
        except Exception as error:  # noqa: BLE001 - BROKEN, with its reason: another machine may do
            problem = f"the command cannot be started: {one_line(error)}"
            self._log(problem)
            self.failed = Outcome(epoch=epoch.number, problem=problem)
            return
        self.started_s = self._clock.now_s()
        self._log(f"epoch {epoch.number}: command started as rank {rank} of {len(epoch.members)}")

    def watch(self, run: Run, now_s: float) -> None:
        """Look whether it has ended, and how far it is. ``now_s``: wall, for what is told of it."""
        if self._command is not None and (code := self._command.poll()) is not None:
            self.ended = Outcome(epoch=run.epoch.number, exit_code=code)
            self.ended_s = now_s
            self._command = None
            self._read_s = float("-inf")
            self._log(f"the command of epoch {run.epoch.number} ended with exit code {code}")
        read_s = self._clock.monotonic_s()
        if self.started_s is None or read_s - self._read_s < PROGRESS_S:
            return
        self._read_s = read_s
        try:
            self._read_progress(run, now_s)
        except OSError as error:  # a number on a screen must not hold up a decision
            self._log(f"progress cannot be read: {error}")

    def signal(self, name: str) -> None:
        self._log(f"asking the command to stop: {name}")
        if self._command is not None:
            self._command.signal(signal_number(name))

    def kill(self) -> None:
        self._log("the command has not stopped in its time: SIGKILL")
        if self._command is not None:
            self._command.kill()

    def close(self) -> None:
        """The machine ends: nothing of it may be left."""
        if self._command is not None:
            self._command.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._command.wait(REAP_S)

    def end_doc(self, run: Run) -> EndDoc:
        found = progress.read(self.progress_file(run.epoch))
        code = run.exit_code if run.exit_code is not None else 0
        return EndDoc(
            epoch=run.epoch.number,
            rank=run.rank,
            lease_id=self._config.lease_id,
            exit_code=code,
            signalled=run.signalled,
            finished=code == 0 and (found.finished or not run.signalled),
            step=self.progress.step,
            at_s=self.ended_s if self.ended_s is not None else self._clock.now_s(),
            tail=self._stream.tail() if self._stream is not None else "",
            told=found.step is not None,
        )

    def _read_progress(self, run: Run, now_s: float) -> None:
        """From its progress file, else from its checkpoints."""
        found = progress.read(self.progress_file(run.epoch))
        saved = self._saved()
        if found.step is None and saved:
            # the first checkpoint shows steps, not when they began: as far as is known, with the command
            found = replace(found, step=saved[-1].step, at_s=self.started_s)
        self.progress = found
        if self.pulse is not None:
            self.pulse.stepped(found.step, self._read_s)
        if self.first_step_s is None and found.step is not None and found.step > (self._resumed_step or 0):
            # by its own word rather than by when we looked: compressed time magnifies the difference
            told_s = found.at_s if found.first_at_s is None else found.first_at_s
            at_s = now_s if told_s is None else told_s
            self.first_step_s = min(now_s, max(at_s, self.started_s or at_s))
