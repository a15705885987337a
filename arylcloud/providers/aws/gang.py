"""Machines that work together: near one another, with a way to one another, over EFA where the type has it.

Made once per job, and removed by ``gc``: a security group whose members reach each other (and nobody else
reaches them), and per zone a placement group of the kind ``cluster``. EC2 starts the machines of a gang one
by one: one that does not fit next to the others is a refusal like any other (InsufficientInstanceCapacity).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import Places
from arylcloud.providers.aws.tags import as_list
from arylcloud.providers.marks import JOB, JOURNAL

_DUPLICATE: Final = "InvalidPlacementGroup.Duplicate"
NAME_LENGTH: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Of an instance type."""

    cluster: bool
    """May be put into a placement group of that kind."""
    efa_cards: int
    """Network cards that take an EFA; 0 = none does."""


class Gangs:
    """One adapter's. Safe to use from several threads."""

    def __init__(self, calls: Calls, places: Places, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._places = places
        self._settings = settings
        self._lock = threading.Lock()
        self._networks: dict[tuple[str, str], Network] = {}
        self._made: set[tuple[str, str]] = set()

    def request(self, spec: MachineSpec, subnet: str, vpc: str) -> dict[str, Any]:
        """RunInstances' parameters for network and placement of one machine, a gang's or alone."""
        region = spec.offer.region
        if not spec.in_gang:
            group = self._places.group(region, vpc, spec.journal_id)
            return {"SubnetId": subnet, "SecurityGroupIds": [group]}
        network = self.network(region, spec.offer.instance_type)
        group = self._places.group(region, vpc, spec.journal_id, job_id=spec.job_id)
        asked: dict[str, Any] = {}
        if network.cluster:
            asked["Placement"] = {"GroupName": self._placement(spec, subnet)}
        # an interface of one's own gets a public address only where there is but one: without another way
        # out (a subnet that the user names) more of them would cut the machine off
        cards = network.efa_cards if "subnet" in self._settings else min(1, network.efa_cards)
        if cards == 0:
            return {**asked, "SubnetId": subnet, "SecurityGroupIds": [group]}
        asked["NetworkInterfaces"] = [
            {
                "NetworkCardIndex": card,
                "DeviceIndex": 0 if card == 0 else 1,
                "InterfaceType": "efa",
                "SubnetId": subnet,
                "Groups": [group],
                "DeleteOnTermination": True,
            }
            for card in range(cards)
        ]
        return asked

    def network(self, region: str, instance_type: str) -> Network:
        with self._lock:
            known = self._networks.get((region, instance_type))
        if known is None:
            page = self._calls.read("ec2", region, "describe_instance_types", InstanceTypes=[instance_type])
            known = _network(page["InstanceTypes"][0])
            with self._lock:
                self._networks[region, instance_type] = known
        return known

    def _placement(self, spec: MachineSpec, subnet: str) -> str:
        """One for each zone that the job comes to: machines of a group are in one zone for good."""
        name = placement_name(spec.journal_id, spec.job_id, subnet)
        with self._lock:
            if (spec.offer.region, name) in self._made:
                return name
        marks = {JOURNAL: spec.journal_id, JOB: spec.job_id}
        try:
            self._calls.act(
                "ec2",
                spec.offer.region,
                "create_placement_group",
                GroupName=name,
                Strategy="cluster",
                TagSpecifications=[
                    {"ResourceType": "placement-group", "Tags": as_list(marks, self._settings)}
                ],
            )
        except ArylError as error:
            if error.code != _DUPLICATE:
                raise
        with self._lock:
            self._made.add((spec.offer.region, name))
        return name

    def forget(self) -> None:
        """One has been removed under our feet: it is made again."""
        with self._lock:
            self._made.clear()


def placement_name(journal_id: str, job_id: str, subnet: str) -> str:
    digest = hashlib.sha256(f"{journal_id}|{job_id}|{subnet}".encode()).hexdigest()[:8]
    return f"aryl-{digest}-{job_id}"[:NAME_LENGTH]


def _network(listed: Mapping[str, Any]) -> Network:
    info = listed.get("NetworkInfo", {})
    most = int(info.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1)) if info.get("EfaSupported") else 0
    strategies = listed.get("PlacementGroupInfo", {}).get("SupportedStrategies", [])
    return Network(cluster="cluster" in strategies, efa_cards=most)
