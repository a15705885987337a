"""What a hint proposes, done."""

from __future__ import annotations

import re
from dataclasses import replace

from arylcloud.core.job import Constraints


def relaxed(limits: Constraints, hint: str) -> list[Constraints]:
    """Every alternative of a hint about limits, applied."""
    found = []
    for way in re.split(r"[;,] or ", hint):
        changes: dict[str, float] = {}
        for name, hours in re.findall(r"relax (deadline|max_runtime) to ([\d.e+]+)h", way):
            changes[f"{name}_s"] = float(hours) * 3600
        for usd in re.findall(r"budget to \$([\d.e+]+)", way):
            changes["budget_usd"] = float(usd)
        if changes:
            found.append(replace(limits, **changes))
    return found
