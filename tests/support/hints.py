"""What a hint proposes, done."""

from __future__ import annotations

import re
from dataclasses import replace

from arylcloud.core.job import Constraints
from arylcloud.core.units import parse_duration_s


def relaxed(limits: Constraints, hint: str) -> list[Constraints]:
    """Every alternative of a hint about limits, applied."""
    found = []
    for way in re.split(r"[;,] or ", hint):
        changes: dict[str, float] = {}
        for name, text in re.findall(r"relax (deadline|max_runtime) to ((?:[\d.e+]+ (?:s|min|h) ?)+)", way):
            changes[f"{name}_s"] = parse_duration_s(text, what=name)
        for usd in re.findall(r"budget to \$([\d.e+]+)", way):
            changes["budget_usd"] = float(usd)
        if changes:
            found.append(replace(limits, **changes))
    return found
