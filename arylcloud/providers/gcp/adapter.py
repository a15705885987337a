"""``Provider`` on Compute Engine. See ``core.ports`` for what each method promises.

A machine that has ended is deleted, and Compute Engine forgets it: what was seen of it (``sightings``) and
the operations on it (``endings``) say when it ended, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import ArylError, OtherCloudError, QuotaError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import (
    Billing,
    Capabilities,
    Machine,
    MachineSpec,
    MachineState,
    PricePoint,
)
from arylcloud.providers.accounts import Elsewhere, file_of
from arylcloud.providers.bounds import as_asked, iso, not_offered, ordered, user_data_fits, within_cap
from arylcloud.providers.gcp import naming
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.errors import of_operation
from arylcloud.providers.gcp.gang import Gangs
from arylcloud.providers.gcp.instance import document, notice_s
from arylcloud.providers.gcp.listprice import ListPrices, Wanted
from arylcloud.providers.gcp.network import Networks
from arylcloud.providers.gcp.place import Places
from arylcloud.providers.gcp.poweroff import poweroff
from arylcloud.providers.gcp.quota import Quotas, in_use
from arylcloud.providers.gcp.roster import MISSING, Roster
from arylcloud.providers.settings import known_only
from arylcloud.providers.sightings import Sightings
from arylcloud.providers.zones import together, turn_of, where_there_is_room

log = logging.getLogger("arylcloud.gcp")
KNOWN: Final = frozenset(
    [
        "project",
        "api_endpoint",
        "billing_endpoint",
        "storage_endpoint",
        "iam_endpoint",
        "sts_endpoint",
        "resource_manager",
        "metadata_host",
        "api_key",
        "network",
        "subnetwork",
        "external_ip",
        "service_account",
        "labels",
        "image",
        "disk_type",
        "max_run_hours",
        "preemption_notice_s",
        "prices_every_s",
    ]
)
USER_DATA_BYTES: Final = 200_000
"""A value of the metadata takes 256 KiB; ours has a preamble, too."""
MADE_WITHIN_S: Final = 90.0
"""For so long an insertion is waited for: by then a zone without capacity has said so."""
END_S: Final = 30.0
"""From "soft off" to the end of a spot machine."""
ENDS_ITSELF: Final = "roles/compute.instanceAdmin.v1"
"""Given on one machine only."""


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpProvider:
    """The factory in ``providers/registry``. No call goes out here."""
    known_only("gcp", settings, KNOWN)
    calls = Calls(settings)
    folder = state_dir / "gcp"
    elsewhere = Elsewhere(
        "gcp", "project", folder, lambda: calls.project, back="[gcp] project, or gcloud config set project …"
    )
    seen = Sightings(lambda: file_of(folder, calls.project))
    return GcpProvider(calls, settings, seen, elsewhere)


class GcpProvider:
    """One project. Safe to use from several threads."""

    def __init__(
        self, calls: Calls, settings: Mapping[str, str], sightings: Sightings, elsewhere: Elsewhere
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._sightings = sightings
        self._elsewhere = elsewhere
        self._places = Places(calls, settings)
        self._networks = Networks(calls, settings)
        self._gangs = Gangs(calls)
        self._quotas = Quotas(calls)
        self._list = ListPrices(settings)
        self._roster = Roster(calls, sightings, self._priced)

    @property
    def name(self) -> str:
        return "gcp"

    def capabilities(self) -> Capabilities:
        lead_s = END_S + notice_s(self._settings)
        metadata = {"protocol": "gce", "poll_s": "1", "lead_s": f"{lead_s:g}"}
        if host := self._settings.get("metadata_host"):
            metadata["url"] = host if "://" in host else f"http://{host}"
        return Capabilities(
            notice_s=lead_s,
            billing=Billing(minimum_s=60.0),
            market_clock=MarketClock(origin_s=0.0, scale=1.0),
            boot_s=120.0,
            list_every_s=5.0,
            metadata=metadata,
            machine_env={"ARYL_POWEROFF": poweroff(self._calls.base)},
        )

    # ------------------------------------------------------------ prices

    def quote(self, offer: Offer) -> Offer:
        wanted = self._wanted(offer)
        if wanted is None:
            raise not_offered(offer)
        self._list.freshen()
        listed = self._list.now(wanted)
        if listed is None:  # the list cannot be read: the catalogue's price, and its age
            return offer
        return replace(
            offer, usd_per_hour=listed[0], as_of=iso(listed[1]), source="GCP Cloud Billing Catalog"
        )

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        wanted = self._wanted(offer)
        found = self._list.history(wanted, from_s, to_s) if wanted is not None else ()
        if found:
            return found
        if offer.usd_per_hour is None:
            raise OtherCloudError(f"the price of {offer.key} is not known", code="NoPrice")
        return (PricePoint(from_s=from_s, usd_per_hour=offer.usd_per_hour),)

    def _price(self, offer: Offer) -> float | None:
        wanted = self._wanted(offer)
        listed = self._list.now(wanted) if wanted is not None else None
        return offer.usd_per_hour if listed is None else listed[0]

    def _wanted(self, offer: Offer) -> Wanted | None:
        """None where the type is not offered there."""
        zones = self._places.zones(offer, "")
        if not zones:
            return None
        shape = self._places.kinds(offer.instance_type)[zones[0]].shape
        return Wanted(
            instance_type=offer.instance_type, shape=shape, region=offer.region, market=offer.market
        )

    # ------------------------------------------------------------ machines

    def create(self, spec: MachineSpec) -> Machine:
        offer = spec.offer
        user_data_fits(spec, USER_DATA_BYTES, "Compute Engine")
        known = self._sightings.of_token(spec.token)
        if known is not None and known.ended_s is not None:
            return known
        if known is None:
            self._elsewhere.refuse_token(spec.token)
        zones = self._places.zones(offer, turn_of(spec))
        if not zones:
            raise not_offered(offer)
        for zone in zones:
            if (there := self._roster.get(naming.machine_name(spec.token), zone)) is not None:
                return self._allowed(spec, there)
        if known is not None:  # it was there: this token makes no second one
            return self._roster.unlisted(known)
        if spec.in_gang and offer.zone is None:
            zones = together(spec, zones, self._sightings.live())
        self._list.freshen()
        within_cap(spec, lambda: self._price(offer))
        kinds = self._places.kinds(offer.instance_type)
        self._quotas.check(offer, kinds[zones[0]], spec.nodes)
        image = self._places.image(offer.instance_type, spec.image)
        at = self._networks.attachment(offer.region, spec.journal_id)

        def make(zone: str) -> Machine:
            policy = self._gangs.policy(spec, zone)
            asked = document(spec, zone, self._settings, kind=kinds[zone], image=image, at=at, policy=policy)
            try:
                return self._insert(spec, zone, asked)
            except QuotaError as error:
                error.in_use = in_use(error, offer, kinds[zone])
                raise

        machine = where_there_is_room(spec, zones, make)
        as_asked(spec, machine, self.terminate)
        return self._allowed(spec, machine)

    def _insert(self, spec: MachineSpec, zone: str, asked: dict[str, Any]) -> Machine:
        """Sent once. What follows is looked at until it is clear whether there is a machine."""
        name, what = asked["name"], f"gcp {zone}: insert {asked['name']}"
        try:
            operation = self._calls.act(
                "Instances",
                "insert_unary",
                project=self._calls.project,
                zone=zone,
                request_id=naming.request_id(spec.token, zone),
                instance_resource=self._calls.type("Instance")(asked),
            )
        except ArylError as error:
            if error.code in naming.THERE and (there := self._there(name, zone)) is not None:
                return there
            if error.code in MISSING and self._networks.named(spec.offer.region) is None:
                self._gangs.forget()
                self._networks.forget()  # it may have been removed under our feet: the next try makes it
                raise OtherCloudError(error.message, code=error.code) from error
            raise
        with ordered(name):
            done = self._calls.settled(
                operation, within_s=MADE_WITHIN_S, or_when=lambda: self._roster.allocated(name, zone)
            )
        refusal = of_operation(done, what) if done is not None else None
        if refusal is not None:  # the cloud's own no to the order
            if refusal.code in naming.THERE and (there := self._there(name, zone)) is not None:
                return there
            raise refusal
        return self._there(name, zone) or self._vanished(spec, zone, operation)

    def _there(self, name: str, zone: str) -> Machine | None:
        with ordered(name):
            return self._roster.get(name, zone)

    def _vanished(self, spec: MachineSpec, zone: str, operation: Any) -> Machine:
        with ordered(spec.token):
            return self._roster.vanished(spec, zone, operation)

    def _allowed(self, spec: MachineSpec, machine: Machine) -> Machine:
        """The job's account may delete this one machine. Where we may not allow that, it can still switch
        itself off, and its launcher has it deleted."""
        account = spec.identity
        if account is None or machine.state in (MachineState.GONE, MachineState.STOPPING):
            return machine
        policy = {"policy": {"bindings": [{"role": ENDS_ITSELF, "members": [f"serviceAccount:{account}"]}]}}
        try:
            self._calls.act(
                "Instances",
                "set_iam_policy",
                project=self._calls.project,
                zone=machine.zone,
                resource=machine.instance_id,
                zone_set_policy_request_resource=policy,
            )
        except ArylError as error:
            log.warning("%s cannot delete itself: %s", machine.instance_id, error.message)
        return machine

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        del offers  # one call asks for all regions
        found = {m.instance_id: m for m in self._elsewhere.machines(journal_id)}
        found |= {m.instance_id: m for m in self._roster.of_journal(journal_id)}
        return tuple(found[name] for name in sorted(found))

    def terminate(self, machine: Machine) -> None:
        self._elsewhere.refuse(machine)
        self._roster.ask_end(machine)

    def _priced(self, machine: Machine) -> Machine:
        """A price that cannot be read is None: the machine exists all the same, and has to be seen."""
        try:
            kind = self._places.kinds(machine.instance_type).get(machine.zone or "")
        except ArylError as error:
            log.warning("price of %s: %s", machine.instance_id, error.message)
            return machine
        if kind is None:
            return machine
        wanted = Wanted(
            instance_type=machine.instance_type,
            shape=kind.shape,
            region=machine.region,
            market=Market(machine.market),
        )
        listed = self._list.now(wanted)
        return machine if listed is None else replace(machine, usd_per_hour=listed[0])
