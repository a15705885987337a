"""From a finished checkpoint folder to a committed manifest: chunks first, in parallel, manifest last.

Unchanged chunks travel once. A chunk is skipped only if somebody vouches for it: this uploader has
written it itself, for its last commit or, a short while ago, for an upload that failed since; or it belongs
to the manifest that this machine restored (and so has read and verified); and only if the store still lists
it with the right size. Any other chunk is written, over what may lie there: the same bytes again if it was
sound, a repair if it had been damaged at rest. That is also what makes pruning safe (``retention.py``, rules
3 and 4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arylcloud.checkpoint.chunks import (
    CHUNK_BYTES,
    SourceFile,
    changed,
    read_span,
    scan,
    spans,
)
from arylcloud.checkpoint.digests import named
from arylcloud.checkpoint.drafts import Announcer
from arylcloud.checkpoint.incoming import Incoming
from arylcloud.checkpoint.manifest import listed_manifests, manifest_bytes, seal, storable_folder
from arylcloud.checkpoint.retention import GRACE_S, SETTLE_S
from arylcloud.checkpoint.store import unreadable
from arylcloud.checkpoint.storetime import store_now_s
from arylcloud.core.clock import Clock
from arylcloud.core.errors import ConflictError, UsageError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, ChunkRef, FileEntry, Manifest, chunk_key

THREADS = 8


class Uploader:
    """One machine's way of committing checkpoints of one job. Not for two threads at once."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        base: Manifest | None = None,
        threads: int = THREADS,
        chunk_bytes: int = CHUNK_BYTES,
        grace_s: float = GRACE_S,
    ) -> None:
        """``store``: the job's prefix. ``base``: the manifest that this machine has restored.
        ``grace_s``: that of whoever prunes."""
        self._store = store
        self._threads = threads
        self._chunk_bytes = chunk_bytes
        self._grace_s = grace_s
        self._vouched: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        """Sizes of chunks that uploads since the last commit have written where there was none, by digest."""
        self._doubtful: set[str] = set()
        """Chunks that failed uploads have written over others: those may have been old, and a pruner at work
        may have them on its list."""
        self.uploaded_bytes = 0
        """Of chunks, over this uploader's life: what the network has seen."""
        if base is not None:
            self.vouch(base)

    def vouch(self, manifest: Manifest) -> None:
        """Its chunks have been read and verified here: they need not be written again."""
        self._vouched = {c.sha256: c.size for file in manifest.files for c in file.chunks}
        self._sent.clear()

    def commit(
        self,
        directory: Path,
        *,
        job_id: str,
        lease_id: str,
        epoch: int,
        number: int,
        step: int,
        saved_at_s: float,
        clock: Clock,
        progress: Callable[[int], None] | None = None,
    ) -> Manifest:
        """Upload ``directory`` and commit it as manifest ``number`` of ``epoch``.

        ``progress`` is called with the bytes of each chunk done, from any thread; what it raises
        ends the upload. Nothing is committed unless this returns. Raises IntegrityError if a file
        changes meanwhile, UsageError for what cannot be kept (see ``chunks.scan``), ConflictError if
        the manifest exists already with other content, StoreError; may be called again after any.
        """
        entries = self.send(directory, name=directory.name, clock=clock, progress=progress)
        return self.write_manifest(
            entries,
            job_id=job_id,
            lease_id=lease_id,
            epoch=epoch,
            number=number,
            step=step,
            saved_at_s=saved_at_s,
            directory=directory.name,
            clock=clock,
        )

    def send(
        self,
        directory: Path,
        *,
        name: str,
        clock: Clock,
        progress: Callable[[int], None] | None = None,
        announcer: Announcer | None = None,
    ) -> tuple[FileEntry, ...]:
        """The first half of ``commit``: every chunk of ``directory`` is in the store. ``name``: what the
        checkpoint's folder is called, wherever its files lie now. ``announcer`` tells others of each."""
        files = _scan(directory)
        if not storable_folder(name):
            raise UsageError(f"{name!r} cannot be the name of a checkpoint", hint="use step-N")
        if not files:
            raise UsageError(f"the checkpoint {name} is empty")
        if announcer is not None:
            announcer.begin(name, files, self._chunk_bytes)
        entries = self._upload(files, progress, clock, announcer)
        _check_unchanged(directory, name, files)
        return entries

    def write_manifest(
        self,
        files: tuple[FileEntry, ...],
        *,
        job_id: str,
        lease_id: str,
        epoch: int,
        number: int,
        step: int,
        saved_at_s: float,
        directory: str,
        clock: Clock,
    ) -> Manifest:
        """The second half: the commit. Every chunk of ``files`` must be in the store, by whomever."""
        manifest = seal(
            Manifest(
                job_id=job_id,
                lease_id=lease_id,
                epoch=epoch,
                number=number,
                step=step,
                saved_at_s=saved_at_s,
                committed_at_s=clock.now_s(),
                directory=directory,
                files=files,
                total_bytes=sum(file.size for file in files),
                digest="",
            )
        )
        data = manifest_bytes(manifest)
        # a create whose answer was lost is sent again and then finds itself
        if not self._store.create(manifest.key, data) and self._store.get(manifest.key) != data:
            raise ConflictError(
                f"{manifest.key} exists already: another agent has committed in this epoch",
                hint="only rank 0 of the newest epoch commits checkpoints",
            )
        self.vouch(manifest)
        return manifest

    def missing(self, files: Iterable[FileEntry]) -> set[str]:
        """Digests of chunks that the store does not list with their size."""
        listed = self._listed()
        wanted = {chunk.sha256: chunk.size for file in files for chunk in file.chunks}
        return {d for d, size in wanted.items() if d not in listed or listed[d].size != size}

    def _upload(
        self,
        files: tuple[SourceFile, ...],
        progress: Callable[[int], None] | None,
        clock: Clock,
        announcer: Announcer | None,
    ) -> tuple[FileEntry, ...]:
        listed = self._listed()
        present = {d for d, size in self._vouched.items() if d in listed and listed[d].size == size}
        begun = {d for d, size in self._sent.items() if d in listed and listed[d].size == size} - present
        begun -= self._old(begun, listed)
        work = _Work(self._store, present | begun, progress, announcer)
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="upload")
        try:
            pending = [
                [pool.submit(work.chunk, file, *span) for span in spans(file.size, self._chunk_bytes)]
                for file in files
            ]
            entries = tuple(
                FileEntry(
                    path=file.name,
                    size=file.size,
                    mode=file.mode,
                    chunks=tuple(future.result() for future in futures),
                )
                for file, futures in zip(files, pending, strict=True)
            )
        finally:
            pool.shutdown(cancel_futures=True)
            self.uploaded_bytes += work.uploaded_bytes
            self._sent.update((d, size) for d, size in work.sent.items() if d not in listed)
            doubtful, self._doubtful = self._doubtful, self._doubtful | (work.written & listed.keys())
        self._settle(work, listed, begun, doubtful, clock)
        self._doubtful -= work.sources.keys()
        return entries

    def _old(self, digests: set[str], listed: dict[str, ObjectInfo]) -> set[str]:
        """Those that a pruner may come to take before long, by the store's clock."""
        if not digests:
            return set()
        before_s = store_now_s(self._store) - self._grace_s / 2
        return {d for d in digests if d in listed and listed[d].modified_s < before_s}

    def _listed(self) -> dict[str, ObjectInfo]:
        return {info.key.rpartition("/")[2]: info for info in self._store.list(CHUNKS_PREFIX)}

    def _settle(
        self,
        work: _Work,
        before: dict[str, ObjectInfo],
        begun: set[str],
        doubtful: set[str],
        clock: Clock,
    ) -> None:
        """See that every chunk is there, once more, and write again what is not: a pruner with a wrong
        clock, or a person, may have taken it. Those, and chunks that were old when they were written
        again, may be on the list of a pruner at work just now: see it end, and look again. Rare.
        So may those that an upload before this one had written (``begun``), if this one took long and
        somebody has committed since: they are written once more."""
        listed = self._listed()
        gone = work.sources.keys() - listed.keys()
        if aged := self._old(begun & work.sources.keys(), listed):
            newest_s = max((m.modified_s for m in listed_manifests(self._store)), default=float("-inf"))
            gone |= {d for d in aged if listed[d].modified_s <= newest_s}
        # ages by the store's own clock: what we have just written says what time it is there
        now_s = max((listed[d].modified_s for d in work.written & listed.keys()), default=0.0)
        old = {d for d in work.written & before.keys() if before[d].modified_s < now_s - self._grace_s / 2}
        unsure = gone | old | (doubtful & work.sources.keys())
        self._doubtful |= unsure  # should this fail
        for digest in unsure:
            self._sent.pop(digest, None)
        while unsure:
            for digest in gone:
                work.put(*work.sources[digest])
            clock.sleep(SETTLE_S)
            gone = unsure - self._listed().keys()
            unsure = gone


def _check_unchanged(directory: Path, name: str, before: tuple[SourceFile, ...]) -> None:
    after = {file.name: file for file in _scan(directory)}
    for file in before:
        if file.name not in after or not file.same(after.pop(file.name)):
            raise changed(f"{name}/{file.name}")
    if after:
        raise changed(f"{name}/{min(after)}")


def _scan(directory: Path) -> tuple[SourceFile, ...]:
    try:
        return scan(directory)
    except FileNotFoundError as error:  # the training has pruned it, or somebody else
        raise changed(directory.name) from error
    except OSError as error:
        raise unreadable(error, f"cannot read the checkpoint {directory}") from error


class _Work:
    """What the threads of one upload share."""

    def __init__(
        self,
        store: ObjectStore,
        present: set[str],
        progress: Callable[[int], None] | None,
        announcer: Announcer | None,
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._incoming = Incoming.of(store)
        self._unchanged = False
        """The last chunk was there already: the next one is looked at before it is written."""
        self._done = present
        self._progress = progress
        self._lock = threading.Lock()
        self.uploaded_bytes = 0
        self.sources: dict[str, tuple[SourceFile, int, int]] = {}
        """By digest: where each chunk comes from."""
        self.sent: dict[str, int] = {}
        """Sizes of those that are in the store, by digest."""
        self.written: set[str] = set()
        """Digests of those that this upload wrote."""

    def chunk(self, file: SourceFile, offset: int, length: int) -> ChunkRef:
        if self._incoming is not None and not self._unchanged and self._incoming.ample(length):
            chunk, kept = self._incoming.bring(
                file, offset, length, lambda chunk: self._new(chunk.sha256, file, offset, length)
            )
            if kept:
                self._written(chunk)
        else:
            chunk, data = self._read(file, offset, length)
            if self._new(chunk.sha256, file, offset, length):
                if self._incoming is not None:
                    self._incoming.fits(length)
                self._write(chunk, data)
        if self._progress is not None:
            self._progress(length)
        if self._announcer is not None:
            self._announcer.sent(file, offset, chunk)
        return chunk

    def put(self, file: SourceFile, offset: int, length: int) -> None:
        self._write(*self._read(file, offset, length))

    def _read(self, file: SourceFile, offset: int, length: int) -> tuple[ChunkRef, bytes]:
        try:
            data = read_span(file, offset, length)
        except FileNotFoundError as error:
            raise changed(file.name) from error
        except OSError as error:
            raise unreadable(error, f"cannot read {file.path}") from error
        # by whichever way a chunk goes to a store: what is unchanged is to be told by both its digests
        return named(data, quick=self._incoming is None), data

    def _new(self, digest: str, file: SourceFile, offset: int, length: int) -> bool:
        """Is it to be written, by whoever asks first?"""
        with self._lock:
            known = digest in self._done
            self._done.add(digest)  # the same chunk twice in one checkpoint travels once
            self.sources.setdefault(digest, (file, offset, length))
            if not known:
                self.written.add(digest)
            self._unchanged = known
            return not known

    def _write(self, chunk: ChunkRef, data: bytes) -> None:
        self._store.put(chunk_key(chunk.sha256), data)
        self._written(chunk)

    def _written(self, chunk: ChunkRef) -> None:
        with self._lock:
            self.uploaded_bytes += chunk.size
            self.sent[chunk.sha256] = chunk.size
