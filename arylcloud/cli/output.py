"""Data on stdout, all else on stderr; JSON documents carry ``schema_version``; errors have hints."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from arylcloud.core.codec import SCHEMA_VERSION, encode
from arylcloud.core.errors import ArylError
from arylcloud.core.units import say_duration, say_usd

if TYPE_CHECKING:
    from rich.console import Console


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk that standard output or error goes to."""


def emit_json(document: dict[str, Any]) -> None:
    """One document on stdout, ``schema_version`` first. Values may be our dataclasses."""
    body = {"schema_version": SCHEMA_VERSION, **{key: encode(value) for key, value in document.items()}}
    sys.stdout.write(json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def error_document(error: ArylError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "cause_id": error.cause_id,
        }
    }


def print_error(error: ArylError, *, as_json: bool) -> None:
    if as_json:
        emit_json(error_document(error))
    if error.chosen:
        note(hanging(error.message, 2))
    else:
        note(hanging(f"error: {error.message}", 7), style="bold red")
    if error.hint:
        note(hanging(f"hint: {error.hint}", 6))


def note(text: str, *, style: str = "") -> None:
    """A line for people, on stderr; styled only on a terminal that wants colour."""
    try:
        if style and colour(sys.stderr):
            stderr().print(text, style=style, highlight=False, markup=False, soft_wrap=True)
        else:
            sys.stderr.write(text + "\n")
    except OSError as error:
        if error.errno not in FULL:  # else it cannot be said, and must not change what the command does
            raise


def hanging(text: str, indent: int, stream: Any = None) -> str:
    """``text`` broken at the width of the terminal, later lines ``indent`` columns in; as it is where
    ``stream`` (standard error) is no terminal: what reads it wants whole lines."""
    if not (stream or sys.stderr).isatty():
        return text
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns - 1)
    return textwrap.fill(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def colour(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def stdout() -> Console:
    """A rich console on stdout. Width: the terminal's; 120 where there is none."""
    return _console(sys.stdout, stderr_=False)


def stderr() -> Console:
    return _console(sys.stderr, stderr_=True)


def _console(stream: Any, *, stderr_: bool) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or 120)
    return Console(stderr=stderr_, width=width, no_color=not colour(stream), highlight=False, soft_wrap=False)


def usd(value: float | None) -> str:
    """Money to the cent; ``unknown`` for None, ``< $0.01`` for less than half a cent that is not
    nothing. Hourly prices have four decimals: use ``rate``."""
    return "unknown" if value is None else say_usd(value)


def rate(value: float | None) -> str:
    return "unknown" if value is None else f"${value:,.4f}/h"


def hours(value: float | None) -> str:
    """Hours as people say them: ``38 s``, ``42 min``, ``3.4 h``, ``5.2 d``."""
    return "unknown" if value is None else say_duration(value * 3600)


def seconds(value: float | None) -> str:
    """Seconds as people say them: ``38 s``, ``12 min``, ``3.4 h``."""
    return "unknown" if value is None else say_duration(value)
