"""Which layers each rank holds, of a job that trains by pipeline templates: as a line and as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arylcloud.core.pipeline import Pipelines
    from arylcloud.launcher.state import JobState


def pipelines_of(state: JobState) -> Pipelines | None:
    """Of the open epoch; None while none is open, or where the job divides its own work."""
    return None if state.epoch is None or state.phase.ended else state.epoch.pipelines


def pipelines_document(found: Pipelines | None) -> dict[str, Any] | None:
    """``layers``, and of each replica ``ranks``, ``stages`` (``[first, last)`` by rank), ``microbatches``."""
    if found is None:
        return None
    return {
        "layers": found.layers,
        "fetched": found.fetched,
        "replicas": [
            {
                "ranks": list(replica.ranks),
                "stages": [[stage.first, stage.last] for stage in replica.stages],
                "microbatches": replica.microbatches,
            }
            for replica in found.replicas
        ],
    }


def pipelines_text(found: Pipelines) -> str:
    """``2 replicas: ranks 0, 1 (layers 0–2, 3–5; 16 microbatches); 2, 3 (0–2, 3–5; 16)``."""
    parts = []
    for i, replica in enumerate(found.replicas):
        ranks = ", ".join(map(str, replica.ranks))
        runs = ", ".join(_run(stage.first, stage.last) for stage in replica.stages)
        if i == 0:
            parts.append(f"ranks {ranks} (layers {runs}; {replica.microbatches} microbatches)")
        else:
            parts.append(f"{ranks} ({runs}; {replica.microbatches})")
    count = len(found.replicas)
    return f"{count} replica{'' if count == 1 else 's'}: {'; '.join(parts)}"


def _run(first: int, last: int) -> str:
    return str(first) if last == first + 1 else f"{first}–{last - 1}"
