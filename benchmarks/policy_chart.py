"""A log-log chart as SVG by hand: no dependency, and readable on a light page and on a dark one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 44, 48
HUES = ("#2f6fd6", "#d1592a", "#2a9d5c", "#a05fc4", "#c99a1c", "#1a9fb5", "#d6437f", "#7b8794")
STYLE = """
 text { font: 13px system-ui, sans-serif; fill: #24292f } .soft { fill: #57606a } .grid { stroke: #d0d7de }
 @media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .soft { fill: #9aa4af } .grid { stroke: #3b434c }
 }
"""


def chart(
    title: str, across: str, up: str, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> str:
    """``lines``: name → (x, y), all > 0."""
    xs = [x for line in lines.values() for x in line[0]]
    ys = [y for line in lines.values() for y in line[1]]
    low_x, high_x = math.log10(min(xs)), math.log10(max(xs))
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at(x: float, y: float) -> tuple[float, float]:
        part_x = (math.log10(x) - low_x) / (high_x - low_x)
        part_y = (math.log10(y) - low_y) / (high_y - low_y)
        return LEFT + part_x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - part_y * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="600">{title}</text>',
    ]
    right = WIDTH - RIGHT
    for power in range(low_y, high_y + 1):
        _, y = at(10**low_x, 10.0**power)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for power in range(math.ceil(low_x), math.floor(high_x) + 1):
        x, _ = at(10.0**power, 10.0**low_y)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        label = f'x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
        parts.append(f'<text class="soft" {label}>{10**power:,}</text>')
    label = f'x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle"'
    parts.append(f'<text class="soft" {label}>{across}</text>')
    parts.append(f'<text class="soft" x="{LEFT - 8}" y="{TOP - 8}" text-anchor="end">{up}</text>')
    # names at the lines' ends, pushed apart
    ends = sorted((at(line[0][-1], line[1][-1])[1], name) for name, line in lines.items())
    place: dict[str, float] = {}
    lowest = 0.0
    for y, name in ends:
        lowest = place[name] = max(y, lowest + 17)
    for hue, (name, (x_of, y_of)) in zip(HUES, lines.items(), strict=False):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, x_of, y_of))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{hue}" stroke-width="2"/>')
        x, y = at(x_of[-1], y_of[-1])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{hue}"/>')
        parts.append(f'<text x="{right + 14}" y="{place[name] + 4:.1f}" style="fill:{hue}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"
