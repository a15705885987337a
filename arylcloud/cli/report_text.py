"""The report on a terminal: the cost line first, then where it went, then what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from arylcloud.cli.describe import spelled
from arylcloud.cli.output import hours, rate, seconds, stdout
from arylcloud.cli.report import LOCAL_DOLLARS, NOT_INCLUDED, local_only, minimum_of
from arylcloud.cli.report_plan import beside_plan, why_beside
from arylcloud.core.units import say_usd_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from arylcloud.cli.report import Account
    from arylcloud.launcher.ledger import LeaseCost, Report
    from arylcloud.launcher.worktime import SpanKind

KINDS: Final[tuple[SpanKind, ...]] = ("useful", "boot", "lost_work", "idle")
NAMES: Final = {"useful": "useful", "boot": "boot", "lost_work": "lost work", "idle": "idle"}
MARKS: Final = {"useful": "█", "boot": "░", "lost_work": "▒", "idle": "·"}
STYLES: Final = {"useful": "green", "boot": "cyan", "lost_work": "red", "idle": "bright_black"}
MOST_MACHINES: Final = 16
STRIP: Final = 56
NARROW: Final = 100
"""Columns below which the table of machines takes two lines for each."""
FIGURES: Final = 62
"""Columns of a machine's figures beside its place and type, its end folded."""
LONG: Final = 30
"""Columns of a place that leave room for its figures on a narrow screen."""
BAR: Final = 28
"""Columns of the whole: what 80 leave beside the table's other columns."""


def show(made: Account) -> None:
    console = stdout()
    r = made.report
    console.print(_heading(r))
    console.print(cost_line(r))
    for text in r.unknown:
        console.print(f"  not known: {text}", style="yellow")
    console.print()
    if r.leases:
        console.print(Padding(_split_table(r), (0, 0, 0 if minimum_of(made) else 1, 2), expand=False))
        if (least := minimum_text(made)) is not None:
            _line(console, least, style="dim")
            console.print()
    if any(b.usd_micro is not None for b in made.baselines) or r.seconds.useful > 0:
        console.print(Padding(_baseline_table(made), (0, 0, 1, 2), expand=False))
    if made.state.planned is not None:
        why = why_beside(made)
        console.print(Padding(_plan_table(made), (0, 0, 0 if why else 1, 2), expand=False))
        for text in why:
            _line(console, text, style="dim")
        if why:
            console.print()
    if r.leases:
        console.print(
            Padding(_machine_table(r, narrow=_narrow(r, console.width)), (0, 0, 1, 2), expand=False)
        )
        _strip(console, made)
    _line(console, _counts(r))
    if r.compressed:
        _line(console, "compressed time on the local cloud: nobody spent these dollars", style="dim")
    elif local_only(r):
        _line(console, LOCAL_DOLLARS, style="dim")
    _line(console, f"not included: {NOT_INCLUDED}", style="dim")


def _line(console: Console, text: str, *, style: str = "") -> None:
    """Two columns in, later lines too."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))


def cost_line(r: Report) -> Text:
    """One line for the end of every job: what it cost, and of what that is made."""
    compute, egress, storage = shown_total(r)
    parts = f"compute {compute} + egress {egress} + storage {storage}"
    if r.total_micro is None:
        line = Text(f"cost unknown, at least {amount(r.known_micro, r.known_micro)}", style="bold yellow")
        if r.compute_micro is not None:
            line.append(f": {parts}", style="not bold")
    else:
        line = Text(amount(r.total_micro, r.total_micro), style="bold")
        line.append(f" = {parts}", style="not bold")
    if r.budget_usd is not None:
        least = "" if r.total_micro is not None else "at least "
        part = of_limit(r.known_micro / 1e6 / r.budget_usd)
        line.append(f"  ({least}{part} of the budget of {say_usd_limit(r.budget_usd)})")
    return line


def amounts(micro: Sequence[int], *, digits: int | None = None, target: int | None = None) -> list[str]:
    """Dollars for people that add up as shown: every part is cut to ``digits`` decimals, and what is
    missing of the rounded sum goes to the largest remainders, so that exact parts stay exact.
    ``target``: the sum to reach, in units of the last decimal, where another line shows it already."""
    digits = _digits(sum(micro)) if digits is None else digits
    unit: int = 10 ** (6 - digits)
    cut = [value // unit for value in micro]
    missing = (_half_up(sum(micro), unit) if target is None else target) - sum(cut)
    by_remainder = sorted(range(len(micro)), key=lambda i: (-(micro[i] % unit), i))
    for i in by_remainder[: max(0, missing)]:
        cut[i] += 1
    return [f"${value / 10**digits:,.{digits}f}" for value in cut]


def amount(micro: int, whole: int) -> str:
    """``micro`` with as many decimals as ``whole`` deserves: cents, finer below a dollar."""
    digits = _digits(whole)
    return f"${_half_up(micro, 10 ** (6 - digits)) / 10**digits:,.{digits}f}"


def _half_up(micro: int, unit: int) -> int:
    return (2 * micro + unit) // (2 * unit)


def shown_total(r: Report) -> list[str]:
    """Compute, egress and storage as the cost line shows them."""
    parts = (r.compute_micro, r.egress_micro, r.storage_micro)
    shown = amounts([part or 0 for part in parts], digits=_digits(r.known_micro))
    return ["unknown" if part is None else text for part, text in zip(parts, shown, strict=True)]


def shown_parts(r: Report, micro: Sequence[int]) -> list[str]:
    """Parts of compute, adding up to it as the cost line shows it."""
    digits = _digits(r.known_micro)
    compute = round(float(shown_total(r)[0].strip("$").replace(",", "")) * 10**digits)
    return amounts(micro, digits=digits, target=compute)


def _digits(micro: int) -> int:
    return 2 if micro >= 1_000_000 or micro == 0 else 4


def _heading(r: Report) -> Text:
    line = Text(r.job_id, style="bold")
    code = f" (exit {r.exit_code})" if r.exit_code is not None else ""
    line.append(f" · {r.phase.value}{code}", style="green" if r.phase.value == "succeeded" else "yellow")
    line.append(f" · {seconds((r.ended_s or r.as_of_s) - r.started_s)} since submission")
    if r.phase.value not in ("succeeded", "running"):
        line.append(f" · {spelled(r.phase_text)}")
    return line


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _split_table(r: Report) -> Table:
    table = _table(
        ("compute went to", "left"),
        ("", "right"),
        ("share", "right"),
        ("machine time", "right"),
        ("", "left"),
    )
    micro = r.split_micro
    shown = shown_parts(r, [getattr(micro, kind) for kind in KINDS]) if micro else ["unknown"] * 4
    whole = r.seconds.useful + r.seconds.waste
    for kind, text in zip(KINDS, shown, strict=True):
        spent_s = getattr(r.seconds, kind)
        # of the money where it is known; of the time where it is not
        part = spent_s / whole if whole else 0.0
        if micro is not None and micro.total > 0:
            part = getattr(micro, kind) / micro.total
        bar = Text(MARKS[kind] * round(part * BAR), style=STYLES[kind])
        table.add_row(NAMES[kind], text, percent(part), seconds(spent_s), bar)
    return table


def percent(part: float) -> str:
    """Whole percent; a little is not nothing.

    >>> percent(0.0), percent(0.004), percent(0.276)
    ('0%', '<1%', '28%')
    """
    return "<1%" if 0 < part < 0.005 else f"{part:.0%}"


def of_limit(part: float) -> str:
    """Percent of a limit: what is not all of it does not read as if it were.

    >>> of_limit(0.42), of_limit(0.9974), of_limit(1.0), of_limit(1.004), of_limit(1.0000001)
    ('42%', '99.7%', '100%', '100.4%', 'just over 100%')
    """
    if part == 1.0 or percent(part) != "100%":
        return percent(part)
    fine = f"{part:.1%}"
    return fine if fine != "100.0%" else f"just {'over' if part > 1 else 'under'} 100%"


def saved_text(part: float) -> str:
    """Percent less than something else; no difference is shown as none.

    >>> saved_text(0.46), saved_text(0.004), saved_text(0.0001), saved_text(0.0), saved_text(0.999)
    ('46%', '0.4%', '<0.1%', '0%', '99.9%')
    >>> saved_text(-0.25), saved_text(-0.0001)
    ('-25%', '-<0.1%')
    """
    size, sign = abs(part), "-" if part < 0 else ""
    if size == 0:
        return "0%"
    if size < 0.0005:
        return f"{sign}<0.1%"
    return f"{sign}{size:.1%}" if size < 0.01 or 0.995 <= size < 1 else f"{sign}{size:.0%}"


def minimum_text(made: Account) -> str | None:
    """What of the split is no use that anybody made of a machine, but the cloud's least bill."""
    least = minimum_of(made)
    if least is None:
        return None
    money = "at an unknown price" if least.micro is None else amount(least.micro, made.report.known_micro)
    machines = "one machine's end" if least.machines == 1 else f"the ends of {least.machines} machines"
    kinds = " and ".join(NAMES[kind] for kind in KINDS if kind in least.kinds)
    return (
        f"of {kinds}, {seconds(least.seconds)} ({money}) were billed after {machines}:"
        f" the cloud bills at least {seconds(least.least_s)} of each"
    )


def _baseline_table(made: Account) -> Table:
    table = _table(
        ("the same work", "left"), ("cost", "right"), ("saved", "right"), ("how that is counted", "left")
    )
    total = made.report.total_micro
    for b in made.baselines:
        saving = b.saving(total)
        style = "dim" if saving is None else "green" if saving >= 0 else "red"
        table.add_row(
            b.label,
            "not known" if b.usd_micro is None else amount(b.usd_micro, b.usd_micro),
            Text("–" if saving is None else saved_text(saving), style=style),
            Text(b.basis, style="dim"),
        )
    return table


def _plan_table(made: Account) -> Table:
    table = _table(
        ("the plan at launch", "left"), ("p50", "right"), ("p90", "right"), ("came", "right"), ("", "left")
    )
    for row in beside_plan(made):
        style = "dim" if row.good is None else "green" if row.good else "red"
        table.add_row(row.what, row.p50, row.p90, row.came, Text(row.verdict, style=style))
    return table


def _narrow(r: Report, width: int) -> bool:
    """Whether a place and a type, whole, leave too little for the figures beside them."""
    names = max(len(c.offer.place) for c in r.leases) + max(len(c.offer.instance_type) for c in r.leases)
    return width < max(NARROW, names + FIGURES)


def _machine_table(r: Report, *, narrow: bool) -> Table:
    """``narrow``: the type stands below the place."""
    table = _table(
        ("machine", "left"), *(() if narrow else (("type", "left"),)), ("market", "left"),
        ("paid for", "right"), ("mean price", "right"), ("cost", "right"), ("end", "left"),
    )  # fmt: skip
    for column in table.columns[: 1 if narrow else 2]:
        column.no_wrap = True
    for cost, total in zip(r.leases[:MOST_MACHINES], machine_amounts(r), strict=False):
        price = "free" if cost.free else rate(cost.usd_per_hour)
        place, kind = cost.offer.place, cost.offer.instance_type
        if narrow and cost.offer.zone and len(place) > LONG:  # broken before its zone, not within a name
            place = f"{cost.offer.cloud}/{cost.offer.region}/\n  {cost.offer.zone}"
        name = (f"{place}\n  {kind}",) if narrow else (place, kind)
        market = cost.offer.market.value
        table.add_row(*name, market, seconds(cost.billed_s), price, total, ending(cost))
    if len(r.leases) > MOST_MACHINES:
        table.add_row(f"and {len(r.leases) - MOST_MACHINES} more (--json, --html)", *[""] * 5)
    return table


def machine_amounts(r: Report) -> list[str]:
    if r.compute_micro is not None:
        return shown_parts(r, [cost.micro.total if cost.micro else 0 for cost in r.leases])
    return ["unknown" if c.micro is None else amount(c.micro.total, r.known_micro) for c in r.leases]


def ending(cost: LeaseCost) -> str:
    if cost.ended_s is None:
        return "still paid for"
    if cost.cause == "interrupted":
        return "interrupted, announced" if cost.noticed else "interrupted without notice"
    if cost.noticed:
        return "handed over after notice"
    return {"terminated": "released", "self": "ended itself"}.get(cost.cause or "", "gone, cause unknown")


def _strip(console: Console, made: Account) -> None:
    """One row per machine over the job's market time, one for its steps."""
    r = made.report
    shown = r.leases[:MOST_MACHINES]
    start = min(r.started_s, *(cost.launched_s for cost in r.leases))
    end = max(start + 1e-9, *(cost.launched_s + cost.billed_s for cost in r.leases))
    # the price before the place: on a narrow screen a long name is what is cut
    labels = [f"  {'free' if c.free else rate(c.usd_per_hour)}  {c.offer.place}" for c in shown]
    steps = made.steps if any(step > 0 for _at, step in made.steps) else ()
    to = f"  steps, to {max(step for _at, step in steps):,}" if steps else ""
    width = max(20, min(STRIP, console.width - 2 - max(map(len, (*labels, to)))))
    cell = (end - start) / width
    for cost, label in zip(shown, labels, strict=True):
        row = Text("  ")
        for i in range(width):
            at = start + (i + 0.5) * cell
            kind = next((s.kind for s in cost.spans if s.from_s <= at < s.to_s), None)
            row.append(MARKS[kind] if kind else " ", style=STYLES[kind] if kind else "")
        if cost.ended_s is not None and (cost.noticed or cost.cause == "interrupted"):
            at_cell = min(width - 1, max(0, int((cost.ended_s - start) / cell)))
            row = row[: at_cell + 2] + Text("✕", style="bold red") + row[at_cell + 3 :]
        row.append(label, style="dim")
        console.print(row, no_wrap=True, overflow="crop")
    if steps:
        console.print(_progress(steps, start, cell, width, to), no_wrap=True, overflow="crop")
    legend = Text("  ")
    for kind in KINDS:
        legend.append(f"{MARKS[kind]} ", style=STYLES[kind])
        legend.append(f"{NAMES[kind]}   ", style="dim")
    legend.append("✕ ", style="bold red")
    legend.append(f"interrupted   one cell = {seconds(cell)}", style="dim")
    console.print(legend)
    console.print()


def _progress(steps: Sequence[tuple[float, int]], start: float, cell: float, width: int, to: str) -> Text:
    """Height = the last step known at that time; a fall is work that had to be done again."""
    blocks = " ▁▂▃▄▅▆▇█"
    top = max(step for _at, step in steps)
    row = Text("  ")
    for i in range(width):
        known = [step for at, step in steps if at <= start + (i + 1) * cell]
        row.append(blocks[round((known[-1] if known else 0) / top * 8)], style="blue")
    row.append(to, style="dim")
    return row


def _counts(r: Report) -> str:
    announced = f", {r.interruptions_with_notice} announced" if r.interruptions else ""
    machine_hours = hours(sum(cost.billed_s for cost in r.leases) / 3600)
    parts = [
        count(r.interruptions, "interruption") + announced,
        count(r.migrations, "migration"),
        count(r.attempts, "attempt"),
        f"{count(len(r.leases), 'machine')}, {machine_hours}",
        "final step unknown" if r.final_step is None else f"final step {r.final_step:,}",
    ]
    return " · ".join(parts)


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
