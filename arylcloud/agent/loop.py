"""The agent: one thread that decides (``decide.step``), and helpers that wait.

Nothing in here may end a healthy command. An error of our own is caught at the edge of a turn,
logged, and said in the heartbeat when it keeps coming.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from arylcloud.agent import deadman, decide, environment, notice, progress
from arylcloud.agent.beats import Beats
from arylcloud.agent.boot import Boot, Booted
from arylcloud.agent.config import Config
from arylcloud.agent.execs import Execs, Place
from arylcloud.agent.mailbox import Mailbox
from arylcloud.agent.process import Command, shell_argv, signal_number
from arylcloud.agent.reports import Reporter
from arylcloud.agent.restoring import Restorer
from arylcloud.agent.shipper import Shipper, Stream, one_line
from arylcloud.agent.sync import CheckpointSync, complete
from arylcloud.core.clock import Clock
from arylcloud.core.job import JobSpec
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import AgentPhase, EndDoc, EpochDoc, Heartbeat, Notice, boot_stream, rank_stream

TICK_S = 0.1
PROGRESS_S = 0.4
MAILBOX_SILENT_S = 30.0
WATCHDOG_MARGIN_S = 60.0
ERRORS_SAID = 3
"""Turns in a row that failed before the heartbeat speaks of it."""


class Helper(Protocol):
    """A thread of ours."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Agent:
    def __init__(self, config: Config, store: ObjectStore, *, clock: Clock) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        config.scratch.mkdir(parents=True, exist_ok=True)
        self.shipper = Shipper(store, config.scratch / "logs", on_error=self._log)
        self.boot_log = self.shipper.stream(boot_stream(config.lease_id))
        self.mailbox = Mailbox(store, job_id=config.job_id, clock=clock, log=self._log)
        self.sync = CheckpointSync(
            store,
            config.checkpoints,
            job_id=config.job_id,
            lease_id=config.lease_id,
            clock=clock,
            log=self._log,
        )
        self.restorer = Restorer(
            store,
            self.sync,
            checkpoints=config.checkpoints,
            cache=config.scratch / "chunks",
            job_id=config.job_id,
            log=self._log,
        )
        self.boot = Boot(store, config, self.boot_log, log=self._log)
        self.execs = Execs(store, clock=clock, place=self._place, log=self._log)
        self.reporter = Reporter(store, self.shipper, log=self._log)
        self.state = decide.State(lease_id=config.lease_id)
        first = Heartbeat(lease_id=config.lease_id, seq=0, at_s=clock.now_s(), phase=AgentPhase.BOOTING)
        self.beats = Beats(store, first, clock=clock, log=self._log)
        self.notice: Notice | None = None
        self.shutdown: str | None = None
        self.done = threading.Event()
        self._command: Command | None = None
        self._stream: Stream | None = None
        self._started: decide.Outcome | None = None
        self._ended: decide.Outcome | None = None
        self._command_started_s: float | None = None
        self._ended_s: float | None = None
        self._first_started_s: float | None = None
        self._first_step_s: float | None = None
        self._progress = progress.Progress()
        self._progress_read_s = float("-inf")
        self._begun_s = clock.now_s()
        self._errors = 0
        self._error: str | None = None
        self._setup_reported = False
        self._notice_told = False
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._until_written_s: float | None = None

    # ------------------------------------------------------------ life

    def run(self) -> None:
        """Until this machine is to end. The helpers are daemon threads: none of them is waited for."""
        earlier = self.config.home / "boot.log"
        if earlier.exists():
            self.boot_log.write(earlier.read_bytes())
        self._log(f"agent of {self.config.lease_id} started")
        helpers: list[Helper] = [
            self.beats,
            self.shipper,
            self.mailbox,
            self.boot,
            self.sync,
            self.restorer,
            self.execs,
        ]
        make_ask = notice.PROTOCOLS.get(self.config.metadata)
        if make_ask is not None:
            ask = make_ask(self.config.metadata_url, self.clock)
            poll_s = self.config.metadata_poll_s
            helpers.append(notice.Watcher(ask, poll_s=poll_s, on_notice=self._on_notice, on_error=self._log))
        for helper in helpers:
            helper.start()
        while not self.done.is_set():
            self.turn()
            self.done.wait(TICK_S)
        for helper in helpers:
            helper.stop()
        self._close()

    def turn(self) -> None:
        try:
            self._turn()
            self._errors = 0
        except Exception as error:  # noqa: BLE001 - field case 20: our errors end no workload
            self._errors += 1
            text = f"internal error of the agent: {one_line(error)}"
            if text != self._error:
                import traceback

                self._log(traceback.format_exc())
            self._error = text

    def _turn(self) -> None:
        now_s = self.clock.now_s()
        booted = self._report_setup(self.boot.state)
        self._observe(now_s)
        inputs = self._inputs(booted, now_s)
        self._keep_until(inputs.until_s, inputs.grace_s)
        # several steps may follow from one another; each is asked for once
        for _ in range(8):
            before = self.state
            self.state, effects = decide.step(before, inputs, now_s)
            for effect in effects:
                self._perform(effect, booted)
            if not effects and self.state == before:
                break
            inputs = self._inputs(booted, now_s)
        run = self.state.run
        if run is None or run.signalled:
            self._tell_training()
        self.beats.publish(self._heartbeat(booted, inputs))
        phase = decide.phase(self.state, inputs)
        waiting = phase in (AgentPhase.SETUP, AgentPhase.READY, AgentPhase.DRAINED)
        if waiting and self.notice is None and self.state.ending is None:
            self.restorer.prefetching.set()
        else:
            self.restorer.prefetching.clear()

    # ------------------------------------------------------------ facts

    def _observe(self, now_s: float) -> None:
        run = self.state.run
        if run is None or run.stage is decide.Stage.OVER:
            return
        number = run.epoch.number
        if self._command is not None and (self._ended is None or self._ended.epoch != number):
            code = self._command.poll()
            if code is not None:
                self._ended = decide.Outcome(epoch=number, exit_code=code)
                self._ended_s = now_s
                self._command = None
                self._progress_read_s = float("-inf")
                self._log(f"the command of epoch {number} ended with exit code {code}")
        if self._command_started_s is not None and now_s - self._progress_read_s >= PROGRESS_S:
            self._progress_read_s = now_s
            try:
                self._read_progress(run, now_s)
            except OSError as error:  # a number on a screen must not hold up a decision
                self._log(f"progress cannot be read: {error}")

    def _read_progress(self, run: decide.Run, now_s: float) -> None:
        found = progress.read(self._progress_file(run.epoch))
        saved = complete(self.config.checkpoints)
        resumed = self.sync.status.committed_step
        newest = saved[-1].step if saved else None
        moved = found.seen or (newest is not None and (resumed is None or newest > resumed))
        if moved and self._first_step_s is None:
            self._first_step_s = now_s
        if found.step is None and newest is not None:
            found = replace(found, step=newest)
        self._progress = found

    def _inputs(self, booted: Booted, now_s: float) -> decide.Inputs:
        spec = booted.job.spec if booted.job is not None else None
        seen = self.mailbox.seen
        heard_s = max(self._begun_s, seen.launcher_heard_s or 0.0)
        answers = seen.answered_s is not None and now_s - seen.answered_s < MAILBOX_SILENT_S
        sync = self.sync.status
        return decide.Inputs(
            newest=seen.epoch,
            machine=booted.phase,
            notice=self.notice,
            restored=self.restorer.outcome,
            started=self._started,
            ended=self._ended,
            saved_epoch=sync.saved_epoch,
            reported_epoch=self.reporter.reported_epoch,
            grace_s=spec.grace_s if spec is not None else JobSpec(name="", run="").grace_s,
            upload_s=sync.upload_s,
            until_s=self._until_s(booted, seen.launcher_heard_s),
            shutdown=self.shutdown,
            launcher_heard_s=heard_s if answers and not self.reporter.pending else None,
            linger_s=self.config.linger_s,
        )

    def _until_s(self, booted: Booted, launcher_heard_s: float | None) -> float | None:
        job = booted.job
        limit_s = job.spec.constraints.max_runtime_s if job is not None else None
        if job is not None and limit_s is not None:
            limit_s /= job.market_scale  # a limit of the market's time; this is wall time
        return deadman.until_s(
            self.config.until_s,
            launcher_heard_s=launcher_heard_s,
            unattended_s=job.spec.unattended_s if job is not None else 0.0,
            first_started_s=self._first_started_s,
            max_runtime_s=limit_s,
        )

    def _heartbeat(self, booted: Booted, inputs: decide.Inputs) -> Heartbeat:
        sync = self.sync.status
        run = self.state.run
        problem = booted.problem
        if problem is None and run is not None and self.state.epoch == run.epoch:
            problem = run.problem
        problem = problem or sync.problem or self.state.ending
        if self._errors >= ERRORS_SAID:
            problem = problem or self._error
        epoch = self.state.epoch
        committed_here = self.restorer.prefetched or sync.committed
        return Heartbeat(
            lease_id=self.config.lease_id,
            seq=0,
            at_s=self.clock.now_s(),
            phase=decide.phase(self.state, inputs),
            epoch=epoch.number if epoch is not None else 0,
            drained_epoch=self.state.drained_epoch,
            step=self._progress.step,
            total_steps=self._progress.total_steps,
            first_step_s=self._first_step_s,
            command_started_s=self._command_started_s,
            committed=sync.committed,
            committed_step=sync.committed_step,
            prefetched=committed_here,
            save_s=self._progress.save_s,
            upload_s=sync.upload_s,
            notice=self.notice,
            exit_code=run.exit_code if run is not None else booted.exit_code,
            message=problem,
        )

    def _place(self) -> Place | None:
        """For ``exec``: this machine's rank in the newest epoch, if it is a member."""
        booted, epoch = self.boot.state, self.state.epoch
        if booted.job is None or booted.secrets is None or epoch is None:
            return None
        for member in epoch.members:
            if member.lease_id == self.config.lease_id:
                env = environment.base(self.config, booted.job.spec, booted.secrets)
                env = environment.of_rank(env, epoch, member.rank, self._progress_file(epoch))
                return Place(rank=member.rank, cwd=self.config.workdir, env=env)
        return None

    # ------------------------------------------------------------ effects

    def _perform(self, effect: decide.Effect, booted: Booted) -> None:
        match effect:
            case decide.Restore():
                self._forget_command()
                self.restorer.ask(effect.epoch)
            case decide.Start():
                self._start(effect.epoch, effect.rank, booted)
            case decide.Signal():
                self._tell_training()
                assert booted.job is not None
                name = booted.job.spec.stop_signal
                self._log(f"asking the command to stop: {name}")
                if self._command is not None:
                    self._command.signal(signal_number(name))
            case decide.Kill():
                self._log("the command has not stopped in its time: SIGKILL")
                if self._command is not None:
                    self._command.kill()
            case decide.Save():
                self.sync.finish(effect.epoch, commits=effect.rank == 0)
            case decide.Report():
                self.reporter.report(self._end_doc(effect.run))
            case decide.PowerOff():
                self._log(f"ending this machine: {effect.why}")
                self.done.set()

    def _forget_command(self) -> None:
        self._started = self._ended = None
        self._command_started_s = self._first_step_s = None
        self._progress = progress.Progress()

    def _start(self, epoch: EpochDoc, rank: int, booted: Booted) -> None:
        try:
            assert booted.job is not None
            assert booted.secrets is not None
            env = environment.base(self.config, booted.job.spec, booted.secrets)
            env = environment.of_rank(env, epoch, rank, self._progress_file(epoch))
            if rank == 0:
                self.sync.begin(epoch.number)
            self._stream = self.shipper.stream(rank_stream(epoch.number, rank))
            self._command = Command(
                shell_argv(booted.job.spec.run, self.config.scratch),
                cwd=self.config.workdir,
                env=env,
                output=self._stream.write,
            )
        except Exception as error:  # noqa: BLE001 - BROKEN, with its reason: another machine may do
            problem = f"the command cannot be started: {one_line(error)}"
            self._log(problem)
            self._started = decide.Outcome(epoch=epoch.number, problem=problem)
            return
        self._command_started_s = self.clock.now_s()
        self._first_started_s = self._first_started_s or self._command_started_s
        self._log(f"epoch {epoch.number}: command started as rank {rank} of {len(epoch.members)}")

    def _end_doc(self, run: decide.Run) -> EndDoc:
        found = progress.read(self._progress_file(run.epoch))
        code = run.exit_code if run.exit_code is not None else 0
        return EndDoc(
            epoch=run.epoch.number,
            rank=run.rank,
            lease_id=self.config.lease_id,
            exit_code=code,
            signalled=run.signalled,
            finished=code == 0 and (found.finished or not run.signalled),
            step=self._progress.step,
            at_s=self._ended_s if self._ended_s is not None else self.clock.now_s(),
            tail=self._stream.tail() if self._stream is not None else "",
        )

    def _report_setup(self, booted: Booted) -> Booted:
        """A failed ``setup`` is the job's own fault, and said as such before this machine calls
        itself BROKEN: else it would be taken for a bad machine and replaced."""
        if booted.phase is not AgentPhase.BROKEN or booted.exit_code is None:
            return booted
        if not self._setup_reported:
            self._setup_reported = True
            self.reporter.report(
                EndDoc(
                    epoch=0,  # of no epoch: its number must not take a rank's place
                    rank=0,
                    lease_id=self.config.lease_id,
                    exit_code=booted.exit_code,
                    signalled=False,
                    finished=False,
                    step=None,
                    at_s=self.clock.now_s(),
                    in_setup=True,
                    tail=self.boot_log.tail(),
                )
            )
        return replace(booted, phase=AgentPhase.SETUP) if self.reporter.pending else booted

    def _on_notice(self, found: Notice) -> None:
        left_s = found.at_s - self.clock.now_s()
        self._log(f"the cloud takes this machine back ({found.action}) in {left_s:.0f} s")
        self.notice = found

    def _tell_training(self) -> None:
        """The notice, for whoever looks at ``$ARYL_NOTICE_FILE``: not before it is on record that the
        command was asked to stop, or a quick exit 0 would be taken for the end of its work."""
        if self.notice is None or self._notice_told:
            return
        document = {"action": self.notice.action, "at_s": self.notice.at_s, "seen_s": self.notice.seen_s}
        try:
            partial = self.config.notice_file.with_suffix(".part")
            partial.write_text(json.dumps(document))
            partial.replace(self.config.notice_file)
        except OSError as error:
            self._log(f"the notice cannot be written for the training: {error}")
        self._notice_told = True

    # ------------------------------------------------------------ the end

    def _keep_until(self, until_s: float | None, grace_s: float) -> None:
        """Tell the watchdog when this machine must be off, come what may; start it when first told."""
        if until_s is None:
            return
        off_s = until_s + grace_s + decide.SAVE_LIMIT_S + WATCHDOG_MARGIN_S
        if self._until_written_s is None or abs(off_s - self._until_written_s) > 1.0:
            partial = self.config.until_file.with_suffix(".part")
            partial.write_text(f"{off_s}\n")
            partial.replace(self.config.until_file)
            self._until_written_s = off_s
        if self._watchdog is None:
            script = Path(__file__).with_name("watchdog.py")
            argv = [sys.executable, "-I", "-S", str(script), str(self.config.until_file), str(os.getpid())]
            if self.config.poweroff is not None:
                argv.append(self.config.poweroff)
            self._watchdog = subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def _close(self) -> None:
        """Everything of this machine ends; what can still be said, is."""
        self.boot.stop()
        if self._command is not None:
            self._command.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._command.wait(10.0)
        self.beats.write()
        with contextlib.suppress(Exception):
            self.shipper.flush()
        self.shipper.close()
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()

    def _progress_file(self, epoch: EpochDoc) -> Path:
        return self.config.scratch / f"progress-{epoch.number:06d}.json"

    def _log(self, text: str) -> None:
        moment = datetime.fromtimestamp(self.clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{moment} {text.rstrip()}\n"
        with contextlib.suppress(OSError):
            sys.stderr.write(line)
            sys.stderr.flush()
        self.boot_log.write(line.encode())
