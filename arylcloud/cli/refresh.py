"""``prices --refresh``: which clouds are asked, a bar while they are, and what came of it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from arylcloud.cli.output import hanging, note, stderr
from arylcloud.cli.places import parse_infra, place
from arylcloud.cli.prices_screen import age
from arylcloud.cli.settings import folders
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import UsageError
from arylcloud.pricing.asking import Progress
from arylcloud.pricing.catalogue import base_file
from arylcloud.pricing.refresh import CloudReport, Outcome, PartReport, Refreshed, refresh
from arylcloud.pricing.table import format_as_of
from arylcloud.providers.patience import Patience
from arylcloud.providers.registry import SOURCES, load_source

MOST_LINES = 8
"""Stale parts that are named one by one."""


def refresh_prices(
    infra: Sequence[str], clouds: Sequence[str], regions: Sequence[str], *, quiet: bool
) -> dict[str, Any]:
    """Ask, keep, and say what came of it (on standard error); the document of it is returned. Raises the
    first reason where nothing could be learned at all. ``quiet``: only what did not go well is said."""
    wanted = _wanted(infra, clouds, regions)
    clock, where = SystemClock(), folders()
    patience = Patience(clock=clock)
    sources = [load_source(cloud, patience, environ=os.environ, config_dir=where.config) for cloud in wanted]
    with _bar() as watch:
        done = refresh(sources, base_file(), where.live_prices, clock=clock, regions=wanted, watch=watch)
    _say(done, clock.now_s(), quiet=quiet)
    if done.failed is not None:
        raise done.failed
    return _document(done)


def _wanted(
    infra: Sequence[str], clouds: Sequence[str], regions: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Cloud → regions (none: all of it). A cloud that is not named gets no call."""
    found: dict[str, set[str]] = {}
    places = [parse_infra(text, what="--infra") for text in infra]
    places += [parse_infra(cloud, what="--cloud") for cloud in clouds if not places]
    for text in regions:
        head, slash, tail = text.partition("/")
        places.append(place(head if slash else None, tail if slash else head, None, what="--region"))
    for cloud, region, _ in places:
        for one in SOURCES if cloud is None else (cloud,):
            if one not in SOURCES:
                raise UsageError(f"{one} has no live prices", hint=f"known: {', '.join(SOURCES)}")
            found.setdefault(one, set()).update({region.partition("/")[2]} if region else ())
    return {one: tuple(sorted(found[one])) for one in SOURCES if one in found} or dict.fromkeys(SOURCES, ())


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """On a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task("asking the clouds", total=None)

        def watch(now: Progress) -> None:
            text = f"{now.raw_rows:,} prices, {now.bytes_in / 1e6:.1f} MB · {now.now}"
            bar.update(task, total=now.parts, completed=now.done, description=text)

        yield watch


def _say(done: Refreshed, now_s: float, *, quiet: bool) -> None:
    for cloud in done.clouds:
        if cloud.error is not None:
            _line(f"{cloud.cloud}: nothing asked: {cloud.error.message}")
            if cloud.error.hint:
                _line(f"hint: {cloud.error.hint}")
        elif not quiet:
            _line(_summary(cloud, [part for part in done.parts if part.cloud == cloud.cloud]))
            for said in cloud.notes:
                _line(f"{cloud.cloud}: {said}")
    stale = [part for part in done.parts if part.outcome is Outcome.STALE]
    for part in stale[:MOST_LINES]:
        kept = age(format_as_of(int(part.answered_s)), now_s) if part.answered_s is not None else None
        stays = f"prices {kept} old stay" if kept else "the catalogue's prices stay"
        _line(f"stale: {part.cloud}/{part.name}: {stays}: {part.error.message if part.error else ''}")
    if len(stale) > MOST_LINES:
        _line(f"stale: {len(stale) - MOST_LINES} more")
    for reason, number in done.left_out.items():
        _line(f"left out: {number:,} offers that cannot be true: {reason}")


def _line(text: str) -> None:
    note(hanging(text, 2))


def _summary(cloud: CloudReport, parts: Sequence[PartReport]) -> str:
    outcomes = Counter(part.outcome for part in parts)
    said = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    offers = sum(part.offers for part in parts)
    asked = f"{cloud.raw_rows:,} prices in {cloud.calls} calls, {cloud.bytes_in / 1e6:.1f} MB"
    waited = f" · {cloud.waited} asked again" if cloud.waited else ""
    return f"{cloud.cloud}: {said or 'nothing to ask'} · {offers:,} offers · {asked}{waited}"


def _document(done: Refreshed) -> dict[str, Any]:
    def error(found: Any) -> Any:
        return found and {"kind": found.kind, "code": found.code, "message": found.message}

    return {
        "clouds": [
            {
                "cloud": one.cloud,
                "calls": one.calls,
                "bytes_in": one.bytes_in,
                "raw_rows": one.raw_rows,
                "asked_again": one.waited,
                "left_out": dict(one.left_out),
                "notes": list(one.notes),
                "error": error(one.error),
            }
            for one in done.clouds
        ],
        "parts": [
            {
                "cloud": part.cloud,
                "part": part.name,
                "regions": list(part.regions),
                "outcome": part.outcome.value,
                "offers": part.offers,
                "as_of": None if part.answered_s is None else format_as_of(int(part.answered_s)),
                "error": error(part.error),
            }
            for part in done.parts
        ],
        "left_out": dict(done.left_out),
    }
