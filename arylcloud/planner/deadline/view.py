"""What a deadline policy sees and what it may answer, as arrays: row i is one job, live or replayed.

A *machine* (or a gang of them, all or nothing) is one number: −1 none, 0…Z−1 spot in that zone, Z…Z+R−1 on
demand in region number − Z. Capacity is known only by having, trying or probing: ``Sightings``. Hours and
USD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.lives import Lives
from arylcloud.planner.deadline.sightings import Sightings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NONE: Final = -1
STAY: Final = 0
"""Go on with what runs; without a machine: wait for the next look."""
START: Final = 1
"""Ask for ``target``. Beside a running machine: make-before-break, the old one works until it is up."""
SWITCH: Final = 2
"""Ask for ``target`` and end what runs as soon as it is given: the start-up is lost time."""
STOP: Final = 3
"""End what runs and wait."""
PROBE: Final = 4
"""Ask for zone ``target`` and give it back at once: pays ``probe_h``, and one knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What does not change while the job runs: Z zones in R regions."""

    region: NDArray[np.intp]
    """Of each zone, (Z,)."""
    egress_usd: Floats
    """Of one checkpoint from region to region, (R, R); 0 on the diagonal."""
    startup_h: float
    """From asking to working: boot, set-up, restore and what was not saved; a high quantile."""
    tick_h: float
    """From one look to the next."""
    try_h: float = 1.5 / 60
    """What a refused attempt takes while nothing runs (it costs nothing while something does)."""
    probe_h: float = 1 / 60
    """Of spot, that a probe is billed."""
    handover_h: float = 2 / 60
    """Before the new machine is up, the old one saves and stops."""

    @property
    def zones(self) -> int:
        return int(self.region.shape[0])

    @property
    def regions(self) -> int:
        return int(self.egress_usd.shape[0])

    @property
    def region_of(self) -> NDArray[np.intp]:
        """Of every machine number, (Z + R,)."""
        return np.concatenate((self.region, np.arange(self.regions, dtype=np.intp)))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """n jobs (or one job's n replays) at one moment each."""

    market: Market
    elapsed_h: Floats
    """Since submission, (n,)."""
    left_h: Floats
    """To the deadline, (n,)."""
    work_h: Floats
    """Left, in hours of a working machine, (n,)."""
    total_h: Floats
    """At submission, (n,)."""
    machine: Ints
    """That works or boots, (n,)."""
    boot_h: Floats
    """Until it works, (n,)."""
    coming: Ints
    """The one that is to take over, (n,)."""
    coming_boot_h: Floats
    at: NDArray[np.intp]
    """Region of the last checkpoint, (n,)."""
    spot_usd: Floats
    """Per hour now, (n, Z)."""
    on_demand_usd: Floats
    """Per hour now, (n, R)."""
    spent: Mask
    """No time is left at this look for another attempt from idle, (n,)."""
    seen: Sightings
    lives: Lives | None = None
    """Only for policies that ask for it."""

    def __len__(self) -> int:
        return int(self.elapsed_h.shape[0])

    @property
    def slack_h(self) -> Floats:
        return self.left_h - self.work_h

    @property
    def idle(self) -> Mask:
        found: Mask = self.machine == NONE
        return found

    @property
    def on_demand(self) -> Mask:
        found: Mask = self.machine >= self.market.zones
        return found


@dataclass(frozen=True, slots=True)
class Choice:
    """Per job one action and, where it needs one, its target (a machine number). After a refused attempt
    and after a probe the policy is asked again, within the same look."""

    action: Ints
    target: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePolicy:
    """``decide`` is pure: what it answers depends on the view alone."""

    name: str
    decide: Callable[[View], Choice]
    about: str
    one_zone: bool = False
    """It knows one zone only: on several it is replayed in each."""
    free_sight: bool = False
    """A yardstick: it sees every zone's capacity at every look, for nothing."""
    keeps_lives: bool = False
    """It needs ``View.lives``."""
