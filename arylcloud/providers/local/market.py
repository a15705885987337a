"""A market: what is offered where, and how price and capacity go with time. Values and pure functions.

Times ``t_s`` are market seconds since the market's origin (the cloud's first start in its folder).
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Literal

from arylcloud.core.offer import Market as MarketKind
from arylcloud.core.offer import Offer

FaultKind = Literal[
    "delay", "throttle", "capacity", "quota", "access", "other", "error_after", "hang_after", "list_lag"
]
FaultOp = Literal["create", "list", "terminate", "quote", "price_history", "offers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From ``t_s`` on, until the next step."""

    t_s: float
    usd_per_hour: float
    capacity: int
    """How many machines of this offer may run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A scripted one: it strikes the offer's youngest machine."""

    t_s: float
    """When the notice is given; with ``notice_s`` 0, when the machine is taken."""
    notice_s: float
    """WALL seconds between notice and end; 0 = no notice at all."""
    min_age_s: float | None = None
    """Wall seconds: from ``t_s`` on, wait until a machine of this offer has run for so long. None =
    strike what runs at ``t_s``, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOffer:
    region: str
    zone: str | None
    instance_type: str
    gpu: str | None
    gpu_count: int | None
    gpu_mem_gib: float | None
    vcpus: float | None
    mem_gib: float | None
    market: MarketKind
    steps: tuple[Step, ...]
    """In order of time, the first at 0."""
    interruptions: tuple[Interruption, ...]
    source: str

    @property
    def key(self) -> str:
        """The same as ``Offer.key`` of the offer that is sold."""
        return self.offer(usd_per_hour=None, as_of=None).key

    def offer(self, *, usd_per_hour: float | None, as_of: str | None) -> Offer:
        return Offer(
            cloud="local",
            region=self.region,
            zone=self.zone,
            instance_type=self.instance_type,
            gpu=self.gpu,
            gpu_count=self.gpu_count,
            gpu_mem_gib=self.gpu_mem_gib,
            vcpus=self.vcpus,
            mem_gib=self.mem_gib,
            market=self.market,
            usd_per_hour=usd_per_hour,
            as_of=as_of,
            source=self.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, for tests: the calls number ``skip`` … ``skip + times`` of ``op``, counted
    since the daemon started, are hit."""

    op: FaultOp
    kind: FaultKind
    skip: int = 0
    times: int | None = None
    """None = all that follow."""
    seconds: float = 0.0
    """Of ``delay``, of ``hang_after``, and of ``list_lag`` (younger machines are not listed)."""

    def hits(self, call: int) -> bool:
        """``call`` counts from 0."""
        return self.skip <= call and (self.times is None or call < self.skip + self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    name: str
    time_scale: float
    """Market seconds per wall second."""
    boot_s: float
    """Wall seconds from create to the first process of the machine."""
    notice_s: float
    """Wall seconds of notice before an interruption for want of capacity, or for a price above the cap."""
    minimum_s: float
    """Shortest time that is billed, market seconds."""
    until_grace_s: float
    """Wall seconds after a machine's ``until`` at which the cloud ends it."""
    terminate_grace_s: float
    """Wall seconds between SIGTERM and SIGKILL when a machine is terminated on request."""
    loop_s: float | None
    """Steps and scripted interruptions repeat with this period; None = the last step holds."""
    offers: tuple[MarketOffer, ...]
    faults: tuple[Fault, ...]

    def find(self, key: str) -> MarketOffer | None:
        return next((offer for offer in self.offers if offer.key == key), None)

    def step_at(self, offer: MarketOffer, t_s: float) -> Step:
        """The step in force at ``t_s``; before the origin, the first."""
        cycle, within = self._split(t_s)
        index = bisect.bisect_right(offer.steps, within, key=lambda step: step.t_s) - 1
        step = offer.steps[max(index, 0)]
        return Step(
            t_s=step.t_s + cycle * (self.loop_s or 0.0),
            usd_per_hour=step.usd_per_hour,
            capacity=step.capacity,
        )

    def steps_between(self, offer: MarketOffer, after_s: float, to_s: float) -> tuple[Step, ...]:
        """Steps that begin in (after_s, to_s], in order."""
        found: list[Step] = []
        for cycle in self._cycles(after_s, to_s):
            shift = cycle * (self.loop_s or 0.0)
            found.extend(
                Step(t_s=step.t_s + shift, usd_per_hour=step.usd_per_hour, capacity=step.capacity)
                for step in offer.steps
                if after_s < step.t_s + shift <= to_s
            )
        return tuple(found)

    def interruptions_between(
        self, offer: MarketOffer, after_s: float, to_s: float
    ) -> tuple[tuple[str, Interruption], ...]:
        """Scripted ones due in (after_s, to_s], each with an identity that no other ever has."""
        found: list[tuple[str, Interruption]] = []
        for cycle in self._cycles(after_s, to_s):
            shift = cycle * (self.loop_s or 0.0)
            for number, item in enumerate(offer.interruptions):
                at_s = item.t_s + shift
                if after_s < at_s <= to_s:
                    due = Interruption(t_s=at_s, notice_s=item.notice_s, min_age_s=item.min_age_s)
                    found.append((f"{offer.key}#{number}@{cycle}", due))
        return tuple(sorted(found, key=lambda pair: pair[1].t_s))

    def _split(self, t_s: float) -> tuple[int, float]:
        if self.loop_s is None or t_s < 0:
            return 0, t_s
        cycle = math.floor(t_s / self.loop_s)
        return cycle, t_s - cycle * self.loop_s

    def _cycles(self, after_s: float, to_s: float) -> range:
        if self.loop_s is None:
            return range(1)
        return range(self._split(max(after_s, 0.0))[0], self._split(max(to_s, 0.0))[0] + 1)
