"""Where a machine is put: resource group and network, made once per journal and region, found again by name
and tag, removed by ``gc``. Nothing here costs anything while it exists.

One group per journal *and region*: an outage of one region keeps no other from being changed, everything that
a machine could leave behind lies in it, and its end is one call. What a company brings goes before what we
would make: ``[azure] resource_group``, ``vnet``, ``subnet``.

A new network of Azure's has no way out by itself since 2026: each machine has a public address (Standard, so
closed to the world but for what a security group opens: nothing). In a company's subnet its way out is used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.errors import ArylError, CapacityError, UsageError
from arylcloud.providers.azure.client import Arm, all_of, no_wait
from arylcloud.providers.azure.tags import of_id, of_journal, word
from arylcloud.providers.marks import JOURNAL

NETWORK: Final = "arylcloud"
_SPACE: Final = "10.83.0.0/16"
_MACHINES: Final = "10.83.0.0/20"
MADE_TRIES: Final = 120
MADE_EVERY_S: Final = 0.25
_AGAIN: Final = frozenset(
    {
        "AnotherOperationInProgress",
        "ReferencedResourceNotProvisioned",
        "RetryableError",
        "Conflict",
        "Canceled",
    }
)
"""Another launcher of this journal is making the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    subnet_id: str
    security_group_id: str | None
    """None = the subnet's own."""
    public: bool
    """Whether a machine needs an address of its own to get out."""


class Places:
    """Made once for one adapter. Safe to use from several threads."""

    def __init__(self, arm: Arm, settings: Mapping[str, str]) -> None:
        self._arm = arm
        self._settings = settings
        self._lock = threading.Lock()
        self._making: dict[tuple[str, str], threading.Lock] = {}
        self._made: set[str] = set()
        self._networks: dict[tuple[str, str], Network] = {}

    # ------------------------------------------------------------ groups

    def group_name(self, region: str, journal_id: str) -> str:
        named = self._settings.get("resource_group")
        return named.lower() if named else f"arylcloud-{journal_id}-{region}".lower()

    def group(self, region: str, journal_id: str) -> str:
        """Its name, once it is there."""
        name = self.group_name(region, journal_id)
        if name not in self._made:
            self._make_group(name, region, journal_id)
            self._made.add(name)
        return name

    def _make_group(self, name: str, region: str, journal_id: str) -> None:
        found = self._arm.find(f"resource group {name}", lambda: self._arm.groups.get(name))
        if found is not None and word(found.properties.provisioning_state) == "Deleting":
            raise _not_now(f"azure: resource group {name} is being removed", "GroupDeleting")
        if found is not None:
            return
        if "resource_group" in self._settings:
            raise UsageError(f"azure has no resource group {name}", hint="[azure] resource_group")
        from azure.mgmt.resource.resources.models import ResourceGroup

        wanted = ResourceGroup(location=region, tags=of_journal(journal_id, self._settings))
        self._arm.act(f"make resource group {name}", lambda: self._arm.groups.create_or_update(name, wanted))

    def groups(self, journal_id: str | None) -> list[tuple[str, str, str]]:
        """(name, region, journal) of ours, by tag; and the company's own. Those on their way out are none."""
        named = self._settings.get("resource_group")
        if named:
            return [(named.lower(), "", "")]
        condition = f"tagName eq '{JOURNAL}'"
        if journal_id is not None:
            condition += f" and tagValue eq '{journal_id}'"
        what, groups = "resource groups", self._arm.groups
        listed = self._arm.read(what, lambda: all_of(what, groups.list(filter=condition)))
        found = {}
        for one in listed:
            if word(one.properties.provisioning_state) != "Deleting":
                found[one.name.lower()] = (one.name.lower(), one.location, (one.tags or {}).get(JOURNAL, ""))
        return sorted(found.values())

    def forget(self) -> None:
        """Something has been removed under our feet: it is looked for, and made, again."""
        self._made.clear()
        self._networks.clear()

    # ------------------------------------------------------------ networks

    def network(self, region: str, journal_id: str) -> Network:
        key = (region, journal_id)
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:  # regions wait for no other
            found = self._networks.get(key)
            if found is None:
                found = self._networks[key] = self._theirs(region) or self._ours(region, journal_id)
            return found

    def planned(self, region: str) -> str:
        """In words, with nothing made: what a launch would use. Raises as ``network``."""
        theirs = self._theirs(region)
        if theirs is not None:
            return f"subnet {theirs.subnet_id}"
        if named := self._settings.get("resource_group"):
            self._make_group(named.lower(), region, "")  # of the company: it has to be there
            return f"a network of its own, in resource group {named}"
        return "a network of its own, in a resource group of its own"

    def _theirs(self, region: str) -> Network | None:
        """A subnet that the company has named for this region."""
        subnets = _several(self._settings.get("subnet", ""))
        vnets = _several(self._settings.get("vnet", ""))
        if not subnets and not vnets:
            return None
        for identity in subnets or vnets:
            group, name = of_id(identity.split("/subnets/")[0]) if identity.count("/") >= 8 else ("", "")
            if not group:
                raise UsageError(f"[azure] vnet, subnet: {identity!r} is no id", hint="/subscriptions/…")
            vnet = self._find_vnet(group, name)
            if vnet is None:
                raise UsageError(f"azure has no virtual network {group}/{name}", hint="[azure] vnet, subnet")
            if vnet.location.replace(" ", "").lower() != region:
                continue
            known = {str(one.id).lower(): str(one.id) for one in vnet.properties.subnets or []}
            chosen = known.get(identity.lower()) if subnets else next(iter(known.values()), None)
            if chosen is None:
                raise UsageError(f"azure has no subnet {identity}", hint="[azure] subnet")
            public = self._settings.get("public_address", "false") == "true"
            return Network(subnet_id=chosen, security_group_id=None, public=public)
        raise CapacityError(  # of this region only: another may well have one
            f"azure: no subnet to launch in, in {region}",
            code="NoSubnet",
            hint="name one of this region, too: [azure] subnet (several: with commas)",
        )

    def _find_vnet(self, group: str, name: str) -> Any:
        return self._arm.find(f"virtual network {name}", lambda: self._vnet(group, name))

    def _ours(self, region: str, journal_id: str) -> Network:
        group = self.group(region, journal_id)
        name = network_name(self._settings, region, journal_id)
        public = self._settings.get("public_address", "true") == "true"
        guard = self._ensure(
            f"security group {group}/{name}",
            lambda: self._guard(group, name),
            self._make_guard(group, name, region, journal_id),
        )
        vnet = self._ensure(
            f"virtual network {group}/{name}",
            lambda: self._vnet(group, name),
            self._make_vnet(group, name, region, journal_id, str(guard.id)),
        )
        return Network(
            subnet_id=str(vnet.properties.subnets[0].id), security_group_id=str(guard.id), public=public
        )

    def _ensure(self, what: str, look: Callable[[], Any], make: Callable[[], None]) -> Any:
        """``look()`` once it says that what ``make()`` makes is ready. Several may do this at once."""
        found = self._arm.find(what, look)
        if found is None:
            try:
                self._arm.act(f"make {what}", make)
            except ArylError as error:
                if error.code not in _AGAIN:
                    raise
        for _ in range(MADE_TRIES):
            found = self._arm.find(what, look)
            if found is not None and word(found.properties.provisioning_state) == "Succeeded":
                return found
            if found is not None and word(found.properties.provisioning_state) == "Failed":
                raise _not_now(f"azure: {what} could not be made", "NetworkFailed")
            time.sleep(MADE_EVERY_S)
        raise _not_now(f"azure: {what} is not ready yet", "NetworkNotReady")

    def _guard(self, group: str, name: str) -> Any:
        return self._arm.network.network_security_groups.get(group, name)

    def _vnet(self, group: str, name: str) -> Any:
        return self._arm.network.virtual_networks.get(group, name)

    def _make_guard(self, group: str, name: str, region: str, journal_id: str) -> Callable[[], None]:
        def make() -> None:
            """No rule of ours: Azure's own let in only machines of the same network, and out everything."""
            from azure.mgmt.network.models import NetworkSecurityGroup

            wanted = NetworkSecurityGroup(location=region, tags=of_journal(journal_id, self._settings))
            self._arm.network.network_security_groups.begin_create_or_update(
                group, name, wanted, polling=no_wait()
            )

        return make

    def _make_vnet(
        self, group: str, name: str, region: str, journal_id: str, guard_id: str
    ) -> Callable[[], None]:
        def make() -> None:
            from azure.mgmt.network import models

            subnet = models.Subnet(
                name="machines",
                properties=models.SubnetPropertiesFormat(
                    address_prefix=_MACHINES,
                    network_security_group=models.NetworkSecurityGroup(id=guard_id),
                    default_outbound_access=False,
                ),
            )
            wanted = models.VirtualNetwork(
                location=region,
                tags=of_journal(journal_id, self._settings),
                properties=models.VirtualNetworkPropertiesFormat(
                    address_space=models.AddressSpace(address_prefixes=[_SPACE]), subnets=[subnet]
                ),
            )
            self._arm.network.virtual_networks.begin_create_or_update(group, name, wanted, polling=no_wait())

        return make


def network_name(settings: Mapping[str, str], region: str, journal_id: str) -> str:
    """In a group that others use, too, a name that tells whose it is."""
    return f"{NETWORK}-{journal_id}-{region}" if "resource_group" in settings else NETWORK


def _not_now(message: str, code: str) -> CapacityError:
    """No machine has been ordered: elsewhere one may be, and here later."""
    return CapacityError(message, code=code, scope="region")


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
