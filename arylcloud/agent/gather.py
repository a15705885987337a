"""A sharded checkpoint brought together: rank 0 calls for a step, each rank sends its part, rank 0 commits.

All in the mailbox, create-only: ``call-000001.json`` names the step, ``<step>-r01.json`` is a rank's answer:
its files, or why it has none. A rank sends what is called for, and at the end of its command, uncalled, the
newest that it has: its machine may be about to go. Rank 0 gives a step up when a rank says that it has no
part of it, or has ended or fallen silent without one; the last step of a command that has finished not for
silence alone, as long as nobody goes on without that rank: no later step makes up for it. A part is never a
checkpoint: whoever restores reads manifests.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from arylcloud.agent.saved import Saved
from arylcloud.checkpoint.sharding import parse_part, part_bytes
from arylcloud.core.clock import Clock
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import FileEntry, Heartbeat, beat_key, end_key, epoch_key
from arylcloud.core.protocol_parts import Part, PartCall, part_call_key, part_key

SILENT_S = 10.0
"""A rank whose heartbeat has stood still for so long will send no part."""
MUTE_S = 5.0
"""If this machine's own heartbeat in the store has stood still for so long, nobody can write there: that of
others says nothing. (Above the pause between two heartbeats on a bucket.)"""
PATIENT_S = 300.0
"""So long silent ranks' parts of a *finished* command's last steps are waited for, of all of them together: a
rank may be cut off for a while, and what it has is all that is left to be had."""
LOOK_S = 1.0
"""Between two looks at heartbeats."""
LATE_CALL_S = 5.0
"""Between two looks for a call, where this rank has only steps before one that it has answered: it comes only
if that one was given up. (A look at what is not there yet is a list in some buckets, and paid for.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Who is in the epoch, and which of them this is."""

    job_id: str
    epoch: int
    rank: int = 0
    leases: tuple[str, ...] = ()
    """By rank; empty = this machine alone."""


def call(store: ObjectStore, gang: Gang, number: int, step: int) -> int:
    """Ask every rank for its part of ``step``, by call ``number`` or the first free one after it;
    returns the number after it. Raises StoreError."""
    while True:
        document = PartCall(epoch=gang.epoch, number=number, step=step)
        data, key = dumps(document), part_call_key(gang.epoch, number)
        number += 1
        # one whose answer was lost finds itself; another is of this rank's agent before it was restarted
        if store.create(key, data) or store.get(key) == data:
            return number


def called(store: ObjectStore, gang: Gang, after: int) -> PartCall | None:
    """The call after number ``after``; None: there is none yet. A damaged one calls for nothing that there
    is, and rank 0 finds the others ended. Raises StoreError."""
    key = part_call_key(gang.epoch, after + 1)
    data = store.get(key)
    if data is None:
        return None
    try:
        return loads(PartCall, data, what=key)
    except IntegrityError:
        return PartCall(epoch=gang.epoch, number=after + 1, step=-1)


def answer(
    store: ObjectStore,
    gang: Gang,
    step: int,
    *,
    directory: str,
    files: tuple[FileEntry, ...] = (),
    problem: str | None = None,
) -> None:
    """This rank's part of ``step``. Raises StoreError; IntegrityError if it has given another before."""
    part = Part(
        job_id=gang.job_id,
        epoch=gang.epoch,
        step=step,
        rank=gang.rank,
        lease_id=gang.leases[gang.rank],
        directory=directory,
        files=files,
        problem=problem,
    )
    key, data = part_key(gang.epoch, step, gang.rank), part_bytes(part)
    if not store.create(key, data) and store.get(key) != data:
        raise IntegrityError(f"{directory} was saved twice in this epoch, with different content")


def own_part(
    store: ObjectStore, gang: Gang, saved: Saved, files: tuple[FileEntry, ...]
) -> tuple[FileEntry, ...]:
    """Rank 0's part, said like every other rank's, so that a step which is saved anew after this, with other
    content, is found out: parts that ranks sent of the first would be mixed with parts of the second. What
    was only added to the folder since is no part of it. Raises as :func:`answer`."""
    try:
        answer(store, gang, saved.step, directory=saved.path.name, files=files)
    except IntegrityError:
        data = store.get(part_key(gang.epoch, saved.step, gang.rank))
        if data is None:
            raise
        said = parse_part(data, job_id=gang.job_id, epoch=gang.epoch, step=saved.step, rank=gang.rank).files
        if not said or not set(said) <= set(files):
            raise
        return said
    return files


@dataclass(slots=True)
class Patience:
    """What has been used up of ``PATIENT_S``: seconds in which ranks were waited for that were not heard."""

    used_s: float = 0.0

    @property
    def left(self) -> bool:
        return self.used_s < PATIENT_S

    def use(self, seconds: float) -> None:
        """Between two looks, each time. However long that was, ranks had no more than their usual time in it:
        the store may have been away."""
        self.used_s += min(seconds, SILENT_S)


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Rank 0's wait for the parts of one step. ``look`` until it is ``whole`` or ``hopeless``."""

    store: ObjectStore
    gang: Gang
    step: int
    directory: str
    own: tuple[FileEntry, ...]
    clock: Clock
    parts: dict[int, tuple[FileEntry, ...]] = field(default_factory=dict)
    hopeless: str | None = None
    """Why this step will never be whole."""
    unheard: bool = False
    """Only that a rank was not heard makes it so: it may be heard again."""
    silenced: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank: the heartbeat on which it fell silent, and how long it was waited for then. Of all steps of an
    epoch: one that says nothing more is not waited for anew."""
    patience: Patience = field(default_factory=Patience)
    """The last steps of a command share one."""
    _begun_s: float | None = None
    _looked_s: float | None = None
    _away_since_s: float | None = None
    """Since when (monotonic) the store has not answered."""
    _beats: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank: sequence number of the heartbeat, and since when (monotonic) it is that."""

    @property
    def missing(self) -> list[int]:
        return [rank for rank in range(1, len(self.gang.leases)) if rank not in self.parts]

    @property
    def whole(self) -> bool:
        return self.hopeless is None and not self.missing

    @property
    def waited_s(self) -> float:
        return 0.0 if self._begun_s is None else self.clock.monotonic_s() - self._begun_s

    def all_parts(self) -> dict[int, tuple[FileEntry, ...]]:
        return {0: self.own, **self.parts}

    def look(self, *, patient: bool = False) -> None:
        """Which parts have come. ``patient``: see ``PATIENT_S``. Raises StoreError."""
        now_s = self.clock.monotonic_s()
        if self._begun_s is None:
            self._begun_s = now_s
        try:
            self._read_parts()
        except StoreError:
            self._away_since_s = now_s if self._away_since_s is None else self._away_since_s
            raise
        away_s = 0.0 if self._away_since_s is None else now_s - self._away_since_s
        self._away_since_s = None
        if away_s > MUTE_S and self.patience.left:
            self._beats.clear()  # nobody was heard in that time: each is given its own to be heard again
            self.patience.use(away_s)
        passed_s = LOOK_S if self._looked_s is None else now_s - self._looked_s
        if self.hopeless is None and self.missing and passed_s >= LOOK_S:
            self._looked_s = now_s
            if self._mute(now_s) and self.patience.left:
                self._beats.clear()
                self.patience.use(MUTE_S + passed_s)
                return
            if any(now_s - self._beats[rank][1] >= MUTE_S for rank in self.missing if rank in self._beats):
                self.patience.use(passed_s)
            patient = patient and self.patience.left
            limit_s = PATIENT_S if patient and not self._gone_on() else SILENT_S
            lost = [rank for rank in self.missing if self._over(rank) or self._silent(rank, now_s, limit_s)]
            if lost:
                self._read_parts()  # one that it has sent before its end is there
                if still := [rank for rank in lost if rank in self.missing]:
                    over = [rank for rank in still if self._over(rank)]
                    self.unheard = not over
                    how = "has ended without" if over else "is not heard, and has not sent"
                    self.hopeless = f"rank {(over or still)[0]} {how} its part of it"

    def _read_parts(self) -> None:
        for rank in self.missing:
            key = part_key(self.gang.epoch, self.step, rank)
            data = self.store.get(key)
            if data is None:
                continue
            try:
                part = parse_part(
                    data, job_id=self.gang.job_id, epoch=self.gang.epoch, step=self.step, rank=rank
                )
            except IntegrityError as error:
                self.hopeless = error.message
                return
            if part.problem is not None:
                self.hopeless = f"rank {rank}: {part.problem}"
                return
            if part.lease_id != self.gang.leases[rank] or part.directory != self.directory:
                self.hopeless = f"{key} is not of this epoch's rank {rank}"
                return
            self.parts[rank] = part.files

    def _over(self, rank: int) -> bool:
        return self.store.get(end_key(self.gang.epoch, rank)) is not None

    def _mute(self, now_s: float) -> bool:
        """Whether the store takes no heartbeats at present: not this machine's own either."""
        own = self.store.get(beat_key(self.gang.leases[0]))
        return own is not None and self._silent(0, now_s, MUTE_S)

    def _gone_on(self) -> bool:
        """There is a newer epoch: whoever opened it knows of the silence, and has not waited."""
        return self.store.get(epoch_key(self.gang.epoch + 1)) is not None

    def _silent(self, rank: int, now_s: float, limit_s: float) -> bool:
        data = self.store.get(beat_key(self.gang.leases[rank]))
        try:
            seq = loads(Heartbeat, data, what="a heartbeat").seq if data is not None else -1
        except IntegrityError:
            seq = -1
        known, since_s = self._beats.setdefault(rank, (seq, now_s))
        if seq != known:
            self._beats[rank] = (seq, now_s)
            return False
        last, waited_s = self.silenced.get(rank, (None, 0.0))
        if now_s - since_s < limit_s and (last != seq or waited_s < limit_s):
            return False
        if rank:
            self.silenced[rank] = (seq, max(limit_s, waited_s if last == seq else 0.0))
        return True


@dataclass(slots=True, kw_only=True)
class Contributor:
    """What a rank other than 0 knows of calls: which have come, and which steps it has answered."""

    store: ObjectStore
    gang: Gang
    answered: set[int] = field(default_factory=set)
    number: int = 0
    wanted: int | None = None
    """The step that was called for last, while it is unanswered."""
    heard_s: float = float("-inf")
    """When (monotonic) calls were looked for last."""

    def due(self, newest: int, now_s: float) -> bool:
        """Is it time to look for calls, where ``newest`` is the newest unanswered step that this rank has?"""
        late = newest < max(self.answered, default=-1)
        return not late or now_s - self.heard_s >= LATE_CALL_S

    def hear(self, now_s: float) -> None:
        """Read the calls up to the newest. Raises StoreError."""
        self.heard_s = now_s
        while (found := called(self.store, self.gang, self.number)) is not None:
            self.number, self.wanted = self.number + 1, found.step
        if self.wanted in self.answered:
            self.wanted = None

    def contribute(self, step: int, directory: str, files: tuple[FileEntry, ...]) -> None:
        """``files`` are in the store. Raises as :func:`answer`."""
        answer(self.store, self.gang, step, directory=directory, files=files)
        self._done(step)

    def decline(self, step: int, problem: str) -> None:
        """An answer that this rank has given before stands. Raises StoreError."""
        with contextlib.suppress(IntegrityError):
            answer(self.store, self.gang, step, directory=f"step-{step}", problem=problem)
        self._done(step)

    def _done(self, step: int) -> None:
        self.answered.add(step)
        if self.wanted == step:
            self.wanted = None
