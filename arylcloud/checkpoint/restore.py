"""From a manifest to the checkpoint's folder: every byte verified, all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from arylcloud.checkpoint.chunks import pieces_of, write_all
from arylcloud.checkpoint.digests import Check, sound
from arylcloud.checkpoint.manifest import list_manifests, next_number, read_manifest
from arylcloud.checkpoint.store import Buffer, LocalStoreError, local_file, map_error, stream
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import ChunkRef, FileEntry, Manifest, chunk_key

__all__ = ["Near", "list_manifests", "next_number", "read_manifest", "restore"]

THREADS = 8
_T = TypeVar("_T")
_R = TypeVar("_R")
_TEMPORARY = ".restore-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A checkpoint that this machine has restored before, and may have much in common with the one wanted."""

    manifest: Manifest
    folder: Path
    """Its files, in a folder of ours: nobody writes there."""
    trusted: bool = False
    """It was verified moments ago: what it has is not read once more."""


def restore(
    store: ObjectStore,
    manifest: Manifest,
    target: Path,
    *,
    near: Near | None = None,
    threads: int = THREADS,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Put ``manifest`` (as ``read_manifest`` gave it) at ``target / manifest.directory``; return that path.

    Files and chunks that ``near`` has are taken from there (files by a link), others from what lies at that
    path already (a rank's own part of a sharded checkpoint), where it is sound, else from the store (the
    job's prefix). ``progress`` is called with the bytes of each chunk, from any thread; what it raises ends
    the restore.
    The folder appears by one rename, complete; an older one of this name is replaced, unless
    it holds these very bytes, and then stays. Raises IntegrityError that names the chunk which is
    missing or damaged, StoreError (try again), LocalStateError (no space); after an error
    ``target`` is as before. One restore at a time per ``target``; idempotent.
    """
    final = target / manifest.directory
    try:
        target.mkdir(parents=True, exist_ok=True)
        for stale in target.glob(_TEMPORARY + "*"):
            shutil.rmtree(stale)
        if holds(final, manifest):
            return final
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=target))
        try:
            _fill(temporary, store, manifest, near, threads, progress, final)
            if final.is_symlink() or final.exists():
                final.rename(temporary / ".replaced")
            (temporary / "new").rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise map_error(error, f"cannot restore into {target}") from error
    return final


def _room(target: Path, needed: int) -> None:
    """A manifest may name one chunk a million times: it is not to fill the disk before that is noticed. The
    checkpoint is not named: it is not at fault, and whoever hears its name gives it up."""
    free = shutil.disk_usage(target).free
    if needed > free:
        sizes = f"{needed / 1e9:.1f} GB in {target}, {free / 1e9:.1f} are free"
        raise LocalStoreError(
            f"what is to be restored needs {sizes}",
            hint="ask for a larger disk: resources: {disk_size: …}",
        )


def holds(folder: Path, manifest: Manifest) -> bool:
    """Is ``folder`` exactly what ``manifest`` describes: names, sizes, modes, every chunk's digest?"""
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    if names != {file.path for file in manifest.files}:
        return False
    return all(_file_holds(folder / file.path, file) for file in manifest.files)


def _file_holds(path: Path, file: FileEntry) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    status = path.stat()
    if status.st_size != file.size or status.st_mode & 0o777 != file.mode:
        return False
    try:
        with path.open("rb") as source:
            return all(sound(source.read(chunk.size), chunk) for chunk in file.chunks)
    except PermissionError:
        return False


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk, where it belongs, and where it may be had without the store."""

    path: Path
    offset: int
    chunk: ChunkRef
    linked: bool = False
    """It is there already, and to be verified."""
    near: Path | None = None
    present: Path | None = None


def _fill(
    temporary: Path,
    store: ObjectStore,
    manifest: Manifest,
    near: Near | None,
    threads: int,
    progress: Callable[[int], None] | None,
    present: Path,
) -> None:
    root = temporary / "new"
    root.mkdir()
    wanted: list[_Piece] = []
    needed = manifest.total_bytes
    known = {} if near is None else {file.path: file for file in near.manifest.files}
    for file in manifest.files:
        path, local = root / file.path, present / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        other = known.get(file.path)
        same = near is not None and other == file and file.mode & 0o400  # (else it cannot be verified)
        linked = bool(same and near and _link(near.folder / file.path, path))
        if not linked:
            # the folder is new and ours: O_EXCL | O_NOFOLLOW hold that nothing in it leads elsewhere
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.close(handle)
        else:
            needed -= file.size
            if near is not None and near.trusted:
                continue
        here = local if _size(local) == file.size else None
        had = offsets(other)
        offset = 0
        for chunk in file.chunks:
            nearby = near.folder / file.path if near is not None and had.get(offset) == chunk else None
            wanted.append(
                _Piece(path, offset, chunk, linked=linked, near=None if linked else nearby, present=here)
            )
            offset += chunk.size
    _room(temporary.parent, needed)

    def write(piece: _Piece) -> None:
        if not (piece.linked and local_chunk(piece.path, piece.offset, piece.chunk) is not None):
            if piece.linked:
                _part_ways(piece.path)
            data: Buffer | None = None
            for source in (piece.near, piece.present):
                if data is None and source is not None:
                    data = local_chunk(source, piece.offset, piece.chunk)
            if data is not None:
                write_at(piece.path, piece.offset, data)
            else:
                fetch(store, piece.chunk, piece.path, piece.offset)
        if progress is not None:
            progress(piece.chunk.size)

    parallel(write, wanted, threads)
    for file in manifest.files:
        (root / file.path).chmod(file.mode)
    # older than the rename to come, by this machine's clock (the one that saved may have been ahead): a
    # folder whose ctime is newer than its mtime was renamed into place, which is how arylcloud.training
    # tells a finished checkpoint
    at_s = min(manifest.saved_at_s, root.stat().st_ctime - 1.0)
    os.utime(root, (at_s, at_s))


def offsets(file: FileEntry | None) -> dict[int, ChunkRef]:
    """Its chunks, by where they begin."""
    found, offset = {}, 0
    for chunk in file.chunks if file is not None else ():
        found[offset] = chunk
        offset += chunk.size
    return found


def _link(source: Path, path: Path) -> bool:
    """False: it is not there, or lies on another file system: copied, then."""
    try:
        os.link(source, path, follow_symlinks=False)
    except OSError:
        return False
    return not path.is_symlink()


_PARTING = threading.Lock()


def _part_ways(path: Path) -> None:
    """A linked file that turns out to be damaged becomes a file of its own before it is mended."""
    with _PARTING:
        if path.stat().st_nlink > 1:
            own = path.with_name(path.name + ".own")
            shutil.copyfile(path, own)
            own.chmod(0o600)
            own.replace(path)


def write_at(path: Path, offset: int, data: Buffer) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        write_all(handle, offset, data)
    finally:
        os.close(handle)


def parallel(work: Callable[[_T], _R], items: Iterable[_T], threads: int) -> list[_R]:
    """What ``work`` made of each; the first error ends all that have not begun."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="restore")
    failed: list[BaseException] = []

    def unless_failed(item: _T) -> _R:
        if failed:  # our own thread may not have heard of it yet
            raise CancelledError
        try:
            return work(item)
        except BaseException as error:
            failed.append(error)
            raise

    try:
        return [future.result() for future in [pool.submit(unless_failed, item) for item in items]]
    except CancelledError:  # one that was spared may have been taken up before the one that failed
        raise failed[0] from None
    finally:
        pool.shutdown(cancel_futures=True)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def local_chunk(path: Path, offset: int, chunk: ChunkRef) -> bytes | None:
    """The chunk if this file has it there."""
    try:
        with path.open("rb") as source:
            source.seek(offset)
            data = source.read(chunk.size)
    except OSError:
        return None
    return data if sound(data, chunk) else None


def fetch(store: ObjectStore, chunk: ChunkRef, path: Path, offset: int) -> None:
    """The chunk from the store to its place in the file ``path``: verified, when this returns; until then,
    and after an error, anything may lie there. Raises IntegrityError (missing, damaged), StoreError, OSError.
    """
    key = chunk_key(chunk.sha256)
    source = local_file(store, key)
    if source is not None and _copied(source, chunk, path, offset):
        return
    # not here, or not as it should be: what is wrong with it, the store itself says
    pieces = stream(store, key)
    if pieces is None:
        raise IntegrityError(f"{key} is missing", code="missing")
    if not _laid_down(pieces, chunk, path, offset):
        raise IntegrityError(f"{key} is damaged: its digest does not hold", code="digest")


def _copied(source: Path, chunk: ChunkRef, path: Path, offset: int) -> bool:
    """False: ``source`` cannot be read, or is not this chunk. Raises OSError for ``path``."""
    return _laid_down(_readable(source, chunk.size), chunk, path, offset)


def _laid_down(pieces: Iterable[Buffer], chunk: ChunkRef, path: Path, offset: int) -> bool:
    """False: they are not this chunk. Never past its end: what lies there is another's."""
    target = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        check = Check(chunk)
        for piece in pieces:
            if not check.update(piece):
                return False
            write_all(target, offset, piece)
            offset += len(piece)
    finally:
        os.close(target)
    return check.holds()


def _readable(source: Path, size: int) -> Iterator[memoryview]:
    """Its pieces, as far as it can be read; none if it has another size."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(handle).st_size == size:
            yield from pieces_of(handle, 0, size)
    except OSError:  # a generator hears nothing of what its reader meets
        return
    finally:
        os.close(handle)
