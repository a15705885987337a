"""What things of ours are called on Google Cloud, their labels, and a machine read back from a list."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, Machine, MachineSpec, MachineState
from arylcloud.providers.bounds import pairs
from arylcloud.providers.gcp.client import last
from arylcloud.providers.marks import JOB, JOURNAL, LEASE, TOKEN, UNTIL, moment

_NAMESPACE: Final = uuid.UUID("6c1f7a0e-55a4-5d0c-9a54-0a1c0d2b7e11")
"""Of request ids: they are UUIDs, and ours have to be derived."""
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"[-_a-z0-9]{0,63}")
_STATES: Final = {
    "PENDING": MachineState.PENDING,
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "REPAIRING": MachineState.RUNNING,
    # its cores are paid for no more; its disk is, until it is deleted
    "TERMINATED": MachineState.GONE,
    "STOPPED": MachineState.GONE,
    "SUSPENDED": MachineState.STOPPING,
}
THERE: Final = frozenset(["alreadyExists", "RESOURCE_ALREADY_EXISTS", "HTTP_409"])
"""Codes of what is there already."""
ENDED: Final = frozenset(["TERMINATED", "STOPPED"])


def machine_name(token: str) -> str:
    """The instance's name: the token itself, where it can be one."""
    if _NAME.fullmatch(token):
        return token
    return f"aryl-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def request_id(*parts: str) -> str:
    """Compute Engine takes a request with the same id for the same request, for an hour.

    >>> request_id("a", "b") == request_id("a", "b") != request_id("ab")
    True
    """
    return str(uuid.uuid5(_NAMESPACE, "|".join(parts)))


def network_name(journal_id: str) -> str:
    """Of the network, its subnetworks and its rule; also the tag of the machines in it."""
    name = f"arylcloud-{journal_id}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"gcp: a network cannot be called {name!r}")
    return name


def journal_of(name: str) -> str | None:
    """The other way round; None for what is no network of ours.

    >>> journal_of("arylcloud-0123456789abcdef"), journal_of("default")
    ('0123456789abcdef', None)
    """
    return name.removeprefix("arylcloud-") if name.startswith("arylcloud-") else None


def labels(spec: MachineSpec, settings: Mapping[str, str]) -> dict[str, str]:
    """With the company's own (``[gcp] labels = "team=vision, cost-center=42"``); ours win. UsageError for
    what cannot be a label's value."""
    ours = {
        JOURNAL: spec.journal_id,
        JOB: spec.job_id,
        LEASE: spec.lease_id,
        UNTIL: f"{spec.until_s:.0f}",
        TOKEN: spec.token,
    }
    found = {**pairs(settings.get("labels", ""), "[gcp] labels"), **ours}
    for key, value in found.items():
        if not _LABEL.fullmatch(value) or not _LABEL.fullmatch(key):
            raise UsageError(
                f"gcp: {key}={value} cannot be a label", hint="a-z, 0-9, - and _; 63 characters at most"
            )
    return found


def machine(listed: Any, known: Machine | None = None) -> Machine | None:
    """Of a ``compute_v1.Instance``; of one without our labels what was ``known`` of it, as it is now, or
    None."""
    found = dict(listed.labels)
    zone = last(listed.zone)
    state = _STATES.get(listed.status, MachineState.STOPPING)
    gone = state is MachineState.GONE
    ended_s = seconds(listed.last_stop_timestamp or listed.creation_timestamp) if gone else None
    if JOURNAL not in found or TOKEN not in found:
        cause = EndCause.SELF if gone else None
        return known and replace(known, state=state, ended_s=ended_s, end_cause=cause)
    nics = list(listed.network_interfaces)
    spot = listed.scheduling.provisioning_model == "SPOT" or listed.scheduling.preemptible
    launched_s = seconds(listed.creation_timestamp)
    return Machine(
        instance_id=str(listed.name),
        token=found[TOKEN],
        journal_id=found[JOURNAL],
        job_id=found.get(JOB, ""),
        lease_id=found.get(LEASE, ""),
        cloud="gcp",
        region=region_of(zone),
        zone=zone,
        instance_type=last(listed.machine_type),
        market=(Market.SPOT if spot else Market.ON_DEMAND).value,
        state=state,
        usd_per_hour=None,
        launched_s=launched_s,
        ended_s=ended_s,
        end_cause=EndCause.SELF if gone else None,
        address=(str(nics[0].network_i_p) or None) if nics else None,
        until_s=moment(found.get(UNTIL)),
    )


def region_of(zone: str) -> str:
    """
    >>> region_of("us-central1-a")
    'us-central1'
    """
    return zone.rpartition("-")[0]


def seconds(moment: str) -> float:
    """Of RFC 3339 text, with the offset that Compute Engine writes (``-08:00``)."""
    return datetime.fromisoformat(moment).timestamp()
