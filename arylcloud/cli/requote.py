"""Between the plan and the money: the chosen offer at its price now, and the size that the job starts at.

A plan may be days old (``launch plan.json``) or a minute: what is confirmed is asked of the cloud once more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from arylcloud.core.errors import CapacityError, InfeasibleError, IntegrityError

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec
    from arylcloud.core.offer import Offer
    from arylcloud.core.plan import Plan

LOCAL = "local"
NEAR = frozenset({LOCAL, "pool"})
"""Their prices come with their offers: nobody is asked."""
MOVED = 0.10
"""A price that differs by more than this fraction is another plan: spot prices differ by less from one
minute to the next, and a plan's own p90 is wider."""
STALE_S = 24 * 3600.0
"""A price that is older is not launched at, unless the user says so."""
JUST_S = 120.0
SAME = 0.0005
"""A price that differs by less is printed alike."""
MOST_ROUNDS = 50
"""Offers asked for one after the other: each round takes one off the list, or has a newer price of it."""


def settle(
    plan: Plan,
    *,
    quote: Callable[[Offer], Offer],
    replan: Callable[[Sequence[Offer]], Plan],
    ask: Callable[[Plan], None],
    say: Callable[[str], None],
    now_s: float,
    allow_stale: bool = False,
) -> tuple[Plan, tuple[Offer, ...]]:
    """The plan whose chosen offer is to be had now, at a price within MOVED of the one that was confirmed;
    and what its clouds have said, the chosen offer as it was confirmed: who plans on that chooses the same.

    ``replan`` plans the same job on the offers given over the catalogue's (without a price: not to be
    had); ``ask`` confirms another plan than the one before, or raises. A quote that is more than STALE_S
    older than ``now_s``, or of unknown age, is refused (IntegrityError) unless ``allow_stale``. Raises
    CapacityError (exit 5) when nothing is left, InfeasibleError when what is left misses a limit, and
    what ``quote`` raises.
    """
    found: dict[str, Offer] = {}
    for _ in range(MOST_ROUNDS):
        chosen = plan.chosen.offer
        try:
            now = quote(chosen)
            _check_age(now, now_s, allow_stale, say)
            problem = _problem(plan, now)
        except CapacityError as error:
            now = dataclasses.replace(chosen, usd_per_hour=None)
            problem = f"{chosen.key} is not to be had now: {error.message}"
        if problem is None:
            if (live := _heard(chosen, now, now_s)) is not None:
                say(live)
            return plan, tuple({**found, chosen.key: chosen}.values())
        say(problem)
        found[chosen.key] = now
        plan = _again(plan, tuple(found.values()), replan)
        ask(plan)
    raise CapacityError(
        f"{MOST_ROUNDS} offers were asked for, and none held", hint="plan again when the market is calmer"
    )


def _again(plan: Plan, found: tuple[Offer, ...], replan: Callable[[Sequence[Offer]], Plan]) -> Plan:
    gone = [offer.key for offer in found if offer.usd_per_hour is None]
    try:
        return replan(found)
    except InfeasibleError as error:
        if not gone:
            raise
        raise CapacityError(
            f"nothing that {plan.job.name} may run on is to be had now: {', '.join(gone[:3])}"
            + (f" and {len(gone) - 3} more" if len(gone) > 3 else ""),
            hint="name more zones, regions or GPU types, or try again later",
        ) from error


def _problem(plan: Plan, now: Offer) -> str | None:
    """Why the offer at its price now is not what was confirmed; None if it is."""
    before, price = plan.chosen.offer.usd_per_hour, now.usd_per_hour
    if price is None:
        return f"{now.key} has no price now"
    cap = plan.job.constraints.max_usd_per_hour
    if before is not None and abs(price - before) <= MOVED * before and (cap is None or price <= cap):
        return None
    was = "an unknown price" if before is None else f"${before:,.4g}/h"
    return f"{now.key} costs ${price:,.4g}/h now, not {was} as planned"


def _heard(before: Offer, now: Offer, now_s: float) -> str | None:
    """Who named the price, and when: a plan stands on the catalogue's. None of what costs nobody anything."""
    from arylcloud.cli.output import rate, seconds
    from arylcloud.pricing.table import UNKNOWN_AS_OF, parse_as_of

    if now.cloud in NEAR:
        return None
    as_of, price, planned = parse_as_of(now.as_of), now.usd_per_hour, before.usd_per_hour
    age_s = now_s - as_of
    if as_of == UNKNOWN_AS_OF or age_s > STALE_S:
        return None  # that has been said
    if (price, now.as_of, now.source) == (planned, before.as_of, before.source):
        return f"{now.cloud} names no price just now: the one of {now.as_of} stands"
    when = "just now" if age_s < JUST_S else f"{seconds(age_s)} ago"
    change = 0.0 if not planned or price is None else price / planned - 1
    as_planned = (
        "as planned" if abs(change) < SAME else f"{abs(change):.1%} {'more' if change > 0 else 'less'}"
    )
    return f"asked {now.cloud} {when}: {rate(price)} ({as_planned})"


def _check_age(now: Offer, now_s: float, allow_stale: bool, say: Callable[[str], None]) -> None:
    from arylcloud.pricing.table import UNKNOWN_AS_OF, parse_as_of

    as_of = parse_as_of(now.as_of)
    if as_of != UNKNOWN_AS_OF and now_s - as_of <= STALE_S:
        return
    age = "of unknown age" if as_of == UNKNOWN_AS_OF else f"{(now_s - as_of) / 86400:,.1f} days old"
    problem = f"the price of {now.key} is {age} ({now.source}), and {now.cloud} names no newer one"
    if not allow_stale:
        raise IntegrityError(
            f"{problem}: not launched",
            hint="--allow-stale launches at it; --max-age 24h plans on newer prices only",
            code="stale_price",
        )
    say(f"{problem}: launched at it all the same, as --allow-stale says")


def as_confirmed(plan: Plan, clouds: tuple[str, ...]) -> JobSpec:
    """What is submitted: the job on clouds that can be launched on. (A range of machines stays; it starts
    at the number that was confirmed, which the submission names.)"""
    resources = dataclasses.replace(plan.job.resources, clouds=clouds)
    return dataclasses.replace(plan.job, resources=resources)


def unmet(plan: Plan) -> tuple[str, ...]:
    """What of the job file's wishes is not done as it may be read, or not by the chosen cloud: said before
    the money."""
    job, nodes = plan.job, plan.chosen.nodes
    found = []
    if job.nodes_min != job.nodes_max:
        found.append(
            f"nodes: {job.nodes_min}..{job.nodes_max}: it starts on {nodes}, and may grow and shrink within "
            "that while it runs; limits hold whatever its size"
        )
    elif job.on_node_loss == "shrink":
        found.append("on_node_loss: shrink acts as replace, since the number of machines is fixed")
    if (policy := _tries_spot_first(plan)) is not None:
        found.append(
            f"deadline: the {policy} policy may begin on cheaper spot while there is time to go on demand "
            "later; with `policy: off` it begins on what is shown"
        )
    if plan.chosen.offer.cloud == LOCAL:
        if job.resources.image is not None:
            found.append(
                f"image_id {job.resources.image} is not used: the local cloud runs on this machine as it is"
            )
        if job.resources.disk_gb is not None:
            found.append(
                f"disk_size {job.resources.disk_gb:g} GB is not set aside: the local cloud's machines"
                " share this machine's disk"
            )
    return tuple(found)


def _tries_spot_first(plan: Plan) -> str | None:
    """The policy by which the first machine may be another than the chosen one (``launcher/duepolicy``): on
    demand was chosen, and there is cheaper spot."""
    chosen, job = plan.chosen.offer, plan.job
    if job.constraints.deadline_s is None or chosen.market == "spot" or chosen.usd_per_hour is None:
        return None
    from arylcloud.launcher.duepolicy import policy_of

    policy = policy_of(job)
    if policy is None or job.work is None or job.work.unit != "steps":
        return None
    spot = [c.offer.usd_per_hour for c in plan.candidates if c.offer.market == "spot"]
    return policy.name if any(usd is not None and usd < chosen.usd_per_hour for usd in spot) else None
