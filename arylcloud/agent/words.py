"""What the agent leaves for the training to read: one JSON object per file, there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path


def leave(file: Path, document: Mapping[str, object], *, log: Callable[[str], None]) -> bool:
    """Whether it is there. A disk that does not take it is logged: the training goes on without."""
    try:
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps(document))
        partial.replace(file)
    except OSError as error:
        log(f"{file.name} cannot be written for the training: {error}")
        return False
    return True
