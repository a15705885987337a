"""A deadline decided live by the policy that a backtest replays: the same function, on a live view.

The policy says what to ask for next, where to move, and when to wait for spot instead of paying on demand.
Over its word lies the guard (``planner/deadline/guard``) at the pessimistic work (p90): no wait beyond the
latest safe start, no spot that could not be made good, no move with too little time for a lost one. Live,
nothing is probed and nothing that works is ended to wait: both are taken as "go on".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Plan
from arylcloud.launcher.actions import DueStart, MoveAdvice, Observed, Timing
from arylcloud.launcher.duesize import OFF, shrinks_by_policy, whole
from arylcloud.launcher.dueview import TICKS, Due, due_of
from arylcloud.launcher.spent import known_spent_usd, spent_for_limits_usd
from arylcloud.launcher.state import JobState
from arylcloud.planner.deadline.guard import EPS_H, cheapest_on_demand, may_move, must_start, safe
from arylcloud.planner.deadline.registry import DEFAULT, POLICIES
from arylcloud.planner.deadline.view import START, SWITCH, DeadlinePolicy, View

AGAIN_S: Final = 60.0
CALM: Final = 2.0
"""Hand-overs of slack beyond a start that a move to spot needs: one is spent on the way there, and without
the other it would have to leave again at once."""


def policy_of(spec: JobSpec) -> DeadlinePolicy | None:
    """None: no deadline, a job that is never started again or stops when its size changes, or ``off``."""
    if spec.constraints.deadline_s is None or spec.policy == OFF or spec.market == "on_demand":
        return None
    if spec.recovery == "none" or spec.on_node_loss == "fail":
        return None
    if spec.nodes_min != spec.nodes_max and not shrinks_by_policy(spec):
        return None
    return POLICIES.get(spec.policy or DEFAULT)


def asked(
    state: JobState,
    observed: Observed,
    plan: Plan,
    now_s: float,
    *,
    timing: Timing,
    handover_s: float,
    seen: Callable[[Offer], bool],
) -> tuple[DueStart | None, MoveAdvice | None] | None:
    """What a job without a machine may ask for now, and where one with a machine is to move.

    None: no policy has a say, and the launcher's own rules hold: for the first machine (it is the one that
    was confirmed, but where that is on demand and the policy knows cheaper spot), for a queued job, where the
    view cannot be made, and once the deadline cannot be kept at the typical speed any more.
    """
    policy = policy_of(state.spec)
    if policy is None or state.queued or state.placed is not None:
        return None
    due = due_of(state, observed, plan, now_s, policy=policy, timing=timing, handover_s=handover_s, seen=seen)
    if due is None:
        return None
    view, idle = due.view, bool(due.view.idle[0])
    if view.slack_h[0] < (view.market.startup_h if idle else 0.0):
        return None
    action, target = decide(policy, due)
    if idle:
        start = _start(state, policy, due, action, target, now_s)
        first = state.attempts == 0
        return None if first and not _instead(start.to, plan.candidates[0].offer) else (start, None)
    if must_leave(due):
        action, target = START, int(cheapest_on_demand(view)[0][0])
    to = due.offer(target) if action in (START, SWITCH) else None
    if to is None or state.migration is not None:
        return None, None
    nodes = state.wanted if to.market is Market.SPOT else whole(state)
    move = _move(policy, due, target, to, state, nodes)
    return None, move if _affordable(move, due, left_usd(state, now_s)) else None


def left_usd(state: JobState, now_s: float) -> float | None:
    """Of the budget; None = it has none. Where nobody can say what is spent, by what is known of it."""
    budget_usd = state.spec.constraints.budget_usd
    if budget_usd is None:
        return None
    spent = spent_for_limits_usd(state, now_s)
    return budget_usd - (known_spent_usd(state, now_s) if spent is None else spent)


def _affordable(move: MoveAdvice, due: Due, left: float | None) -> bool:
    """A budget ends the job when it is used up, a deadline does not: so a move must leave what the rest of
    the work costs there, and, should the new machine be lost before it works, here. If the rest is not to be
    had here any more, it is enough that it is there. At the pessimistic work (p90)."""
    if left is None or move.move_usd is None:
        return True
    work_h = float(due.worst.work_h[0])
    here_usd = _rate(due, int(due.view.machine[0])) * work_h
    there_usd = here_usd - move.saving_usd * work_h / float(due.view.work_h[0]) + move.move_usd
    return there_usd <= left and (here_usd + move.move_usd <= left or here_usd > left)


def _rate(due: Due, machine: int) -> float:
    """Dollars per hour of work of the whole gang."""
    return float(np.concatenate((due.view.spot_usd[0], due.view.on_demand_usd[0]))[machine])


def must_leave(due: Due) -> bool:
    """On spot, at work, and a loss could not be made good any more at p90: on demand while it can."""
    view = due.view
    works = bool(view.boot_h[0] <= EPS_H) and not view.on_demand[0]
    return works and bool(due.worst.slack_h[0] < view.market.startup_h)


def again_s(state: JobState, timing: Timing) -> float:
    """Wall seconds after which it is asked again though nothing has happened: prices move, slack runs out."""
    deadline_s = state.spec.constraints.deadline_s or 0.0
    return max(2 * timing.tick_s, min(AGAIN_S, deadline_s / TICKS / 4 / state.market_clock.scale))


def _instead(to: Offer | None, confirmed: Offer) -> bool:
    """Whether the very first machine is another one than was confirmed: spot, for less, where on demand was
    chosen because it alone keeps the deadline when nobody watches over it."""
    if to is None or to.market is not Market.SPOT or confirmed.market is Market.SPOT:
        return False
    return (to.usd_per_hour or 0.0) < (confirmed.usd_per_hour or 0.0)


def decide(policy: DeadlinePolicy, due: Due) -> tuple[int, int]:
    """(action, machine number). Zones that rest count as refused at this very look, as a replay would have
    it; the policy is then asked again."""
    view, worst = due.view, due.worst
    for _ in range(view.market.zones + 1):
        choice = safe(worst, *_both(policy, view))
        action, target = int(choice.action[0]), int(choice.target[0])
        starts = action in (START, SWITCH)
        if not starts or target >= view.market.zones or not due.resting[target]:
            break
        zone = np.array([target], dtype=np.intp)
        seen = view.seen.rows(np.zeros(1, dtype=np.intp))
        seen.note(np.zeros(1, dtype=np.intp), zone, view.elapsed_h, np.zeros(1, dtype=bool))
        view, worst = replace(view, seen=seen), replace(worst, seen=seen)
    if starts and not view.idle[0] and not _may_go(view, worst, target):
        return 0, target
    return action, target


def _both(policy: DeadlinePolicy, view: View) -> tuple[np.ndarray, np.ndarray]:
    choice = policy.decide(view)
    return choice.action, choice.target


def _may_go(view: View, worst: View, target: int) -> bool:
    """From a machine that works: to spot with time for a lost hand-over at p90, on demand at p50."""
    if target == int(view.machine[0]):
        return False
    if target >= view.market.zones:
        return bool(may_move(view)[0])
    spare_h = view.market.startup_h + CALM * view.market.handover_h
    return bool(may_move(worst)[0]) and bool(worst.slack_h[0] >= spare_h)


def latest_s(state: JobState, due: Due, now_s: float) -> float:
    """Wall seconds of the latest safe start on demand."""
    market = due.view.market
    least_h = max(2 * market.startup_h, market.startup_h + market.tick_h)
    left_h = max(0.0, float(due.worst.slack_h[0]) - least_h)
    return now_s + left_h * 3600.0 / state.market_clock.scale


def _start(
    state: JobState, policy: DeadlinePolicy, due: Due, action: int, target: int, now_s: float
) -> DueStart:
    until_s = latest_s(state, due, now_s)
    to = due.offer(target) if action == START else None
    slack_h = float(due.worst.slack_h[0])
    spare = f"{_time(slack_h)} to spare (p90), a start takes up to {_time(due.view.market.startup_h)}"
    if to is None:
        gone = sum(due.resting) + int(np.count_nonzero(np.isfinite(due.view.seen.last_h) & ~due.view.seen.up))
        known = f"{min(gone, len(due.zones))} of {len(due.zones)} zones had none"
        at = datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        why = f"{policy.name} policy: waits for spot ({known}); {spare}; on demand at {at} at the latest"
        return DueStart(to=None, until_s=until_s, why=why)
    forced = bool(must_start(due.worst)[0])
    return DueStart(to=to, until_s=until_s, why=f"{policy.name} policy: {spare}", forced=forced)


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if abs(hours) >= 1.0 else f"{hours * 60:.1f} min"


def _move(
    policy: DeadlinePolicy, due: Due, target: int, to: Offer, state: JobState, nodes: int
) -> MoveAdvice:
    """To ``nodes`` machines. The view has the whole gang's prices."""
    view, gang = due.view, whole(state)
    here_usd = _rate(due, int(view.machine[0])) * state.wanted / gang
    there_usd = _rate(due, target) * nodes / gang
    egress = float(view.market.egress_usd[view.at[0], view.market.region_of[target]])
    here = due.offer(int(view.machine[0]))
    assert here is not None
    kind = "spot" if to.market is Market.SPOT else "on demand"
    why = f"{policy.name} policy: {kind} at ${there_usd:.2f}/h instead of ${here_usd:.2f}/h"
    return MoveAdvice(
        to=to,
        saving_usd=(here_usd - there_usd) * float(view.work_h[0]),
        move_usd=there_usd * view.market.startup_h + egress,
        why=why,
        nodes=nodes,
        urgent=True,
    )
