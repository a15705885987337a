"""Templates against brute force, the table's promises as properties, and shrinking without idle nodes."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.templates.search import brute_force, templates
from arylcloud.planner.templates.shrink import shrink
from arylcloud.planner.templates.stages import Layers, Stage, Template, iteration_s, least_nodes
from arylcloud.planner.templates.table import distribute, plan_table


def _layers(seed: int, count: int, *, even: bool = False) -> Layers:
    rng = np.random.default_rng(seed)
    step = np.ones(count) if even else rng.uniform(0.5, 2.0, count)
    reduce = step[:, None] * np.array([0.05, 0.08, 0.1])[None, :]
    return Layers(step_s=step, reduce_s=reduce, param_bytes=np.full(count, 1e9), activation_bytes=1e9)


def test_formula_by_hand() -> None:
    """Equal stages take (N_b + S − 1)·t; a slow second of three: 1+3+1 + (12−3+1−1)·3 + 3+1."""
    assert iteration_s([1.0] * 4, 16) == 19.0
    assert iteration_s([1.0, 3.0, 1.0], 12) == 5 + 27 + 4
    assert iteration_s([2.0], 4) == 2 + 2 * 2 + 2


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_within_5_percent_of_brute_force(seed: int, gpus: int) -> None:
    layers = _layers(seed, 8 if gpus < 4 else 7)
    found = templates(layers, gpus, 1, 4)
    for nodes in range(1, 5):
        template = found[nodes]
        rate = template.iteration_s() / (4 * len(template.stages))
        exact = brute_force(layers, gpus, nodes)
        assert exact - 1e-9 <= rate <= 1.05 * exact


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_template_is_a_partition_over_whole_nodes(gpus: int) -> None:
    layers = _layers(1, 12)
    for nodes, template in templates(layers, gpus, 2, 9).items():
        edges = [s.first for s in template.stages] + [template.stages[-1].last]
        assert edges[0] == 0
        assert edges[-1] == len(layers)
        assert [s.last for s in template.stages] == edges[1:]
        assert all(a < b for a, b in pairwise(edges))
        used, held = 0, 0
        for stage in template.stages:
            assert stage.gpus & (stage.gpus - 1) == 0
            assert stage.seconds == pytest.approx(layers.stage_s(stage.gpus)[stage.first, stage.last])
            held += stage.gpus
            assert held <= gpus  # no stage spans nodes
            if held == gpus:
                used, held = used + 1, 0
        assert (used, held) == (nodes, 0)


def test_sizes_that_cannot_be() -> None:
    assert sorted(templates(_layers(0, 3), 1, 2, 9)) == [2, 3]  # three layers fill three GPUs
    with pytest.raises(InfeasibleError, match="3 layers cannot be laid over 5 nodes"):
        templates(_layers(0, 3), 1, 5, 9)
    with pytest.raises(ValueError, match="no power of two"):
        templates(_layers(0, 3), 3, 1, 2)
    assert least_nodes(_layers(0, 8), 16e9, 1) == 4  # 6·8 + 1 GB on 16 GB
    assert least_nodes(_layers(0, 8), 80e9, 8) == 1


def _equal(nodes: int) -> Template:
    stage = [Stage(first=i, last=i + 1, gpus=1, seconds=1.0 / nodes) for i in range(nodes)]
    return Template(nodes=nodes, stages=tuple(stage))


@settings(max_examples=40)
@given(n0=st.integers(1, 4), failures=st.integers(0, 2), spare=st.integers(0, 10), seed=st.integers(0, 99))
def test_every_world_size_is_covered(n0: int, failures: int, spare: int, seed: int) -> None:
    """Consecutive sizes n0 … cover each N' in [(f+1)·n0, N]; every pipeline has a template and work."""
    first = (failures + 1) * n0
    nodes, batch = first + spare, 64
    layers = _layers(seed, 16)
    table = plan_table(
        templates(layers, 1, n0, nodes - failures * n0), nodes=nodes, failures=failures, microbatches=batch
    )
    assert sorted(table.rows) == list(range(first, nodes + 1))
    for world, row in table.rows.items():
        assert sum(row.pipelines) == world
        assert len(row.pipelines) >= failures + 1
        assert min(row.pipelines) >= n0
        assert sum(row.microbatches) == batch
        assert min(row.microbatches) >= 1
        worst = max(
            table.templates[n].iteration_s(k) for n, k in zip(row.pipelines, row.microbatches, strict=True)
        )
        assert row.iteration_s == pytest.approx(worst)
        assert row.losses_with_copies == world - first
        assert row.losses_until_restart == world - n0
        assert table.at(world) is row
    assert table.at(nodes + 5) is table.rows[nodes]
    with pytest.raises(InfeasibleError, match="at least"):
        table.at(first - 1)


@pytest.mark.parametrize("seed", range(4))
def test_pipelines_of_a_row_are_the_best_of_all(seed: int) -> None:
    layers, batch, copies = _layers(seed, 10), 24, 2
    found = templates(layers, 1, 1, 7)
    table = plan_table(found, nodes=8, failures=copies - 1, microbatches=batch)
    for world, row in table.rows.items():
        every = [
            distribute([found[n] for n in sizes], batch)[1]
            for k in range(copies, world + 1)
            for sizes in combinations_with_replacement(sorted(found), k)
            if sum(sizes) == world
        ]
        assert row.iteration_s == pytest.approx(min(every), rel=1e-5)


def test_batches_go_to_whom_they_keep_shortest() -> None:
    pipelines = [_equal(1), _equal(3)]
    share, seconds = distribute(pipelines, 16)
    best = min(max(pipelines[0].iteration_s(k), pipelines[1].iteration_s(16 - k)) for k in range(1, 16))
    assert seconds == pytest.approx(best)
    assert sum(share) == 16
    with pytest.raises(ValueError, match="1 microbatches for 2 pipelines"):
        distribute(pipelines, 1)


def test_a_table_without_copies_enough_is_refused() -> None:
    found = templates(_layers(0, 8), 1, 2, 8)
    with pytest.raises(InfeasibleError, match="3 nodes do not hold 2 pipelines of 2"):
        plan_table(found, nodes=3, failures=1, microbatches=8)
    with pytest.raises(InfeasibleError, match="1 microbatches for 2 pipelines"):
        plan_table(found, nodes=4, failures=1, microbatches=1)


@settings(max_examples=200)
@given(st.data())
def test_shrinking_keeps_every_survivor_and_every_pipeline_whole(data: st.DataObject) -> None:
    least = data.draw(st.integers(1, 4))
    sizes = data.draw(st.lists(st.integers(least, least + 4), min_size=1, max_size=6))
    numbers = iter(range(sum(sizes)))
    pipelines = [[next(numbers) for _ in range(k)] for k in sizes]
    lost = data.draw(st.sets(st.integers(0, sum(sizes) - 1)))
    alive = sorted(set(range(sum(sizes))) - lost)
    if len(alive) < least:
        with pytest.raises(InfeasibleError):
            shrink(pipelines, lost, least)
        return
    found = shrink(pipelines, lost, least)
    assert sorted(n for nodes in found for n in nodes) == alive
    assert all(len(nodes) >= least for nodes in found)
    kept = {tuple(nodes) for nodes in pipelines if not lost & set(nodes)}
    if not lost:
        assert set(found) == kept
    untouched = [set(nodes) for nodes in pipelines if len(set(nodes) - lost) >= least]
    # who was whole stays a pipeline: it lends, or takes in what is left over, and is never taken apart
    assert len(found) >= len(untouched)


def test_merge_when_nobody_can_lend() -> None:
    assert shrink([[0, 1, 2], [3, 4, 5]], {0, 3}, 3) == ((1, 2, 4, 5),)
    assert shrink([[0, 1, 2], [3, 4, 5], [6, 7, 8]], {0, 1}, 3) == ((3, 4, 5, 2), (6, 7, 8))
