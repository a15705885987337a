"""Checkpoints of the running command to the store: what is complete is committed, the newest first.

The training goes on meanwhile, and may save and prune as it likes: what is sent is held by hard links
(``checkpoint/snapshot``), one checkpoint at a time. Saves that come faster than uploads are overtaken, never
queued. A checkpoint of which every rank has a part is brought together by ``agent/gather``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from arylcloud.agent.gather import Contributor, Gang, Gathering, Patience, call, own_part
from arylcloud.agent.inotify import Renames
from arylcloud.agent.saved import (
    COMPLETE,
    UNWATCHED,
    Saved,
    complete,
    drop_sending,
    keep_only,
    stale,
    step_of,
)
from arylcloud.agent.sending import OvertakenError, Sender
from arylcloud.agent.shipper import one_line
from arylcloud.checkpoint.restore import next_number
from arylcloud.checkpoint.sharding import SHARDED, sharded, union
from arylcloud.core.clock import Clock
from arylcloud.core.errors import ConflictError, IntegrityError, StoreError, UsageError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import FileEntry, Manifest

__all__ = ["COMPLETE", "CheckpointSync", "Saved", "SyncStatus", "complete", "keep_only"]
SCAN_S = 0.2
PARTS_SAID_S = 10.0
"""So long other ranks' parts are waited for in silence."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    committed: str | None = None
    committed_step: int | None = None
    upload_s: float | None = None
    saved_epoch: int = 0
    """Newest epoch whose final checkpoint is in (see ``finish``)."""
    problem: str | None = None
    """Why the newest commit has not gone through yet."""
    uploading_step: int | None = None
    skipped: int = 0
    """Saves of this epoch that a newer one overtook."""


class CheckpointSync(threading.Thread):
    """One background thread: scan, commit, repeat. A failed upload is tried again for ever, slower
    and slower; it never touches the command."""

    def __init__(
        self,
        store: ObjectStore,
        folder: Path,
        *,
        job_id: str,
        lease_id: str,
        clock: Clock,
        log: Callable[[str], None],
        pace: float = 1.0,
    ) -> None:
        super().__init__(name="sync", daemon=True)
        self._store = store
        self._folder = folder
        self._job_id = job_id
        self._lease_id = lease_id
        self._clock = clock
        self._log = log
        self._poll_s = SCAN_S * pace
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._halt = threading.Event()
        self._hasty = False
        self._status = SyncStatus()
        self._gang: Gang | None = None
        self._final: int | None = None
        self._patient = False
        self._last: Patience | None = None
        """For all steps that are pending when the command is gone."""
        self._number: int | None = None
        self._calls = 1
        self._gathering: tuple[Saved, Gathering] | None = None
        self._silenced: dict[int, tuple[int, float]] = {}
        self._contributor: Contributor | None = None
        me = weakref.ref(self)  # no cycle: the folder's watch goes with its last owner, at once
        newest = lambda: None if (found := me()) is None else found._newest()  # noqa: E731
        self._sender = Sender(store, job_id=job_id, clock=clock, newest=newest)
        self._passed_over: set[tuple[str, float]] = set()
        self._unheard: set[tuple[str, float]] = set()  # for a silent rank, waited for once all is done
        self._mentioned: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        drop_sending(folder)
        self._renames = Renames(folder)

    @property
    def status(self) -> SyncStatus:
        with self._lock:
            return self._status

    def saved(self) -> list[Saved]:
        """The complete ones on this disk, in order of step. May be asked from another thread."""
        return complete(self._folder, self._renames.names())

    def resume(self, manifest: Manifest | None) -> None:
        """Before the command starts: what lies in the folder is this manifest (None: nothing)."""
        with self._lock:
            self._sender.vouch(manifest)
            self._status = replace(
                self._status,
                committed=manifest.key if manifest is not None else None,
                committed_step=manifest.step if manifest is not None else None,
                problem=None,
            )

    def begin(self, epoch: int, *, rank: int = 0, leases: tuple[str, ...] = ()) -> None:
        """From now on, commit this epoch's checkpoints, or have a part in them. ``leases``: of all its
        ranks, in order; empty = there is but this one."""
        with self._lock:
            self._gang = Gang(job_id=self._job_id, epoch=epoch, rank=rank, leases=leases)
            self._final, self._number, self._calls, self._gathering = None, None, 1, None
            self._patient, self._silenced, self._last = False, {}, None
            self._contributor = Contributor(store=self._store, gang=self._gang) if rank else None
            self._status = replace(self._status, skipped=0)
            self._passed_over, self._unheard = set(), set()

    def finish(self, epoch: int, *, commits: bool, finished: bool = False) -> None:
        """The command is gone: once its newest complete checkpoint is in, say ``saved_epoch``.
        ``commits``: this machine is the one that commits (rank 0); another has to send the part that it
        may have. ``finished``: the command has done its work, and no later save will come."""
        with self._lock:
            self._patient, self._last = finished, Patience()
            if commits or self._contributor is not None:
                self._final = epoch
            else:
                self._status = replace(self._status, saved_epoch=epoch)
        self._wake.set()

    def hurry(self, left_s: float) -> None:
        """The cloud takes this machine in ``left_s``."""
        self._sender.hurry(left_s)

    def draining(self, epoch: int | None) -> None:
        """The drain that this machine is asked to answer, if the newest epoch is one. A job waits then."""
        self._sender.draining(epoch)
        self._hasty = epoch is not None

    def stop(self) -> None:
        self._halt.set()
        self._wake.set()

    def run(self) -> None:
        wait_s = self._poll_s
        while not self._halt.is_set():
            try:
                poll_s = self._poll_s / 4 if self._hasty else self._poll_s
                wait_s = poll_s if self._turn() else min(10.0, max(0.5, wait_s * 2))
            except Exception as error:  # noqa: BLE001 - an error here must not end the thread, nor the job
                self._fail(f"checkpoints are not being committed: {one_line(error)}")
                wait_s = min(10.0, max(0.5, wait_s * 2))
            self._wake.wait(wait_s)
            self._wake.clear()

    def _turn(self) -> bool:
        """Bring the newest complete checkpoint forward. False = it did not go through."""
        with self._lock:
            gang, final, contributor = self._gang, self._final, self._contributor
        if gang is None:
            return True
        try:
            busy = self._lead(gang, final) if contributor is None else self._follow(contributor, final)
        except StoreError as error:
            self._fail(f"checkpoints wait for the store: {error.message}")
            return False
        except ConflictError as error:
            self._number = None  # somebody else's number, or our own lost answer: look again
            self._fail(error.message)
            return False
        finally:
            self._note(uploading_step=None)
        if busy:
            return True
        self._mention_incomplete()
        with self._lock:
            # what became complete while the last upload ran is seen by a scan after ``finish``
            if final is not None and final == self._final:
                self._status = replace(self._status, saved_epoch=final)
                self._gang = self._final = self._contributor = None
        return True

    # ------------------------------------------------------------ rank 0

    def _lead(self, gang: Gang, final: int | None) -> bool:
        """False = there is nothing to be done."""
        fresh = self._fresh()
        if self._gathering is not None:
            saved, gathering = self._gathering
            if final is None or not any(s.step > saved.step for s in fresh):
                return self._gather(saved, gathering, gang)
            self._gathering = None  # the last one comes first; it may still be gone back to
        if not fresh:
            return False
        saved = fresh[-1]
        together = len(gang.leases) > 1 and sharded(saved.path)
        if together:
            self._calls = call(self._store, gang, self._calls, saved.step)
        files = self._try(saved, lambda: self._send(saved, whole=not together))
        self._wake.set()  # look again at once
        if files is None:
            return True
        if not together:
            self._try(saved, lambda: self._commit(saved, files, gang))
            return True
        if (own := self._try(saved, lambda: own_part(self._store, gang, saved, files))) is None:
            return True
        gathering = Gathering(
            store=self._store,
            gang=gang,
            step=saved.step,
            directory=saved.path.name,
            own=own,
            clock=self._clock,
            silenced=self._silenced,
        )
        self._gathering = (saved, gathering)
        return self._gather(saved, gathering, gang)

    def _gather(self, saved: Saved, gathering: Gathering, gang: Gang) -> bool:
        if any(one.step == saved.step and one.key != saved.key for one in self.saved()):
            self._gathering = None  # saved anew meanwhile: others may have sent their part of either
            self._wake.set()
            return True
        if self._last is not None:
            gathering.patience = self._last
        finished = self._patient  # read once: the command may finish during the look
        gathering.look(patient=finished and self._sender.left_s() is None)
        if gathering.hopeless is None and not gathering.whole:
            if gathering.waited_s > PARTS_SAID_S:
                ranks = ", ".join(str(rank) for rank in gathering.missing)
                self._fail(f"{saved.path.name} waits for the part of rank {ranks}: has it a {SHARDED}?")
            self._wake.clear()
            return True
        if gathering.hopeless is not None:
            self._pass_over(saved, gathering.hopeless, silence=gathering.unheard and not finished)
        else:
            self._try(saved, lambda: self._commit_together(saved, gathering, gang))
        self._gathering = None
        self._wake.set()
        return True

    def _commit_together(self, saved: Saved, gathering: Gathering, gang: Gang) -> None:
        files = union(gathering.all_parts())
        if gone := self._sender.uploader.missing(files):
            raise IntegrityError(f"its chunk {min(gone)} is not in the store")
        self._commit(saved, files, gang)

    def _commit(self, saved: Saved, files: tuple[FileEntry, ...], gang: Gang) -> None:
        if self._number is None:
            self._number = next_number(self._store, gang.epoch)
        manifest = self._sender.uploader.write_manifest(
            files,
            job_id=self._job_id,
            lease_id=self._lease_id,
            epoch=gang.epoch,
            number=self._number,
            step=saved.step,
            saved_at_s=saved.saved_at_s,
            directory=saved.path.name,
            clock=self._clock,
        )
        self._number += 1
        upload_s = self._sender.took_s()
        skipped = self._overtaken_by(saved)
        self._note(
            committed=manifest.key,
            committed_step=manifest.step,
            upload_s=upload_s,
            problem=None,
            skipped=self.status.skipped + skipped,
        )
        size_mb = manifest.total_bytes / 1e6
        text = f"committed {saved.path.name} as {manifest.key} ({size_mb:.1f} MB in {upload_s:.2f} s)"
        if skipped:
            text += f"; {skipped} before it were overtaken: saves come faster than they can be sent"
        self._log(text)

    def _overtaken_by(self, saved: Saved) -> int:
        """How many between the last commit and this one were complete, and never sent."""
        before = self.status.committed_step
        known = {step_of(name) for name in self._renames.names()} | {s.step for s in self.saved()}
        return sum(1 for s in known if s is not None and (-1 if before is None else before) < s < saved.step)

    # ------------------------------------------------------------ other ranks

    def _follow(self, contributor: Contributor, final: int | None) -> bool:
        """Send what is called for; at the end, all that is not in a manifest yet, the newest first: this
        machine may be about to go. False = there is nothing to be done."""
        fresh = {s.step: s for s in self._fresh() if s.step not in contributor.answered and sharded(s.path)}
        if not fresh:
            return False
        if final is not None and (known := self._sender.catch_up(contributor.gang.epoch)) is not None:
            contributor.answered |= {step for step in fresh if step <= known}
            fresh = {step: saved for step, saved in fresh.items() if step > known}
            if not fresh:
                return False
        now_s = self._clock.monotonic_s()
        if final is None and contributor.wanted is None and not contributor.due(max(fresh), now_s):
            return True
        contributor.hear(now_s)
        newest, wanted = max(fresh), contributor.wanted
        if final is not None:
            chosen = newest
        elif wanted is None or wanted > newest:
            return True  # not called for; or it is not that far yet
        elif wanted not in fresh:
            contributor.decline(wanted, f"it has step-{newest}, and that one no more")
            return True
        else:
            chosen = wanted
            self._sender.catch_up(contributor.gang.epoch)
        saved = fresh[chosen]
        files = self._try(saved, lambda: self._send(saved, whole=False))
        if files is not None:
            self._try(saved, lambda: contributor.contribute(chosen, saved.path.name, files))
            self._note(upload_s=self._sender.took_s())
        if chosen not in contributor.answered and saved.key in self._passed_over:
            contributor.decline(chosen, self.status.problem or "it could not be sent")
        self._wake.set()
        return True

    # ------------------------------------------------------------ both

    def _fresh(self) -> list[Saved]:
        """Complete, newer than the last commit, and not passed over."""
        committed = self.status.committed_step
        passed_over = self._passed_over if self._patient else self._passed_over | self._unheard
        return [
            saved
            for saved in self.saved()
            if (committed is None or saved.step > committed) and saved.key not in passed_over
        ]

    def _newest(self) -> int | None:
        fresh = self._fresh()
        return fresh[-1].step if fresh else None

    def _send(self, saved: Saved, *, whole: bool) -> tuple[FileEntry, ...]:
        self._note(uploading_step=saved.step)
        return self._sender.send(saved, committed_step=self.status.committed_step, whole=whole)

    def _try(self, saved: Saved, work: Callable[[], _T]) -> _T | None:
        """What is wrong with this checkpoint alone passes over it; what is wrong with the store is raised."""
        try:
            return work()
        except OvertakenError:
            self._log(f"{saved.path.name} is left for a newer one: there is no time for both")
        except StoreError:  # a folder's error is a UsageError, too: full, read-only for a while
            raise
        except (IntegrityError, UsageError) as error:
            if saved.path.exists():  # else the training has pruned it: the next scan finds its successor
                self._pass_over(saved, error.message)
        return None

    def _pass_over(self, saved: Saved, why: str, *, silence: bool = False) -> None:
        """It will not get better by itself: passed over until it is written anew (see ``_unheard``)."""
        (self._unheard if silence else self._passed_over).add(saved.key)
        self._fail(f"{saved.path.name} cannot be committed: {why}")

    def _mention_incomplete(self) -> None:
        done = {saved.path.name for saved in self.saved()}
        for name in stale(self._folder, self._clock.now_s(), but=done | self._mentioned):
            self._mentioned.add(name)
            text = (
                f"{name} is not committed: it was neither renamed into place nor has it a {COMPLETE} file, "
                "so that nobody can know whether it is whole"
            )
            self._log(text if self._renames.watching else f"{text}; {UNWATCHED}")

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._status = replace(self._status, **changes)  # type: ignore[arg-type]

    def _fail(self, problem: str) -> None:
        with self._lock:
            known = self._status.problem
            self._status = replace(self._status, problem=problem)
        if problem != known:
            self._log(problem)
