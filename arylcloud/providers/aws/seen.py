"""Which machines of ours have been seen in which AWS account.

EC2 itself remembers ended machines for an hour, so nothing of this is needed while the account stays the
same; should it change, what the other one has must not be taken for gone (``providers/accounts``). Each
answer of EC2's says whose it is, so STS is asked only where there is nothing to learn it from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from arylcloud.core.ports import EndCause, Machine, MachineState
from arylcloud.providers.accounts import Elsewhere, file_of
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.sightings import Sightings

HOME: Final = "us-east-1"
FORGOTTEN_S: Final = 3600.0
"""So long after its launch a machine that is not listed any more has come, gone, and been forgotten."""


class Seen:
    """``folder`` None: nothing is written down. Safe to use from several threads."""

    def __init__(self, calls: Calls, folder: Path | None) -> None:
        self._calls = calls
        self._folder = folder
        self._lock = threading.Lock()
        self._account: str | None = None
        self._own: Sightings | None = None
        self.elsewhere = Elsewhere(
            "aws", "account", folder, self.account, back="[aws] profile, or AWS_PROFILE, as it was before"
        )

    def account(self) -> str:
        with self._lock:
            if self._account is None:
                who = self._calls.read("sts", HOME, "get_caller_identity")
                self._account = str(who["Account"])
            return self._account

    def told(self, owner: str | None) -> None:
        """``OwnerId`` of an answer."""
        if owner:
            with self._lock:
                self._account = self._account or owner

    def saw(self, machines: Collection[Machine]) -> None:
        """Some of this account's machines, as they are."""
        if not machines:
            return
        own = self._sightings()
        for machine in machines:
            if machine.state is not MachineState.GONE:
                own.saw(machine)
            else:
                own.end(machine.instance_id, machine.ended_s or time.time(), _cause(machine))

    def all_of(self, machines: Collection[Machine], journal_id: str | None, regions: Collection[str]) -> None:
        """All that these regions list of the journal's: what they list no more has ended long ago."""
        self.saw(machines)
        for known in self.missing(machines, journal_id, regions):
            if time.time() - known.launched_s > FORGOTTEN_S:
                self._sightings().end(known.instance_id, time.time(), EndCause.UNKNOWN)

    def missing(
        self, machines: Collection[Machine], journal_id: str | None, regions: Collection[str]
    ) -> list[Machine]:
        """Of these regions and the journal, whose end is not known and which are not among ``machines``."""
        if not self._has_seen():
            return []
        there = {m.instance_id for m in machines}
        return [m for m in self._sightings().unlisted(there, journal_id) if m.region in regions]

    def live(self) -> list[Machine]:
        """This account's, as far as they have been seen."""
        return self._sightings().live() if self._has_seen() else []

    def turned_to(self, token: str, zone: str) -> None:
        """That machine is asked for in that zone now."""
        self._sightings().turned_to(token, zone)

    def turned(self, token: str) -> str | None:
        """The zone in which it was asked for last."""
        return self._sightings().turned(token) if self._has_seen() else None

    def _has_seen(self) -> bool:
        return self._own is not None or (self._folder is not None and any(self._folder.glob("*.jsonl")))

    def _sightings(self) -> Sightings:
        account = self.account()
        with self._lock:
            if self._own is None:
                self._own = Sightings(None if self._folder is None else file_of(self._folder, account))
            return self._own


def _cause(machine: Machine) -> EndCause:
    return machine.end_cause or EndCause.UNKNOWN
