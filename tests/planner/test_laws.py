"""Every policy of the registry against every law that it declares; and every law against wrong policies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.choice_laws import CHOICE_CHECKS, a_problem
from support.clusters import for_policy
from support.laws import CHECKS
from support.mutants import CHOICE_MUTANTS, MUTANTS

from arylcloud.core.errors import UsageError
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import POLICIES, Policy, policy

NAMES = sorted(POLICIES)
SHARES = [name for name in NAMES if POLICIES[name].kind == "shares"]
CHOICES = [name for name in NAMES if POLICIES[name].kind == "choices"]
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=12)


def declared(names: list[str]) -> list[tuple[str, Law]]:
    return [(name, law) for name in names for law in sorted(POLICIES[name].laws)]


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_declares_laws_or_says_why_not(name: str) -> None:
    entry = POLICIES[name]
    assert bool(entry.laws) is not bool(entry.lawless)
    assert entry.laws <= (CHECKS.keys() if entry.kind == "shares" else CHOICE_CHECKS.keys())
    assert entry.sense != "none" or Law.MORE_NEVER_HURTS not in entry.laws
    assert entry.deadlines or Law.TIGHTER_NEVER_HELPS not in entry.laws


@pytest.mark.parametrize(("name", "law"), declared(SHARES))
@few
@given(seed=SEEDS)
def test_law_of_shares(name: str, law: Law, seed: int) -> None:
    CHECKS[law](POLICIES[name], POLICIES[name].solve(), seed)


@pytest.mark.parametrize(("name", "law"), declared(CHOICES))
@few
@given(seed=SEEDS)
def test_law_of_choices(name: str, law: Law, seed: int) -> None:
    CHOICE_CHECKS[law](POLICIES[name], POLICIES[name].choose(), seed)


def caught(check: Callable[[int], None]) -> bool:
    for seed in range(40):
        try:
            check(seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("law", Law)
def test_each_law_catches_policies_that_break_it(law: Law) -> None:
    for name, wrong in MUTANTS[law]:
        assert law in POLICIES[name].laws
        assert caught(lambda seed, p=POLICIES[name], w=wrong: CHECKS[law](p, w, seed)), wrong
    for name, chooses in CHOICE_MUTANTS.get(law, ()):
        assert law in POLICIES[name].laws
        assert caught(lambda seed, p=POLICIES[name], w=chooses: CHOICE_CHECKS[law](p, w, seed)), chooses
    assert (law in CHOICE_CHECKS) is (law in CHOICE_MUTANTS)


@pytest.mark.parametrize("name", SHARES)
def test_same_inputs_and_seed_same_shares(name: str) -> None:
    solve = POLICIES[name].solve()
    for seed in range(8):
        problem = for_policy(POLICIES[name], seed)
        a, b = (solve(problem, np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(a.shares, b.shares)
        np.testing.assert_array_equal(a.pairs, b.pairs)
        assert a.objective == b.objective


@pytest.mark.parametrize("name", CHOICES)
def test_same_inputs_and_seed_same_choice(name: str) -> None:
    choose = POLICIES[name].choose()
    for seed in range(8):
        problem = a_problem(seed)
        a, b = (choose(problem, np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(a.config, b.config)


def test_an_unknown_name_lists_all() -> None:
    with pytest.raises(UsageError) as error:
        policy("fifa")
    assert all(name in str(error.value.hint) for name in POLICIES)


def test_names_are_told_once() -> None:
    assert all(isinstance(entry, Policy) and entry.name == name for name, entry in POLICIES.items())
