"""``reconcile(state, observed, desired, now) → actions``: pure, level-based, and at rest once all is well.

Passive first (``facts``: what the world says is journaled), then active: which machines must go
(``leases``), why the job ends (``lifecycle``), which machines should exist (``slots``, ``migration``), who
is a member (``epochs``). Each rule sees what the ones before it decided in the same pass. Actions are to be
carried out in order; any of them may fail, and the next pass starts from what the journal then holds.
"""

from __future__ import annotations

from arylcloud.launcher.actions import Action, Desired, Observed
from arylcloud.launcher.offers import acceptable, bar_for
from arylcloud.launcher.reconcile import epochs, facts, hung, leases, lifecycle, migration, sizes, slots
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import JobState

__all__ = ["acceptable", "bar_for", "reconcile"]


def reconcile(state: JobState, observed: Observed, desired: Desired, now_s: float) -> tuple[Action, ...]:
    """What to do next. ``now_s`` is wall seconds; nothing here reads a clock, a disk or a network.

    Safe to call at any time and from any state: a crash between two of its actions, or a world that
    answered in part, leads to the same end by another road.
    """
    d = Draft(state=state, observed=observed, desired=desired, now_s=now_s)
    facts.note_facts(d)
    if not state.phase.ended:
        if not d.stopping:
            leases.judge(d)
            hung.judge(d)
        lifecycle.decide(d)
        if d.stopping:
            lifecycle.wind_down(d)
        else:
            sizes.decide(d)
            migration.step(d)
            slots.trim(d)
            slots.fill(d)
            slots.repeat_intents(d)
            epochs.advance(d)
            lifecycle.name_phase(d)
        epochs.publish(d)
    leases.finish_ending(d)
    leases.sweep(d)
    return tuple(d.actions)
