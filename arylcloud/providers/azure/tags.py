"""Names and tags of everything of ours, and a machine read back from what Azure lists."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core.errors import CapacityError, QuotaError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, Machine, MachineSpec, MachineState
from arylcloud.providers.azure.errors import kind_of
from arylcloud.providers.bounds import pairs
from arylcloud.providers.marks import JOB, JOURNAL, LEASE, TOKEN, UNTIL, moment

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,58}[a-z0-9]")
_FAILED: Final = "ProvisioningState/failed"
_POWER: Final = "PowerState/"


def vm_name(token: str) -> str:
    """Derived from the token, so that the same order can make no second machine.

    >>> vm_name("aryl-0123abcd"), len(vm_name("Any Thing!"))
    ('aryl-0123abcd', 37)
    """
    if _NAME.fullmatch(token):
        return token
    return f"aryl-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def of_machine(spec: MachineSpec, settings: Mapping[str, str]) -> dict[str, str]:
    ours = {
        JOURNAL: spec.journal_id,
        JOB: spec.job_id,
        LEASE: spec.lease_id,
        UNTIL: repr(float(spec.until_s)),
        TOKEN: spec.token,
    }
    return {**companys(settings), **ours}


def of_journal(journal_id: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {**companys(settings), JOURNAL: journal_id}


def companys(settings: Mapping[str, str]) -> dict[str, str]:
    """``[azure] tags = "team=vision, cost-center=42"``; ours win."""
    return pairs(settings.get("tags", ""), "[azure] tags")


def of_id(resource_id: str) -> tuple[str, str]:
    """(resource group, name) of a resource's id. Azure writes groups now this way, now that: ours are lower
    case.

    >>> of_id("/subscriptions/1/resourceGroups/ARYL/providers/Microsoft.Compute/virtualMachines/vm-1")
    ('aryl', 'vm-1')
    """
    parts = resource_id.split("/")
    return parts[4].lower(), parts[-1]


def instance_id(group: str, name: str) -> str:
    return f"{group.lower()}/{name}"


def split(instance: str) -> tuple[str, str] | None:
    """(group, name) of an instance id of ours; None for what is none."""
    group, sep, name = instance.partition("/")
    return (group, name) if sep and group and name else None


def word(value: Any) -> str:
    """Of an enumeration of the SDK, or of a value that it does not know yet."""
    return str(getattr(value, "value", value))


def statuses(vm: Any) -> list[tuple[str, str]]:
    """(code, message) of its instance view, where that has been asked for."""
    view = vm.properties.instance_view
    return [(str(one.code or ""), str(one.message or "")) for one in (view.statuses if view else None) or []]


def power(vm: Any) -> str | None:
    """``running``, ``stopped``, ``deallocated``…; None = not known, or none yet."""
    found = [code.removeprefix(_POWER) for code, _ in statuses(vm) if code.startswith(_POWER)]
    return found[-1].lower() if found else None


def failure(vm: Any) -> tuple[str, str] | None:
    """(code, message) of a machine that could not be made."""
    if word(vm.properties.provisioning_state) != "Failed":
        return None
    for code, message in statuses(vm):
        if code.lower().startswith(_FAILED.lower()):
            return code[len(_FAILED) :].lstrip("/") or "ProvisioningFailed", message
    return "ProvisioningFailed", "Azure does not say why"


def state(vm: Any) -> MachineState:
    """A machine that was switched off inside is paid for until it is deleted: STOPPING. So is one that could
    not be made: its disk may be there. (One that runs although Azure has not heard of it may be well.)"""
    provisioning, at = word(vm.properties.provisioning_state), power(vm)
    if provisioning == "Deleting" or (at is not None and at not in ("running", "starting")):
        return MachineState.STOPPING
    if provisioning == "Failed" and at != "running":
        return MachineState.STOPPING
    if provisioning == "Creating" or at == "starting":
        return MachineState.PENDING
    return MachineState.RUNNING


def machine(vm: Any) -> Machine | None:
    """None for a machine without our tags. Its price is another question."""
    marks = vm.tags or {}
    if JOURNAL not in marks or TOKEN not in marks:
        return None
    group, name = of_id(vm.id)
    failed = failure(vm) if state(vm) is MachineState.STOPPING else None
    spot = word(vm.properties.priority or "Regular") == "Spot"
    return Machine(
        instance_id=instance_id(group, name),
        token=marks[TOKEN],
        journal_id=marks[JOURNAL],
        job_id=marks.get(JOB, ""),
        lease_id=marks.get(LEASE, ""),
        cloud="azure",
        region=vm.location.replace(" ", "").lower(),
        zone=vm.zones[0] if vm.zones else None,
        instance_type=word(vm.properties.hardware_profile.vm_size),
        market=(Market.SPOT if spot else Market.ON_DEMAND).value,
        state=state(vm),
        usd_per_hour=None,
        launched_s=_seconds(vm.properties.time_created),
        end_cause=EndCause.NO_ROOM if failed is not None and _no_room(*failed) else None,
        end_text=None if failed is None else f"{failed[0]}: {failed[1]}"[:200],
        until_s=moment(marks.get(UNTIL)),
    )


def _no_room(code: str, message: str) -> bool:
    return kind_of(code, message) in (CapacityError, QuotaError)


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
