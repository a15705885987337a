"""Looking at the world: lists of every cloud concerned, and the mailbox. Reads only.

What cannot be asked is said (``Observed.listed``, ``mailbox_ok``), never guessed.

A bucket's requests cost money, lists ten times as much as reads. While a job simply runs on ``n`` machines, a
look is ``n + 2`` reads (heartbeats; the fence; the next request), and every ``calm_every_s`` two lists (ends,
manifests). Those are also looked for at once when a heartbeat tells of something, and at every look while
anything is about to change.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from arylcloud.checkpoint.restore import read_manifest
from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock, SystemClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import AccessError, CloudError, IntegrityError, StoreError
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Machine, ObjectStore, Provider
from arylcloud.launcher.actions import CheckpointSeen, Observed
from arylcloud.launcher.listing import Ask, Lists
from arylcloud.launcher.pace import Pace
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)
T = TypeVar("T")
LONG_S = 2.0
"""A pause between two signs of life that is worth remembering."""


@dataclass(slots=True)
class Observer:
    """Keeps cursors and what it has parsed, so that a tick reads only what is new."""

    store: ObjectStore
    providers: Mapping[str, Provider]
    clouds: tuple[str, ...] = ()
    """Clouds that the job may touch, beside those of its leases: they are listed, too."""
    clock: Clock = field(default_factory=SystemClock)
    calm_every_s: float = 0.0
    """Between two lists of the mailbox while nothing is about to change."""
    _listed_s: float = -math.inf
    """Monotonic seconds, as are the next three."""
    _signs: object = None
    """What the heartbeats told of when the mailbox was last listed."""
    _unlisted_since_s: dict[str, float] = field(default_factory=dict)
    _heard_s: dict[str, float] = field(default_factory=dict)
    _looked_s: float = -math.inf
    _pauses: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By lease: how long, and when it ended."""
    _end_seen_s: dict[tuple[int, int], float] = field(default_factory=dict)
    _wrote_after_s: dict[tuple[int, int, str], float] = field(default_factory=dict)
    _beats: dict[str, mail.Heartbeat] = field(default_factory=dict)
    _ends: dict[str, mail.EndDoc] = field(default_factory=dict)
    _checkpoints: dict[str, CheckpointSeen] = field(default_factory=dict)
    _damaged: dict[str, str] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)
    _published: int = 0
    _unreadable: dict[str, str] = field(default_factory=dict)
    _lists: Lists[tuple[Machine, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._lists = Lists(self.clock)

    def observe(self, state: JobState) -> Observed:
        machines, listed = self._machines(state)
        mailbox_ok = True
        requests: tuple[mail.RequestDoc, ...] = ()
        try:
            self._read_beats(state)
            if self._due(state):
                self._read_ends(state)
                self._read_manifests(state)
                self._listed_s, self._signs = self.clock.monotonic_s(), self._tell()
            self._read_published(state)
            requests = self._read_requests(state)
        except StoreError as error:
            log.warning("the mailbox cannot be read: %s", error.message)
            mailbox_ok = False
        now_s = self.clock.monotonic_s()
        return Observed(
            machines=machines,
            listed=listed,
            beats=dict(self._beats),
            ends=tuple(self._ends.values()),
            checkpoints=tuple(self._checkpoints.values()),
            damaged=dict(self._damaged),
            requests=requests,
            published_epoch=self._published,
            mailbox_ok=mailbox_ok,
            unlisted_s={cloud: now_s - since_s for cloud, since_s in self._unlisted_since_s.items()},
            heard_s_ago={lease_id: now_s - heard_s for lease_id, heard_s in self._heard_s.items()},
            pauses={
                lease_id: (long_s, now_s - over_s) for lease_id, (long_s, over_s) in self._pauses.items()
            },
            end_seen_s_ago={end: now_s - seen_s for end, seen_s in self._end_seen_s.items()},
            wrote_after_s=dict(self._wrote_after_s),
        )

    def _machines(self, state: JobState) -> tuple[tuple[Machine, ...], frozenset[str]]:
        clouds = {lease.offer.cloud for lease in state.leases.values()} | set(self.clouds)
        asks: dict[str, Ask[tuple[Machine, ...]]] = {}
        for cloud in sorted(clouds):
            provider = self.providers.get(cloud)
            if provider is None:
                log.warning("no provider for %s in this launcher", cloud)
                continue
            pace = self._paces.get(cloud)
            if pace is None:
                pace = self._paces[cloud] = Pace(every_s=provider.capabilities().list_every_s)
            concerned = pace.concerned(
                state, cloud, now_s=self.clock.now_s(), read_s=self.clock.monotonic_s()
            )
            if concerned is not None or self._lists.waiting(cloud):
                call = partial(provider.list_machines, journal_id=state.journal_id, offers=concerned or ())
                asks[cloud] = Ask(call=call, stamp=_leases_of(state, cloud))
        answers = self._lists.ask(asks)
        found: list[Machine] = []
        listed: set[str] = set()
        for cloud in asks:
            answer = answers.get(cloud)
            if answer is not None and not isinstance(answer, Exception):
                listed.add(cloud)
                self._unlisted_since_s.pop(cloud, None)
                found.extend(m for m in answer if m.job_id == state.job_id)
                continue
            self._unlisted_since_s.setdefault(cloud, self.clock.monotonic_s())
            if answer is None:
                log.warning("%s has not said yet which machines it has", cloud)
            elif isinstance(answer, (CloudError, AccessError)):
                log.warning("%s cannot be listed: %s", cloud, answer.message)
            else:  # an odd answer of one cloud must not keep this launcher from the machines of the others
                log.error("%s cannot be listed, by a bug of ours", cloud, exc_info=answer)
        return tuple(found), frozenset(listed)

    def _due(self, state: JobState) -> bool:
        """Whether the mailbox is to be listed now."""
        calm = state.phase is JobPhase.RUNNING and state.stop is None and state.migrate_request is None
        calm = calm and all(lease.phase is LeasePhase.READY for lease in state.open_leases)
        waited_s = self.clock.monotonic_s() - self._listed_s
        return not calm or waited_s >= self.calm_every_s or self._tell() != self._signs

    def _tell(self) -> object:
        return {
            lease_id: (beat.phase, beat.committed, beat.drained_epoch, beat.epoch)
            for lease_id, beat in self._beats.items()
        }

    def _read_beats(self, state: JobState) -> None:
        wanted = {lease.lease_id for lease in state.open_leases}
        wanted |= {member.lease_id for epoch in state.epochs[-3:] for member in epoch.members}
        for lease_id in self._beats.keys() - wanted:
            del self._beats[lease_id]
            self._heard_s.pop(lease_id, None)
            self._pauses.pop(lease_id, None)
        away_s = self.clock.monotonic_s() - self._looked_s
        for lease in state.open_leases:
            beat = self._document(mail.Heartbeat, mail.beat_key(lease.lease_id))
            if beat is None:
                continue
            known = self._beats.get(lease.lease_id)
            if known is None:  # that of a silent machine may be an old one; any other gets its time
                silent = lease.phase is LeasePhase.SUSPECT
                self._heard_s[lease.lease_id] = -math.inf if silent else self.clock.monotonic_s()
            elif (beat.seq, beat.at_s) != (known.seq, known.at_s):
                at_s = self.clock.monotonic_s()
                silent_s = at_s - self._heard_s.get(lease.lease_id, at_s) - away_s
                if LONG_S <= silent_s < math.inf:
                    self._pauses[lease.lease_id] = (silent_s, at_s)
                self._heard_s[lease.lease_id] = at_s
            self._beats[lease.lease_id] = beat
        self._looked_s = self.clock.monotonic_s()

    def _read_ends(self, state: JobState) -> None:
        new: list[tuple[mail.EndDoc, float]] = []
        for info in self.store.list(mail.ENDS_PREFIX):
            if info.key not in self._ends:
                end = self._document(mail.EndDoc, info.key)
                if end is not None:
                    self._ends[info.key] = end
                    self._end_seen_s[end.epoch, end.rank] = self.clock.monotonic_s()
                    new.append((end, info.modified_s))
        if not new:
            return
        for info in self.store.list(mail.BEATS_PREFIX):  # who was heard since, while nobody was watching
            lease_id = info.key.removeprefix(mail.BEATS_PREFIX).removesuffix(".json")
            for end, at_s in new:
                self._wrote_after_s[end.epoch, end.rank, lease_id] = info.modified_s - at_s
        self._read_beats(state)  # not older than what has just been said of them

    def _read_manifests(self, state: JobState) -> None:
        for key in state.rejected:  # found damaged by whoever tried to restore it
            self._checkpoints.pop(key, None)
        known = {checkpoint.manifest for checkpoint in state.checkpoints}
        listed = tuple(self.store.list(mail.MANIFESTS_PREFIX))
        there = {info.key for info in listed}
        for gone in self._checkpoints.keys() - there:  # pruned
            del self._checkpoints[gone]
        for gone in self._damaged.keys() - there:
            del self._damaged[gone]
        for info in listed:
            if info.key in self._checkpoints or info.key in self._damaged:
                continue
            if info.key in known and info.key in state.rejected:
                continue
            try:
                manifest = read_manifest(self.store, info.key)
            except IntegrityError as error:
                self._damaged[info.key] = error.message
                continue
            self._checkpoints[info.key] = CheckpointSeen(
                key=info.key,
                epoch=manifest.epoch,
                number=manifest.number,
                step=manifest.step,
                saved_at_s=manifest.saved_at_s,
                total_bytes=manifest.total_bytes,
            )

    def _read_published(self, state: JobState) -> None:
        for epoch in state.epochs:
            if epoch.number == self._published + 1 and self.store.get(mail.epoch_key(epoch.number)):
                self._published = epoch.number

    def _read_requests(self, state: JobState) -> tuple[mail.RequestDoc, ...]:
        """They are numbered without a gap: the next one is there, or none is."""
        found: list[mail.RequestDoc] = []
        number = state.requests_seen + 1
        while (data := self.store.get(mail.request_key(number))) is not None:
            request = self._parsed(mail.RequestDoc, mail.request_key(number), data)
            if request is not None:
                found.append(request)
            number += 1
        return tuple(found)

    def _document(self, cls: type[T], key: str) -> T | None:
        """A document of the mailbox; one that cannot be read is said and passed over."""
        data = self.store.get(key)
        return None if data is None else self._parsed(cls, key, data)

    def _parsed(self, cls: type[T], key: str, data: bytes) -> T | None:
        try:
            return loads(cls, data, what=key)
        except IntegrityError as error:
            if self._unreadable.get(key) != error.message:  # said once, not every tick
                log.warning("%s", error.message)
            self._unreadable[key] = error.message
            return None


def _leases_of(state: JobState, cloud: str) -> frozenset[tuple[str, LeasePhase, str | None]]:
    """What a list of ``cloud`` is read against."""
    leases = (lease for lease in state.leases.values() if lease.offer.cloud == cloud)
    return frozenset((lease.lease_id, lease.phase, lease.instance_id) for lease in leases)
