"""Phase 2: how many flexible workers each running elastic job gets of the GPUs that are left.

A job of n GPUs with i flexible workers runs at ``((n + i)/n)^a`` of its rate. What i are worth is the rule's:

* ``saved_s`` (Aryl): the reduction of its remaining time, ``R·(1 − (n/(n+i))^a)``;
* ``goodput``: the work it does more per second, in GPUs, ``n·(((n+i)/n)^a − 1)``;
* ``speedup`` (Pollux): ``((n+i)/n)^a``;
* ``shortest``: all of its flexible workers to the job with least remaining time, then to the next.

At most one number per job, total within capacity, most value: a multiple-choice knapsack, decided anew each
time. A job that would have to change pays ``charge`` in the rule's unit, against flapping (ours). Without a
charge values are concave and weights one, so that taking the best single steps is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels.knapsack import best_items
from arylcloud.planner.kernels.steps import GAP, by_units


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Elastic:
    """Running elastic jobs of one pool; (n,) each."""

    base: I
    """GPUs of its base workers."""
    most: I
    """Flexible workers it can use."""
    now: I
    """Flexible workers it has."""
    power: F
    left_s: F
    """Remaining time on its base workers."""
    restart_s: float = 0.0
    """What a change of its workers takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worth:
    """(Σ most,) value of each job's 1, 2, … most flexible workers, job after job, and (n,) charges."""

    value: F
    charge: F
    gap: float = GAP
    """What the total may fall short of the most possible, as a share, before it is asked for exactly."""


Rule = Callable[[Elastic], Worth]


def _speed(jobs: Elastic) -> tuple[F, I]:
    """Rates over the base's for every number of workers, and whose they are."""
    owner = np.repeat(np.arange(len(jobs.base)), jobs.most)
    first = np.cumsum(jobs.most) - jobs.most
    workers = np.arange(len(owner)) - first[owner] + 1
    speed: F = (1.0 + workers / jobs.base[owner]) ** jobs.power[owner]
    return speed, owner


def saved_s(jobs: Elastic) -> Worth:
    """Seconds of remaining time."""
    speed, owner = _speed(jobs)
    return Worth(
        value=jobs.left_s[owner] * (1.0 - 1.0 / speed), charge=np.full(len(jobs.base), jobs.restart_s)
    )


HOLD_S = 900.0
"""How long an allocation is taken to last where a rule weighs rates against a restart: three ticks."""


def goodput(jobs: Elastic) -> Worth:
    """GPUs' worth of work per second."""
    speed, owner = _speed(jobs)
    held = (1.0 + jobs.now / jobs.base) ** jobs.power
    return Worth(
        value=jobs.base[owner] * (speed - 1.0),
        charge=jobs.base * held * (jobs.restart_s / HOLD_S),
        gap=0.05,  # HOLD_S is a guess: no digits to gain
    )


def speedup(jobs: Elastic) -> Worth:
    """Rate over the base's; AdaptDL's restart penalty of 0.1 where a restart costs anything."""
    speed, _ = _speed(jobs)
    held = (1.0 + jobs.now / jobs.base) ** jobs.power
    return Worth(value=speed - 1.0, charge=held * (0.1 if jobs.restart_s else 0.0), gap=0.05)


def shortest(jobs: Elastic) -> Worth:
    """The rank of its remaining time, so steep that the first gets all it can use."""
    _, owner = _speed(jobs)
    rank = np.empty(len(jobs.base))
    rank[np.argsort(-jobs.left_s, kind="stable")] = np.arange(1, len(jobs.base) + 1)
    first = np.cumsum(jobs.most) - jobs.most
    workers = np.arange(len(owner)) - first[owner] + 1
    value: F = np.where(jobs.power[owner] > 0, rank[owner] * workers, 0.0)
    return Worth(value=value, charge=rank * (jobs.restart_s / HOLD_S), gap=0.05)


def extra_workers(jobs: Elastic, capacity: int, rule: Rule) -> I:
    """(n,) flexible workers of each job, total ≤ ``capacity``.

    >>> two = Elastic(base=np.array([2, 2]), most=np.array([4, 4]), now=np.array([0, 0]),
    ...               power=np.ones(2), left_s=np.array([50.0, 10.0]))
    >>> extra_workers(two, 4, saved_s)  # 30 + 3.33 = 33.33 + 0: ties go to the larger first step
    array([4, 0])
    """
    count = len(jobs.base)
    if not count or capacity <= 0:
        return np.zeros(count, dtype=np.int64)
    worth = rule(jobs)
    owner = np.repeat(np.arange(count), jobs.most)
    first = np.cumsum(jobs.most) - jobs.most
    if not worth.charge.any():
        steps = worth.value.copy()
        steps[1:] -= worth.value[:-1]
        starts = first[jobs.most > 0]
        steps[starts] = worth.value[starts]
        return _single_steps(steps, owner, count, capacity)
    return _with_charges(jobs, worth, owner, first, capacity)


def _single_steps(steps: F, owner: I, count: int, capacity: int) -> I:
    """Exact where each job's steps fall: the best ones, whosever they are."""
    good = int((steps > 0).sum())
    if good == 0:
        return np.zeros(count, dtype=np.int64)
    best = np.argsort(-steps, kind="stable")[: min(good, capacity)]
    found: I = np.bincount(owner[best], minlength=count)
    return found


def _with_charges(jobs: Elastic, worth: Worth, owner: I, first: I, capacity: int) -> I:
    width = int(jobs.most.max())
    value = np.zeros((len(jobs.base), width + 1))
    column = np.arange(len(owner)) - first[owner] + 1
    value[owner, column] = worth.value
    rising = np.maximum.accumulate(value, axis=1)
    found = by_units(rising, jobs.now, worth.charge, capacity, worth.gap)
    if found.bound - found.value <= worth.gap * found.value:
        return found.units
    rows = np.arange(len(value))
    value[rows, jobs.now] += worth.charge
    exact = value[:, 1:] - value[:, :1]
    weight = np.broadcast_to(np.arange(1, width + 1), exact.shape)
    return best_items(exact, weight, capacity) + 1


RULES: dict[str, Rule] = {"saved_s": saved_s, "goodput": goodput, "speedup": speedup, "shortest": shortest}


def split_evenly(jobs: Elastic, capacity: int) -> I:
    """Gandiva's growth: GPUs nobody asks for, one by one in turn to the jobs that can use one."""
    found = np.zeros(len(jobs.base), dtype=np.int64)
    left = capacity
    while left > 0:
        open_ = np.flatnonzero(found < jobs.most)[:left]
        if not len(open_):
            break
        found[open_] += 1
        left -= len(open_)
    return found


def tournament(jobs: Elastic, capacity: int) -> I:
    """AFS (NSDI 2021, §4.2), lengths known: each free GPU to the winner of a tournament of all jobs.

    Of two jobs, a = who would finish first with the present shares, b = the other, p and p' the rates now and
    with one worker more: b wins iff ``(p_b' − p_b)/p_b' > (p_a' − p_a)/p_a``. The relation is not transitive,
    so that the bracket matters: ours is a binary tree in the order of the jobs, O(log n) per GPU.
    """
    count = len(jobs.base)
    base, most = jobs.base.tolist(), jobs.most.tolist()
    power, left_s = jobs.power.tolist(), jobs.left_s.tolist()
    extra = [0] * count
    leaves = 1 << max(count - 1, 0).bit_length()
    ends, as_a, as_b = [0.0] * count, [0.0] * count, [0.0] * count
    tree = [-1] * (2 * leaves)

    def enter(j: int) -> None:
        now = (1.0 + extra[j] / base[j]) ** power[j]
        then = (1.0 + (extra[j] + 1) / base[j]) ** power[j]
        ends[j], as_a[j], as_b[j] = left_s[j] / now, (then - now) / now, (then - now) / then
        tree[leaves + j] = j if extra[j] < most[j] and then > now else -1

    def play(node: int) -> None:
        x, y = tree[2 * node], tree[2 * node + 1]
        if x < 0 or y < 0:
            tree[node] = max(x, y)
            return
        first, other = (x, y) if ends[x] <= ends[y] else (y, x)
        tree[node] = other if as_b[other] > as_a[first] else first

    for j in range(count):
        enter(j)
    for node in range(leaves - 1, 0, -1):
        play(node)
    for _ in range(capacity if count else 0):
        j = tree[1]
        if j < 0:
            break
        extra[j] += 1
        enter(j)
        node = (leaves + j) // 2
        while node:
            play(node)
            node //= 2
    return np.array(extra, dtype=np.int64)
