"""The cloud's clockwork: market and machines grow older, and what is due happens.

``tick`` decides and records; processes are started under the lock (that is quick) and ended by a
thread each (that takes time).
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path

from arylcloud.core.errors import CloudError, LocalStateError
from arylcloud.core.offer import Market as MarketKind
from arylcloud.core.ports import EndCause
from arylcloud.providers.local import image, processes
from arylcloud.providers.local.book import Book
from arylcloud.providers.local.machines import Instance
from arylcloud.providers.local.market import MarketOffer
from arylcloud.providers.local.network import Network

log = logging.getLogger("arylcloud.local")


class Clockwork:
    def __init__(self, book: Book, network: Network) -> None:
        self._book = book
        self._network = network
        self._gates: dict[str, processes.Gate] = {}
        self._enders: set[str] = set()
        self._images: dict[str, image.Image] = {}

    @property
    def busy(self) -> bool:
        with self._book.lock:
            return bool(self._book.machines.live())

    def rebind(self) -> None:
        """After a restart: serve the metadata of living machines where they expect it."""
        with self._book.lock:
            for instance in self._book.machines.live():
                try:
                    self._book.bind(instance.instance_id, instance.address, instance.metadata_port)
                except CloudError as error:  # it runs on, without notices
                    log.warning("metadata of %s: %s", instance.instance_id, error)

    def end_everything(self) -> None:
        """Take every machine at once: the cloud's folder is gone, nobody can ever account for them."""
        for instance in self._book.machines.live():
            processes.end_all(instance.instance_id, _leader(instance), self._book.clock, grace_s=0.0)

    def tick(self) -> None:
        """Let everything happen that is due now. Cheap when nothing is."""
        with self._book.lock:
            now_s = self._book.clock.now_s()
            live = self._book.machines.live()
            for key in sorted({instance.offer_key for instance in live}):
                self._age(self._book.offer_of(next(i for i in live if i.offer_key == key)), now_s)
            for instance in self._book.machines.live():
                self._age_machine(instance, now_s)

    # ------------------------------------------------------------ ageing

    def _age(self, offer: MarketOffer, now_s: float) -> None:
        t_s = self._book.t_s(now_s)
        self._book.record_prices(offer, now_s)
        if offer.market is not MarketKind.SPOT:
            return
        step = self._book.market.step_at(offer, t_s)
        for instance in self._takeable(offer):
            cap = instance.max_usd_per_hour
            if cap is not None and step.usd_per_hour > cap:
                self._interrupt(instance, self._book.market.notice_s, now_s)
        standing = self._takeable(offer)
        for instance in standing[max(step.capacity, 0) :]:  # oldest first: the youngest go
            self._interrupt(instance, self._book.market.notice_s, now_s)
        self._strike(offer, now_s)

    def _strike(self, offer: MarketOffer, now_s: float) -> None:
        """Carry out the scripted interruptions that are due, each once for ever."""
        t_s = self._book.t_s(now_s)
        loop_s = self._book.market.loop_s
        since_s = -1.0 if loop_s is None else max(-1.0, t_s - loop_s)
        oldest_s = min((i.launched_s for i in self._book.machines.live(offer.key)), default=0.0)
        for script, item in self._book.market.interruptions_between(offer, since_s, t_s):
            due_s = self._book.market_clock.origin_s + item.t_s
            if script in self._book.machines.struck or (item.min_age_s is None and due_s < oldest_s):
                continue
            standing = self._takeable(offer)
            if item.min_age_s is None:
                standing = [i for i in standing if i.launched_s <= due_s]
            else:
                standing = [i for i in standing if now_s - i.launched_wall_s >= (item.min_age_s or 0.0)]
                if not standing:
                    continue  # it waits
            victim = standing[-1] if standing else None
            self._book.record("struck", now_s, script=script, instance_id=victim and victim.instance_id)
            if victim is not None:
                self._interrupt(victim, item.notice_s, now_s)

    def _takeable(self, offer: MarketOffer) -> list[Instance]:
        return [
            i
            for i in self._book.machines.live(offer.key)
            if i.ending is None and i.notice_acts_wall_s is None
        ]

    def _interrupt(self, instance: Instance, notice_s: float, now_s: float) -> None:
        if notice_s <= 0:
            self._start_ending(instance, EndCause.INTERRUPTED, now_s)
        else:
            self._book.record("notice", now_s, instance_id=instance.instance_id, acts_at_s=now_s + notice_s)

    def _age_machine(self, instance: Instance, now_s: float) -> None:
        if instance.ending is not None:
            self._end_in_background(instance)
        elif instance.notice_acts_wall_s is not None and now_s >= instance.notice_acts_wall_s:
            self._start_ending(instance, EndCause.INTERRUPTED, now_s)
        elif now_s >= instance.until_s + self._book.market.until_grace_s:
            self._start_ending(instance, EndCause.SELF, now_s)
        elif instance.pid is None:
            if now_s >= instance.launched_wall_s + self._book.market.boot_s:
                self._boot(instance, now_s)
        elif not self._runs(instance):
            folder = self._book.home(instance.instance_id)
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
        folder = self._book.home(instance.instance_id)
        try:
            gate = processes.prepare(
                folder,
                self._book.console(instance.instance_id),
                self._environ(instance),
                lambda argv: self._network.wrap(instance.instance_id, instance.address, argv, folder),
            )
            self._network.connect(instance.instance_id, instance.address, gate.child.pid)
        except (OSError, LocalStateError) as error:
            log.error("%s cannot boot: %s", instance.instance_id, error)  # noqa: TRY400 - no bug of ours
            self._start_ending(instance, EndCause.UNKNOWN, now_s)
            return
        self._book.record(
            "boot",
            now_s,
            instance_id=instance.instance_id,
            pid=gate.leader.pid,
            identity=gate.leader.identity,
        )
        self._gates[instance.instance_id] = gate
        gate.open()

    def _environ(self, instance: Instance) -> dict[str, str]:
        folder = self._book.home(instance.instance_id)
        if instance.python not in self._images:
            self._images[instance.python] = image.ask(instance.python)
        own = image.lay(self._images[instance.python], folder)
        path = [
            str(own / "bin"),
            str(Path(instance.python).parent),  # commands that came with packages, as torchrun does
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
            "/usr/sbin",
            "/sbin",
        ]
        return {
            "HOME": str(folder),
            "PATH": os.pathsep.join(path),
            "VIRTUAL_ENV": str(own),
            "LANG": "C.UTF-8",
            **self._network.environ(instance.address, instance.metadata_port),
            processes.ENV_INSTANCE: instance.instance_id,
        }

    # ------------------------------------------------------------ ending

    def terminate(self, instance: Instance) -> None:
        """Its customer wants its end."""
        with self._book.lock:
            self._start_ending(instance, EndCause.TERMINATED, self._book.clock.now_s())

    def _start_ending(self, instance: Instance, cause: EndCause, now_s: float) -> None:
        self._book.record("ending", now_s, instance_id=instance.instance_id, cause=cause.value)
        self._end_in_background(self._book.machines.by_id[instance.instance_id])

    def _end_in_background(self, instance: Instance) -> None:
        if instance.instance_id in self._enders:
            return
        self._enders.add(instance.instance_id)
        threading.Thread(target=self._end, args=(instance,), name=f"end-{instance.instance_id}").start()

    def _end(self, instance: Instance) -> None:
        """Processes, then disk and address, then the record: GONE means that nothing is left."""
        try:
            assert instance.ending is not None
            ordered = instance.ending is EndCause.TERMINATED
            grace_s = self._book.market.terminate_grace_s if ordered else 0.0
            if not processes.end_all(
                instance.instance_id, _leader(instance), self._book.clock, grace_s=grace_s
            ):
                log.warning("%s: some processes cannot be ended; trying on", instance.instance_id)
                return
            folder = self._book.home(instance.instance_id)
            ended_wall_s = self._book.clock.now_s()
            if instance.ending is EndCause.SELF:  # while no daemon looked, perhaps long ago
                ended_wall_s = min(processes.self_ended_wall_s(folder) or ended_wall_s, ended_wall_s)
                ended_wall_s = max(ended_wall_s, instance.launched_wall_s)
            shutil.rmtree(folder, ignore_errors=True)
            with self._book.lock:
                self._book.unbind(instance.instance_id)
                gate = self._gates.pop(instance.instance_id, None)
                if gate is not None:
                    gate.child.wait()
                self._book.record_prices(self._book.offer_of(instance), ended_wall_s)
                self._book.record(
                    "end",
                    self._book.clock.now_s(),
                    instance_id=instance.instance_id,
                    cause=instance.ending.value,
                    ended_s=self._book.market_clock.market_s(ended_wall_s),
                )
        finally:
            with self._book.lock:
                self._enders.discard(instance.instance_id)


def _leader(instance: Instance) -> processes.Leader | None:
    if instance.pid is None or instance.identity is None:
        return None
    return processes.Leader(pid=instance.pid, identity=instance.identity)
