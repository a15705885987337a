"""Replay of an elastic gang: it takes what capacity a zone has, from ``least`` machines to ``most``.

The policies are the same, and see the whole gang's price of a zone (of what runs: the price of an hour of
the whole gang's work there), and work left in hours of the whole gang. Machines that go leave the rest
working, at the speed of what is left, after ``regain_h``; machines that come are billed from then on, are up
after a start-up, and cost ``regain_h`` when they join. On demand is always the whole gang.

Deadlines are kept by one rule more: what runs on spot is given up at a look where going on until the next
would leave less slack than a start on demand takes. The policy then decides as after a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.planner.deadline.view import NONE, DeadlinePolicy, Market, View
from arylcloud.simulation.deadline.replay import CHUNK, EPS_H, Job, Replays, Spread, _Run
from arylcloud.simulation.spottraces import Grid, SpotTrace, grid, rows_at

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Sizes that a job can run at, and how fast."""

    least: int
    most: int
    speed: Floats
    """Of 0 … ``most`` machines beside the whole gang, (most + 1,): 0 below ``least``, 1 at ``most``."""
    regain_h: float = 1 / 60
    """Without work after a change of size."""

    def __post_init__(self) -> None:
        s = self.speed
        if not (1 <= self.least <= self.most and s.shape == (self.most + 1,) and self.regain_h >= 0):
            raise UsageError(f"a gang of {self.least} to {self.most} machines is none", hint="2..8")
        rising = np.all(np.diff(s[self.least :]) >= 0) and s[self.least] > 0 and s[self.most] == 1
        if not rising or np.any(s[: self.least] != 0):
            raise UsageError("more machines are slower than fewer", hint="a smaller largest size")


def power_law(least: int, most: int, exponent: float, regain_h: float = 1 / 60) -> Gang:
    """Speed ∝ machines to the ``exponent``, 0 … 1.

    >>> power_law(2, 4, 0.5).speed.round(3).tolist()
    [0.0, 0.0, 0.707, 0.866, 1.0]
    """
    n = np.arange(most + 1)
    speed = np.where(n >= least, (n / most) ** exponent, 0.0)
    return Gang(least=least, most=most, speed=speed, regain_h=regain_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A gang, and how many of its machines could be had at each tick in each zone."""

    gang: Gang
    machines: Ints
    """At most ``gang.most``, (T, Z)."""

    def zone(self, zone: int) -> Sizes:
        return replace(self, machines=self.machines[:, [zone]])


def elastic_grid(trace: SpotTrace, gang: Gang, *, tick_s: float = 600.0) -> tuple[Grid, Sizes]:
    """The trace as such a gang sees it: prices are the whole gang's, up is where it can run at all."""
    whole = grid(trace, tick_s=tick_s, machines=gang.most)
    rows = rows_at(trace, len(whole.up), tick_s)
    there = [zone.available[row] for zone, row in zip(trace.zones, rows, strict=True)]
    machines = np.minimum(np.stack(there, axis=1), gang.most)
    return replace(whole, up=machines >= gang.least), Sizes(gang=gang, machines=machines)


def elastic_replay(
    world: Grid,
    sizes: Sizes,
    market: Market,
    policy: DeadlinePolicy,
    job: Job,
    starts: Index,
    *,
    spread: Spread = map,
) -> Replays:
    """As :func:`~arylcloud.simulation.deadline.replay.replay`. ``world`` and ``sizes``: of
    :func:`elastic_grid`. UsageError where a start-up is shorter than a tick: then what a start gives is not
    known before the next look."""
    if market.startup_h < market.tick_h - EPS_H:
        raise UsageError("an elastic gang needs ticks no longer than a start-up", hint="a smaller --tick-s")
    parts = [starts[i : i + CHUNK] for i in range(0, len(starts), CHUNK)]
    return Replays.joined(list(spread(_Part(world, sizes, market, policy, job), parts)))


@dataclass(frozen=True, slots=True)
class _Part:
    """A call that can be sent to another process."""

    world: Grid
    sizes: Sizes
    market: Market
    policy: DeadlinePolicy
    job: Job

    def __call__(self, starts: Index) -> Replays:
        run = _Elastic(self.world, self.market, self.policy, self.job, starts)
        run.machines, run.gang = self.sizes.machines, self.sizes.gang
        return run.through()


@dataclass(slots=True)
class _Elastic(_Run):
    machines: Ints = field(init=False)
    gang: Gang = field(init=False)
    size: Ints = field(init=False)
    """Machines of each row that work (or boot together), of ``holder``."""
    more: Ints = field(init=False)
    """That are to join them."""
    more_boot_h: Floats = field(init=False)
    holder: Ints = field(init=False)
    """Machine number that ``size`` is of."""

    def __post_init__(self) -> None:
        _Run.__post_init__(self)
        n = len(self.starts)
        self.size, self.more = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.more_boot_h, self.holder = np.zeros(n), np.full(n, NONE, dtype=np.int64)

    # ------------------------------------------------------------ what there is

    def _had(self, held: Ints) -> Ints:
        """Machines to be had now where each row holds some; on demand all."""
        r, zones = self.rows, self.market.zones
        found = np.where(held >= zones, self.gang.most, 0)
        spot = np.flatnonzero((held >= 0) & (held < zones))
        found[spot] = self.machines[r.start[spot] + self.tick, held[spot]]
        return found

    def _lose(self) -> None:
        _Run._lose(self)
        self._resize()
        self._give_up()

    def _resize(self) -> None:
        """Sizes follow the capacity: fewer at once, more when they are up."""
        r, gang = self.rows, self.gang
        self._fresh()
        have = self._had(r.machine)
        held = r.machine != NONE
        fewer = held & (have < self.size)
        self.size[fewer] = have[fewer]
        self.more[fewer] = 0
        r.boot_h[fewer] = np.maximum(r.boot_h[fewer], gang.regain_h)
        self.more = np.minimum(self.more, np.maximum(have - self.size, 0))
        slack = self.job.deadline_h - self.now_h - r.work_h
        room = slack >= self.market.startup_h + gang.regain_h  # to stand still for those who join
        self.more[~room] = 0
        joined = held & (self.more > 0) & (self.more_boot_h <= EPS_H)
        self.size[joined] += self.more[joined]
        self.more[joined] = 0
        r.boot_h[joined] = np.maximum(r.boot_h[joined], gang.regain_h)
        # machines that come late are worth it where there is more work than their start-up
        wanted = held & room & (self.more == 0) & (have > self.size) & (r.work_h > self.market.startup_h)
        self.more[wanted] = have[wanted] - self.size[wanted]
        self.more_boot_h[wanted] = self.market.startup_h

    def _fresh(self) -> None:
        """A gang that was started since, or has taken over, has what there is."""
        r = self.rows
        new = self.holder != r.machine
        have = self._had(r.machine)
        self.size[new], self.more[new] = have[new], 0
        self.holder = r.machine.copy()

    def _give_up(self) -> None:
        """What is on its way on spot, and then what runs on spot, where it would be too slow until the next
        look. On demand takes over as soon as it is up."""
        r, zones = self.rows, self.market.zones
        unsure = self._late() & (r.coming >= 0) & (r.coming < zones)
        r.coming[unsure], r.coming_boot_h[unsure] = NONE, 0.0
        slow = np.flatnonzero(self._late() & (r.machine >= 0) & (r.machine < zones))
        r.machine[slow], r.boot_h[slow] = NONE, 0.0
        self._take_over(slow[r.coming[slow] != NONE])
        self._fresh()

    def _late(self) -> Mask:
        """Rows that do not end in time within this tick, and after it have less slack than a start takes."""
        m = self.market
        left = self.job.deadline_h - self.now_h
        work, end = self._worked(np.full(self.rows.row.size, m.tick_h))
        slack = left - m.tick_h - (self.rows.work_h - work)
        found: Mask = (slack < m.startup_h - EPS_H) & (end > left)
        return found

    # ------------------------------------------------------------ what it does

    def _worked(self, span: Floats) -> tuple[Floats, Floats]:
        """Work of each row in ``span``, and the moment in it at which its own work is done (inf: not)."""
        r, m, speed = self.rows, self.market, self.gang.speed
        has = r.machine != NONE
        over = (r.coming != NONE) & (r.coming_boot_h < span - EPS_H)
        first = np.where(has, speed[self.size], 0.0)
        second = np.where(over, speed[self._had(r.coming)], 0.0)
        until = np.where(over, np.maximum(r.coming_boot_h - m.handover_h, 0.0), span)
        boot = np.minimum(r.boot_h, until)
        early = first * (until - boot)
        late = second * np.where(over, span - r.coming_boot_h, 0.0)
        in_first = has & (early >= r.work_h - EPS_H)
        in_second = ~in_first & over & (early + late >= r.work_h - EPS_H)
        with np.errstate(divide="ignore", invalid="ignore"):
            end = np.where(in_first, boot + r.work_h / first, np.inf)
            end = np.where(in_second, r.coming_boot_h + (r.work_h - early) / second, end)
        return early + late, np.minimum(end, np.where(np.isinf(end), np.inf, span))

    def _live(self) -> None:
        r, m, told, gang = self.rows, self.market, self.told, self.gang
        self._fresh()
        span = m.tick_h - r.used_h
        work, end = self._worked(span)
        done = np.isfinite(end)
        over = (r.coming != NONE) & (r.coming_boot_h < span - EPS_H)
        lived = np.where(done, end, span)
        saved = np.maximum(r.coming_boot_h - m.handover_h, 0.0)
        old = np.where(r.machine == NONE, 0.0, np.where(over, np.minimum(saved, lived), lived))
        new = np.where(r.coming == NONE, 0.0, lived)
        sizes = (self.size + self.more, self._had(r.coming))
        for held, hours, size in ((r.machine, old, sizes[0]), (r.coming, new, sizes[1])):
            on = np.flatnonzero(held != NONE)
            if not on.size:
                continue
            spent = hours[on] * size[on] / gang.most
            told["usd"][r.row[on]] += self.prices[on, held[on]] * spent
            is_spot = held[on] < m.zones
            told["spot_h"][r.row[on[is_spot]]] += spent[is_spot]
            told["on_demand_h"][r.row[on[~is_spot]]] += spent[~is_spot]
        r.work_h -= np.minimum(work, r.work_h)
        r.boot_h = np.where(r.machine == NONE, r.boot_h, np.maximum(r.boot_h - span, 0.0))
        self.more_boot_h = np.maximum(self.more_boot_h - span, 0.0)
        r.coming_boot_h = np.where(r.coming == NONE, 0.0, np.maximum(r.coming_boot_h - span, 0.0))
        self._take_over(np.flatnonzero(over & ~done))
        ended = np.flatnonzero(done)
        if ended.size:
            told["finish_h"][r.row[ended]] = self.now_h + r.used_h[ended] + lived[ended]
            self._keep(np.flatnonzero(~done))

    def _keep(self, at: Index) -> None:
        _Run._keep(self, at)
        for name in ("size", "more", "more_boot_h", "holder"):
            setattr(self, name, getattr(self, name)[at])

    def _view(self, at: Index | None) -> View:
        """What runs is shown at what an hour of the whole gang's work costs there."""
        self._fresh()
        view = _Run._view(self, at)
        i: Index | slice = slice(None) if at is None else at
        held, size = self.rows.machine[i], self.size[i]
        spot = np.flatnonzero((held >= 0) & (held < self.market.zones))
        prices = view.spot_usd.copy()
        share = size[spot] / self.gang.most / self.gang.speed[size[spot]]
        prices[spot, held[spot]] *= share
        return replace(view, spot_usd=prices)
