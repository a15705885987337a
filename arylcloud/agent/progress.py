"""What the training says of itself, in the file that ``ARYL_PROGRESS_FILE`` names: one JSON object,
replaced by a rename, each key optional, others ignored::

    {"step": 120, "total_steps": 4000, "save_s": 0.8, "at_s": 1767225600.0,
     "first_at_s": 1767222000.0, "finished": false}

``finished``: an exit 0 that follows is the end of the work, even after our signal. Read, never
trusted to be whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    step: int | None = None
    total_steps: int | None = None
    save_s: float | None = None
    at_s: float | None = None
    """Unix seconds of the file's last change."""
    first_at_s: float | None = None
    """… of the first step that this process told of."""
    finished: bool = False


def read(path: Path) -> Progress:
    """Whatever of it can be read; a missing or odd file says nothing."""
    try:
        document: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return Progress()
    if not isinstance(document, dict):
        return Progress()
    return Progress(
        step=_whole(document.get("step")),
        total_steps=_whole(document.get("total_steps")),
        save_s=_seconds(document.get("save_s")),
        at_s=_seconds(document.get("at_s")),
        first_at_s=_seconds(document.get("first_at_s")),
        finished=document.get("finished") is True,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < float("inf") else None
