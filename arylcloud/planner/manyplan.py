"""The answer to "where do these jobs run together": immutable, explained, beside what else one would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arylcloud.core.offer import Offer
from arylcloud.core.plan import CatalogueStamp, Quantiles, ThroughputSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Dollars:
    mean: float
    p90: float
    """With all jobs at the low end of their throughput and all losses at their bad end, at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a job gets in one pool."""

    offer: str
    """The pool's name."""
    gpus: int
    """While it runs there, all machines together."""
    nodes: int
    share: float
    """Of its time at the beginning, where a policy divides time and it does not wait; else of its run."""
    now: float
    """Fraction of the first moment's time."""
    hours: float
    """On these GPUs until the job ends (p50 of its throughput)."""
    usd: float
    at: Offer | None
    """The offer behind it; None in a pool of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Hours from now in which a job has its GPUs, at the pessimistic speed."""

    offer: str
    from_h: float
    until_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    name: str
    gets: tuple[Held, ...]
    throughput: float
    """Work units per second with these shares."""
    throughput_unit: str
    throughput_source: ThroughputSource | None
    hours: Quantiles
    """From now to its end."""
    usd: Dollars
    deadline_h: float | None
    budget_usd: float | None
    meets_deadline: bool | None
    """At p90."""
    meets_budget: bool | None
    waits: bool
    """Holds nothing at the beginning."""
    reserved: tuple[Span, ...]
    """The timetable, where hours are bought; empty where time is divided anew whenever a job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What more GPUs of a pool change the policy's objective by, for the better."""

    gpus: int
    """So many more: one, or what all of the pool's jobs are multiples of."""
    value: float
    unit: str
    usd_per_hour: float | None
    """Where the objective is dollars: of them all, held to the last deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedPool:
    """GPUs that are counted together, and what the plan makes of them."""

    name: str
    gpu: str
    market: str | None
    place: str | None
    own: bool
    assumed: bool
    """The number of GPUs is an assumption."""
    gpus: int
    used: float
    """At the beginning, on average."""
    free: float
    jobs: int
    gpu_hours: float
    usd: float
    usd_per_gpu_hour: float | None
    """What the jobs pay on average, everything included; the cheapest job's where none uses it."""
    as_of: str | None
    """The oldest price behind it; None = the user's own, or unknown."""
    worth: Worth | None
    """None where the policy has no objective that tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    jobs: int
    usd: Dollars
    hours: Quantiles
    """Until the last job ends."""
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    name: str
    title: str
    usd: float | None
    hours: float | None
    """Until the last job ends; None (with ``usd``) where some job never does."""
    late: int | None
    """Jobs that would miss their deadline (p50)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What stands in the way of a better plan."""

    kind: Literal["capacity", "deadline", "budget"]
    name: str
    value: float | None
    unit: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyPlan:
    policy: str
    policy_why: str
    objective: float | tuple[float, ...] | None
    objective_unit: str | None
    bound: float | tuple[float, ...] | None
    """Certified: the optimum is not better."""
    partition: int | None
    seed: int
    jobs: tuple[PlannedJob, ...]
    offers: tuple[UsedPool, ...]
    totals: Totals
    baselines: tuple[Baseline, ...]
    binding: tuple[Binding, ...]
    notes: tuple[str, ...]
    """Assumptions that the figures rest on."""
    catalogue: CatalogueStamp | None
    """None where every pool is the user's own."""
