"""What is asked of Compute Engine for one machine: the instance, as a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.gcp.client import SCOPES
from arylcloud.providers.gcp.naming import labels, machine_name
from arylcloud.providers.gcp.network import Attachment
from arylcloud.providers.gcp.place import Image, Kind, attached

DISK_GB: Final = 100
"""Where the job says nothing: what the planner counts on, too."""
MAX_RUN_H: Final = 168.0
"""Compute Engine itself deletes a machine after so long, whatever has become of everybody else."""
_HYPERDISK: Final = ("g4-", "a4-", "a4x-", "a3-ultragpu-")
"""Families that have no persistent disks."""
_PREAMBLE: Final = """\
#!/bin/sh
# Google's "soft off" would stop everything at once: the 30 s from a notice to the end are the agent's.
if [ "$PWD" = / ] && [ -d /run/systemd/system ]; then
  systemd-inhibit --what=handle-power-key --mode=block --who=arylcloud --why=saving sleep infinity &
fi
"""


def startup_script(user_data: str) -> str:
    """The boot stub, behind what Compute Engine's machines need before it."""
    return _PREAMBLE + user_data.removeprefix("#!/bin/sh\n")


def document(
    spec: MachineSpec,
    zone: str,
    settings: Mapping[str, str],
    *,
    kind: Kind,
    image: Image,
    at: Attachment,
    policy: str | None = None,
) -> dict[str, Any]:
    """For ``compute_v1.Instance``. For one spec and zone always the same: so is its request id."""
    instance_type = spec.offer.instance_type
    ours = labels(spec, settings)
    disk_type = settings.get("disk_type") or (
        "hyperdisk-balanced" if instance_type.startswith(_HYPERDISK) else "pd-balanced"
    )
    found: dict[str, Any] = {
        "name": machine_name(spec.token),
        "description": f"arylcloud {spec.lease_id}",
        "machine_type": f"zones/{zone}/machineTypes/{instance_type}",
        "labels": ours,
        "metadata": {
            "items": [
                {"key": "startup-script", "value": startup_script(spec.user_data)},
                {"key": "block-project-ssh-keys", "value": "TRUE"},
                {"key": "serial-port-logging-enable", "value": "FALSE"},
            ]
        },
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {
                    "source_image": image.url,
                    "disk_size_gb": max(math.ceil(spec.disk_gb or DISK_GB), image.disk_gb),
                    "disk_type": f"zones/{zone}/diskTypes/{disk_type}",
                    "labels": ours,
                },
            }
        ],
        "network_interfaces": [_interface(at, settings)],
        "scheduling": _scheduling(spec, settings),
    }
    if at.tag is not None:
        found["tags"] = {"items": [at.tag]}
    if policy is not None:
        found["resource_policies"] = [policy]
    if (with_it := attached(spec.offer, kind)) is not None:
        found["guest_accelerators"] = [
            {
                "accelerator_type": f"zones/{zone}/acceleratorTypes/{with_it[0]}",
                "accelerator_count": with_it[1],
            }
        ]
    if account := spec.identity or settings.get("service_account"):
        found["service_accounts"] = [{"email": account, "scopes": list(SCOPES)}]
    return found


def _interface(at: Attachment, settings: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if at.subnetwork is not None:
        found["subnetwork"] = at.subnetwork
    elif at.network is not None:
        found["network"] = at.network
    outside = settings.get("external_ip", "ephemeral")
    if outside not in ("ephemeral", "none"):
        raise UsageError(f"[gcp] external_ip is {outside!r}", hint="ephemeral, or none")
    if outside == "ephemeral":  # the way out; there is none in
        found["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    return found


def _scheduling(spec: MachineSpec, settings: Mapping[str, str]) -> dict[str, Any]:
    spot = spec.offer.market is Market.SPOT
    try:
        max_run_s = round(float(settings.get("max_run_hours", MAX_RUN_H)) * 3600)
    except ValueError:
        raise UsageError("[gcp] max_run_hours is no number") from None
    if not 0 < max_run_s <= 120 * 86400:
        raise UsageError("[gcp] max_run_hours is not between 0 and 2880")
    notice = notice_s(settings)
    found: dict[str, Any] = {
        "provisioning_model": "SPOT" if spot else "STANDARD",
        "instance_termination_action": "DELETE",
        "on_host_maintenance": "TERMINATE",  # machines with GPUs cannot be moved
        "automatic_restart": False,
        "max_run_duration": {"seconds": max_run_s},
    }
    if spot and notice:
        found["preemption_notice_duration"] = {"seconds": round(notice)}
    return found


def notice_s(settings: Mapping[str, str]) -> float:
    """Between a notice and the "soft off": 0, unless the settings ask for more."""
    try:
        found = float(settings.get("preemption_notice_s", 0))
    except ValueError:
        found = -1.0
    if not 0 <= found <= 3600:
        raise UsageError("[gcp] preemption_notice_s is not between 0 and 3600")
    return found
