"""``aryl: pipeline``: a job says that it trains by pipeline templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.cli.jobfile import Overrides, load_job
from arylcloud.core.codec import decode, dumps, parse
from arylcloud.core.errors import UsageError
from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import PipelineSpec


def read(folder: Path, text: str, nodes: str = "4..8", flag: str | None = None) -> JobSpec:
    path = folder / "job.yaml"
    path.write_text(f"run: python train.py\naryl:\n  nodes: {nodes}\n  pipeline: {text}\n")
    return load_job(path, Overrides(nodes=flag))[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        (
            "{layers: 24, machines: 2, microbatches: 32}",
            PipelineSpec(layer_s=(1.0,) * 24, least_nodes=2, failures=1, microbatches=32),
        ),
        (
            "{layers: [0.2, 0.1, 0.3], machines: 2, failures: 0, microbatches: 9}",
            PipelineSpec(layer_s=(0.2, 0.1, 0.3), least_nodes=2, failures=0, microbatches=9),
        ),
    ],
)
def test_it_is_read(tmp_path: Path, text: str, wanted: PipelineSpec | None) -> None:
    spec = read(tmp_path, text)
    assert spec.pipeline == wanted
    assert spec.on_node_loss == "shrink"
    assert decode(JobSpec, parse(dumps(spec), what="spec")).pipeline == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{layers: 24, machines: 2}", "needs layers, machines and microbatches"),
        ("{layers: 24, machines: 3, microbatches: 32}", "2 replicas of 3 machines need 6, not 4"),
        ("{layers: 24, machines: 2, failures: 2, microbatches: 32}", "3 replicas of 2 machines need 6"),
        ("{layers: 24, machines: 1, microbatches: 4}", "4 microbatches for up to 8 replicas"),
        ("{layers: 200, machines: 2, microbatches: 32}", "1 to 128 layers are expected"),
        ("{layers: [], machines: 2, microbatches: 32}", "1 to 128 layers are expected"),
        ("{layers: [1, 0], machines: 2, microbatches: 32}", "must be more than zero"),
        ("{layers: [1, 1.0e300], machines: 2, microbatches: 32}", "a layer takes 1e-06 to 1e+06 seconds"),
        ("{layers: [1, 1.0e-300], machines: 2, microbatches: 32}", "a layer takes 1e-06 to 1e+06 seconds"),
        ("{layers: 24, machines: 2, microbatches: 1.0e9}", "1000000000 microbatches are more than 65536"),
        ("{layers: 0, machines: 2, microbatches: 32}", "is too few"),
        ("{layers: 24, machine: 2, microbatches: 32}", "unknown key"),
        ("{layers: 2, machines: 2, failures: 0, microbatches: 32}", "5 machines cannot be divided"),
    ],
)
def test_what_is_not_understood_or_cannot_be_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert said in error.value.message
    assert "pipeline" in error.value.message


def test_a_flag_is_held_against_it_too(tmp_path: Path) -> None:
    text = "{layers: 24, machines: 2, microbatches: 32}"
    assert read(tmp_path, text, flag="6").nodes_max == 6
    with pytest.raises(UsageError, match="need 4, not 3"):
        read(tmp_path, text, flag="3..6")
