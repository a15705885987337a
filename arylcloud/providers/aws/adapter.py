"""``Provider`` on EC2. See ``core.ports`` for what each method promises."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import ArylError, CapacityError, OtherCloudError, UsageError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineSpec, PricePoint
from arylcloud.providers.aws import tags
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import Places
from arylcloud.providers.aws.quota import Quotas
from arylcloud.providers.aws.spotprice import SpotPrices
from arylcloud.providers.settings import known_only

KNOWN: Final = frozenset(
    [
        "profile",
        "vpc",
        "subnet",
        "security_group",
        "instance_profile",
        "tags",
        "image",
        "disk_type",
        "regions",
    ]
)
HOME: Final = "us-east-1"
_METADATA: Final = {"protocol": "ec2", "url": "http://169.254.169.254", "poll_s": "5"}


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsProvider:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("aws", settings, KNOWN)
    return AwsProvider(Calls(settings.get("profile")), settings)


class AwsProvider:
    """One AWS account. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._places = Places(calls, settings)
        self._quotas = Quotas(calls)
        self._spot = SpotPrices(calls, self._places)

    @property
    def name(self) -> str:
        return "aws"

    def capabilities(self) -> Capabilities:
        return Capabilities(
            notice_s=120.0,
            billing=Billing(minimum_s=60.0, first_hour_interruption_free=True),
            market_clock=MarketClock(origin_s=0.0, scale=1.0),
            boot_s=180.0,
            metadata=_METADATA,
            # An instance's own shutdown is its end: InstanceInitiatedShutdownBehavior below.
            machine_env={"ARYL_POWEROFF": "shutdown -h now"},
        )

    # ------------------------------------------------------------ prices

    def quote(self, offer: Offer) -> Offer:
        if not self._places.sold(offer):
            raise CapacityError(
                f"aws does not offer {offer.instance_type} in {offer.place}", code="NotOffered"
            )
        if offer.market is not Market.SPOT:
            return offer  # list prices come with `prices --refresh`; EC2 itself has none
        price, at = self._spot.now(offer)
        return replace(offer, usd_per_hour=price, as_of=_iso(at), source="AWS spot price history")

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        if offer.market is Market.SPOT:
            return self._spot.history(offer, from_s, to_s)
        if offer.usd_per_hour is None:
            raise OtherCloudError(f"the price of {offer.key} is not known", code="NoPrice")
        return (PricePoint(from_s=from_s, usd_per_hour=offer.usd_per_hour),)

    def offers(self) -> tuple[Offer, ...]:
        """Spot prices of all zones of the regions in ``[aws] regions`` (default: us-east-1)."""
        return tuple(offer for region in self._regions() for offer in self._spot.offers(region))

    # ------------------------------------------------------------ machines

    def create(self, spec: MachineSpec) -> Machine:
        offer = spec.offer
        region = offer.region
        if (there := self._with_token(region, spec.token)) is not None:
            return there
        if not self._places.sold(offer):
            raise CapacityError(
                f"aws does not offer {offer.instance_type} in {offer.place}", code="NotOffered"
            )
        self._check_price(spec)
        self._quotas.check(offer)
        subnet, vpc = self._places.subnet(offer)
        asked: dict[str, Any] = {
            "ImageId": spec.image or self._places.image(region, offer.instance_type),
            "InstanceType": offer.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": spec.token[:64],
            "SubnetId": subnet,
            "SecurityGroupIds": [self._places.group(region, vpc, spec.journal_id)],
            "UserData": spec.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpEndpoint": "enabled",
                "HttpPutResponseHopLimit": 2,
            },
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags.as_list(tags.of_machine(spec), self._settings)}
                for kind in ("instance", "volume", "network-interface")
            ],
        }
        if spec.disk_gb is not None:
            disk = {
                "VolumeSize": int(-(-spec.disk_gb // 1)),
                "VolumeType": "gp3",
                "DeleteOnTermination": True,
            }
            asked["BlockDeviceMappings"] = [{"DeviceName": "/dev/sda1", "Ebs": disk}]
        if profile := self._settings.get("instance_profile"):
            asked["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
        if offer.market is Market.SPOT:
            spot: dict[str, Any] = {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            }
            if spec.max_usd_per_hour is not None:
                spot["MaxPrice"] = f"{spec.max_usd_per_hour:.5f}"
            asked["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": spot}
        answer = self._calls.act("ec2", region, "run_instances", **asked)
        return self._read(answer["Instances"][0], region)

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        regions = sorted({o.region for o in offers if o.cloud == "aws"}) or self._all_regions()
        wanted = (
            {"Name": f"tag:{tags.JOURNAL}", "Values": [journal_id]}
            if journal_id is not None
            else {"Name": "tag-key", "Values": [tags.JOURNAL]}
        )
        with ThreadPoolExecutor(min(8, len(regions)), thread_name_prefix="aws-list") as pool:
            found = pool.map(lambda region: self._instances(region, [wanted]), regions)
            return tuple(machine for part in found for machine in part)

    def terminate(self, machine: Machine) -> None:
        try:
            self._calls.act("ec2", machine.region, "terminate_instances", InstanceIds=[machine.instance_id])
        except ArylError as error:
            if error.code not in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                raise

    # ------------------------------------------------------------ parts

    def _check_price(self, spec: MachineSpec) -> None:
        """A spot price above the cap is refused by EC2 itself; a list price would not be."""
        if spec.max_usd_per_hour is None:
            return
        price = spec.offer.usd_per_hour
        if spec.offer.market is Market.SPOT:
            price = self._spot.now(spec.offer)[0]
        if price is None:
            raise UsageError(
                f"the price of {spec.offer.key} is not known, so the cap of ${spec.max_usd_per_hour:.4f}/h "
                "cannot be kept",
                hint="arylcloud prices --refresh",
            )
        if price > spec.max_usd_per_hour:
            raise CapacityError(
                f"{spec.offer.key} costs ${price:.4f}/h, more than ${spec.max_usd_per_hour:.4f}/h",
                code="SpotMaxPriceTooLow",
            )

    def _with_token(self, region: str, token: str) -> Machine | None:
        """EC2 keeps a client token for some time only; our tag stays as long as the machine is listed."""
        found = self._instances(region, [{"Name": f"tag:{tags.TOKEN}", "Values": [token]}])
        return min(found, key=lambda m: (m.launched_s, m.instance_id)) if found else None

    def _instances(self, region: str, filters: list[dict[str, Any]]) -> list[Machine]:
        pages = self._calls.pages("ec2", region, "describe_instances", "Reservations", Filters=filters)
        names = self._places.zone_ids(region) if pages else {}
        found = (tags.machine(one, region, names) for page in pages for one in page["Instances"])
        return [self._priced(machine) for machine in found if machine is not None]

    def _read(self, listed: Mapping[str, Any], region: str) -> Machine:
        machine = tags.machine(listed, region, self._places.zone_ids(region))
        if machine is None:
            raise OtherCloudError(f"aws {region}: the new instance does not carry our tags", code="NoTags")
        return self._priced(machine)

    def _priced(self, machine: Machine) -> Machine:
        """Spot machines pay the zone's price; EC2 names none for the others."""
        if machine.market != Market.SPOT.value or machine.ended_s is not None:
            return machine
        return replace(machine, usd_per_hour=self._spot.of_machine(machine))

    def _regions(self) -> list[str]:
        named = self._settings.get("regions", HOME)
        return sorted({region.strip() for region in named.split(",") if region.strip()})

    def _all_regions(self) -> list[str]:
        if "regions" in self._settings:
            return self._regions()
        page = self._calls.read("ec2", HOME, "describe_regions")
        return sorted(one["RegionName"] for one in page["Regions"])


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encoded_bytes(user_data: str) -> int:
    """What EC2 counts against its 16 KB: the text itself; the API takes it in base64."""
    return len(base64.b64encode(user_data.encode()))


def now_s() -> float:
    return time.time()
