"""Small manifests, for what is asked of them alone."""

from __future__ import annotations

from collections.abc import Sequence

from arylcloud.checkpoint.manifest import seal
from arylcloud.core.protocol import ChunkRef, FileEntry, Manifest


def manifest(epoch: int, number: int, digests: Sequence[str], *, took_s: float = 0.0) -> Manifest:
    """A file of one byte for each digest; saved at 0 and committed ``took_s`` later."""
    files = tuple(
        FileEntry(path=f"f{i}", size=1, mode=0o644, chunks=(ChunkRef(sha256=digest, size=1),))
        for i, digest in enumerate(digests)
    )
    return seal(
        Manifest(
            job_id="j",
            lease_id="l",
            epoch=epoch,
            number=number,
            step=number,
            saved_at_s=0.0,
            committed_at_s=took_s,
            directory="step-1",
            files=files,
            total_bytes=len(files),
            digest="",
        )
    )
