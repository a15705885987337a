"""Frozen dataclasses to JSON documents and back, checked on the way in.

``decode(cls, encode(x)) == x`` for every value of this package. Unknown keys are ignored (a newer
writer may add some); missing keys without a default, and values of the wrong type, are an
:class:`~arylcloud.core.errors.IntegrityError` that names the place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from arylcloud.core.errors import IntegrityError

T = TypeVar("T")
SCHEMA_VERSION = 1


def encode(value: object) -> Any:
    """Plain JSON value of ``value``; NaN and infinities are refused (they are not JSON)."""
    kind: type = type(value)
    if value is None or kind is str or kind is int or kind is bool:  # most values, of all documents
        return value
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be written as JSON")
    if isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def dumps(value: object) -> bytes:
    """Canonical bytes: the same value always gives the same bytes (digests rely on it)."""
    return json.dumps(
        encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def loads(cls: type[T], data: bytes, *, what: str = "document") -> T:
    return decode(cls, parse(data, what=what), where=what)


def parse(data: bytes, *, what: str = "document") -> Any:
    """JSON value of ``data``; anything else is an integrity error, never a ValueError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what} is not valid JSON: {error}") from error


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


@cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Of a dataclass: name, type, and whether it has to be there."""
    hints = typing.get_type_hints(cls)
    none = dataclasses.MISSING
    return tuple(
        (f.name, hints[f.name], f.default is none and f.default_factory is none)
        for f in dataclasses.fields(cls)
    )


@cache  # of the origin alone: ``int | float`` is equal to ``float | int``, and decodes otherwise
def _origin(hint: Any) -> Any:
    return typing.get_origin(hint)


def decode(cls: type[T], value: Any, *, where: str = "document") -> T:
    return typing.cast(T, _decode(cls, value, where))


def _decode(hint: Any, value: Any, where: str) -> Any:
    if hint is Any or (type(value) is hint and (hint is str or hint is int or hint is bool)):
        return value
    if hint is float:
        _expect(isinstance(value, (int, float)) and not isinstance(value, bool), where, "a number", value)
        _expect(math.isfinite(value), where, "a finite number", value)
        return float(value)
    origin = _origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        return _decode_union(hint, value, where)
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise IntegrityError(f"{where}: {value!r} is none of {typing.get_args(hint)}")
        return value
    if origin is tuple:
        item = typing.get_args(hint)[0]
        _expect(isinstance(value, list), where, "a list", value)
        return tuple(_decode(item, part, f"{where}[{i}]") for i, part in enumerate(value))
    if origin is dict:
        item = typing.get_args(hint)[1]
        _expect(isinstance(value, dict), where, "an object", value)
        return {key: _decode(item, part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise IntegrityError(f"{where}: {value!r} is no {hint.__name__}") from error
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(typing.cast(type, hint), value, where)
    if hint is int:
        _expect(isinstance(value, int) and not isinstance(value, bool), where, "an integer", value)
        return value
    _expect(type(value) is hint, where, getattr(hint, "__name__", str(hint)), value)
    return value


def _decode_union(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint)
    if value is None and type(None) in options:
        return None
    last: IntegrityError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, value, where)
        except IntegrityError as error:
            last = error
    raise last if last is not None else IntegrityError(f"{where}: must be null")


def _decode_dataclass(cls: type, value: Any, where: str) -> Any:
    _expect(isinstance(value, dict), where, "an object", value)
    found: dict[str, Any] = {}
    for name, hint, needed in _fields(cls):
        if name in value:
            found[name] = _decode(hint, value[name], f"{where}.{name}")
        elif needed:
            raise IntegrityError(f"{where}: {name} is missing")
    return cls(**found)


def _expect(ok: bool, where: str, wanted: str, value: Any) -> None:
    if not ok:
        raise IntegrityError(f"{where}: {wanted} was expected, not {value!r:.80}")
