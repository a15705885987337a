"""The simulation: round by round, from one set of arrivals, ends and decisions to the next.

Not on the heap of :mod:`arylcloud.simulation.engine`: at any moment exactly one thing is next, the end of the
round or, where nothing runs, the next arrival. Events are skipped to, never polled for; the work of a
round is a handful of array operations over the active jobs.

The rules of time are Gavel's (scheduler.py, ``simulate``): a round lasts until its last job is through, at
most ``round_s``; a job that ends earlier leaves its GPUs idle until then, but is done when it is done; jobs
enter at the beginning of a round; whole steps only, ``int(T·round_s)``; after an idle gap the first round is
counted from the end of the one before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import InfeasibleError, UsageError
from arylcloud.planner.cluster import F, I
from arylcloud.planner.policies.registry import Policy
from arylcloud.simulation.cluster.book import Book
from arylcloud.simulation.cluster.feed import Feed, Source
from arylcloud.simulation.cluster.outcome import Outcome, Round
from arylcloud.simulation.cluster.roster import Placement, Roster
from arylcloud.simulation.cluster.workload import Workload

Recorder = Callable[[Round], None]
Progress = Callable[[int, int, float], None]
"""Jobs done, jobs to do, simulated seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Gavel's figures are the defaults."""

    round_s: float = 360.0
    restart_s: float = 0.0
    """Lost at the beginning of a round by a job that starts again, or elsewhere, or beside someone new."""
    reset_s: float = 1920.0
    """At least so long between two decisions."""
    seed: int = 0
    deadline_from: Literal["arrival", "dispatch"] = "arrival"
    """From when on policies count a job's deadline: from its arrival, or, as Gavel does, from the round in
    which it enters. Which deadlines were missed is counted from arrival."""
    rigid: bool = False
    """Elastic policies, too, run every job on its own number of GPUs."""


class Scheduler(Protocol):
    """Who runs in the next round. Works on the roster it was made with."""

    decisions: int

    @property
    def refused(self) -> set[int]:
        """Jobs to which the policy would not promise their deadline."""

    def arrive(self, jobs: I) -> None: ...
    def leave(self, mask: NDArray[np.bool_]) -> None: ...
    def select(self, now_s: float, workload: Workload) -> Placement: ...
    def account(self, placement: Placement, held_s: F) -> None: ...
    def force(self) -> None: ...


def simulate(
    source: Source | Workload,
    policy: Policy,
    workers: I,
    usd_per_hour: F,
    order: tuple[int, ...],
    settings: Settings,
    *,
    window: tuple[int, int] | None = None,
    record: Recorder | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run until every job, or every job of ``window`` [first, last), is done.

    ``workers``, ``usd_per_hour`` (m,) and ``order`` (indices, fastest first) go with the workload's worker
    types. UsageError for settings without sense and for a job that runs on none of these types;
    InfeasibleError where the policy leaves jobs waiting for ever.
    """
    if not 0 < settings.round_s < np.inf:
        raise UsageError(f"a round of {settings.round_s:g} s", hint="--round-s 360")
    if not 0 <= settings.restart_s < settings.round_s:
        raise UsageError(
            f"a restart of {settings.restart_s:g} s leaves nothing of a round of {settings.round_s:g} s",
            hint="--round-s 360",
        )
    feed = Feed(source, workers, settings.round_s, window)
    roster = Roster(round_s=settings.round_s, workers=workers)
    scheduler = _scheduler(policy, roster, feed.workload, usd_per_hour, order, settings)
    book = Book(len(feed.workload), len(workers))
    now_s, before_s, forced = float(feed.workload.arrival_s[0]), 0.0, False
    while not feed.done(book):
        new = feed.due(now_s)
        if len(new):
            waited_s = now_s - feed.workload.arrival_s[new]
            roster.add(feed.workload, new, late_s=waited_s if settings.deadline_from == "dispatch" else 0.0)
            scheduler.arrive(new)
            book.grow(len(feed.workload))
        placement = scheduler.select(now_s, feed.workload)
        if not len(placement.who):
            ahead_s = feed.next_s()
            if ahead_s < np.inf:
                _vacate(roster, book)
                now_s = ahead_s
            elif forced:
                raise _stuck(policy, roster, feed.workload)
            else:
                scheduler.force()
                forced = True
            continue
        forced = False
        now_s, before_s = _round(now_s, before_s, placement, roster, scheduler, feed, book, settings, record)
        if progress is not None:
            progress(book.ended, feed.target, now_s)
    return Outcome(
        workload=feed.workload,
        workers=workers,
        finish_s=book.finish_s,
        run_s=book.run_s,
        preemptions=book.preemptions,
        held_gpu_s=book.held_gpu_s,
        charged_gpu_s=book.charged_gpu_s,
        end_s=now_s,
        rounds=book.rounds,
        decisions=scheduler.decisions,
        refused=len(scheduler.refused),
    )


def _round(
    now_s: float,
    before_s: float,
    placement: Placement,
    roster: Roster,
    scheduler: Scheduler,
    feed: Feed,
    book: Book,
    settings: Settings,
    record: Recorder | None,
) -> tuple[float, float]:
    """Run one round; returns its end, twice: when the next begins, and from when that one is counted."""
    who, at, rate, partner = placement.who, placement.worker_type, placement.rate, placement.partner
    job = roster.job[who]
    slot = at if placement.slot is None else placement.slot
    mates = np.full(len(who), -1) if partner is None else np.where(partner >= 0, job[partner], -1)
    held = roster.at[who]
    stays = (held == slot) & ((mates < 0) | (mates == roster.partner[who]))
    book.preempted(roster, who, stays)
    work_s: float | F = settings.round_s
    start_s: float | F = now_s
    if settings.restart_s:
        lost = np.where(stays | ~roster.started[who], 0.0, settings.restart_s)
        work_s, start_s = settings.round_s - lost, now_s + lost
    left = roster.left[who]
    steps = np.minimum(np.floor(rate * work_s), left)
    finish = start_s + steps / rate
    if partner is not None:
        finish = np.where(partner >= 0, np.maximum(finish, finish[partner]), finish)
    end_s = float(finish.max())
    roster.left[who] = left - steps
    roster.started[who] = True
    roster.at[:] = -1
    roster.at[who] = slot
    if partner is not None:
        roster.partner[:] = -1
        roster.partner[who] = mates
    held_s = finish - before_s
    scheduler.account(placement, held_s)
    book.charge(job, at, placement.gpus, held_s, finish - now_s, partner)
    if record is not None:
        unit = (
            np.arange(len(who))
            if partner is None
            else np.where(partner >= 0, np.minimum(np.arange(len(who)), partner), np.arange(len(who)))
        )
        record(
            Round(
                start_s=now_s,
                end_s=end_s,
                job=job,
                worker_type=at,
                gpus=placement.gpus,
                unit=unit,
                steps=steps,
                restarted=(~stays).astype(np.int64),
            )
        )
    through = roster.left[who] <= 0
    if through.any():
        feed.finished(book, job[through], finish[through])
        mask = np.ones(len(roster), np.bool_)
        mask[who[through]] = False
        scheduler.leave(mask)
        roster.keep(mask)
    return end_s, end_s


def _vacate(roster: Roster, book: Book) -> None:
    """Nothing runs: what held GPUs in the round before has lost them."""
    book.preemptions[roster.job[roster.at >= 0]] += 1
    roster.at[:] = -1


def _scheduler(
    policy: Policy,
    roster: Roster,
    workload: Workload,
    usd_per_hour: F,
    order: tuple[int, ...],
    settings: Settings,
) -> Scheduler:
    from arylcloud.simulation.cluster.choices import Choices
    from arylcloud.simulation.cluster.packing import PackedShares
    from arylcloud.simulation.cluster.shares import Shares

    rng = np.random.default_rng(np.random.SeedSequence(settings.seed).spawn(8)[7])
    if policy.kind == "choices":
        return Choices(
            policy=policy,
            roster=roster,
            usd_per_hour=usd_per_hour,
            reset_s=settings.reset_s,
            restart_s=settings.restart_s,
            rigid=settings.rigid,
            rng=rng,
            choose=policy.choose(),
        )
    return (PackedShares if policy.packs else Shares)(
        policy=policy,
        roster=roster,
        usd_per_hour=usd_per_hour,
        order=order,
        reset_s=settings.reset_s,
        rng=rng,
        shuffler=random.Random(settings.seed + 5),  # noqa: S311 - Gavel's stream, so that runs compare
        solve=policy.solve(),
        sharing_rate=workload.shared,
    )


def _stuck(policy: Policy, roster: Roster, workload: Workload) -> InfeasibleError:
    i = int(roster.job[0])
    return InfeasibleError(
        f"{policy.name} leaves {len(roster)} jobs waiting for ever, the first is job {workload.names[i]} "
        f"on {workload.gpus[i]} GPUs",
        hint="a policy that gives a job no share on any type cannot finish the trace",
    )
