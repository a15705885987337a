"""A machine comes into being: ordered once, watched until Azure has found room for it, buried where not.

Azure takes an order and says only later that there is no room for it; what it leaves then, a machine that is
none, with a disk and a network interface, is ours to delete. A launcher that dies in between finds it by its
name (the token's), or in a list.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from arylcloud.core.errors import ArylError, OtherCloudError
from arylcloud.providers import marks
from arylcloud.providers.azure import errors, tags
from arylcloud.providers.azure.client import Arm, no_wait
from arylcloud.providers.azure.selfend import Roles
from arylcloud.providers.bounds import ordered

log = logging.getLogger("arylcloud.azure")
ALLOCATED_S: Final = 60.0
"""So long a refusal is waited for; a later one is found in the list."""
GONE_S: Final = 90.0
FIRST_LOOK_S: Final = 0.1
SLOWEST_LOOK_S: Final = 3.0
THERE: Final = frozenset({"PreconditionFailed", "PropertyChangeNotAllowed", "412", "ConcurrentVMWrite"})
"""There is a machine of that name already."""


class Making:
    """Safe to use from several threads."""

    def __init__(self, arm: Arm, roles: Roles) -> None:
        self._arm = arm
        self._roles = roles

    def look(self, group: str, name: str) -> Any:
        """The machine with its instance view; None = there is none."""
        return self._arm.find(
            f"machine {name}",
            lambda: self._arm.compute.virtual_machines.get(group, name, expand="instanceView"),
        )

    def order(self, group: str, name: str, wanted: Any) -> bool:
        """Sent once. False: there is one of that name already, whoever ordered it."""
        from azure.core import MatchConditions

        def send() -> None:
            self._arm.compute.virtual_machines.begin_create_or_update(
                group,
                name,
                wanted,
                etag="*",
                match_condition=MatchConditions.IfMissing,
                polling=no_wait(),
            )

        try:
            self._arm.act(f"make {wanted.properties.hardware_profile.vm_size} in {wanted.location}", send)
        except ArylError as error:
            if error.code in THERE:
                return False
            raise
        return True

    def allocated(self, group: str, name: str) -> Any:
        """The machine, once Azure has room for it, or has not said no in time. Raises what Azure refused it
        for, with nothing left of it; where something may be left, OtherCloudError."""
        give_up_s = time.monotonic() + ALLOCATED_S
        wait_s = FIRST_LOOK_S
        while True:
            with ordered(name):
                vm = self.look(group, name)
            if vm is None:
                raise OtherCloudError(f"azure: {name} is gone before it was made", code="GoneAgain")
            refusal = tags.failure(vm)
            ours = marks.TOKEN in (vm.tags or {})  # else somebody else's, of the same name
            if refusal is not None and ours and tags.power(vm) not in ("running", "starting"):
                self._bury(group, name, vm.id, errors.of_code(*refusal, f"azure: make {name}"))
            if tags.word(vm.properties.provisioning_state) != "Creating" or tags.power(vm) is not None:
                return vm
            if time.monotonic() >= give_up_s:
                return vm
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.7, SLOWEST_LOOK_S)

    def end(self, group: str, name: str) -> None:
        """Asked for; the missing is success. What hangs on it goes with it (``deleteOption``)."""
        self._arm.drop(
            f"end {name}",
            lambda: self._arm.compute.virtual_machines.begin_delete(
                group, name, force_deletion=True, polling=no_wait()
            ),
        )

    def gone(self, group: str, name: str) -> None:
        """Waits for it. OtherCloudError where it takes too long."""
        self._gone(lambda: self.look(group, name), name)

    def _bury(self, group: str, name: str, vm_id: str, refusal: ArylError) -> None:
        """Raises ``refusal`` once nothing is left."""
        try:
            self.end(group, name)
            self.gone(group, name)
            self._rests(group, name)
            self._roles.take(vm_id)
        except ArylError as error:
            raise OtherCloudError(
                f"{refusal.message}; what is left of it is not gone yet: {error.message}", code=refusal.code
            ) from error
        raise refusal

    def _rests(self, group: str, name: str) -> None:
        """Of a machine that never was, not all may know that it should go with it."""
        network, compute = self._arm.network, self._arm.compute
        for kind, suffix in (
            (network.network_interfaces, "nic"),
            (network.public_ip_addresses, "ip"),
            (compute.disks, "disk"),
        ):
            self._rest(kind, group, f"{name}-{suffix}")

    def _rest(self, kind: Any, group: str, name: str) -> None:
        def look() -> Any:
            return self._arm.find(name, lambda: kind.get(group, name))

        if look() is not None:
            self._arm.drop(f"remove {name}", lambda: kind.begin_delete(group, name, polling=no_wait()))
            self._gone(look, name)

    def _gone(self, look: Callable[[], object], what: str) -> None:
        give_up_s, wait_s = time.monotonic() + GONE_S, FIRST_LOOK_S
        while look() is not None:
            if time.monotonic() >= give_up_s:
                raise OtherCloudError(f"{what} is still there", code="StillThere")
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.7, SLOWEST_LOOK_S)
