from __future__ import annotations

from arylcloud.launcher.actions import Action, Desired, Observed
from arylcloud.launcher.reconcile import reconcile
from arylcloud.launcher.state import JobState


def initial_actions(state: JobState, desired: Desired, now_s: float) -> tuple[Action, ...]:
    """What a launch of ``state`` would do first, in a world that holds nothing of it yet."""
    nothing = Observed(
        machines=(),
        listed=frozenset({offer.cloud for offer in desired.ranking}),
        beats={},
        ends=(),
        checkpoints=(),
        damaged={},
        requests=(),
        published_epoch=state.epoch.number if state.epoch else 0,
    )
    return reconcile(state, nothing, desired, now_s)
