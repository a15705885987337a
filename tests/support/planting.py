"""A module as it would be with another source: put into the living one, and taken out again.

What runs is swapped where it is (``function.__code__``, defaults, data), so that everybody who has imported
a name of the module runs the other source, too, whichever way they imported it. Not swapped: classes as such
(a member of an enum, a field of a dataclass).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_Undo = Callable[[], None]
_DATA = (bool, int, float, str, tuple, frozenset, dict, type(None))


@contextlib.contextmanager
def planted(module: ModuleType, code: CodeType) -> Iterator[None]:
    """Run the block with ``code`` (compiled of the whole module) in place of ``module``'s own.
    Raises ValueError where it cannot be put in, or where it would change nothing."""
    undo = plant(module, code)
    try:
        yield
    finally:
        for back in reversed(undo):
            back()


def plant(module: ModuleType, code: CodeType) -> list[_Undo]:
    """The same for good; returns how to undo it, to be called in reverse."""
    undo: list[_Undo] = []
    codes = dict(_codes(code))
    functions = dict(_functions(module))
    for name, function in functions.items():
        new = codes.get(name)
        if new is not None and new != function.__code__:
            undo.append(functools.partial(setattr, function, "__code__", function.__code__))
            function.__code__ = new
    if not undo:
        undo = _plant_data(module, code, functions)
    if not undo:
        raise ValueError(f"{module.__name__}: nothing would change")
    return undo


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const.co_qualname, const
            yield from _codes(const)


def _functions(owner: ModuleType | type) -> Iterator[tuple[str, FunctionType]]:
    """Functions and methods that are written in the module, by qualified name."""
    for value in list(vars(owner).values()):
        for found in _unwrapped(value):
            if found.__module__ == getattr(owner, "__module__", owner.__name__):
                yield found.__code__.co_qualname, found
        if isinstance(value, type) and value.__module__ == getattr(owner, "__module__", owner.__name__):
            yield from _functions(value)


def _unwrapped(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, property):
        parts = [value.fget, value.fset]
    elif isinstance(value, classmethod | staticmethod):
        parts = [value.__func__]
    elif isinstance(value, functools.cached_property):
        parts = [value.func]
    else:
        parts = [value]
    for part in parts:
        inner = inspect.unwrap(part) if callable(part) and hasattr(part, "__wrapped__") else part
        if isinstance(inner, FunctionType):
            yield inner


def _plant_data(module: ModuleType, code: CodeType, functions: dict[str, FunctionType]) -> list[_Undo]:
    fresh = ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    exec(code, fresh.__dict__)
    undo: list[_Undo] = []
    for name, new in vars(fresh).items():
        old = vars(module).get(name)
        if name.startswith("__") or not isinstance(new, _DATA) or new == old:
            continue
        if isinstance(old, dict):
            undo.append(functools.partial(_refill, old, dict(old)))
            _refill(old, new)
            continue
        for holder in list(sys.modules.values()):
            if holder.__name__.startswith(("arylcloud", "support")) and vars(holder).get(name) is old:
                undo.append(functools.partial(setattr, holder, name, old))
                setattr(holder, name, new)
    others = dict(_functions(fresh)) | dict(_makers(fresh))
    for name, function in {**functions, **dict(_makers(module))}.items():
        other = others.get(name)
        for kind in ("__defaults__", "__kwdefaults__"):
            mine, theirs = getattr(function, kind), getattr(other, kind, None)
            if mine != theirs and mine is not None and theirs is not None:
                undo.append(functools.partial(setattr, function, kind, mine))
                setattr(function, kind, theirs)
    return undo


def _makers(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Of its dataclasses: where the defaults of their fields are."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            init = vars(value).get("__init__")
            if isinstance(init, FunctionType):
                yield f"{value.__qualname__}.__init__", init


def _refill(target: dict[Any, Any], content: dict[Any, Any]) -> None:
    target.clear()
    target.update(content)
