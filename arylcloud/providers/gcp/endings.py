"""How a machine ended: Compute Engine deletes it, and only its operations remain to tell."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import EndCause, Machine
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.naming import seconds

log = logging.getLogger("arylcloud.gcp")
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
    """Wall seconds; None = nothing of an end yet."""
    cause: EndCause = EndCause.UNKNOWN


def fate(calls: Calls, machine: Machine, *, asked: bool) -> Fate | None:
    """What began first ended it: what is deleted afterwards had ended before. ``asked``: whether its end was
    of our own doing. Of a machine that was never quite made, the moment at which that was clear. None = the
    operations cannot be read now: the machines are there all the same."""
    wanted = f'targetLink eq ".*/instances/{machine.instance_id}"'
    try:
        found = calls.pages("ZoneOperations", "list", project=calls.project, zone=machine.zone, filter=wanted)
    except ArylError as error:
        log.warning("how %s ended is not known: %s", machine.instance_id, error.message)
        return None
    ends: list[tuple[float, float, EndCause]] = []
    for one in found:
        cause, failed = _cause(one, calls.identity, asked=asked), bool(list(one.error.errors))
        if one.operation_type == "insert" and failed:
            cause, failed = EndCause.UNKNOWN, False
        if cause is not None and not failed and one.end_time:
            ends.append((seconds(one.start_time or one.insert_time), seconds(one.end_time), cause))
    if not ends:
        return Fate()
    _, ended_s, cause = min(ends)
    return Fate(ended_s=ended_s, cause=cause)


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
