"""Whether a running job should move: pure advice on money, with the reason either way (DESIGN, Migration).

A move is make-before-break: the new machines boot and fetch while the old ones work, then the job saves,
switches and goes on. Beside what the rest of the work costs in each place, the move itself costs::

    move = first boot there + egress of data and checkpoint + (rate here + rate there) × hand-over

The checkpoint goes up to the job's store, and from there down: both ways are priced, where it is known where
the store lies; else it lies with the machines, and only the way from region to region is.

The hand-over is the time from the last step there to the first step here: final save, upload of the
difference, start; both sets of machines are paid through it and nothing is computed. A move is advised when

    saving ≥ 1.25 × move   and   saving ≥ min_saving × cost of staying

with saving = expected cost of the remaining work here − there, neither with a first boot nor with the
first fetching of data. Reference: algorithms.md 2.3 (h = 0.25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arylcloud.core.offer import Offer
from arylcloud.core.plan import Candidate, Quantiles, Usd
from arylcloud.core.units import say_usd
from arylcloud.planner.upkeep import DEAR_USD_PER_GB
from arylcloud.pricing.tariffs import Tariffs, load_tariffs

HYSTERESIS = 1.25
HANDOVER_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    to: Offer
    nodes: int
    saving_usd: float
    """Of the remaining work; the move's own cost is not yet taken off."""
    move_usd: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    why: str


def advise(
    here: Candidate | None,
    candidates: Sequence[Candidate],
    *,
    min_saving: float,
    checkpoint_gb: float | None = None,
    store_place: str | None = None,
    handover_s: float = HANDOVER_S,
    tariffs: Tariffs | None = None,
) -> Move | None:
    """:func:`consider`, for whoever only acts on a move."""
    found = consider(
        here,
        candidates,
        min_saving=min_saving,
        checkpoint_gb=checkpoint_gb,
        store_place=store_place,
        handover_s=handover_s,
        tariffs=tariffs,
    )
    return found if isinstance(found, Move) else None


def consider(
    here: Candidate | None,
    candidates: Sequence[Candidate],
    *,
    min_saving: float,
    checkpoint_gb: float | None = None,
    store_place: str | None = None,
    handover_s: float = HANDOVER_S,
    tariffs: Tariffs | None = None,
) -> Move | Stay:
    """The move with the greatest net saving if it pays, else why not.

    ``here``: the present place planned for the remaining work at today's price, None = not known;
    ``candidates``: where the job could go, planned likewise. A place that would miss the deadline or the
    budget at p90 is never advised; where staying misses the deadline, the cheapest place that meets it is,
    whatever the move costs. How often a job may move is the caller's to check. The order of ``candidates``
    is no matter. A checkpoint of unknown size (``checkpoint_gb`` None) is moved unpriced. ``store_place``:
    ``cloud/region`` of the job's store, None = not known.
    """
    if here is None or here.usd is None:
        return Stay(why="what staying costs is not known")
    elsewhere = [c for c in candidates if c.usd is not None and c.offer.key != here.offer.key]
    good = [c for c in elsewhere if c.meets_deadline is not False and c.meets_budget is not False]
    if not good:
        why = "every other place would miss the limits" if elsewhere else "there is nowhere else to go"
        return Stay(why=why)
    tariffs = load_tariffs() if tariffs is None else tariffs
    costs = [_move_usd(here, c, checkpoint_gb, store_place, handover_s, tariffs) for c in good]
    priced = [(c, cost) for c, cost in zip(good, costs, strict=True) if cost is not None]
    if not priced:
        return Stay(why="no egress tariff is known for any move")
    best, cost = min(priced, key=lambda p: (running_usd(p[0]) + p[1], p[0].offer.key, p[0].nodes))
    stay_usd = running_usd(here)
    saving = stay_usd - running_usd(best)
    stay = say_usd(stay_usd)
    gain = (
        f"saves {say_usd(saving)} of {stay}" if saving >= 0 else f"costs {say_usd(-saving)} more than {stay}"
    )
    text = f"{best.offer.key} {gain}, the move costs {say_usd(cost)}"
    if here.meets_deadline is False and best.meets_deadline:
        text = f"staying misses the deadline (p90); {text}"
    elif saving < HYSTERESIS * cost:
        return Stay(why=f"{text}: less than {HYSTERESIS} times as much")
    elif saving < min_saving * stay_usd:
        return Stay(why=f"{text}: less than min_saving {min_saving:.0%}")
    return Move(to=best.offer, nodes=best.nodes, saving_usd=saving, move_usd=cost, why=text)


def running_usd(c: Candidate) -> float:
    """Expected dollars of ``c`` without the first boot and the first fetching of data."""
    usd, _hours = _figures(c)
    return usd.mean - _first_boot_usd(c) - _first_egress_usd(c)


def _figures(c: Candidate) -> tuple[Usd, Quantiles]:
    if c.usd is None or c.hours is None:
        raise ValueError("a candidate without a profile has no cost")
    return c.usd, c.hours


def _losses(c: Candidate) -> float:
    _usd, hours = _figures(c)
    return c.interruptions_per_hour * c.nodes * hours.p50


def _first_boot_usd(c: Candidate) -> float:
    """One of the 1 + K boots that the candidate's boot cost counts."""
    return _figures(c)[0].boot / (1 + _losses(c))


def _first_egress_usd(c: Candidate) -> float:
    """The whole set once; a lost machine fetches its share again. What checkpoints cost goes on, here as
    there: it is no part of a beginning."""
    if c.data_egress_usd is not None:
        return c.data_egress_usd
    return _figures(c)[0].egress / (1 + _losses(c) / c.nodes)


def through_store(here: str, there: str, store: str | None, tariffs: Tariffs) -> float | None:
    """$/GB of a checkpoint from ``here`` to ``there`` by way of the store; None = the tariff is not known.
    ``store`` None: it is where the machines are. To and from a store elsewhere, ``DEAR_USD_PER_GB`` stands
    for a tariff that is not known, as in plans: the job sends its checkpoints that way already."""
    if store is None:
        return tariffs.egress(here, there).usd
    legs = tariffs.egress(here, store).usd, tariffs.egress(store, there).usd
    return sum(DEAR_USD_PER_GB if usd is None else usd for usd in legs)


def _move_usd(
    here: Candidate,
    there: Candidate,
    checkpoint_gb: float | None,
    store_place: str | None,
    handover_s: float,
    tariffs: Tariffs,
) -> float | None:
    """None where a tariff is not known."""
    egress = _first_egress_usd(there)
    if checkpoint_gb:
        per_gb = through_store(here.offer.place, there.offer.place, store_place, tariffs)
        if per_gb is None:
            return None
        egress += per_gb * checkpoint_gb
    rates = sum((c.offer.usd_per_hour or 0.0) * c.nodes for c in (here, there))
    return _first_boot_usd(there) + egress + rates * handover_s / 3600.0
