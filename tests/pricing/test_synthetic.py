"""The catalogue that benchmarks measure with is a catalogue: distinct keys, spot below on-demand."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from arylcloud.pricing.codes import key_codes
from arylcloud.pricing.doctor import examine


def test_synthetic_offers_are_plannable_distinct_and_reproducible() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "synthetic_catalogue.py"
    spec = importlib.util.spec_from_file_location("synthetic_catalogue", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = module.synthetic_catalogue(9_000, 1)
    assert len(table) == len(np.unique(key_codes(table))) == 9_000
    assert table.plannable.all()
    assert "spot_above_on_demand" not in {f.code for f in examine(table)}
    assert table.digest == module.synthetic_catalogue(9_000, 1).digest
    assert table.digest != module.synthetic_catalogue(9_000, 2).digest
