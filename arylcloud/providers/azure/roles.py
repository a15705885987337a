"""One managed identity for each job: what its machines reach the job's prefix as, and nothing else.

Azure's own role for blobs may delete whole containers; conditions hold for data only. So a role of ours, with
three actions on blobs, is defined once beside the account, and given on the container under a condition on
the blobs' path.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from arylcloud.core.errors import AccessError, ArylError, ConflictError
from arylcloud.core.ports import Resource
from arylcloud.core.stores import JobPrefix
from arylcloud.providers.azure.client import Arm, items
from arylcloud.providers.azure.tags import companys
from arylcloud.providers.marks import JOB, JOURNAL, name_of_job

IDENTITY: Final = "managed-identity"
DEFINITION: Final = "role-definition"
IDENTITY_API: Final = "2023-01-31"
ROLES_API: Final = "2022-04-01"
SCOPE: Final = "arylcloud-scope"
"""Tag of an identity: on which container it has its role."""
_BLOBS: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
ACTIONS: Final = (f"{_BLOBS}/read", f"{_BLOBS}/write", f"{_BLOBS}/add/action")
"""Machines delete nothing."""
_OURS: Final = "arylcloud machine "
"""What the name of our role begins with."""
_WHOSE: Final = re.compile(r"arylcloud-journal=(\S+)")
_THERE: Final = ("RoleAssignmentExists", "RoleDefinitionWithSameNameExists")
SEEN_AFTER_S: Final = 120.0
SEEN_EVERY_S: Final = 3.0
"""A new identity, or a new role, is not known everywhere for a while: only then is anything waited for."""
_UNSEEN: Final = ("PrincipalNotFound", "RoleDefinitionDoesNotExist")


def condition(prefix: str) -> str:
    """Blobs under ``prefix``, and lists of it. (``'`` cannot stand in it: a prefix with one is refused.)"""
    inside = f"StringStartsWith '{prefix}/'"
    listing = f"ActionMatches{{'{ACTIONS[0]}'}} AND SubOperationMatches{{'Blob.List'}}"
    others = " AND ".join(f"!(ActionMatches{{'{action}'}})" for action in ACTIONS[1:])
    read = f"!(ActionMatches{{'{ACTIONS[0]}'}} AND NOT SubOperationMatches{{'Blob.List'}})"
    return (
        f"(({read} AND {others}) OR (@Resource[{_BLOBS}:path] {inside}))"
        f" AND (!({listing}) OR (@Request[{_BLOBS}:prefix] {inside}))"
    )


class Identities:
    """Of one subscription."""

    def __init__(self, arm: Arm, settings: Mapping[str, str]) -> None:
        self._arm = arm
        self._settings = settings
        self._first_s: dict[str, float] = {}
        """Identity → when it was first given a role here, right after it was made (monotonic)."""

    def make(self, job: JobPrefix, account: Mapping[str, Any]) -> str:
        """The identity with its role on the job's prefix; ``account``: the storage account as the Resource
        Manager shows it. Idempotent; cut off anywhere, the next call completes it. Returns its id."""
        if "'" in job.address.prefix:
            raise AccessError(f"azure: no rule can be made for {job.address.uri}", hint="another --store")
        group = account["id"].partition("/providers/")[0]
        container = f"{account['id']}/blobServices/default/containers/{job.address.bucket}"
        path = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"
        path += name_of_job(job.journal_id, job.job_id)
        tags = {**companys(self._settings), JOURNAL: job.journal_id, JOB: job.job_id, SCOPE: container}
        body = {"location": account["location"], "tags": tags}
        made = self._order("make an identity", "PUT", path, IDENTITY_API, body)
        role = self._role(group, job.journal_id)
        given = {
            "properties": {
                "roleDefinitionId": role,
                "principalId": made["properties"]["principalId"],
                "principalType": "ServicePrincipal",  # else Azure looks for it where it is not known yet
                "condition": condition(job.address.prefix),
                "conditionVersion": "2.0",
            }
        }
        self._when_seen(
            lambda: self._order("give a role", "PUT", _assignment(container, path), ROLES_API, given),
            self._first_s.setdefault(path, time.monotonic()) + SEEN_AFTER_S,
        )
        return str(made["id"])

    def remove(self, identity: str) -> None:
        """Its role first: an assignment of nobody would stay. ``identity``: or our role itself. Idempotent;
        the missing is success. ConflictError while somebody has the role."""
        if "/roleDefinitions/" in identity:
            self._remove_definition(identity)
            return
        self._first_s.pop(identity, None)
        found = self._arm.find(identity, lambda: self._arm.rest("GET", identity, IDENTITY_API))
        if found is None:
            return
        if container := (found.get("tags") or {}).get(SCOPE):
            self._drop("take a role", _assignment(container, identity), ROLES_API)
        self._drop("remove an identity", identity, IDENTITY_API)

    def _remove_definition(self, role: str) -> None:
        try:
            self._drop("remove a role", role, ROLES_API)
        except ArylError as error:
            if error.code != "RoleDefinitionHasAssignments":
                raise
            text = f"azure: {role} is still given to machines"
            raise ConflictError(
                text, code=error.code, hint="run gc again when their jobs have ended"
            ) from error

    def forget(self, job: JobPrefix, account: Mapping[str, Any]) -> None:
        group = account["id"].partition("/providers/")[0]
        name = name_of_job(job.journal_id, job.job_id)
        self.remove(f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}")

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        """For ``Infrastructure``."""
        found: list[Resource] = []
        path = f"{self._arm.scope}/providers/Microsoft.ManagedIdentity/userAssignedIdentities"
        for one in items(self._arm, "identities", path, IDENTITY_API):
            tags = one.get("tags") or {}
            if SCOPE in tags and JOURNAL in tags and journal_id in (None, tags[JOURNAL]):
                found.append(
                    Resource(
                        cloud="azure",
                        region=one["location"].replace(" ", "").lower(),
                        kind=IDENTITY,
                        resource_id=one["id"],
                        journal_id=tags[JOURNAL],
                        job_id=tags.get(JOB),
                    )
                )
        return (*found, *self._definitions(journal_id))

    def _definitions(self, journal_id: str | None) -> list[Resource]:
        path = f"{self._arm.scope}/providers/Microsoft.Authorization/roleDefinitions"
        custom = {"$filter": "type eq 'CustomRole'"}
        found = []
        for one in items(self._arm, "roles", path, ROLES_API, custom):
            told = _WHOSE.search(one["properties"].get("description") or "")
            if told is None or not one["properties"].get("roleName", "").startswith(_OURS):
                continue
            if journal_id in (None, told[1]):
                kind, role = DEFINITION, str(one["id"])
                found.append(
                    Resource(cloud="azure", region="global", kind=kind, resource_id=role, journal_id=told[1])
                )
        return found

    def _role(self, group: str, journal_id: str) -> str:
        """Id of our role, defined once for the account's resource group."""
        if named := self._settings.get("storage_role"):
            return f"{self._arm.scope}/providers/Microsoft.Authorization/roleDefinitions/{named}"
        name = uuid5(NAMESPACE_URL, f"arylcloud|{group.lower()}")
        path = f"{group}/providers/Microsoft.Authorization/roleDefinitions/{name}"
        if self._arm.find(path, lambda: self._arm.rest("GET", path, ROLES_API)) is None:
            body = {
                "properties": {
                    "roleName": f"{_OURS}{str(name)[:8]}",  # a tenant has each name once
                    "description": "Blobs of one job: read, write, list; given under a condition. "
                    f"arylcloud-journal={journal_id}",
                    "type": "CustomRole",
                    "permissions": [{"actions": [], "dataActions": list(ACTIONS)}],
                    "assignableScopes": [group],
                }
            }
            self._order("define a role", "PUT", path, ROLES_API, body)
        return path

    def _order(self, what: str, method: str, path: str, version: str, body: Any) -> Any:
        try:
            return self._arm.act(what, lambda: self._arm.rest(method, path, version, body))
        except AccessError as error:
            raise AccessError(
                f"azure: machines cannot be let into the job's prefix: {error.message}",
                code=error.code,
                hint="a role that may write identities, role definitions and assignments; or [azure] "
                "storage_identity (docs/stores.md)",
            ) from error
        except ArylError as error:
            if error.code in _THERE:
                return None
            raise

    def _drop(self, what: str, path: str, version: str) -> None:
        self._arm.drop(what, lambda: self._arm.rest("DELETE", path, version))

    def _when_seen(self, call: Callable[[], Any], seen_s: float) -> None:
        while True:
            try:
                call()
                return
            except ArylError as error:
                if error.code not in _UNSEEN or time.monotonic() >= seen_s:
                    raise
            time.sleep(SEEN_EVERY_S)


def _assignment(container: str, identity: str) -> str:
    name = uuid5(NAMESPACE_URL, f"{container}|{identity}".lower())
    return f"{container}/providers/Microsoft.Authorization/roleAssignments/{name}"
