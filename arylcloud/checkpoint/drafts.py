"""A checkpoint that is brought near while it is still being sent: upload and restore side by side.

On a drain, the machine that saves says which chunks are in the store already (``Announcer``), and one that
waits to go on from it fetches those that it has not near (``Copy``). When the manifest is there, only what is
missing is fetched. Nothing depends on it: a draft that is lost, late, damaged or of another checkpoint costs
time. Of a copy nothing is used but what the manifest names, by digest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from arylcloud.checkpoint.chunks import MAX_CHUNK_BYTES, SourceFile, spans, storable
from arylcloud.checkpoint.manifest import MAX_FILES, storable_folder, well_formed
from arylcloud.checkpoint.restore import THREADS, Near, fetch, local_chunk, offsets, parallel, write_at
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import ChunkRef, Manifest
from arylcloud.core.protocol_parts import Draft, DraftChunk, DraftFile, draft_key

EVERY_S = 0.1
BATCH = 16
"""Chunks in a draft, at least, unless it is time."""


class Announcer:
    """Of one drain's uploads, one at a time. ``sent`` may be called from any thread."""

    def __init__(self, store: ObjectStore, *, job_id: str, epoch: int) -> None:
        """``epoch``: the drain's."""
        self._store = store
        self._job_id = job_id
        self._epoch = epoch
        self._number = 1
        self._lock = threading.Lock()
        self._publishing = False
        self._directory = ""
        self._chunk_bytes = 0
        self._files: tuple[DraftFile, ...] | None = None
        self._index: dict[str, int] = {}
        self._pending: list[DraftChunk] = []
        self._said_s = 0.0
        self.problem: StoreError | None = None
        """Why no more drafts are written: the manifest will say it all."""

    @property
    def epoch(self) -> int:
        return self._epoch

    def begin(self, directory: str, files: Sequence[SourceFile], chunk_bytes: int) -> None:
        with self._lock:
            self._directory, self._chunk_bytes = directory, chunk_bytes
            self._files = tuple(DraftFile(path=file.name, size=file.size) for file in files)
            self._index = {file.name: number for number, file in enumerate(files)}
            self._pending = []
            self._said_s = time.monotonic()

    def sent(self, file: SourceFile, offset: int, chunk: ChunkRef) -> None:
        """This chunk is in the store. Writes a draft now and then; never raises for the store."""
        with self._lock:
            if self.problem is not None:
                return
            number = self._index[file.name]
            self._pending.append(DraftChunk(file=number, offset=offset, ref=chunk))
            due = len(self._pending) >= BATCH or time.monotonic() - self._said_s >= EVERY_S
            if not due or self._publishing:
                return
            self._publishing = True
            draft = Draft(
                job_id=self._job_id,
                epoch=self._epoch,
                number=self._number,
                directory=self._directory,
                chunk_bytes=self._chunk_bytes,
                files=self._files,
                chunks=tuple(self._pending),
            )
            self._files, self._pending = None, []
        try:
            number = self._publish(draft)
        except StoreError as error:
            with self._lock:
                self.problem, self._publishing = error, False
            return
        with self._lock:
            self._number, self._said_s, self._publishing = number + 1, time.monotonic(), False

    def _publish(self, draft: Draft) -> int:
        """Under the first free number from its own on: an agent before this one may have used some."""
        while not self._store.create(draft_key(draft.epoch, draft.number), dumps(draft)):
            draft = replace(draft, number=draft.number + 1)
        return draft.number


class Copy:
    """What is near of one drain's newest checkpoint. Not for two threads at once.

    Each checkpoint has a folder of its own, named by the draft that began it: one that is complete is
    somebody's ``Near``, and is not touched again."""

    def __init__(self, store: ObjectStore, folder: Path, *, job_id: str, epoch: int) -> None:
        """``folder``: ours alone; what lies there goes with the first draft."""
        self._store = store
        self.folder = folder
        self._root: Path | None = None
        """Of the one that is under way."""
        self._done: str | None = None
        """Directory of the one that was completed last."""
        self._near: Near | None = None
        self._known: dict[tuple[str, int], ChunkRef] = {}
        """Chunks of ``_near``, by where they are."""
        self._job_id = job_id
        self.epoch = epoch
        self._number = 1
        self._directory = ""
        self._files: tuple[DraftFile, ...] = ()
        self._chunk_bytes = 0
        self._have: dict[tuple[str, int], ChunkRef] = {}
        self.begun_s = time.monotonic()
        """When the oldest of what it has was verified, or before."""
        self.early = self.late = 0
        """How many of the manifest's chunks were here before it, and how many came after."""

    def look(self, progress: Callable[[int], None], near: Near | None = None) -> bool:
        """Fetch what the next draft names and ``near`` has not; False = there is none yet. ``progress`` is
        called with the bytes of each chunk, from any thread; what it raises ends this. Raises IntegrityError
        (what these drafts say makes no sense, or there is no room for it), StoreError, OSError."""
        if not self._number:
            return False
        key = draft_key(self.epoch, self._number)
        data = self._store.get(key)
        if data is None:
            return False
        draft = loads(Draft, data, what=key)
        if (draft.job_id, draft.epoch, draft.number) != (self._job_id, self.epoch, self._number):
            raise IntegrityError(f"{key} is the draft of something else")
        self._has_near(near)
        if draft.files is not None:
            self._begin(draft, draft.files, key)
        elif self._root is None and draft.directory == self._done:
            self._number += 1
            return True
        if (draft.directory, draft.chunk_bytes) != (self._directory, self._chunk_bytes):
            raise IntegrityError(f"{key} goes on with what was not begun")
        placed = dict(self._placed(chunk, key) for chunk in draft.chunks)

        def bring(piece: tuple[tuple[str, int], ChunkRef]) -> None:
            # one that is not there, or not whole: ``complete`` looks again, and says what is wrong
            with contextlib.suppress(IntegrityError):
                self._bring(*piece)
            progress(piece[1].size)

        parallel(bring, [(at, c) for at, c in placed.items() if not self._has(at, c)], THREADS)
        self._number += 1
        return True

    def give_up(self) -> None:
        """No draft of this drain is looked for again, nor anything of it used but what is complete."""
        self._number = 0
        self._drop()

    def complete(
        self, manifest: Manifest, progress: Callable[[int], None] | None = None, near: Near | None = None
    ) -> Near | None:
        """The whole of ``manifest``, verified; None: this is a copy of something else. From then on it is the
        caller's, and later drafts begin another. Raises as ``restore`` does."""
        sizes = {file.path: file.size for file in manifest.files}
        root = self._root
        if (
            root is None
            or manifest.directory != self._directory
            or sizes != {f.path: f.size for f in self._files}
        ):
            return None
        wanted: dict[tuple[str, int], ChunkRef] = {}
        for file in manifest.files:
            # cut as the drafts were: what is written here overlaps nothing that is there
            cut = list(spans(file.size, self._chunk_bytes))
            if [length for _, length in cut] != [chunk.size for chunk in file.chunks]:
                return None
            wanted |= {(file.path, at): chunk for (at, _), chunk in zip(cut, file.chunks, strict=True)}

        self._has_near(near)

        def bring(piece: tuple[tuple[str, int], ChunkRef]) -> None:
            self._bring(*piece)
            if progress is not None:
                progress(piece[1].size)

        late = [(at, chunk) for at, chunk in wanted.items() if not self._has(at, chunk)]
        self.early, self.late = len(wanted) - len(late), len(late)
        parallel(bring, late, THREADS)
        found = Near(manifest=manifest, folder=root / self._directory, trusted=True)
        self._root, self._done = None, self._directory
        self._drop()
        return found

    def _has(self, at: tuple[str, int], chunk: ChunkRef) -> bool:
        """By both its digests: what a draft says is believed in nothing, and one of them was checked."""
        have = self._have.get(at)
        return have is not None and have == chunk and have.blake3 == chunk.blake3

    def _drop(self) -> None:
        """What is under way."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        self._root, self._directory, self._files, self._have = None, "", (), {}

    def _has_near(self, near: Near | None) -> None:
        if near is not None and (self._near is None or near.manifest != self._near.manifest):
            self._known = {
                (file.path, at): chunk for file in near.manifest.files for at, chunk in offsets(file).items()
            }
        self._near = near

    def _bring(self, at: tuple[str, int], chunk: ChunkRef) -> None:
        assert self._root is not None
        path = self._root / self._directory / at[0]

        self._have.pop(at, None)  # cut off half-way, it is neither
        data = None
        if self._near is not None and self._known.get(at) == chunk:
            data = local_chunk(self._near.folder / at[0], at[1], chunk)
        if data is not None:
            write_at(path, at[1], data)
        else:
            fetch(self._store, chunk, path, at[1])
        self._have[at] = chunk

    def _begin(self, draft: Draft, files: tuple[DraftFile, ...], key: str) -> None:
        directory = draft.directory
        paths = [file.path for file in files]
        parents = {"/".join(p.split("/")[:n]) for p in paths for n in range(1, p.count("/") + 1)}
        sound = storable_folder(directory) and len(files) <= MAX_FILES and len(set(paths)) == len(paths)
        sound = sound and 0 < draft.chunk_bytes <= MAX_CHUNK_BYTES and not parents & set(paths)
        if not sound or not all(storable(f.path) and f.size >= 0 for f in files):
            raise IntegrityError(f"{key} names files that cannot be")
        if self._root is None and self._done is None:  # of an agent before this one
            shutil.rmtree(self.folder, ignore_errors=True)
        self._drop()
        root = self._root = self.folder / f"{draft.number:06d}"
        root.mkdir(parents=True)
        if sum(file.size for file in files) > shutil.disk_usage(root).free:
            raise IntegrityError(f"{key}: no room for what it names")
        for file in files:
            path = root / directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.truncate(handle, file.size)
            finally:
                os.close(handle)
        self._directory, self._files, self._chunk_bytes = directory, files, draft.chunk_bytes
        self.begun_s = time.monotonic()

    def _placed(self, chunk: DraftChunk, key: str) -> tuple[tuple[str, int], ChunkRef]:
        """Where it belongs, and what."""
        known = 0 <= chunk.file < len(self._files)
        size = self._files[chunk.file].size if known else 0
        cut = 0 <= chunk.offset < size and chunk.offset % self._chunk_bytes == 0
        if not cut or chunk.ref.size != min(self._chunk_bytes, size - chunk.offset):
            raise IntegrityError(f"{key} names a chunk that cannot be")
        if not well_formed(chunk.ref):
            raise IntegrityError(f"{key} names a chunk that cannot be")
        return (self._files[chunk.file].path, chunk.offset), chunk.ref
