"""Files to content-addressed chunks: fixed cuts at 8 MiB.

Fixed, not content-defined. Content-defined cutting finds equal data again after an insertion has
shifted it; a checkpoint's tensors rarely shift, they change in place: weights and optimizer state
everywhere at every step, frozen weights not at all and at the same offset. Measured
(``benchmarks/bench_checkpoint.py``): the same share travels again either way for npz and for torch's
64-byte aligned zip, unless a pickle before the tensors grows past its padding: then fixed cuts send
all once more, content-defined ones an eighth. Against that, a rolling hash in the agent's plain Python
runs at some 3 MiB/s, over a hundred times slower than SHA-256.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import IntegrityError, UsageError

CHUNK_BYTES = 8 << 20
PIECE_BYTES = 512 << 10
MAX_CHUNK_BYTES = 64 << 20
"""What a reader accepts; writers may change ``CHUNK_BYTES`` below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A regular file of a checkpoint, as it was when first looked at."""

    path: Path
    name: str
    """Relative to the checkpoint's directory, POSIX."""
    size: int
    mode: int
    seen: tuple[int, int, int, int]
    """Device, inode, size and mtime (ns): another value later means that it changed."""
    ctime_ns: int
    """So does this, unless the number of its names has changed, too: whoever removes one of them, or makes
    another, changes no byte."""
    links: int

    def same(self, other: SourceFile) -> bool:
        """Is ``other``, seen later, this file, unchanged?"""
        moved = self.ctime_ns != other.ctime_ns and self.links == other.links
        return (self.name, self.seen) == (other.name, other.seen) and not moved


def spans(size: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, int]]:
    """(offset, length) of each chunk of a file of ``size`` bytes; none for an empty file.

    >>> list(spans(10, 4))
    [(0, 4), (4, 4), (8, 2)]
    """
    for offset in range(0, size, chunk_bytes):
        yield offset, min(chunk_bytes, size - offset)


def scan(directory: Path) -> tuple[SourceFile, ...]:
    """Every file under ``directory``, sorted by name. Empty folders are not kept.

    A symbolic link to a file inside ``directory`` counts as that file; one that leads outside, to
    a folder or nowhere, and anything that is no file (a pipe, a socket, a device) is a UsageError
    that names it: a checkpoint without it would not be the one that was saved.
    """
    root = directory.resolve(strict=True)
    found: list[SourceFile] = []
    for folder, folders, names in os.walk(root, onerror=_fail):
        for name in (*names, *(f for f in folders if Path(folder, f).is_symlink())):
            path = Path(folder, name)
            found.append(_source(path, path.relative_to(root).as_posix(), root))
    found.sort(key=lambda file: file.name)
    return tuple(found)


def read_span(file: SourceFile, offset: int, length: int) -> bytes:
    """Bytes [offset, offset + length); IntegrityError if the file is no longer the one that was seen."""
    handle = opened(file)
    try:
        data = os.pread(handle, length, offset)
        while 0 < len(data) < length:
            more = os.pread(handle, length - len(data), offset + len(data))
            if not more:
                break
            data += more
    finally:
        os.close(handle)
    if len(data) != length:
        raise changed(file.name)
    return data


def pieces_of(handle: int, offset: int, length: int) -> Iterator[memoryview]:
    """These bytes of an open file, or as many as it has, piece by piece; each is good until the next is asked
    for. Pieces stay in a core's cache: what is hashed and written on costs half of what whole chunks do.
    Raises OSError."""
    buffer = memoryview(bytearray(PIECE_BYTES))
    end = offset + length
    while offset < end:
        count = os.preadv(handle, [buffer[: min(PIECE_BYTES, end - offset)]], offset)
        if not count:
            return
        yield buffer[:count]
        offset += count


def write_all(handle: int, offset: int, data: bytes | memoryview) -> None:
    """At ``offset`` of an open file. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written


def opened(file: SourceFile) -> int:
    """A handle; IntegrityError if the file is no longer the one that was seen, OSError."""
    handle = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    if file.same(_described(file.path, file.name, os.fstat(handle))):
        return handle
    os.close(handle)
    raise changed(file.name)


def storable(name: str) -> bool:
    """Relative POSIX path in UTF-8, no ``..``, no backslash, no NUL: what a restore accepts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return all(s not in ("", ".", "..") for s in name.split("/")) and not ("\\" in name or "\0" in name)


def _described(path: Path, name: str, status: os.stat_result) -> SourceFile:
    return SourceFile(
        path=path,
        name=name,
        size=status.st_size,
        mode=status.st_mode & 0o777,
        seen=(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),
        ctime_ns=status.st_ctime_ns,
        links=status.st_nlink,
    )


def changed(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name} changed while it was being uploaded",
        hint="write into a temporary folder and rename it, or write _COMPLETE last",
    )


def _source(path: Path, name: str, root: Path) -> SourceFile:
    real = path
    if path.is_symlink():
        real = path.resolve()
        if not real.is_relative_to(root):
            raise UsageError(f"the checkpoint's {name} is a link that leads out of it", hint="copy the file")
    try:
        status = real.stat()
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UsageError(f"the checkpoint's {name} is a link to nothing", hint="remove it") from error
        raise changed(name) from error
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"the checkpoint's {name} is not a regular file", hint="keep only files there")
    if not storable(name):
        raise UsageError(f"the checkpoint's {name!r} is not a name that can be kept", hint="rename it")
    return _described(real, name, status)


def _fail(error: OSError) -> None:
    raise error
