"""The answer to "where and how": immutable, explained, and enough to launch from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer

ThroughputSource = Literal["measured", "published", "estimated", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    p50: float
    p90: float
    """Pessimistic: expected under a hazard and a throughput that are both at their bad end (planner/cost
    says how), never below p50. It stands for a 90th percentile, and is not computed as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usd:
    """Expected money of one candidate. The parts are means and sum to ``mean``."""

    p50: float
    p90: float
    mean: float
    compute: float
    """Useful running, checkpoint overhead included."""
    boot: float
    egress: float
    storage: float
    lost_work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    rank: int
    offer: Offer
    nodes: int
    throughput: float | None
    """Work units per second of all nodes together."""
    throughput_unit: str | None
    throughput_source: ThroughputSource | None
    throughput_rel_error: float | None
    """The wider side of the throughput's band: the larger of high/estimate − 1 and 1 − low/estimate."""
    hours: Quantiles | None
    """None (with ``usd``) where the job has no profile or no work: no totals are invented."""
    usd: Usd | None
    interruptions_per_hour: float
    """Losses per machine-hour; 0 on demand."""
    hazard_source: str
    meets_deadline: bool | None
    meets_budget: bool | None
    pareto: bool
    why: str
    throughput_low: float | None = None
    """The band's ends, in ``throughput_unit``."""
    throughput_high: float | None = None
    survival: Quantiles | None = None
    """Where a loss ends the job (recovery none): probability that nothing is lost before the end, at the
    mean hazard (p50) and at the pessimistic one (p90); hours and dollars are those of a run without loss."""
    data_egress_usd: float | None = None
    """Of ``usd.egress``: fetching the data once. None = all of it, as in plans of before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    reason: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueStamp:
    digest: str
    as_of: str | None
    """The newest price's date."""
    offers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    job: JobSpec
    objective: str
    policy: str
    catalogue: CatalogueStamp
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    """Ranked, the chosen first; cut to the number asked for."""
    rejected: tuple[Rejection, ...]
    why: tuple[str, ...]
    """Sentences: why the winner won, the runner-up's price, what would flip it."""
    seed: int = 0
    frontier: tuple[Candidate, ...] = ()
    """The whole Pareto set over (hours p50, mean USD), fastest first, also beyond the cut."""
