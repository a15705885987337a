"""The mailbox's documents of a checkpoint that each rank has a part of (the rest: ``core/protocol``)."""

from __future__ import annotations

from dataclasses import dataclass

from arylcloud.core.codec import SCHEMA_VERSION
from arylcloud.core.protocol import PARTS_PREFIX, FileEntry


def part_call_key(epoch: int, number: int) -> str:
    return f"{PARTS_PREFIX}e{epoch:06d}/call-{number:06d}.json"


def part_key(epoch: int, step: int, rank: int) -> str:
    return f"{PARTS_PREFIX}e{epoch:06d}/{step:018d}-r{rank:02d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCall:
    """Rank 0 of ``epoch`` is about to commit ``step``, a checkpoint of which every rank has a part.
    Numbered from 1 within the epoch; the newest counts."""

    epoch: int
    number: int
    step: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rank's files of one checkpoint, its chunks in the store. Read by rank 0 of the same epoch only:
    what can be restored is a manifest, never a part."""

    job_id: str
    epoch: int
    step: int
    rank: int
    lease_id: str
    directory: str
    files: tuple[FileEntry, ...] = ()
    problem: str | None = None
    """Why this rank has no part of the step, and will not have one: rank 0 goes on to another step."""
    digest: str = ""
    """As a manifest's."""
    schema_version: int = SCHEMA_VERSION
