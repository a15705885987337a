"""What ``arylcloud prices`` and ``prices doctor`` show to people: tables on stdout, notes on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from arylcloud.cli.output import hanging, note, stdout
from arylcloud.core.clock import SystemClock
from arylcloud.core.gpus import split_request
from arylcloud.core.offer import Market, Offer
from arylcloud.core.units import say_duration
from arylcloud.pricing.doctor import Finding, gaps
from arylcloud.pricing.livefile import LiveState
from arylcloud.pricing.select import Query, say_spotless, select, spotless
from arylcloud.pricing.table import UNKNOWN_AS_OF, OfferTable, parse_as_of

NARROW = 100
"""Below it the price per GPU makes room for the age: a price without its age says too little."""
ROOMY = 110


def show_offers(
    table: OfferTable, query: Query, matching: OfferTable, offers: Sequence[Offer], *, per_gpu: bool
) -> None:
    """``offers`` as a table, with the sources, counts, ages and gaps below it."""
    now_s, console = SystemClock().now_s(), stdout()
    if offers:
        letters = {
            source: chr(ord("a") + i) for i, source in enumerate(dict.fromkeys(o.source for o in offers))
        }
        wide = console.width >= NARROW or per_gpu
        console.print(_offers(offers, letters, now_s, console.width, per_gpu=wide))
        _note("sources: " + " · ".join(f"{letter} = {source}" for source, letter in letters.items()))
    _note(footer(table, matching, len(offers), now_s))
    if unplannable := sum(offer.gpu_count is None for offer in offers):
        _note(f"{unplannable} of these without a known whole number of GPUs: listed, not used in plans")
    if missing := absent(table, query):
        _note(f"not in the catalogue: {'; '.join(missing)}")
    if not offers and not len(matching):
        for text in what_there_is(table, query, now_s):
            _note(text)
    asked = select(table, replace(query, markets=(), max_usd_per_hour=None, priced_since_s=None))
    named = query.gpus or query.instance_types or query.markets
    if not named or query.markets == (Market.ON_DEMAND,):
        return
    if (spot := say_spotless(spotless(table, asked))) is not None:
        _note(spot)


def what_there_is(table: OfferTable, query: Query, now_s: float) -> Iterator[str]:
    """Where nothing matches: each condition that alone stands in the way, and what would."""
    asked = [split_request(text) for text in query.gpus]
    if any(count is not None for _, count in asked):
        names = tuple(name for name, _ in asked)
        rows = table.take(select(table, replace(query, gpus=names)))
        for name in sorted(set(rows.gpu.tolist())):
            counts = sorted({int(n) for n in rows.gpu_count[rows.gpu == name].tolist() if n > 0})
            if counts:
                sold = " or ".join(
                    [", ".join(map(str, counts[:-1])), str(counts[-1])] if counts[1:] else [str(counts[0])]
                )
                yield f"{rows.gpu_names[name]} is sold {sold} to a machine"
    if query.priced_since_s is not None:
        rows = table.take(select(table, replace(query, priced_since_s=None)))
        if len(rows):
            newest = rows.as_of_range[1]
            known = (
                "of no price of these is the age known"
                if newest is None
                else (f"the newest price of these is {age(newest, now_s)} old")
            )
            yield f"{known}: `arylcloud prices --refresh` asks anew, a larger --max-age takes older ones"
    if query.max_usd_per_hour is not None:
        rows = table.take(select(table, replace(query, max_usd_per_hour=None)))
        if len(rows) and np.isfinite(rows.usd_per_hour).any():
            yield f"the cheapest of these costs ${money(float(np.nanmin(rows.usd_per_hour)))}/h a machine"


def show_stale(state: LiveState, now_s: float) -> None:
    """What the last refresh could not ask."""
    if stale := state.stale:
        names = ", ".join(list(stale)[:3]) + (f" and {len(stale) - 3} more" if len(stale) > 3 else "")
        tried = max((part.tried_s for part in stale.values() if part.tried_s is not None), default=now_s)
        _note(
            f"stale: {names} did not answer {say_duration(max(0.0, now_s - tried))} ago; "
            "`arylcloud prices --refresh` asks again"
        )


def _note(text: str) -> None:
    note(hanging(text, 2))


def _offers(
    offers: Sequence[Offer], letters: dict[str, str], now_s: float, width: int, *, per_gpu: bool
) -> Table:
    columns: dict[str, list[str]] = {
        "GPU": [f"{o.gpu or 'unknown'} ×{o.gpu_count or '?'}" for o in offers],
        "Place": [_place(o, width) for o in offers],
        "Instance type": [o.instance_type for o in offers],
        "Market": [o.market.value.replace("_", "-") for o in offers],
        "$/h": [money(o.usd_per_hour) for o in offers],
        "$/GPU-h": [money(_per_gpu(o)) for o in offers],
        "Age": [age(o.as_of, now_s) for o in offers],
        "Src": [letters[o.source] for o in offers],
    }
    if not per_gpu:
        del columns["$/GPU-h"]
    screen = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in columns:
        screen.add_column(
            title,
            justify="right" if title in ("$/h", "$/GPU-h", "Age") else "left",
            overflow="fold",
            # only the instance type gives way on a narrow screen: it is folded, never cut
            no_wrap=title != "Instance type",
        )
    for offer, *cells in zip(offers, *columns.values(), strict=True):
        screen.add_row(*(escape(cell) for cell in cells), style="" if offer.gpu_count else "dim")
    return screen


def _place(offer: Offer, width: int) -> str:
    """On a narrow screen a long place is broken before its zone, not within a name."""
    if offer.zone is None or width >= ROOMY or (width >= NARROW and len(offer.place) <= 27):
        return offer.place
    return f"{offer.cloud}/{offer.region}/\n{offer.zone}"


def money(value: float | None) -> str:
    """Four decimals below a dollar, where they matter."""
    return "unknown" if value is None else f"{value:,.4f}" if value < 1 else f"{value:,.2f}"


def _per_gpu(offer: Offer) -> float | None:
    return None if offer.usd_per_hour is None or not offer.gpu_count else offer.usd_per_hour / offer.gpu_count


def age(as_of: str | None, now_s: float) -> str:
    """``5 h``, ``41 d`` or ``unknown``."""
    if as_of is None:
        return "unknown"
    hours = max(0.0, (now_s - parse_as_of(as_of)) / 3600)
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"


def footer(table: OfferTable, matching: OfferTable, shown: int, now_s: float) -> str:
    """How many offers there are, and how old their prices."""
    counts = f"{shown:,} of {len(matching):,} matching offers shown, {len(table):,} in the catalogue"
    parts = ["$/h of a whole machine"] if shown else []
    parts += [counts + (" (--limit 0 shows all)" if shown < len(matching) else "")]
    oldest, newest = (age(date, now_s) for date in matching.as_of_range)
    if oldest != "unknown":
        parts.append(f"prices {oldest if oldest == newest else f'{newest} to {oldest}'} old")
    if unknown := int((matching.as_of == UNKNOWN_AS_OF).sum()):
        parts.append(f"{unknown:,} of unknown age")
    return " · ".join(parts)


def absent(table: OfferTable, query: Query) -> list[str]:
    """What the catalogue does not hold, as far as it bears on the question."""
    asked = {text.partition(":")[0].upper() for text in query.gpus}
    bears = {
        "no_gcp_n1": not asked or bool(asked & {"T4", "V100", "P100", "K80", "P4"}),
        "no_p100": not asked or "P100" in asked,
        "no_reserved": "reserved" in query.markets,
    }
    return [gap.message for gap in gaps(table) if bears.get(gap.code, False)]


def show_findings(findings: Sequence[Finding], examined: int) -> None:
    screen = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    screen.add_column("Level", no_wrap=True)
    screen.add_column("Offers", justify="right", no_wrap=True)
    screen.add_column("Finding", overflow="fold")
    styles = {"error": "bold red", "warning": "yellow", "info": "dim"}
    for finding in findings:
        text = finding.message + (f"\n  {finding.example}" if finding.example else "")
        level = f"[{styles[finding.level]}]{finding.level}[/]"
        screen.add_row(level, f"{finding.count:,}" if finding.count else "", escape(text))
    if findings:
        stdout().print(screen)
    note(f"{examined:,} offers examined")
