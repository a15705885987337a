"""What a launch may do: Azure lists the actions that the caller has at a scope, with wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from arylcloud.providers.azure.client import Arm, items
from arylcloud.providers.azure.request import NO_IDENTITY

VERSION: Final = "2022-04-01"
LOOK: Final = (
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/disks/read",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.ManagedIdentity/userAssignedIdentities/read",
    "Microsoft.Authorization/roleDefinitions/read",
    "Microsoft.Insights/eventtypes/values/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
)
MACHINES: Final = (
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
)
NETWORKS: Final = (
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Network/virtualNetworks/delete",
    "Microsoft.Network/virtualNetworks/subnets/write",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkSecurityGroups/delete",
)
GROUPS: Final = (
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
)
ROLES: Final = (
    "Microsoft.Authorization/roleAssignments/write",
    "Microsoft.Authorization/roleAssignments/delete",
)
THEIR_IDENTITY: Final = ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",)
"""On an identity that the company has made."""


def needed(settings: Mapping[str, str]) -> tuple[str, ...]:
    """By a launch with these settings."""
    wanted: tuple[str, ...] = LOOK + MACHINES
    if not (settings.get("subnet") or settings.get("vnet")):
        wanted += NETWORKS
    if "resource_group" not in settings:
        wanted += GROUPS
    identity = settings.get("identity")
    if identity is None:
        wanted += ROLES
    elif identity != NO_IDENTITY:
        wanted += THEIR_IDENTITY
    return wanted


def missing(arm: Arm, settings: Mapping[str, str]) -> list[str]:
    """Of ``needed``, those that the caller does not have where machines would be made."""
    scope = arm.scope
    if group := settings.get("resource_group"):
        scope = f"{scope}/resourceGroups/{group}"
    path = f"{scope}/providers/Microsoft.Authorization/permissions"
    given: list[Mapping[str, Any]] = list(items(arm, "permissions", path, VERSION))
    return [action for action in needed(settings) if not allowed(action, given)]


def allowed(action: str, given: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the assignments gives ``action`` and does not take it away again.

    >>> allowed("Microsoft.Compute/disks/read", [{"actions": ["*/read"], "notActions": []}])
    True
    >>> allowed("A/b/write", [{"actions": ["*"], "notActions": ["A/*/Write"]}])
    False
    """
    return any(_any(one.get("actions"), action) and not _any(one.get("notActions"), action) for one in given)


def _any(patterns: Iterable[str] | None, action: str) -> bool:
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), action, re.IGNORECASE)
        for pattern in patterns or ()
    )
