"""Rates that rise together until something stops them: lexicographic max-min by programs of classes.

Every job's rate rises along a path, ``r_i(τ)``, never falling. At some τ the rates cannot be had together
any more; prices say who is stopped: a job whose rate has a price there (β > 0) can gain no more without a
loss to another that is stopped too, and keeps what it has. The others rise on, by new paths, until all are
stopped.

Two things keep the programs few, where one that stops jobs one by one needs a program for each:

* A job that has all of its time on the fastest type *left to it* stops by itself; the path knows that rate
  (its cap), so no program is needed for it.
* When prices stop jobs, a type with a price is used up by jobs that were stopped, and who may still rise
  uses no such type (its rate has no price, so a type with a price is too dear for it), unless it sits beside
  a stopped job that loses nothing by its company. So caps shrink to what is free at these prices, and
  without pairs each phase but the last takes a type away: at most m phases.

Within a phase τ is found by cuts: a try of r(τ) that fails returns prices with ``Σ β_i·r_i ≤ c`` for all
rates that can be had, and the largest τ on the path that keeps all of these is the next try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import F
from arylcloud.planner.kernels.classes import Classes, Shared, State, solve

EASE = 1e-9
"""Relative: what is given up of a rate that is held, so that rounding does not make it impossible."""

FIRST = 1e-5
"""The part of a path that is its beginning."""


class Path(Protocol):
    """Rates that rise from where they are to their caps."""

    @property
    def end(self) -> float:
        """τ at which nobody rises any more."""

    def at(self, tau: float) -> F:
        """(n,) rates at τ in [0, end]; each never falls and is piecewise linear."""


Paths = Callable[[F, NDArray[np.bool_], F], Path]
"""(rates now, who may rise, caps) → the way on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Risen:
    rate: F
    """(n,)."""
    shared: Shared
    """One way to have these rates."""
    programs: int
    phases: int


def rise(jobs: Classes, paths: Paths, *, runs: NDArray[np.bool_], what: str) -> Risen:
    """All jobs with ``runs`` from rate 0 until each is stopped."""
    n = len(jobs.job_class)
    free = _Free(jobs)
    rate = np.zeros(n)
    rising = runs.copy()
    state: State | None = None
    met: Shared | None = None
    programs = phases = 0
    while rising.any():
        phases += 1
        if phases > n + 1:
            raise ArylError(f"{what}: rates that rise without an end")
        cap = np.maximum(free.caps(), rate)
        rising &= cap > rate * (1 + 10 * EASE)
        if not rising.any():
            break
        path = paths(rate, rising, cap)
        tau, stop, met, state, tries = _highest(jobs, path, rate, state, what)
        programs += tries
        rate = np.maximum(rate, path.at(tau))
        if stop is None:
            break  # all the way: everyone is at its cap
        weight = np.where(rising, stop.need_value * cap, 0.0)
        rising &= weight <= 1e-9 * float(weight.max())
        free.narrow(stop)
    if met is None:
        met = solve(jobs, slope=rate, start=state, what=what)
        programs += 1
        if met.t < 1 - 1e-7:
            raise ArylError(f"{what}: {met.t:.9f} of the rates that were found can be had together")
    return Risen(rate=rate, shared=met, programs=programs, phases=phases)


class _Free:
    """What a job whose rate has no price may use: types alone, (class, type), and company, (class, kind of
    the partner, type). Less after every stop."""

    def __init__(self, jobs: Classes) -> None:
        kinds = jobs.kinds
        self._jobs = jobs
        there = kinds.capacity > 0
        self._alone = kinds.rate * there
        self._beside = (kinds.beside * there)[kinds.kind] if len(kinds.beside) else None

    def narrow(self, stop: Shared) -> None:
        """Only what costs nothing at the prices of ``stop`` is left: in any way to have the rates that were
        reached, a column that loses at these prices is not used (complementary slackness)."""
        kinds = self._jobs.kinds
        cost = kinds.gpus[:, None] * stop.type_value
        dear = cost > 1e-7 * float(cost.max())
        self._alone = np.where(dear, 0.0, self._alone)
        if self._beside is None:
            return
        one = stop.state.order[stop.state.first]  # a job of every part
        kind = kinds.kind[self._jobs.job_class[one]]
        offer = stop.need_value[one, None, None] * kinds.beside[kind] - stop.time_value[one, None, None]
        best = np.full(kinds.beside.shape, -np.inf)
        np.maximum.at(best, kind, offer)  # (partner's kind, own kind, type)
        pays = best.transpose(1, 0, 2)[kinds.kind]
        self._beside[(pays < cost[:, None, :] * (1 - 1e-6)) & dear[:, None, :]] = 0.0

    def caps(self) -> F:
        """(n,) each job's rate with its time on the best of what is free, as far as there are workers for it,
        then on the next best."""
        kinds = self._jobs.kinds
        rate = self._alone
        if self._beside is not None:
            rate = np.maximum(rate, self._beside.max(axis=1))
        order = np.argsort(-rate, axis=1)
        most = np.minimum(1.0, kinds.capacity / kinds.gpus[:, None])
        upto = np.minimum(np.cumsum(np.take_along_axis(most, order, axis=1), axis=1), 1.0)
        best: F = (np.diff(upto, axis=1, prepend=0.0) * np.take_along_axis(rate, order, axis=1)).sum(axis=1)
        return best[self._jobs.job_class]


def _highest(
    jobs: Classes, path: Path, rate: F, state: State | None, what: str
) -> tuple[float, Shared | None, Shared | None, State | None, int]:
    """(the largest τ whose rates can be had; the answer whose prices say so, None where τ is the end; an
    answer with the rates at τ, where one was met; where the search stands; programs solved)."""
    stop: Shared | None = None
    tau = path.end
    held = rate * (1 - EASE)
    up = path.at(path.end * FIRST) - rate
    aim = up  # straight up first: what stops that is near to what stops the path
    for tries in range(1, 200):
        shared = solve(jobs, need=held, slope=np.maximum(aim, 0.0), start=state, what=what)
        state = shared.state
        if tries > 1 and shared.t >= 1 - 1e-9:
            return tau, stop, shared, state, tries
        worth = float(shared.type_value @ jobs.kinds.capacity + shared.time_value.sum())
        lower = _root(path, shared.need_value, worth, 0.0, tau)
        if lower < tau:
            tau, stop = lower, shared
        elif tries > 1:
            break  # rounding: this is the τ that the last prices allow
        if tau <= 1e-12 * path.end:
            break  # those that rise were stopped before this phase, at once with others
        aim = path.at(tau) - rate
        straight = tries == 1 and bool(
            (np.abs(aim - up * (tau / path.end / FIRST)) <= 1e-9 * np.abs(aim)).all()
        )
        if straight and shared.t * FIRST * path.end >= tau * (1 - 1e-9):
            return tau, stop, shared, state, tries
    else:
        raise ArylError(f"{what}: cuts that do not come to an end")
    return tau, stop, None, state, tries


def _root(path: Path, price: F, worth: float, low: float, high: float) -> float:
    """The largest τ in [low, high] with ``Σ price·r(τ) ≤ worth``."""

    def over(tau: float) -> float:
        return float(price @ path.at(tau)) - worth

    top = over(high)
    if top <= 0:
        return high
    bottom = over(low)
    if bottom >= 0:
        return low
    for _ in range(200):
        # regula falsi, safeguarded: exact as soon as both ends lie on one straight piece
        middle = low - bottom * (high - low) / (top - bottom)
        if not low < middle < high:
            break
        value = over(middle)
        if abs(value) <= 1e-14 * abs(worth):
            return middle
        if value > 0:
            high, top = middle, value
        else:
            low, bottom = middle, value
        half = 0.5 * (low + high)
        value = over(half)
        if value > 0:
            high, top = half, value
        else:
            low, bottom = half, value
    return high if top < -bottom else low
