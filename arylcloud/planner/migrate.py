"""Whether a running job should move: pure advice on money, with the reason either way (DESIGN, Migration).

A move is make-before-break: the new machines boot and fetch while the old ones work, then the job saves,
switches and goes on. What it costs beyond running elsewhere::

    move = egress (checkpoint, data) + new machines' boot + old machines' rate × the hand-over
         + the work that the hand-over holds up

It pays when  saving ≥ HYSTERESIS × move  and  saving ≥ min_saving × cost of staying, where saving is the
expected cost of the remaining work here minus there. Reference: algorithms.md 2.3 (hysteresis 1.25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arylcloud.core.job import MigrateSpec
from arylcloud.core.offer import Offer

HYSTERESIS = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The job where it is: expected dollars of finishing the remaining work there."""

    offer: Offer
    nodes: int
    remaining_usd: float
    """At today's price, expected losses included, without a first boot: it runs already."""
    usd_per_hour: float
    """All machines, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place to go. ``remaining_usd`` as in :class:`Stay`, boot and egress not included."""

    offer: Offer
    nodes: int
    remaining_usd: float
    usd_per_hour: float
    boot_s: float
    """Of the new machines: paid while the old ones still work."""
    egress_usd: float
    """Checkpoint and data to the new place."""
    handover_s: float
    """From the last step there to the first step here: final save, upload, difference, start."""
    late: bool = False
    """True: going there would miss the deadline at p90; it is not advised, however cheap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    target: Target
    saving_usd: float
    """Of the remaining work, the move's own cost not yet taken off."""
    move_usd: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMove:
    why: str


def move_usd(stay: Stay, target: Target) -> float:
    """Egress + the new machines' boot + both sets of machines through the hand-over.

    >>> from arylcloud.core.offer import Market
    >>> offer = Offer(cloud="aws", region="r", zone=None, instance_type="t", gpu="T4", gpu_count=1,
    ...     gpu_mem_gib=None, vcpus=None, mem_gib=None, market=Market.SPOT, usd_per_hour=1.0,
    ...     as_of=None, source="s")
    >>> here = Stay(offer=offer, nodes=1, remaining_usd=20.0, usd_per_hour=2.0)
    >>> there = Target(offer=offer, nodes=1, remaining_usd=10.0, usd_per_hour=1.0, boot_s=360.0,
    ...     egress_usd=0.5, handover_s=36.0)
    >>> round(move_usd(here, there), 3)
    0.63
    """
    boot = target.usd_per_hour * target.boot_s / 3600.0
    handover = (stay.usd_per_hour + target.usd_per_hour) * target.handover_s / 3600.0
    return target.egress_usd + boot + handover


def advise(
    stay: Stay,
    targets: Sequence[Target],
    rule: MigrateSpec,
    *,
    now_s: float,
    last_move_s: float | None,
    forced: bool = False,
) -> Move | NoMove:
    """The move with the greatest net saving, if it pays; else why not.

    ``now_s`` and ``last_move_s`` (None: never moved) are market seconds. ``forced`` (a user asked, or the
    place is lost anyway): frequency and ``auto`` are no matter, and the saving need only be positive.
    Equal savings go to the lower offer key, so that the answer does not depend on the order of ``targets``.
    """
    if not forced:
        if not rule.auto:
            return NoMove(why="migrate is off")
        if last_move_s is not None and now_s - last_move_s < rule.at_most_every_s:
            left_h = (rule.at_most_every_s - (now_s - last_move_s)) / 3600.0
            return NoMove(why=f"moved already; the next move may come in {left_h:.1f} h")
    elsewhere = [t for t in targets if (t.offer.key, t.nodes) != (stay.offer.key, stay.nodes)]
    ontime = [t for t in elsewhere if not t.late]
    if not ontime:
        return NoMove(
            why="there is nowhere else to go" if not elsewhere else "every move would miss the deadline"
        )
    best = min(ontime, key=lambda t: (t.remaining_usd + move_usd(stay, t), t.offer.key, t.nodes))
    saving, cost = stay.remaining_usd - best.remaining_usd, move_usd(stay, best)
    text = f"{best.offer.key} saves ${saving:,.2f} of ${stay.remaining_usd:,.2f}, the move costs ${cost:,.2f}"
    if forced:
        return (
            Move(target=best, saving_usd=saving, move_usd=cost, why=text)
            if saving > cost
            else NoMove(why=text)
        )
    if saving < HYSTERESIS * cost:
        return NoMove(why=f"{text}: less than {HYSTERESIS} times that")
    if saving < rule.min_saving * stay.remaining_usd:
        return NoMove(why=f"{text}: less than min_saving {rule.min_saving:.0%}")
    return Move(target=best, saving_usd=saving, move_usd=cost, why=text)
