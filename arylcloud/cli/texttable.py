"""Plain tables and wrapped paragraphs, without the start-up time of a rendering library."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

BOLD, DIM, END = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def width() -> int:
    """Columns of the terminal; 150 (or ``COLUMNS``) where stdout is none: a file has no right edge."""
    return shutil.get_terminal_size((150, 40)).columns


def styled(text: str, style: str) -> str:
    from arylcloud.cli.output import colour

    return f"{style}{text}{END}" if text and colour(sys.stdout) else text


def shown_width(line: str) -> int:
    """Columns that it takes: its colours take none."""
    for style in (BOLD, DIM, END):
        line = line.replace(style, "")
    return len(line)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    shrink: Sequence[int] = (),
    columns: int = 120,
    bold_rows: frozenset[int] = frozenset(),
) -> str:
    """Lines of aligned cells. ``right``: columns of numbers; ``shrink``: the columns that give way, in
    this order and down to 12 characters, with an ellipsis where the whole is wider than ``columns``.

    >>> print(table(["a", "n"], [["x", "1"], ["yy", "10"]], right=frozenset({1})))
    a    n
    x    1
    yy  10
    """
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    for i in shrink:
        over = sum(widths) + 2 * (len(widths) - 1) - columns
        widths[i] = max(widths[i] - max(over, 0), min(widths[i], 12))

    def line(cells: Sequence[str]) -> str:
        parts = []
        for i, cell in enumerate(cells):
            text = cell if len(cell) <= widths[i] else cell[: widths[i] - 1] + "…"
            parts.append(text.rjust(widths[i]) if i in right else text.ljust(widths[i]))
        return "  ".join(parts).rstrip()

    lines = [styled(line(headers), DIM)]
    lines += [styled(line(row), BOLD) if i in bold_rows else line(row) for i, row in enumerate(rows)]
    return "\n".join(lines)


def paragraph(text: str, *, columns: int, first: str = "", rest: str = "") -> str:
    """Wrapped at words; ``first`` and ``rest`` stand before the first and the later lines."""
    return textwrap.fill(
        text,
        max(columns, 40),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
