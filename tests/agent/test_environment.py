"""What `setup` and `run` find, and that docs/training.md says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from arylcloud import training
from arylcloud.agent import environment
from arylcloud.agent.config import Config
from arylcloud.core.errors import IntegrityError
from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import PipelineReplica, Pipelines, PipelineStage
from arylcloud.core.protocol import EpochDoc, Member

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
CONFIG = Config(
    prefix_uri="file:///x", job_id="j-1", lease_id="a", journal_id="j", until_s=None, home=Path("/m"), gpus=1
)
PIPELINES = Pipelines(
    layers=6,
    replicas=(
        PipelineReplica(
            stages=(
                PipelineStage(rank=2, first=0, last=4, fetch=((3, 4),)),
                PipelineStage(rank=0, first=4, last=6),
            ),
            microbatches=5,
        ),
        PipelineReplica(stages=(PipelineStage(rank=1, first=0, last=6),), microbatches=3),
    ),
)
OF_PYTHON = {"PYTHONPATH", "PYTHONUNBUFFERED"}


def documented() -> tuple[set[str], set[str]]:
    """(names in the table, names in the sentence on `setup`)."""
    part = PAGE.read_text(encoding="utf-8").partition("## What every process finds")[2].partition("\n## ")[0]
    table = "".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `"))
    setup = part.partition("`setup` finds")[2].partition("and the job's")[0]
    return set(re.findall(r"`([A-Z_]+)`", table)), set(re.findall(r"`([A-Z_]+)`", setup))


def test_the_page_names_what_processes_find() -> None:
    of_run, of_setup = documented()
    base = environment.base(CONFIG, JobSpec(name="j", run="x"), {})
    members = (Member(lease_id="a", rank=0, address="127.0.0.2"),)
    epoch = EpochDoc(
        job_id="j-1", number=1, attempt=1, opened_s=0.0, reason="x", members=members, resume_from=None,
        checkpoint_interval_s=9.0, pipelines=PIPELINES,
    )  # fmt: skip
    full = environment.of_rank(base, epoch, 0, Path("/m/p.json"))
    undocumented = {"ARYL_LEASE_ID", "ARYL_EPOCH"}  # ours: they change with every machine and membership
    assert set(base) - OF_PYTHON - undocumented == of_setup
    assert set(full) - OF_PYTHON - undocumented == of_run
    assert not {name for name in of_setup if "RANK" in name or "NODE_IPS" in name}


def test_a_pipeline_is_told_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent leaves is what ``arylcloud.training`` makes of it."""
    file = environment.pipeline_file(tmp_path / "progress-000003.json")
    assert file.name == "pipeline-000003.json"
    file.write_text(json.dumps(environment.pipeline_document(PIPELINES, 2)))
    monkeypatch.setenv("ARYL_PIPELINE_FILE", str(file))
    mine = training.info().pipeline
    assert mine is not None
    assert (mine.layers, mine.replica, mine.stage, mine.first, mine.last) == (6, 0, 0, 0, 4)
    assert mine.fetch == ((3, 4),)
    assert (mine.microbatches, mine.total_microbatches) == (5, 8)
    assert (mine.before, mine.after) == (None, 0)
    assert mine.holders(3) == (2, 1)
    assert mine.holders(5) == (0, 1)
    assert [r.ranks for r in mine.replicas] == [(2, 0), (1,)]
    file.write_text(json.dumps(environment.pipeline_document(PIPELINES, 0)))
    last = training.info().pipeline
    assert last is not None
    assert (last.before, last.after, last.fetch) == (2, None, ())
    with pytest.raises(IntegrityError, match="no replica of this epoch has rank 3"):
        environment.pipeline_document(PIPELINES, 3)


def test_no_node_guesses_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARYL_PIPELINE_FILE", raising=False)
    assert training.info().pipeline is None
    monkeypatch.setenv("ARYL_PIPELINE_FILE", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        training.info()
    (tmp_path / "none").write_text('{"layers": 3}')
    with pytest.raises(ValueError, match="is no pipeline file"):
        training.info()
