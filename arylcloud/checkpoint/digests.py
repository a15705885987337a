"""What a chunk is known by: SHA-256, which names it, and beside that BLAKE3, by which it is checked.

A restore is bound by its digest where cores are few, and BLAKE3 takes a third of SHA-256's time
(``benchmarks/bench_linerate.py``). A writer that has it says both; a reader that has it checks that one, any
other SHA-256: neither has to know what the other is, since BLAKE3's module is compiled for one version of
Python, and machines bring their own. Both are in the manifest, under its seal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, Protocol

from arylcloud.core.protocol import ChunkRef

__all__ = ["Check", "Naming", "named", "sha256", "sound"]

Buffer = bytes | memoryview
CACHED_BYTES = 128 << 10
"""Of data that goes through two hands, what the second still finds in a core's cache."""


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> object: ...

    def hexdigest(self) -> str: ...


def _found() -> Callable[[], _Hash] | None:
    try:
        from blake3 import blake3
    except ImportError:
        return None
    return blake3


QUICK: Final[Callable[[], _Hash] | None] = _found()
"""BLAKE3, where this Python has it."""


def sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


class Naming:
    """A chunk that is being written, piece by piece."""

    __slots__ = ("_quick", "_sha256", "_size")

    def __init__(self, *, quick: bool = True) -> None:
        """``quick``: with the second digest, where there is one."""
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._quick = QUICK() if quick and QUICK is not None else None

    def update(self, piece: Buffer) -> None:
        self._size += len(piece)
        self._sha256.update(piece)
        if self._quick is not None:
            self._quick.update(piece)

    def chunk(self) -> ChunkRef:
        quick = self._quick.hexdigest() if self._quick is not None else None
        return ChunkRef(sha256=self._sha256.hexdigest(), size=self._size, blake3=quick)


class Check:
    """A chunk that is being read, piece by piece."""

    __slots__ = ("_hash", "_left", "_wanted")

    def __init__(self, chunk: ChunkRef) -> None:
        self._left = chunk.size
        if QUICK is not None and chunk.blake3 is not None:
            self._hash, self._wanted = QUICK(), chunk.blake3
        else:
            self._hash, self._wanted = hashlib.sha256(), chunk.sha256

    def update(self, piece: Buffer) -> bool:
        """False: this is more than the chunk has, and not to be written anywhere."""
        self._left -= len(piece)
        if self._left < 0:
            return False
        self._hash.update(piece)
        return True

    def holds(self) -> bool:
        """Was it all of the chunk, and nothing else?"""
        return self._left == 0 and self._hash.hexdigest() == self._wanted


def named(data: Buffer, *, quick: bool = True) -> ChunkRef:
    """In pieces: the second digest finds each where the first has brought it, in a core's cache."""
    naming, view = Naming(quick=quick), memoryview(data)
    for at in range(0, len(view), CACHED_BYTES):
        naming.update(view[at : at + CACHED_BYTES])
    return naming.chunk()


def sound(data: Buffer, chunk: ChunkRef) -> bool:
    check = Check(chunk)
    return check.update(data) and check.holds()
