"""How many of the owner's machines may be lent, and which come back when some must: one decision at a time.

The owner's own work (inference, say) tells how many machines it needs now; with a headroom that is what it
keeps, the rest is lent. Back come, in Aryl's order (arXiv 2202.07896, §5.1): idle machines, then machines
that a job can give up and go on (it shrinks), then those of least preemption cost (``reclaim.cheapest``), in
dollars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arylcloud.planner.loaning.reclaim import cheapest


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """One machine of the pool."""

    name: str
    lent: bool
    job: str | None = None
    """Who has it; None = nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What a job loses."""

    spare: int
    """So many of its machines it can give up and go on: above its smallest size, if it shrinks at all."""
    shrink_usd: float
    """Of one hand-over to a smaller gang: the time that all its machines do nothing."""
    stop_usd: float
    """Of waiting for machines elsewhere: the hand-over, and what has not been saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tending:
    lend: tuple[str, ...] = ()
    reclaim: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    """Jobs that are left with too few machines."""
    shrunk: tuple[str, ...] = ()
    loss_usd: float = 0.0
    why: str = ""


def keep(needed: float, headroom: float, total: int) -> int:
    """Machines that the owner keeps: ``⌈needed · (1 + headroom)⌉``, at most all of them.

    >>> keep(3.0, 0.03, 8), keep(0.0, 0.03, 8), keep(9.0, 0.0, 8)
    (4, 0, 8)
    """
    return min(total, math.ceil(round(needed * (1.0 + headroom), 9)))


def tend(
    pool: Sequence[Tenancy], needed: float, stakes: Mapping[str, Stake], *, headroom: float = 0.03
) -> Tending:
    """What is to be lent, and what is to come back. ``needed``: machines that the owner's work needs now (a
    fraction is a part of one); ``stakes``: of every job that has one. Nothing changes at the right number."""
    kept = keep(needed, headroom, len(pool))
    home = [m for m in pool if not m.lent]
    said = f"{needed:g} needed, {kept} of {len(pool)} kept with {headroom:.0%} headroom"
    if kept < len(home):
        # a machine that is being given back, and still has a job, is lent again last
        first = sorted(home, key=lambda m: (m.job is not None, m.name))[: len(home) - kept]
        return Tending(lend=tuple(m.name for m in first), why=said)
    if kept == len(home):
        return Tending(why=said)
    return _reclaim([m for m in pool if m.lent], kept - len(home), stakes, said)


def _reclaim(lent: list[Tenancy], count: int, stakes: Mapping[str, Stake], said: str) -> Tending:
    idle = sorted(m.name for m in lent if m.job is None)[:count]
    chosen, shrunk, loss = list(idle), list[str](), 0.0
    by_job: dict[str, list[str]] = {}
    for machine in sorted(lent, key=lambda m: m.name, reverse=True):  # the last rank first
        if machine.job is not None:
            by_job.setdefault(machine.job, []).append(machine.name)
    for job in sorted(by_job, key=lambda j: (stakes[j].shrink_usd, j)):
        spare = min(stakes[job].spare, len(by_job[job]) - 1, count - len(chosen))
        if spare > 0:
            chosen += by_job[job][:spare]
            by_job[job] = by_job[job][spare:]
            shrunk.append(job)
            loss += stakes[job].shrink_usd
    if len(chosen) == count:
        return Tending(reclaim=tuple(chosen), shrunk=tuple(shrunk), loss_usd=loss, why=said)
    jobs = sorted(by_job)
    machines = [(name, j) for j, job in enumerate(jobs) for name in by_job[job]]
    back = cheapest(
        {i: {j} for i, (_, j) in enumerate(machines)},
        count - len(chosen),
        {j: stakes[job].stop_usd for j, job in enumerate(jobs)},
    )
    stopped = tuple(jobs[j] for j in back.ended)
    loss += back.loss - sum(stakes[job].shrink_usd for job in stopped if job in shrunk)
    return Tending(
        reclaim=(*chosen, *(machines[i][0] for i in back.servers)),
        stopped=stopped,
        shrunk=tuple(job for job in shrunk if job not in stopped),
        loss_usd=loss,
        why=said,
    )
