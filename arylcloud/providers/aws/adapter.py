"""``Provider`` on EC2. See ``core.ports`` for what each method promises."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import ArylError, OtherCloudError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineSpec, MachineState, PricePoint
from arylcloud.providers import marks
from arylcloud.providers.aws import tags
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.gang import Gangs
from arylcloud.providers.aws.listprice import ListPrices
from arylcloud.providers.aws.place import Places
from arylcloud.providers.aws.quota import Quotas
from arylcloud.providers.aws.request import request, token_in
from arylcloud.providers.aws.roles import Newcomers
from arylcloud.providers.aws.seen import Seen
from arylcloud.providers.aws.spotprice import SpotPrices
from arylcloud.providers.bounds import (
    CLOUD_INIT,
    as_asked,
    iso,
    not_offered,
    ordered,
    user_data_fits,
    within_cap,
)
from arylcloud.providers.settings import known_only
from arylcloud.providers.zones import together, turn_of, where_there_is_room

log = logging.getLogger("arylcloud.aws")
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
        "spot_advisor",
    ]
)
USER_DATA_BYTES: Final = 16_384
_METADATA: Final = {"protocol": "ec2", "poll_s": "1"}
"""At EC2's own address, unless the machine's environment names another."""


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsProvider:
    """The factory in ``providers/registry``. No call goes out here."""
    known_only("aws", settings, KNOWN)
    calls = Calls(settings.get("profile"))
    return AwsProvider(calls, settings, Seen(calls, state_dir / "aws"))


class AwsProvider:
    """One AWS account. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str], seen: Seen) -> None:
        self._calls = calls
        self._seen = seen
        self._settings = settings
        self._places = Places(calls, settings)
        self._gangs = Gangs(calls, self._places, settings)
        self._quotas = Quotas(calls)
        self._new = Newcomers()
        self._spot = SpotPrices(calls, self._places)
        self._list = ListPrices(calls)
        self._lock = threading.Lock()
        self._seen_gone: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "aws"

    def capabilities(self) -> Capabilities:
        return Capabilities(
            notice_s=120.0,
            billing=Billing(minimum_s=60.0, first_hour_interruption_free=True),
            market_clock=MarketClock(origin_s=0.0, scale=1.0),
            boot_s=180.0,
            list_every_s=5.0,
            metadata=_METADATA,
            # An instance's own shutdown is its end: InstanceInitiatedShutdownBehavior below.
            machine_env={"ARYL_POWEROFF": "shutdown -h now", **CLOUD_INIT},
        )

    # ------------------------------------------------------------ prices

    def quote(self, offer: Offer) -> Offer:
        if not self._places.sold(offer):
            raise not_offered(offer)
        price, at_s = self._price(offer)
        if at_s is None:  # the list cannot be read with these permissions: the catalogue's price, and its age
            return offer
        source = "AWS spot price history" if offer.market is Market.SPOT else "AWS Price List"
        return replace(offer, usd_per_hour=price, as_of=iso(at_s), source=source)

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        if offer.market is Market.SPOT:
            return self._spot.history(offer, from_s, to_s)
        price = self._price(offer)[0]
        if price is None:
            raise OtherCloudError(f"the price of {offer.key} is not known", code="NoPrice")
        return (PricePoint(from_s=from_s, usd_per_hour=price),)

    # ------------------------------------------------------------ machines

    def create(self, spec: MachineSpec) -> Machine:
        offer, region = spec.offer, spec.offer.region
        user_data_fits(spec, USER_DATA_BYTES, "EC2")
        zones = self._places.zones(offer, turn_of(spec))
        if not zones:
            raise not_offered(offer)
        if (there := self._with_token(region, spec.token)) is not None:
            return there
        self._seen.elsewhere.refuse_token(spec.token)
        several = offer.zone is None and len(zones) > 1
        if several:
            zones = self._in_order(spec, zones)
        # EC2 itself holds spot prices to the cap, and nobody holds list prices
        within_cap(spec, lambda: self._price(offer)[0])
        self._quotas.check(offer, spec.nodes)
        self._places.zone_ids(region)  # asked for now: whatever fails once there is a machine hides it

        def make(zone: str) -> Machine:
            if several:
                self._seen.turned_to(spec.token, zone)
            return self._make(replace(spec, offer=replace(offer, zone=zone)), token_in(spec, zone))

        machine = where_there_is_room(spec, zones, make)
        as_asked(spec, machine, self.terminate)
        return machine

    def _in_order(self, spec: MachineSpec, zones: list[str]) -> list[str]:
        """Of an offer without a zone. EC2 knows our token in one zone only, and its lists lag: what an answer
        that was lost may have made is looked for where it was asked for, before any other zone: the
        gang's other machines may have found no room there since."""
        near = together(spec, zones, self._seen.live()) if spec.in_gang else zones
        last = self._seen.turned(spec.token)
        return near if last not in zones else [last, *(zone for zone in near if zone != last)]

    def _make(self, spec: MachineSpec, client_token: str) -> Machine:
        """In the offer's zone."""
        region = spec.offer.region
        asked = self._request(spec)
        asked["ClientToken"] = client_token
        try:
            answer = self._run(region, asked, role=spec.identity)
        except ArylError as error:
            if error.code == "IdempotentParameterMismatch":  # another user data: there is a machine already
                with ordered(spec.token):
                    there = self._with_token(region, spec.token)
                if there is not None:
                    return there
            gone = error.code == "InvalidGroup.NotFound" and "security_group" not in self._settings
            if gone or error.code == "InvalidPlacementGroup.Unknown":  # removed under our feet
                self._places.forget_groups()
                self._gangs.forget()
                raise OtherCloudError(error.message, code=error.code) from error
            raise
        with ordered(spec.token):
            self._seen.told(answer.get("OwnerId"))
            machine = self._read(answer["Instances"][0], region)
            self._seen.saw([machine])
        return machine

    def _run(self, region: str, asked: dict[str, Any], *, role: str | None) -> Any:
        """Once; but a role that we have just made is asked for until EC2 has heard of it."""

        def run() -> Any:
            return self._calls.act("ec2", region, "run_instances", **asked)

        return run() if role is None else self._new.once_known(role, run)

    def _request(self, spec: MachineSpec) -> dict[str, Any]:
        """RunInstances' parameters: for one spec always the same, or its token would not hold."""
        offer, region = spec.offer, spec.offer.region
        subnet, vpc = self._places.subnet(offer)
        asked = request(spec, self._settings)
        asked["ImageId"] = image = spec.image or self._places.image(region, offer.instance_type)
        asked |= self._gangs.request(spec, subnet, vpc)
        if spec.disk_gb is not None:
            device, least_gib = self._places.root_disk(region, image)
            asked["BlockDeviceMappings"] = [
                {
                    "DeviceName": device,
                    "Ebs": {
                        "VolumeSize": max(math.ceil(spec.disk_gb), least_gib),
                        "VolumeType": self._settings.get("disk_type", "gp3"),
                        "DeleteOnTermination": True,
                    },
                }
            ]
        return asked

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        regions = sorted({o.region for o in offers if o.cloud == "aws"}) or self._places.regions()
        wanted = (
            {"Name": f"tag:{marks.JOURNAL}", "Values": [journal_id]}
            if journal_id is not None
            else {"Name": "tag-key", "Values": [marks.JOURNAL]}
        )
        with ThreadPoolExecutor(min(8, len(regions)), thread_name_prefix="aws-list") as pool:
            found = pool.map(lambda region: self._instances(region, [wanted]), regions)
            listed = [machine for part in found for machine in part]
        listed += self._by_id(self._seen.missing(listed, journal_id, regions))
        self._seen.all_of(listed, journal_id, regions)
        there = {m.instance_id: m for m in self._seen.elsewhere.machines(journal_id)}
        return tuple((there | {m.instance_id: m for m in listed}).values())

    def terminate(self, machine: Machine) -> None:
        self._seen.elsewhere.refuse(machine)
        try:
            self._calls.act("ec2", machine.region, "terminate_instances", InstanceIds=[machine.instance_id])
        except ArylError as error:
            if error.code not in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                raise

    # ------------------------------------------------------------ parts

    def _price(self, offer: Offer) -> tuple[float | None, float | None]:
        """($/h, wall seconds at which AWS said so; None = it did not)."""
        if offer.market is Market.SPOT:
            return self._spot.now(offer)
        listed = self._list.now(offer.region, offer.instance_type)
        return listed if listed is not None else (offer.usd_per_hour, None)

    def _with_token(self, region: str, token: str) -> Machine | None:
        """EC2 keeps a client token for some time only; our tag stays as long as the machine is listed."""
        found = self._instances(region, [{"Name": f"tag:{marks.TOKEN}", "Values": [token]}])
        return min(found, key=lambda m: (m.launched_s, m.instance_id)) if found else None

    def _by_id(self, known: Sequence[Machine]) -> list[Machine]:
        """As far as EC2 knows them: a list by tags has none of whom somebody has taken the tags off."""
        found = []
        for region in sorted({one.region for one in known}):
            there = {one.instance_id: one for one in known if one.region == region}
            found += self._instances(region, [{"Name": "instance-id", "Values": sorted(there)}], there)
        return found

    def _instances(
        self, region: str, filters: list[dict[str, Any]], known: Mapping[str, Machine] | None = None
    ) -> list[Machine]:
        pages = self._calls.pages("ec2", region, "describe_instances", "Reservations", Filters=filters)
        names = self._places.zone_ids(region) if pages else {}
        found = []
        for page in pages:
            self._seen.told(page.get("OwnerId"))
        for one in (one for page in pages for one in page["Instances"]):
            machine = tags.machine(one, region, names, (known or {}).get(one["InstanceId"]))
            if machine is not None:
                found.append(self._ended(self._priced(machine), one.get("SpotInstanceRequestId")))
        return found

    def _ended(self, machine: Machine, spot_request: str | None) -> Machine:
        """Of some ends EC2 does not say when they were: the spot request knows; else the moment at which
        we see it first."""
        if machine.state is not MachineState.GONE or machine.ended_s is not None:
            return machine
        with self._lock:
            known = self._seen_gone.get(machine.instance_id)
        if known is None:
            known = self._request_ended_s(machine.region, spot_request) or time.time()
            known = max(known, machine.launched_s)
            with self._lock:
                known = self._seen_gone.setdefault(machine.instance_id, known)
        return replace(machine, ended_s=known)

    def _request_ended_s(self, region: str, spot_request: str | None) -> float | None:
        if spot_request is None:
            return None
        try:
            page = self._calls.read(
                "ec2", region, "describe_spot_instance_requests", SpotInstanceRequestIds=[spot_request]
            )
        except ArylError:
            return None  # forgotten by EC2, or not ours to read
        found = [one for one in page["SpotInstanceRequests"] if one.get("State") != "active"]
        at = found[0].get("Status", {}).get("UpdateTime") if found else None
        return None if at is None else float(at.timestamp())

    def _read(self, listed: Mapping[str, Any], region: str) -> Machine:
        machine = tags.machine(listed, region, self._places.zone_ids(region))
        if machine is None:
            raise OtherCloudError(f"aws {region}: the new instance does not carry our tags", code="NoTags")
        return self._priced(machine)

    def _priced(self, machine: Machine) -> Machine:
        """A price that cannot be read is None: the machine exists all the same, and has to be seen."""
        if machine.state is MachineState.GONE:
            return machine
        try:
            if machine.market == Market.SPOT.value:
                return replace(machine, usd_per_hour=self._spot.of_machine(machine))
            listed = self._list.now(machine.region, machine.instance_type)
        except ArylError as error:
            log.warning("price of %s: %s", machine.instance_id, error.message)
            return machine
        return machine if listed is None else replace(machine, usd_per_hour=listed[0])
