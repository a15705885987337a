"""What a machine is asked for with: one order, in which Azure makes its network interface, address and disk,
too, and by which they end with it.

The SDK's model classes throughout: plain dictionaries would be sent as they are, and be silently wrong.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.azure.images import LEAST_GB, OFFER, PUBLISHER, reference
from arylcloud.providers.azure.place import Network
from arylcloud.providers.azure.tags import of_machine, vm_name

NETWORK_API: Final = "2024-05-01"
USER: Final = "aryl"
NO_IDENTITY: Final = "none"


def machine(spec: MachineSpec, settings: Mapping[str, str], image: str, network: Network) -> Any:
    """A ``VirtualMachine``."""
    from azure.mgmt.compute import models as m

    offer, name = spec.offer, vm_name(spec.token)
    marks = of_machine(spec, settings)
    spot = offer.market is Market.SPOT
    cap = spec.max_usd_per_hour
    return m.VirtualMachine(
        location=offer.region,
        zones=[offer.zone] if offer.zone else None,
        tags=marks,
        identity=_identity(settings, spec.identity),
        properties=m.VirtualMachineProperties(
            hardware_profile=m.HardwareProfile(vm_size=offer.instance_type),
            storage_profile=m.StorageProfile(
                image_reference=m.ImageReference(**reference(image)),
                os_disk=m.OSDisk(
                    name=f"{name}-disk",
                    create_option="FromImage",
                    delete_option="Delete",
                    disk_size_gb=_disk_gb(spec, image),
                    managed_disk=m.ManagedDiskParameters(
                        storage_account_type=settings.get("disk_type", "StandardSSD_LRS")
                    ),
                ),
            ),
            os_profile=m.OSProfile(
                computer_name=name,
                admin_username=USER,
                custom_data=base64.b64encode(spec.user_data.encode()).decode(),
                linux_configuration=m.LinuxConfiguration(
                    disable_password_authentication=True,
                    ssh=m.SshConfiguration(
                        public_keys=[
                            m.SshPublicKey(path=f"/home/{USER}/.ssh/authorized_keys", key_data=nobodys_key())
                        ]
                    ),
                ),
            ),
            network_profile=m.NetworkProfile(
                network_api_version=NETWORK_API,
                network_interface_configurations=[_interface(name, marks, network)],
            ),
            priority="Spot" if spot else "Regular",
            eviction_policy="Delete" if spot else None,
            # -1: up to the on-demand price. Azure takes five decimals.
            billing_profile=m.BillingProfile(max_price=-1.0 if cap is None else round(cap, 5))
            if spot
            else None,
        ),
    )


def _interface(name: str, marks: Mapping[str, str], network: Network) -> Any:
    from azure.mgmt.compute import models as m

    address = None
    if network.public:
        address = m.VirtualMachinePublicIPAddressConfiguration(
            name=f"{name}-ip",
            sku=m.PublicIPAddressSku(name="Standard"),
            tags=dict(marks),
            properties=m.VirtualMachinePublicIPAddressConfigurationProperties(
                delete_option="Delete", public_ip_allocation_method="Static"
            ),
        )
    guard = network.security_group_id
    return m.VirtualMachineNetworkInterfaceConfiguration(
        name=f"{name}-nic",
        tags=dict(marks),
        properties=m.VirtualMachineNetworkInterfaceConfigurationProperties(
            primary=True,
            delete_option="Delete",
            network_security_group=None if guard is None else m.SubResource(id=guard),
            ip_configurations=[
                m.VirtualMachineNetworkInterfaceIPConfiguration(
                    name="machine",
                    properties=m.VirtualMachineNetworkInterfaceIPConfigurationProperties(
                        primary=True,
                        subnet=m.SubResource(id=network.subnet_id),
                        public_ip_address_configuration=address,
                    ),
                )
            ],
        ),
    )


def _identity(settings: Mapping[str, str], store: str | None) -> Any:
    """By which a machine ends itself (``selfend``): its own, or one that the company has made; and the one by
    which it reaches its job's prefix (``roles``)."""
    from azure.mgmt.compute import models as m

    named = settings.get("identity")
    own = named is None
    several = [one for one in (None if named == NO_IDENTITY else named, store) if one is not None]
    for one in several:
        if not one.startswith("/subscriptions/"):
            raise UsageError(
                f"[azure] identity: {one!r} is no id",
                hint="/subscriptions/…/userAssignedIdentities/NAME, or none",
            )
    if not own and not several:
        return None
    kinds = ["SystemAssigned"] * own + ["UserAssigned"] * bool(several)
    return m.VirtualMachineIdentity(
        type=", ".join(kinds),
        user_assigned_identities={one: m.UserAssignedIdentitiesValue() for one in several} or None,
    )


def _disk_gb(spec: MachineSpec, image: str) -> int | None:
    """No smaller than the image's own, where that is known."""
    if spec.disk_gb is None:
        return None
    least = LEAST_GB if image.startswith(f"{PUBLISHER}:{OFFER}:") else 1
    return max(math.ceil(spec.disk_gb), least)


@cache
def nobodys_key() -> str:
    """Azure makes no Linux machine without a way to sign in: a key whose other half is thrown away."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = generate_private_key(public_exponent=65537, key_size=2048).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + f" {USER}"
