"""Exact aggregation: jobs that run alike are solved together, whatever they weigh and have left to do.

    max t   or   max Σ worth_j·(steps/s on type j)
    s.t.  rate_i(x) ≥ need_i + f_i(t)    for every job i          time of a job ≤ 1, workers ≤ W_j, x ≥ 0
          f_i(t) = slope_i·t / (1 − fade_i·t), linear where fade is 0

alone on the types or in pairs on the same GPUs. Members of a class have one row of rates and one number of
GPUs; their needs and slopes differ. Summed over a class the program is small
(:mod:`~arylcloud.planner.kernels.classlp`), and it is a relaxation: it forgets that no member has more than
one unit of time. Where that matters is known exactly (majorisation, :func:`~.spread.cuts`): the class is cut
there in two, and the program solved again from where it stood, until what remains can be handed to the
members. A relaxation whose optimum can be handed out is the optimum. Pairs that a part has with itself need
one more thing, that no member holds more than half of them; who does is cut off alone. A convex f is replaced
by its tangent at the last t, from above (Newton), in the same rounds.

Work grows with the number of classes and of cuts, not of jobs, but for one sort.
Reference: kernels of Gavel's space sharing (OSDI 2020, §3.1, §4.4) without its n² variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import ClusterProblem, F, I
from arylcloud.planner.kernels.classlp import ClassLP
from arylcloud.planner.kernels.classparts import Kinds, Parts, no_pairs
from arylcloud.planner.kernels.spread import cuts, folded, joined, raised, segments, spread


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Classes:
    """n jobs in c classes."""

    kinds: Kinds
    job_class: I
    """(n,), values in [0, c)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class State:
    """Where a search ended: the cut classes and their program. The next search for the same jobs may start
    there."""

    lp: ClassLP
    order: I
    """(n,) jobs by part."""
    first: I
    """(S,) where each part begins in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Shared:
    """An optimal answer at the level of jobs."""

    shares: F
    """(n, m) time alone."""
    pairs: I
    """(q, 2) jobs, first < second."""
    pair_shares: F
    """(q, m)."""
    t: float
    bound: float
    """Certified: no feasible point is better."""
    need_value: F
    """(n,) β: objective per unit less need."""
    time_value: F
    """(n,) α: objective per unit of the job's time."""
    type_value: F
    """(m,) λ: objective per worker."""
    parts: int
    rounds: int
    state: State


def classes(problem: ClusterProblem, *, pairs: bool, worth: F | None = None) -> Classes:
    """The jobs of ``problem`` by (row of throughputs, GPUs[, class of sharing][, row of ``worth``]).

    ``worth`` (n, m) or (1, m): objective per step/s on a type."""
    sharing = problem.sharing if pairs else None
    keys = [problem.throughput, problem.gpus[:, None]]
    if sharing is not None:
        keys.append(sharing.job_class[:, None].astype(np.float64))
    if worth is not None and len(worth) > 1:
        keys.append(worth)
    table = np.concatenate(keys, axis=1)
    job_class, row = _alike(table)
    kind = sharing.job_class[row] if sharing is not None else np.zeros(len(row), dtype=np.int64)
    beside = np.zeros((0, 0, len(problem.workers)))
    if sharing is not None:
        beside = _together(sharing.rate, kind, problem.gpus[row])
    return Classes(
        kinds=Kinds(
            rate=problem.throughput[row],
            gpus=problem.gpus[row],
            capacity=problem.workers,
            kind=kind,
            beside=beside,
            worth=None if worth is None else np.broadcast_to(worth, problem.throughput.shape)[row],
        ),
        job_class=job_class,
    )


def _alike(table: F) -> tuple[I, I]:
    """(class of every row of ``table``, a row of every class), in an order that the rows alone decide."""
    mix = np.sqrt(np.array([2.0, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]))
    code = table @ np.resize(mix, table.shape[1])
    _, row, inverse = np.unique(code, return_index=True, return_inverse=True)
    if not np.array_equal(table[row][inverse], table):  # two rows with one code: rare, but it must be right
        _, row, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), row


def _together(rate: F, kind: I, gpus: F) -> F:
    """(k, k, m) rates beside one another, 0 unless both run and both hold as many GPUs."""
    of_kind = np.zeros(len(rate))
    of_kind[kind] = gpus
    both = (rate > 0) & (rate.transpose(1, 0, 2) > 0) & (of_kind[:, None] == of_kind)[:, :, None]
    return np.where(both, rate, 0.0)


def solve(
    jobs: Classes,
    *,
    need: F | None = None,
    slope: F | None = None,
    fade: F | None = None,
    start: State | None = None,
    what: str = "the program of classes",
) -> Shared:
    """``need``, ``slope``, ``fade`` (n,); a slope ≥ 0, some > 0, exactly where the objective is t (``worth``
    None); ``fade`` ≥ 0 only with it. ``start``: of an earlier answer for the same ``jobs``. Jobs are served
    to 1e-9 of their time: one that asks for less than that may get nothing.
    InfeasibleError where the needs cannot be met."""
    n = len(jobs.job_class)
    demand = _Demand(
        need=np.zeros(n) if need is None else need,
        slope=np.zeros(n) if slope is None else slope,
        fade=fade,
    )
    scale = jobs.kinds.scale[jobs.job_class]
    t = most = _alone(jobs, demand)
    need, slope = demand.tangent(t)
    if start is None:
        order = np.lexsort((-(need + slope * t) / scale, jobs.job_class))
        first = np.flatnonzero(np.append(True, np.diff(jobs.job_class[order]) > 0))
        lp = ClassLP(jobs.kinds, _parts(jobs, order, first, need, slope), no_pairs(), reach=t)
    else:
        order, first = start.order, start.first
        lp = start.lp.cut(_parts(jobs, order, first, need, slope), np.arange(len(first)), reach=t)
    priced = True
    for rounds in range(1, 3 * n + 50):
        lp.solve(what, price=priced)
        t = min(lp.t, t) if fade is not None else lp.t
        asked = (need + slope * t)[order] / scale[order]
        again = _sorted(asked, first)
        if again is not None:
            order, asked = order[again], asked[again]
        part, rate, time, label = lp.columns()
        row_scale = jobs.kinds.scale[lp.parts.of]
        held = segments(part, rate / row_scale[part], time, label, lp.parts.size)
        at = cuts(asked, first, held)
        bent = demand.bent(need, slope, t)
        if not len(at) and not bent and not priced:
            priced = True
            continue
        if not len(at) and not bent:
            asked = raised(np.maximum(asked, 0.0), first, held)
            member, segment, amount = spread(asked, first, held)
            single, paired, at = _hand_out(member, held.label[segment], amount, lp, n, first)
            if not len(at):
                bound = min(lp.bound, most) if lp.kinds.worth is None else lp.bound
                return _answer(lp, t, bound, order, first, single, paired, rounds)
        priced = fade is not None  # without all pairs t may fall short, and there it must not
        if bent:
            need, slope = demand.tangent(t)
        begin = np.union1d(first, at)
        parent = np.searchsorted(first, begin, side="right") - 1
        first = begin
        lp = lp.cut(_parts(jobs, order, first, need, slope), parent, reach=t)
    raise ArylError(f"{what}: parts of single jobs, and still not served")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Demand:
    """(n,) each: what jobs ask for at t."""

    need: F
    slope: F
    fade: F | None

    def tangent(self, t: float) -> tuple[F, F]:
        """(need, slope) of the straight line that touches the demand at t, and never asks for more."""
        if self.fade is None:
            return self.need, self.slope
        left = 1.0 / (1.0 - self.fade * t)
        steep = self.slope * left * left
        return self.need + self.slope * left * t - steep * t, steep

    def bent(self, need: F, slope: F, t: float) -> bool:
        """Whether the demand at t is above the line by more than rounding."""
        if self.fade is None:
            return False
        true = self.need + self.slope * t / (1.0 - self.fade * t)
        return bool((true - (need + slope * t) > 1e-10 * np.abs(true)).any())


def _alone(jobs: Classes, demand: _Demand) -> float:
    """A t that no solution exceeds: every job at the best rate there is for its class, as if alone."""
    kinds = jobs.kinds
    usable = kinds.capacity > 0
    best = (kinds.rate * usable).max(axis=1)
    if len(kinds.beside):
        best = np.maximum(best, (kinds.beside * usable).max(axis=(1, 2))[kinds.kind])
    spare = best[jobs.job_class] - demand.need
    ask = demand.slope if demand.fade is None else demand.slope + demand.fade * spare
    on = demand.slope > 0
    most = float((spare[on] / ask[on]).min()) if on.any() else 1.0
    return most if most > 0 else 1.0


def _parts(jobs: Classes, order: I, first: I, need: F, slope: F) -> Parts:
    return Parts(
        of=jobs.job_class[order[first]],
        size=np.diff(np.append(first, len(order))).astype(np.float64),
        need=np.add.reduceat(need[order], first),
        slope=np.add.reduceat(slope[order], first),
    )


def _sorted(asked: F, first: I) -> I | None:
    """The permutation that sorts every part's members, the most asking first; None where they are."""
    rising = np.diff(asked) > 0
    rising[first[1:] - 1] = False
    if not rising.any():
        return None
    part = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(asked))))
    return np.lexsort((-asked, part))


def _hand_out(
    member: I, label: I, amount: F, lp: ClassLP, n: int, first: I
) -> tuple[tuple[I, I, F], tuple[I, I, I, F], I]:
    """(member, type, time alone), (member, member, type, time together), where to cut if a member holds more
    than half of what its part shares with itself."""
    m = lp.alone.shape[1]
    alone = (label >= 0) & (label < m)
    single = (member[alone], label[alone], amount[alone])
    together = label >= m
    member, label, amount = member[together], label[together] - m, amount[together]
    column = label >> 1
    own = lp.pairs.first[column] == lp.pairs.second[column]
    width = len(lp.pairs)
    low, high, greedy = folded(member[own], column[own], amount[own], width)
    if len(greedy):
        ends = np.append(first, n)
        at = np.union1d(greedy, greedy + 1)
        return single, (member, member, member, amount), np.setdiff1d(at, ends)
    two = (label & 1) == 1
    left, right = ~own & ~two, ~own & two
    one = [np.concatenate(x) for x in zip((member[left], column[left], amount[left]), low, strict=True)]
    other = [np.concatenate(x) for x in zip((member[right], column[right], amount[right]), high, strict=True)]
    a, b, which, time = joined((one[0], one[1], one[2]), (other[0], other[1], other[2]), width)
    return single, (a, b, lp.pairs.type[which], time), np.zeros(0, dtype=np.int64)


def _answer(
    lp: ClassLP,
    t: float,
    bound: float,
    order: I,
    first: I,
    single: tuple[I, I, F],
    paired: tuple[I, I, I, F],
    rounds: int,
) -> Shared:
    n, m = len(order), lp.alone.shape[1]
    flat = _summed(order[single[0]] * m + single[1], single[2], n * m)
    a, b = order[paired[0]], order[paired[1]]
    code, at = np.unique(np.minimum(a, b) * n + np.maximum(a, b), return_inverse=True)
    both = _summed(at.reshape(-1) * m + paired[2], paired[3], len(code) * m)
    pairs = np.stack([code // n, code % n], axis=1).astype(np.int64)
    shares, pair_shares = _within(lp, order, first, flat.reshape(n, m), pairs, both.reshape(len(code), m))
    beta, alpha, lam = lp.duals
    part = np.repeat(np.arange(len(first)), np.diff(np.append(first, n)))
    back = np.empty(n, dtype=np.int64)
    back[order] = part
    return Shared(
        shares=shares,
        pairs=pairs,
        pair_shares=pair_shares,
        t=t,
        bound=bound,
        need_value=beta[back],
        time_value=alpha[back],
        type_value=lam,
        parts=len(first),
        rounds=rounds,
        state=State(lp=lp, order=order, first=first),
    )


def _summed(place: I, amount: F, length: int) -> F:
    return np.asarray(np.bincount(place, weights=amount, minlength=length), dtype=np.float64)


def _within(lp: ClassLP, order: I, first: I, shares: F, pairs: I, pair_shares: F) -> tuple[F, F]:
    """Rounding (1e-9) taken back: no member above its time, no type above its workers."""
    n = len(order)
    gpus = np.empty(n)
    gpus[order] = np.repeat(lp.kinds.gpus[lp.parts.of], np.diff(np.append(first, n)))
    time = shares.sum(axis=1)
    used = gpus @ shares
    if len(pairs):
        both = pair_shares.sum(axis=1)
        time = time + np.bincount(pairs[:, 0], weights=both, minlength=n)
        time = time + np.bincount(pairs[:, 1], weights=both, minlength=n)
        used = used + gpus[pairs[:, 0]] @ pair_shares
    capacity = lp.kinds.capacity
    fit_type = np.where(used > capacity, capacity / np.maximum(used, 1e-300), 1.0)
    fit_job = 1.0 / np.maximum(time, 1.0)
    shares = shares * fit_job[:, None] * fit_type
    if len(pairs):
        pair_shares = pair_shares * np.minimum(fit_job[pairs[:, 0]], fit_job[pairs[:, 1]])[:, None] * fit_type
    return shares, pair_shares
