"""``Provider`` on Compute Engine. See ``core.ports`` for what each method promises.

A machine that has ended is deleted, and Compute Engine forgets it: what was seen of it (``sightings``) and
the operations on it (``endings``) say when it ended, and why.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import ArylError, CapacityError, CloudError, OtherCloudError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import (
    Billing,
    Capabilities,
    EndCause,
    Machine,
    MachineSpec,
    MachineState,
    PricePoint,
)
from arylcloud.providers.bounds import as_asked, iso, not_offered, user_data_fits, within_cap
from arylcloud.providers.gcp import naming
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.endings import fate
from arylcloud.providers.gcp.instance import document
from arylcloud.providers.gcp.listprice import ListPrices, Wanted
from arylcloud.providers.gcp.network import Networks
from arylcloud.providers.gcp.place import Places
from arylcloud.providers.gcp.poweroff import poweroff
from arylcloud.providers.gcp.quota import Quotas
from arylcloud.providers.settings import known_only
from arylcloud.providers.sightings import Sightings

log = logging.getLogger("arylcloud.gcp")
KNOWN: Final = frozenset(
    [
        "project",
        "api_endpoint",
        "billing_endpoint",
        "storage_endpoint",
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
    ]
)
USER_DATA_BYTES: Final = 200_000
"""A value of the metadata takes 256 KiB; ours has a preamble, too."""
MADE_WITHIN_S: Final = 90.0
"""For so long an insertion is waited for: by then a zone without capacity has said so."""
UNTOLD_S: Final = 60.0
"""For so long after a machine is missing an operation may come that says why."""
_THERE: Final = frozenset(["alreadyExists", "RESOURCE_ALREADY_EXISTS", "HTTP_409"])
_MISSING: Final = frozenset(["notFound", "RESOURCE_NOT_FOUND", "HTTP_404"])


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpProvider:
    """The factory in ``providers/registry``. No call goes out here."""
    known_only("gcp", settings, KNOWN)
    return GcpProvider(Calls(settings), settings, Sightings(state_dir / "gcp" / "sightings.jsonl"))


class GcpProvider:
    """One project. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str], sightings: Sightings) -> None:
        self._calls = calls
        self._settings = settings
        self._sightings = sightings
        self._places = Places(calls, settings)
        self._networks = Networks(calls, settings)
        self._quotas = Quotas(calls)
        self._list = ListPrices(settings)
        self._lock = threading.Lock()
        self._missing_s: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "gcp"

    def capabilities(self) -> Capabilities:
        metadata = {"protocol": "gce", "poll_s": "1"}
        if host := self._settings.get("metadata_host"):
            metadata["url"] = host if "://" in host else f"http://{host}"
        return Capabilities(
            notice_s=30.0,
            billing=Billing(minimum_s=60.0),
            market_clock=MarketClock(origin_s=0.0, scale=1.0),
            boot_s=120.0,
            metadata=metadata,
            machine_env={"ARYL_POWEROFF": poweroff(self._calls.base)},
        )

    # ------------------------------------------------------------ prices

    def quote(self, offer: Offer) -> Offer:
        wanted = self._wanted(offer)
        if wanted is None:
            raise not_offered(offer)
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
        zones = self._places.zones(offer, spec.token)
        if not zones:
            raise not_offered(offer)
        for zone in zones:
            if (there := self._get(naming.machine_name(spec.token), zone)) is not None:
                return self._seen(there)
        if known is not None:  # it was there: this token makes no second one
            return self._unlisted(known, tidy=False)
        within_cap(spec, lambda: self._price(offer))
        kinds = self._places.kinds(offer.instance_type)
        self._quotas.check(offer, kinds[zones[0]])
        image = self._places.image(offer.instance_type, spec.image)
        at = self._networks.attachment(offer.region, spec.journal_id)
        refused: list[CapacityError] = []
        for zone in zones:
            asked = document(spec, zone, self._settings, kind=kinds[zone], image=image, at=at)
            try:
                machine = self._insert(spec, zone, asked)
            except CapacityError as error:
                refused.append(error)
                continue
            as_asked(spec, machine, self.terminate)
            return machine
        if len(refused) == 1:
            raise refused[0]
        raise CapacityError(
            f"gcp: no {offer.key} in {', '.join(zones)}: {refused[-1].message}",
            code=refused[-1].code,
            scope="region",
        )

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
            if error.code in _THERE and (there := self._get(name, zone)) is not None:
                return self._seen(there)
            if error.code in _MISSING and self._networks.named(spec.offer.region) is None:
                self._networks.forget()  # it may have been removed under our feet: the next try makes it
                raise OtherCloudError(error.message, code=error.code) from error
            raise
        try:
            self._calls.done(operation, what, within_s=MADE_WITHIN_S)
        except ArylError as error:
            if error.code in _THERE and (there := self._get(name, zone)) is not None:
                return self._seen(there)
            raise
        if (there := self._get(name, zone)) is not None:
            return self._seen(there)
        # made and taken again, now or (with this token) some time ago: there is no second one
        gone = self._sightings.of_token(spec.token) or _as_made(spec, zone, operation)
        self._sightings.saw(gone)
        told = fate(self._calls, gone, asked=self._sightings.asked_s(name) is not None)
        ended_s = told.ended_s if told.ended_s is not None else time.time()
        ended = self._sightings.end(name, ended_s, told.cause)
        assert ended is not None
        return ended

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        """One call for all regions. Of this journal's machines, one that has switched itself off is deleted:
        its disk would be paid for until then."""
        del offers
        wanted = (
            f"labels.{naming.JOURNAL}:*" if journal_id is None else f"labels.{naming.JOURNAL}={journal_id}"
        )
        pages = self._calls.pages(
            "Instances", "aggregated_list", project=self._calls.project, filter=wanted, max_results=500
        )
        found: dict[str, Machine] = {}
        for _, inside in pages:
            for one in inside.instances:
                machine = naming.machine(one)
                if machine is not None:
                    found[machine.instance_id] = self._listed(machine, tidy=journal_id is not None)
        for known in self._sightings.live():
            if known.instance_id not in found and journal_id in (None, known.journal_id):
                found[known.instance_id] = self._unlisted(known, tidy=journal_id is not None)
        for known in self._sightings.ended():
            if journal_id in (None, known.journal_id):
                found[known.instance_id] = known
        return tuple(found[name] for name in sorted(found))

    def terminate(self, machine: Machine) -> None:
        self._sightings.asked_end(machine.instance_id)
        try:
            self._calls.act(
                "Instances",
                "delete_unary",
                project=self._calls.project,
                zone=machine.zone,
                instance=machine.instance_id,
            )
        except ArylError as error:
            if error.code not in _MISSING:
                raise

    # ------------------------------------------------------------ parts

    def _get(self, name: str, zone: str) -> Machine | None:
        """As it is, whatever lists say; None = there is none of ours."""
        found = self._calls.find("Instances", "get", project=self._calls.project, zone=zone, instance=name)
        return None if found is None else naming.machine(found)

    def _seen(self, machine: Machine) -> Machine:
        """Of a machine that is there."""
        self._sightings.saw(machine)
        return self._listed(machine, tidy=False)

    def _listed(self, machine: Machine, *, tidy: bool) -> Machine:
        self._sightings.saw(replace(machine, state=MachineState.RUNNING, ended_s=None, end_cause=None))
        if machine.state is not MachineState.GONE:
            return self._priced(machine)
        told = fate(self._calls, machine, asked=self._sightings.asked_s(machine.instance_id) is not None)
        ended_s = told.ended_s if told.ended_s is not None else machine.ended_s
        cause = told.cause if told.ended_s is not None else EndCause.SELF
        ended = self._sightings.end(machine.instance_id, ended_s or time.time(), cause)
        if tidy:
            with contextlib.suppress(CloudError):  # the next list does it
                self._delete_remains(machine)
        return ended or machine

    def _delete_remains(self, machine: Machine) -> None:
        log.info("%s has switched itself off: it is deleted, with its disk", machine.instance_id)
        self.terminate(machine)

    def _unlisted(self, known: Machine, *, tidy: bool) -> Machine:
        """It was there: a list that lags, or its end."""
        assert known.zone is not None
        there = self._get(known.instance_id, known.zone)
        if there is not None:
            return self._listed(there, tidy=tidy)
        asked_s = self._sightings.asked_s(known.instance_id)
        told = fate(self._calls, known, asked=asked_s is not None)
        with self._lock:
            since_s = self._missing_s.setdefault(known.instance_id, time.time())
        if told.ended_s is None and time.time() - since_s < UNTOLD_S:
            return replace(known, state=MachineState.STOPPING)
        ended_s = told.ended_s if told.ended_s is not None else min(since_s, asked_s or since_s)
        cause = told.cause
        if told.ended_s is None and asked_s is not None:
            cause = EndCause.TERMINATED
        return self._sightings.end(known.instance_id, ended_s, cause) or known

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


def _as_made(spec: MachineSpec, zone: str, operation: Any) -> Machine:
    """A machine that has been and gone before anybody could look at it."""
    return Machine(
        instance_id=naming.machine_name(spec.token),
        token=spec.token,
        journal_id=spec.journal_id,
        job_id=spec.job_id,
        lease_id=spec.lease_id,
        cloud="gcp",
        region=spec.offer.region,
        zone=zone,
        instance_type=spec.offer.instance_type,
        market=spec.offer.market.value,
        state=MachineState.RUNNING,
        usd_per_hour=None,
        launched_s=naming.seconds(operation.insert_time),
        until_s=spec.until_s,
    )
