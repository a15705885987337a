"""How many machines an elastic job has where a policy keeps its deadline. Pure.

All that it may have, wherever the policy has it run; and it goes on with those that are to be had. Slack is
what a policy buys spot with, and more machines are more slack. ``simulation/deadline/elastic`` replays this.
"""

from __future__ import annotations

from typing import Final

from arylcloud.core.job import JobSpec
from arylcloud.launcher.state import JobState

OFF: Final = "off"
"""As the policy in a job's file: the launcher's own rules."""


def takes_all(state: JobState) -> bool:
    """Whether it is such a job. (A queue counts machines itself.)"""
    return shrinks_by_policy(state.spec) and not state.queued and state.placed is None


def shrinks_by_policy(spec: JobSpec) -> bool:
    """(Where a budget limits it as well, how many machines it has is a matter of money: the planner's.)"""
    limits, work = spec.constraints, spec.work
    due = limits.deadline_s is not None and limits.budget_usd is None and spec.policy != OFF
    known = work is not None and work.unit == "steps" and spec.profile is not None
    able = spec.market == "auto" and spec.on_node_loss == "shrink" and spec.recovery != "none"
    return spec.nodes_min < spec.nodes_max and due and known and able


def whole(state: JobState) -> int:
    """Machines of the gang that a policy reckons with: an hour of work is an hour of theirs. (A number that a
    user has asked for is all.)"""
    return state.spec.nodes_max if takes_all(state) and not state.size_pinned else state.wanted


def fewest(state: JobState) -> int:
    """Of these, how many it can run on."""
    return state.spec.nodes_min if takes_all(state) else state.wanted
