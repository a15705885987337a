"""Replay of one job from many starts under one deadline policy: arrays over starts, a loop over ticks.

At the beginning of a tick machines are lost (without notice), then the policy acts until it is content, then
the tick is lived and billed. ``start-up`` is paid and yields nothing; a refused attempt takes ``try_h`` while
nothing runs; the last tick is billed to the moment at which the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.lives import Lives
from arylcloud.planner.deadline.sightings import Sightings
from arylcloud.planner.deadline.view import (
    NONE,
    PROBE,
    START,
    STOP,
    SWITCH,
    DeadlinePolicy,
    Market,
    View,
)
from arylcloud.simulation.spottraces import Grid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

Spread = Callable[..., Iterable[Any]]
"""``spread(function, items)``: the results in the order of the items."""
EPS_H = 1e-9
CHUNK = 1024
"""Starts replayed together: their arrays stay in the cache, and the answer is the same however many processes
share the chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    work_h: float
    """On a working machine (or gang)."""
    deadline_h: float
    """From submission."""
    home: int = 0
    """Region where the job's data is at submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """One row per start; all shapes (n,). USD and hours."""

    usd: Floats
    egress_usd: Floats
    probe_usd: Floats
    on_demand_h: Floats
    """Billed, as ``spot_h``."""
    spot_h: Floats
    finish_h: Floats
    """Infinite where the trace ended before the job."""
    missed: Mask
    interruptions: Ints
    moves: Ints
    """Starts at another place or market than the machine before."""
    refused: Ints
    probes: Ints

    @classmethod
    def joined(cls, parts: list[Replays]) -> Replays:
        return cls(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in cls.__slots__})


def replay(
    grid: Grid,
    market: Market,
    policy: DeadlinePolicy,
    job: Job,
    starts: Index,
    *,
    spread: Spread = map,
) -> Replays:
    """The job submitted at each tick of ``starts``. The trace must be longer than start + deadline.
    ``spread``: how the chunks are run (``map``, or a pool's)."""
    parts = [starts[i : i + CHUNK] for i in range(0, len(starts), CHUNK)]
    return Replays.joined(list(spread(_Part(grid, market, policy, job), parts)))


@dataclass(frozen=True, slots=True)
class _Part:
    """A call that can be sent to another process."""

    grid: Grid
    market: Market
    policy: DeadlinePolicy
    job: Job

    def __call__(self, starts: Index) -> Replays:
        return _Run(self.grid, self.market, self.policy, self.job, starts).through()


@dataclass(slots=True)
class _Rows:
    """What changes for each job that is not done."""

    start: Index
    row: Index
    """Place in the answer."""
    work_h: Floats
    machine: Ints
    boot_h: Floats
    coming: Ints
    coming_boot_h: Floats
    at: Index
    last: Ints
    """The machine before, for counting moves."""
    used_h: Floats
    """Of this tick, by refused attempts."""

    def kept(self, at: Index) -> _Rows:
        return _Rows(**{name: getattr(self, name)[at] for name in _Rows.__slots__})


@dataclass(slots=True)
class _Run:
    grid: Grid
    market: Market
    policy: DeadlinePolicy
    job: Job
    starts: Index
    tick: int = 0
    rows: _Rows = field(init=False)
    seen: Sightings = field(init=False)
    lives: Lives | None = field(init=False)
    told: dict[str, NDArray[np.float64]] = field(init=False)
    prices: Floats = field(init=False)
    """Of every machine number now, (n, Z + R)."""
    up: Mask = field(init=False)

    def __post_init__(self) -> None:
        n, zones = len(self.starts), self.market.zones
        self.rows = _Rows(
            start=self.starts.astype(np.intp),
            row=np.arange(n),
            work_h=np.full(n, float(self.job.work_h)),
            machine=np.full(n, NONE, dtype=np.int64),
            boot_h=np.zeros(n),
            coming=np.full(n, NONE, dtype=np.int64),
            coming_boot_h=np.zeros(n),
            at=np.full(n, self.job.home, dtype=np.intp),
            last=np.full(n, NONE, dtype=np.int64),
            used_h=np.zeros(n),
        )
        self.seen = Sightings.none(n, zones)
        self.lives = Lives.none(n, zones) if self.policy.keeps_lives else None
        names = ("usd", "egress_usd", "probe_usd", "on_demand_h", "spot_h")
        counts = ("interruptions", "moves", "refused", "probes")
        self.told = {name: np.zeros(n) for name in (*names, *counts)} | {"finish_h": np.full(n, np.inf)}

    def through(self) -> Replays:
        ticks = self.grid.up.shape[0]
        while self.rows.row.size and int(self.rows.start.max()) + self.tick < ticks:
            at = self.rows.start + self.tick
            self.up = self.grid.up[at]
            self.prices = np.concatenate((self.grid.spot_usd[at], self.grid.on_demand_usd[at]), axis=1)
            self.rows.used_h[:] = 0.0
            self._lose()
            self._act()
            self._live()
            self.tick += 1
        told = self.told
        return Replays(
            usd=told["usd"],
            egress_usd=told["egress_usd"],
            probe_usd=told["probe_usd"],
            on_demand_h=told["on_demand_h"],
            spot_h=told["spot_h"],
            finish_h=told["finish_h"],
            missed=told["finish_h"] > self.job.deadline_h + 1e-6,
            interruptions=told["interruptions"].astype(np.int64),
            moves=told["moves"].astype(np.int64),
            refused=told["refused"].astype(np.int64),
            probes=told["probes"].astype(np.int64),
        )

    @property
    def now_h(self) -> float:
        return self.tick * self.market.tick_h

    def _note(self, job: Index, zone: Ints, up: Mask) -> None:
        now_h = self.now_h + self.rows.used_h[job]
        if self.lives is not None:
            was = self.seen.up[job, zone]
            seen, since = self.seen.last_h[job, zone], self.seen.since_h[job, zone]
            k = np.flatnonzero(was)
            self.lives.note(job[k], zone[k], seen[k] - since[k], now_h[k] - seen[k], ~up[k])
        self.seen.note(job, zone.astype(np.intp), now_h, up)

    def _lose(self) -> None:
        """Spot machines whose zone is no longer up are gone; what was on its way takes over, if it lives."""
        r, zones = self.rows, self.market.zones
        if self.policy.free_sight:
            n = r.row.size
            for zone in range(zones):
                self._note(np.arange(n), np.full(n, zone, dtype=np.int64), self.up[:, zone])
        for name, boot in (("coming", "coming_boot_h"), ("machine", "boot_h")):
            held = getattr(r, name)
            spot = np.flatnonzero((held >= 0) & (held < zones))
            if not spot.size:
                continue
            alive = self.up[spot, held[spot]]
            if not self.policy.free_sight:
                self._note(spot, held[spot], alive)
            lost = spot[~alive]
            if name == "machine":
                self.told["interruptions"][r.row[lost]] += 1
            held[lost] = NONE
            getattr(r, boot)[lost] = 0.0
        orphan = np.flatnonzero((r.machine == NONE) & (r.coming != NONE))
        self._take_over(orphan)

    def _take_over(self, at: Index) -> None:
        r = self.rows
        r.machine[at], r.boot_h[at] = r.coming[at], r.coming_boot_h[at]
        r.coming[at], r.coming_boot_h[at] = NONE, 0.0
        self._moved(at)

    def _moved(self, at: Index) -> None:
        r = self.rows
        self.told["moves"][r.row[at]] += (r.last[at] != NONE) & (r.last[at] != r.machine[at])
        r.last[at] = r.machine[at]
        r.at[at] = self.market.region_of[r.machine[at]]

    def _view(self, at: Index | None) -> View:
        """Of the rows ``at`` (None: all of them, without copies)."""
        r, m = self.rows, self.market
        i: Index | slice = slice(None) if at is None else at
        prices = self.prices[i]
        elapsed = self.now_h + r.used_h[i]
        return View(
            market=m,
            elapsed_h=elapsed,
            left_h=self.job.deadline_h - elapsed,
            work_h=r.work_h[i],
            total_h=np.full(elapsed.shape, float(self.job.work_h)),
            machine=r.machine[i],
            boot_h=r.boot_h[i],
            coming=r.coming[i],
            coming_boot_h=r.coming_boot_h[i],
            at=r.at[i],
            spent=r.used_h[i] > m.tick_h - m.try_h + EPS_H,
            spot_usd=prices[:, : m.zones],
            on_demand_usd=prices[:, m.zones :],
            seen=self.seen if at is None else self.seen.rows(at),
            lives=self.lives if at is None or self.lives is None else self.lives.rows(at),
        )

    def _act(self) -> None:
        """Ask the policy until nobody was refused and nobody has probed."""
        asking: Index | None = None
        for _ in range(8 * self.market.zones + 16):
            choice = self.policy.decide(self._view(asking))
            rows = np.arange(self.rows.row.size) if asking is None else asking
            asking = self._carry_out(rows, choice.action, choice.target)
            if not asking.size:
                return
        raise RuntimeError(f"{self.policy.name} comes to no end at hour {self.now_h:g}")

    def _carry_out(self, rows: Index, action: Ints, target: Ints) -> Index:
        """Rows that are to be asked again."""
        r, m = self.rows, self.market
        stop = rows[action == STOP]
        r.machine[stop], r.boot_h[stop] = NONE, 0.0
        r.coming[stop], r.coming_boot_h[stop] = NONE, 0.0
        again: list[Index] = []
        probing = action == PROBE
        if probing.any():
            at, zone = rows[probing], target[probing]
            up = self.up[at, zone]
            usd = np.where(up, self.prices[at, zone] * m.probe_h, 0.0)
            for name in ("usd", "probe_usd"):
                self.told[name][r.row[at]] += usd
            self.told["probes"][r.row[at]] += 1
            self._note(at, zone, up)
            again.append(at)
        asked = (action == START) | (action == SWITCH)
        if asked.any():
            again.append(self._ask(rows[asked], target[asked], action[asked] == SWITCH))
        found = np.concatenate(again) if again else np.empty(0, dtype=np.intp)
        return np.sort(found)

    def _ask(self, at: Index, machine: Ints, switch: Mask) -> Index:
        r, m = self.rows, self.market
        spot = machine < m.zones
        given = np.ones(at.size, dtype=bool)
        given[spot] = self.up[at[spot], machine[spot]]
        refused = at[~given]
        self.told["refused"][r.row[refused]] += 1
        r.used_h[refused] += np.where(r.machine[refused] == NONE, m.try_h, 0.0)
        self._note(at[spot], machine[spot], given[spot])
        got, held, switch = at[given], machine[given], switch[given]
        usd = m.egress_usd[r.at[got], m.region_of[held]]
        for name in ("usd", "egress_usd"):
            self.told[name][r.row[got]] += usd
        now = (r.machine[got] == NONE) | switch
        fresh, beside = got[now], got[~now]
        r.machine[fresh], r.boot_h[fresh] = held[now], m.startup_h
        r.coming[fresh], r.coming_boot_h[fresh] = NONE, 0.0
        self._moved(fresh)
        r.coming[beside], r.coming_boot_h[beside] = held[~now], m.startup_h
        return refused

    def _live(self) -> None:
        r, m, told = self.rows, self.market, self.told
        span = m.tick_h - r.used_h
        has, two = r.machine != NONE, r.coming != NONE
        work = np.where(has, np.maximum(span - r.boot_h, 0.0), 0.0)
        # where the new machine comes up within this tick, the old one hands over before
        over = two & (r.coming_boot_h < span - EPS_H)
        saved = np.where(over, np.maximum(r.coming_boot_h - m.handover_h, 0.0), 0.0)
        work[over] = (span - np.minimum(m.handover_h, r.coming_boot_h))[over]
        done = has & (work >= r.work_h - EPS_H)
        # how long it takes to the end of the work, if that comes: after boot, and after the hand-over
        before = np.where(over, np.where(r.work_h <= saved, 0.0, span - work), np.minimum(r.boot_h, span))
        lived = np.where(done, before + r.work_h, span)
        old = np.where(over, np.minimum(saved, lived), np.where(has, lived, 0.0))
        new = np.where(two, lived, 0.0)
        for held, hours in ((r.machine, old), (r.coming, new)):
            on = np.flatnonzero(held != NONE)
            if not on.size:
                continue
            told["usd"][r.row[on]] += self.prices[on, held[on]] * hours[on]
            is_spot = held[on] < m.zones
            told["spot_h"][r.row[on[is_spot]]] += hours[on[is_spot]]
            told["on_demand_h"][r.row[on[~is_spot]]] += hours[on[~is_spot]]
        r.work_h -= np.minimum(work, r.work_h)
        r.boot_h = np.maximum(r.boot_h - np.where(has, span, 0.0), 0.0)
        r.coming_boot_h = np.where(two, np.maximum(r.coming_boot_h - span, 0.0), 0.0)
        self._take_over(np.flatnonzero(over & ~done))
        ended = np.flatnonzero(done)
        if ended.size:
            told["finish_h"][r.row[ended]] = self.now_h + r.used_h[ended] + lived[ended]
            self._keep(np.flatnonzero(~done))

    def _keep(self, at: Index) -> None:
        self.rows = self.rows.kept(at)
        self.seen = self.seen.rows(at)
        self.lives = None if self.lives is None else self.lives.rows(at)
