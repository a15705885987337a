"""The mailbox: what launcher and agents write under a job's prefix, and where.

Everything but heartbeats is create-only and numbered (put-if-absent); nothing needs
compare-and-swap. Layout under ``<store root>/jobs/<job_id>/``::

    job.json                              JobDoc, once
    journal/000000000001.json             each journal record, in order: the launchers' fence
    launcher.json                         LauncherBeat, overwritten
    workdir-<sha256>.tar.gz               the user's files
    secrets.json                          the processes'; removed at the end
    launcher-secrets.json                 LauncherSecrets, removed at the end
    epochs/epoch-000001.json              EpochDoc: the machines' fence
    beats/<lease_id>.json                 Heartbeat, overwritten
    ends/e000001-r00.json                 EndDoc: how a rank's command ended
    requests/000001.json                  RequestDoc: what a user asked for
    boot/<lease_id>.json                  BootDoc, until that machine has been heard; removed at the end
    lent.json                             LentDoc, overwritten in time; removed at the end
    exec/<id>.json, exec/<id>-r00.json    ExecRequest, ExecResult
    logs/<stream>/00000001.log            segments; streams: boot-<lease_id>, e000001-r00
    ckpt/chunks/<aa>/<sha256>             content-addressed
    ckpt/manifests/e000001-000001.json    Manifest, written last: the commit
    ckpt/parts/e000001/call-000001.json   PartCall: which step rank 0 wants the parts of
    ckpt/parts/e000001/<step>-r01.json    Part: what a rank has of it; none is a checkpoint by itself
    housekeeping/now                      empty, overwritten: what the store's clock says

and beside the jobs, shared by all of them: ``<store root>/runtime/<sha256>.zip`` (our wheel, obstore).

**Lineage.** A restore never asks "which manifest is newest": the epoch document names the manifest
that its members resume from, so that a stray machine of an older epoch can write what it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from arylcloud.core.codec import SCHEMA_VERSION
from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import Pipelines

JOB_KEY = "job.json"
LAUNCHER_KEY = "launcher.json"
SECRETS_KEY = "secrets.json"
LAUNCHER_SECRETS_KEY = "launcher-secrets.json"
LENT_KEY = "lent.json"
BOOT_PREFIX = "boot/"
JOURNAL_PREFIX = "journal/"
EPOCHS_PREFIX = "epochs/"
BEATS_PREFIX = "beats/"
ENDS_PREFIX = "ends/"
REQUESTS_PREFIX = "requests/"
EXEC_PREFIX = "exec/"
LOGS_PREFIX = "logs/"
CHUNKS_PREFIX = "ckpt/chunks/"
MANIFESTS_PREFIX = "ckpt/manifests/"
PARTS_PREFIX = "ckpt/parts/"
CLOCK_KEY = "housekeeping/now"


def workdir_key(sha256: str) -> str:
    return f"workdir-{sha256}.tar.gz"


def journal_key(seq: int) -> str:
    return f"{JOURNAL_PREFIX}{seq:012d}.json"


def epoch_key(number: int) -> str:
    return f"{EPOCHS_PREFIX}epoch-{number:06d}.json"


def beat_key(lease_id: str) -> str:
    return f"{BEATS_PREFIX}{lease_id}.json"


def boot_key(lease_id: str) -> str:
    return f"{BOOT_PREFIX}{lease_id}.json"


def end_key(epoch: int, rank: int) -> str:
    return f"{ENDS_PREFIX}e{epoch:06d}-r{rank:02d}.json"


def request_key(number: int) -> str:
    return f"{REQUESTS_PREFIX}{number:06d}.json"


def exec_key(request_id: str) -> str:
    return f"{EXEC_PREFIX}{request_id}.json"


def exec_result_key(request_id: str, rank: int) -> str:
    return f"{EXEC_PREFIX}{request_id}-r{rank:02d}.json"


def boot_stream(lease_id: str) -> str:
    return f"boot-{lease_id}"


def rank_stream(epoch: int, rank: int) -> str:
    return f"e{epoch:06d}-r{rank:02d}"


def log_key(stream: str, number: int) -> str:
    return f"{LOGS_PREFIX}{stream}/{number:08d}.log"


def chunk_key(sha256: str) -> str:
    return f"{CHUNKS_PREFIX}{sha256[:2]}/{sha256}"


def manifest_key(epoch: int, number: int) -> str:
    return f"{MANIFESTS_PREFIX}e{epoch:06d}-{number:06d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDoc:
    job_id: str
    journal_id: str
    spec: JobSpec
    submitted_s: float
    market_origin_s: float = 0.0
    market_scale: float = 1.0
    workdir_sha256: str | None = None
    runtime_sha256: str = ""
    machines: tuple[str, ...] = ("x86_64",)
    """What the runtime runs on, as ``uname -m`` says there; empty: on machines like the launcher's host."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherBeat:
    launcher_id: str
    host: str
    pid: int
    at_s: float
    """Wall seconds of its writer; to all others it only tells one beat from the next."""
    hard_left_s: float | None = None
    """Seconds from now until the budget is spent, at the present price and number of machines, or
    ``max_runtime`` used up: no renewal goes beyond it. None = no such limit, or not known at present.
    (A span, not a moment: the clock of whoever reads it may be another.)"""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSecrets:
    """What a launcher needs and nobody may read elsewhere: kept out of specs, journals, events, logs."""

    notify: str
    """The whole address, which is a secret itself where a service puts its token there (the spec has
    the host alone)."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class LentDoc:
    """Credentials that reach this prefix alone, for machines of other clouds than the store's. Whoever can
    read it can read the prefix anyway."""

    secret: dict[str, str] = field(repr=False)
    """As obstore's credential provider of the store's cloud returns them."""
    expires_s: float
    """Wall seconds, as the cloud says."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class BootDoc:
    """What the one signed link in the user data of such a machine leads to."""

    runtime_url: str
    """Signed, too."""
    lent: LentDoc
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    lease_id: str
    rank: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDoc:
    """One membership of a job. No members = *drain*: save, upload, say so, run nothing."""

    job_id: str
    number: int
    attempt: int
    """How many epochs with members there have been, this one included: ``ARYL_ATTEMPT``."""
    opened_s: float
    reason: str
    members: tuple[Member, ...]
    resume_from: str | None
    """Key of the manifest to restore; None = from the beginning."""
    checkpoint_interval_s: float | None = None
    """Advice to the training (``should_checkpoint``); None = none was known when the epoch opened."""
    losses_per_hour: float | None = None
    """Of the whole gang, wall hours: with what a save costs, measured, rank 0's agent finds the interval
    itself (``core/cadence``). None = not known, or the job's file gives the interval."""
    grace_s: float | None = None
    """At most so long between the signal and SIGKILL, for whoever still runs an older epoch: one of its ranks
    is gone, and what the others wait for in their collectives will never come. None = the job's own."""
    pipelines: Pipelines | None = None
    """Which layers each rank holds, of a job that trains by pipeline templates."""
    master_port: int = 29500
    schema_version: int = SCHEMA_VERSION


BAD_HARDWARE = "bad hardware: "
"""What the message of a BROKEN machine begins with whose fault it is: no other machine need have it."""


class AgentPhase(StrEnum):
    BOOTING = "booting"
    SETUP = "setup"
    """Fetching the workdir, running the job's ``setup``."""
    READY = "ready"
    """Set up, not a member of the current epoch: waiting (and pre-fetching checkpoints)."""
    RESTORING = "restoring"
    RUNNING = "running"
    SAVING = "saving"
    """The command has been asked to stop; saving and uploading."""
    DRAINED = "drained"
    """The command is gone, all that it saved is committed."""
    EXITED = "exited"
    """The command ended by itself; its EndDoc is written, all that it saved is committed."""
    BROKEN = "broken"
    """Set-up failed, or this machine cannot do its work; ``message`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The cloud's announcement that it takes a machine back."""

    action: Literal["terminate", "stop", "hibernate"]
    at_s: float
    """Wall seconds at which the cloud acts."""
    seen_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    lease_id: str
    seq: int
    at_s: float
    phase: AgentPhase
    epoch: int = 0
    """The newest epoch that the agent has seen and acts on; 0 = none yet."""
    drained_epoch: int = 0
    """The newest epoch number for which this agent runs nothing and has committed all it had."""
    step: int | None = None
    """Of the running command, from its progress file or its checkpoints."""
    total_steps: int | None = None
    first_step_s: float | None = None
    """Wall seconds at which the command of this epoch showed its first progress."""
    command_started_s: float | None = None
    step_age_s: float | None = None
    """Seconds since ``step`` last grew in this epoch; None = it has not, yet. (Spans, not moments: a clock
    that is set must not make a command look hung.)"""
    step_gap_s: float | None = None
    """The usual time from one growth to the next in this epoch; None = too few were seen."""
    quiet_s: float | None = None
    """Seconds since the command last wrote something (or was started); None = no command runs."""
    committed: str | None = None
    """Key of the newest manifest that this agent committed, or resumed from."""
    committed_step: int | None = None
    prefetched: str | None = None
    """Key of the newest manifest whose chunks are all on this machine's disk."""
    save_s: float | None = None
    """Measured: what the last checkpoint held up the training, if the training says so."""
    upload_s: float | None = None
    checkpoint_interval_s: float | None = None
    """What this agent advises the training at present; None = nothing is known to go by."""
    uploading_step: int | None = None
    """Of the checkpoint on its way to the store now."""
    saves_skipped: int = 0
    """Complete checkpoints of this epoch that a newer one overtook before they could be sent."""
    notice: Notice | None = None
    at_risk_s: float | None = None
    """Wall seconds at which the cloud first said that it might take the machine; a warning, no notice."""
    exit_code: int | None = None
    message: str | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDoc:
    """How the command of one rank ended in one epoch."""

    epoch: int
    rank: int
    lease_id: str
    exit_code: int
    """As a shell gives it: 128 + n for signal n."""
    signalled: bool
    """We had asked it to stop before it ended: an exit code then says nothing about the user's code."""
    finished: bool
    """Exit 0 without our signal; or with it, if the training said that it had finished."""
    step: int | None
    at_s: float
    in_setup: bool = False
    tail: str = ""
    """Last lines of its output (≤ 2 kB), so that a failure is never without its reason."""
    told: bool = True
    """Its steps are by its own word; False: by its checkpoints alone, and nobody knows of any after them."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDoc:
    number: int
    verb: Literal["stop", "migrate", "scale", "check"]
    """``check``: a quota was seen to do now, for ``scopes`` (of bars)."""
    args: dict[str, Any] = field(default_factory=dict)
    at_s: float
    by: str
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    request_id: str
    rank: int
    argv: tuple[str, ...]
    timeout_s: float
    at_s: float
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    request_id: str
    rank: int
    exit_code: int
    output: str
    """Standard output and error together, the last 64 kB."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRef:
    sha256: str
    """Its name in the store."""
    size: int
    blake3: str | None = field(default=None, compare=False)
    """By which it is checked where that can be done, for it is quicker; None = its writer could not. Chunks
    of one name are the same, whoever wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    path: str
    """Relative, POSIX, no ``..``: checked again at restore."""
    size: int
    mode: int
    """Permission bits only."""
    chunks: tuple[ChunkRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed checkpoint. Restore checks every chunk's digest and ``digest`` itself."""

    job_id: str
    lease_id: str
    epoch: int
    number: int
    """Counts within the epoch, from 1."""
    step: int
    saved_at_s: float
    """Wall seconds at which the training had finished writing it."""
    committed_at_s: float
    directory: str
    """Name of the checkpoint's directory under ``$ARYL_CHECKPOINT_DIR`` (``step-120``)."""
    files: tuple[FileEntry, ...]
    total_bytes: int
    digest: str
    """sha256 over the canonical bytes of the manifest with ``digest`` empty."""
    schema_version: int = SCHEMA_VERSION

    @property
    def key(self) -> str:
        return manifest_key(self.epoch, self.number)
