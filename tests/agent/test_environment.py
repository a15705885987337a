"""What `setup` and `run` find, and that docs/training.md says the same."""

from __future__ import annotations

import re
from pathlib import Path

from arylcloud.agent import environment
from arylcloud.agent.config import Config
from arylcloud.core.job import JobSpec
from arylcloud.core.protocol import EpochDoc, Member

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
CONFIG = Config(
    prefix_uri="file:///x", job_id="j-1", lease_id="a", journal_id="j", until_s=None, home=Path("/m"), gpus=1
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
        checkpoint_interval_s=9.0,
    )  # fmt: skip
    full = environment.of_rank(base, epoch, 0, Path("/m/p.json"))
    undocumented = {"ARYL_LEASE_ID", "ARYL_EPOCH"}  # ours: they change with every machine and membership
    assert set(base) - OF_PYTHON - undocumented == of_setup
    assert set(full) - OF_PYTHON - undocumented == of_run
    assert not {name for name in of_setup if "RANK" in name or "NODE_IPS" in name}
