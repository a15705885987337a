"""Which layers this node holds, of a job that trains by pipeline templates. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = tuple[int, int]
"""Layers ``[first, last)``, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of the model over several nodes: ``stages[i]`` is what ``ranks[i]`` holds, in order."""

    ranks: tuple[int, ...]
    stages: tuple[Run, ...]
    microbatches: int
    """Of every step, for this copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Good for one start of the command: after a loss, it is started again with another."""

    layers: int
    """Of the whole model."""
    replica: int
    """Of this node, in ``replicas``."""
    stage: int
    """Of this node, in its replica; 0 holds the first layers."""
    first: int
    last: int
    """This node holds layers [first, last)."""
    fetch: tuple[Run, ...]
    """What of them it did not hold when the command ran before: from the checkpoint, or from who holds it."""
    replicas: tuple[Replica, ...]

    @property
    def microbatches(self) -> int:
        """Of every step, for this node's replica."""
        return self.replicas[self.replica].microbatches

    @property
    def total_microbatches(self) -> int:
        """Of every step, over all replicas: what gradients are averaged over."""
        return sum(r.microbatches for r in self.replicas)

    @property
    def before(self) -> int | None:
        """Rank that sends this one its activations; None: this is the first stage."""
        return self.replicas[self.replica].ranks[self.stage - 1] if self.stage else None

    @property
    def after(self) -> int | None:
        """Rank that gets them; None: this is the last stage."""
        ranks = self.replicas[self.replica].ranks
        return ranks[self.stage + 1] if self.stage + 1 < len(ranks) else None

    def holders(self, layer: int) -> tuple[int, ...]:
        """Ranks that hold ``layer``, one per replica: those add up its gradients."""
        return tuple(
            rank
            for replica in self.replicas
            for rank, (first, last) in zip(replica.ranks, replica.stages, strict=True)
            if first <= layer < last
        )


def read_pipeline(name: str | None) -> Pipeline | None:
    """From the file ``name``; None where none is named. OSError, ValueError where it cannot be read."""
    if not name:
        return None
    try:
        found: Any = json.loads(Path(name).read_bytes())
        return Pipeline(
            layers=int(found["layers"]),
            replica=int(found["replica"]),
            stage=int(found["stage"]),
            first=int(found["first"]),
            last=int(found["last"]),
            fetch=tuple((int(a), int(b)) for a, b in found["fetch"]),
            replicas=tuple(
                Replica(
                    ranks=tuple(int(rank) for rank in replica["ranks"]),
                    stages=tuple((int(a), int(b)) for a, b in replica["stages"]),
                    microbatches=int(replica["microbatches"]),
                )
                for replica in found["replicas"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{name} is no pipeline file: {error!r}") from error
