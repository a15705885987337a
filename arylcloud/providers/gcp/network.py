"""The network that machines are in: made once per home, found again by its name, without any way in.

Neither networks nor firewall rules have labels on Google Cloud, so their names carry the home's id. One
network, one rule that lets its machines reach one another, one subnetwork per region that was used. None of
it costs anything while it exists. What a company brings goes before it: ``[gcp] subnetwork``, ``network``.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.errors import ArylError, CapacityError, OtherCloudError
from arylcloud.providers.gcp.client import Calls, last
from arylcloud.providers.gcp.naming import THERE, network_name

INSIDE: Final = "-inside"
"""What the rule's name ends with."""
MADE_WITHIN_S: Final = 120.0
_RANGES: Final = 4096
"""/20 blocks of 10.0.0.0/8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Where a machine's network interface is."""

    network: str | None
    subnetwork: str | None
    tag: str | None
    """The machine's network tag, which the rule speaks of; None in a company's own network."""


class Networks:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._lock = threading.RLock()
        self._ready: set[tuple[str, str]] = set()

    def attachment(self, region: str, journal_id: str) -> Attachment:
        """In this region, made where it is not there yet. Raises CapacityError where the company's network
        has no place there."""
        if (named := self.named(region)) is not None:
            return named
        name = network_name(journal_id)
        with self._lock:
            if (region, name) not in self._ready:
                self._make(region, name, journal_id)
                self._ready.add((region, name))
        here = f"projects/{self._calls.project}"
        return Attachment(
            network=f"{here}/global/networks/{name}",
            subnetwork=f"{here}/regions/{region}/subnetworks/{name}",
            tag=name,
        )

    def named(self, region: str) -> Attachment | None:
        """What the settings name; None = nothing."""
        network, subnetworks = self._settings.get("network"), self._settings.get("subnetwork")
        if not subnetworks:
            if not network:
                return None
            path = network if "/" in network else f"global/networks/{network}"
            return Attachment(network=path, subnetwork=None, tag=None)
        for one in (part.strip() for part in subnetworks.split(",")):
            if "/" not in one:  # of that name in every region
                return Attachment(network=None, subnetwork=f"regions/{region}/subnetworks/{one}", tag=None)
            if f"/regions/{region}/" in f"/{one.lstrip('/')}":
                return Attachment(network=None, subnetwork=one, tag=None)
        raise CapacityError(
            f"gcp: no subnetwork to launch in, in {region}",
            code="NoSubnet",
            scope="region",
            hint="name one of that region, too: [gcp] subnetwork (several: with commas)",
        )

    def forget(self) -> None:
        """One has been removed under our feet: it is looked for, and made, again."""
        with self._lock:
            self._ready.clear()

    # ------------------------------------------------------------ made once

    def _make(self, region: str, name: str, journal_id: str) -> None:
        project = self._calls.project
        about = f"arylcloud-journal={journal_id}: no way in, every way out"
        network = self._calls.type("Network")(
            name=name,
            auto_create_subnetworks=False,
            description=about,
            routing_config={"routing_mode": "REGIONAL"},
        )
        if self._calls.find("Networks", "get", project=project, network=name) is None:
            self._insert("Networks", f"network {name}", network_resource=network)
        link = f"projects/{project}/global/networks/{name}"
        rule = self._calls.type("Firewall")(
            name=name + INSIDE,
            network=link,
            description=f"arylcloud-journal={journal_id}: its machines reach one another, nobody else does",
            direction="INGRESS",
            source_tags=[name],
            target_tags=[name],
            allowed=[{"I_p_protocol": "all"}],
        )
        if self._calls.find("Firewalls", "get", project=project, firewall=name + INSIDE) is None:
            self._insert("Firewalls", f"rule {name}{INSIDE}", firewall_resource=rule)
        if self._calls.find("Subnetworks", "get", project=project, region=region, subnetwork=name) is None:
            subnetwork = self._calls.type("Subnetwork")(
                name=name,
                network=link,
                ip_cidr_range=self._range(region, name),
                private_ip_google_access=True,  # its bucket is reached without leaving Google's network
                description=about,
            )
            self._insert(
                "Subnetworks",
                f"subnetwork {name} in {region}",
                region=region,
                subnetwork_resource=subnetwork,
            )

    def _insert(self, service: str, what: str, **asked: Any) -> None:
        """And wait for it. Another launcher of this home may be faster: what counts is that it is there."""
        what = f"gcp: {what}"
        try:
            operation = self._calls.act(
                service,
                "insert_unary",
                project=self._calls.project,
                **asked,
            )
            done = self._calls.done(operation, what, within_s=MADE_WITHIN_S)
        except ArylError as error:
            if error.code in THERE:
                return
            raise
        if done is None:
            raise OtherCloudError(f"{what} is not made within {MADE_WITHIN_S:.0f} s", code="NotReady")

    def _range(self, region: str, name: str) -> str:
        """A /20 that no other region of this network has: the region's own, or the next that is free."""
        found = self._calls.pages(
            "Subnetworks", "aggregated_list", project=self._calls.project, filter=f'name = "{name}"'
        )
        taken = {
            str(one.ip_cidr_range)
            for _, inside in found
            for one in inside.subnetworks
            if last(one.network) == name
        }
        first = zlib.crc32(region.encode()) % _RANGES
        for n in range(_RANGES):
            number = (first + n) % _RANGES
            block = f"10.{number // 16}.{number % 16 * 16}.0/20"
            if block not in taken:
                return block
        raise CapacityError(
            f"gcp: no address range is left in network {name}", code="NoSubnet", scope="region"
        )
