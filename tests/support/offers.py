"""Offers for tests: one with defaults, and a Hypothesis strategy for lists of any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from arylcloud.core.offer import Market, Offer

BASE = Offer(
    cloud="aws",
    region="us-east-1",
    zone=None,
    instance_type="p3.2xlarge",
    gpu="V100",
    gpu_count=1,
    gpu_mem_gib=16.0,
    vcpus=8.0,
    mem_gib=61.0,
    market=Market.ON_DEMAND,
    usd_per_hour=3.06,
    as_of="2026-07-20",
    source="test",
)


def offer(**changes: Any) -> Offer:
    return replace(BASE, **changes)


QUICK = settings(max_examples=40, deadline=None)
"""For laws over small tables: no deadline, machines are shared."""

_names = st.sampled_from(["a", "b", "c", "us-east-1", "Zürich", "é/ß"])
_shapes = st.sampled_from([None, 0.5, 16.0, 22.35])
_amounts = st.none() | st.floats(0.001, 1e6)
_dates = st.sampled_from([None, "2026-07-20", "1969-12-31", "2026-07-20T12:34:56Z"])

any_offer = st.builds(
    Offer,
    cloud=st.sampled_from(["aws", "gcp", "azure"]),
    region=_names,
    zone=st.none() | _names,
    instance_type=_names,
    gpu=st.none() | st.sampled_from(["V100", "A100", "own-gpu"]),
    gpu_count=st.none() | st.integers(1, 16),
    gpu_mem_gib=_shapes,
    vcpus=_shapes,
    mem_gib=_shapes,
    market=st.sampled_from(list(Market)),
    usd_per_hour=_amounts,
    as_of=_dates,
    source=_names,
)
offer_lists = st.lists(any_offer, max_size=8)
