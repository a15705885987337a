"""Plain flags are converted here: typer would load pydantic for them, a quarter of ``plan``'s start-up time.

Text, numbers, paths and lists of text need no validation library. Whatever is not plain (choices, files,
dates, a parser, checks of a path) is left to typer, and so is everything where its inside has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import core
from typer._click.exceptions import BadParameter

_PATH_CHECKS = ("exists", "writable", "executable", "resolve_path", "allow_dash", "path_type")
_PLAIN: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
}
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


class _Light:
    """Stands where typer keeps a parameter's converter; same call."""

    def __init__(self, kind: Any, is_list: bool, low: float | None, high: float | None) -> None:
        self.kind, self.is_list, self.low, self.high = kind, is_list, low, high

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if self.is_list:
            values = () if value is None else value if isinstance(value, (list, tuple)) else (value,)
            return [self._one(item, param, ctx) for item in values]
        return None if value is None else self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            found = _BOOLEANS[str(value).strip().lower()] if self.kind is bool else self.kind(value)
        except (ValueError, KeyError) as error:
            raise BadParameter(f"{value!r} is not {_PLAIN[self.kind]}.", ctx=ctx, param=param) from error
        if self.low is not None and found < self.low:
            raise BadParameter(f"{value} is less than {self.low}.", ctx=ctx, param=param)
        if self.high is not None and found > self.high:
            raise BadParameter(f"{value} is more than {self.high}.", ctx=ctx, param=param)
        return found


def install() -> None:
    """Let typer ask here first for a parameter's converter. Does nothing where it keeps them elsewhere."""
    usual = getattr(core, "build_runtime_param", None)
    if usual is None or getattr(usual, "light", False):
        return

    def build(descriptor: Any) -> Any:
        return _light(descriptor) or usual(descriptor)

    build.light = True  # type: ignore[attr-defined]
    setattr(core, "build_runtime_param", build)  # noqa: B010 - not a name that typer exports


def _light(descriptor: Any) -> _Light | None:
    info = descriptor.parameter_info
    if descriptor.is_choice or descriptor.is_file or descriptor.is_datetime or descriptor.is_tuple:
        return None
    if info.parser is not None or info.clamp or any(getattr(info, name, None) for name in _PATH_CHECKS):
        return None
    kind, is_list = descriptor.annotation, descriptor.is_list
    if is_list:
        (kind,) = descriptor.annotation.__args__
    if kind not in _PLAIN or (kind is not Path and getattr(descriptor, "is_path", False)):
        return None
    if kind is Path and not (info.file_okay and info.dir_okay):
        return None
    return _Light(kind, is_list, info.min, info.max)
