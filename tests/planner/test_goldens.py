"""Every golden of Gavel's policies: feasible within 1e-6, the objective within 1e-6 of the exact optimum.

The objective is computed here from the allocation by the paper's formula; what the policy says of itself is
compared with that, and never used instead of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import goldens
from support.goldens import FORMULAS

from arylcloud.planner.cluster import Allocation, ClusterProblem, job_rates, violation
from arylcloud.planner.policies.registry import policy
from arylcloud.planner.policies.strategy_proof import Discounts

pytestmark = pytest.mark.skipif(goldens.FOLDER is None, reason=goldens.ABSENT)

CLOSED = ("isolated", "proportional", "fifo_perf")
FAIR = ("finish_time_fairness", "finish_time_fairness_perf")
FILLING = "max_min_fairness_water_filling_perf"
PROOF = "max_min_fairness_strategy_proof_perf"
TREES = ("water_filling_perf_hierarchical_fairness", "water_filling_perf_hierarchical_mixed")
SLOS = "max_sum_throughput_normalized_by_cost_perf_SLOs"
WITHIN = 1e-6
Case = tuple[str, dict[str, Any], ClusterProblem]


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    """By the name of the output: (id of the instance, the golden, the problem that it answers)."""
    found: dict[str, list[Case]] = {}
    for one in goldens.instances():
        for name, output in one["outputs"].items():
            found.setdefault(name, []).append((one["id"], output, goldens.problem(one, output)))
    return found


def solve(name: str, problem: ClusterProblem) -> Allocation:
    found = policy(name).solve()(problem, np.random.default_rng(0))
    assert violation(problem, found) <= WITHIN
    return found


def test_no_golden_is_left_out(cases: dict[str, list[Case]]) -> None:
    handled = {*FORMULAS, *CLOSED, *TREES, FILLING, PROOF, "allox", f"{SLOS}__infeasible"}
    handled |= {f"{name}__call2" for name in FAIR}
    assert handled == set(cases)
    counts = {"fifo_perf": 21, "allox": 10, FILLING: 14, PROOF: 7, "max_min_fairness_packed": 9}
    assert {name: len(cases[name]) for name in counts} == counts


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_to_the_last_digit(cases: dict[str, list[Case]], name: str) -> None:
    for where, golden, problem in cases[name]:
        found = policy(name).solve()(problem, np.random.default_rng(0))
        np.testing.assert_allclose(found.shares, golden["allocation"], rtol=0, atol=1e-9, err_msg=where)


@pytest.mark.parametrize("name", [*FORMULAS, *(f"{name}__call2" for name in FAIR)])
def test_optimal_by_the_papers_formula(cases: dict[str, list[Case]], name: str) -> None:
    base = name.removesuffix("__call2")
    for where, golden, problem in cases[name]:
        found = solve(base, problem)
        value = FORMULAS[base](problem, found)
        assert value == pytest.approx(golden["exact_objective"], rel=WITHIN), where
        assert found.objective == pytest.approx(value, rel=WITHIN), where
        assert not found.fallback
        if base.startswith("min_total_duration"):
            assert value <= golden["gavel_objective"] * (1 + 1e-9), where
        if problem.deadline_s is not None:
            pace = problem.steps_left / problem.deadline_s
            assert (job_rates(problem, found) >= pace * (1 - WITHIN)).all(), where


@pytest.mark.parametrize("name", FAIR)
def test_finish_time_fairness_remembers_by_itself(cases: dict[str, list[Case]], name: str) -> None:
    """The second call with the first one's memory instead of the document's C_i."""
    for (where, _, before), (_, golden, after) in zip(cases[name], cases[f"{name}__call2"], strict=True):
        first = solve(name, replace(before, isolated_s=None))
        second = replace(after, isolated_s=None, memory=first.memory)
        value = FORMULAS[name](after, solve(name, second))
        assert value == pytest.approx(golden["exact_objective"], rel=WITHIN), where


def test_deadlines_that_cannot_be_kept_are_dropped_and_said_so(cases: dict[str, list[Case]]) -> None:
    for where, golden, problem in cases[f"{SLOS}__infeasible"]:
        found = solve(SLOS, problem)
        assert found.fallback is golden["fallback"] is True, where
        value = FORMULAS[SLOS](problem, found)
        assert value == pytest.approx(golden["exact_objective"], rel=WITHIN), where
        assert found.objective == pytest.approx(value, rel=WITHIN), where


def test_allox_finds_the_cheapest_assignment(cases: dict[str, list[Case]]) -> None:
    for where, golden, problem in cases["allox"]:
        found = solve("allox", problem)
        assert found.objective == pytest.approx(golden["assignment_cost_optimum"], rel=1e-9), where
        assert set(np.unique(found.shares)) <= {0.0, 1.0}
        assert found.shares.sum() == golden["n_running"], where


def test_water_filling_is_the_largest_vector(cases: dict[str, list[Case]]) -> None:
    for where, golden, problem in cases[FILLING]:
        found = solve(FILLING, problem)
        vector = goldens.sorted_rates(problem, found)
        np.testing.assert_allclose(vector, golden["exact_sorted"], rtol=WITHIN, err_msg=where)
        assert isinstance(found.objective, tuple)
        np.testing.assert_allclose(found.objective, vector, rtol=WITHIN, err_msg=where)


@pytest.mark.parametrize("name", TREES)
def test_hierarchical_water_filling_has_gavels_rates(cases: dict[str, list[Case]], name: str) -> None:
    """No independent optimum is known, but the levels are unique: they are Gavel's own."""
    for where, golden, problem in cases[name]:
        assert problem.entity is not None
        rates = job_rates(problem, solve(FILLING, problem))
        levels = rates / (problem.throughput @ problem.workers / problem.workers.sum())
        wanted = golden["normalized_effective_throughputs"]
        np.testing.assert_allclose(levels, wanted, rtol=WITHIN, atol=WITHIN, err_msg=where)


def test_strategy_proof_has_gavels_product_and_discounts(cases: dict[str, list[Case]]) -> None:
    """The product's optimum is unique in the rates: Gavel's own, to the accuracy of ECOS on logarithms."""
    for where, golden, problem in cases[PROOF]:
        found = solve(PROOF, problem)
        assert isinstance(found.memory, Discounts)
        kept = found.memory.kept
        assert (kept > 0).all()
        assert (kept <= 1).all()
        np.testing.assert_allclose(kept, golden["discount_factors"], rtol=2e-5, err_msg=where)
        before = job_rates(problem, found) / kept
        mix = problem.throughput @ problem.workers / problem.workers.sum()
        mean = float(np.exp(np.log(problem.gpus / (problem.weight * mix) * before).mean()))
        assert mean == pytest.approx(golden["gavel_objective"], rel=WITHIN), where
        assert found.objective == pytest.approx(mean, rel=WITHIN), where
