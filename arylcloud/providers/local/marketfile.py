"""Reading a market file: strict, and every complaint names the place and what is allowed there."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast, get_args

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market as MarketKind
from arylcloud.providers.local.market import (
    Fault,
    FaultKind,
    FaultOp,
    Interruption,
    Market,
    MarketOffer,
    Step,
)

SCHEMA_VERSION: Final = 1
DEFAULT: Final = "default"
_HINT: Final = "docs/local-cloud.md describes the format; arylcloud/providers/local/markets/ has two examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketText:
    """A market file's bytes, before they are parsed: the daemon keeps these, so that its market and
    its bills stay what they were when the file is edited later."""

    setting: str
    """As the user named it."""
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read(setting: str) -> MarketText:
    """``setting`` is a bundled market's name, or the path of a file. Raises UsageError."""
    if "/" not in setting and not setting.endswith(".json"):
        source = resources.files("arylcloud.providers.local").joinpath("markets", f"{setting}.json")
        if not source.is_file():
            raise UsageError(
                f"there is no bundled market called {setting!r}",
                hint=f"bundled: {', '.join(bundled())}; or give the path of a file",
            )
        return MarketText(setting=setting, text=source.read_text(encoding="utf-8"))
    path = Path(setting).expanduser().absolute()
    try:
        return MarketText(setting=str(path), text=path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the market file {path} cannot be read: {error}") from error


def check_same(setting: str | None, running: Mapping[str, Any]) -> None:
    """A folder's market is for good: its bills stand on it. ``running`` has ``market`` (its name),
    ``setting`` and ``digest``; a ``setting`` of None is content with any. Raises UsageError."""
    if setting is None:
        return
    wanted = read(setting)
    if wanted.setting != running["setting"] and wanted.digest != running["digest"]:
        raise UsageError(
            f"this local cloud runs the market {running['market']!r}, not {setting!r}",
            hint="a local cloud keeps its market: set ARYLCLOUD_HOME to another folder for another market",
        )


def bundled() -> tuple[str, ...]:
    folder = resources.files("arylcloud.providers.local").joinpath("markets")
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".json")))


def parse(text: str, *, what: str) -> Market:
    """The market in ``text``. Unknown keys, wrong types, steps out of order, prices ≤ 0 and doubled
    offers are UsageErrors that name the place."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid JSON: {error}", hint=_HINT) from error
    top = _Object(raw, what)
    if top.number("schema_version", minimum=0) != SCHEMA_VERSION:
        top.fail("schema_version", f"must be {SCHEMA_VERSION}")
    market = Market(
        name=top.text("name"),
        time_scale=top.number("time_scale", minimum=0, exclusive=True),
        boot_s=top.number("boot_s", minimum=0, default=0.5),
        notice_s=top.number("notice_s", minimum=0, default=120.0),
        minimum_s=top.number("minimum_s", minimum=0, default=60.0),
        until_grace_s=top.number("until_grace_s", minimum=0, default=60.0),
        terminate_grace_s=top.number("terminate_grace_s", minimum=0, default=0.5),
        loop_s=top.maybe_number("loop_s", minimum=0, exclusive=True),
        offers=tuple(_offer(item) for item in top.objects("offers")),
        faults=tuple(_fault(item) for item in top.objects("faults", default=())),
    )
    top.maybe_text("about")
    top.done()
    if not market.offers:
        top.fail("offers", "must name at least one offer")
    seen: set[str] = set()
    for number, offer in enumerate(market.offers):
        if offer.key in seen:
            raise UsageError(f"{what}: offers[{number}] repeats {offer.key}", hint=_HINT)
        seen.add(offer.key)
        if market.loop_s is not None and offer.steps[-1].t_s >= market.loop_s:
            raise UsageError(f"{what}: offers[{number}].steps go beyond loop_s", hint=_HINT)
    return market


def _offer(item: _Object) -> MarketOffer:
    kind = item.choice("market", (MarketKind.ON_DEMAND.value, MarketKind.SPOT.value))
    offer = MarketOffer(
        region=item.place("region"),
        zone=None if item.maybe_text("zone") is None else item.place("zone"),
        instance_type=item.place("instance_type"),
        gpu=item.maybe_text("gpu"),
        gpu_count=item.maybe_integer("gpu_count", minimum=1),
        gpu_mem_gib=item.maybe_number("gpu_mem_gib", minimum=0, exclusive=True),
        vcpus=item.maybe_number("vcpus", minimum=0, exclusive=True),
        mem_gib=item.maybe_number("mem_gib", minimum=0, exclusive=True),
        market=MarketKind(kind),
        steps=tuple(_steps(item)),
        interruptions=tuple(_interruption(part) for part in item.objects("interruptions", default=())),
        source=item.text("source"),
    )
    item.done()
    if offer.market is MarketKind.ON_DEMAND:
        if len({step.usd_per_hour for step in offer.steps}) > 1:
            item.fail("steps", "an on-demand price does not move: give every step the same")
        if offer.interruptions:
            item.fail("interruptions", "only spot machines are interrupted")
    return offer


def _steps(item: _Object) -> Sequence[Step]:
    steps: list[Step] = []
    for number, row in enumerate(item.items("steps")):
        where = f"steps[{number}]"
        if not isinstance(row, list) or len(row) != 3:
            item.fail(where, "must be [t_market_s, usd_per_hour, capacity]")
        at_s, usd_per_hour, capacity = row
        if not _is_number(at_s) or at_s < 0 or (number == 0 and at_s != 0):
            item.fail(where, "time must be a number ≥ 0, and the first step's 0")
        if steps and at_s <= steps[-1].t_s:
            item.fail(where, "times must rise")
        if not _is_number(usd_per_hour) or usd_per_hour <= 0:
            item.fail(where, "the price must be above 0")
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 0:
            item.fail(where, "the capacity must be a whole number ≥ 0")
        steps.append(Step(t_s=float(at_s), usd_per_hour=float(usd_per_hour), capacity=capacity))
    if not steps:
        item.fail("steps", "must have at least one step")
    return steps


def _interruption(item: _Object) -> Interruption:
    found = Interruption(
        t_s=item.number("t_market_s", minimum=0),
        notice_s=item.number("notice_s", minimum=0),
        min_age_s=item.maybe_number("min_age_s", minimum=0),
    )
    item.done()
    return found


def _fault(item: _Object) -> Fault:
    found = Fault(
        op=cast(FaultOp, item.choice("op", get_args(FaultOp))),
        kind=cast(FaultKind, item.choice("kind", get_args(FaultKind))),
        skip=item.maybe_integer("skip", minimum=0) or 0,
        times=item.maybe_integer("times", minimum=1),
        seconds=item.number("seconds", minimum=0, default=0.0),
    )
    item.done()
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


_MISSING: Final = object()


class _Object:
    """One JSON object on its way in: it knows where it stands, and which keys nobody asked for."""

    def __init__(self, raw: object, where: str) -> None:
        self.where = where
        if not isinstance(raw, dict):
            raise UsageError(f"{where}: an object was expected", hint=_HINT)
        self.raw: Mapping[str, Any] = raw
        self.asked: set[str] = set()

    def fail(self, key: str, text: str) -> Any:
        raise UsageError(f"{self.where}: {key}: {text}", hint=_HINT)

    def done(self) -> None:
        if unknown := sorted(set(self.raw) - self.asked):
            self.fail(unknown[0], f"unknown key (known: {', '.join(sorted(self.asked))})")

    def _get(self, key: str, default: object) -> Any:
        self.asked.add(key)
        value = self.raw.get(key, default)
        return self.fail(key, "is missing") if value is _MISSING else value

    def number(
        self, key: str, *, minimum: float, exclusive: bool = False, default: object = _MISSING
    ) -> float:
        value = self._get(key, default)
        if not _is_number(value) or value < minimum or (exclusive and value == minimum):
            self.fail(key, f"must be a number {'>' if exclusive else '≥'} {minimum:g}, not {value!r:.40}")
        return float(value)

    def maybe_number(self, key: str, *, minimum: float, exclusive: bool = False) -> float | None:
        if self._get(key, None) is None:
            return None
        return self.number(key, minimum=minimum, exclusive=exclusive)

    def maybe_integer(self, key: str, *, minimum: int) -> int | None:
        value = self._get(key, None)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            self.fail(key, f"must be a whole number ≥ {minimum}, not {value!r:.40}")
        return cast(int, value)

    def text(self, key: str) -> str:
        value = self._get(key, _MISSING)
        if not isinstance(value, str) or not value.strip():
            self.fail(key, "must be a text that is not empty")
        return cast(str, value)

    def maybe_text(self, key: str) -> str | None:
        return None if self._get(key, None) is None else self.text(key)

    def place(self, key: str) -> str:
        """A name that can stand in ``Offer.key``, whose separators are ``/`` and ``:``."""
        value = self.text(key)
        if any(sign in value for sign in "/: \n"):
            self.fail(key, "must have no '/', ':' or blank")
        return value

    def choice(self, key: str, options: Sequence[str]) -> str:
        value = self.text(key)
        return (
            value if value in options else cast(str, self.fail(key, f"must be one of {', '.join(options)}"))
        )

    def items(self, key: str, *, default: object = _MISSING) -> Sequence[Any]:
        value = self._get(key, default)
        if not isinstance(value, (list, tuple)):
            self.fail(key, "must be a list")
        return cast(Sequence[Any], value)

    def objects(self, key: str, *, default: object = _MISSING) -> list[_Object]:
        return [
            _Object(raw, f"{self.where}: {key}[{n}]")
            for n, raw in enumerate(self.items(key, default=default))
        ]
