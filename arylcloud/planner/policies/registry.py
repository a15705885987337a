"""Every cluster policy by name. Adding one = a file with its function, and a line here.

Modules are imported when a policy is asked for: ``plan`` of one job pays for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, cast

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import Allocation, Choice, ClusterProblem, ElasticProblem
from arylcloud.planner.policies.laws import ALWAYS, FRACTIONS, GREEDY, Law

Solve = Callable[[ClusterProblem, np.random.Generator], Allocation]
Choose = Callable[[ElasticProblem, np.random.Generator], Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``where``: module:function. A policy without laws says why in ``lawless``."""

    name: str
    title: str
    where: str
    reference: str
    kind: Literal["shares", "choices"] = "shares"
    sense: Literal["max", "min", "none"] = "none"
    laws: frozenset[Law] = frozenset()
    lawless: str = ""
    aware: bool = True
    """Of what a job gets out of each type; False = agnostic: the round mechanism shuffles the types."""
    packs: bool = False
    """Uses :attr:`ClusterProblem.sharing`."""
    fifo: bool = False
    """Jobs without an allocation are never back-filled (Gavel: FIFO)."""
    one_gpu: bool = False
    """For jobs of one GPU only; others are a UsageError."""
    deadlines: bool = False
    """Reads :attr:`ClusterProblem.deadline_s`."""

    def solve(self) -> Solve:
        assert self.kind == "shares"
        return cast(Solve, self._load())

    def choose(self) -> Choose:
        assert self.kind == "choices"
        return cast(Choose, self._load())

    def _load(self) -> object:
        module, function = self.where.split(":")
        return getattr(import_module(f"arylcloud.planner.policies.{module}"), function)


_ALL = (
    Policy(
        name="fifo",
        title="first in, first out; a random type among those that are free",
        where="fifo:fifo",
        reference="Gavel (OSDI 2020)",
        aware=False,
        fifo=True,
        laws=ALWAYS | {Law.TYPE_ORDER, Law.STEADY},
    ),
    Policy(
        name="fifo_perf",
        title="first in, first out, on the fastest free type",
        where="fifo:fifo_perf",
        reference="Gavel (OSDI 2020)",
        fifo=True,
        laws=ALWAYS | {Law.TYPE_ORDER, Law.STEADY},
    ),
    Policy(
        name="fifo_packed",
        title="fifo_perf, then pairs that gain by sharing GPUs",
        where="fifo:fifo_packed",
        reference="Gavel (OSDI 2020)",
        fifo=True,
        packs=True,
        laws=ALWAYS | {Law.TYPE_ORDER, Law.STEADY},
    ),
    Policy(
        name="sjf",
        title="shortest remaining time first, on its fastest free type",
        where="sjf:sjf",
        reference="Gavel (OSDI 2020)",
        laws=GREEDY,
    ),
    Policy(
        name="srtf",
        title="least remaining time × GPUs first, preemptive",
        where="srtf:srtf",
        reference="Tiresias (NSDI 2019)",
        laws=GREEDY,
    ),
    Policy(
        name="isolated",
        title="an equal part of the cluster for everyone",
        where="isolated:isolated",
        reference="Gavel (OSDI 2020)",
        aware=False,
        laws=FRACTIONS | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="proportional",
        title="a slice of every type in proportion to the cluster",
        where="proportional:proportional",
        reference="Gavel (OSDI 2020)",
        aware=False,
        laws=(FRACTIONS - {Law.CAPACITY}) | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="max_min_fairness",
        title="least attained service, blind to types",
        where="max_min_fairness:agnostic",
        reference="Gavel (OSDI 2020)",
        sense="max",
        aware=False,
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="max_min_fairness_perf",
        title="least attained service, by what a job gets out of a type",
        where="max_min_fairness:perf",
        reference="Gavel (OSDI 2020)",
        sense="max",
        laws=FRACTIONS | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="max_min_fairness_packed",
        title="max_min_fairness_perf with pairs sharing GPUs",
        where="packed_fairness:packed",
        reference="Gavel (OSDI 2020)",
        sense="max",
        packs=True,
        laws=FRACTIONS | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="max_min_fairness_water_filling",
        title="lexicographic max-min, blind to types",
        where="water_filling:agnostic",
        reference="Gavel (OSDI 2020)",
        sense="max",
        aware=False,
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_min_fairness_water_filling_perf",
        title="lexicographic max-min fairness; hierarchical where jobs have entities",
        where="water_filling:perf",
        reference="Gavel (OSDI 2020)",
        sense="max",
        laws=FRACTIONS | {Law.SHARING_INCENTIVE, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_min_fairness_water_filling_packed",
        title="lexicographic max-min with pairs sharing GPUs",
        where="water_filling:packed",
        reference="Gavel (OSDI 2020)",
        sense="max",
        packs=True,
        laws=FRACTIONS | {Law.SHARING_INCENTIVE, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_min_fairness_strategy_proof",
        title="geometric mean with partial-allocation discounts, blind to types",
        where="strategy_proof:agnostic",
        reference="Gavel (OSDI 2020)",
        sense="max",
        aware=False,
        laws=FRACTIONS,
    ),
    Policy(
        name="max_min_fairness_strategy_proof_perf",
        title="geometric mean with partial-allocation discounts: lying does not pay",
        where="strategy_proof:perf",
        reference="Gavel (OSDI 2020)",
        sense="max",
        laws=FRACTIONS | {Law.TRUTHFUL},
    ),
    Policy(
        name="finish_time_fairness",
        title="the worst ratio of finish time shared to alone, blind to types",
        where="finish_time_fairness:agnostic",
        reference="Gavel (OSDI 2020); Themis (NSDI 2020)",
        sense="min",
        aware=False,
        laws=FRACTIONS,
    ),
    Policy(
        name="finish_time_fairness_perf",
        title="the worst ratio of finish time shared to alone",
        where="finish_time_fairness:perf",
        reference="Gavel (OSDI 2020); Themis (NSDI 2020)",
        sense="min",
        laws=FRACTIONS | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="finish_time_fairness_packed",
        title="finish_time_fairness_perf with pairs sharing GPUs",
        where="packed_finish_time:packed",
        reference="Gavel (OSDI 2020)",
        sense="min",
        packs=True,
        # equal jobs may be paired unequally: who has more than it must have is left as it comes
        laws=(FRACTIONS - {Law.EQUAL_SHARES}) | {Law.SHARING_INCENTIVE},
    ),
    Policy(
        name="min_total_duration",
        title="makespan, blind to types",
        where="min_total_duration:agnostic",
        reference="Gavel (OSDI 2020)",
        sense="min",
        aware=False,
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="min_total_duration_perf",
        title="makespan: the last job ends as early as possible",
        where="min_total_duration:perf",
        reference="Gavel (OSDI 2020)",
        sense="min",
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="min_total_duration_packed",
        title="makespan with pairs sharing GPUs",
        where="packed_makespan:packed",
        reference="Gavel (OSDI 2020)",
        sense="min",
        packs=True,
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="max_sum_throughput_perf",
        title="the sum of steps/s",
        where="max_sum_throughput:perf",
        reference="Gavel (OSDI 2020)",
        sense="max",
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_sum_throughput_normalized_by_cost_perf",
        title="throughput per dollar (does not minimise dollars)",
        where="max_sum_throughput:per_dollar",
        reference="Gavel (OSDI 2020)",
        sense="max",
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_sum_throughput_normalized_by_cost_perf_SLOs",
        title="throughput per dollar, deadlines kept",
        where="max_sum_throughput:per_dollar_slo",
        reference="Gavel (OSDI 2020)",
        sense="max",
        deadlines=True,
        laws=FRACTIONS | {Law.MORE_NEVER_HURTS, Law.TIGHTER_NEVER_HELPS, Law.WORK_CONSERVING},
    ),
    Policy(
        name="max_sum_throughput_normalized_by_cost_packed_SLOs",
        title="throughput per dollar, deadlines kept, pairs sharing GPUs",
        where="packed_slo:packed",
        reference="Gavel (OSDI 2020)",
        sense="max",
        packs=True,
        deadlines=True,
        # equal jobs may be paired unequally: who has more than it must have is left as it comes
        laws=(FRACTIONS - {Law.EQUAL_SHARES})
        | {Law.MORE_NEVER_HURTS, Law.TIGHTER_NEVER_HELPS, Law.WORK_CONSERVING},
    ),
    Policy(
        name="min_cost",
        title="the fewest dollars that finish every job by its deadline",
        where="min_cost:min_cost",
        reference="arylcloud; compare DISPA 2020",
        sense="min",
        deadlines=True,
        laws=(FRACTIONS - {Law.EQUAL_SHARES}) | {Law.MORE_NEVER_HURTS, Law.TIGHTER_NEVER_HELPS},
    ),
    Policy(
        name="allox",
        title="least mean completion time by assignment; single-GPU jobs, not preemptive",
        where="allox:allox",
        reference="AlloX (EuroSys 2020)",
        sense="min",
        one_gpu=True,
        laws=ALWAYS | {Law.PERMUTATION, Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="gandiva",
        title="random pairs, kept while they gain",
        where="gandiva:gandiva",
        reference="Gandiva (OSDI 2018), as in Gavel",
        packs=True,
        laws=ALWAYS | {Law.TYPE_ORDER},
    ),
    Policy(
        name="themis",
        title="max-min on the finish-time ratio, by rounds",
        where="themis:themis",
        reference="Themis (NSDI 2020)",
        laws=GREEDY,
    ),
    Policy(
        name="tiresias",
        title="two queues by attained GPU service, FIFO within",
        where="tiresias:tiresias",
        reference="Tiresias-L (NSDI 2019)",
        kind="choices",
        laws=GREEDY,
    ),
    Policy(
        name="sia",
        title="configurations that maximise goodput, by a MILP",
        where="sia:sia",
        reference="Sia (SOSP 2023)",
        kind="choices",
        sense="max",
        laws=GREEDY | {Law.MORE_NEVER_HURTS},
    ),
    Policy(
        name="elasticflow",
        title="smallest share that meets the deadline, then what gains most",
        where="elasticflow:elasticflow",
        reference="ElasticFlow (ASPLOS 2023)",
        kind="choices",
        deadlines=True,
        laws=ALWAYS | {Law.TYPE_ORDER, Law.STEADY},
    ),
    Policy(
        name="afs_l",
        title="one GPU at a time to whom it helps the mean completion time most",
        where="afs_l:afs_l",
        reference="AFS-L (NSDI 2021)",
        kind="choices",
        laws=(GREEDY - {Law.PERMUTATION}) | {Law.TYPE_ORDER},
    ),
    Policy(
        name="optimus",
        title="one worker at a time by the largest reduction of remaining time",
        where="optimus:optimus",
        reference="Optimus (EuroSys 2018)",
        kind="choices",
        laws=GREEDY,
    ),
    Policy(
        name="aryl",
        title="shortest jobs their base, then a knapsack of extra GPUs by time saved",
        where="aryl:aryl",
        reference="Aryl (arXiv 2202.07896), by its abstract",
        kind="choices",
        laws=GREEDY,
    ),
    Policy(
        name="pollux",
        title="the sum of goodput speed-ups",
        where="pollux:pollux",
        reference="Pollux (OSDI 2021)",
        kind="choices",
        sense="max",
        laws=GREEDY | {Law.MORE_NEVER_HURTS},
    ),
)

POLICIES: dict[str, Policy] = {entry.name: entry for entry in _ALL}


def policy(name: str) -> Policy:
    """The policy of that name; :class:`UsageError` names those there are."""
    if name not in POLICIES:
        raise UsageError(f"no policy '{name}'", hint=f"one of: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
