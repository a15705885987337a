"""Scatter charts in a terminal: braille dots where the output is UTF-8, plain letters where it is not."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell, by row (4) and column (2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float
    mark: str | None = None
    """A letter drawn over the dots; None = a dot."""


def scatter(
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    width: int = 64,
    height: int = 12,
    unicode: bool = True,
) -> str:
    """Text of ``height`` + 3 lines, at most ``width`` wide. Axes are linear, or logarithmic where the values
    span more than a factor of 8; both carry their unit and their ends. Points that are not positive and
    finite are left out; without any the text is empty.
    """
    shown = [p for p in points if 0 < p.x < math.inf and 0 < p.y < math.inf]
    if not shown:
        return ""
    x_axis, y_axis = _Axis([p.x for p in shown]), _Axis([p.y for p in shown])
    ticks = [y_axis.value(1 - row / (height - 1)) for row in range(height)]
    labels = {0: _short(ticks[0]), height // 2: _short(ticks[height // 2]), height - 1: _short(ticks[-1])}
    margin = max(len(text) for text in labels.values())
    columns = max(width - margin - 2, 16)
    cells = _cells(shown, x_axis, y_axis, columns, height, unicode)
    bar, corner, dash = ("│", "└", "─") if unicode else ("|", "+", "-")
    lines = [f"{y_label}{' (log)' if y_axis.log else ''}"]
    lines += [f"{labels.get(row, ''):>{margin}} {bar}{''.join(cells[row]).rstrip()}" for row in range(height)]
    lines.append(f"{'':>{margin}} {corner}{dash * columns}")
    left, middle, right = (_short(x_axis.value(at)) for at in (0.0, 0.5, 1.0))
    name = f"{x_label}{' (log)' if x_axis.log else ''}"
    axis = left + middle.center(columns - len(left) - len(right)) + right
    lines.append(f"{'':>{margin}}  {axis}")
    lines.append(f"{'':>{margin}}  {name.center(columns).rstrip()}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A value that holds until the next one: ``values[i]`` from ``at_s[i]`` on (ascending)."""

    at_s: Sequence[float]
    values: Sequence[float]
    mark: str | None = None
    """A letter at the right end of the line."""


def timeline(
    lines: Sequence[Steps],
    *,
    from_s: float,
    to_s: float,
    y_label: str,
    width: int = 64,
    height: int = 12,
    unicode: bool = True,
) -> str:
    """Text of ``height`` + 3 lines: each line's value from ``from_s`` to ``to_s`` (Unix seconds), which are
    shown as dates in UTC. Without a value in that time the text is empty."""
    points: list[Point] = []
    fine = max(width - 10, 16) * 2
    for line in lines:
        last: Point | None = None
        for column in range(fine):
            at_s = from_s + (column + 0.5) / fine * (to_s - from_s)
            i = bisect_right(line.at_s, at_s) - 1
            if i >= 0:
                last = Point(x=column + 1.0, y=line.values[i])
                points.append(last)
        if last is not None and line.mark is not None:
            points.append(Point(x=last.x, y=last.y, mark=line.mark))
    points = [p for p in points if 0 < p.y < math.inf]
    if not points:
        return ""
    y_axis = _Axis([p.y for p in points])
    ticks = [y_axis.value(1 - row / (height - 1)) for row in range(height)]
    labels = {0: _short(ticks[0]), height // 2: _short(ticks[height // 2]), height - 1: _short(ticks[-1])}
    margin = max(len(text) for text in labels.values())
    cells = _cells(points, _Whole(fine), y_axis, fine // 2, height, unicode)
    bar, corner, dash = ("│", "└", "─") if unicode else ("|", "+", "-")
    text = [f"{y_label}{' (log)' if y_axis.log else ''}"]
    text += [f"{labels.get(row, ''):>{margin}} {bar}{''.join(cells[row]).rstrip()}" for row in range(height)]
    text.append(f"{'':>{margin}} {corner}{dash * (fine // 2)}")
    form = "%d %b" if to_s - from_s > 3 * 86400 else "%d %b %H:%M"
    left, middle, right = (
        datetime.fromtimestamp(at_s, UTC).strftime(form) for at_s in (from_s, (from_s + to_s) / 2, to_s)
    )
    text.append(f"{'':>{margin}}  {left}{middle.center(fine // 2 - len(left) - len(right))}{right}")
    return "\n".join(text)


class _Whole:
    """Columns 1 to ``n``, each where it is."""

    def __init__(self, n: int) -> None:
        self._n = n

    def at(self, value: float) -> float:
        return (value - 0.5) / self._n


class _Scale(Protocol):
    def at(self, value: float) -> float: ...


class _Axis:
    """Values to [0, 1] and back, with a little room at both ends."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(values), max(values)
        self.log = high / low > 8
        a, b = (math.log(low), math.log(high)) if self.log else (low, high)
        room = (b - a) * 0.04 if b > a else max(abs(a) * 0.1, 0.1)
        self.low, self.high = a - room, b + room

    def at(self, value: float) -> float:
        return ((math.log(value) if self.log else value) - self.low) / (self.high - self.low)

    def value(self, at: float) -> float:
        inside = self.low + at * (self.high - self.low)
        return math.exp(inside) if self.log else inside


def _cells(
    points: Sequence[Point], x_axis: _Scale, y_axis: _Scale, columns: int, height: int, unicode: bool
) -> list[list[str]]:
    bits = [[0] * columns for _ in range(height)]
    marks: dict[tuple[int, int], str] = {}
    for p in points:
        fine_x = min(int(x_axis.at(p.x) * columns * 2), columns * 2 - 1)
        fine_y = min(int((1 - y_axis.at(p.y)) * height * 4), height * 4 - 1)
        row, column = fine_y // 4, fine_x // 2
        bits[row][column] |= _DOTS[fine_y % 4][fine_x % 2]
        if p.mark is not None:
            marks.setdefault((row, column), p.mark)
    cells = [[(chr(0x2800 + b) if unicode else ".") if b else " " for b in line] for line in bits]
    for (row, column), mark in marks.items():
        cells[row][column] = mark
    return cells


def _short(value: float) -> str:
    """Three digits, without an exponent: 0.0123, 4.56, 78.9, 1,230."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.01 else f"{value:.4f}"
