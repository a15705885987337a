"""Modules hold one idea: none over 400 lines, each says in its docstring what it is for, and each has
its place in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

MOST_LINES = 400


def on_the_map(page: str) -> set[tuple[str, str]]:
    """(room, module) of every row of the page's table; a row without a room goes on with the last."""
    found: set[tuple[str, str]] = set()
    room = ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5:
            continue
        room = cells[1].strip("`/ ") or room
        found |= {(room, name) for name in re.findall(r"`(\w+)/?`", cells[2])}
    return found


def main() -> int:
    root = Path(__file__).resolve().parent.parent / "arylcloud"
    known = on_the_map((root.parent / "docs" / "architecture.md").read_text(encoding="utf-8"))
    faults = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        count = text.count("\n")
        where = path.relative_to(root.parent)
        if count > MOST_LINES:
            faults.append(f"{where}: {count} lines, at most {MOST_LINES} are allowed")
        if text.strip() and ast.get_docstring(ast.parse(text)) is None and path.name != "__main__.py":
            faults.append(f"{where}: no docstring says what the module is for")
        room = path.parent.relative_to(root).as_posix().removesuffix("/reconcile")
        if (
            not path.name.startswith("__")
            and room not in (".", "training")
            and (room, path.stem) not in known
        ):
            faults.append(f"{where}: docs/architecture.md does not name it")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
