"""One allocation problem: jobs that share the GPUs of a few worker types, and the answer to it.

Two kinds of policies answer it (:mod:`arylcloud.planner.policies.registry`):

* *shares* (Gavel's family): what fraction of its time each job spends on each worker type, ``x_ij`` in
  [0, 1]. A round mechanism turns fractions into placements. Input: :class:`ClusterProblem`.
* *choices* (Sia's family): which configuration (type × GPUs × nodes) each job holds until the next
  decision, or none. Input: :class:`ElasticProblem`.

Notation as in Gavel (OSDI'20, §3): n jobs ``i`` in order of arrival, m worker types ``j`` with ``W_j``
workers (1 worker = 1 GPU), ``T_ij`` the whole job's rate on ``s_i`` GPUs of type j, ``w_i`` its weight,
``N_i`` its remaining steps. Constraints: ``x ≥ 0``, ``Σ_j x_ij ≤ 1``, ``Σ_i s_i·x_ij ≤ W_j``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]
I = NDArray[np.int64]  # noqa: E741 - the field's letter beside F


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Sharing:
    """What jobs do to one another on the same GPUs (Gavel's space sharing; pairs only).

    Jobs of one class behave alike: same throughput row, same number of GPUs. ``rate[a, b, j]``, shape
    (c, c, m): steps/s of a job of class ``a`` on type ``j`` beside a job of class ``b``; 0 = the two
    cannot share (other scale factor, out of memory, unknown).
    """

    job_class: I
    """(n,), values in [0, c)."""
    rate: F


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClusterProblem:
    """Rigid jobs on typed workers; shapes (n,), (m,), (n, m) for n jobs and m worker types.

    Every array is float64 unless said otherwise. Jobs stand in order of arrival: FIFO reads the index.
    """

    worker_types: tuple[str, ...]
    workers: F
    """(m,) GPUs of each type; 0 is allowed."""
    throughput: F
    """(n, m) steps/s of the whole job on its ``gpus``; 0 = cannot run there."""
    gpus: F
    """(n,) scale factor, GPUs of the whole job, ≥ 1."""
    weight: F
    """(n,) priority, > 0; larger = more."""
    usd_per_hour: F
    """(m,) of one GPU."""
    steps_left: F
    """(n,) > 0."""
    age_s: F
    """(n,) seconds since arrival."""
    isolated_s: F | None = None
    """(n,) C_i of finish-time fairness: seconds that the work done so far would have taken alone, each
    part at the isolated rate of its time. None = the policy keeps count of it in ``memory``."""
    deadline_s: F | None = None
    """(n,) seconds from now, inf = none."""
    horizon_s: float | None = None
    """How far ahead a policy that buys hours may look (min_cost); None = until the last deadline."""
    budget_usd: float | None = None
    sharing: Sharing | None = None
    entity: I | None = None
    """(n,) which entity (team) a job belongs to, for hierarchical fairness."""
    entity_weight: F | None = None
    entity_policy: tuple[str, ...] = ()
    """'fairness' or 'fifo' for each entity."""
    job_id: I | None = None
    """(n,) stable over calls: the key of ``memory``; None = the index."""
    memory: object | None = None
    """What the same policy returned last time as :attr:`Allocation.memory`; None at the first call."""
    own_usd_per_hour: F | None = None
    """(n, m) of one GPU, where jobs pay different prices for one type (instance types, markets, what a run
    costs beside its GPUs); None = ``usd_per_hour`` for everyone."""

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def prices(self) -> F:
        """(n, m) or (1, m): what each job pays for an hour of one GPU."""
        return self.usd_per_hour[None, :] if self.own_usd_per_hour is None else self.own_usd_per_hour

    @property
    def ids(self) -> I:
        return np.arange(len(self)) if self.job_id is None else self.job_id


def _no_pairs() -> I:
    return np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Allocation:
    """Fractions of time; rows of single jobs, and of pairs where jobs share GPUs."""

    shares: F
    """(n, m)."""
    pairs: I = field(default_factory=_no_pairs)
    """(q, 2) job indices, first < second."""
    pair_shares: F | None = None
    """(q, m)."""
    objective: float | tuple[float, ...] | None = None
    """In the policy's own sense and unit; a lexicographic policy's is its sorted vector (ascending)."""
    bound: float | None = None
    """Certified: the optimum is not better than this."""
    worker_value: F | None = None
    """(m,) objective per one more worker of the type: the capacity rows' duals."""
    seconds: F | None = None
    """(n, m) of a policy that buys hours: what each job buys in all."""
    fallback: bool = False
    """True: deadlines could not all be met and were dropped (Gavel's rule)."""
    unmet: I | None = None
    """Indices of jobs whose deadline cannot be met, where the policy knows which."""
    spare: F | None = None
    """(n, m) ≥ 0: whom GPUs of a type that are left over help most, or cost the objective least; larger =
    first, 0 = after those. Rounds read it for jobs without a share there; None = by what they are owed."""
    memory: object | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Configs:
    """The k ways in which a job may be run: GPUs of one type on some nodes."""

    worker_type: I
    """(k,) index of the type."""
    gpus: I
    """(k,) in all."""
    nodes: I
    """(k,)."""

    def __len__(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ElasticProblem:
    """Jobs that run in any of several configurations; shapes (n,), (m,), (k,), (n, k)."""

    worker_types: tuple[str, ...]
    workers: F
    """(m,) GPUs of each type."""
    usd_per_hour: F
    """(m,) of one GPU."""
    configs: Configs
    rate: F
    """(n, k) work units/s, 0 = not possible. For jobs whose batch may change: goodput."""
    work_left: F
    age_s: F
    run_s: F
    """(n,) seconds in which the job held GPUs."""
    attained_gpu_s: F
    """(n,) GPU-seconds received."""
    weight: F
    current: I
    """(n,) configuration held now, -1 = none."""
    restarts: I
    """(n,) so far."""
    restart_s: F
    """(n,) what changing the configuration costs."""
    deadline_s: F | None = None
    """(n,) seconds from now, inf = none."""
    job_id: I | None = None
    memory: object | None = None

    def __len__(self) -> int:
        return len(self.work_left)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Choice:
    """One configuration per job."""

    config: I
    """(n,), -1 = waits."""
    objective: float | None = None
    bound: float | None = None
    refused: I | None = None
    """Indices of jobs that admission control does not take."""
    worker_value: F | None = None
    """(m,) objective per one more GPU of the type, of the programme's relaxation."""
    memory: object | None = None


def unplaceable(problem: ClusterProblem) -> I:
    """Indices of jobs that no round can place: no type where they run has as many workers as they need GPUs.

    A fraction of a too large job is a point of the program all the same (Gavel's programs know only
    Σ gpus·x ≤ workers), so such a job may hold a share; this says that the share is on paper.
    """
    fits = (problem.throughput > 0) & (problem.workers[None, :] >= problem.gpus[:, None])
    return np.flatnonzero(~fits.any(axis=1))


def job_rates(problem: ClusterProblem, allocation: Allocation) -> F:
    """(n,) effective throughput, steps/s: ``Σ_j T_ij·x_ij`` over the job's own rows and its pairs'."""
    rates: F = (problem.throughput * allocation.shares).sum(axis=1)
    if allocation.pair_shares is not None and len(allocation.pairs):
        assert problem.sharing is not None
        a, b = allocation.pairs[:, 0], allocation.pairs[:, 1]
        ca, cb = problem.sharing.job_class[a], problem.sharing.job_class[b]
        np.add.at(rates, a, (problem.sharing.rate[ca, cb] * allocation.pair_shares).sum(axis=1))
        np.add.at(rates, b, (problem.sharing.rate[cb, ca] * allocation.pair_shares).sum(axis=1))
    return rates


def violation(problem: ClusterProblem, allocation: Allocation) -> float:
    """The largest amount by which any base constraint is broken (capacity in workers, time and sign in
    fractions); 0 where all hold."""
    used = (problem.gpus[:, None] * allocation.shares).sum(axis=0)
    time = allocation.shares.sum(axis=1)
    worst = -float(allocation.shares.min(initial=0.0))
    if allocation.pair_shares is not None and len(allocation.pairs):
        a, b = allocation.pairs[:, 0], allocation.pairs[:, 1]
        used = used + (problem.gpus[a][:, None] * allocation.pair_shares).sum(axis=0)
        np.add.at(time, a, allocation.pair_shares.sum(axis=1))
        np.add.at(time, b, allocation.pair_shares.sum(axis=1))
        worst = max(worst, -float(allocation.pair_shares.min(initial=0.0)))
    over = float((used - problem.workers).max(initial=0.0))
    return max(worst, over, float((time - 1.0).max(initial=0.0)), 0.0)


def isolated_shares(problem: ClusterProblem) -> F:
    """(n, m) ``z_ij = (W_j/(n·s_i)) / max(1, Σ_k W_k/(n·s_i))``: an equal part of the cluster."""
    z: F = problem.workers[None, :] / (len(problem) * problem.gpus[:, None])
    shares: F = z / np.maximum(1.0, z.sum(axis=1, keepdims=True))
    return shares


def isolated_rates(problem: ClusterProblem) -> F:
    """(n,) ``q_i = Σ_j T_ij·z_ij``, steps/s with an equal part of the cluster."""
    rates: F = (problem.throughput * isolated_shares(problem)).sum(axis=1)
    return rates


def proportional_rates(problem: ClusterProblem) -> F:
    """(n,) ``p_i = Σ_j T_ij·W_j / Σ_j W_j``: a slice of every type in proportion to the cluster's mix;
    0 where there are no workers."""
    rates: F = problem.throughput @ problem.workers / (problem.workers.sum() or 1.0)
    return rates
