"""Why a machine is no more, and since when: Azure deletes a spot machine that it takes back, and all is gone.

The activity log knows, but some minutes late. Until it does, what can be concluded counts: whose end we asked
for was ended by us; a spot machine that vanished was taken; any other, past its lease, has ended itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, Machine
from arylcloud.providers.azure.client import Arm
from arylcloud.providers.azure.tags import split
from arylcloud.providers.bounds import Paging, iso

VERSION: Final = "2015-04-01"
_EVENTS: Final = "/providers/Microsoft.Insights/eventtypes/management/values"
_EVICTED: Final = "evictspotvm"
_DELETED: Final = "microsoft.compute/virtualmachines/delete"
_MACHINE_CLAIM: Final = "xms_mirid"
"""In a token of a machine's own identity: the machine's id."""


class Ends:
    def __init__(self, arm: Arm) -> None:
        self._arm = arm

    def of(self, machine: Machine, asked_s: float | None) -> tuple[float, EndCause]:
        """(wall seconds, cause) of a machine that is no more; ``asked_s``: when we asked for its end."""
        now_s = time.time()
        logged = self._logged(machine)
        if asked_s is not None:
            if logged is not None and logged[1] is EndCause.INTERRUPTED and logged[0] <= asked_s:
                return logged  # Azure was faster
            return (logged[0] if logged else now_s), EndCause.TERMINATED
        if logged is not None:
            return logged
        if machine.market == Market.SPOT.value:  # its lease may have been renewed: it tells nothing
            return now_s, EndCause.INTERRUPTED
        over = machine.until_s is not None and now_s >= machine.until_s
        return now_s, EndCause.SELF if over else EndCause.UNKNOWN

    def _logged(self, machine: Machine) -> tuple[float, EndCause] | None:
        where = split(machine.instance_id)
        if where is None:
            return None
        group, name = where
        vm_id = self._arm.vm_id(group, name)
        since = iso(machine.launched_s)
        asked = f"eventTimestamp ge '{since}' and resourceUri eq '{vm_id}'"
        query: Mapping[str, str] | None = {"$filter": asked}
        path: str | None = f"{self._arm.scope}{_EVENTS}"
        found: list[tuple[float, EndCause]] = []
        paging = Paging("azure: activity log")
        try:
            while path:
                page = self._arm.act(
                    "activity log", partial(self._arm.rest, "GET", path, VERSION, query=query)
                )
                found += [end for event in page.get("value", []) if (end := _end(event)) is not None]
                path, query = page.get("nextLink"), None
                if path:
                    paging.turn(path)
        except ArylError:
            return None  # what the log does not tell is concluded
        taken = [end for end in found if end[1] is EndCause.INTERRUPTED]
        return min(taken or found, default=None)


def _end(event: Mapping[str, Any]) -> tuple[float, EndCause] | None:
    name = str((event.get("operationName") or {}).get("value", "")).lower()
    status = str((event.get("status") or {}).get("value", ""))
    if status not in ("Succeeded", "Accepted", "Started"):
        return None
    at_s = _seconds(str(event.get("eventTimestamp", "")))
    if at_s is None:
        return None
    if _EVICTED in name:
        return at_s, EndCause.INTERRUPTED
    if name != _DELETED:
        return None
    claims = event.get("claims") or {}
    return at_s, EndCause.SELF if _MACHINE_CLAIM in claims else EndCause.TERMINATED


def _seconds(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
