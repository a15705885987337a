"""One name for every GPU, however people write it."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.offers import QUICK

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100", "A100"),
        ("a100", "A100"),
        ("A100-40GB", "A100"),
        ("nvidia-tesla-a100", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("a100_80gb", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIE"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("nvidia-h100-mega-80gb", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("nvidia-h200-141gb", "H200"),
        ("RTX PRO 6000", "RTXPRO6000"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("tpu v5e", "TPUv5e"),
        ("trn1", "Trainium"),
    ],
)
def test_names_as_people_and_clouds_write_them(written: str, name: str) -> None:
    assert gpus.resolve(written) == name


def test_no_two_gpus_share_a_name() -> None:
    names = [gpus._key(name) for spec in gpus.SPECS for name in (spec.name, *spec.aliases)]
    owners: dict[str, set[str]] = {}
    for spec in gpus.SPECS:
        for name in (spec.name, *spec.aliases):
            owners.setdefault(gpus._key(name), set()).add(spec.name)
    assert all(len(found) == 1 for found in owners.values())
    assert len(owners) > 100
    assert all(names)


@QUICK
@given(st.sampled_from(gpus.SPECS), st.data())
def test_case_and_punctuation_do_not_matter(spec: gpus.GpuSpec, data: st.DataObject) -> None:
    written = "".join(
        data.draw(st.sampled_from([c.lower(), c.upper()])) + data.draw(st.sampled_from(["", "-", " ", "_"]))
        for c in spec.name
    )
    assert gpus.find(written) == spec.name


def test_variants_serve_their_base_and_have_at_least_its_memory() -> None:
    for spec in gpus.SPECS:
        if spec.variant_of is not None:
            base = gpus.BY_NAME[spec.variant_of]
            assert base.variant_of is None
            assert spec.name in gpus.serving(base.name)
            assert (spec.mem_gib or 0) >= (base.mem_gib or 0)
    assert gpus.serving("A100") == ("A100",)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        gpus.resolve("H1000")
    assert caught.value.exit_code == 2
    assert "H100" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        gpus.resolve("%%%")
    assert "arylcloud prices" in (caught.value.hint or "")


@QUICK
@given(st.text(max_size=30))
def test_any_text_is_a_gpu_or_a_usage_error(text: str) -> None:
    try:
        name, count = gpus.parse_request(text)
    except UsageError:
        return
    assert name in gpus.BY_NAME
    assert count is None or count >= 1


@pytest.mark.skipif("ARYLCLOUD_STUDY_DATA" not in os.environ, reason="no study data here")
def test_figures_are_those_of_the_sources() -> None:
    path = Path(os.environ["ARYLCLOUD_STUDY_DATA"]) / "profiles" / "gpus.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 44
    for row in rows:
        spec = gpus.BY_NAME[row["gpu_name"]]
        for column, value in {
            "mem_gib": spec.mem_gib,
            "mem_bw_gbps": spec.mem_bw_gbps,
            "fp32_tflops": spec.fp32_tflops,
            "tf32_tflops_dense": spec.tf32_tflops,
            "fp16_bf16_tflops_dense": spec.fp16_bf16_tflops,
            "fp8_tflops_dense": spec.fp8_tflops,
            "nvlink_gbps": spec.nvlink_gbps,
        }.items():
            assert value == (float(row[column]) if row[column] else None), (spec.name, column)
        assert (spec.vendor, spec.arch, spec.year) == (row["vendor"], row["arch"], int(row["year"]))
        assert spec.bf16_supported == (row["bf16_supported"] == "yes")
        for alias in filter(None, row["aliases"].replace(";", ",").split(",")):
            assert gpus.find(alias) == spec.name
