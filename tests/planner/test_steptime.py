"""The step-time model: it finds what made the data, and a job measured in three placements uses it."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core.job import InlineRate, ProfileRef
from arylcloud.planner import steptime
from arylcloud.planner.estimator import Estimate, estimate_configs, estimate_profile
from arylcloud.planner.profiles import Measurement, Profile
from arylcloud.planner.steptime import Observation, StepTime, fit

TRUE = StepTime(0.08, 0.004, 0.05, 0.002, 0.15, 0.004, 1.6, 0.0)
PLACES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4))


def seen(
    model: StepTime, places: tuple[tuple[int, int], ...], batches: tuple[float, ...]
) -> list[Observation]:
    return [Observation(k, n, m, model.step_s(k, n, m)) for k, n in places for m in batches]


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(steptime).failed == 0


def test_it_finds_the_model_behind_the_data() -> None:
    found = fit(seen(TRUE, PLACES, (8, 32, 128)))
    assert found is not None
    assert found.residual < 0.02
    for k, n, m in ((6, 1, 16), (12, 3, 64), (64, 8, 32)):
        assert found.step_s(k, n, m) == pytest.approx(TRUE.step_s(k, n, m), rel=0.06)


@settings(max_examples=8)
@given(st.floats(0.2, 5), st.floats(0.01, 2), st.floats(1.1, 4), st.floats(1.0, 5.0))
def test_held_out_placements_of_other_models(scale: float, sync: float, remote: float, gamma: float) -> None:
    true = StepTime(0.1 * scale, 0.01 * scale, sync, sync / 50, sync * remote, sync / 40, gamma, 0.0)
    found = fit(seen(true, PLACES[::2] + PLACES[1:2], (4, 16, 64)))
    assert found is not None
    for k, n in PLACES:
        assert abs(math.log(found.step_s(k, n, 32) / true.step_s(k, n, 32))) < 0.35


def test_a_stalled_placement_does_not_bend_the_rest() -> None:
    data = seen(TRUE, PLACES, (8, 32, 128))
    data[3] = data[3]._replace(step_s=4 * data[3].step_s)
    found = fit(data)
    assert found is not None
    assert found.step_s(16, 2, 32) == pytest.approx(TRUE.step_s(16, 2, 32), rel=0.1)


def test_too_little_is_no_model() -> None:
    assert fit(seen(TRUE, ((1, 1), (2, 1)), (8,))) is None
    assert fit(seen(TRUE, ((4, 1),), (8, 16, 32))) is None


def test_rate_and_accumulation() -> None:
    assert TRUE.rate(4, 1, 8) == pytest.approx(32 / TRUE.step_s(4, 1, 8))
    more = TRUE.step_s(4, 1, 8, accumulated=3)
    assert more == pytest.approx(TRUE.step_s(4, 1, 8) + 3 * (0.08 + 0.004 * 8))
    assert TRUE.rate(4, 1, 8, accumulated=3) == pytest.approx(4 * 32 / more)


# ---------------------------------------------------------------- in the ladder


def rows(unit: str, model: StepTime, places: tuple[tuple[int, int], ...]) -> Profile:
    """A user's measurements: 32 samples per GPU, or a step of 256 samples over all."""

    def rate(k: int, n: int) -> float:
        return model.rate(k, n, 32) if unit == "samples/s" else 1 / model.step_s(k, n, 256 / k)

    return Profile(
        name="mine",
        title="",
        unit=unit,
        aliases=(),
        shape=None,
        measurements=tuple(
            Measurement(
                gpu="T4", gpus=k, nodes=n, rate=rate(k, n), precision="16bit", framework="",
                global_batch=None, batch_stated=True, seq_len=None, source="here", as_of=None,
                kind="measured",
            )
            for k, n in places
        ),
    )  # fmt: skip


@pytest.mark.parametrize("unit", ["samples/s", "steps/s"])
def test_three_placements_and_more_have_a_model(unit: str) -> None:
    places = ((1, 1), (2, 1), (4, 1), (8, 2), (16, 4))
    (found,) = estimate_profile(rows(unit, TRUE, places), [("T4", 4, 3)])
    assert isinstance(found, Estimate)
    truth = TRUE.rate(12, 3, 32) if unit == "samples/s" else 1 / TRUE.step_s(12, 3, 256 / 12)
    assert found.throughput == pytest.approx(truth, rel=0.15)
    assert found.low <= truth <= found.high
    assert found.rung == "scaled"
    assert "step-time model of 5 measured placements" in found.note
    (exact,) = estimate_profile(rows(unit, TRUE, places), [("T4", 4, 1)])
    assert isinstance(exact, Estimate)
    assert exact.rung == "exact"


def test_two_placements_scale_by_the_tables() -> None:
    ref = ProfileRef(
        rates=(InlineRate(gpu="T4", count=1, rate=1.0), InlineRate(gpu="T4", count=4, rate=3.5)),
        unit="samples/s",
    )
    (found,) = estimate_configs(ref, [("T4", 4, 2)])
    assert isinstance(found, Estimate)
    assert "scaled from 4 GPUs" in found.note
