"""Low-rank completion: against numpy, against the power law, and on models left out."""

from __future__ import annotations

import importlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core import gpus
from arylcloud.core.errors import IntegrityError
from arylcloud.planner import completion, model_left_out
from arylcloud.planner.completion import Factors, Given, Known, Node, banded, bundled, class_of, node_of
from arylcloud.planner.factors import Sample, all_nodes, fit, prior_cov, prior_mean
from arylcloud.planner.profile_files import unpack
from arylcloud.planner.profiles import library

ROOT = Path(__file__).resolve().parents[2]
STUDY = os.environ.get("ARYLCLOUD_STUDY_DATA")
PRIOR = fit([])
NODES = all_nodes()
nodes = st.sampled_from(NODES)


def given_rates(rates: dict[Node, float], factors: Factors = PRIOR, variance: float = 0.0) -> Given:
    return Given(factors, [Known(n, math.log(r), variance, "same") for n, r in rates.items()])


@settings(max_examples=40)
@given(nodes, nodes)
def test_without_a_library_one_gpu_gives_the_power_law(known: Node, target: Node) -> None:
    found = given_rates({known: 100.0}).complete(target)
    assert found is not None
    (a, b), (c, d) = (_figures(target), _figures(known))
    law = 0.36 * math.log(a / c) + 0.50 * math.log(b / d)
    assert found.centre - math.log(100.0) == pytest.approx(law, abs=1e-6)


def _figures(node: Node) -> tuple[float, float]:
    from arylcloud.planner.flops import peak_tflops

    spec = gpus.BY_NAME[node[0]]
    peak = peak_tflops(spec, node[1])
    assert peak
    assert spec.mem_bw_gbps
    return peak, spec.mem_bw_gbps


@settings(max_examples=25)
@given(st.lists(nodes, min_size=3, max_size=7, unique=True), st.integers(0, 2**32 - 1))
def test_it_is_the_conditional_mean_with_a_free_scale(chosen: list[Node], seed: int) -> None:
    """Against the textbook's formula: a prior of variance 10^6 on the scale, solved by numpy."""
    *known, target = chosen
    rng = np.random.default_rng(seed)
    values = rng.normal(size=len(known))
    factors = bundled()
    at = [factors.index[n] for n in (*known, target)]
    mean = np.array([factors.mean[i] for i in at])
    cov = np.array([[factors.cov[i][j] for j in at] for i in at]) + 1e6
    inside = cov[:-1, :-1] + 1e-6 * np.eye(len(known))
    weights = np.linalg.solve(inside, cov[:-1, -1])
    expected = mean[-1] + weights @ (values - mean[:-1])
    variance = cov[-1, -1] - weights @ cov[:-1, -1]
    found = Given(factors, [Known(n, v, 0.0, "") for n, v in zip(known, values, strict=True)]).complete(
        target
    )
    assert found is not None
    assert found.centre == pytest.approx(expected, abs=2e-3)
    assert found.spread**2 == pytest.approx(variance, rel=0.02, abs=2e-3)


@settings(max_examples=25)
@given(st.lists(nodes, min_size=2, max_size=6, unique=True), st.floats(1e-3, 1e3))
def test_a_faster_job_is_faster_everywhere_by_as_much(chosen: list[Node], factor: float) -> None:
    *known, target = chosen
    base = given_rates(dict.fromkeys(known, 7.0), bundled()).complete(target)
    more = given_rates(dict.fromkeys(known, 7.0 * factor), bundled()).complete(target)
    assert base is not None
    assert more is not None
    assert more.centre - base.centre == pytest.approx(math.log(factor), abs=1e-9)
    assert more.spread == base.spread


@settings(max_examples=25)
@given(st.lists(nodes, min_size=3, max_size=6, unique=True))
def test_one_more_gpu_never_widens_and_noise_never_narrows(chosen: list[Node]) -> None:
    *known, target = chosen
    all_, fewer = dict.fromkeys(known, 5.0), dict.fromkeys(known[:-1], 5.0)
    wide, narrow = (given_rates(r, bundled()).complete(target) for r in (fewer, all_))
    noisy = given_rates(all_, bundled(), variance=0.3).complete(target)
    assert wide is not None
    assert narrow is not None
    assert noisy is not None
    assert narrow.spread <= wide.spread + 1e-6
    assert noisy.spread >= narrow.spread - 1e-9


def test_the_fit_finds_a_gpu_that_the_law_misjudges() -> None:
    """Twenty workloads on which an L4 does twice what its figures promise: the next one does, too."""
    law = dict(zip(NODES, prior_mean(NODES), strict=True))
    used = [("A100", "16bit"), ("V100", "16bit"), ("L4", "16bit"), ("T4", "16bit")]
    rng = np.random.default_rng(3)
    samples = []
    for i in range(20):
        rates = {
            n: float(law[n] + rng.normal(scale=0.05) + (math.log(2) if n[0] == "L4" else 0)) for n in used
        }
        samples.append(Sample(f"m{i}", f"m{i}", rates))
    factors = fit(samples)
    found = given_rates({("A100", "16bit"): 1.0}, factors).complete(("L4", "16bit"))
    plain = given_rates({("A100", "16bit"): 1.0}).complete(("L4", "16bit"))
    assert found is not None
    assert plain is not None
    assert math.exp(found.centre - plain.centre) == pytest.approx(2.0, rel=0.15)
    assert found.spread < plain.spread


def test_prior_covariance_is_one() -> None:
    values = np.linalg.eigvalsh(prior_cov(NODES, NODES))
    assert values.min() > 0


def test_the_bundled_factors() -> None:
    factors = bundled()
    assert len(factors.nodes) == len(NODES) > 100
    matrix = np.array(factors.cov)
    assert np.allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-3
    for name in (f"{c}/{n}" for c in completion.CLASSES for n in (1, 2)):
        low, high = factors.bands[name]
        assert low < 0 < high
    again = Factors.of(factors.document())
    assert again.cov == factors.cov
    assert again.bands == factors.bands


def test_damaged_factors_are_never_read() -> None:
    path = Path(completion.__file__).parent / "data" / completion.FILE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with pytest.raises(IntegrityError, match="digest"):
        unpack(bytes(data), what="it")


def test_classes() -> None:
    a, k = ("A100", "16bit"), ("K80", "fp32")
    one = [Known(a, 0.0, 0.0, "16bit")]
    assert class_of(one, ("H100", "16bit")) == "same_code/1"
    assert class_of(one, k) == "old/1"
    assert class_of([*one, Known(("V100", "16bit"), 0.0, 0.0, "submission")], a) == "submission/2"
    assert node_of("RTX6000-Ada", "16bit") is None
    assert node_of("A100", "fp8") == ("A100", "16bit")


def test_the_point_lies_below_the_median_inside_its_band() -> None:
    found = given_rates({("A100", "16bit"): 10.0}, bundled()).complete(("H100", "16bit"))
    assert found is not None
    point, down, up = banded(bundled(), found)
    assert found.centre - 0.2 < point < found.centre
    assert down > 0
    assert point + up > found.centre


# ---------------------------------------------------------------- how wrong it is


def test_left_out_models_of_the_library_on_mlperf() -> None:
    """Each family left out of the fit and of its band; shipped rows alone."""
    samples = [s for s in model_left_out.library_samples(library()) if s.kind == "submission"]
    held = model_left_out.held_out(samples, samples)
    for many, median, p95 in ((False, 0.16, 0.75), (True, 0.10, 0.50)):
        part = [h for h in held if (len(h.known) > 1) is many]
        found = model_left_out.score_held(part, held)
        assert found is not None
        assert found.figures > 100
        assert found.median < median
        assert found.p95 < p95
        assert 0.85 <= found.covered <= 0.95
        assert found.width < 3.0


def test_a_left_out_family_has_no_part_in_its_own_band() -> None:
    samples = model_left_out.library_samples(library())
    columns = [s for s in samples if s.origin == "gavel" and "fp32 ×1" in s.name]
    held = model_left_out.held_out(columns, columns)
    families = sorted({h.family for h in held})
    assert "recommendation" in families
    whole, without = model_left_out.bands(held), model_left_out.bands(held, without="recommendation")
    assert whole["old/2"] != without["old/2"]
    changed = [h if h.family != "recommendation" else h._replace(truth=h.truth + 5) for h in held]
    assert model_left_out.bands(changed, without="recommendation") == without


@pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
def test_no_column_is_worse_than_the_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    table = importlib.import_module("estimator_table")
    data = Path(str(STUDY))
    rows = table.read(data)
    lines = [
        table.exact_line(rows),
        *table.completion_lines(data, rows, more=False),
        *table.flop_lines(data, library()),
    ]
    for line in lines:
        assert line.holds is not False, line
        if line.spec is not None:
            assert 0.85 <= line.covered <= 0.95, line
    assert sum(line.spec is not None for line in lines) == 10


@pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
def test_the_factors_are_what_the_data_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    built = importlib.import_module("build_factors").build(Path(str(STUDY)))
    assert built.nodes == bundled().nodes
    assert np.allclose(built.cov, bundled().cov, atol=2e-4)
    assert all(np.allclose(built.bands[k], bundled().bands[k], atol=2e-3) for k in bundled().bands)
