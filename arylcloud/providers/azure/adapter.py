"""``Provider`` on Azure. See ``core.ports`` for what each method promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import ArylError, OtherCloudError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineSpec, MachineState, PricePoint
from arylcloud.providers.accounts import Elsewhere, file_of
from arylcloud.providers.azure import request, selfend, tags
from arylcloud.providers.azure.client import PUBLIC, SUBSCRIPTION, Arm
from arylcloud.providers.azure.images import Images
from arylcloud.providers.azure.listprice import ListPrices
from arylcloud.providers.azure.making import Making
from arylcloud.providers.azure.place import Places
from arylcloud.providers.azure.prices import SOURCE
from arylcloud.providers.azure.quota import Quotas
from arylcloud.providers.azure.roster import Roster
from arylcloud.providers.azure.selfend import Roles
from arylcloud.providers.azure.skus import Skus
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
from arylcloud.providers.sightings import Sightings

KNOWN: Final = frozenset(
    [
        "subscription",
        "resource_group",
        "resource_manager",
        "retail_prices",
        "blob_endpoint",
        "storage_account",
        "storage_identity",
        "storage_role",
        "metadata_host",
        "vnet",
        "subnet",
        "public_address",
        "identity",
        "machine_role",
        "tags",
        "image",
        "disk_type",
    ]
)
USER_DATA_BYTES: Final = 48_000
"""64 KB of base64."""
_MISSING: Final = frozenset({"ResourceGroupNotFound", "InvalidResourceReference", "NotFound"})


def create(state_dir: Path, settings: Mapping[str, str]) -> AzureProvider:
    """The factory in ``providers/registry``. No call goes out here."""
    known_only("azure", settings, KNOWN)
    arm = Arm(settings)
    folder = state_dir / "azure"

    def account() -> str:
        return arm.subscription.lower()

    seen = Sightings(lambda: file_of(folder, account()))
    back = f"[azure] subscription, or {SUBSCRIPTION}"
    return AzureProvider(arm, settings, seen, Elsewhere("azure", "subscription", folder, account, back=back))


class AzureProvider:
    """One subscription. Safe to use from several threads."""

    def __init__(
        self, arm: Arm, settings: Mapping[str, str], sightings: Sightings, elsewhere: Elsewhere
    ) -> None:
        self._arm = arm
        self._settings = settings
        self._sightings = sightings
        self._elsewhere = elsewhere
        self._skus = Skus(arm)
        self._quotas = Quotas(arm, self._skus)
        self._images = Images(arm, settings, self._skus)
        self._places = Places(arm, settings)
        self._prices = ListPrices(settings)
        roles = Roles(arm, settings)
        self._making = Making(arm, roles)
        self._roster = Roster(arm, self._places, self._making, roles, self._prices, sightings)

    @property
    def name(self) -> str:
        return "azure"

    def capabilities(self) -> Capabilities:
        metadata = {"protocol": "azure", "poll_s": "1"}
        if host := self._settings.get("metadata_host"):
            metadata["url"] = host
        named = self._settings.get("identity")
        ends = selfend.command(self._arm.base, PUBLIC, identity=named)
        if named == request.NO_IDENTITY:
            ends = "shutdown -h now"
        return Capabilities(
            notice_s=30.0,
            billing=Billing(minimum_s=60.0),
            market_clock=MarketClock(origin_s=0.0, scale=1.0),
            boot_s=240.0,
            list_every_s=5.0,
            metadata=metadata,
            machine_env={"ARYL_POWEROFF": ends, **CLOUD_INIT},
        )

    # ------------------------------------------------------------ prices

    def quote(self, offer: Offer) -> Offer:
        if self._skus.barred(offer) is not None:
            raise not_offered(offer)
        known = self._prices.now(offer)
        if known is None:  # the list cannot be read: the catalogue's price, and its age
            return offer
        return replace(offer, usd_per_hour=known[0], as_of=iso(known[1]), source=SOURCE)

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        points = self._prices.history(offer, from_s, to_s)
        if points:
            return points
        if offer.usd_per_hour is None:
            raise OtherCloudError(f"the price of {offer.key} is not known", code="NoPrice")
        return (PricePoint(from_s=from_s, usd_per_hour=offer.usd_per_hour),)

    # ------------------------------------------------------------ machines

    def create(self, spec: MachineSpec) -> Machine:
        offer = spec.offer
        user_data_fits(spec, USER_DATA_BYTES, "Azure")
        known = self._sightings.of_token(spec.token)
        if known is not None and known.state is MachineState.GONE:
            return known
        if known is None:
            self._elsewhere.refuse_token(spec.token)
        if self._skus.barred(offer) is not None:
            raise not_offered(offer)
        group, name = self._places.group_name(offer.region, spec.journal_id), tags.vm_name(spec.token)
        if self._making.look(group, name) is None:
            if known is not None:  # it was there: this token makes no second one
                return self._roster.missing(known) or known
            # Azure itself holds spot prices to the cap, and nobody holds list prices
            within_cap(spec, lambda: self._price(offer))
            self._quotas.check(offer, spec.nodes)
            image = self._images.of(offer, spec.image)
            try:
                network = self._places.network(offer.region, spec.journal_id)
                group = self._places.group(offer.region, spec.journal_id)
                self._making.order(group, name, request.machine(spec, self._settings, image, network))
            except ArylError as error:
                raise self._ours_is_gone(error) from error
        vm = self._making.allocated(group, name)
        with ordered(name):
            machine = self._roster.read(vm, known)
            self._sightings.saw(machine)
        self._let_it_end(vm, machine)
        as_asked(spec, machine, self.terminate)
        return machine

    def _ours_is_gone(self, error: ArylError) -> ArylError:
        """What we had made was removed under our feet: no setting is wrong, the next try makes it again."""
        named = {"resource_group", "vnet", "subnet"} & self._settings.keys()
        if error.code not in _MISSING or named:
            return error
        self._places.forget()
        return OtherCloudError(error.message, code=error.code)

    def _let_it_end(self, vm: Any, machine: Machine) -> None:
        try:
            self._roster.entitle(vm)
        except ArylError as error:  # nobody would end it, should the launcher be lost
            try:
                self.terminate(machine)
                self._making.gone(*tags.of_id(vm.id))
            except ArylError as failed:
                raise OtherCloudError(
                    f"{error.message}; {machine.instance_id} is not ended yet: {failed.message}",
                    code=error.code,
                    hint=error.hint,
                ) from failed
            raise

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        del offers  # there are no other groups to look into
        found = {m.instance_id: m for m in self._elsewhere.machines(journal_id)}
        found |= {m.instance_id: m for m in self._roster.machines(journal_id)}
        return tuple(found.values())

    def terminate(self, machine: Machine) -> None:
        where = tags.split(machine.instance_id)
        if where is None:
            return
        if machine.state is MachineState.GONE:  # by itself, or by Azure
            self._roster.strip(machine.instance_id)
            return
        group, name = where
        self._elsewhere.refuse(machine)
        self._sightings.saw(machine)
        going = machine.state is MachineState.STOPPING and self._roster.is_going(group, name)
        if not going:  # else it is somebody else's doing: Azure's, or its own
            self._sightings.asked_end(machine.instance_id)  # first: whoever looks meanwhile has to know
        self._making.end(group, name)
        self._roster.strip(machine.instance_id)

    # ------------------------------------------------------------ parts

    def _price(self, offer: Offer) -> float | None:
        known = self._prices.now(offer)
        return offer.usd_per_hour if known is None else known[0]
