"""``Infrastructure`` on AWS: security groups and roles that we made, and what a machine may leave behind.

A machine's disk and network interface end with it. One that is found unattached all the same is ours to
remove: a disk is paid for, a network interface keeps its security group from being removed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError, ConflictError
from arylcloud.core.ports import Resource
from arylcloud.providers.aws import roles
from arylcloud.providers.aws.adapter import KNOWN
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import Places
from arylcloud.providers.marks import JOB, JOURNAL
from arylcloud.providers.settings import known_only

log = logging.getLogger("arylcloud.aws")
GROUP: Final = "security-group"
VOLUME: Final = "volume"
NIC: Final = "network-interface"
PLACEMENT: Final = "placement-group"
_UNATTACHED: Final = {"Name": "status", "Values": ["available"]}
_DELETE: Final = {
    GROUP: ("delete_security_group", "GroupId"),
    VOLUME: ("delete_volume", "VolumeId"),
    NIC: ("delete_network_interface", "NetworkInterfaceId"),
    PLACEMENT: ("delete_placement_group", "GroupName"),
}
_MISSING: Final = frozenset(
    [
        "InvalidGroup.NotFound",
        "InvalidVolume.NotFound",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidPlacementGroup.Unknown",
    ]
)
_IN_USE: Final = frozenset(
    [
        "DependencyViolation",
        "VolumeInUse",
        "InvalidNetworkInterface.InUse",
        "InvalidGroup.InUse",
        "InvalidPlacementGroup.InUse",
    ]
)


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsInfrastructure:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("aws", settings, KNOWN)
    calls = Calls(settings.get("profile"))
    return AwsInfrastructure(calls, Places(calls, settings))


class AwsInfrastructure:
    def __init__(self, calls: Calls, places: Places) -> None:
        self._calls = calls
        self._places = places

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        regions = self._places.regions()
        with ThreadPoolExecutor(min(8, len(regions) or 1), thread_name_prefix="aws-resources") as pool:
            found = pool.map(lambda region: self._of_region(region, journal_id), regions)
            there = tuple(resource for part in found for resource in part)
        try:
            return there + roles.resources(self._calls, journal_id=journal_id)
        except AccessError as error:  # who may not look at roles cannot have made any
            log.info("roles: %s", error.message)
            return there

    def remove(self, resource: Resource) -> None:
        if resource.kind == roles.ROLE:
            roles.remove(self._calls, resource.region, resource.resource_id)
            return
        operation, parameter = _DELETE[resource.kind]
        try:
            self._calls.act("ec2", resource.region, operation, **{parameter: resource.resource_id})
        except ArylError as error:
            if error.code in _MISSING:
                return
            if error.code in _IN_USE:
                raise ConflictError(
                    f"aws {resource.region}: {resource.kind} {resource.resource_id} is still in use",
                    code=error.code,
                    hint="it can go when its machines have ended: run gc again then",
                ) from error
            raise

    def _of_region(self, region: str, journal_id: str | None) -> list[Resource]:
        ours = (
            {"Name": f"tag:{JOURNAL}", "Values": [journal_id]}
            if journal_id is not None
            else {"Name": "tag-key", "Values": [JOURNAL]}
        )
        asked = (
            (VOLUME, "describe_volumes", "Volumes", "VolumeId", [ours, _UNATTACHED]),
            (
                NIC,
                "describe_network_interfaces",
                "NetworkInterfaces",
                "NetworkInterfaceId",
                [ours, _UNATTACHED],
            ),
            (PLACEMENT, "describe_placement_groups", "PlacementGroups", "GroupName", [ours]),
            (GROUP, "describe_security_groups", "SecurityGroups", "GroupId", [ours]),  # last: NICs hold them
        )
        found = []
        for kind, operation, key, name, filters in asked:
            for one in self._calls.pages("ec2", region, operation, key, Filters=filters):
                tags = _tags(one)
                found.append(
                    Resource(
                        cloud="aws",
                        region=region,
                        kind=kind,
                        resource_id=str(one[name]),
                        journal_id=tags[JOURNAL],
                        job_id=tags.get(JOB),
                        costs=kind == VOLUME,
                    )
                )
        return found


def _tags(one: Mapping[str, Any]) -> dict[str, str]:
    """EC2 calls them ``TagSet`` for a network interface."""
    return {tag["Key"]: tag["Value"] for tag in one.get("Tags") or one.get("TagSet") or []}
