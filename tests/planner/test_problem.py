"""Problem documents: what is read, what is refused and where, and the answer."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import cluster_problem

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import ClusterProblem, job_rates
from arylcloud.planner.policies.registry import policy
from arylcloud.planner.problem import answer, instance, parse_problem

WHOLE: dict[str, Any] = {
    "id": "x",
    "worker_type_order": ["t4", "v100"],
    "num_workers": [2, 1],
    "costs": [0.35, 2.5],
    "jobs": [
        {"job_type": "LM", "scale_factor": 1, "weight": 2, "num_steps_remaining": 100, "time_since_start": 5},
        {"job_type": "LM", "num_steps_remaining": 200},
        {"job_type": "GAN", "scale_factor": 2, "num_steps_remaining": 300.5},
    ],
    "throughputs": [[1, 4], [1, 4], [0, 3]],
    "pairs": [{"i": 0, "j": 1, "throughputs": [[0.5, 0.5], [3, 3]]}],
    "SLOs_s": {"2": 1000},
    "cumulative_isolated_time": [1, 0, 0],
    "entities": {"a": [0, 2], "b": [1]},
    "entity_weights": {"b": 3},
    "per_entity_policy": {"a": "fifo"},
    "outputs": {"anything": 1},
}


def test_every_key() -> None:
    found = parse_problem(WHOLE)
    assert found.worker_types == ("t4", "v100")
    np.testing.assert_array_equal(found.workers, [2, 1])
    np.testing.assert_array_equal(found.usd_per_hour, [0.35, 2.5])
    np.testing.assert_array_equal(found.gpus, [1, 1, 2])
    np.testing.assert_array_equal(found.weight, [2, 1, 1])
    np.testing.assert_array_equal(found.steps_left, [100, 200, 300.5])
    np.testing.assert_array_equal(found.age_s, [5, 0, 0])
    np.testing.assert_array_equal(found.isolated_s, [1, 0, 0])
    np.testing.assert_array_equal(found.deadline_s, [np.inf, np.inf, 1000])
    np.testing.assert_array_equal(found.entity, [0, 1, 0])
    np.testing.assert_array_equal(found.entity_weight, [1, 3])
    assert found.entity_policy == ("fifo", "fairness")
    assert found.sharing is not None
    np.testing.assert_array_equal(found.sharing.job_class, [0, 0, 1])  # alike: one class
    np.testing.assert_array_equal(found.sharing.rate[0, 0], [0.5, 3])
    assert not found.sharing.rate[0, 1].any()


def test_what_may_be_left_out() -> None:
    least = {key: WHOLE[key] for key in ("num_workers", "costs", "throughputs", "jobs")}
    found = parse_problem(least)
    assert found.worker_types == ("type0", "type1")
    assert found.deadline_s is found.isolated_s is found.sharing is found.entity is None
    named = {**least, "num_workers": {"v100": 1, "t4": 2}, "costs": {"t4": 0.35, "v100": 2.5}}
    assert parse_problem(named).worker_types == ("t4", "v100")
    np.testing.assert_array_equal(parse_problem(named).workers, [2, 1])
    three = {**least, "num_workers": [1, 1, 1], "costs": [1, 1, 1], "throughputs": [[1, 1, 1]] * 3}
    assert parse_problem(three).worker_types == ("k80", "p100", "v100")


def test_jobs_that_differ_in_a_pair_are_classes_of_their_own() -> None:
    uneven = {**WHOLE, "pairs": [{"i": 1, "j": 0, "throughputs": [[0.5, 0.6], [3, 3]]}]}
    sharing = parse_problem(uneven).sharing
    assert sharing is not None
    np.testing.assert_array_equal(sharing.job_class, [0, 1, 2])
    np.testing.assert_array_equal(sharing.rate[1, 0], [0.5, 3])
    np.testing.assert_array_equal(sharing.rate[0, 1], [0.6, 3])


@given(seed=st.integers(0, 10**6))
def test_grouping_keeps_every_rate_of_every_pair(seed: int) -> None:
    problem = cluster_problem(seed, sharing=True)
    assert problem.sharing is not None
    rng, n, m = np.random.default_rng(seed), len(problem), len(problem.workers)
    c = problem.sharing.job_class
    listed = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < (0.5 if seed % 2 else 1.0)]
    rate = problem.sharing.rate
    both = {(i, j): np.stack([rate[c[i], c[j]], rate[c[j], c[i]]], axis=1) for i, j in listed}
    pairs = [{"i": i, "j": j, "throughputs": rates.tolist()} for (i, j), rates in both.items()]
    found = parse_problem({**written(problem), "pairs": pairs}).sharing
    assert found is not None
    for i in range(n):
        for j in range(n):
            if i != j:
                known = (min(i, j), max(i, j)) in listed
                wanted = problem.sharing.rate[c[i], c[j]] if known else np.zeros(m)
                np.testing.assert_array_equal(found.rate[found.job_class[i], found.job_class[j]], wanted)


def written(problem: ClusterProblem) -> dict[str, Any]:
    columns = {
        "scale_factor": problem.gpus,
        "weight": problem.weight,
        "num_steps_remaining": problem.steps_left,
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return {
        "worker_type_order": list(problem.worker_types),
        "num_workers": problem.workers.tolist(),
        "costs": problem.usd_per_hour.tolist(),
        "jobs": [dict(zip(columns, row, strict=True)) for row in rows],
        "throughputs": problem.throughput.tolist(),
    }


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num_workers", None, "num_workers is missing"),
        ("num_workers", [2], "num_workers: a list of 2 numbers, one per worker type, was expected"),
        ("num_workers", [2, -1], "num_workers[1]: a number ≥ 0 was expected, not -1"),
        ("num_workers", [0, 0], "num_workers: no worker at all"),
        ("num_workers", {"t4": 1}, "num_workers: a number for each of t4, v100 was expected"),
        ("costs", [1, "2"], "costs[1]: a number > 0 was expected, not '2'"),
        ("costs", [1, True], "costs[1]"),
        ("costs", [1, 10**400], "costs[1]"),
        ("worker_type_order", ["a", "a"], "worker_type_order: a name stands twice"),
        ("jobs", [], "jobs: a list of one or more objects"),
        ("jobs", [1, 2, 3], "jobs[0]: an object"),
        ("jobs", [{"num_steps_remaining": 1}] * 2 + [{}], "jobs[2].num_steps_remaining is missing"),
        ("jobs", [{"num_steps_remaining": 0}] * 3, "jobs[0].num_steps_remaining: a number > 0"),
        ("jobs", [{"num_steps_remaining": 1, "scale_factor": 1.5}] * 3, "jobs[0].scale_factor: a whole"),
        ("jobs", [{"num_steps_remaining": 1, "weight": None}] * 3, "jobs[0].weight: a number > 0"),
        ("throughputs", [[1, 4]], "throughputs: a list of 3 rows"),
        ("throughputs", [[1, 4], [1], [1, 1]], "throughputs[1]: a list of 2 numbers"),
        ("throughputs", [[1, float("nan")], [1, 1], [1, 1]], "throughputs[0][1]: a number ≥ 0"),
        ("pairs", [{"i": 0, "j": 3, "throughputs": []}], "pairs[0].j: the index of a job, 0 … 2,"),
        ("pairs", [{"i": 0, "j": 0, "throughputs": []}], "pairs[0]: jobs 0 and 0"),
        ("pairs", [{"i": 0, "j": 1, "throughputs": [[1, 1]]}], "pairs[0].throughputs: a list of 2 pairs"),
        ("SLOs_s", {"x": 5}, "SLOs_s: the index of a job"),
        ("SLOs_s", {"9" * 5000: 5}, "SLOs_s: the index of a job"),
        ("SLOs_s", {"0": 0}, "SLOs_s[0]: a number > 0"),
        ("SLOs_s", [1], "SLOs_s: a list of 3 numbers"),
        ("cumulative_isolated_time", [1, 2], "cumulative_isolated_time: a list of 3 numbers"),
        ("entities", {"a": [0, 1], "b": [1, 2]}, "entities.b: job 1 stands in two entities"),
        ("entities", {"a": [0, 1], "b": []}, "entities: job 2 is in none"),
        ("entity_weights", {"c": 1}, "entity_weights: an object with keys among a, b"),
        ("per_entity_policy", {"a": "lifo"}, "per_entity_policy.a: fairness or fifo was expected"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_one_line_with_its_place(key: str, value: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_problem({**WHOLE, key: value}, where="f.json")
    assert error.value.message.startswith(f"f.json: {said}")
    assert "\n" not in error.value.message
    assert error.value.hint


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.just([[1]]), st.just({"0": "x"}), st.just({"a": [None]}), st.just([{"i": []}]),
)  # fmt: skip


@settings(max_examples=300)
@given(data=st.data(), junk=JUNK)
def test_no_junk_anywhere_is_worse_than_a_usage_error(data: st.DataObject, junk: Any) -> None:
    document: Any = copy.deepcopy(WHOLE)
    holder = document
    for _ in range(data.draw(st.integers(1, 4))):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(holder[key], (dict, list)) or data.draw(st.booleans()):
            break
        holder = holder[key]
    else:
        key = next(iter(holder)) if isinstance(holder, dict) else 0
    if holder:
        holder[key] = junk
    try:
        parse_problem(document)
    except UsageError:
        return
    json.dumps(document)  # what was taken is plain JSON data


def test_a_file_of_several() -> None:
    file = {"worker_type_order": ["t4", "v100"], "instances": [{**WHOLE, "id": "a"}, {**WHOLE, "id": "b"}]}
    assert instance(file, "b")["id"] == "b"
    bare = {"worker_type_order": ["t4", "v100"], "instances": [{"id": "c"}]}
    assert instance(bare) == {"worker_type_order": ["t4", "v100"], "id": "c"}
    assert instance(WHOLE) is WHOLE
    for document, name in ((file, None), (file, "z"), (WHOLE, "z"), ([], None), ({"instances": [1]}, None)):
        with pytest.raises(UsageError):
            instance(document, name)
    with pytest.raises(UsageError) as error:
        instance(file)
    assert error.value.hint == "--instance with one of: a, b"


def test_the_answer_is_a_document() -> None:
    problem = parse_problem({**WHOLE, "num_workers": [1, 1], "jobs": [{"num_steps_remaining": 1}] * 3})
    found = policy("gandiva").solve()(problem, np.random.default_rng(0))
    document = answer(problem, "gandiva", found, 0.5)
    json.dumps(document, allow_nan=False)
    assert document["policy"] == "gandiva"
    assert document["seconds"] == 0.5
    assert document["objective"] is None
    rows = document["allocation_rows"]
    assert [row[0] for row in rows[:3]] == [[0], [1], [2]]
    assert len(rows) > 3
    np.testing.assert_allclose(document["throughputs"], job_rates(problem, found))


@pytest.mark.parametrize("size", [1e16, 1e300, 1e308, 1e-300])
@pytest.mark.parametrize("key", ["num_steps_remaining", "time_since_start", "weight"])
def test_numbers_that_no_solver_can_add_up_are_refused(key: str, size: float) -> None:
    document = {
        "num_workers": [1],
        "costs": [1.0],
        "worker_type_order": ["v100"],
        "jobs": [
            {
                "job_type": "a",
                "scale_factor": 1,
                "weight": 1,
                "num_steps_remaining": 10,
                "time_since_start": 0,
                key: size,
            }
        ],
        "throughputs": [[1.0]],
    }
    with pytest.raises(UsageError, match="of a size between"):
        parse_problem(document)
