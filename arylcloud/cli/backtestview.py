"""What ``backtest`` shows: a table and strips of the cost of all runs, in the terminal and as a page."""

from __future__ import annotations

import sys
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from arylcloud.cli.output import note, stdout
from arylcloud.cli.plantable import FEW_CENTS
from arylcloud.simulation.deadline.sweep import OPTIMUM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

    from arylcloud.simulation.deadline.sweep import Backtest

MARKS: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Quantiles of a strip: the whole range thin, the middle 80 % thick, the median marked."""


def document(made: Backtest, about: Mapping[str, Any]) -> dict[str, Any]:
    return {"policies": made.figures, "on_demand_usd": made.on_demand_usd, **about}


def _marks(made: Backtest) -> tuple[dict[str, list[float]], float]:
    """USD at the quantiles by policy, and the right end of the scale."""
    import numpy as np

    found = {}
    for name, usd in made.usd.items():
        finite = usd[np.isfinite(usd)]
        if finite.size:
            found[name] = [float(x) for x in np.quantile(finite, MARKS)]
    return found, max([made.on_demand_usd, *(marks[-1] for marks in found.values())])


HEADS: Final = (
    "mean\ncost", "p90\ncost", "over on\ndemand", "over\noptimum", "late", "taken\nback", "moves",
    "hours on\ndemand", "hours\nto end",
)  # fmt: skip
SHORT: Final = ("mean", "p90", "/od", "/opt", "late", "back", "moves", "od h", "end h")
"""The same where the names of policies would not fit beside them."""
SHORT_MEANS: Final = (
    "mean, p90: cost; /od, /opt: over that on demand, over the optimum's; back: taken back; "
    "od h: hours on demand; end h: hours to end"
)


def show(made: Backtest, about: Mapping[str, Any]) -> None:
    from arylcloud.cli.texttable import paragraph

    screen = stdout()
    table = _table(made, HEADS)
    short = screen.measure(table, options=screen.options.update(width=1000)).maximum > screen.width
    screen.print(_table(made, SHORT) if short else table)
    if short:
        sys.stdout.write(paragraph(SHORT_MEANS, columns=screen.width, first="  ", rest="  ") + "\n")
    sys.stdout.write("\n" + strips(made, screen.width) + "\n")
    note(_sentence(made, about))


def _table(made: Backtest, heads: tuple[str, ...]) -> Table:
    from rich.table import Table

    # on the narrowest screens names fold; a figure that is cut off would be a wrong one
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold")
    table.add_column("policy", overflow="fold", vertical="bottom")
    with_optimum = OPTIMUM in made.figures
    for i, head in enumerate(heads):
        if i != 3 or with_optimum:
            table.add_column(head, justify="right", no_wrap=True)
    for name, f in made.figures.items():
        cells = [_usd(f.cost_mean, made), _usd(f.cost_p90, made), f"{f.cost_over_on_demand:.3f}"]
        cells += ["-" if f.cost_over_optimum is None else f"{f.cost_over_optimum:.3f}"] * with_optimum
        cells += [f"{f.misses}/{f.runs}"]
        cells += [
            "-" if x is None else f"{x:.1f}"
            for x in (f.interruptions, f.moves, f.on_demand_h, f.finish_h_mean)
        ]
        table.add_row(name, *cells)
    return table


def _sentence(made: Backtest, about: Mapping[str, Any]) -> str:
    zones = len(about["zones"])
    least, most = about["machines_min"], about["machines"]
    gang = "" if most == 1 else f", {most} machines" if least == most else f", {least} to {most} machines"
    return (
        f"{about['work_h']:g} h of work in {about['deadline_h']:g} h on {about['instance_type']}{gang}; "
        f"{zones} zone{'s' * (zones != 1)}; {about['starts']} starts (seed {about['seed']}); on demand only: "
        f"{_usd(made.on_demand_usd, made)}"
    )


def strips(made: Backtest, columns: int = 80) -> str:
    """A line per policy: where its runs' costs lie between $0 and the dearest. Not wider than ``columns``
    (where names leave 20 of them)."""
    marks, top = _marks(made)
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    thin, thick, median = ("─", "━", "●") if unicode else ("-", "=", "o")
    margin = max(len(name) for name in marks)
    width = max(20, min(60, columns - margin - 1))
    lines = []
    for name, at in marks.items():
        low, p10, middle, p90, high = (min(width - 1, int(usd / top * width)) for usd in at)
        cells = [" "] * width
        cells[low : high + 1] = thin * (high + 1 - low)
        cells[p10 : p90 + 1] = thick * (p90 + 1 - p10)
        cells[middle] = median
        lines.append(f"{name:>{margin}} {''.join(cells).rstrip()}")
    right = _usd(top, made)
    lines.append(f"{'':>{margin}} $0{right:>{width - 2}}")
    key = "cost of a run: range, middle 80 %, median"
    lines.append(" " * max(0, min(margin + 1, columns - len(key))) + key)
    return "\n".join(lines)


def _usd(value: float, made: Backtest) -> str:
    """Cents; finer where they would make all policies look alike."""
    return f"${value:,.{2 if made.on_demand_usd >= FEW_CENTS else 4}f}"


def write(path: Path, text: str) -> None:
    """LocalStateError: it cannot be written."""
    from arylcloud.core.errors import LocalStateError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LocalStateError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="name a file in a folder that can be written",
        ) from error


def page(made: Backtest, about: Mapping[str, Any]) -> str:
    """A complete HTML document: one file, nothing fetched from anywhere."""
    style = resources.files("arylcloud.cli").joinpath("report.css").read_text(encoding="utf-8")
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{_usd(f.cost_mean, made)}</td>"
        f"<td class='n'>{_usd(f.cost_p90, made)}</td>"
        f"<td class='n'>{f.cost_over_on_demand:.3f}</td>"
        f"<td class='n'>{'–' if f.cost_over_optimum is None else f'{f.cost_over_optimum:.3f}'}</td>"
        f"<td class='n'>{f.misses} / {f.runs}</td>"
        f"<td class='n'>{'–' if f.interruptions is None else f'{f.interruptions:.1f}'}</td></tr>"
        for name, f in made.figures.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>backtest</title>
<style>
{style}</style>
</head>
<body>
<h1>Backtest</h1>
<p class="soft">{escape(_sentence(made, about))}</p>
<p class="soft">Trace: {escape(str(about["trace"]))}</p>
<h2>Cost of a run: range, middle 80 %, median</h2>
<div class="card">{_svg(made)}</div>
<h2>Figures</h2>
<div class="card"><table><thead><tr><th>policy</th><th class="n">mean</th><th class="n">p90</th>
<th class="n">of on-demand</th><th class="n">of optimum</th><th class="n">late</th>
<th class="n">interruptions</th></tr></thead><tbody>{rows}</tbody></table></div>
</body>
</html>
"""


def _svg(made: Backtest) -> str:
    marks, top = _marks(made)
    left, width, row = 220.0, 1040.0, 30
    scale = (width - left - 20) / top
    parts = [f'<svg viewBox="0 0 {width:g} {row * len(marks) + 40}" role="img">']
    bottom = row * len(marks) + 12
    for i in range(5):
        usd, x = top * i / 4, round(left + top * i / 4 * scale, 1)
        parts.append(f'<line x1="{x}" y1="4" x2="{x}" y2="{bottom}" class="grid"/>')
        parts.append(
            f'<text x="{x}" y="{bottom + 16}" class="tick" text-anchor="middle">{_usd(usd, made)}</text>'
        )
    for i, (name, at) in enumerate(marks.items()):
        y = row * i + 20
        low, p10, middle, p90, high = (round(left + usd * scale, 1) for usd in at)
        low_usd, median_usd, high_usd = (_usd(at[i], made) for i in (0, 2, 4))
        title = escape(f"{name}: {low_usd} to {high_usd}, median {median_usd}")
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" class="tick" text-anchor="end">{escape(name)}</text>'
        )
        parts.append(f'<g><title>{title}</title><path d="M{low},{y}H{high}" class="line p0"/>')
        parts.append(
            f'<rect x="{p10}" y="{y - 6}" width="{max(2.0, p90 - p10):.1f}" height="12" class="p0"/>'
        )
        parts.append(f'<circle cx="{middle}" cy="{y}" r="4.5" class="mark"/></g>')
    return "".join([*parts, "</svg>"])
