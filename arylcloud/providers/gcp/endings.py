"""How a machine ended: Compute Engine deletes it, and only its operations remain to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.ports import EndCause, Machine
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.naming import seconds

PREEMPTED: Final = "compute.instances.preempted"
_CAUSES: Final = {
    PREEMPTED: EndCause.INTERRUPTED,
    "compute.instances.hostError": EndCause.INTERRUPTED,
    "compute.instances.terminateOnHostMaintenance": EndCause.INTERRUPTED,
    "compute.instances.guestTerminate": EndCause.SELF,
    "delete": EndCause.TERMINATED,
    "stop": EndCause.TERMINATED,
}
_BY_ITSELF: Final = "compute.instances."
"""How all that Compute Engine does of its own accord begins."""
_ACCOUNTS: Final = ".gserviceaccount.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What the operations on one machine say."""

    ended_s: float | None = None
    cause: EndCause = EndCause.UNKNOWN
    deleting: bool = False
    """A deletion is on its way."""
    failed: str | None = None
    """It was never made: the code that its insertion ended with."""


def fate(calls: Calls, machine: Machine, *, asked: bool) -> Fate:
    """The first thing that ended it counts: what is deleted afterwards had ended before. ``asked``: whether
    its end was of our own doing."""
    wanted = f'targetLink eq ".*/instances/{machine.instance_id}"'
    found = calls.pages("ZoneOperations", "list", project=calls.project, zone=machine.zone, filter=wanted)
    ends: list[tuple[float, EndCause]] = []
    deleting = False
    failed: tuple[float, str] | None = None
    for one in found:
        errors = list(one.error.errors)
        if one.operation_type == "insert" and errors:
            failed = (seconds(one.end_time or one.insert_time), str(errors[0].code))
        cause = _cause(one, calls.identity, asked=asked)
        if cause is None or errors:
            continue
        deleting = deleting or one.operation_type == "delete"
        ends.append((seconds(one.start_time or one.insert_time), cause))
    if ends:
        ended_s, cause = min(ends, key=lambda end: end[0])
        return Fate(ended_s=ended_s, cause=cause, deleting=deleting)
    if failed is not None:
        return Fate(ended_s=failed[0], failed=failed[1])
    return Fate()


def _cause(operation: Any, us: str | None, *, asked: bool) -> EndCause | None:
    """None = it ended nothing."""
    kind, user = str(operation.operation_type), str(operation.user)
    known = _CAUSES.get(kind)
    if known is EndCause.TERMINATED and not asked and user.endswith(_ACCOUNTS) and user != us:
        return EndCause.SELF  # a machine acts as its service account: it has deleted itself
    if known is None and kind.startswith(_BY_ITSELF) and _ends(kind):
        return EndCause.INTERRUPTED
    return known


def _ends(kind: str) -> bool:
    """Of a kind that is not in the table: whether its name says that the machine has ended."""
    name = kind.removeprefix(_BY_ITSELF).lower()
    return any(word in name for word in ("terminat", "preempt", "delet", "stop"))
