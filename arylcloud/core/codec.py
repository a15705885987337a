"""Frozen dataclasses to JSON documents and back, checked on the way in.

``decode(cls, encode(x)) == x`` for every value of this package. Unknown keys are ignored (a newer
writer may add some); missing keys without a default, and values of the wrong type, are an
:class:`~arylcloud.core.errors.IntegrityError` that names the place.

Every look at a heartbeat comes by here: of each dataclass it is worked out once how it is read and written,
and the name of a place is put together only where something is wrong with it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from arylcloud.core.errors import IntegrityError

T = TypeVar("T")
SCHEMA_VERSION = 1

_Read = Callable[[Any], Any]
"""From a JSON value; raises _WrongError."""
_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types of most values, of all documents: JSON has them as they are."""


def encode(value: object) -> Any:
    """Plain JSON value of ``value``; NaN and infinities are refused (they are not JSON)."""
    kind: type = type(value)
    return value if kind in _PLAIN else _writer(kind)(value)


def dumps(value: object) -> bytes:
    """Canonical bytes: the same value always gives the same bytes (digests rely on it)."""
    return _CANONICAL(encode(value)).encode()


_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,  # ``encode`` has made it: a tree
).encode


def loads(cls: type[T], data: bytes, *, what: str = "document") -> T:
    return decode(cls, parse(data, what=what), where=what)


def parse(data: bytes, *, what: str = "document") -> Any:
    """JSON value of ``data``; anything else is an integrity error, never a ValueError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what} is not valid JSON: {error}") from error


def decode(cls: type[T], value: Any, *, where: str = "document") -> T:
    read = _dataclass(cls) if dataclasses.is_dataclass(cls) else _reader(cls)
    try:
        return typing.cast(T, read(value))
    except _WrongError as error:
        raise IntegrityError(f"{where}{error.place}: {error.text}") from error.__cause__


class _WrongError(Exception):
    """A value that is not what its type says."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, ""

    def within(self, part: str) -> _WrongError:
        """The same, seen from one further out."""
        self.place = part + self.place
        return self


def _wrong(wanted: str, value: Any) -> _WrongError:
    return _WrongError(f"{wanted} was expected, not {value!r:.80}")


# ---------------------------------------------------------------- by type


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, Enum):
        return attrgetter("_value_")
    if dataclasses.is_dataclass(kind):
        names = tuple(f.name for f in dataclasses.fields(kind))
        return lambda value: {
            name: found if type(found := getattr(value, name)) in _PLAIN else encode(found) for name in names
        }
    if issubclass(kind, (tuple, list)):
        return lambda value: [encode(item) for item in value]
    if issubclass(kind, dict):
        return lambda value: {str(key): encode(item) for key, item in value.items()}
    if issubclass(kind, float):
        return _finite
    if issubclass(kind, (str, int)):
        return lambda value: value
    raise TypeError(f"no JSON form for {kind.__name__}")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be written as JSON")
    return value


def _reader(hint: Any) -> _Read:
    """Not cached by the type: ``int | float`` is equal to ``float | int``, and reads otherwise."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: value
    if hint is float:
        return _float
    if hint is int:
        return _int
    if origin is typing.Union or origin is types.UnionType:
        return _union(args)
    if origin is typing.Literal:
        return _literal(args)
    if origin is tuple:
        return _tuple(_reader(args[0]))
    if origin is dict:
        return _dict(_reader(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(typing.cast(type, hint))
    return _exactly(hint)


def _exactly(hint: Any) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not hint:
            raise _wrong(getattr(hint, "__name__", str(hint)), value)
        return value

    return read


def _int(value: Any) -> Any:
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        raise _wrong("an integer", value)
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong("a number", value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise _wrong("a finite number", value)
    return found


def _union(args: tuple[Any, ...]) -> _Read:
    """The first that fits."""
    nothing = type(None)
    may_be_null, options = nothing in args, [_reader(arg) for arg in args if arg is not nothing]

    def read(value: Any) -> Any:
        if value is None and may_be_null:
            return None
        last: Exception = _WrongError("must be null")
        for option in options:
            try:
                return option(value)
            except (_WrongError, IntegrityError) as error:
                last = error
        raise last

    return options[0] if len(options) == 1 and not may_be_null else read


def _literal(args: tuple[Any, ...]) -> _Read:
    def read(value: Any) -> Any:
        if value not in args:
            raise _WrongError(f"{value!r} is none of {args}")
        return value

    return read


def _tuple(item: _Read) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        found = []
        for part in value:
            try:
                found.append(item(part))
            except _WrongError as error:
                raise error.within(f"[{len(found)}]") from error.__cause__
        return tuple(found)

    return read


def _dict(item: _Read) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        found = {}
        for key, part in value.items():
            try:
                found[key] = item(part)
            except _WrongError as error:
                raise error.within(f".{key}") from error.__cause__
        return found

    return read


def _enum(hint: type[Enum]) -> _Read:
    def read(value: Any) -> Any:
        try:
            return hint(value)
        except ValueError as error:
            raise _WrongError(f"{value!r} is no {hint.__name__}") from error

    return read


@cache
def _dataclass(cls: type) -> _Read:
    fields: list[tuple[str, _Read, bool]] = []
    """Name, how it is read, and whether it has to be there: on first use, since a class may hold itself."""

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        found: dict[str, Any] = {}
        for name, part, needed in fields or _learn(cls, fields):
            if name in value:
                try:
                    found[name] = part(value[name])
                except _WrongError as error:
                    raise error.within(f".{name}") from error.__cause__
            elif needed:
                raise _WrongError(f"{name} is missing")
        return cls(**found)

    return read


def _learn(cls: type, fields: list[tuple[str, _Read, bool]]) -> list[tuple[str, _Read, bool]]:
    hints, none = typing.get_type_hints(cls), dataclasses.MISSING
    found = [
        (f.name, _reader(hints[f.name]), f.default is none and f.default_factory is none)
        for f in dataclasses.fields(cls)
    ]
    fields[:] = found  # at once: other threads may be reading
    return fields
