"""What ``launch`` shows before it asks: where, at what price, for how long, for how much, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arylcloud.cli.output import hanging, hours, note, rate, seconds, usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from arylcloud.cli.settings import Folders
    from arylcloud.core.plan import Plan

SHOWN_REASONS = 3
"""`plan` shows them all."""


def show(plan: Plan, places: Folders) -> None:
    def row(label: str, text: str) -> None:
        note(hanging(f"  {label:<8}{text}", 10))

    best, offer = plan.chosen, plan.chosen.offer
    note(
        f"{plan.job.name} on {best.nodes} × {offer.instance_type} ({offer.gpu_count} × {offer.gpu})",
        style="bold",
    )
    age = f"as of {offer.as_of}" if offer.as_of else "of unknown age"
    row("where", f"{offer.place}, {offer.market.replace('_', '-')}")
    row("price", f"{rate(offer.usd_per_hour)} per machine, {age} ({offer.source})")
    if best.usd is not None and best.hours is not None:
        row("time", f"{hours(best.hours.p50)} (median), {hours(best.hours.p90)} if things go badly (p90)")
        row("money", f"{usd(best.usd.mean)} (mean), {usd(best.usd.p90)} if things go badly (p90)")
    else:
        row("time", "not known, nor is the money: the job file gives no profile or no work")
    if offer.cloud == "local":
        _show_clock(places, row)
    for i, text in enumerate(plan.why[:SHOWN_REASONS]):
        # the first begins with what stands above already
        said = text.partition(": ")[2] if i == 0 and text.startswith(f"{best.nodes} × ") else text
        row("why" if i == 0 else "", said)


def _show_clock(places: Folders, row: Callable[[str, str], None]) -> None:
    """Hours and dollars of the local cloud are its market's, which runs faster than the wall's clock."""
    from arylcloud.cli.assemble import providers_for

    able = providers_for(["local"], places)["local"].capabilities()
    if able.compressed:
        span = seconds(able.market_clock.scale)
        row("clock", f"the local market's: a second here is {span} there, and nobody spends these dollars")
