"""From a manifest to the checkpoint's folder: every byte verified, all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from arylcloud.checkpoint.chunks import sha256
from arylcloud.checkpoint.manifest import list_manifests, next_number, read_manifest
from arylcloud.checkpoint.store import Buffer, LocalStoreError, map_error, view
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import ChunkRef, FileEntry, Manifest, chunk_key

__all__ = ["list_manifests", "next_number", "prefetch", "read_manifest", "restore"]

THREADS = 8
_T = TypeVar("_T")
_R = TypeVar("_R")
_TEMPORARY = ".restore-"


def restore(
    store: ObjectStore,
    manifest: Manifest,
    target: Path,
    *,
    cache: Path | None = None,
    threads: int = THREADS,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Put ``manifest`` (as ``read_manifest`` gave it) at ``target / manifest.directory``; return that path.

    Chunks come from ``cache`` where they are there and sound, or from what lies at that path already (a
    rank's own part of a sharded checkpoint), else from the store (the job's prefix).
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
        _room(target, manifest)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=target))
        try:
            _fill(temporary, store, manifest, cache, threads, progress, final)
            if final.is_symlink() or final.exists():
                final.rename(temporary / ".replaced")
            (temporary / "new").rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise map_error(error, f"cannot restore into {target}") from error
    return final


def prefetch(
    store: ObjectStore,
    manifest: Manifest,
    cache: Path,
    *,
    threads: int = THREADS,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Bring every chunk of ``manifest`` into ``cache``, verified; returns the bytes fetched now.
    Chunks of ``cache`` that are not in ``manifest`` are removed. Idempotent; raises as ``restore``."""
    wanted = {c.sha256: c for file in manifest.files for c in file.chunks}

    def fetch(chunk: ChunkRef) -> int:
        if _cached(cache, chunk) is not None:
            return 0
        data = _stored(store, chunk)
        path = _cache_path(cache, chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{threading.get_ident()}.part")
        partial.write_bytes(data)
        partial.replace(path)
        if progress is not None:
            progress(len(data))
        return len(data)

    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in cache.glob("??/*"):
            if path.name not in wanted:
                path.unlink()
        return sum(_parallel(fetch, wanted.values(), threads))
    except OSError as error:
        raise map_error(error, f"cannot keep chunks in {cache}") from error


def _room(target: Path, manifest: Manifest) -> None:
    """A manifest may name one chunk a million times: it is not to fill the disk before that is noticed."""
    free = shutil.disk_usage(target).free
    if manifest.total_bytes > free:
        sizes = f"{manifest.total_bytes / 1e9:.1f} GB in {target}, {free / 1e9:.1f} are free"
        raise LocalStoreError(
            f"{manifest.key} needs {sizes}",
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
            return all(sha256(source.read(chunk.size)) == chunk.sha256 for chunk in file.chunks)
    except PermissionError:
        return False


def _fill(
    temporary: Path,
    store: ObjectStore,
    manifest: Manifest,
    cache: Path | None,
    threads: int,
    progress: Callable[[int], None] | None,
    present: Path,
) -> None:
    root = temporary / "new"
    root.mkdir()
    pieces: list[tuple[Path, int, ChunkRef, Path | None]] = []
    for file in manifest.files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        # the folder is new and ours: O_EXCL | O_NOFOLLOW hold that nothing in it leads elsewhere
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(handle)
        offset, local = 0, present / file.path
        here = local if _size(local) == file.size else None
        for chunk in file.chunks:
            pieces.append((path, offset, chunk, here))
            offset += chunk.size

    def write(piece: tuple[Path, int, ChunkRef, Path | None]) -> None:
        path, offset, chunk, here = piece
        data: Buffer | None = _cached(cache, chunk) if cache is not None else None
        if data is None and here is not None:
            data = _present(here, offset, chunk)
        if data is None:
            data = _stored(store, chunk)
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(handle, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(handle)
        if progress is not None:
            progress(chunk.size)

    _parallel(write, pieces, threads)
    for file in manifest.files:
        (root / file.path).chmod(file.mode)
    # older than the rename to come: a folder whose ctime is newer than its mtime was renamed into
    # place, which is how arylcloud.training tells a finished checkpoint
    os.utime(root, (manifest.saved_at_s, manifest.saved_at_s))


def _parallel(work: Callable[[_T], _R], items: Iterable[_T], threads: int) -> list[_R]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="restore")
    try:
        return [future.result() for future in [pool.submit(work, item) for item in items]]
    finally:
        pool.shutdown(cancel_futures=True)


def _cache_path(cache: Path, chunk: ChunkRef) -> Path:
    return cache / chunk.sha256[:2] / chunk.sha256


def _cached(cache: Path, chunk: ChunkRef) -> bytes | None:
    """The chunk if the cache has it and it is sound; a damaged one is fetched again."""
    try:
        data = _cache_path(cache, chunk).read_bytes()
    except FileNotFoundError:
        return None
    return data if _sound(data, chunk) else None


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def _present(path: Path, offset: int, chunk: ChunkRef) -> bytes | None:
    """The chunk if this file has it there."""
    try:
        with path.open("rb") as source:
            source.seek(offset)
            data = source.read(chunk.size)
    except OSError:
        return None
    return data if _sound(data, chunk) else None


def _stored(store: ObjectStore, chunk: ChunkRef) -> Buffer:
    key = chunk_key(chunk.sha256)
    data = view(store, key)
    if data is None:
        raise IntegrityError(f"{key} is missing", code="missing")
    if not _sound(data, chunk):
        raise IntegrityError(f"{key} is damaged: its digest does not hold", code="digest")
    return data


def _sound(data: Buffer, chunk: ChunkRef) -> bool:
    return len(data) == chunk.size and sha256(data) == chunk.sha256
