"""Quantities as people write and read them: ``36h``, ``$500``, ``40000 steps``. Standard library only.

Every ``parse`` function takes ``what`` (the key or flag that held the value) and raises
:class:`~arylcloud.core.errors.UsageError` with one line that names it, the value and the forms that
are understood. A bare number is never guessed to be seconds, hours or anything else.
"""

from __future__ import annotations

import math
import re
from datetime import date

from arylcloud.core.errors import UsageError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNIT_WORDS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
    "day": "d", "days": "d", "week": "w", "weeks": "w",
}  # fmt: skip
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_DURATION_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zA-Z]+)")
_SIZE = re.compile(rf"\s*({_NUMBER})\s*([kKmMgGtTpP]?)(i?)[bB]?\s*\Z")
_SIZE_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_WORK = re.compile(rf"\s*({_NUMBER})\s*([kKmMbBtT]?)\s+([a-zA-Z]+)\s*\Z")
_MULTIPLE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
WORK_UNITS = ("steps", "samples", "images", "tokens")
RATE_UNITS = tuple(f"{unit}/s" for unit in WORK_UNITS)


def parse_duration_s(value: object, *, what: str) -> float:
    """Seconds of ``36h``, ``90m``, ``1.5d``, ``2h30m``, ``45 min``; positive."""
    return _positive(parse_pause_s(value, what=what), value, what)


def parse_pause_s(value: object, *, what: str) -> float:
    """A duration that may be 0 (``0h``): none at all.

    >>> parse_pause_s("2h30m", what="at_most_every")
    9000.0
    """
    hint = "write it with a unit: 90m, 36h, 2h30m, 1.5d"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise UsageError(f"{what}: {value} has no unit", hint=hint)
    if isinstance(value, date):  # YAML has read one
        raise UsageError(f"{what}: {value.isoformat()} is a date, not a time from submission", hint=hint)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what}: {value!r} is not a duration", hint=hint)
    total, at = 0.0, 0
    text = value.strip()
    while at < len(text):
        part = _DURATION_PART.match(text, at)
        unit = None
        if part is not None:
            word = part[2] if part[2] == "M" else part[2].lower()
            unit = _UNIT_WORDS.get(word, word)
        if part is None or unit not in _SECONDS:
            if re.fullmatch(_NUMBER, text):
                raise UsageError(f"{what}: {value} has no unit", hint=hint)
            raise UsageError(f"{what}: {value!r} is not a duration", hint=hint)
        total += float(part[1]) * _SECONDS[unit]
        at = part.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return total


def parse_usd(value: object, *, what: str) -> float:
    """Dollars of ``$500``, ``500``, ``1,200.50``, ``500 USD``; positive.

    >>> parse_usd("$1,200", what="budget")
    1200.0
    """
    if isinstance(value, str):
        text = re.sub(r"(?i)\s*usd\Z", "", value.strip()).removeprefix("$").replace(",", "").strip()
        if not re.fullmatch(rf"[+-]?{_NUMBER}", text.removeprefix("-$")):
            raise UsageError(f"{what}: {value!r} is not an amount of money", hint="write it as $500 or 500")
        number = float(text.replace("-$", "-"))
    else:
        number = parse_number(value, what=what)
    return _positive(number, value, what)


def parse_usd_per_hour(value: object, *, what: str) -> float:
    """As :func:`parse_usd`; ``$12/h`` and ``12 per hour`` are understood too."""
    if isinstance(value, str):
        value = re.sub(r"(?i)\s*(/|per)\s*(h|hr|hour)\Z", "", value.strip())
    return parse_usd(value, what=what)


def parse_size_gb(value: object, *, what: str) -> float:
    """Decimal gigabytes of ``500`` (GB, as the key's name says), ``500GB``, ``1.5 TB``, ``20GiB``."""
    if isinstance(value, str):
        match = _SIZE.match(value)
        if match is None:
            raise UsageError(f"{what}: {value!r} is not a size", hint="write it as 500GB, 1.5TB or 20GiB")
        if not match[2] and "b" not in value.lower():
            return _positive(float(match[1]), value, what)
        base = 1024.0 if match[3] else 1000.0
        return _positive(float(match[1]) * base ** _SIZE_POWER[match[2].upper()] / 1e9, value, what)
    return _positive(parse_number(value, what=what), value, what)


def parse_work(value: object, *, what: str) -> tuple[float, str]:
    """Amount and unit of ``40000 steps``, ``300B tokens``, ``1.2e6 samples``.

    >>> parse_work("300B tokens", what="work")
    (300000000000.0, 'tokens')
    """
    hint = f"write it as a number and one of {', '.join(WORK_UNITS)}: 40000 steps"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise UsageError(f"{what}: {value} has no unit", hint=hint)
    match = _WORK.match(value.replace(",", "").replace("_", "")) if isinstance(value, str) else None
    if match is None:
        raise UsageError(f"{what}: {value!r} is not an amount of work", hint=hint)
    unit = match[3].lower()
    unit = unit if unit.endswith("s") else unit + "s"
    if unit not in WORK_UNITS:
        raise UsageError(f"{what}: {match[3]!r} is no unit of work", hint=hint)
    return _positive(float(match[1]) * _MULTIPLE[match[2].lower()], value, what), unit


def parse_rate_unit(text: str, *, what: str) -> str:
    """One of ``RATE_UNITS`` of ``steps/s``, ``step/sec``, ``Steps per second``, ``tokens / second``.

    >>> parse_rate_unit("steps/second", what="unit"), parse_rate_unit("image per sec", what="unit")
    ('steps/s', 'images/s')
    """
    match = re.fullmatch(r"([a-z]+?)s?\s*(?:/|\bper\b)\s*(?:s|secs?|seconds?)", text.strip().lower())
    unit = f"{match[1]}s/s" if match is not None else ""
    if unit not in RATE_UNITS:
        raise UsageError(f"{what}: {text!r} is no unit of throughput", hint=f"one of {', '.join(RATE_UNITS)}")
    return unit


def parse_fraction(value: object, *, what: str) -> float:
    """A fraction in [0, 1] of ``5%`` or ``0.05``.

    >>> parse_fraction("5%", what="min_saving")
    0.05
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.endswith("%"):
        number = parse_number(text[:-1], what=what) / 100
    else:
        number = parse_number(text, what=what)
    if not 0 <= number <= 1:
        raise UsageError(f"{what}: {value} is not between 0 and 100 %", hint="write it as 5% or 0.05")
    return number


def parse_number(value: object, *, what: str) -> float:
    """A finite number, also as text (``1.24e8``; YAML 1.1 reads ``124e6`` as text)."""
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        if re.fullmatch(rf"[+-]?{_NUMBER}", text):
            value = float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{what}: {value!r} is not a number")
    return float(value)


def parse_count(value: object, *, what: str, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    number = parse_number(value, what=what)
    if number != int(number):
        raise UsageError(f"{what}: {value} is not a whole number")
    if number < least:
        raise UsageError(f"{what}: {value} is too few", hint=f"{what} must be at least {least}")
    return int(number)


def parse_nodes(value: object, *, what: str) -> tuple[int, int]:
    """(least, most) machines of ``2`` or ``1..4``.

    >>> parse_nodes("1..4", what="nodes")
    (1, 4)
    """
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        least, most = parse_count(low, what=what), parse_count(high, what=what)
        if most < least:
            raise UsageError(f"{what}: {value} ends below its beginning", hint="write nodes as 2 or 1..4")
        return least, most
    count = parse_count(value, what=what)
    return count, count


def say_duration(s: float) -> str:
    """Seconds as people say them, never 0 of a large unit.

    >>> [say_duration(s) for s in (0.0, 0.3, 38.2, 720.0, 12240.0, 450000.0)]
    ['0 s', '< 1 s', '38 s', '12 min', '3.4 h', '5.2 d']
    """
    if s < 100:
        return "< 1 s" if 0 < s < 0.5 else f"{max(0.0, s):.0f} s"
    if s < 3600:
        return f"{s / 60:.0f} min"
    return f"{s / 3600:.1f} h" if s < 72 * 3600 else f"{s / 86400:.1f} d"


def say_limit(s: float) -> str:
    """A limit, or the least that one would have to be, in seconds: nothing of it is rounded away, and the
    ``parse`` functions read it.

    >>> [say_limit(s) for s in (0.2, 15.0, 60.0, 64.02, 125.0, 1800.0, 5400.0, 76320.0)]
    ['1 s', '15 s', '1 min', '65 s', '2 min 5 s', '30 min', '1.5 h', '21.2 h']
    """
    whole = math.ceil(round(s, 6))
    if whole < 100 and whole != 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{s / 3600:.6g} h"


def say_usd(usd: float) -> str:
    """Money to the cent; what is less than half a cent, and not nothing, is said to be.

    >>> say_usd(1234.5), say_usd(0.0), say_usd(0.003)
    ('$1,234.50', '$0.00', '< $0.01')
    """
    return "< $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def say_usd_limit(usd: float) -> str:
    """A limit in dollars as it was said: to the cent where that is all of it, else nothing is rounded away.

    >>> [say_usd_limit(usd) for usd in (500.0, 1200.5, 0.004, 12.345, 0.1 + 0.2, 1e-7)]
    ['$500.00', '$1,200.50', '$0.004', '$12.345', '$0.30', '$1e-07']
    """
    for digits in range(2, 7):
        if abs(round(usd, digits) - usd) < 1e-9:
            return f"${usd:,.{digits}f}"
    return f"${usd:g}" if usd < 1 else f"${usd:,.6f}"


def say_usd_over(usd: float, limit_usd: float) -> str:
    """Money that is more than a limit, with as many decimals as it takes to read so.

    >>> say_usd_over(12.3, 10.0), say_usd_over(10.004, 10.0), say_usd_over(10.0000000001, 10.0)
    ('$12.30', '$10.004', 'a little more than $10.00')
    """
    for digits in range(2, 7):
        if round(usd, digits) > limit_usd:
            return f"${usd:,.{digits}f}"
    return f"a little more than ${usd:,.2f}"


MOST = 1e18
"""Of anything: tokens of a training, seconds, dollars. What is more is a slip; no sum with it is right."""


def _positive(number: float, value: object, what: str) -> float:
    if not number <= MOST:
        raise UsageError(f"{what}: {value} is too large")
    if number <= 0:
        raise UsageError(f"{what}: {value} is not more than zero", hint="leave it out for no limit")
    return number
