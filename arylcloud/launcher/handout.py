"""What each machine of a job is given so that it reaches the job's prefix, and nothing else.

* A folder as store: nothing; machines that see it are this host's.
* A machine in the bucket's own cloud runs as the job's identity, and renews itself. Its user data holds one
  signed link, to the runtime.
* A machine elsewhere is lent credentials. Its user data holds one signed link, to a document of its own with
  the first of them, which goes as soon as the machine has been heard; the next lie in the mailbox, before
  half of the time is over.

Nothing of it is journaled: identities have names that follow from the job, links and credentials end soon.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ArylError, StoreError
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import ObjectStore
from arylcloud.core.stores import SIGNED_S, Address, Grant, JobPrefix, Lending, Storage
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)
RETRY_S = 60.0
"""The longest between two tries to renew, while a cloud refuses."""
_WAITING = (LeasePhase.INTENDED, LeasePhase.PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """For one machine."""

    runtime_url: str
    boot_url: str | None = None
    identity: str | None = None
    """What it runs as; None = whatever the adapter's settings say."""
    env: Mapping[str, str] = field(default_factory=dict)
    """No secret."""


@dataclass(slots=True, kw_only=True)
class Handout:
    """Of one job whose store is a bucket."""

    job: JobPrefix
    root: Address
    """The store's root, where the runtime lies."""
    runtime_key: str
    store: ObjectStore
    """The job's prefix."""
    shared: ObjectStore
    """The root."""
    storage: Storage
    lending: Lending
    clock: Clock
    for_s: float
    """How long machines elsewhere are to go on without a launcher."""
    _lent: mail.LentDoc | None = None
    _due_s: tuple[float, float] = (0.0, 0.0)
    """When half of its time is over, by the wall and by the monotonic clock: the former may be set back."""
    _links: dict[str, tuple[float, str]] = field(default_factory=dict)
    _tried_s: float = float("-inf")
    _boots: set[str] | None = None
    """Leases whose document lies there; None = not looked yet."""

    def given(self, cloud: str, lease_id: str) -> Given:
        """Before the machine is made. Idempotent. Raises AccessError, UsageError, CloudError."""
        runtime_url = self._runtime()
        if cloud == self.job.address.cloud:
            identity = self.lending.identity(self.job)
            return Given(runtime_url=runtime_url, identity=identity, env=self._env(identity))
        lent = self._current()
        key = mail.boot_key(lease_id)
        self.store.put(key, dumps(mail.BootDoc(runtime_url=runtime_url, lent=lent)))
        self._boot_docs().add(lease_id)
        boot_url = self._link(self.job.address, key)
        return Given(runtime_url=runtime_url, boot_url=boot_url, env=self._env(None))

    def tidy(self, state: JobState) -> None:
        """Every tick: renew what is lent, forget what has been read. Failures are tried again later."""
        elsewhere = [one for one in state.open_leases if one.offer.cloud != self.job.address.cloud]
        try:
            if elsewhere and self._due():
                self._renew()
            waiting = {one.lease_id for one in elsewhere if one.phase in _WAITING}
            if elsewhere or self._boots:
                self._forget(self._boot_docs() - waiting)
        except ArylError as error:
            log.warning("credentials for machines of other clouds: %s", error.message)

    def _renew(self) -> None:
        now_s = self.clock.monotonic_s()
        left_s = 0.0 if self._lent is None else self._lent.expires_s - self.clock.now_s()
        if now_s - self._tried_s >= min(RETRY_S, max(1.0, left_s / 8)):
            self._tried_s = now_s
            self._lend()

    def end(self) -> None:
        """The job has ended. Raises StoreError; an identity that a cloud does not remove now is ``gc``'s."""
        self._boots = None
        self._forget(self._boot_docs())
        self.store.delete([mail.LENT_KEY])
        try:
            self.lending.revoke(self.job)
        except StoreError:
            raise
        except ArylError as error:
            log.warning("the job's identity is not removed yet (`arylcloud gc` does): %s", error.message)

    def _env(self, identity: str | None) -> dict[str, str]:
        options = self.storage.for_machines(self.job.address, identity)
        return {"ARYL_STORE_OPTIONS": json.dumps(dict(options), sort_keys=True)}

    def _runtime(self) -> str:
        """Where the job signs for itself, it needs a copy of its own, since it reaches its prefix only."""
        if not self.storage.signs_as_job:
            return self._link(self.root, self.runtime_key)
        if not any(info.key == self.runtime_key for info in self.store.list(self.runtime_key)):
            data = self.shared.get(self.runtime_key)
            if data is None:
                raise StoreError(f"{self.root.uri} lacks {self.runtime_key}", hint="launch the job again")
            self.store.create(self.runtime_key, data)
        return self._link(self.job.address, self.runtime_key)

    def _link(self, address: Address, key: str) -> str:
        """The same one for a while: user data with another one is other user data."""
        now_s = self.clock.now_s()
        known = self._links.get(key)
        if known is None or now_s - known[0] > SIGNED_S / 4:
            identity = self.lending.identity(self.job) if self.storage.signs_as_job else None
            self._links[key] = known = (now_s, self.storage.sign(address, key, SIGNED_S, identity))
        return known[1]

    def _due(self) -> bool:
        """Half of the time is over."""
        wall_s, due_s = self._due_s
        return self._lent is None or self.clock.now_s() >= wall_s or self.clock.monotonic_s() >= due_s

    def _current(self) -> mail.LentDoc:
        if self._lent is None or self._due():
            return self._lend()
        return self._lent

    def _lend(self) -> mail.LentDoc:
        grant: Grant = self.lending.lend(self.job, self.for_s)
        lent = mail.LentDoc(secret=dict(grant.secret), expires_s=grant.expires_s)
        self.store.put(mail.LENT_KEY, dumps(lent))
        self._lent = lent
        half_s = (lent.expires_s - self.clock.now_s()) / 2
        self._due_s = (self.clock.now_s() + half_s, self.clock.monotonic_s() + half_s)
        return lent

    def _boot_docs(self) -> set[str]:
        if self._boots is None:
            keys = (info.key for info in self.store.list(mail.BOOT_PREFIX))
            self._boots = {key.removeprefix(mail.BOOT_PREFIX).removesuffix(".json") for key in keys}
        return self._boots

    def _forget(self, leases: set[str]) -> None:
        if leases:
            self.store.delete([mail.boot_key(lease) for lease in sorted(leases)])
            self._boot_docs().difference_update(leases)
