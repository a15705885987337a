"""Who and where this process is, from the environment; every variable may be absent."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arylcloud.training.pipeline import Pipeline, read_pipeline

DEFAULT_DIR = "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    job_id: str | None
    """The same over all attempts; None = not under arylcloud."""
    attempt: int
    """1 at the first start; counts every start after an interruption or a move."""
    rank: int
    """Of this node, from 0."""
    world: int
    """Number of nodes, not of processes."""
    node_ips: tuple[str, ...]
    """In order of rank; empty = unknown."""
    checkpoint_dir: Path
    progress_file: Path | None
    notice_file: Path | None
    warning_file: Path | None
    checkpoint_interval_s: float | None
    """What is advised at present (Young/Daly); None = no advice."""
    pipeline: Pipeline | None = None
    """Which layers this node holds; None = the job does not train by pipeline templates."""


def info() -> Info:
    """Read afresh at every call; numbers that are none count as absent. Raises OSError or ValueError where
    ``$ARYL_PIPELINE_FILE`` is named and cannot be read: no node may guess what it holds."""
    env = os.environ
    return Info(
        job_id=env.get("ARYL_JOB_ID") or None,
        attempt=_whole(env.get("ARYL_ATTEMPT"), 1),
        rank=_whole(env.get("ARYL_NODE_RANK"), 0),
        world=_whole(env.get("ARYL_NUM_NODES"), 1),
        node_ips=tuple(env.get("ARYL_NODE_IPS", "").split()),
        checkpoint_dir=Path(env.get("ARYL_CHECKPOINT_DIR") or DEFAULT_DIR),
        progress_file=_path(env.get("ARYL_PROGRESS_FILE")),
        notice_file=_path(env.get("ARYL_NOTICE_FILE")),
        warning_file=_path(env.get("ARYL_WARNING_FILE")),
        checkpoint_interval_s=_interval_s(),
        pipeline=read_pipeline(env.get("ARYL_PIPELINE_FILE")),
    )


def _interval_s() -> float | None:
    """From the advice file, which changes as saves and uploads are measured; before it is there, what was
    known when this process was started."""
    try:
        document: Any = json.loads(Path(os.environ.get("ARYL_ADVICE_FILE") or os.devnull).read_bytes())
        found = document["checkpoint_interval_s"]
        return None if found is None else _seconds(str(found))
    except (OSError, ValueError, KeyError, TypeError):
        return _seconds(os.environ.get("ARYL_CHECKPOINT_INTERVAL_S"))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _whole(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return None
    return value if 0.0 < value < float("inf") else None
