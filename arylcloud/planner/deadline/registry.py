"""Every deadline policy by name: adding one = a file and a line here."""

from __future__ import annotations

from typing import Final

from arylcloud.core.errors import UsageError
from arylcloud.planner.deadline import effective_price, greedy, on_demand, skynomad, uniform_progress
from arylcloud.planner.deadline.view import DeadlinePolicy

DEFAULT: Final = "default"

POLICIES: Final[dict[str, DeadlinePolicy]] = {
    policy.name: policy
    for policy in (
        DeadlinePolicy(name="on_demand", decide=on_demand.decide, about="on demand only"),
        DeadlinePolicy(name="greedy", decide=greedy.decide, about="spot or nothing, until time runs out"),
        DeadlinePolicy(
            name="uniform_progress",
            decide=uniform_progress.cheapest_first,
            about="Uniform Progress in one zone",
            one_zone=True,
        ),
        DeadlinePolicy(
            name="uniform_progress_any_zone",
            decide=uniform_progress.cheapest_first,
            about="Uniform Progress over all zones, cheapest first",
        ),
        DeadlinePolicy(
            name="uniform_progress_free_sight",
            decide=uniform_progress.steadiest_first,
            about="Uniform Progress that sees every zone for nothing, longest up-time first",
            free_sight=True,
        ),
        DeadlinePolicy(
            name="skynomad",
            decide=skynomad.probing,
            about="SkyNomad's utility, every zone probed every 2 h",
            keeps_lives=True,
        ),
        DeadlinePolicy(
            name="skynomad_without_probes",
            decide=skynomad.without_probes,
            about="SkyNomad's utility, learning from its own machines only",
            keeps_lives=True,
        ),
        DeadlinePolicy(
            name=DEFAULT,
            decide=effective_price.decide,
            about="effective price plus the price of slack",
        ),
    )
}

SHOWN: Final = ("on_demand", "greedy", "uniform_progress", "uniform_progress_any_zone", "skynomad", DEFAULT)
"""What a backtest compares where nobody says otherwise."""


def deadline_policy(name: str) -> DeadlinePolicy:
    """UsageError names what there is."""
    found = POLICIES.get(name)
    if found is None:
        raise UsageError(f"no deadline policy {name!r}", hint=f"there are {', '.join(POLICIES)}, optimum")
    return found
