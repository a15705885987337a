"""What the cloud's API and its clockwork share: the market, the log, the machines, one lock.

Everything that happens is a record in the log first and an effect second, so the state after any
crash is what the log says. Whoever reads or writes here holds ``lock``; effects that take time run
outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arylcloud.core.clock import Clock, MarketClock
from arylcloud.providers.local.log import CloudLog
from arylcloud.providers.local.machines import Instance, Machines
from arylcloud.providers.local.market import Market, MarketOffer

Bind = Callable[[str, str | None, int | None], tuple[str, int]]
"""``bind(instance_id, address, port)`` → address and port at which its metadata is served."""


class Book:
    def __init__(
        self,
        *,
        folder: Path,
        market: Market,
        market_id: dict[str, str],
        market_clock: MarketClock,
        clock: Clock,
        cloud_log: CloudLog,
        bind: Bind,
        unbind: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.market = market
        self.market_id = market_id
        """``market`` (name), ``setting`` and ``digest`` of its file."""
        self.market_clock = market_clock
        self.clock = clock
        self.bind = bind
        self.unbind = unbind
        self.machines = Machines.replay(cloud_log)
        self.lock = threading.RLock()
        self._log = cloud_log

    def record(self, kind: str, wall_s: float, **body: Any) -> None:
        """Make it true. Raises LocalStateError (full disk): then it has not happened."""
        record = self._log.append(kind, wall_s=wall_s, market_s=self.market_clock.market_s(wall_s), **body)
        self.machines.apply(record)

    def record_prices(self, offer: MarketOffer, to_wall_s: float) -> None:
        """Log the offer's price steps up to then at their exact moments."""
        since_s = self.machines.priced_to_t_s.get(offer.key, 0.0)
        for step in self.market.steps_between(offer, since_s, self.t_s(to_wall_s)):
            self.record(
                "price",
                self.clock.now_s(),
                offer=offer.key,
                t_s=step.t_s,
                from_s=self.market_clock.origin_s + step.t_s,
                usd_per_hour=step.usd_per_hour,
            )

    def renew(self, instance_id: str, until_s: float) -> None:
        """A machine says how long its lease lasts now. Raises LocalStateError."""
        with self.lock:
            instance = self.machines.by_id.get(instance_id)
            if instance is not None and instance.live and instance.ending is None:
                self.record("renewed", self.clock.now_s(), instance_id=instance_id, until_s=until_s)

    def t_s(self, wall_s: float) -> float:
        """Market seconds since the market's origin."""
        return self.market_clock.market_s(wall_s) - self.market_clock.origin_s

    def offer_of(self, instance: Instance) -> MarketOffer:
        offer = self.market.find(instance.offer_key)
        assert offer is not None  # the market is the one that it was launched on
        return offer

    def home(self, instance_id: str) -> Path:
        """The machine's own directory: its disk."""
        return self.folder / "machines" / instance_id

    def console(self, instance_id: str) -> Path:
        """What the machine's processes wrote; kept after its end."""
        folder = self.folder / "consoles"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / f"{instance_id}.log"
