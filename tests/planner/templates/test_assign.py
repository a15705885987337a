"""Ranks and their layers: every replica whole, nothing fetched without need, zones that may be lost."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.pipeline import Pipelines, PipelineSpec, Run, problem
from arylcloud.planner.templates.assign import assign, lookup, missing
from arylcloud.planner.templates.matching import cheapest
from arylcloud.planner.templates.shrink import shrink
from arylcloud.planner.templates.spread import spread


def spec(layers: int, n0: int, failures: int, microbatches: int = 32) -> PipelineSpec:
    seconds = tuple(1.0 + 0.1 * (i % 3) for i in range(layers))
    return PipelineSpec(layer_s=seconds, least_nodes=n0, failures=failures, microbatches=microbatches)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[PipelineSpec, int]:
    """A job that may be, and its largest number of machines."""
    n0, failures = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    job = spec(draw(st.sampled_from([4, 6, 9])), n0, failures)
    most = draw(st.integers(job.least_world, job.least_world + 5))
    assume(problem(job, job.least_world, most) is None)
    return job, most


def covers(found: Pipelines, job: PipelineSpec, world: int) -> None:
    """Each rank once, each replica all layers in order, the whole batch, f + 1 copies of every layer."""
    ranks = [rank for replica in found.replicas for rank in replica.ranks]
    assert sorted(ranks) == list(range(world))
    assert sum(replica.microbatches for replica in found.replicas) == job.microbatches
    assert len(found.replicas) >= job.failures + 1
    for replica in found.replicas:
        assert replica.microbatches >= 1
        assert len(replica.stages) >= job.least_nodes
        edges = [0, *(stage.last for stage in replica.stages)]
        assert [stage.first for stage in replica.stages] == edges[:-1]
        assert edges[-1] == found.layers == len(job.layer_s)
        assert all(stage.first < stage.last for stage in replica.stages)


def runs(found: Pipelines) -> dict[int, Run]:
    return {s.rank: (s.first, s.last) for replica in found.replicas for s in replica.stages}


@settings(max_examples=60)
@given(job=jobs(), data=st.data())
def test_losses_down_to_the_last_size_and_back(job: tuple[PipelineSpec, int], data: st.DataObject) -> None:
    """From the largest world, losses at random (ranks close up, as members do), then growth: at each size the
    table's row, all of it laid over the ranks; what stays is not fetched again."""
    what, most = job
    zones = data.draw(st.lists(st.sampled_from("abc"), min_size=most, max_size=most))
    held: list[Run | None] = [None] * most
    world = most
    while True:
        found = assign(what, nodes_max=most, zones=zones[:world], held=held)
        covers(found, what, world)
        row = lookup(what, nodes_max=most, world=world)
        assert tuple(len(r.stages) for r in found.replicas) == row.pipelines
        assert tuple(r.microbatches for r in found.replicas) == row.microbatches
        for replica in found.replicas:
            for stage in replica.stages:
                assert stage.fetch == missing((stage.first, stage.last), held[stage.rank])
        again = assign(what, nodes_max=most, zones=zones[:world], held=[runs(found)[r] for r in range(world)])
        assert again.fetched == 0, "nothing has changed: nobody fetches anything"
        if world == what.least_world:
            return
        lost = data.draw(st.integers(1, world - what.least_world))
        gone = set(data.draw(st.permutations(range(world)))[:lost])
        kept = [r for r in range(world) if r not in gone]
        held, zones, world = [runs(found)[r] for r in kept], [zones[r] for r in kept], len(kept)


def compared(what: PipelineSpec, most: int, gone: set[int]) -> tuple[int, int] | None:
    """Layers fetched after losing ``gone`` of ``most``: ours, and by borrowing and merging; None where that
    ends at other sizes than the table's row."""
    before = assign(what, nodes_max=most, zones=["a"] * most, held=[None] * most)
    kept = [r for r in range(most) if r not in gone]
    shrunk = shrink([replica.ranks for replica in before.replicas], gone, what.least_nodes)
    after = assign(what, nodes_max=most, zones=["a"] * len(kept), held=[runs(before)[r] for r in kept])
    if Counter(map(len, shrunk)) != Counter(len(r.stages) for r in after.replicas):
        return None
    by_size = {len(r.stages): [(s.first, s.last) for s in r.stages] for r in after.replicas}
    cost = sum(
        last - first
        for nodes in shrunk
        for node, run in zip(nodes, by_size[len(nodes)], strict=True)
        for first, last in missing(run, runs(before)[node])
    )
    return after.fetched, cost


@settings(max_examples=60)
@given(job=jobs(), data=st.data())
def test_never_more_is_fetched_than_borrowing_and_merging_would(
    job: tuple[PipelineSpec, int], data: st.DataObject
) -> None:
    what, most = job
    lost = data.draw(st.integers(0, most - what.least_world))
    gone = set(data.draw(st.permutations(range(most)))[:lost])
    found = compared(what, most, gone)
    assert found is None or found[0] <= found[1]


def test_less_is_fetched_than_borrowing_and_merging_would() -> None:
    """A replica of three (ranks 0, 1, 2) and one of two (3, 4). Rank 1 is lost: two of two, and no borrowing.
    Rank 3 is lost: one is borrowed, and put where it fetches least. Of the first of three replicas of three
    one rank is left, and joins another replica."""
    assert compared(spec(6, 2, 1, 16), 5, {1}) == (2, 2)
    assert compared(spec(6, 2, 1, 16), 5, {3}) == (4, 7)
    assert compared(spec(9, 3, 1, 16), 9, {0, 2}) == (1, 3)


@settings(max_examples=80)
@given(
    cost=st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_matching_is_the_cheapest(cost: list[list[int]]) -> None:
    n = len(cost)
    found = cheapest(cost)
    assert sorted(found) == list(range(n))
    least = min(sum(cost[i][p[i]] for i in range(n)) for p in permutations(range(n)))
    assert sum(cost[i][j] for i, j in enumerate(found)) == least


def whole_without(places: tuple[tuple[str, ...], ...], zone: str) -> int:
    return sum(zone not in names for names in places)


@settings(max_examples=150)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=6), data=st.data())
def test_the_loss_of_a_zone_leaves_a_replica_where_one_can_be_left(
    sizes: list[int], data: st.DataObject
) -> None:
    """Two zones that have room for the two smallest replicas do; and every machine is used where it is."""
    zones = data.draw(st.lists(st.sampled_from("abcd"), min_size=sum(sizes), max_size=sum(sizes)))
    places = spread(sizes, zones)
    assert [len(names) for names in places] == sizes
    assert Counter(z for names in places for z in names) == Counter(zones)
    room = sorted(Counter(zones).values())
    small, next_ = sorted(sizes)[:2]
    if len(room) > 1 and room[-1] >= next_ and room[-2] >= small:
        for zone in "abcd":
            assert whole_without(places, zone) >= 1


def test_even_zones_lose_no_more_than_their_share() -> None:
    places = spread([2, 2, 2, 2, 2, 2], list("abcabcabcabc"))
    assert [whole_without(places, zone) for zone in "abc"] == [4, 4, 4]
    with pytest.raises(ValueError, match="3 machines for replicas of 4"):
        spread([2, 2], list("abc"))


def test_zones_and_layers_together() -> None:
    """Two zones: each has a replica of its own, at five machines and, one of ``a`` lost, at four; those of
    ``b`` keep their layers throughout."""
    job = spec(6, 2, 1, 8)
    five = assign(job, nodes_max=6, zones=list("ababa"), held=[None] * 5)
    assert [sorted(replica.ranks) for replica in five.replicas] == [[0, 2, 4], [1, 3]]
    held = runs(five)
    four = assign(job, nodes_max=6, zones=list("abab"), held=[held[0], held[1], held[2], held[3]])
    assert sorted(sorted(replica.ranks) for replica in four.replicas) == [[0, 2], [1, 3]]
    stages = {s.rank: s for replica in four.replicas for s in replica.stages}
    assert stages[1].fetch == stages[3].fetch == ()
    assert stages[0].fetch
    assert stages[2].fetch


def test_fewer_than_all_copies_need_and_none_at_all() -> None:
    """Not opened by the launcher; the function answers all the same."""
    job = spec(6, 2, 1, 8)
    alone = assign(job, nodes_max=6, zones=["a"] * 3, held=[None] * 3)
    assert [len(r.stages) for r in alone.replicas] == [3]
    assert alone.replicas[0].microbatches == 8
    with pytest.raises(InfeasibleError):
        assign(spec(4, 4, 0, 8), nodes_max=9, zones=["a"] * 5, held=[None] * 5)


@pytest.mark.parametrize(
    ("job", "least", "most", "said"),
    [
        (spec(8, 2, 1), 4, 12, None),
        (spec(8, 2, 1), 2, 12, "2 replicas of 2 machines need 4, not 2"),
        (spec(2, 3, 1), 6, 6, "2 layers cannot be laid over 3 machines"),
        (spec(8, 1, 1, 4), 2, 5, "4 microbatches for up to 5 replicas"),
        (spec(4, 4, 0), 4, 5, "5 machines cannot be divided into replicas of 4 to 4 machines"),
    ],
)
def test_what_no_table_covers_is_said(job: PipelineSpec, least: int, most: int, said: str | None) -> None:
    found = problem(job, least, most)
    assert (None if found is None else found[0]) == said


@settings(max_examples=60)
@given(
    layers=st.integers(1, 8), n0=st.integers(1, 4), failures=st.integers(0, 2),
    microbatches=st.integers(1, 12), more=st.integers(0, 6),
)  # fmt: skip
def test_what_has_no_problem_is_covered(
    layers: int, n0: int, failures: int, microbatches: int, more: int
) -> None:
    job = spec(layers, n0, failures, microbatches)
    most = job.least_world + more
    if problem(job, job.least_world, most) is not None:
        return  # nearly half of what is drawn: too many to be assumed away
    for world in range(job.least_world, most + 1):
        covers(assign(job, nodes_max=most, zones=["z"] * world, held=[None] * world), job, world)
