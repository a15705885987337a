"""How a machine ends itself: Azure bills one that has only been shut down, so it has to delete itself.

For that it has an identity of its own, which may do something with this one machine and nothing else: a role
on the machine's own id, given once it is there. (Where the launcher may not give roles: ``[azure] identity``,
one that the company has made; or ``none``, and then only a launcher or ``gc`` ends the bill.)
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError
from arylcloud.providers.azure.client import Arm

VERSION: Final = "2022-04-01"
COMPUTE: Final = "2024-07-01"
CONTRIBUTOR: Final = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"
"""Azure's own role Virtual Machine Contributor; ``[azure] machine_role`` names a smaller one."""
_DEFINITIONS: Final = "/providers/Microsoft.Authorization/roleDefinitions"
_GIVEN: Final = ("RoleAssignmentExists",)
_OF_ANOTHER: Final = ("RoleAssignmentUpdateNotPermitted",)
_NAMES: Final = uuid.UUID("5b0e3b0e-8d0c-4f8e-9a53-2f6d1c1c0a51")

_SCRIPT: Final = """\
import json, os, time, urllib.parse, urllib.request as r
host = os.environ.get("ARYL_METADATA_URL") or "http://169.254.169.254"
here = r.build_opener(r.ProxyHandler({}))
def ask(path):
    return here.open(r.Request(host + path, headers={"Metadata": "true"}), timeout=10).read().decode()
for n in range(@TRIES@):
    try:
        vm = ask("/metadata/instance/compute/resourceId?api-version=2021-02-01&format=text")
        who = urllib.parse.urlencode(@WHO@)
        token = json.loads(ask("/metadata/identity/oauth2/token?api-version=2018-02-01&" + who))
        url = "@BASE@" + vm.strip() + "?api-version=@COMPUTE@&forceDeletion=true"
        auth = {"Authorization": "Bearer " + token["access_token"]}
        r.urlopen(r.Request(url, method="DELETE", headers=auth), timeout=60)
        break
    except Exception as error:
        print("this machine cannot delete itself:", error)
        time.sleep(min(60, 2 ** n))
"""


def command(base: str, audience: str, *, identity: str | None = None, tries: int = 6) -> str:
    """For ``ARYL_POWEROFF``: delete this machine by its own identity, or by the one of that id; shut it down
    in any case."""
    who = {"resource": audience, **({"msi_res_id": identity} if identity else {})}
    script = (
        _SCRIPT.replace("@BASE@", base)
        .replace("@WHO@", json.dumps(who))
        .replace("@COMPUTE@", COMPUTE)
        .replace("@TRIES@", str(tries))
    )
    return f"python3 -S -c {shlex.quote(script)}; shutdown -h now"


class Roles:
    """Who may end which machine."""

    def __init__(self, arm: Arm, settings: Mapping[str, str]) -> None:
        self._arm = arm
        self._settings = settings

    def give(self, vm: Any) -> None:
        """The machine's own identity may end the machine. Idempotent; nothing where it has none of its own.
        AccessError says what to do where we may give no roles."""
        principal = vm.identity.principal_id if vm.identity is not None else None
        if not principal:
            return
        try:
            self._put(vm.id, principal)
        except AccessError as error:
            raise AccessError(
                f"azure: may not let a machine end itself: {error.message}",
                code=error.code,
                hint="a role that may write Microsoft.Authorization/roleAssignments, or [azure] identity "
                "(docs/clouds/azure.md, Dead-man's switch)",
            ) from error

    def take(self, vm_id: str) -> None:
        """Of a machine that has been ended. Raises as any order. Nothing where ``[azure] identity`` says that
        machines have no role of ours."""
        if self._settings.get("identity"):
            return
        self._arm.drop("take a role", lambda: self._arm.rest("DELETE", self._path(vm_id), VERSION))

    def _put(self, vm_id: str, principal: str) -> None:
        role = self._settings.get("machine_role", CONTRIBUTOR).rpartition("/")[2]
        body = {
            "properties": {
                "roleDefinitionId": f"{self._arm.scope}{_DEFINITIONS}/{role}",
                "principalId": principal,
                "principalType": "ServicePrincipal",  # else Azure looks for it where it is not known yet
            }
        }

        def put() -> None:
            self._arm.rest("PUT", self._path(vm_id), VERSION, body)

        try:
            self._arm.read("give a role", put)
        except ArylError as error:
            if error.code in _GIVEN:
                return
            if error.code not in _OF_ANOTHER:
                raise
            self.take(vm_id)  # an earlier machine of that name had it
            self._arm.read("give a role", put)

    def _path(self, vm_id: str) -> str:
        return (
            f"{vm_id}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid5(_NAMES, vm_id.lower())}"
        )
