"""The cloud itself: what its API does, and the clockwork that ages market and machines.

Everything that happens is a record in the log first and an effect second, so the state after any
crash is what the log says. One lock guards all; effects that take time run outside of it.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arylcloud.core.clock import Clock, MarketClock
from arylcloud.core.codec import encode
from arylcloud.core.errors import ArylError, CapacityError, CloudError, OtherCloudError
from arylcloud.core.offer import Market as MarketKind
from arylcloud.core.offer import Offer
from arylcloud.core.ports import EndCause, Machine, MachineSpec, PricePoint
from arylcloud.providers.local import processes
from arylcloud.providers.local.log import CloudLog
from arylcloud.providers.local.machines import Instance, Machines
from arylcloud.providers.local.market import Market, MarketOffer

log = logging.getLogger("arylcloud.local")

LISTED_AFTER_END_S = 3600.0
"""Wall seconds for which an ended machine is listed (the port asks for 600)."""
TERMINATE_GRACE_S = 0.5
"""Wall seconds between SIGTERM and SIGKILL when a machine is terminated on request."""
USER_DATA_LIMIT = 16 * 1024

Bind = Callable[[str, str | None, int | None], tuple[str, int]]
"""``bind(instance_id, address, port)`` → address and port at which its metadata is served."""


class Cloud:
    def __init__(
        self,
        *,
        folder: Path,
        market: Market,
        market_clock: MarketClock,
        market_id: dict[str, str],
        clock: Clock,
        cloud_log: CloudLog,
        bind: Bind,
        unbind: Callable[[str], None],
    ) -> None:
        self.market = market
        self.market_clock = market_clock
        self.market_id = market_id
        """``market`` (name), ``setting`` and ``digest`` of its file."""
        self._folder = folder
        self._clock = clock
        self._log = cloud_log
        self._bind = bind
        self._unbind = unbind
        self._machines = Machines.replay(cloud_log)
        self._lock = threading.RLock()
        self._gates: dict[str, processes.Gate] = {}
        self._enders: set[str] = set()

    # ------------------------------------------------------------ the API

    def create(self, spec: MachineSpec, python: str) -> Machine:
        """See ``Provider.create``. The machine exists, and is billed, once its record is on disk."""
        with self._lock:
            known = self._machines.by_token.get(spec.token)
            if known is not None:
                instance = self._machines.by_id[known]
                if instance.offer_key != spec.offer.key:
                    raise OtherCloudError(
                        f"token {spec.token} was used for {instance.offer_key} before",
                        code="IdempotentParameterMismatch",
                    )
                return self._show(instance)
            now_s = self._clock.now_s()
            offer = self._offered(spec.offer)
            step = self.market.step_at(offer, self._t_s(now_s))
            if len(self._machines.live(offer.key)) >= step.capacity:
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
            if self._machines.live(offer.key):
                self._record_prices(offer, now_s)
            instance_id = f"i-{secrets.token_hex(8)}"
            try:
                self._furnish(instance_id, spec, python, offer, step.usd_per_hour, now_s)
            except (OSError, ArylError) as error:
                self._unbind(instance_id)
                shutil.rmtree(self._machine_folder(instance_id), ignore_errors=True)
                raise OtherCloudError(f"no machine could be made: {error}", code="InternalError") from error
            return self._show(self._machines.by_id[instance_id])

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
        folder = self._machine_folder(instance_id)
        folder.mkdir(parents=True, mode=0o700)
        (folder / processes.USER_DATA).write_text(spec.user_data, encoding="utf-8")
        address, port = self._bind(instance_id, None, None)
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
            launched_s=self.market_clock.market_s(now_s),
            launched_wall_s=now_s,
            launch_usd_per_hour=usd_per_hour,
            max_usd_per_hour=spec.max_usd_per_hour,
            until_s=spec.until_s,
            address=address,
            metadata_port=port,
            python=python,
        )
        self._record("launch", now_s, instance=encode(instance))

    def list_machines(self, journal_id: str | None, *, lag_s: float = 0.0) -> list[Machine]:
        now_s = self._clock.now_s()
        with self._lock:
            return [
                self._show(i)
                for i in self._machines.by_id.values()
                if journal_id in (None, i.journal_id)
                and i.launched_wall_s <= now_s - lag_s
                and (i.ended_wall_s is None or i.ended_wall_s > now_s - LISTED_AFTER_END_S)
            ]

    def terminate(self, instance_id: str) -> None:
        with self._lock:
            instance = self._machines.by_id.get(instance_id)
            if instance is not None and instance.live and instance.ending is None:
                self._start_ending(instance, EndCause.TERMINATED, self._clock.now_s())

    def quote(self, offer: Offer) -> Offer:
        with self._lock:
            found = self._offered(offer)
            now_s = self._clock.now_s()
            step = self.market.step_at(found, self._t_s(now_s))
            if step.capacity == 0:
                raise CapacityError(f"{found.key} is not offered at present", code="Unsupported")
            return found.offer(usd_per_hour=step.usd_per_hour, as_of=_iso(now_s))

    def offers(self) -> list[Offer]:
        now_s = self._clock.now_s()
        return [
            offer.offer(
                usd_per_hour=self.market.step_at(offer, self._t_s(now_s)).usd_per_hour, as_of=_iso(now_s)
            )
            for offer in self.market.offers
        ]

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> list[PricePoint]:
        found = self._offered(offer)
        origin_s = self.market_clock.origin_s
        first = self.market.step_at(found, from_s - origin_s)
        steps = [first, *self.market.steps_between(found, max(from_s - origin_s, first.t_s), to_s - origin_s)]
        points: list[PricePoint] = []
        for step in steps:  # a step that changes capacity alone is no price
            if not points or points[-1].usd_per_hour != step.usd_per_hour:
                points.append(PricePoint(from_s=origin_s + step.t_s, usd_per_hour=step.usd_per_hour))
        return points

    # ------------------------------------------------------------ what the daemon asks

    def instance(self, instance_id: str) -> Instance | None:
        with self._lock:
            return self._machines.by_id.get(instance_id)

    @property
    def busy(self) -> bool:
        with self._lock:
            return bool(self._machines.live())

    def rebind(self) -> None:
        """After a restart: serve the metadata of living machines where they expect it."""
        with self._lock:
            for instance in self._machines.live():
                try:
                    self._bind(instance.instance_id, instance.address, instance.metadata_port)
                except CloudError as error:  # it runs on, without notices
                    log.warning("metadata of %s: %s", instance.instance_id, error)

    def end_everything(self) -> None:
        """Take every machine at once: the cloud's folder is gone, nobody can ever account for them."""
        for instance in self._machines.live():
            processes.end_all(instance.instance_id, _leader(instance), self._clock, grace_s=0.0)

    def tick(self) -> None:
        """Let everything happen that is due now. Cheap when nothing is."""
        with self._lock:
            now_s = self._clock.now_s()
            live = self._machines.live()
            for key in sorted({instance.offer_key for instance in live}):
                offer = self.market.find(key)
                assert offer is not None  # the market is the one that they were launched on
                self._age(offer, now_s)
            for instance in self._machines.live():
                self._age_machine(instance, now_s)

    # ------------------------------------------------------------ ageing

    def _age(self, offer: MarketOffer, now_s: float) -> None:
        t_s = self._t_s(now_s)
        self._record_prices(offer, now_s)
        if offer.market is not MarketKind.SPOT:
            return
        step = self.market.step_at(offer, t_s)
        for instance in self._takeable(offer):
            cap = instance.max_usd_per_hour
            if cap is not None and step.usd_per_hour > cap:
                self._interrupt(instance, self.market.notice_s, now_s)
        standing = self._takeable(offer)
        for instance in standing[max(step.capacity, 0) :]:  # oldest first: the youngest go
            self._interrupt(instance, self.market.notice_s, now_s)
        self._strike(offer, now_s)

    def _strike(self, offer: MarketOffer, now_s: float) -> None:
        """Carry out the scripted interruptions that are due, each once for ever."""
        t_s = self._t_s(now_s)
        loop_s = self.market.loop_s
        since_s = -1.0 if loop_s is None else max(-1.0, t_s - loop_s)
        oldest_s = min((i.launched_s for i in self._machines.live(offer.key)), default=0.0)
        for script, item in self.market.interruptions_between(offer, since_s, t_s):
            due_s = self.market_clock.origin_s + item.t_s
            if script in self._machines.struck or (item.min_age_s is None and due_s < oldest_s):
                continue
            standing = self._takeable(offer)
            if item.min_age_s is None:
                standing = [i for i in standing if i.launched_s <= due_s]
            else:
                standing = [i for i in standing if now_s - i.launched_wall_s >= (item.min_age_s or 0.0)]
                if not standing:
                    continue  # it waits
            victim = standing[-1] if standing else None
            self._record("struck", now_s, script=script, instance_id=victim and victim.instance_id)
            if victim is not None:
                self._interrupt(victim, item.notice_s, now_s)

    def _takeable(self, offer: MarketOffer) -> list[Instance]:
        return [
            i for i in self._machines.live(offer.key) if i.ending is None and i.notice_acts_wall_s is None
        ]

    def _interrupt(self, instance: Instance, notice_s: float, now_s: float) -> None:
        if notice_s <= 0:
            self._start_ending(instance, EndCause.INTERRUPTED, now_s)
        else:
            self._record("notice", now_s, instance_id=instance.instance_id, acts_at_s=now_s + notice_s)

    def _age_machine(self, instance: Instance, now_s: float) -> None:
        if instance.ending is not None:
            self._end_in_background(instance)
        elif instance.notice_acts_wall_s is not None and now_s >= instance.notice_acts_wall_s:
            self._start_ending(instance, EndCause.INTERRUPTED, now_s)
        elif now_s >= instance.until_s + self.market.until_grace_s:
            self._start_ending(instance, EndCause.SELF, now_s)
        elif instance.pid is None:
            if now_s >= instance.launched_wall_s + self.market.boot_s:
                self._boot(instance, now_s)
        elif not self._runs(instance):
            folder = self._machine_folder(instance.instance_id)
            if not processes.was_started(folder):
                self._boot(instance, now_s)  # a daemon died before it opened the gate
                return
            itself = processes.self_ended_wall_s(folder) is not None
            self._start_ending(instance, EndCause.SELF if itself else EndCause.UNKNOWN, now_s)

    def _runs(self, instance: Instance) -> bool:
        gate = self._gates.get(instance.instance_id)
        if gate is not None:
            return gate.child.poll() is None
        leader = _leader(instance)
        return leader is not None and leader.alive

    def _boot(self, instance: Instance, now_s: float) -> None:
        folder = self._machine_folder(instance.instance_id)
        try:
            gate = processes.prepare(folder, self.console(instance.instance_id), self._environ(instance))
        except OSError as error:
            log.error("%s cannot boot: %s", instance.instance_id, error)  # noqa: TRY400 - no bug of ours
            self._start_ending(instance, EndCause.UNKNOWN, now_s)
            return
        self._record(
            "boot",
            now_s,
            instance_id=instance.instance_id,
            pid=gate.leader.pid,
            identity=gate.leader.identity,
        )
        self._gates[instance.instance_id] = gate
        gate.open()

    def _environ(self, instance: Instance) -> dict[str, str]:
        folder = self._machine_folder(instance.instance_id)
        path = [
            *processes.image_path(instance.python, self._folder),
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
            "/usr/sbin",
            "/sbin",
        ]
        return {
            "HOME": str(folder),
            "PATH": os.pathsep.join(path),
            "LANG": "C.UTF-8",
            "ARYL_METADATA_URL": f"http://{instance.address}:{instance.metadata_port}",
            processes.ENV_INSTANCE: instance.instance_id,
        }

    # ------------------------------------------------------------ ending

    def _start_ending(self, instance: Instance, cause: EndCause, now_s: float) -> None:
        self._record("ending", now_s, instance_id=instance.instance_id, cause=cause.value)
        self._end_in_background(self._machines.by_id[instance.instance_id])

    def _end_in_background(self, instance: Instance) -> None:
        if instance.instance_id in self._enders:
            return
        self._enders.add(instance.instance_id)
        threading.Thread(target=self._end, args=(instance,), name=f"end-{instance.instance_id}").start()

    def _end(self, instance: Instance) -> None:
        """Processes, then disk and address, then the record: GONE means that nothing is left."""
        try:
            assert instance.ending is not None
            grace_s = TERMINATE_GRACE_S if instance.ending is EndCause.TERMINATED else 0.0
            if not processes.end_all(instance.instance_id, _leader(instance), self._clock, grace_s=grace_s):
                log.warning("%s: some processes cannot be ended; trying on", instance.instance_id)
                return
            folder = self._machine_folder(instance.instance_id)
            ended_wall_s = self._clock.now_s()
            if instance.ending is EndCause.SELF:  # while no daemon looked, perhaps long ago
                ended_wall_s = min(processes.self_ended_wall_s(folder) or ended_wall_s, ended_wall_s)
                ended_wall_s = max(ended_wall_s, instance.launched_wall_s)
            shutil.rmtree(folder, ignore_errors=True)
            with self._lock:
                self._unbind(instance.instance_id)
                gate = self._gates.pop(instance.instance_id, None)
                if gate is not None:
                    gate.child.wait()
                offer = self.market.find(instance.offer_key)
                if offer is not None:
                    self._record_prices(offer, ended_wall_s)
                self._record(
                    "end",
                    self._clock.now_s(),
                    instance_id=instance.instance_id,
                    cause=instance.ending.value,
                    ended_s=self.market_clock.market_s(ended_wall_s),
                )
        finally:
            with self._lock:
                self._enders.discard(instance.instance_id)

    # ------------------------------------------------------------ small things

    def console(self, instance_id: str) -> Path:
        """What the machine's processes wrote; kept after its end."""
        folder = self._folder / "consoles"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / f"{instance_id}.log"

    def _machine_folder(self, instance_id: str) -> Path:
        return self._folder / "machines" / instance_id

    def _t_s(self, wall_s: float) -> float:
        return self.market_clock.market_s(wall_s) - self.market_clock.origin_s

    def _offered(self, offer: Offer) -> MarketOffer:
        found = self.market.find(replace(offer, cloud="local").key)
        if found is None:
            raise CapacityError(f"{offer.key} is not offered here", code="Unsupported")
        return found

    def _show(self, instance: Instance) -> Machine:
        at_s = (
            instance.ended_s
            if instance.ended_s is not None
            else self.market_clock.market_s(self._clock.now_s())
        )
        offer = self.market.find(instance.offer_key)
        price = (
            instance.launch_usd_per_hour
            if offer is None
            else self.market.step_at(offer, at_s - self.market_clock.origin_s).usd_per_hour
        )
        return instance.machine(price)

    def _record_prices(self, offer: MarketOffer, wall_s: float) -> None:
        """Log the offer's price steps up to now at their exact moments."""
        since_s = self._machines.priced_to_t_s.get(offer.key, 0.0)
        for step in self.market.steps_between(offer, since_s, self._t_s(wall_s)):
            self._record(
                "price",
                self._clock.now_s(),
                offer=offer.key,
                t_s=step.t_s,
                from_s=self.market_clock.origin_s + step.t_s,
                usd_per_hour=step.usd_per_hour,
            )

    def _record(self, kind: str, wall_s: float, **body: Any) -> None:
        record = self._log.append(kind, wall_s=wall_s, market_s=self.market_clock.market_s(wall_s), **body)
        self._machines.apply(record)


def _leader(instance: Instance) -> processes.Leader | None:
    if instance.pid is None or instance.identity is None:
        return None
    return processes.Leader(pid=instance.pid, identity=instance.identity)


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
