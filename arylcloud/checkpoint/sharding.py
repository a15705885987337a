"""A checkpoint of which every rank has a part: what says so, a part as a document, and the whole.

``step-N`` is sharded if it holds a file ``_SHARDED``, on rank 0 and on every other rank: it is whole when all
ranks of the epoch have theirs. Nothing else is ever waited for, so that a script whose rank 0 alone saves
needs to know nothing of this, and one in which each rank keeps a copy of its own does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from arylcloud.checkpoint.manifest import check_files, checked_document, digest_of
from arylcloud.core.codec import decode, dumps, encode
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.protocol import FileEntry
from arylcloud.core.protocol_parts import Part, part_key

SHARDED = "_SHARDED"
MARKS = frozenset({SHARDED, "_COMPLETE"})
"""Every rank has these, with whatever it wrote into them: rank 0's count."""


def sharded(folder: Path) -> bool:
    return (folder / SHARDED).exists()


def part_bytes(part: Part) -> bytes:
    """Sealed, like a manifest."""
    return dumps(replace(part, digest=digest_of(encode(part))))


def parse_part(data: bytes, *, job_id: str, epoch: int, step: int, rank: int) -> Part:
    """IntegrityError: damaged, or not the part that was asked for."""
    key = part_key(epoch, step, rank)
    part = decode(Part, checked_document(data, key=key), where=key)
    if (part.job_id, part.epoch, part.step, part.rank) != (job_id, epoch, step, rank):
        raise IntegrityError(f"{key} holds the part of another job, epoch, step or rank")
    check_files(part.files, key)
    return part


def union(parts: Mapping[int, tuple[FileEntry, ...]]) -> tuple[FileEntry, ...]:
    """The files of all ranks, by name. The same file with the same content may come from several;
    UsageError that names the file and both ranks if its content differs, or if a file of one is a folder
    of another."""
    found: dict[str, tuple[int, FileEntry]] = {}
    folders: dict[str, int] = {}
    for rank in sorted(parts):
        for file in parts[rank]:
            first, known = found.setdefault(file.path, (rank, file))
            if known.chunks != file.chunks and file.path not in MARKS:
                raise _clash(file.path, first, rank, "with different content")
            segments = file.path.split("/")
            for depth in range(1, len(segments)):
                folders.setdefault("/".join(segments[:depth]), rank)
    for path in sorted(found.keys() & folders.keys()):
        raise _clash(path, found[path][0], folders[path], "once as a file, once as a folder")
    return tuple(file for _, (_, file) in sorted(found.items()))


def _clash(path: str, first: int, second: int, how: str) -> UsageError:
    return UsageError(
        f"ranks {first} and {second} have both written {path}, {how}",
        hint="put the rank into the name: shard-$ARYL_NODE_RANK.pt",
    )
