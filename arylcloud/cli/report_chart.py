"""One SVG of a job: price, placement and progress over the same market time. No script, no file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from arylcloud.cli.report_text import NAMES, ending
from arylcloud.launcher.worktime import kept_until_s

if TYPE_CHECKING:
    from arylcloud.cli.report import Account
    from arylcloud.launcher.ledger import LeaseCost
    from arylcloud.launcher.state import JobState, Training

WIDTH: Final = 1080
LEFT: Final = 74
RIGHT: Final = 16
ROW: Final = 26
PRICE_HEIGHT: Final = 150
STEP_HEIGHT: Final = 140
GAP: Final = 44
AFTER_END: Final = "billed after its end: the cloud's minimum"
PLACES: Final = 6
"""Colours in the style sheet: p0 … p5, then again."""
_NICE_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps [``low``, ``high``] onto pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)


def chart(made: Account) -> str:
    """The figure, or a sentence where no machine ever ran."""
    leases = made.report.leases
    if not leases:
        return "<p>No machine ever ran for this job.</p>"
    start = min(made.report.started_s, *(cost.launched_s for cost in leases))
    end = max(start + 1.0, *(cost.launched_s + cost.billed_s for cost in leases))
    x = Scale(low=start, high=end, start=LEFT, end=WIDTH - RIGHT)
    places = place_colours(leases)
    rows_top = 24 + PRICE_HEIGHT + GAP
    steps_top = rows_top + ROW * len(leases) + GAP
    height = steps_top + STEP_HEIGHT + 34
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="chart-title">',
        "<title id='chart-title'>Price, placement and progress over time</title>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern></defs>',
        *_time_grid(x, 16, steps_top + STEP_HEIGHT),
        *_prices(made, x, Scale(low=0.0, high=1.0, start=24 + PRICE_HEIGHT, end=24), places),
        *_placement(leases, x, rows_top, places),
        *_progress(made, x, steps_top),
        "</svg>",
    ]
    return "\n".join(parts)


def place_colours(leases: Sequence[LeaseCost]) -> dict[str, str]:
    """Offer key → class of its colour, in order of appearance."""
    keys = dict.fromkeys(cost.offer.key for cost in leases)
    return {key: f"p{i % PLACES}" for i, key in enumerate(keys)}


def elapsed(s: float) -> str:
    """Time since submission, which nobody takes for a time of day.

    >>> elapsed(0), elapsed(42), elapsed(1281), elapsed(600), elapsed(11100), elapsed(187200)
    ('0', '42 s', '21 min 21 s', '10 min', '3 h 05 min', '2 d 04 h')
    """
    sign, whole = ("-" if s < -0.5 else ""), abs(round(s))
    if whole < 3600:
        parts = [f"{whole // 60} min" if whole >= 60 else "", f"{whole % 60} s" if whole % 60 else ""]
    elif whole < 2 * 86400 and whole % 86400:
        whole = round(whole / 60) * 60
        parts = [f"{whole // 3600} h", f"{whole % 3600 // 60:02d} min" if whole % 3600 else ""]
    else:
        whole = round(whole / 3600) * 3600
        parts = [f"{whole // 86400} d", f"{whole % 86400 // 3600:02d} h" if whole % 86400 else ""]
    return (sign + " ".join(part for part in parts if part)) or "0"


def _time_grid(x: Scale, top: float, bottom: float) -> list[str]:
    span = x.high - x.low
    step = next((s for s in _NICE_S if span / s <= 9), math.ceil(span / 8 / 604800) * 604800)
    parts = []
    for i in range(int(span // step) + 1):
        at = x(x.low + i * step)
        parts.append(f'<line x1="{at}" y1="{top}" x2="{at}" y2="{bottom}" class="grid"/>')
        label = elapsed(i * step)
        parts.append(f'<text x="{at}" y="{bottom + 18}" class="tick" text-anchor="middle">{label}</text>')
    return parts


def _nice_ticks(top: float, most: int = 4) -> list[float]:
    """0 … at least ``top`` in steps of 1, 2 or 5 times a power of ten."""
    raw = top / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def _axis(title: str, y: Scale, ticks: Sequence[float], text: str) -> list[str]:
    parts = [f'<text x="{LEFT}" y="{y.end - 10}" class="panel">{escape(title)}</text>']
    for tick in ticks:
        at = y(tick)
        parts.append(f'<line x1="{LEFT}" y1="{at}" x2="{WIDTH - RIGHT}" y2="{at}" class="grid"/>')
        label = escape(text.format(tick))
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4}" class="tick" text-anchor="end">{label}</text>')
    return parts


def _prices(made: Account, x: Scale, frame: Scale, places: dict[str, str]) -> list[str]:
    known = [p.usd_per_hour for cost in made.report.leases for p in cost.prices]
    if not known or max(known) <= 0:
        return [f'<text x="{LEFT}" y="{frame.end}" class="panel">Price: not known</text>']
    ticks = _nice_ticks(max(known) * 1.05)
    y = Scale(low=0.0, high=ticks[-1], start=frame.start, end=frame.end)
    decimals = 2 if ticks[1] >= 0.01 else 4
    parts = _axis("Price in force, $ per machine-hour", y, ticks, f"{{:.{decimals}f}}")
    for cost in made.report.leases:
        end = cost.launched_s + cost.billed_s
        path: list[str] = []
        for i, point in enumerate(cost.prices):
            until = cost.prices[i + 1].from_s if i + 1 < len(cost.prices) else end
            a, b = max(point.from_s, cost.launched_s), min(until, end)
            if b > a:
                path += [f"{'L' if path else 'M'}{x(a)},{y(point.usd_per_hour)}", f"H{x(b)}"]
        title = escape(f"{cost.offer.key}: {len(cost.prices)} price step(s)")
        cls = places[cost.offer.key]
        parts.append(f'<path d="{" ".join(path)}" class="line {cls}"><title>{title}</title></path>')
    return parts


def drawn_spans(cost: LeaseCost) -> list[tuple[str, float, float]]:
    """(kind, from, to) with what is billed after the machine's end told apart."""
    found: list[tuple[str, float, float]] = []
    end = math.inf if cost.ended_s is None else cost.ended_s
    for span in cost.spans:
        if span.from_s < end:
            found.append((span.kind, span.from_s, min(span.to_s, end)))
        if span.to_s > end:
            found.append(("after", max(span.from_s, end), span.to_s))
    return found


def _placement(leases: Sequence[LeaseCost], x: Scale, top: float, places: dict[str, str]) -> list[str]:
    parts = [f'<text x="{LEFT}" y="{top - 10}" class="panel">Machines, and what their time went to</text>']
    for i, cost in enumerate(leases):
        y = top + i * ROW
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" class="tick" text-anchor="end">{i + 1}</text>')
        for kind, from_s, to_s in drawn_spans(cost):
            when = f"{elapsed(from_s - x.low)} to {elapsed(to_s - x.low)}"
            title = escape(f"{cost.offer.key}: {NAMES.get(kind, AFTER_END)}, {when}")
            at, width = x(from_s), max(0.5, round(x(to_s) - x(from_s), 2))
            cls = f"{kind} {places[cost.offer.key]}"
            parts.append(
                f'<rect x="{at}" y="{y + 3}" width="{width}" height="{ROW - 8}" class="span {cls}">'
                f"<title>{title}</title></rect>"
            )
        if cost.ended_s is not None and (cost.noticed or cost.cause == "interrupted"):
            at = x(cost.ended_s)
            title = escape(f"{ending(cost)} at {elapsed(cost.ended_s - x.low)}")
            cls = "cut announced" if cost.noticed else "cut"
            cross = f'<path d="M{at - 5},{y + 7} l10,10 m0,-10 l-10,10"/>'
            parts.append(f'<g class="{cls}"><title>{title}</title>{cross}</g>')
        parts += _row_label(cost, x, y)
    return parts


def _row_label(cost: LeaseCost, x: Scale, y: float) -> list[str]:
    """Beside the bar, on the side where there is room; inside neither: the table below names it."""
    text = f"{cost.offer.place} · {cost.offer.instance_type} · {cost.offer.market.value}"
    room = 6.6 * len(text)
    after, before = x(cost.launched_s + cost.billed_s) + 12, x(cost.launched_s) - 10
    if after + room <= WIDTH - RIGHT:
        return [f'<text x="{after}" y="{y + 16}" class="tick">{escape(text)}</text>']
    if before - room >= LEFT:
        return [f'<text x="{before}" y="{y + 16}" class="tick" text-anchor="end">{escape(text)}</text>']
    return []


def _progress(made: Account, x: Scale, top: float) -> list[str]:
    """Steps while a command ran; those that no later checkpoint holds are drawn as gone."""
    known = made.steps
    highest = max((step for _at, step in known), default=0)
    if highest <= 0:
        return [f'<text x="{LEFT}" y="{top - 10}" class="panel">Steps: none yet</text>']
    ticks = _nice_ticks(float(highest))
    y = Scale(low=0.0, high=ticks[-1], start=top + STEP_HEIGHT, end=top)
    parts = _axis("Steps", y, ticks, "{:,.0f}")
    kept = kept_until_s(made.state)
    for training in made.state.trainings:
        points = _points(made.state, training)
        cut = kept[training.epoch]
        solid = [p for p in points if p[0] <= cut]
        lost = [*solid[-1:], *(p for p in points if p[0] > cut)]
        for name, some in (("steps", solid), ("steps gone", lost)):
            if len(some) > 1:
                clock = made.state.market_clock
                moves = [f"{x(clock.market_s(at))},{y(step)}" for at, step in some]
                title = f"epoch {training.epoch}" + (", lost" if some is lost else "")
                parts.append(
                    f'<path d="M{" L".join(moves)}" class="line {name}"><title>{title}</title></path>'
                )
    for c in made.state.checkpoints:
        at = x(made.state.market_clock.market_s(c.saved_at_s))
        title = escape(f"checkpoint of step {c.step:,}, epoch {c.epoch}")
        parts.append(
            f'<circle cx="{at}" cy="{y(c.step)}" r="3.2" class="mark"><title>{title}</title></circle>'
        )
    return parts


def _points(state: JobState, training: Training) -> list[tuple[float, int]]:
    """(wall seconds, step) that the journal knows of one command, in order of time."""
    saved = [(c.saved_at_s, c.step) for c in state.checkpoints if c.epoch == training.epoch]
    points = (
        saved
        if saved and saved[0][0] <= training.started_at_s
        else [
            (training.started_at_s, training.first_step),
            *saved,
        ]
    )
    if training.stopped_at_s is not None and training.last_step is not None:
        points.append((training.stopped_at_s, training.last_step))
    return sorted(points)
