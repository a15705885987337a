"""A hostile cloud in memory: the ``Provider`` port on a manual clock, with everything that goes wrong.

Late landings, lagging lists, no capacity, quota, throttling, lost answers, ends that take time or do not
take, notices, losses without notice, prices that are not what was quoted. Nothing is random here: tests
and simulations say what happens when. ``alive`` and ``born`` are the truth that a launcher is judged by.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
)
from arylcloud.core.offer import Offer
from arylcloud.core.ports import (
    Billing,
    Capabilities,
    EndCause,
    Machine,
    MachineSpec,
    MachineState,
    PricePoint,
)

Trouble = Literal[
    "none", "capacity", "quota", "throttled", "access", "lost_answer", "lost_call", "capacity_and_lands"
]
"""What happens to one ``create``: ``lost_answer`` = it fails, and the machine comes all the same
(after ``landing_s``); ``lost_call`` = it fails, and nothing comes; ``capacity_and_lands`` = the cloud says
that it has none, and makes one all the same."""


@dataclass(slots=True)
class WorldMachine:
    """The truth about one machine (seconds of the world's clock)."""

    instance_id: str
    spec: MachineSpec
    price: float | None
    asked_at_s: float
    lands_at_s: float
    visible_at_s: float
    address: str
    acts_at_s: float | None = None
    """A notice is out: the cloud takes it back then."""
    stopping_until_s: float | None = None
    off: bool = False
    """It has switched itself off, and is paid for."""
    ended_s: float | None = None
    cause: EndCause | None = None
    denied: bool = False
    """Whoever asked for it was told that there was none."""

    def alive(self, now_s: float) -> bool:
        """Exists and is paid for."""
        return self.lands_at_s <= now_s and self.ended_s is None


@dataclass(slots=True)
class World:
    """One cloud. Time passes by :meth:`advance`; ``clock`` is shared with everybody."""

    clock: ManualClock
    cloud: str = "aws"
    market_clock: MarketClock = field(default_factory=MarketClock)
    notice_s: float = 20.0
    billing: Billing = field(default_factory=lambda: Billing(first_hour_interruption_free=True))
    troubles: deque[Trouble] = field(default_factory=deque)
    """For the next creates, in order; then what ``trouble_of`` says."""
    trouble_of: Callable[[MachineSpec], Trouble] = field(default=lambda _spec: "none")
    landing_s: float = 5.0
    """How late a machine lands whose create had no answer."""
    full: set[str] = field(default_factory=set)
    """Offer keys without capacity."""
    room: dict[str, int] = field(default_factory=dict)
    """By offer key: how many machines there may be at once; without an entry any number."""
    unsold: set[str] = field(default_factory=set)
    """Offer keys that it does not have at all."""
    says: dict[str, ArylError] = field(default_factory=dict)
    """By offer key: what every create of it is answered with."""
    list_lag_s: float = 0.0
    """How late a new machine is listed."""
    end_lag_s: float = 0.0
    """How long one that has ended is still listed as it was."""
    forget_s: float = math.inf
    """How long one that has ended is listed at all."""
    ahead_s: float = 0.0
    """Of this cloud's own clock: all moments that it names have it."""
    list_every_s: float = 0.0
    """What it asks of launchers."""
    lists_fail: bool = False
    lists: int = 0
    """Calls of ``list_machines``."""
    ends_fail: bool = False
    """``terminate`` raises, and nothing happens."""
    end_takes_s: float = 2.0
    price_of: Callable[[Offer], float | None] = field(default=lambda offer: offer.usd_per_hour)
    """What a created machine really costs."""
    steps: dict[str, tuple[PricePoint, ...]] = field(default_factory=dict)
    """By offer key: how its price moves (market seconds); without, it stays."""
    histories_fail: bool = False
    hidden_steps: set[float] = field(default_factory=set)
    """Moments of steps that the history does not show (yet)."""
    born: dict[str, WorldMachine] = field(default_factory=dict)
    refuse_known_tokens: bool = False
    """A repeated create meets the next trouble, too, instead of finding the first one's machine."""
    creates: int = 0
    """Calls of ``create``, refused ones included."""
    _living: dict[str, WorldMachine] = field(default_factory=dict)
    """Those that have not ended."""
    _shown: dict[str, WorldMachine] = field(default_factory=dict)
    """Those that have not been forgotten."""
    _by_token: dict[str, WorldMachine] = field(default_factory=dict)
    _of_job: dict[str, dict[str, WorldMachine]] = field(default_factory=dict)
    """Those that have not ended, again."""
    _rows: dict[str, tuple[object, Machine]] = field(default_factory=dict)
    """As they were shown last: most have not changed since."""

    # ------------------------------------------------------------ what happens

    def advance(self, seconds: float) -> None:
        self.clock.at_s += seconds
        now_s = self.clock.at_s
        for machine in tuple(self._living.values()):
            if machine.lands_at_s > now_s:
                continue
            if machine.stopping_until_s is not None and machine.stopping_until_s <= now_s:
                self._end(machine, machine.stopping_until_s, EndCause.TERMINATED)
            elif machine.acts_at_s is not None and machine.acts_at_s <= now_s:
                self._end(machine, machine.acts_at_s, EndCause.INTERRUPTED)

    def interrupt(self, instance_id: str) -> None:
        """Taken back without a word."""
        machine = self.born[instance_id]
        if machine.alive(self.clock.at_s):
            self._end(machine, self.clock.at_s, EndCause.INTERRUPTED)

    def notice(self, instance_id: str, lead_s: float) -> None:
        machine = self.born[instance_id]
        if machine.acts_at_s is None:
            machine.acts_at_s = self.clock.at_s + lead_s

    def shut_down(self, instance_id: str) -> None:
        """The machine switches itself off, and its cloud bills it on (Azure's way)."""
        self.born[instance_id].off = True

    def power_off(self, instance_id: str) -> None:
        """The machine ends itself."""
        machine = self.born[instance_id]
        if machine.alive(self.clock.at_s):
            self._end(machine, self.clock.at_s, EndCause.SELF)

    def _end(self, machine: WorldMachine, at_s: float, cause: EndCause) -> None:
        machine.ended_s, machine.cause = at_s, cause
        self._living.pop(machine.instance_id, None)
        self._of_job[machine.spec.job_id].pop(machine.instance_id, None)

    @property
    def alive(self) -> tuple[WorldMachine, ...]:
        return tuple(m for m in self._living.values() if m.alive(self.clock.at_s))

    def alive_of(self, job_id: str) -> tuple[WorldMachine, ...]:
        living = self._of_job.get(job_id)
        return tuple([m for m in living.values() if m.alive(self.clock.at_s)]) if living else ()

    @property
    def landing(self) -> bool:
        """Whether some machine is still on its way."""
        return any(m.lands_at_s > self.clock.at_s for m in self._living.values())

    # ------------------------------------------------------------ the port

    @property
    def name(self) -> str:
        return self.cloud

    def capabilities(self) -> Capabilities:
        return Capabilities(
            notice_s=self.notice_s,
            billing=self.billing,
            market_clock=self.market_clock,
            boot_s=3.0,
            list_every_s=self.list_every_s,
        )

    def quote(self, offer: Offer) -> Offer:
        if offer.key in self.unsold:
            raise CapacityError(f"{offer.key} is not sold", code="Unsupported")
        price = self._price_at(offer, self.price_of(offer), self._market_now_s())
        as_of = datetime.fromtimestamp(self.clock.at_s + self.ahead_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(offer, usd_per_hour=price, as_of=as_of, source=self.cloud)

    def create(self, spec: MachineSpec) -> Machine:
        self.creates += 1
        now_s = self.clock.at_s
        first = self._by_token.get(spec.token)
        trouble = self.troubles.popleft() if self.troubles else self.trouble_of(spec)
        if trouble == "throttled":
            raise ThrottledError("request limit exceeded", code="RequestLimitExceeded")
        if trouble == "access":
            raise AccessError("not authorised to run instances", code="UnauthorizedOperation")
        if first is not None and not (self.refuse_known_tokens and trouble in ("capacity", "quota")):
            if trouble in ("lost_answer", "lost_call") or first.lands_at_s > now_s:
                raise OtherCloudError("the answer was lost", code="RequestTimeout")
            return self._row(first)
        if (said := self.says.get(spec.offer.key)) is not None:
            raise said
        if self._no_room(spec.offer, trouble):
            raise CapacityError(f"no capacity for {spec.offer.key}", code="InsufficientInstanceCapacity")
        if trouble == "quota":
            raise QuotaError("over quota", code="MaxSpotInstanceCountExceeded")
        if trouble == "lost_call":
            raise OtherCloudError("the connection broke", code="ConnectionError")
        self._held_to_cap(spec)
        number = len(self.born) + 1
        late = trouble in ("lost_answer", "capacity_and_lands")
        lands_at_s = now_s + (self.landing_s if late else 0.0)
        machine = WorldMachine(
            instance_id=f"i-{number:04d}",
            spec=spec,
            price=self.price_of(spec.offer),
            asked_at_s=now_s,
            lands_at_s=lands_at_s,
            visible_at_s=lands_at_s + self.list_lag_s,
            address=f"10.0.0.{number}",
            denied=trouble == "capacity_and_lands",
        )
        for known in (self.born, self._living, self._shown):
            known[machine.instance_id] = machine
        self._of_job.setdefault(spec.job_id, {})[machine.instance_id] = machine
        self._by_token.setdefault(spec.token, machine)
        if trouble == "lost_answer":
            raise OtherCloudError("the answer was lost", code="RequestTimeout")
        if trouble == "capacity_and_lands":
            raise CapacityError(f"no capacity for {spec.offer.key}", code="InsufficientInstanceCapacity")
        return self._row(machine)

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        self.lists += 1
        if self.lists_fail:
            raise ThrottledError("describe: request limit exceeded")
        now_s = self.clock.at_s
        regions = {offer.region for offer in offers}
        forgotten = [
            i for i, m in self._shown.items() if m.ended_s is not None and now_s > m.ended_s + self.forget_s
        ]
        for instance_id in forgotten:
            del self._shown[instance_id]
            self._rows.pop(instance_id, None)
        return tuple(
            self._row(m)
            for m in self._shown.values()
            if m.visible_at_s <= now_s
            and journal_id in (None, m.spec.journal_id)
            and (not regions or m.spec.offer.region in regions)
        )

    def terminate(self, machine: Machine) -> None:
        if self.ends_fail:
            raise OtherCloudError("terminate: internal error")
        found = self.born.get(machine.instance_id)
        if found is not None and found.ended_s is None and found.stopping_until_s is None:
            found.stopping_until_s = self.clock.at_s + self.end_takes_s

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        if self.histories_fail:
            raise ThrottledError("price history: request limit exceeded")
        if offer.key in self.steps:
            known_s = min(to_s, self._market_now_s())
            shown = [
                p for p in self.steps[offer.key] if p.from_s not in self.hidden_steps and p.from_s <= known_s
            ]
            before = [p.from_s for p in shown if p.from_s <= from_s]
            return tuple(p for p in shown if not before or p.from_s >= before[-1])
        price = self.price_of(offer)
        return () if price is None or to_s < from_s else (PricePoint(from_s=from_s, usd_per_hour=price),)

    def _no_room(self, offer: Offer, trouble: str | None) -> bool:
        there = sum(m.spec.offer.key == offer.key for m in self._living.values())
        full = offer.key in self.full or offer.key in self.unsold
        return trouble == "capacity" or full or there >= self.room.get(offer.key, there + 1)

    def _held_to_cap(self, spec: MachineSpec) -> None:
        """By the price that it names; what it charges in the end (``price_of``) may be another."""
        price = self._price_at(spec.offer, spec.offer.usd_per_hour, self._market_now_s())
        if price is not None and spec.max_usd_per_hour is not None and price > spec.max_usd_per_hour:
            raise CapacityError(f"{spec.offer.key} costs ${price:.4f}/h", code="SpotMaxPriceTooLow")

    def _price_now(self, machine: WorldMachine) -> float | None:
        return self._price_at(machine.spec.offer, machine.price, self._market_now_s())

    def _market_now_s(self) -> float:
        return self.market_clock.market_s(self.clock.at_s + self.ahead_s)

    def _price_at(self, offer: Offer, else_usd: float | None, at_s: float) -> float | None:
        if not self.steps:
            return else_usd
        for point in reversed(self.steps.get(offer.key, ())):
            if point.from_s <= at_s:
                return point.usd_per_hour
        return else_usd

    def _row(self, machine: WorldMachine) -> Machine:
        seen_s = machine.ended_s
        if seen_s is not None and self.clock.at_s < seen_s + self.end_lag_s:
            seen_s = None
        if seen_s is not None:
            state = MachineState.GONE
        elif machine.stopping_until_s is not None or machine.off:
            state = MachineState.STOPPING
        else:
            state = MachineState.RUNNING
        price = self._price_now(machine)
        looks = (state, price, seen_s, self.ahead_s, self.market_clock, machine.cause, machine.lands_at_s)
        known = self._rows.get(machine.instance_id)
        if known is None or known[0] != looks:
            known = self._rows[machine.instance_id] = (looks, self._shown_as(machine, state, price, seen_s))
        return known[1]

    def _shown_as(
        self, machine: WorldMachine, state: MachineState, usd_per_hour: float | None, seen_s: float | None
    ) -> Machine:
        spec, market = machine.spec, self.market_clock
        return Machine(
            instance_id=machine.instance_id,
            token=spec.token,
            journal_id=spec.journal_id,
            job_id=spec.job_id,
            lease_id=spec.lease_id,
            cloud=self.cloud,
            region=spec.offer.region,
            zone=spec.offer.zone,
            instance_type=spec.offer.instance_type,
            market=spec.offer.market.value,
            state=state,
            usd_per_hour=usd_per_hour,
            launched_s=market.market_s(machine.lands_at_s + self.ahead_s),
            ended_s=None if seen_s is None else market.market_s(seen_s + self.ahead_s),
            end_cause=None if seen_s is None else machine.cause,
            address=machine.address,
            until_s=spec.until_s,
        )
