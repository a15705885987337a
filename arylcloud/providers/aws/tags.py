"""The tags on everything of ours, and a machine read back from what EC2 lists."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core.errors import CapacityError, QuotaError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, Machine, MachineSpec, MachineState
from arylcloud.providers.aws.errors import kind_of
from arylcloud.providers.bounds import pairs
from arylcloud.providers.marks import JOB, JOURNAL, LEASE, TOKEN, UNTIL, moment

log = logging.getLogger("arylcloud.aws")
ZONE: Final = "arylcloud-zone"
_STATES: Final = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPING,
    "terminated": MachineState.GONE,
}
_CAUSES: Final = {
    "Server.SpotInstanceTermination": EndCause.INTERRUPTED,
    "Server.SpotInstanceShutdown": EndCause.INTERRUPTED,
    "Client.UserInitiatedShutdown": EndCause.TERMINATED,
    "Client.InstanceInitiatedShutdown": EndCause.SELF,
}
_ENDED_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def of_machine(spec: MachineSpec) -> dict[str, str]:
    return {
        JOURNAL: spec.journal_id,
        JOB: spec.job_id,
        LEASE: spec.lease_id,
        UNTIL: repr(float(spec.until_s)),
        TOKEN: spec.token,
        ZONE: spec.offer.zone or "",
        "Name": f"arylcloud {spec.lease_id}",
    }


def as_list(tags: Mapping[str, str], settings: Mapping[str, str]) -> list[dict[str, str]]:
    """With the company's own (``[aws] tags = "team=vision, cost-center=42"``); ours win."""
    return [{"Key": key, "Value": value} for key, value in {**companys(settings), **tags}.items()]


def companys(settings: Mapping[str, str]) -> dict[str, str]:
    """``[aws] tags``; UsageError for what is no ``key=value``."""
    return pairs(settings.get("tags", ""), "[aws] tags")


def machine(
    listed: Mapping[str, Any], region: str, zone_ids: Mapping[str, str], known: Machine | None = None
) -> Machine | None:
    """Of an instance without our tags what was ``known`` of it, as it is now, or None."""
    tags = {tag["Key"]: tag["Value"] for tag in listed.get("Tags", [])}
    state = _STATES.get(listed["State"]["Name"], MachineState.STOPPING)
    cause = _cause(listed) if state is MachineState.GONE else None
    if JOURNAL not in tags or TOKEN not in tags:
        if known is None:
            return None
        log.warning("somebody has removed our tags from %s", known.instance_id)
        ended_s = _ended_s(listed) if state is MachineState.GONE else None
        return replace(known, state=state, ended_s=ended_s, end_cause=cause)
    asked_zone = tags.get(ZONE, "")
    name = str(listed.get("Placement", {}).get("AvailabilityZone", ""))
    until = tags.get(UNTIL)
    return Machine(
        instance_id=str(listed["InstanceId"]),
        token=tags[TOKEN],
        journal_id=tags[JOURNAL],
        job_id=tags.get(JOB, ""),
        lease_id=tags.get(LEASE, ""),
        cloud="aws",
        region=region,
        zone=zone_ids.get(name) or asked_zone or None,
        instance_type=str(listed["InstanceType"]),
        market=(Market.SPOT if listed.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND).value,
        state=state,
        usd_per_hour=None,
        launched_s=_seconds(listed["LaunchTime"]),
        ended_s=_ended_s(listed) if state is MachineState.GONE else None,
        end_cause=cause,
        end_text=_said(listed) if cause in (EndCause.UNKNOWN, EndCause.NO_ROOM) else None,
        address=listed.get("PrivateIpAddress"),
        until_s=moment(until),
    )


def _cause(listed: Mapping[str, Any]) -> EndCause:
    code = str(listed.get("StateReason", {}).get("Code", ""))
    if kind_of(code.partition(".")[2]) in (CapacityError, QuotaError):  # of a launch that came to nothing
        return EndCause.NO_ROOM
    return _CAUSES.get(code, EndCause.UNKNOWN)


def _said(listed: Mapping[str, Any]) -> str | None:
    """
    >>> _said({"StateReason": {"Code": "Client.InternalError", "Message": "Client error on launch"}})
    'Client.InternalError: Client error on launch'
    """
    reason = listed.get("StateReason", {})
    code, message = str(reason.get("Code", "")), " ".join(str(reason.get("Message", "")).split())
    text = message if message.startswith(code) else f"{code}: {message}".strip(": ")
    return text[:200] or None


def _ended_s(listed: Mapping[str, Any]) -> float | None:
    """EC2 says when it ended only in words: "User initiated (2026-11-30 12:00:00 GMT)"."""
    found = _ENDED_AT.search(str(listed.get("StateTransitionReason", "")))
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
