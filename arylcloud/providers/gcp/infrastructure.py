"""``Infrastructure`` on Compute Engine: networks that we made, and what a machine may leave behind.

A machine's disk ends with it, its address too. A disk that is found unattached all the same is ours to
remove, and a machine that has switched itself off still has its disk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError, ConflictError
from arylcloud.core.ports import Resource
from arylcloud.providers.gcp.adapter import KNOWN
from arylcloud.providers.gcp.client import Calls, last
from arylcloud.providers.gcp.naming import ENDED, journal_of, region_of
from arylcloud.providers.gcp.network import INSIDE
from arylcloud.providers.gcp.roles import ACCOUNT, Accounts
from arylcloud.providers.gcp.roster import MISSING
from arylcloud.providers.marks import JOB, JOURNAL
from arylcloud.providers.settings import known_only

log = logging.getLogger("arylcloud.gcp")
INSTANCE: Final = "stopped-instance"
DISK: Final = "disk"
SUBNETWORK: Final = "subnetwork"
POLICY: Final = "placement-policy"
FIREWALL: Final = "firewall"
NETWORK: Final = "network"
GLOBAL: Final = "global"
_IN_USE: Final = frozenset(
    ["resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "resourceNotReady"]
)
_TOLD: Final = re.compile(r"arylcloud-journal=(\S+) arylcloud-job=(\S+)")
REMOVED_WITHIN_S: Final = 120.0


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpInfrastructure:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("gcp", settings, KNOWN)
    calls = Calls(settings)
    return GcpInfrastructure(calls, Accounts(calls, settings))


class GcpInfrastructure:
    def __init__(self, calls: Calls, accounts: Accounts) -> None:
        self._calls = calls
        self._accounts = accounts

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        """In the order in which they can go."""
        found = [*self._machines(), *self._disks(), *self._policies(), *self._networks()]
        ours = tuple(one for one in found if journal_id in (None, one.journal_id))
        try:
            return ours + self._accounts.resources(journal_id=journal_id)
        except AccessError as error:  # who may not look at them cannot have made any
            log.info("service accounts: %s", error.message)
            return ours

    def remove(self, resource: Resource) -> None:
        """Waits until it is gone: what it uses can go only then."""
        if resource.kind == ACCOUNT:
            self._accounts.remove(resource.resource_id)
            return
        what = f"gcp {resource.region}: {resource.kind} {resource.resource_id}"
        zone, _, name = resource.resource_id.rpartition("/")
        project = self._calls.project
        asked: dict[str, dict[str, Any]] = {
            INSTANCE: {"service": "Instances", "zone": zone, "instance": name},
            DISK: {"service": "Disks", "zone": zone, "disk": name},
            POLICY: {"service": "ResourcePolicies", "region": resource.region, "resource_policy": name},
            SUBNETWORK: {"service": "Subnetworks", "region": resource.region, "subnetwork": name},
            FIREWALL: {"service": "Firewalls", "firewall": name},
            NETWORK: {"service": "Networks", "network": name},
        }
        how = asked[resource.kind]
        try:
            operation = self._calls.act(how.pop("service"), "delete_unary", project=project, **how)
            self._calls.done(operation, what, within_s=REMOVED_WITHIN_S)
        except ArylError as error:
            if error.code in MISSING:
                return
            if error.code in _IN_USE:
                raise ConflictError(
                    f"{what} is still in use",
                    code=error.code,
                    hint="it can go when its machines have ended: run gc again then",
                ) from error
            raise

    # ------------------------------------------------------------ what there is

    def _machines(self) -> Iterator[Resource]:
        for zone, one in self._listed("Instances", "instances", f"labels.{JOURNAL}:*"):
            if one.status in ENDED:
                yield _of_zone(zone, INSTANCE, one)

    def _disks(self) -> Iterator[Resource]:
        for zone, one in self._listed("Disks", "disks", f"labels.{JOURNAL}:*"):
            if not one.users:
                yield _of_zone(zone, DISK, one)

    def _policies(self) -> Iterator[Resource]:
        for region, one in self._listed("ResourcePolicies", "resource_policies", 'name eq "aryl-.*"'):
            told = _TOLD.fullmatch(str(one.description))
            if told is not None:
                yield Resource(
                    cloud="gcp",
                    region=region,
                    kind=POLICY,
                    resource_id=str(one.name),
                    journal_id=told[1],
                    job_id=told[2],
                )

    def _networks(self) -> Iterator[Resource]:
        project = self._calls.project
        wanted = 'name eq "arylcloud-.*"'
        for region, one in self._listed("Subnetworks", "subnetworks", wanted):
            yield from _shared(region, SUBNETWORK, one, journal_of(one.name))
        for one in self._calls.pages("Firewalls", "list", project=project, filter=wanted):
            yield from _shared(GLOBAL, FIREWALL, one, journal_of(one.name.removesuffix(INSIDE)))
        for one in self._calls.pages("Networks", "list", project=project, filter=wanted):
            yield from _shared(GLOBAL, NETWORK, one, journal_of(one.name))

    def _listed(self, service: str, key: str, wanted: str) -> Iterator[tuple[str, Any]]:
        pages = self._calls.pages(service, "aggregated_list", project=self._calls.project, filter=wanted)
        for scope, inside in pages:
            for one in getattr(inside, key):
                yield last(scope), one


def _of_zone(zone: str, kind: str, one: Any) -> Resource:
    labels = dict(one.labels)
    return Resource(
        cloud="gcp",
        region=region_of(zone),
        kind=kind,
        resource_id=f"{zone}/{one.name}",
        journal_id=labels[JOURNAL],
        job_id=labels.get(JOB),
        costs=True,
    )


def _shared(region: str, kind: str, one: Any, journal_id: str | None) -> Iterator[Resource]:
    """Of all jobs of a home. Somebody else's may be called alike: ours say in their description whose."""
    if journal_id is not None and f"{JOURNAL}={journal_id}" in str(one.description):
        yield Resource(
            cloud="gcp", region=region, kind=kind, resource_id=str(one.name), journal_id=journal_id
        )
