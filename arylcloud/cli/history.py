"""``prices --history OFFER``: how a price was, as a chart and as a document."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.cli.charts import Steps, timeline
from arylcloud.cli.output import emit_json, note, stdout
from arylcloud.cli.prices_screen import money
from arylcloud.cli.settings import folders
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.pricing import history
from arylcloud.pricing.livefile import HISTORY

SHOWN_S = 90 * 86400
"""What the chart shows: as long as AWS itself remembers."""
_FORM = "CLOUD/REGION[/ZONE]:TYPE[:MARKET], as in aws/us-east-1/use1-az4:p4d.24xlarge:spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    key: str
    at_s: NDArray[np.int64]
    usd: NDArray[np.float64]

    def mean(self, from_s: float, to_s: float) -> float | None:
        """Over time, not over changes; None where the price is not known for any of it."""
        ends = np.append(self.at_s[1:], to_s)
        spans = np.clip(ends, from_s, to_s) - np.clip(self.at_s, from_s, to_s)
        return float((spans * self.usd).sum() / spans.sum()) if spans.sum() > 0 else None

    def shown(self, from_s: float) -> _Line:
        first = max(int(np.searchsorted(self.at_s, from_s, side="right")) - 1, 0)
        return _Line(key=self.key, at_s=self.at_s[first:], usd=self.usd[first:])


def show_history(offer: str, *, as_json: bool, more: Mapping[str, Any]) -> None:
    """Every offer that ``offer`` names (all its zones and markets, where it leaves them out). Raises
    UsageError where the text is no offer, or nothing is known of it."""
    lines = [line.shown(SystemClock().now_s() - SHOWN_S) for line in _find(offer)]
    to_s = SystemClock().now_s()
    from_s = max(min(float(line.at_s[0]) for line in lines), to_s - SHOWN_S)
    if as_json:
        emit_json({"history": [_document(line, from_s, to_s) for line in lines], **more})
        return
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    marks = [chr(ord("a") + i) if len(lines) > 1 and i < 26 else None for i in range(len(lines))]
    steps = [
        Steps(at_s=line.at_s.tolist(), values=line.usd.tolist(), mark=mark)
        for line, mark in zip(lines, marks, strict=True)
    ]
    width = min(stdout().width, 100)
    print_out = sys.stdout.write
    print_out(timeline(steps, from_s=from_s, to_s=to_s, y_label="$/h", width=width, unicode=unicode) + "\n")
    for line, mark in zip(lines, marks, strict=True):
        mean = line.mean(from_s, to_s)
        print_out(
            f"{mark + ' = ' if mark else ''}{line.key}: now ${money(float(line.usd[-1]))}, "
            f"mean ${money(mean)}, ${money(float(line.usd.min()))} to ${money(float(line.usd.max()))}, "
            f"{len(line.usd) - 1} changes\n"
        )
    note("times are UTC; means are over time · `arylcloud prices --refresh` adds what is new")


def _find(offer: str) -> list[_Line]:
    place, _, rest = offer.strip().partition(":")
    parts, (name, _, market) = place.split("/"), rest.partition(":")
    if not name or not 2 <= len(parts) <= 3 or "" in parts:
        raise UsageError(f"--history: {offer!r} is no offer", hint=_FORM)
    if market and market not in [known.value for known in Market]:
        raise UsageError(f"--history: {market!r} is no market", hint="spot, on_demand")
    changes = history.read(history.file_of(folders().live_prices / HISTORY, parts[0], parts[1]))
    found = []
    for key in changes.keys:
        where, _, what = key.partition(":")
        kind, _, its_market = what.partition(":")
        inside = where == place or where.startswith(place + "/")
        if inside and kind == name and market in ("", its_market):
            at_s, usd = changes.series(key)
            found.append(_Line(key=key, at_s=at_s, usd=usd))
    if not found:
        known = sorted({key.partition(":")[2].partition(":")[0] for key in changes.keys})
        hint = f"`arylcloud prices --refresh --infra {parts[0]}/{parts[1]}` fetches what the cloud remembers"
        if known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"known there: {', '.join(close or known[:5])}"
        raise UsageError(f"no price of {offer} has been seen yet", hint=hint)
    return found


def _document(line: _Line, from_s: float, to_s: float) -> dict[str, Any]:
    return {
        "offer": line.key,
        "from": _iso(from_s),
        "to": _iso(to_s),
        "usd_per_hour": float(line.usd[-1]),
        "mean_usd_per_hour": line.mean(from_s, to_s),
        "min_usd_per_hour": float(line.usd.min()),
        "max_usd_per_hour": float(line.usd.max()),
        "points": [
            {"at": _iso(at_s), "usd_per_hour": usd}
            for at_s, usd in zip(line.at_s.tolist(), line.usd.tolist(), strict=True)
        ],
    }


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
