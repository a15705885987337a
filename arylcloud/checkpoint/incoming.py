"""Chunks straight into a store that is a folder of this host: read, hashed and written in one pass.

By way of the store's client a chunk is read, hashed and written as a whole, each time from memory; in pieces
that stay in a core's cache it costs two thirds of that. What the store promises holds: a chunk appears under
its name whole or not at all (written as ``incoming#<n>``, then renamed), and what a killed writer leaves is
never listed (``store.sweep_partials`` removes it).

Of these chunks there is no second digest: to write a folder of this host takes little but the first.

It is written before it is known whether the store lacks it: only where there is ample room. A disk that is
almost full may still hold a checkpoint of which most is there, and others write to it, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from arylcloud.checkpoint.chunks import SourceFile, changed, opened, pieces_of, write_all
from arylcloud.checkpoint.digests import Naming
from arylcloud.checkpoint.store import folder_under, local_file, map_error, unreadable
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, ChunkRef, chunk_key

AMPLE = 16
"""Chunks: each of an upload's threads may be writing one, and as much again is left to others."""


class Incoming:
    """Safe to share between threads."""

    def __init__(self, store: ObjectStore, folder: Path, way: Path) -> None:
        self._store = store
        self._folder = folder
        self._way = way

    @classmethod
    def of(cls, store: ObjectStore) -> Incoming | None:
        """None: this store takes chunks by ``put`` only."""
        folder, way = folder_under(store), local_file(store, CHUNKS_PREFIX + "incoming")
        return None if folder is None or way is None else cls(store, folder, way)

    def ample(self, length: int) -> bool:
        """Is there room for more than what all threads may be writing, chunks of ``length``?"""
        free = self._free()
        return free is None or free >= AMPLE * length

    def fits(self, length: int) -> None:
        """Raises StoreError where the disk has less room than that: nothing is written then, to its last
        byte, that will not be whole."""
        free = self._free()
        if free is not None and free < length:
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def _free(self) -> int | None:
        """Bytes; None = not known: some file systems do not tell."""
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:  # it is away: whoever writes is told so
            return None
        return disk.free if disk.total else None

    def bring(
        self, file: SourceFile, offset: int, length: int, wanted: Callable[[ChunkRef], bool]
    ) -> tuple[ChunkRef, bool]:
        """This part of ``file`` as a chunk, and what ``wanted`` says of it: True = it is in the store now.
        Raises IntegrityError if the file is no longer the one that was seen, StoreError."""
        naming = Naming(quick=False)
        with _reading(file):
            source = opened(file)
        temporary: Path | None = None
        try:
            temporary = self._way.with_name(f"{self._way.name}#{secrets.randbits(62)}")
            target = self._open(temporary)
            try:
                done = 0
                with _reading(file):
                    for piece in pieces_of(source, offset, length):
                        naming.update(piece)
                        try:
                            write_all(target, done, piece)
                        except OSError as error:
                            raise self._failed(error) from error
                        done += len(piece)
            finally:
                self._close(target)
            if done != length:
                raise changed(file.name)
            chunk = naming.chunk()
            if not wanted(chunk):
                return chunk, False
            self._keep(temporary, chunk.sha256)
            temporary = None
            return chunk, True
        finally:
            os.close(source)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def _open(self, path: Path) -> int:
        if not self._folder.is_dir():  # a disk that has been unmounted is away, not empty
            raise StoreError(f"there is no object store at {self._store.uri} any more", hint="check the disk")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failed(error) from error

    def _close(self, target: int) -> None:
        try:
            os.close(target)
        except OSError as error:  # a network's file system says only now that it is full
            raise self._failed(error) from error

    def _keep(self, temporary: Path, digest: str) -> None:
        final = local_file(self._store, chunk_key(digest))
        assert final is not None
        try:
            final.parent.mkdir(exist_ok=True)
            temporary.replace(final)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Exception:
        return map_error(error, f"cannot write a chunk in {self._store.uri}")


@contextlib.contextmanager
def _reading(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise changed(file.name) from error
    except OSError as error:
        raise unreadable(error, f"cannot read {file.path}") from error
