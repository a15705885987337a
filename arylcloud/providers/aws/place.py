"""Where a machine is put, and what it starts from: zone, subnet, security group, image.

Nothing here costs anything while it exists. What a company brings goes before what we would make:
``[aws] vpc``, ``subnet``, ``security_group``, ``image``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import ArylError, CapacityError, UsageError
from arylcloud.core.offer import Offer
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.tags import JOURNAL, as_list

_IMAGE: Final = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
"""AWS's own parameter: Ubuntu 24.04 (Python 3.12) with NVIDIA's open driver."""


class Places:
    """Looked up once for each region, for one adapter. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._lock = threading.RLock()
        self._zones: dict[str, dict[str, str]] = {}
        self._images: dict[tuple[str, str], str] = {}
        self._subnets: dict[tuple[str, str], tuple[str, str]] = {}
        self._groups: dict[tuple[str, str], str] = {}

    def zone_names(self, region: str) -> dict[str, str]:
        """Zone id → this account's name for it."""
        with self._lock:
            if region not in self._zones:
                page = self._calls.read("ec2", region, "describe_availability_zones")
                self._zones[region] = {z["ZoneId"]: z["ZoneName"] for z in page["AvailabilityZones"]}
            return self._zones[region]

    def zone_ids(self, region: str) -> dict[str, str]:
        """The other way round."""
        return {name: zone for zone, name in self.zone_names(region).items()}

    def sold(self, offer: Offer) -> bool:
        """Whether the type is offered in that zone (or anywhere in the region)."""
        kind, places = ("availability-zone-id", [offer.zone]) if offer.zone else ("region", [offer.region])
        try:
            page = self._calls.read(
                "ec2",
                offer.region,
                "describe_instance_type_offerings",
                LocationType=kind,
                Filters=[
                    {"Name": "location", "Values": places},
                    {"Name": "instance-type", "Values": [offer.instance_type]},
                ],
            )
        except ArylError as error:
            if error.code in ("InvalidParameterValue", "InvalidInstanceType"):
                return False
            raise
        return bool(page["InstanceTypeOfferings"])

    def image(self, region: str, instance_type: str) -> str:
        """The image to boot: named in the settings, or AWS's deep-learning image with the driver."""
        if named := self._settings.get("image"):
            return named
        arch = "arm64" if instance_type.split(".")[0].endswith("g") and "g5g" in instance_type else "x86_64"
        with self._lock:
            if (region, arch) not in self._images:
                name = _IMAGE.format(arch=arch)
                try:
                    answer = self._calls.read("ssm", region, "get_parameter", Name=name)
                except ArylError as error:
                    raise UsageError(
                        f"aws {region} has no image {name}: {error.message}", hint="name one: [aws] image"
                    ) from error
                self._images[region, arch] = str(answer["Parameter"]["Value"])
            return self._images[region, arch]

    def subnet(self, offer: Offer) -> tuple[str, str]:
        """(subnet, vpc) in the offer's zone; a zone without one is without capacity for us."""
        with self._lock:
            key = (offer.region, offer.zone or "")
            if key not in self._subnets:
                self._subnets[key] = self._find_subnet(offer)
            return self._subnets[key]

    def _find_subnet(self, offer: Offer) -> tuple[str, str]:
        filters = []
        if named := self._settings.get("subnet"):
            filters.append({"Name": "subnet-id", "Values": [n.strip() for n in named.split(",")]})
        elif vpc := self._settings.get("vpc"):
            filters.append({"Name": "vpc-id", "Values": [vpc]})
        else:
            filters.append({"Name": "default-for-az", "Values": ["true"]})
        found = self._calls.pages("ec2", offer.region, "describe_subnets", "Subnets", Filters=filters)
        if not found:
            raise UsageError(
                f"aws {offer.region} has no subnet to launch in",
                hint="aws ec2 create-default-vpc, or [aws] subnet (several: with commas)",
            )
        here = [s for s in found if offer.zone is None or s.get("AvailabilityZoneId") == offer.zone]
        if not here:
            raise CapacityError(f"aws {offer.region} has no subnet of ours in {offer.zone}", code="NoSubnet")
        best = max(here, key=lambda s: (s.get("AvailableIpAddressCount", 0), s["SubnetId"]))
        return str(best["SubnetId"]), str(best["VpcId"])

    def group(self, region: str, vpc: str, journal_id: str) -> str:
        """A security group without any inbound rule: made once per journal and network, found again."""
        if named := self._settings.get("security_group"):
            return named
        with self._lock:
            if (vpc, journal_id) not in self._groups:
                self._groups[vpc, journal_id] = self._find_group(region, vpc, journal_id) or self._make_group(
                    region, vpc, journal_id
                )
            return self._groups[vpc, journal_id]

    def _find_group(self, region: str, vpc: str, journal_id: str) -> str | None:
        found = self._calls.pages(
            "ec2",
            region,
            "describe_security_groups",
            "SecurityGroups",
            Filters=[
                {"Name": "vpc-id", "Values": [vpc]},
                {"Name": f"tag:{JOURNAL}", "Values": [journal_id]},
            ],
        )
        return str(found[0]["GroupId"]) if found else None

    def _make_group(self, region: str, vpc: str, journal_id: str) -> str:
        tags: list[dict[str, Any]] = [
            {
                "ResourceType": "security-group",
                "Tags": as_list({JOURNAL: journal_id, "Name": "arylcloud"}, self._settings),
            }
        ]
        try:
            answer = self._calls.act(
                "ec2",
                region,
                "create_security_group",
                GroupName=f"arylcloud-{journal_id}",
                Description="arylcloud: no way in, every way out",
                VpcId=vpc,
                TagSpecifications=tags,
            )
        except ArylError as error:
            if error.code != "InvalidGroup.Duplicate":  # another launcher of this journal was faster
                raise
            found = self._find_group(region, vpc, journal_id)
            if found is None:
                raise
            return found
        return str(answer["GroupId"])
