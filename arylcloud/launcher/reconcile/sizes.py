"""How many machines an elastic job should have: what its user asks for, else what the planner finds best."""

from __future__ import annotations

import math

from arylcloud.core import events as ev
from arylcloud.core.offer import Market, Offer
from arylcloud.core.units import say_duration
from arylcloud.launcher.actions import Scaling
from arylcloud.launcher.duesize import takes_all
from arylcloud.launcher.reconcile.draft import Draft


def decide(d: Draft) -> None:
    """Answer a request to scale; without one, follow the planner where that pays."""
    request = d.state.scale_request
    if request is not None:
        _answer(d, request)
    elif d.elastic and not d.state.size_pinned and d.state.migration is None:
        _advise(d)


def gain(scaling: Scaling, now: int, then: int, *, boots: int) -> float | None:
    """What going from ``now`` to ``then`` machines is worth, in the objective's dollars; None = not known::

        gain = loss(now) − loss(then) − hand-over − boots × boot

    ``loss(n)``: expected value of the remaining work with ``n`` machines (weight × USD + USD per hour of
    waiting × hours); the hand-over stops every machine once; ``boots``: machines that have yet to come up.
    """
    if now not in scaling.loss or then not in scaling.loss:
        return None
    return scaling.loss[now] - scaling.loss[then] - scaling.handover - boots * scaling.boot


def pays(d: Draft, now: int, then: int, *, boots: int = 0) -> bool:
    """Whether so many machines instead of so many are worth the hand-over. What a user has asked for, what
    the job cannot run without, and what nobody can estimate, is."""
    scaling = d.desired.scaling
    if d.state.size_pinned or now < d.state.spec.nodes_min or scaling is None:
        return True
    found = gain(scaling, now, then, boots=boots)
    return found is None or found > 0


def never_again(d: Draft) -> bool:
    """``recovery: none`` and ``on_node_loss: fail``: what has run once is not run again."""
    spec = d.state.spec
    return spec.recovery == "none" or spec.on_node_loss == "fail"


def for_offer(d: Draft, offer: Offer) -> None:
    """A start on another offer than the one that was confirmed has that one's best size. Where a policy
    keeps the deadline: all on demand, which has to make up for what spot did not do; on spot the size that
    was chosen last holds anywhere (all, but where all are dear)."""
    best = d.desired.sizes.get(offer.key)
    if takes_all(d.state):
        best = None if offer.market is Market.SPOT else d.state.spec.nodes_max
    if not d.elastic or d.state.size_pinned or not d.state.attempts or best is None:
        return
    best = _clipped(d, best)
    if best != d.size:
        d.note(ev.SizeChosen(nodes=best, code="plan", why=f"the best number of {offer.key}"))


def _answer(d: Draft, request: ev.RequestSeen) -> None:
    spec, nodes = d.state.spec, request.args.get("nodes")
    cause = f"request {request.number}"
    if not d.elastic:
        text = (
            f"it runs on {spec.nodes_max} machines throughout: `nodes: 1..4` in its file would let it change"
        )
    elif nodes == "auto":
        why = f"left to the planner by {request.by}"
        d.note(ev.SizeChosen(nodes=d.size, code="plan", why=why), cause_id=cause)
        return
    elif not isinstance(nodes, int) or isinstance(nodes, bool):
        text = f"{nodes!r} is no number of machines"
    elif not spec.nodes_min <= nodes <= spec.nodes_max:
        text = f"{nodes} is not within its nodes: {spec.nodes_min}..{spec.nodes_max}"
    elif d.state.migration is not None:
        return  # once it has moved
    else:
        d.note(ev.SizeChosen(nodes=nodes, code="scale", why=f"asked for by {request.by}"), cause_id=cause)
        return
    d.note(ev.ScaleRefused(number=request.number, text=text), cause_id=cause)


def _advise(d: Draft) -> None:
    scaling, epoch = d.desired.scaling, d.member_epoch
    if scaling is None or epoch is None or d.draining:
        return
    if d.members(epoch)[0].offer.key != scaling.offer_key or never_again(d):
        return
    best = _clipped(d, scaling.best)
    changed_s = max(epoch.opened_at_s, d.state.size_at_s or d.state.submitted_at_s)
    if best == d.size or d.now_s < changed_s + d.timing.grow_every_s:
        return
    worth = gain(scaling, d.size, best, boots=max(0, best - d.size))
    if worth is not None and worth > 0:
        why = f"worth ${worth:,.2f} over the work that is left, hand-over included"
        if scaling.in_hours:
            why = f"all that may be had, for its deadline: {say_duration(worth * 3600.0)} sooner"
        elif math.isinf(worth):
            why = f"no plan for {d.size} machines meets the job's limits (p90)"
        d.note(ev.SizeChosen(nodes=best, code="plan", why=why), cause_id="advice")


def _clipped(d: Draft, nodes: int) -> int:
    return min(max(nodes, d.state.spec.nodes_min), d.state.spec.nodes_max)
