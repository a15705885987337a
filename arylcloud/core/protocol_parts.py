"""The mailbox's documents of a checkpoint before its manifest: each rank's part of it, and what has been sent
of one so far (the rest: ``core/protocol``)."""

from __future__ import annotations

from dataclasses import dataclass

from arylcloud.core.codec import SCHEMA_VERSION
from arylcloud.core.protocol import PARTS_PREFIX, ChunkRef, FileEntry


def part_call_key(epoch: int, number: int) -> str:
    return f"{PARTS_PREFIX}e{epoch:06d}/call-{number:06d}.json"


def part_key(epoch: int, step: int, rank: int) -> str:
    return f"{PARTS_PREFIX}e{epoch:06d}/{step:018d}-r{rank:02d}.json"


def draft_key(epoch: int, number: int) -> str:
    return f"{PARTS_PREFIX}e{epoch:06d}/draft-{number:06d}.json"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFile:
    path: str
    """As in a manifest."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftChunk:
    file: int
    """Index into the draft's files."""
    offset: int
    ref: ChunkRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Chunks of a checkpoint that are in the store while the others are still being sent, for a machine that
    waits to go on from it. A promise of nothing: what it fetches for them, it checks against the manifest."""

    job_id: str
    epoch: int
    """The drain that this checkpoint answers."""
    number: int
    """From 1, within the epoch."""
    directory: str
    chunk_bytes: int
    """How its files are cut."""
    files: tuple[DraftFile, ...] | None = None
    """Of the whole checkpoint; None = as the draft before had them."""
    chunks: tuple[DraftChunk, ...] = ()
    """Since the draft before."""
    schema_version: int = SCHEMA_VERSION
