"""Which machines there are, and which there were: lists, what was seen before, and operations."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import EndCause, Machine, MachineSpec, MachineState
from arylcloud.providers import marks
from arylcloud.providers.gcp import naming
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.endings import fate
from arylcloud.providers.sightings import Sightings

log = logging.getLogger("arylcloud.gcp")
MISSING: Final = frozenset(["notFound", "RESOURCE_NOT_FOUND", "HTTP_404"])
UNTOLD_S: Final = 60.0
"""For so long after a machine is missing an operation may come that says why."""


class Roster:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, sightings: Sightings, priced: Callable[[Machine], Machine]) -> None:
        self._calls = calls
        self._sightings = sightings
        self._priced = priced
        self._lock = threading.Lock()
        self._missing_s: dict[str, float] = {}

    def of_journal(self, journal_id: str | None) -> tuple[Machine, ...]:
        """One call for all regions. A machine that has switched itself off is STOPPING: its disk is paid for
        until it is deleted, which its launcher asks for, or ``gc``."""
        of_it = ":*" if journal_id is None else f"={journal_id}"
        pages = self._calls.pages(
            "Instances",
            "aggregated_list",
            project=self._calls.project,
            filter=f"labels.{marks.JOURNAL}{of_it}",
            max_results=500,
        )
        found: dict[str, Machine] = {}
        for one in (one for _, inside in pages for one in inside.instances):
            machine = naming.machine(one)
            if machine is None:
                continue
            other = found.get(machine.instance_id)  # in a zone that had no room for it
            if other is None or other.launched_s < machine.launched_s:
                found[machine.instance_id] = self._listed(machine)
        for known in self._sightings.unlisted(found, journal_id):
            found[known.instance_id] = self.unlisted(known)
        for known in self._sightings.ended():
            if journal_id in (None, known.journal_id):
                listed = found.setdefault(known.instance_id, known)
                if listed.state is not MachineState.GONE:  # a list that lags; or it is there all the same
                    found[known.instance_id] = self.unlisted(listed)
        return tuple(found[name] for name in sorted(found))

    def get(self, name: str, zone: str) -> Machine | None:
        """As it is, whatever lists say; None = there is none of ours."""
        found = self._calls.find("Instances", "get", project=self._calls.project, zone=zone, instance=name)
        machine = None if found is None else naming.machine(found)
        return None if machine is None else self._listed(machine)

    def allocated(self, name: str, zone: str) -> bool:
        """Whether it has got its place: what follows is its start."""
        found = self._calls.find("Instances", "get", project=self._calls.project, zone=zone, instance=name)
        return found is not None and found.status in ("STAGING", "RUNNING")

    def ask_end(self, machine: Machine) -> None:
        self._sightings.asked_end(machine.instance_id)
        try:
            self._calls.act(
                "Instances",
                "delete_unary",
                project=self._calls.project,
                zone=machine.zone,
                instance=machine.instance_id,
            )
        except ArylError as error:
            if error.code not in MISSING:
                raise

    def unlisted(self, known: Machine) -> Machine:
        """It was there: a list that lags, or its end. Without our labels, it is there all the same."""
        assert known.zone is not None
        found = self._calls.find(
            "Instances", "get", project=self._calls.project, zone=known.zone, instance=known.instance_id
        )
        machine = None if found is None else naming.machine(found, known)
        if machine is not None:
            if found is not None and naming.machine(found) is None:
                log.warning("somebody has removed our labels from %s", known.instance_id)
            return self._listed(machine)
        asked_s = self._sightings.asked_s(known.instance_id)
        told = fate(self._calls, known, asked=asked_s is not None)
        with self._lock:
            since_s = self._missing_s.setdefault(known.instance_id, time.time())
        if told is not None and told.ended_s is not None:
            return self._ended(known, told.ended_s, told.cause)
        if time.time() - since_s < UNTOLD_S:
            return replace(known, state=MachineState.STOPPING)
        cause = EndCause.UNKNOWN if asked_s is None else EndCause.TERMINATED
        return self._ended(known, since_s, cause)

    def _ended(self, known: Machine, ended_s: float, cause: EndCause) -> Machine:
        return self._sightings.end(known.instance_id, ended_s, cause, zone=known.zone) or known

    def vanished(self, spec: MachineSpec, zone: str, operation: Any) -> Machine:
        """Inserted without an error, and not there any more: now, or (with this token) some time ago."""
        known = self._sightings.of_token(spec.token)
        if known is None:
            known = _as_made(spec, zone, naming.seconds(operation.insert_time))
            self._sightings.saw(known)
        return self.unlisted(known)

    def _listed(self, machine: Machine) -> Machine:
        self._sightings.saw(replace(machine, state=MachineState.RUNNING, ended_s=None, end_cause=None))
        with self._lock:
            self._missing_s.pop(machine.instance_id, None)
        if machine.state is not MachineState.GONE:
            return self._priced(machine)
        asked_s = self._sightings.asked_s(machine.instance_id)
        ended = self._sightings.of_token(machine.token)
        if ended is None or ended.ended_s is None:
            told = fate(self._calls, machine, asked=asked_s is not None)
            if told is not None:  # else nothing is written down: a later look may tell
                ended_s = told.ended_s or machine.ended_s or time.time()
                self._ended(machine, ended_s, EndCause.SELF if told.ended_s is None else told.cause)
        return replace(machine, state=MachineState.STOPPING, ended_s=None, end_cause=None)


def _as_made(spec: MachineSpec, zone: str, launched_s: float) -> Machine:
    """A machine that has been and gone before anybody could look at it."""
    return Machine(
        instance_id=naming.machine_name(spec.token),
        token=spec.token,
        journal_id=spec.journal_id,
        job_id=spec.job_id,
        lease_id=spec.lease_id,
        cloud="gcp",
        region=spec.offer.region,
        zone=zone,
        instance_type=spec.offer.instance_type,
        market=spec.offer.market.value,
        state=MachineState.RUNNING,
        usd_per_hour=None,
        launched_s=launched_s,
        until_s=spec.until_s,
    )
