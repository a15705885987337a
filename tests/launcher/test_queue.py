"""Many jobs on too few GPUs: laws of the decision, whatever the policy and the moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.launcher.queue import SAVE_S, Decision, decide
from arylcloud.launcher.queueview import QueueJob, QueueView
from arylcloud.planner.policies.registry import policy

ROUND_S = 360.0
POLICIES = (
    "max_min_fairness",
    "max_min_fairness_perf",
    "fifo_perf",
    "min_total_duration",
    "min_cost",
    "isolated",
)


def queued(name: str, *, count: int = 1, **changes: object) -> QueueJob:
    job = QueueJob(
        job_id=name,
        gpus={"V100": count, "K80": count},
        rate={"V100": 1.0, "K80": 0.25},
        usd_per_hour={"V100": 0.0, "K80": 0.0},
        age_s=1000.0,
        left_s=36_000.0,
        received_s={},
    )
    job = replace(job, **changes)  # type: ignore[arg-type]
    if job.on is not None and not job.held:
        job = replace(job, held={job.on: job.gpus[job.on]}, keeps=job.gpus[job.on])
    return job


def gone(job: QueueJob) -> QueueJob:
    return replace(job, on=None, held={}, keeps=0)


def view(*jobs: QueueJob, boundary: bool = True, **changes: object) -> QueueView:
    base = QueueView(capacity={"V100": 2, "K80": 2}, jobs=jobs, round_s=ROUND_S, boundary=boundary)
    return replace(base, **changes)  # type: ignore[arg-type]


def decided(found: QueueView, name: str = "max_min_fairness_perf") -> Decision:
    return decide(found, name, policy(name).solve(), np.random.default_rng(0))


def held(found: QueueView, decision: Decision) -> dict[str, int]:
    """GPUs by kind once the decision is carried out: nobody's are free before its machines are gone."""
    total = dict.fromkeys(found.capacity, 0)
    by_id = {job.job_id: job for job in found.jobs}
    for job in found.jobs:
        for gpu, count in job.held.items():
            total[gpu] = total.get(gpu, 0) + count
    for start in decision.starts:
        total[start.gpu] += by_id[start.job_id].gpus[start.gpu]
    return total


@st.composite
def views(draw: st.DrawFn) -> QueueView:
    capacity = {"V100": draw(st.integers(0, 4)), "K80": draw(st.integers(1, 4))}
    free = dict(capacity)
    jobs = []
    for n in range(draw(st.integers(0, 6))):
        count = draw(st.sampled_from((1, 1, 2, 4)))
        fast = draw(st.sampled_from((1.0, 0.5, 0.9)))
        on = draw(st.sampled_from((None, *capacity, "L4")))  # L4: of its own, outside the capacity
        unknown = on is not None and draw(st.booleans())  # no plan says what it gets out of any GPU
        more = draw(st.sampled_from((0, 0, 1)))  # than it would take now: a move, or it was resized
        if on is not None and on != "L4":
            if free[on] < count + more:
                on, unknown = None, False
            else:
                free[on] -= count + more
        price = draw(st.sampled_from((0.0, 1.0)))
        job = queued(f"j{n}", count=count)
        rate = {"V100": fast, "K80": 1.0 if fast < 1 else 0.25}
        usd = {"V100": price * count, "K80": price * count / draw(st.sampled_from((1, 2)))}
        jobs.append(
            replace(
                job,
                gpus={} if unknown else job.gpus,
                rate={} if unknown else rate,
                usd_per_hour={} if unknown else usd,
                received_s={g: draw(st.sampled_from((0.0, 100.0, 5000.0))) for g in capacity},
                on=on,
                held_s=draw(st.sampled_from((0.0, 10 * ROUND_S))),
                leaving=on is not None and draw(st.booleans()),
                bare=on is not None and draw(st.booleans()),
                held={} if on is None else {on: count + more},
                keeps=0 if on is None else count + draw(st.sampled_from((0, more))),
                burn_usd_per_hour=price * count if unknown else 0.0,
            )
        )
    budget = draw(st.sampled_from((None, 1.0, 100.0)))
    return QueueView(
        capacity=capacity,
        jobs=tuple(jobs),
        round_s=ROUND_S,
        boundary=draw(st.booleans()),
        backfill=draw(st.booleans()),
        budget_usd=budget,
        spent_usd=draw(st.sampled_from((0.0, 0.95, 99.99, 200.0, None))),
    )


@settings(max_examples=40, deadline=None)
@given(found=views(), name=st.sampled_from(POLICIES))
def test_laws(found: QueueView, name: str) -> None:
    decision = decided(found, name)
    by_id = {job.job_id: job for job in found.jobs}
    starts, stops = [s.job_id for s in decision.starts], [s.job_id for s in decision.stops]
    assert all(held(found, decision)[gpu] <= count for gpu, count in found.capacity.items()), "capacity"
    assert len({*starts, *stops}) == len(starts) + len(stops), "one word for each job"
    assert all(by_id[j].on is None for j in starts), "only who waits is started"
    assert all(by_id[j].on is not None and not by_id[j].leaving for j in stops), "who runs makes way, once"
    assert all(start.why for start in decision.starts)
    assert all(stop.why for stop in decision.stops)
    idle = {j.job_id for j in found.jobs if j.on is None} - set(starts)
    assert idle == {j for j, _ in decision.waiting}, "who waits is told what for"
    on = [(j, j.on) for j in found.jobs if j.on is not None]
    burn = sum(max(j.burn_usd_per_hour, j.usd_per_hour.get(gpu, 0.0)) for j, gpu in on)
    new = sum(by_id[s.job_id].usd_per_hour[s.gpu] for s in decision.starts)
    if found.budget_usd is not None and new > 0:
        assert found.spent_usd is not None, "what has been spent is not known"
        assert found.spent_usd + (burn + new) * ROUND_S / 3600 <= found.budget_usd, (
            "the budget lasts the round"
        )
    end_usd = burn * SAVE_S / 3600
    out = found.budget_usd is not None and (found.spent_usd or 0.0) + end_usd >= found.budget_usd
    if out and found.spent_usd is not None:
        running = {j.job_id for j in found.jobs if j.on is not None and not j.leaving}
        assert set(stops) == running, "nobody goes on without money"
    elif not found.boundary:
        assert not stops, "within a round nobody makes way"
    else:
        assert all(by_id[j].held_s >= ROUND_S for j in stops), "not before a round is over"


def live(
    jobs: Mapping[str, int], rounds: int, name: str, stopped: list[str] | None = None, **changes: object
) -> dict[str, float]:
    """Rounds that each job held GPUs for, all of them there from the beginning and never ending; ``stopped``:
    for who makes way."""
    had: dict[str, dict[str, float]] = {j: {} for j in jobs}
    on: dict[str, str] = {}
    since: dict[str, int] = {}
    for now in range(rounds):
        for boundary in (True, False):  # who makes way is gone by the next look
            found = view(
                *(
                    queued(
                        j,
                        count=count,
                        received_s=had[j],
                        on=on.get(j),
                        held_s=(now - since.get(j, 0)) * ROUND_S,
                        **changes,
                    )
                    for j, count in jobs.items()
                ),
                boundary=boundary,
            )
            decision = decided(found, name)
            for stop in decision.stops:
                del on[stop.job_id]
                if stopped is not None:
                    stopped.append(stop.job_id)
            for start in decision.starts:
                on[start.job_id], since[start.job_id] = start.gpu, now
        used = dict.fromkeys(found.capacity, 0)
        for j, gpu in on.items():
            used[gpu] += jobs[j]
            had[j][gpu] = had[j].get(gpu, 0.0) + ROUND_S
        assert all(used[gpu] <= found.capacity[gpu] for gpu in used)
    return {j: sum(by.values()) / ROUND_S for j, by in had.items()}


@pytest.mark.parametrize("name", ["max_min_fairness", "max_min_fairness_perf"])
def test_nobody_starves(name: str) -> None:
    """Seven jobs on four GPUs, one of them a pair: each gets a fair part of the GPUs' rounds."""
    jobs = {f"j{n}": 1 for n in range(6)} | {"pair": 2}
    rounds = 40
    got = {j: jobs[j] * had for j, had in live(jobs, rounds, name).items()}
    assert min(got.values()) > 0.25 * rounds, got
    assert max(got.values()) < 2 * 0.9 * rounds, got


def test_enough_for_all_and_nobody_is_disturbed() -> None:
    got = live({f"j{n}": 1 for n in range(4)}, 20, "max_min_fairness_perf")
    assert set(got.values()) == {20.0}


ALIKE: dict[str, Any] = {"rate": {"V100": 1.0, "K80": 0.9}}


@pytest.mark.parametrize("name", ["max_min_fairness", "max_min_fairness_perf", "min_total_duration"])
def test_kinds_that_are_about_the_same_are_not_taken_in_turns(name: str) -> None:
    """Fairness to the last percent would have the jobs change places for ever."""
    stopped: list[str] = []
    assert set(live({"a": 2, "b": 2}, 20, name, stopped, **ALIKE).values()) == {20.0}
    assert stopped == []
    got = live({"a": 2, "b": 2}, 20, name, stopped, rate={"V100": 1.0, "K80": 0.25})
    assert stopped, "where one is far slower they do"
    assert min(got.values()) > 15


def test_three_on_two_kinds_that_are_about_the_same() -> None:
    """Who makes way makes it for the one who waits, and for nobody else."""
    stopped: list[str] = []
    rounds = 30
    got = live({"a": 2, "b": 2, "c": 2}, rounds, "max_min_fairness_perf", stopped, **ALIKE)
    assert min(got.values()) > 0.55 * rounds, got
    assert len(stopped) <= rounds


def test_what_is_free_now_is_taken_where_it_is_about_the_same() -> None:
    """A V100 is its best, and one comes free once its machine is gone; a K80 serves as well, now."""
    a = queued("a", count=2, on="V100", leaving=True, **ALIKE)
    b = queued("b", count=2, received_s={"K80": 5000.0}, **ALIKE)
    (start,) = decided(view(a, b, boundary=False)).starts
    assert start.gpu == "K80"
    assert " of its time on V100 or K80, " in start.why
    dear = replace(b, usd_per_hour={"V100": 1.0, "K80": 2.0})
    assert not decided(view(a, dear, boundary=False, backfill=False)).starts, (
        "twice the money is not the same"
    )


@pytest.mark.parametrize(
    ("bare", "rate", "moves"), [(True, 0.9, True), (False, 0.9, False), (True, 0.25, False)]
)
def test_a_turn_that_has_brought_no_machine_is_tried_elsewhere(bare: bool, rate: float, moves: bool) -> None:
    """The clouds have no V100 now. Where they have machines, it stays."""
    job = queued("a", count=2, on="V100", bare=bare, held_s=2 * ROUND_S, rate={"V100": 1.0, "K80": rate})
    job = replace(job, received_s={"V100": 2 * ROUND_S})
    decision = decided(view(job), "fifo_perf")
    assert [s.job_id for s in decision.stops] == ["a"] * moves
    assert all(s.why.endswith("it moves there") for s in decision.stops)
    assert not decided(view(replace(job, held_s=0.5 * ROUND_S)), "fifo_perf").stops, "not within a round"


def test_a_gang_is_not_starved_by_those_who_fit() -> None:
    """GPUs that are kept for it are given to nobody else while the last of them comes free."""
    pair = queued("pair", count=2, gpus={"V100": 2}, rate={"V100": 1.0}, usd_per_hour={"V100": 0.0})
    one: dict[str, Any] = {"gpus": {"V100": 1}, "rate": {"V100": 1.0}, "usd_per_hour": {"V100": 0.0}}
    one["held_s"] = 5 * ROUND_S
    a = queued("a", received_s={"V100": 5000.0}, on="V100", **one)
    b = queued("b", received_s={"V100": 5000.0}, on="V100", **one)
    small = queued("small", received_s={"V100": 4000.0}, **one)
    first = decided(view(pair, a, b, small))
    assert {s.job_id for s in first.stops} == {"a", "b"}
    assert not first.starts
    leaving = view(pair, gone(a), replace(b, leaving=True), small, boundary=False)
    second = decided(leaving)
    assert not second.starts, "one V100 is free, and the pair needs two"
    third = decided(view(pair, gone(a), gone(b), small, boundary=False))
    assert [(s.job_id, s.gpu) for s in third.starts] == [("pair", "V100")]


def test_who_is_hardly_further_behind_waits() -> None:
    """Hysteresis: moving costs a save and a start."""
    one: dict[str, Any] = {"gpus": {"V100": 2}, "rate": {"V100": 1.0}, "usd_per_hour": {"V100": 0.0}}
    a = queued("a", received_s={"V100": 5200.0}, on="V100", held_s=5 * ROUND_S, **one)
    b = queued("b", received_s={"V100": 5000.0}, **one)
    assert not decided(view(a, b)).stops
    c = replace(b, received_s={"V100": 1000.0})
    assert [s.job_id for s in decided(view(a, c)).stops] == ["a"]


def test_what_one_waits_for_is_told() -> None:
    huge = queued("huge", count=8)
    poor = queued("poor", usd_per_hour={"V100": 50.0, "K80": 40.0})
    found = decided(view(huge, poor, budget_usd=3.0))
    assert dict(found.waiting) == {
        "huge": "it is larger than the capacity",
        "poor": "$3.00 of the queue's budget is left: not enough for a round",
    }
