"""Machines of this home that lie in another account than the one whose credentials are here now.

Somebody changes the profile, the project or the subscription under a running job: the new account lists none
of its machines, and knows none that is to end. Nothing can be concluded from that. So every account has a
file of ``sightings`` of its own in the home, and what the others' tell of is listed as it was last seen,
until its own account is asked again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from arylcloud.core.errors import AccessError
from arylcloud.core.ports import Machine, MachineState
from arylcloud.providers.sightings import KEPT_S, Sightings

log = logging.getLogger(__name__)
_NAME: Final = "sightings-{}.jsonl"


def file_of(folder: Path, account: str) -> Path:
    """The sightings of one account.

    >>> file_of(Path("/home/gcp"), "example.com:p/1").name
    'sightings-example.com:p_1.jsonl'
    """
    return folder / _NAME.format(account.replace("/", "_"))


class Elsewhere:
    """Of one cloud. ``folder`` None: nothing is kept, so nothing is known. ``own``: the account that the
    credentials are of, asked only where there are files of others; what it raises, everything here does.
    ``what``: as the cloud calls an account. ``back``: how one returns to another."""

    def __init__(
        self, cloud: str, what: str, folder: Path | None, own: Callable[[], str], *, back: str
    ) -> None:
        self._cloud = cloud
        self._what = what
        self._folder = folder
        self._own = own
        self._back = back
        self._files: dict[Path, Sightings] = {}
        self._said: set[str] = set()

    def machines(self, journal_id: str | None) -> list[Machine]:
        """Those whose end is not known, as last seen. A week after the end of its lease the machine's own
        switch is taken to have ended it."""
        found = []
        for account, machine in self._all():
            if journal_id not in (None, machine.journal_id):
                continue
            if machine.instance_id not in self._said:
                self._said.add(machine.instance_id)
                log.warning("%s", self._refusal(account, machine).message)
            found.append(replace(machine, state=MachineState.RUNNING))
        return found

    def refuse(self, machine: Machine) -> None:
        """AccessError for a machine of another account: nothing here can end it."""
        for account, one in self._all():
            if one.instance_id == machine.instance_id:
                raise self._refusal(account, one)

    def refuse_token(self, token: str) -> None:
        """AccessError where another account has this token's machine: there is to be no second one."""
        for account, one in self._all():
            if one.token == token:
                raise self._refusal(account, one)

    def _refusal(self, account: str, machine: Machine) -> AccessError:
        return AccessError(
            f"{self._cloud}: {machine.instance_id} is in {self._what} {account}, and the credentials here are"
            f" those of {self._own()}: whether it still runs cannot be asked",
            code="AnotherAccount",
            hint=self._back,
        )

    def _all(self) -> list[tuple[str, Machine]]:
        """(account, machine), but for those that the account of ours has as well."""
        if self._folder is None:
            return []
        there = sorted(self._folder.glob(_NAME.format("*")))
        if not there:
            return []
        now_s = time.time()
        own = file_of(self._folder, self._own())
        ours = {m.instance_id for m in self._read(own).known()} if own in there and len(there) > 1 else set()
        return [
            (path.stem.removeprefix("sightings-"), machine)
            for path in there
            if path != own
            for machine in self._read(path).live()
            if machine.instance_id not in ours
            and (machine.until_s is None or now_s < machine.until_s + KEPT_S)
        ]

    def _read(self, path: Path) -> Sightings:
        return self._files.setdefault(path, Sightings(path))
