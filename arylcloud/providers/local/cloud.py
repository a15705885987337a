"""The cloud's API: what a customer may ask of it. See ``core.ports.Provider`` for what each call promises."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from arylcloud.core.codec import encode
from arylcloud.core.errors import ArylError, CapacityError, OtherCloudError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Machine, MachineSpec, PricePoint
from arylcloud.providers.local import processes
from arylcloud.providers.local.book import Book
from arylcloud.providers.local.machines import Instance
from arylcloud.providers.local.market import MarketOffer

LISTED_AFTER_END_S = 3600.0
"""Wall seconds for which an ended machine is listed (the port asks for 600)."""
USER_DATA_LIMIT = 16 * 1024


class Cloud:
    """``end(instance)`` orders a machine's end on request: the clockwork's work."""

    def __init__(self, book: Book, end: Callable[[Instance], None]) -> None:
        self._book = book
        self._end = end

    # ------------------------------------------------------------ the API

    def create(self, spec: MachineSpec, python: str) -> Machine:
        """See ``Provider.create``. The machine exists, and is billed, once its record is on disk. The
        answer shows the price at launch, so that it fits ``launched_s`` whenever it is asked for."""
        with self._book.lock:
            known = self._book.machines.by_token.get(spec.token)
            if known is not None:
                instance = self._book.machines.by_id[known]
                if instance.offer_key != spec.offer.key:
                    raise OtherCloudError(
                        f"token {spec.token} was used for {instance.offer_key} before",
                        code="IdempotentParameterMismatch",
                    )
                return instance.machine(instance.launch_usd_per_hour)
            now_s = self._book.clock.now_s()
            offer = self._offered(spec.offer)
            step = self._book.market.step_at(offer, self._book.t_s(now_s))
            if len(self._book.machines.live(offer.key)) >= step.capacity:
                raise CapacityError(
                    f"no capacity for {offer.key} at present", code="InsufficientInstanceCapacity"
                )
            if spec.max_usd_per_hour is not None and step.usd_per_hour > spec.max_usd_per_hour:
                raise CapacityError(
                    f"price above cap: {offer.key} costs ${step.usd_per_hour:g}/h, "
                    f"the cap is ${spec.max_usd_per_hour:g}/h",
                    code="MaxPriceTooLow",
                )
            if len(spec.user_data.encode()) > USER_DATA_LIMIT:
                raise OtherCloudError("user data is limited to 16384 bytes", code="InvalidUserData")
            if self._book.machines.live(offer.key):
                self._book.record_prices(offer, now_s)
            instance_id = f"i-{secrets.token_hex(8)}"
            try:
                self._furnish(instance_id, spec, python, offer, step.usd_per_hour, now_s)
            except (OSError, ArylError) as error:
                self._book.unbind(instance_id)
                shutil.rmtree(self._book.home(instance_id), ignore_errors=True)
                raise OtherCloudError(f"no machine could be made: {error}", code="InternalError") from error
            return self._book.machines.by_id[instance_id].machine(step.usd_per_hour)

    def _furnish(
        self,
        instance_id: str,
        spec: MachineSpec,
        python: str,
        offer: MarketOffer,
        usd_per_hour: float,
        now_s: float,
    ) -> None:
        """Directory, user data, address; then the record that makes them a machine."""
        folder = self._book.home(instance_id)
        folder.mkdir(parents=True, mode=0o700)
        (folder / processes.USER_DATA).write_text(spec.user_data, encoding="utf-8")
        address, port = self._book.bind(instance_id, None, None)
        instance = Instance(
            instance_id=instance_id,
            token=spec.token,
            journal_id=spec.journal_id,
            job_id=spec.job_id,
            lease_id=spec.lease_id,
            offer_key=offer.key,
            region=offer.region,
            zone=offer.zone,
            instance_type=offer.instance_type,
            market=offer.market.value,
            launched_s=self._book.market_clock.market_s(now_s),
            launched_wall_s=now_s,
            launch_usd_per_hour=usd_per_hour,
            max_usd_per_hour=spec.max_usd_per_hour,
            until_s=spec.until_s,
            address=address,
            metadata_port=port,
            python=python,
        )
        self._book.record("launch", now_s, instance=encode(instance))

    def list_machines(self, journal_id: str | None, *, lag_s: float = 0.0) -> list[Machine]:
        now_s = self._book.clock.now_s()
        with self._book.lock:
            return [
                self._show(i)
                for i in self._book.machines.by_id.values()
                if journal_id in (None, i.journal_id)
                and i.launched_wall_s <= now_s - lag_s
                and (i.ended_wall_s is None or i.ended_wall_s > now_s - LISTED_AFTER_END_S)
            ]

    def terminate(self, instance_id: str) -> None:
        with self._book.lock:
            instance = self._book.machines.by_id.get(instance_id)
            if instance is not None and instance.live and instance.ending is None:
                self._end(instance)

    def quote(self, offer: Offer) -> Offer:
        with self._book.lock:
            found = self._offered(offer)
            now_s = self._book.clock.now_s()
            step = self._book.market.step_at(found, self._book.t_s(now_s))
            if step.capacity == 0:
                raise CapacityError(f"{found.key} is not offered at present", code="Unsupported")
            return found.offer(usd_per_hour=step.usd_per_hour, as_of=_iso(now_s))

    def offers(self) -> list[Offer]:
        now_s = self._book.clock.now_s()
        return [
            offer.offer(
                usd_per_hour=self._book.market.step_at(offer, self._book.t_s(now_s)).usd_per_hour,
                as_of=_iso(now_s),
            )
            for offer in self._book.market.offers
        ]

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> list[PricePoint]:
        found = self._offered(offer)
        origin_s = self._book.market_clock.origin_s
        first = self._book.market.step_at(found, from_s - origin_s)
        steps = [
            first,
            *self._book.market.steps_between(found, max(from_s - origin_s, first.t_s), to_s - origin_s),
        ]
        points: list[PricePoint] = []
        for step in steps:  # a step that changes capacity alone is no price
            if not points or points[-1].usd_per_hour != step.usd_per_hour:
                points.append(PricePoint(from_s=origin_s + step.t_s, usd_per_hour=step.usd_per_hour))
        return points

    # ------------------------------------------------------------ small things

    def _offered(self, offer: Offer) -> MarketOffer:
        found = self._book.market.find(replace(offer, cloud="local").key)
        if found is None:
            raise CapacityError(f"{offer.key} is not offered here", code="Unsupported")
        return found

    def _show(self, instance: Instance) -> Machine:
        book = self._book
        at_s = instance.ended_s
        if at_s is None:
            at_s = book.market_clock.market_s(book.clock.now_s())
        step = book.market.step_at(book.offer_of(instance), at_s - book.market_clock.origin_s)
        return instance.machine(step.usd_per_hour)


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
