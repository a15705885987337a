"""``Infrastructure`` on Azure: groups and networks that we made, and what a machine may leave behind.

A machine's disk, interface and address end with it. One that is found unattached all the same is ours to
remove: disks and addresses are paid for. All else of ours in a region goes with its resource group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import ArylError, ConflictError, OtherCloudError
from arylcloud.core.ports import Resource
from arylcloud.providers import marks
from arylcloud.providers.azure import tags
from arylcloud.providers.azure.adapter import KNOWN
from arylcloud.providers.azure.client import Arm, all_of, no_wait
from arylcloud.providers.azure.place import Places
from arylcloud.providers.azure.roles import DEFINITION, IDENTITY, Identities
from arylcloud.providers.settings import known_only

GROUP: Final = "resource-group"
NETWORK: Final = "virtual-network"
GUARD: Final = "security-group"
NIC: Final = "network-interface"
ADDRESS: Final = "public-address"
DISK: Final = "disk"
GONE_S: Final = 60.0
_IN_USE: Final = frozenset(
    [
        "NicInUse",
        "PublicIPAddressCannotBeDeleted",
        "InUseNetworkSecurityGroupCannotBeDeleted",
        "InUseSubnetCannotBeDeleted",
        "DiskIsAttachedToVM",
        "NicReservedForAnotherVm",
    ]
)


def create(state_dir: Path, settings: Mapping[str, str]) -> AzureInfrastructure:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("azure", settings, KNOWN)
    arm = Arm(settings)
    return AzureInfrastructure(arm, Places(arm, settings), Identities(arm, settings))


class AzureInfrastructure:
    def __init__(self, arm: Arm, places: Places, identities: Identities) -> None:
        self._arm = arm
        self._places = places
        self._identities = identities

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        groups = self._places.groups(journal_id)
        with ThreadPoolExecutor(min(8, len(groups) or 1), thread_name_prefix="azure-resources") as pool:
            found = pool.map(lambda group: self._of_group(group, journal_id), groups)
            there = tuple(resource for part in found for resource in part)
        return there + self._identities.resources(journal_id=journal_id)

    def remove(self, resource: Resource) -> None:
        try:
            if resource.kind in (IDENTITY, DEFINITION):
                self._identities.remove(resource.resource_id)
            elif resource.kind == GROUP:
                self._remove_group(resource)
            else:
                self._remove_one(resource)
        except ArylError as error:
            attached = resource.kind == DISK and error.code == "OperationNotAllowed"
            if error.code in _IN_USE or attached:
                raise _in_use(resource) from error
            raise

    # ------------------------------------------------------------ parts

    def _of_group(self, group: tuple[str, str, str], journal_id: str | None) -> list[Resource]:
        name, region, owner = group
        own = bool(owner)  # else the company's, in which others have things, too
        found = []
        for kind in (DISK, NIC, ADDRESS, NETWORK, GUARD):  # the guard after the network, which holds it
            for one in self._list(kind, name):
                told = one.tags or {}
                whose = told.get(marks.JOURNAL, owner)
                if whose and journal_id in (None, whose) and _left(kind, one, own=own):
                    found.append(_resource(kind, one, name, whose, told.get(marks.JOB)))
        if own:
            found.append(
                Resource(cloud="azure", region=region, kind=GROUP, resource_id=name, journal_id=owner)
            )
        return found

    def _operations(self, kind: str) -> Any:
        if kind == DISK:
            return self._arm.compute.disks
        network = self._arm.network
        return {
            NIC: network.network_interfaces,
            ADDRESS: network.public_ip_addresses,
            NETWORK: network.virtual_networks,
            GUARD: network.network_security_groups,
        }[kind]

    def _list(self, kind: str, group: str) -> Iterable[Any]:
        operations = self._operations(kind)
        listing: Any = operations.list_by_resource_group if kind == DISK else operations.list
        what = f"{kind}s in {group}"
        return self._arm.find(what, lambda: all_of(what, listing(group))) or []

    def _remove_one(self, resource: Resource) -> None:
        where = tags.split(resource.resource_id)
        if where is None:
            return
        operations = self._operations(resource.kind)
        self._arm.drop(
            f"remove {resource.resource_id}", lambda: operations.begin_delete(*where, polling=no_wait())
        )
        give_up_s = time.monotonic() + GONE_S
        while self._arm.find(resource.resource_id, lambda: operations.get(*where)) is not None:
            if time.monotonic() >= give_up_s:
                raise OtherCloudError(f"azure: {resource.resource_id} is still there", code="StillThere")
            time.sleep(0.25)

    def _remove_group(self, resource: Resource) -> None:
        """With everything in it: never while there is a machine, or an interface that serves one."""
        name = resource.resource_id
        what, operations = f"machines in {name}", self._arm.compute.virtual_machines
        machines = self._arm.find(what, lambda: all_of(what, operations.list(name)))
        serving = [nic for nic in self._list(NIC, name) if nic.properties.virtual_machine is not None]
        if machines or serving:
            raise _in_use(resource)
        self._arm.drop(
            f"remove resource group {name}", lambda: self._arm.groups.begin_delete(name, polling=no_wait())
        )


def _left(kind: str, one: Any, *, own: bool) -> bool:
    """Whether nothing uses it; networks in a group of ours go with the group."""
    if kind == DISK:
        return not one.managed_by
    if kind == NIC:
        return one.properties.virtual_machine is None
    if kind == ADDRESS:
        return one.properties.ip_configuration is None
    return not own


def _resource(kind: str, one: Any, group: str, owner: str, job: str | None) -> Resource:
    return Resource(
        cloud="azure",
        region=one.location.replace(" ", "").lower(),
        kind=kind,
        resource_id=f"{group}/{one.name}",
        journal_id=owner,
        job_id=job,
        costs=kind in (DISK, ADDRESS),
    )


def _in_use(resource: Resource) -> ConflictError:
    return ConflictError(
        f"azure {resource.region}: {resource.kind} {resource.resource_id} is still in use",
        hint="it can go when its machines have ended: run gc again then",
    )
