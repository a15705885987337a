"""What is asked: a job, its limits and its objective. Values only; files are read in ``cli``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from arylcloud.core.pipeline import PipelineSpec

MarketChoice = Literal["auto", "spot", "on_demand"]
OnNodeLoss = Literal["shrink", "replace", "restart", "fail"]
Recovery = Literal["auto", "none"]
WhenHung = Literal["report", "restart", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    gpu: str
    """Canonical name (``A100-80GB``), resolved through the GPU table's aliases."""
    count: int
    """Per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    accelerators: tuple[Accelerator, ...] = ()
    """Alternatives; empty = any GPU."""
    ordered: bool = False
    """True: the first alternative with an acceptable offer wins, whatever the others cost."""
    clouds: tuple[str, ...] = ()
    """Empty = any. A cloud not named gets no call at all."""
    regions: tuple[str, ...] = ()
    """Cloud-qualified: ``aws/us-east-1``."""
    zones: tuple[str, ...] = ()
    """Cloud-qualified: ``aws/us-east-1/use1-az4``."""
    instance_types: tuple[str, ...] = ()
    min_vcpus: float | None = None
    min_mem_gib: float | None = None
    disk_gb: float | None = None
    image: str | None = None
    market: MarketChoice | None = None
    """Of one alternative in ``any_of``; None = the job's."""
    any_of: tuple[Resources, ...] = ()
    """Where given, an offer must satisfy one of these, too (each complete in itself; with ``ordered``
    the first with an acceptable offer wins). The other fields are then what all of them have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """Enough of a transformer for the FLOP model: (6N + 12·L·d·s) FLOPs per token."""

    params: float
    layers: int
    hidden: int
    seq_len: int
    precision: str = "16bit"
    """``16bit`` = bf16, or fp16 where a GPU has no bf16."""
    batch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineRate:
    """A user's own measurement: ``rate`` work units per second on ``count`` × ``gpu``, one node."""

    gpu: str
    count: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRef:
    """Where throughput comes from; exactly one of the three is set."""

    name: str | None = None
    rates: tuple[InlineRate, ...] = ()
    shape: TransformerShape | None = None
    unit: str | None = None
    """Of ``rates``: ``steps/s``, ``samples/s``, ``images/s`` or ``tokens/s``."""
    batch: float | None = None
    """Global batch (samples per step) of this job, where it says so: turns steps into samples."""
    seq_len: int | None = None
    """Tokens per sample of this job, where it says so (of a shape: ``shape.seq_len``)."""
    precision: str | None = None
    """``bf16``, ``fp32``, ``fp8``…; None = the usual one of each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    amount: float
    unit: str
    """``steps``, ``samples``, ``images`` or ``tokens``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Minimise ``cost_weight`` × USD + ``usd_per_hour_of_waiting`` × hours; time alone: weight 0."""

    cost_weight: float = 1.0
    usd_per_hour_of_waiting: float = 0.0

    @property
    def name(self) -> str:
        if self.cost_weight == 0:
            return "time"
        return "cost" if self.usd_per_hour_of_waiting == 0 else "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    deadline_s: float | None = None
    """Wall clock, from submission."""
    budget_usd: float | None = None
    """All nodes, all attempts."""
    max_runtime_s: float | None = None
    """Of running; provisioning excluded."""
    max_usd_per_hour: float | None = None
    """Per machine."""
    priced_since_s: float | None = None
    """Unix seconds: older prices, and those of unknown age, are not planned on."""

    def let_go(self) -> Constraints:
        """Without what can be used up: for a job that goes on though it cannot be kept any more."""
        return replace(self, deadline_s=None, budget_usd=None, max_runtime_s=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    uri: str
    size_gb: float
    region: str | None = None
    """Where the bucket lies, ``aws/us-east-1``; None = not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    size_gb: float | None = None
    interval_s: float | None = None
    """None = Young/Daly from measured save time and hazard."""
    keep: int = 2
    in_memory: bool = False
    """A machine's own copies lie in its memory (/dev/shm), not on its disk."""
    keep_every_steps: int | None = None
    """Beside the last ``keep``: the first checkpoint at or after each multiple, for good. None = no such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateSpec:
    auto: bool = True
    min_saving: float = 0.05
    """Fraction of the remaining cost."""
    at_most_every_s: float = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HungSpec:
    """When a command or a machine that does nothing is no longer waited for, and what then happens."""

    times: float | None = 20.0
    """So many times the usual time between two signs of progress; None = ``least_s`` alone."""
    least_s: float = 600.0
    """But not before so many seconds."""
    silent_s: float = 3600.0
    """A machine that is not heard for so long, while its cloud says that it runs."""
    do: WhenHung = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    name: str
    run: str
    workdir: str | None = None
    setup: str | None = None
    envs: dict[str, str] = field(default_factory=dict)
    secret_names: tuple[str, ...] = ()
    """Names only: values never enter the spec, the journal or a log."""
    resources: Resources = Resources()
    profile: ProfileRef | None = None
    work: Work | None = None
    objective: Objective = Objective()
    constraints: Constraints = Constraints()
    market: MarketChoice = "auto"
    nodes_min: int = 1
    nodes_max: int = 1
    pipeline: PipelineSpec | None = None
    """It trains by pipeline templates: each rank is told which layers it holds. None = it is not."""
    data: tuple[DataSet, ...] = ()
    checkpoint: CheckpointSpec = CheckpointSpec()
    on_node_loss: OnNodeLoss = "replace"
    recovery: Recovery = "auto"
    hung: HungSpec = HungSpec()
    migrate: MigrateSpec = MigrateSpec()
    policy: str | None = None
    """Of a job with a deadline (``planner/deadline/registry``). None = the default; ``off``: none."""
    unattended_s: float = 12 * 3600.0
    notify: str | None = None
    stop_signal: str = "SIGTERM"
    grace_s: float = 25.0
    """Between the signal and SIGKILL when we end a command; a notice may leave less."""
