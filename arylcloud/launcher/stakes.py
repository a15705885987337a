"""What a job loses when the owner of its machines wants some back: in dollars, from its journal."""

from __future__ import annotations

from typing import Final

from arylcloud.launcher.limits import burn_usd_per_hour
from arylcloud.launcher.state import JobState
from arylcloud.planner.loaning.tending import Stake

HANDOVER_S: Final = 60.0
"""From the signal to the first step of the next epoch: all machines stand still for so long. (Aryl measured
63 s per resize; ours are mostly shorter.)"""
UNKNOWN: Final = Stake(spare=0, shrink_usd=1.0, stop_usd=1.0)
"""Of a job that this journal does not know: another home's."""


def stake(state: JobState, now_s: float) -> Stake:
    """``now_s``: wall seconds. A price that is not known counts as $1 an hour and machine."""
    machines = len(state.open_leases)
    burn = burn_usd_per_hour(state)
    per_s = (float(machines) if burn is None else burn) / 3600.0
    epoch = next((e for e in reversed(state.epochs) if e.members), None)
    present = 0 if epoch is None else len(epoch.members)
    shrinks = state.spec.on_node_loss == "shrink" and state.spec.recovery != "none"
    saved_s = state.lineage.saved_at_s if state.lineage is not None else None
    begun_s = epoch.opened_at_s if epoch is not None else now_s
    unsaved_s = max(0.0, now_s - max(begun_s, saved_s or begun_s))
    return Stake(
        spare=max(0, present - state.spec.nodes_min) if shrinks else 0,
        shrink_usd=per_s * HANDOVER_S,
        stop_usd=per_s * (HANDOVER_S + unsaved_s),
    )
