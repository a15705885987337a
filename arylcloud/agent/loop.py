"""The agent: one thread that decides (``decide.step``), and helpers that wait.

Nothing in here may end a healthy command. An error of our own is caught at the edge of a turn,
logged, and said in the heartbeat when it keeps coming.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from arylcloud.agent import deadman, decide, execs, notice, words
from arylcloud.agent.beats import Beats
from arylcloud.agent.boot import Boot, Booted
from arylcloud.agent.cadence import Advisor
from arylcloud.agent.config import EC2_METADATA_URL, Config
from arylcloud.agent.execs import Execs, Place
from arylcloud.agent.inmemory import Held
from arylcloud.agent.lifeline import MARGIN_S, Lifeline
from arylcloud.agent.mailbox import Mailbox, Seen
from arylcloud.agent.metadata import Warned
from arylcloud.agent.renewal import Renewal
from arylcloud.agent.reports import Reporter
from arylcloud.agent.restoring import Restorer
from arylcloud.agent.shipper import Shipper, one_line
from arylcloud.agent.slot import Slot
from arylcloud.agent.sync import CheckpointSync
from arylcloud.agent.warmth import Warmth
from arylcloud.core.clock import Clock, SlewedClock
from arylcloud.core.job import JobSpec
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import AgentPhase, EndDoc, Heartbeat, Notice, boot_stream

TICK_S = 0.1
MAILBOX_SILENT_S = 30.0
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
        """The wall's, for documents."""
        self.steady = SlewedClock(clock)
        """What is decided by: a clock that is set must not end a grace, or a lease, at once."""
        config.scratch.mkdir(parents=True, exist_ok=True)
        self.held: Held | None = None
        self.shipper = Shipper(store, config.scratch / "logs", on_error=self._log, pace=config.pace)
        self.boot_log = self.shipper.stream(boot_stream(config.lease_id))
        self.mailbox = Mailbox(
            store, job_id=config.job_id, clock=self.steady, log=self._log, pace=config.pace
        )
        if config.memory is not None:
            self.held = Held(config.memory, log=self._log)
        self.sync = CheckpointSync(
            store,
            config.checkpoints,
            job_id=config.job_id,
            lease_id=config.lease_id,
            clock=clock,
            log=self._log,
            pace=config.pace,
        )
        self.restorer = Restorer(
            store,
            self.sync,
            checkpoints=config.checkpoints,
            cache=config.scratch / "chunks",
            job_id=config.job_id,
            log=self._log,
            pace=config.pace,
        )
        self.boot = Boot(store, config, self.boot_log, log=self._log)
        exec_s = execs.POLL_S * config.pace**2  # lists cost more than reads
        self.execs = Execs(store, place=self._place, log=self._log, poll_s=exec_s)
        self.reporter = Reporter(store, self.shipper, log=self._log)
        self.state = decide.State(lease_id=config.lease_id)
        first = Heartbeat(lease_id=config.lease_id, seq=0, at_s=clock.now_s(), phase=AgentPhase.BOOTING)
        self.beats = Beats(store, first, clock=clock, log=self._log, pace=config.pace)
        self.notice: Notice | None = None
        """As the cloud says it: by the wall."""
        self._notice_here: Notice | None = None
        """By ``steady``."""
        self._at_risk_s: float | None = None
        self._watcher: notice.Watcher | None = None
        self.shutdown: str | None = None
        self.done = threading.Event()
        self.slot = Slot(config, self.shipper, saved=self.sync.saved, clock=clock, log=self._log)
        self.lifeline = Lifeline(clock=self.steady, log=self._log)
        self.renewal: Renewal | None = None
        if config.metadata == "ec2" and config.metadata_url != EC2_METADATA_URL:  # a service of our own
            self.renewal = Renewal(config.metadata_url, told_s=config.until_s, clock=clock, log=self._log)
        self._begun_s = self.steady.now_s()
        self._errors = 0
        self._error: str | None = None
        self._setup_reported = False
        self._notice_told = False
        self.advisor = Advisor(config.advice_file, log=self._log)

    # ------------------------------------------------------------ life

    def run(self) -> None:
        """Until this machine is to end. The helpers are daemon threads: none of them is waited for."""
        earlier = self.config.home / "boot.log"
        if earlier.exists():
            self.boot_log.write(earlier.read_bytes())
        self._log(f"agent of {self.config.lease_id} started")
        threads = (self.beats, self.shipper, self.mailbox, self.boot, self.sync, self.restorer, self.execs)
        helpers: list[Helper] = list(threads)
        if self.config.metadata not in notice.PROTOCOLS:
            self._log(f"no notices: this agent does not know the protocol {self.config.metadata!r}")
        make_source = notice.PROTOCOLS.get(self.config.metadata)
        if make_source is not None:
            self._watcher = notice.Watcher(
                make_source(self.config.metadata_url, self.clock, self.config.metadata_lead_s),
                poll_s=self.config.metadata_poll_s,
                on_notice=self._on_notice,
                on_warning=self._on_warning,
                on_error=self._log,
            )
            helpers.append(self._watcher)
        if self.renewal is not None:
            helpers.append(self.renewal)
        helpers.append(Warmth(self.config.warm_dir, environ=self.config.environ, log=self._log))
        for helper in helpers:
            helper.start()
        while not self.done.is_set():
            self.turn()
            self.done.wait(TICK_S / 4 if self._hasty() else TICK_S)
        for helper in helpers:
            helper.stop()
        self._close()

    def _hasty(self) -> bool:
        """The whole job waits for what comes next."""
        run = self.state.run
        restoring = run is not None and run.stage is decide.Stage.RESTORING
        return restoring or self.mailbox.seen.drain is not None

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
        now_s = self.steady.now_s()
        booted = self._report_setup(self.boot.state)
        if self.state.busy and self.state.run is not None:
            self.slot.watch(self.state.run, self.clock.now_s())
        inputs = self._inputs(booted, now_s)
        self.lifeline.keep(_off_s(inputs))
        if self.renewal is not None:  # while it saves at the end, the machine may take what saving may take
            wanted_s = inputs.until_s if self.state.ending is None else _off_s(inputs)
            self.renewal.want(None if wanted_s is None else wanted_s - self.steady.ahead_s)
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
        if run is not None and self.state.busy:
            save_s, upload_s = self.slot.progress.save_s, self.sync.status.upload_s
            self.advisor.advise(run.epoch, save_s=save_s, upload_s=upload_s)
        for helper in (self.sync, self.restorer):
            helper.draining(self.mailbox.seen.drain)
        self.beats.publish(self._heartbeat(booted, inputs))
        phase = decide.phase(self.state, inputs)
        written = self.beats.written
        told = written is not None and written.notice is not None and written.phase is AgentPhase.DRAINED
        if self._watcher is not None and told and phase is AgentPhase.DRAINED:
            self._watcher.handed_over()  # whoever reads the mailbox knows it, too
        waiting = phase in (AgentPhase.SETUP, AgentPhase.READY, AgentPhase.DRAINED)
        if waiting and self.notice is None and self.state.ending is None:
            self.restorer.prefetching.set()
        else:
            self.restorer.prefetching.clear()

    # ------------------------------------------------------------ facts

    def _inputs(self, booted: Booted, now_s: float) -> decide.Inputs:
        spec = booted.job.spec if booted.job is not None else None
        seen = self.mailbox.seen
        heard_s = max(self._begun_s, seen.launcher_heard_s or 0.0)
        answers = seen.answered_s is not None and now_s - seen.answered_s < MAILBOX_SILENT_S
        sync = self.sync.status
        limit = self._limit(booted, seen)
        return decide.Inputs(
            newest=seen.epoch,
            machine=booted.phase,
            notice=self._notice_here,
            restored=self.restorer.outcome,
            started=self.slot.failed,
            ended=self.slot.ended,
            saved_epoch=sync.saved_epoch,
            reported_epoch=self.reporter.reported_epoch,
            grace_s=spec.grace_s if spec is not None else JobSpec(name="", run="").grace_s,
            upload_s=sync.upload_s,
            until_s=limit.at_s if limit is not None else None,
            until_why=limit.why if limit is not None else "",
            shutdown=self.shutdown,
            launcher_heard_s=heard_s if answers and not self.reporter.pending else None,
            linger_s=self.config.linger_s,
        )

    def _limit(self, booted: Booted, seen: Seen) -> deadman.Limit | None:
        return deadman.limit(
            self.config.until_s,
            launcher_heard_s=seen.launcher_heard_s,
            unattended_s=booted.job.spec.unattended_s if booted.job is not None else 0.0,
            hard_until_s=seen.hard_until_s,
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
        pulse, read_s = self.slot.pulse, self.clock.monotonic_s()
        committed_here = self.restorer.prefetched or sync.committed
        return Heartbeat(
            lease_id=self.config.lease_id,
            seq=0,
            at_s=self.clock.now_s(),
            phase=decide.phase(self.state, inputs),
            epoch=epoch.number if epoch is not None else 0,
            drained_epoch=self.state.drained_epoch,
            step=self.slot.progress.step,
            total_steps=self.slot.progress.total_steps,
            first_step_s=self.slot.first_step_s,
            command_started_s=self.slot.started_s,
            step_age_s=pulse.step_age_s(read_s) if pulse is not None else None,
            step_gap_s=pulse.step_gap_s() if pulse is not None else None,
            quiet_s=pulse.quiet_s(read_s) if pulse is not None else None,
            committed=sync.committed,
            committed_step=sync.committed_step,
            prefetched=committed_here,
            save_s=self.slot.progress.save_s,
            upload_s=sync.upload_s,
            checkpoint_interval_s=self.advisor.interval_s,
            uploading_step=sync.uploading_step,
            saves_skipped=sync.skipped,
            notice=self.notice,
            at_risk_s=self._at_risk_s,
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
                env = self.slot.environment(booted.job.spec, booted.secrets, epoch, member.rank)
                values = booted.secrets.values()
                return Place(rank=member.rank, cwd=self.config.workdir, env=env, secrets=values)
        return None

    # ------------------------------------------------------------ effects

    def _perform(self, effect: decide.Effect, booted: Booted) -> None:
        match effect:
            case decide.Restore():
                self.slot.clear()
                self.restorer.ask(effect.epoch)
            case decide.Start():
                assert booted.job is not None
                assert booted.secrets is not None
                members = sorted(effect.epoch.members, key=lambda m: m.rank)
                leases = tuple(m.lease_id for m in members)
                self.sync.begin(effect.epoch.number, rank=effect.rank, leases=leases)
                resumed_step = self.sync.status.committed_step
                self.slot.start(booted.job.spec, booted.secrets, effect.epoch, effect.rank, resumed_step)
            case decide.Signal():
                self._tell_training()
                assert booted.job is not None
                self.slot.signal(booted.job.spec.stop_signal)
            case decide.Kill():
                self.slot.kill()
            case decide.Save():
                finished = self.state.run is not None and self.state.run.finished
                self.sync.finish(effect.epoch, commits=effect.rank == 0, finished=finished)
            case decide.Report():
                self.reporter.report(self.slot.end_doc(effect.run))
            case decide.PowerOff():
                self._log(f"ending this machine: {effect.why}")
                self.done.set()

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
                    tail=booted.setup_tail,
                )
            )
        return replace(booted, phase=AgentPhase.SETUP) if self.reporter.pending else booted

    def _on_notice(self, found: Notice) -> None:
        ahead_s = self.steady.ahead_s
        left_s = found.at_s - self.clock.now_s()
        self._log(f"the cloud takes this machine back ({found.action}) in {left_s:.0f} s")
        self._notice_here = replace(found, at_s=found.at_s + ahead_s, seen_s=found.seen_s + ahead_s)
        self.notice = found
        self.sync.hurry(left_s)

    def _on_warning(self, found: Warned) -> None:
        """No reason to stop: the training may save, and the launcher think of other places."""
        self._log("the cloud thinks it likelier than usual that it will take this machine back")
        self._at_risk_s = found.seen_s
        words.leave(self.config.warning_file, {"seen_s": found.seen_s}, log=self._log)

    def _tell_training(self) -> None:
        """The notice, for whoever looks at ``$ARYL_NOTICE_FILE``: not before it is on record that the
        command was asked to stop, or a quick exit 0 would be taken for the end of its work."""
        if self.notice is None or self._notice_told:
            return
        document: dict[str, object] = {
            "action": self.notice.action,
            "at_s": self.notice.at_s,
            "seen_s": self.notice.seen_s,
        }
        words.leave(self.config.notice_file, document, log=self._log)
        self._notice_told = True

    # ------------------------------------------------------------ the end

    def _close(self) -> None:
        """Everything of this machine ends; what can still be said, is."""
        self.boot.stop()
        self.slot.close()
        self.beats.write()
        with contextlib.suppress(Exception):
            self.shipper.flush()
        self.shipper.close()
        self.lifeline.close()
        if self.held is not None:
            self.held.close()

    def _log(self, text: str) -> None:
        moment = datetime.fromtimestamp(self.clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{moment} {text.rstrip()}\n"
        with contextlib.suppress(OSError):
            sys.stderr.write(line)
            sys.stderr.flush()
        self.boot_log.write(line.encode())


def _off_s(inputs: decide.Inputs) -> float | None:
    """When the timer beside the agent ends this machine: after all that the agent may take."""
    if inputs.until_s is None:
        return None
    return inputs.until_s + inputs.grace_s + decide.SAVE_LIMIT_S + MARGIN_S
