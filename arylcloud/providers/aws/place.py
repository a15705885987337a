"""Where a machine is put, and what it starts from: zone, subnet, security group, image.

Nothing here costs anything while it exists. What a company brings goes before what we would make:
``[aws] vpc``, ``subnet``, ``security_group``, ``image``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import ArylError, CapacityError, UsageError
from arylcloud.core.offer import Offer
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.tags import as_list
from arylcloud.providers.marks import JOB, JOURNAL
from arylcloud.providers.zones import beginning_with

HOME: Final = "us-east-1"
_IMAGE: Final = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
"""AWS's own parameter: Ubuntu 24.04 (Python 3.12) with NVIDIA's open driver."""
_ARM: Final = ("g5g.", "p6e-gb")
"""GPU types whose cores are ARM's."""
OFFERED_S: Final = 600.0
"""For so long it is taken as said where a type is offered, and where there are subnets."""
SEEN_TRIES: Final = 40
SEEN_EVERY_S: Final = 0.25


class Places:
    """Looked up once for each region, for one adapter. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._lock = threading.RLock()
        self._regions: list[str] | None = None
        self._zones: dict[str, dict[str, str]] = {}
        self._images: dict[tuple[str, str], str] = {}
        self._subnets: dict[str, tuple[dict[str, tuple[str, str]], float]] = {}
        self._groups: dict[tuple[str, str, str | None], str] = {}
        self._disks: dict[tuple[str, str], tuple[str, int]] = {}
        self._sold: dict[tuple[str, str], tuple[frozenset[str], float]] = {}

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
        zones = self._offering(offer)
        return bool(zones) if offer.zone is None else offer.zone in zones

    def zones(self, offer: Offer, token: str) -> list[str]:
        """Zone ids in which the offer can be made: its zone, or each of its region's that offers the type
        and in which we have a subnet, beginning with one that the token decides. Empty = it is not offered.
        CapacityError where there is no subnet."""
        if not self.sold(offer):
            return []
        if offer.zone is not None:
            self.subnet(offer)
            return [offer.zone]
        found = self._offering(offer) & self._of_region(offer.region).keys()
        if not found:
            raise _no_subnet(f"the zones of {offer.region} that offer {offer.instance_type}")
        return beginning_with(found, token)

    def _offering(self, offer: Offer) -> frozenset[str]:
        """Zone ids."""
        key = (offer.region, offer.instance_type)
        with self._lock:
            known = self._sold.get(key)
        if known is None or time.monotonic() - known[1] > OFFERED_S:
            known = (self._ask_sold(offer), time.monotonic())
            with self._lock:
                self._sold[key] = known
        return known[0]

    def _ask_sold(self, offer: Offer) -> frozenset[str]:
        if offer.region not in self.regions():  # no such region, or not enabled in this account
            return frozenset()
        found = self._calls.pages(
            "ec2",
            offer.region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone-id",
            Filters=[{"Name": "instance-type", "Values": [offer.instance_type]}],
        )
        return frozenset(str(one["Location"]) for one in found)

    def regions(self) -> list[str]:
        """Enabled in this account; narrowed by ``[aws] regions``."""
        with self._lock:
            if self._regions is None:
                page = self._calls.read("ec2", HOME, "describe_regions")
                enabled = {one["RegionName"] for one in page["Regions"]}
                named = {r.strip() for r in self._settings.get("regions", "").split(",") if r.strip()}
                found = sorted(enabled & named if named else enabled)
                if not found:
                    raise UsageError(
                        f"aws: the account has none of {', '.join(sorted(named)) or 'its regions'} enabled",
                        hint="[aws] regions",
                    )
                self._regions = found
            return self._regions

    def image(self, region: str, instance_type: str) -> str:
        """The image to boot: named in the settings, or AWS's deep-learning image with the driver."""
        if named := self._settings.get("image"):
            return named
        arch = "arm64" if instance_type.startswith(_ARM) else "x86_64"
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

    def root_disk(self, region: str, image: str) -> tuple[str, int]:
        """(device, least GiB) of the image's own disk: another device would be a second one."""
        with self._lock:
            if (region, image) not in self._disks:
                found = self._calls.read("ec2", region, "describe_images", ImageIds=[image])["Images"]
                if not found:
                    raise UsageError(f"aws {region} has no image {image}", hint="[aws] image")
                device = str(found[0].get("RootDeviceName", "/dev/sda1"))
                sizes = {
                    one["DeviceName"]: int(one.get("Ebs", {}).get("VolumeSize", 1))
                    for one in found[0].get("BlockDeviceMappings", [])
                }
                self._disks[region, image] = (device, sizes.get(device, 1))
            return self._disks[region, image]

    def subnet(self, offer: Offer) -> tuple[str, str]:
        """(subnet, vpc) in the offer's zone; a zone without one is without capacity for us."""
        zone = offer.zone or self.zones(offer, "")[0]
        found = self._of_region(offer.region).get(zone)
        if found is None:  # of this place only: another region may well have one
            raise _no_subnet(zone)
        return found

    def _of_region(self, region: str) -> dict[str, tuple[str, str]]:
        """Zone id → (subnet, vpc): of several the one with most free addresses when it was asked for first. A
        gang stays in it."""
        with self._lock:
            known = self._subnets.get(region, ({}, float("-inf")))
            if time.monotonic() - known[1] > OFFERED_S:
                known = ({**self._ask_subnets(region), **known[0]}, time.monotonic())
                self._subnets[region] = known
            return known[0]

    def _ask_subnets(self, region: str) -> dict[str, tuple[str, str]]:
        filters = []
        if named := self._settings.get("subnet"):
            filters.append({"Name": "subnet-id", "Values": [n.strip() for n in named.split(",")]})
        elif vpc := self._settings.get("vpc"):
            filters.append({"Name": "vpc-id", "Values": [vpc]})
        else:
            filters.append({"Name": "default-for-az", "Values": ["true"]})
        found = self._calls.pages("ec2", region, "describe_subnets", "Subnets", Filters=filters)
        found.sort(key=lambda s: (s.get("AvailableIpAddressCount", 0), s["SubnetId"]))
        return {str(s["AvailabilityZoneId"]): (str(s["SubnetId"]), str(s["VpcId"])) for s in found}

    def group(self, region: str, vpc: str, journal_id: str, *, job_id: str | None = None) -> str:
        """A security group without any way in: made once per journal and network, found again. With
        ``job_id`` one of that job's own, whose members reach each other."""
        if named := self._settings.get("security_group"):
            return named
        with self._lock:
            key = (vpc, journal_id, job_id)
            if key not in self._groups:
                found = self.find_group(region, vpc, journal_id, job_id=job_id)
                made = found or self._make_group(region, vpc, journal_id, job_id)
                if job_id is not None:  # also of one that was found: who made it may not have got so far
                    self._join(region, made)
                self._groups[key] = made
            return self._groups[key]

    def _join(self, region: str, group: str) -> None:
        """Every port, from and to members: collective operations choose their own, and EFA's traffic needs
        the rule in both directions."""
        asked = {
            "GroupId": group,
            "IpPermissions": [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}],
        }
        for operation in ("authorize_security_group_ingress", "authorize_security_group_egress"):
            try:
                self._calls.act("ec2", region, operation, **asked)
            except ArylError as error:
                if error.code != "InvalidPermission.Duplicate":
                    raise

    def forget_groups(self) -> None:
        """One has been removed under our feet: it is looked for, and made, again."""
        with self._lock:
            self._groups.clear()

    def find_group(self, region: str, vpc: str, journal_id: str, *, job_id: str | None = None) -> str | None:
        """Of this journal (and job), in this network; None = there is none yet."""
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
        ours = [one for one in found if _job_of(one) == job_id]
        return str(ours[0]["GroupId"]) if ours else None

    def _make_group(self, region: str, vpc: str, journal_id: str, job_id: str | None) -> str:
        marks = {JOURNAL: journal_id, "Name": "arylcloud"} | ({} if job_id is None else {JOB: job_id})
        tags: list[dict[str, Any]] = [
            {"ResourceType": "security-group", "Tags": as_list(marks, self._settings)}
        ]
        name = "-".join(filter(None, ("arylcloud", journal_id, job_id)))
        inside = "no way in" if job_id is None else f"no way in but from machines of {job_id}"
        try:
            answer = self._calls.act(
                "ec2",
                region,
                "create_security_group",
                GroupName=name[:255],
                Description=f"arylcloud: {inside}, every way out"[:255],
                VpcId=vpc,
                TagSpecifications=tags,
            )
        except ArylError as error:
            if error.code != "InvalidGroup.Duplicate":  # another launcher of this journal was faster
                raise
            found = self._seen(region, vpc, journal_id, job_id)
            if found is None:
                raise
            return found
        self._seen(region, vpc, journal_id, job_id)
        return str(answer["GroupId"])

    def _seen(self, region: str, vpc: str, journal_id: str, job_id: str | None) -> str | None:
        """EC2 may not know for some seconds what it has just made, and would refuse the machine for it."""
        for _ in range(SEEN_TRIES):
            if (found := self.find_group(region, vpc, journal_id, job_id=job_id)) is not None:
                return found
            time.sleep(SEEN_EVERY_S)
        return None


def _no_subnet(where: str) -> CapacityError:
    return CapacityError(
        f"aws: no subnet to launch in, in {where}",
        code="NoSubnet",
        hint="aws ec2 create-default-subnet, or name one: [aws] subnet (several: with commas)",
    )


def _job_of(group: Mapping[str, Any]) -> str | None:
    return next((str(tag["Value"]) for tag in group.get("Tags", []) if tag["Key"] == JOB), None)
