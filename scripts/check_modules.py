"""Modules hold one idea: none over 400 lines, and every one says in its docstring what it is for."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MOST_LINES = 400


def main() -> int:
    root = Path(__file__).resolve().parent.parent / "arylcloud"
    faults = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        count = text.count("\n")
        where = path.relative_to(root.parent)
        if count > MOST_LINES:
            faults.append(f"{where}: {count} lines, at most {MOST_LINES} are allowed")
        if text.strip() and ast.get_docstring(ast.parse(text)) is None and path.name != "__main__.py":
            faults.append(f"{where}: no docstring says what the module is for")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
