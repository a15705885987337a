"""The bundled library: whole, sourced, and row by row what the study data says; a user's own files."""

from __future__ import annotations

import csv
import doctest
import gzip
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arylcloud.core import gpus
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.units import RATE_UNITS
from arylcloud.planner import profile_files
from arylcloud.planner.profiles import Library, key, library

ROOT = Path(__file__).resolve().parents[2]
STUDY = os.environ.get("ARYLCLOUD_STUDY_DATA")
needs_study = pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
SHIPPABLE = (
    "stanford-futuredata/gavel@",
    "NVIDIA/DeepLearningExamples@",
    "mosaicml/llm-foundry@",
    "pytorch/torchtitan@",
    "mlcommons/training_results_v",
    "NVIDIA-NeMo/Megatron-Bridge@",
    "huggingface/pytorch-image-models@",
    "AI-Hypercomputer/maxtext@",
    "AI-Hypercomputer/tpu-recipes@",
)


@pytest.fixture(scope="module")
def lib() -> Library:
    return library()


def bundled() -> Path:
    return Path(profile_files.__file__).parent / "data" / profile_files.BUNDLED


def test_every_row_is_usable_and_may_be_shipped(lib: Library) -> None:
    rows = 0
    for entry in lib.entries:
        profile = lib.get(entry.name)
        assert profile.unit in RATE_UNITS
        assert len(profile.measurements) == entry.measurements
        assert profile.gpus == entry.gpus
        for m in profile.measurements:
            rows += 1
            assert gpus.BY_NAME[m.gpu].name == m.gpu
            assert m.rate > 0
            assert m.gpus >= 1
            assert m.nodes is None or 1 <= m.nodes <= m.gpus
            assert m.kind == "published"
            assert m.source.startswith(SHIPPABLE)
            assert m.as_of is not None
            assert m.as_of[:4].isdigit()
            assert m.precision in ("fp32", "tf32", "16bit", "fp8", "fp4", "submission")
    assert rows > 3000
    assert bundled().stat().st_size < 150_000


def test_gavels_26_jobs_on_three_gpus(lib: Library) -> None:
    jobs = [e for e in lib.entries if e.name.startswith("gavel-") and e.unit == "steps/s"]
    assert len(jobs) == 26
    assert all(e.gpus == ("K80", "P100", "V100") for e in jobs)


@needs_study
def test_the_file_is_what_the_study_data_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    build = importlib.import_module("build_profiles").build
    assert build(Path(str(STUDY)))[0] == bundled().read_bytes()


@needs_study
def test_rows_equal_the_study_rows(lib: Library) -> None:
    """Independently of the builder: llm-foundry and torchtitan as they stand, Gavel's steps per second."""
    path = Path(str(STUDY)) / "profiles" / "profiles.csv.gz"
    expected: dict[str, list[tuple[object, ...]]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["source"].startswith(("mosaicml/llm-foundry", "pytorch/torchtitan")):
                continue
            if row["quality"] != "ok":
                continue
            where = (row["gpu_name"], int(row["num_gpus"]), int(float(row["seq_len"])))
            figure = (float(row["throughput_total"]), row["source"], row["source_date"])
            expected.setdefault(row["model"], []).append((*where, *figure))
    assert len(expected) == 12
    for model, rows in expected.items():
        ours = [
            (m.gpu, m.gpus, m.seq_len, m.rate, m.source, m.as_of)
            for m in lib.get(model).measurements
            if m.source.startswith(("mosaicml/llm-foundry", "pytorch/torchtitan"))
        ]
        assert sorted(ours) == sorted(rows), model
    path = Path(str(STUDY)) / "gavel" / "isolated_throughputs_simulation.csv"
    checked = 0
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rate, count = float(row["steps_per_s"]), int(row["scale_factor"])
            nodes = 1 if row["consolidated"] == "1" else None
            if rate == 0 or (count == 1 and nodes is None):
                continue
            checked += 1
            ours_now = [
                m.rate
                for m in lib.get(row["job_type"]).measurements
                if (m.gpu.lower(), m.gpus, m.nodes) == (row["worker_type"], count, nodes)
            ]
            assert ours_now == [pytest.approx(rate, rel=1e-8)]
    assert checked > 400


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("resnet50", "resnet-50"),
        ("ResNet 50", "resnet-50"),
        ("MPT_125M", "mpt-125m"),
        ("gpt-7b", "mpt-7b"),
        ("llama-8b", "llama3.1-8b"),
        ("Llama 3 8B", "llama3.1-8b"),
        ("bert large", "bert-large"),
        ("ResNet-50 (batch size 64)", "gavel-resnet-50-bs64"),
        ("LM (batch size 20)", "gavel-lm-bs20"),
        ("A3C", "gavel-a3c"),
    ],
)
def test_names_match_without_case_and_punctuation(lib: Library, spelling: str, name: str) -> None:
    assert lib.resolve(spelling) == name
    assert lib.get(spelling) is lib.get(name)


def test_unknown_and_ambiguous_names_say_which_are_near(lib: Library) -> None:
    with pytest.raises(UsageError, match="no profile is called 'reznet-50'") as unknown:
        lib.get("reznet-50")
    assert "resnet-50" in str(unknown.value.hint)
    with pytest.raises(UsageError, match="bert-large, bert-large-squad"):
        lib.get("BERT")
    with pytest.raises(UsageError) as hopeless:
        lib.get("zzzzzzzz")
    assert "profile list" in str(hopeless.value.hint)


def test_canonical_names_read_differently(lib: Library) -> None:
    assert len({key(e.name) for e in lib.entries}) == len(lib.entries)


@pytest.mark.parametrize("at", [0, 30, 90, 200, -1])
def test_a_damaged_file_is_never_read(at: int) -> None:
    data = bytearray(bundled().read_bytes())
    data[at] ^= 1
    with pytest.raises(IntegrityError, match="digest"):
        profile_files.unpack(bytes(data), what="it")


@pytest.mark.parametrize(
    "name", ["profiles", "profile_files", "conditions", "scaling", "flops", "work_units", "memory"]
)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"arylcloud.planner.{name}")
    assert doctest.testmod(module).failed == 0


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from arylcloud.planner.estimator import estimate_configs;"
        "from arylcloud.planner.profiles import library; library().get('bert-large');"
        "print([m for m in ('numpy', 'pandas', 'yaml', 'rich', 'pydantic') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"


# ---------------------------------------------------------------- a user's own files

GOOD = """
name: my-gpt
unit: tokens/s
aliases: [the gpt]
shape: {params: 124e6, layers: 12, hidden: 768}
measurements:
  - {gpu: nvidia-a100, gpus: 8, rate: 941000, precision: bf16, batch: 256, seq_len: 1024}
  - {gpu: H100, gpus: 16, nodes: 2, rate: 3.1e6, source: measured here, as_of: 2026-09-30, kind: measured}
"""


def test_user_profiles_lie_over_the_bundled_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    (tmp_path / "more.json").write_text(
        '[{"name": "mpt-7b", "unit": "steps/s", "measurements": [{"gpu": "L4", "gpus": 1, "rate": 2}]}]'
    )
    (tmp_path / "notes.txt").write_text("not a profile")
    lib = library(tmp_path)
    mine = lib.get("The GPT")
    assert [m.gpu for m in mine.measurements] == ["A100", "H100"]
    assert mine.shape is not None
    assert mine.shape.params == 124e6
    assert [m.kind for m in mine.measurements] == ["user", "measured"]
    assert mine.measurements[0].source == str(tmp_path / "mine.yaml")
    assert lib.get("mpt-7b").unit == "steps/s"
    assert next(e for e in lib.entries if e.name == "mpt-7b").origin == str(tmp_path / "more.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("unit: tokens/s\n", ""), "profile my-gpt has no unit"),
        (("unit: tokens/s", "unit: parsecs/s"), "'parsecs/s' is no unit"),
        (("gpu: H100", "gpu: Z9"), "no GPU is known by the name 'Z9'"),
        (("rate: 941000", "rate: -1"), "rate: -1 is not a number > 0"),
        (("rate: 941000", "rate: .nan"), "rate: nan is not a number > 0"),
        (("gpus: 8, rate", "gpu_count: 8, rate"), "unknown key 'gpu_count'"),
        (("gpus: 8, rate", "gpus: 2.5, rate"), "gpus: 2.5 is not a whole number"),
        (("nodes: 2", "nodes: 3"), "16 GPUs cannot be spread evenly over 3 nodes"),
        (("precision: bf16", "precision: int3"), "'int3' is no precision"),
        (("name: my-gpt", "name: ''"), "a profile needs a name"),
        (("kind: measured", "kind: guessed"), "kind is one of"),
        (("hidden: 768", "width: 768"), "shape needs exactly"),
        (("measurements:", "measurements: ["), "is not valid YAML"),
    ],
)
def test_a_bad_user_file_is_one_clear_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in GOOD
    (tmp_path / "mine.yaml").write_text(GOOD.replace(*change))
    with pytest.raises(UsageError) as error:
        library(tmp_path)
    assert message in error.value.message
    assert "\n" not in error.value.message
