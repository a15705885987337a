"""The cheapest way to run a job by its deadline, the future known: a dynamic program over ticks, exact on
its grid.

State: {free, its checkpoint in region r; machine m working} × units of work left q. At every tick one machine
goes on, another is started (egress paid, start-up lost), or none. A start that would be lost before it works
is never best, so a boot of k ticks is one step. Backward from the deadline:

    W_r(t, q) = min(W_r(t+1, q), min_m E(r, r_m) + Σ p_m·τ + V_m(t+k, q − (k·τ − d)))  over m up t … t+k
    V_m(t, q) = min(W_r(m)(t, q), p_m·τ + V_m(t+1, q − τ))        if m is up at t, else W_r(m)(t, q)

τ = a tick, in units of u = gcd(tick, start-up, work) ≥ 30 s; where that is finer, start-up and work are
rounded down to a tenth of a tick, so that it stays a lower bound for whoever starts at ticks. The last tick
is billed to the moment of the end, as in the replay. O(T · (Z + R) · P) for P units of work; only q that can
be reached at t, and from which the deadline can be kept, are looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.view import Market
from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.spottraces import Grid

Floats = NDArray[np.float64]
LEAST_UNIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Everything in whole units of ``unit_h`` hours."""

    unit_h: float
    tick: int
    startup: int
    work: int
    ticks: int
    """To the deadline, rounded up."""

    @property
    def stages(self) -> int:
        """Ticks in which a machine boots (the last of them may also work); 1 at least."""
        return max(1, -(-self.startup // self.tick))

    @property
    def first_work(self) -> int:
        """Units done in the last tick of a boot."""
        return self.stages * self.tick - self.startup


def units(market: Market, job: Job) -> Units:
    seconds = [round(3600 * hours) for hours in (market.tick_h, market.startup_h, job.work_h)]
    unit = math.gcd(*seconds)
    unit_h = market.tick_h / 10 if unit < LEAST_UNIT_S else unit / 3600
    return Units(
        unit_h=unit_h,
        tick=round(market.tick_h / unit_h),
        startup=math.floor(market.startup_h / unit_h + 1e-6),
        work=math.floor(job.work_h / unit_h + 1e-6),
        ticks=math.ceil(job.deadline_h / market.tick_h - 1e-9),
    )


def optimum_usd(grid: Grid, market: Market, job: Job, start: int) -> float:
    """Least cost of the job submitted at tick ``start``; infinite where no way ends in time."""
    return _Program(grid, market, job, start).solved()


class _Program:
    """Rows of length P + 1 by machine and by region, ``stages + 1`` of each, written in turn."""

    def __init__(self, grid: Grid, market: Market, job: Job, start: int) -> None:
        u = self.u = units(market, job)
        self.market, self.home = market, job.home
        at = slice(start, start + u.ticks)
        usd = np.concatenate((grid.spot_usd[at], grid.on_demand_usd[at]), axis=1) * u.unit_h
        self.usd = usd
        up = np.concatenate((grid.up[at], np.ones((len(usd), market.regions), dtype=bool)), axis=1)
        k, ticks = u.stages, u.ticks
        # up for a whole boot from t on, and what its ticks before the last cost
        boots = np.zeros_like(up)
        boots[: ticks - k + 1] = np.logical_and.reduce([up[i : ticks - k + 1 + i] for i in range(k)])
        early = np.zeros_like(usd)
        for i in range(k - 1):
            early[: ticks - k + 1] += usd[i : ticks - k + 1 + i] * u.tick
        works = up.copy()
        for i in range(1, k + 1):  # nobody can work there yet so soon after it came up
            works[i:] &= up[:-i]
            works[:i] = False
        self.launches = [np.flatnonzero(row).tolist() for row in boots]
        self.working = [np.flatnonzero(row).tolist() for row in works]
        self.early, self.last = early, np.vstack((usd[k - 1 :], np.full((k - 1, usd.shape[1]), np.inf)))
        # (T, M, 1): adding an array of one is twice as fast as adding a number
        self.start_usd = (self.early + self.last * u.tick)[:, :, None]
        self.tick_usd = (usd * u.tick)[:, :, None]
        self.region_of = market.region_of.tolist()
        away = market.egress_usd[~np.eye(market.regions, dtype=bool)]
        self.one_egress = float(away[0]) if away.size and np.all(away == away[0]) else None

    def solved(self) -> float:
        u, regions = self.u, self.market.regions
        work, depth = u.work, u.stages + 1
        if work == 0:
            return 0.0
        inf = np.full(work + 1, np.inf)
        inf[0] = 0.0
        rows = [[inf.copy() for _ in range(depth)] for _ in range(self.usd.shape[1] + regions)]
        held, free = rows[: self.usd.shape[1]], rows[self.usd.shape[1] :]
        # what V_m is at t+1 … t+k: its own row, or its region's where it does not work
        later = [[inf] * len(held) for _ in range(depth)]
        scratch = np.empty(work + 1)
        best = [np.empty(work + 1) for _ in range(regions)]
        for t in range(u.ticks - 1, -1, -1):
            low, high = max(1, work - u.tick * t), min(work, u.tick * (u.ticks - t))
            if low > high:
                # before the start of what can be reached, nothing is read; after it all is infinite
                later[t % depth] = [inf] * len(held)
                continue
            span, now = slice(low, high + 1), t % depth
            lived, booted = low > u.tick, low > u.first_work  # no end within this tick: one addition each
            back, back_boot = (slice(low - x, high + 1 - x) for x in (u.tick, u.first_work))
            boot = later[(t + u.stages) % depth] if t + u.stages < u.ticks else [inf] * len(held)
            start_usd, tick_usd = list(self.start_usd[t]), list(self.tick_usd[t])
            begun = [False] * regions
            for m in self.launches[t]:
                r = self.region_of[m]
                out = scratch if begun[r] else best[r]
                if booted:
                    np.add(boot[m][back_boot], start_usd[m], out=out[span])
                else:
                    _lived(out, boot[m], self.early[t, m], self.last[t, m], u.first_work, u.tick, low, high)
                if begun[r]:
                    least = best[r][span]
                    np.minimum(least, scratch[span], out=least)
                begun[r] = True
            after = (t + 1) % depth
            self._released(best, begun, [f[after] for f in free], [f[now] for f in free], span)
            following = later[after] if t + 1 < u.ticks else [inf] * len(held)
            current = [free[r][now] for r in self.region_of]
            for m in self.working[t]:
                row = held[m][now]
                out = row[span]
                if lived:
                    np.add(following[m][back], tick_usd[m], out=out)
                else:
                    _lived(row, following[m], 0.0, self.usd[t, m], u.tick, u.tick, low, high)
                np.minimum(out, current[m][span], out=out)
                current[m] = row
            later[now] = current
        return float(free[self.home][0][work])

    def _released(
        self, best: list[Floats], begun: list[bool], after: list[Floats], now: list[Floats], span: slice
    ) -> None:
        """W of every region: wait, or start here or elsewhere."""
        started = [r for r, any_ in enumerate(begun) if any_]
        for r, row in enumerate(now):
            out = row[span]
            if begun[r]:
                np.minimum(after[r][span], best[r][span], out=out)
            else:
                out[:] = after[r][span]
        if len(started) == 0 or len(now) == 1:
            return
        if self.one_egress is not None:
            least = best[started[0]][span]
            for r in started[1:]:
                least = np.minimum(least, best[r][span])
            least = least + self.one_egress
            for row in now:
                np.minimum(row[span], least, out=row[span])
            return
        for r, row in enumerate(now):
            for other in started:
                if other != r:
                    usd = float(self.market.egress_usd[r, other])
                    np.minimum(row[span], best[other][span] + usd, out=row[span])


def _lived(
    out: Floats, after: Floats, early: float, usd: float, gained: int, tick: int, low: int, high: int
) -> None:
    """out[q] = early + usd·τ + after[q − gained]; where the work ends within the tick, billed to its end."""
    if low <= gained:
        last = min(gained, high)
        out[low : last + 1] = early + usd * np.arange(tick - gained + low, tick - gained + last + 1)
        low = gained + 1
    if low <= high:
        np.add(after[low - gained : high + 1 - gained], early + usd * tick, out=out[low : high + 1])
