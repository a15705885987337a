"""Which machines there are and were: what Azure lists, lists not yet, and has forgotten."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError, OtherCloudError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Machine, MachineState
from arylcloud.providers import marks
from arylcloud.providers.azure import tags
from arylcloud.providers.azure.client import Arm, all_of
from arylcloud.providers.azure.ends import Ends
from arylcloud.providers.azure.listprice import ListPrices
from arylcloud.providers.azure.making import Making
from arylcloud.providers.azure.place import Places
from arylcloud.providers.azure.prices import SOURCE
from arylcloud.providers.azure.selfend import Roles
from arylcloud.providers.sightings import Sightings

log = logging.getLogger("arylcloud.azure")
LOOK_EVERY_S: Final = 30.0
"""How old the power state of a machine that was running may be: a list does not hold it."""


class Roster:
    """Safe to use from several threads."""

    def __init__(
        self,
        arm: Arm,
        places: Places,
        making: Making,
        roles: Roles,
        prices: ListPrices,
        sightings: Sightings,
    ) -> None:
        self._arm = arm
        self._places = places
        self._making = making
        self._roles = roles
        self._prices = prices
        self._sightings = sightings
        self._ends = Ends(arm)
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}
        self._addresses: dict[str, str] = {}
        self._entitled: set[str] = set()
        self._stripped: set[str] = set()

    def machines(self, journal_id: str | None) -> tuple[Machine, ...]:
        """As the port's ``list_machines``: one question for each group of ours."""
        groups = [name for name, _, _ in self._places.groups(journal_id)]
        found: dict[str, Machine] = {}
        if groups:
            with ThreadPoolExecutor(min(8, len(groups)), thread_name_prefix="azure-list") as pool:
                listed = [vm for part in pool.map(self._list, groups) for vm in part]
                ours = [vm for vm in listed if _is_of(vm, journal_id)]
                seen = pool.map(lambda vm: self._seen(vm, ours=journal_id is not None), ours)
                found = {m.instance_id: m for m in seen if m is not None}
        for missing in self._sightings.unlisted(found, journal_id):
            machine = self.missing(missing)
            if machine is not None:
                found[machine.instance_id] = machine
        for machine in self._sightings.ended():
            if journal_id in (None, machine.journal_id):
                found.setdefault(machine.instance_id, machine)
        if journal_id is not None:  # whoever only looks takes nothing
            ended = [key for key, m in found.items() if m.state is MachineState.GONE]
            with ThreadPoolExecutor(8, thread_name_prefix="azure-roles") as pool:  # the list waits for them
                list(pool.map(self.strip, [key for key in ended if key not in self._stripped]))
        return tuple(found.values())

    def _list(self, group: str) -> list[Any]:
        what, machines = f"machines in {group}", self._arm.compute.virtual_machines
        found = self._arm.find(what, lambda: all_of(what, machines.list(group)))
        return found or []  # a group that has just been removed

    def entitle(self, vm: Any) -> None:
        """It may end itself from now on. Raises as ``Roles.give``."""
        key = tags.instance_id(*tags.of_id(vm.id))
        self._roles.give(vm)
        self._entitled.add(key)
        if self._sightings.asked_s(key) is not None and self.is_going(*tags.of_id(vm.id)):
            self.strip(key)  # ended meanwhile; an order that had no success leaves it what it may

    def is_going(self, group: str, name: str) -> bool:
        vm = self._making.look(group, name)
        return vm is None or tags.word(vm.properties.provisioning_state) == "Deleting"

    def strip(self, instance_id: str) -> None:
        """A machine that has ended, by whomever, may nothing any more. Logged where Azure refuses: with the
        machine gone it gives nobody anything."""
        where = tags.split(instance_id)
        if where is None:
            return
        self._entitled.discard(instance_id)
        try:
            self._roles.take(self._arm.vm_id(*where))
        except ArylError as error:
            log.info("the role of %s is left: %s", instance_id, error.message)
            if not isinstance(error, AccessError):
                return  # the next look tries again
        self._stripped.add(instance_id)

    def _seen(self, vm: Any, *, ours: bool) -> Machine | None:
        """As listed, with its power state, unless it was seen running a moment ago. One of ours whose order
        had no answer has not been given its role: it gets it now."""
        group, name = tags.of_id(vm.id)
        key = tags.instance_id(group, name)
        if tags.word(vm.properties.provisioning_state) != "Deleting":
            with self._lock:
                age_s = time.monotonic() - self._running.get(key, float("-inf"))
            if age_s > LOOK_EVERY_S or tags.word(vm.properties.provisioning_state) != "Succeeded":
                vm = self._making.look(group, name)
                if vm is None:  # gone since
                    return None
        machine = self.read(vm, self._known(key))
        self._sightings.saw(machine)
        if ours and key not in self._entitled and machine.state is MachineState.RUNNING:
            try:
                self.entitle(vm)
            except ArylError as error:
                log.warning("%s cannot end itself yet: %s", key, error.message)
        return machine

    def _known(self, instance_id: str) -> Machine | None:
        return next((m for m in self._sightings.live() if m.instance_id == instance_id), None)

    def missing(self, missing: Machine) -> Machine | None:
        """A machine that we know and the list does not: lists lag, machines end, and tags are removed."""
        where = tags.split(missing.instance_id)
        vm = self._making.look(*where) if where is not None else None
        if vm is not None:
            return self.read(vm, missing)
        asked_s = self._sightings.asked_s(missing.instance_id)
        return self._sightings.end(missing.instance_id, *self._ends.of(missing, asked_s))

    def read(self, vm: Any, known: Machine | None = None) -> Machine:
        """``known``: what was seen of it, for one that somebody has taken our tags off."""
        machine = tags.machine(vm)
        if machine is None and known is not None:
            log.warning("somebody has removed our tags from %s", known.instance_id)
            machine = replace(known, state=tags.state(vm))
        if machine is None:
            raise OtherCloudError(f"azure: {vm.id} does not carry our tags", code="NoTags")
        if machine.state is MachineState.RUNNING and tags.power(vm) is not None:
            with self._lock:
                self._running[machine.instance_id] = time.monotonic()
        return replace(machine, usd_per_hour=self._price_of(machine), address=self._address(vm, machine))

    def _price_of(self, machine: Machine) -> float | None:
        """A price that cannot be read is None: the machine exists all the same, and has to be seen."""
        known = self._prices.now(_offer(machine))
        return None if known is None else known[0]

    def _address(self, vm: Any, machine: Machine) -> str | None:
        """Of its network interface, asked once."""
        with self._lock:
            known = self._addresses.get(machine.instance_id)
        profile = vm.properties.network_profile
        interfaces = (profile.network_interfaces if profile is not None else None) or []
        if known is not None or machine.state is not MachineState.RUNNING or not interfaces:
            return known
        group, name = tags.of_id(interfaces[0].id)
        try:
            nic = self._arm.find(name, lambda: self._arm.network.network_interfaces.get(group, name))
        except ArylError as error:
            log.warning("address of %s: %s", machine.instance_id, error.message)
            return None
        address = (
            nic.properties.ip_configurations[0].properties.private_ip_address if nic is not None else None
        )
        if address:
            with self._lock:
                self._addresses[machine.instance_id] = str(address)
        return address


def _is_of(vm: Any, journal_id: str | None) -> bool:
    told = vm.tags or {}
    return marks.JOURNAL in told and marks.TOKEN in told and journal_id in (None, told[marks.JOURNAL])


def _offer(machine: Machine) -> Offer:
    """What it is an instance of, for its price."""
    return Offer(
        cloud="azure",
        region=machine.region,
        zone=machine.zone,
        instance_type=machine.instance_type,
        gpu=None,
        gpu_count=None,
        gpu_mem_gib=None,
        vcpus=None,
        mem_gib=None,
        market=Market(machine.market),
        usd_per_hour=None,
        as_of=None,
        source=SOURCE,
    )
