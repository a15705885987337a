"""What a launch has to be allowed: the custom role of docs/clouds/gcp.md, as ``check`` asks for it."""

from __future__ import annotations

from typing import Final

LOOK: Final = (
    "compute.disks.list",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.globalOperations.get",
    "compute.instances.get",
    "compute.instances.list",
    "compute.machineTypes.list",
    "compute.networks.get",
    "compute.networks.list",
    "compute.projects.get",
    "compute.regionOperations.get",
    "compute.resourcePolicies.list",
    "compute.regions.get",
    "compute.subnetworks.get",
    "compute.subnetworks.list",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
)
ACT: Final = (
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.setLabels",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.subnetworks.use",
)
NETWORK: Final = (
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.networks.create",
    "compute.networks.delete",
    "compute.networks.updatePolicy",
    "compute.subnetworks.create",
    "compute.subnetworks.delete",
)
"""Not where the company brings a network."""
OUTSIDE: Final = ("compute.subnetworks.useExternalIp",)
"""Not where ``external_ip`` is ``none``."""
GANG: Final = (
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.get",
    "compute.resourcePolicies.use",
)
"""For jobs on several machines, of families that are placed near one another (``gang``)."""
ACCOUNT: Final = (
    "compute.instances.setIamPolicy",
    "compute.instances.setServiceAccount",
    "iam.serviceAccounts.actAs",
)
"""Where machines run as a service account."""
