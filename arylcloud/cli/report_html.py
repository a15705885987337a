"""The report as a page: one file, inline SVG, light and dark, nothing fetched from anywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Final

from arylcloud import __version__
from arylcloud.cli.describe import spelled
from arylcloud.cli.output import hours, rate, seconds
from arylcloud.cli.report import LOCAL_DOLLARS, NOT_INCLUDED, local_only, minimum_of
from arylcloud.cli.report_chart import AFTER_END, chart, elapsed, place_colours
from arylcloud.cli.report_plan import beside_plan, why_beside
from arylcloud.cli.report_text import (
    KINDS,
    NAMES,
    amount,
    cost_line,
    count,
    ending,
    machine_amounts,
    minimum_text,
    percent,
    saved_text,
    shown_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from arylcloud.cli.report import Account
    from arylcloud.launcher.ledger import Report

MARKETS: Final = {"on_demand": "on demand", "spot": "spot", "reserved": "reserved"}
MOST_ENTRIES: Final = 2000


def page(made: Account) -> str:
    """A complete HTML document."""
    r = made.report
    title = escape(f"{r.name} · report")
    style = resources.files("arylcloud.cli").joinpath("report.css").read_text(encoding="utf-8")
    line = cost_line(r).plain
    big, _, rest = line.partition(" = ")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{escape(r.job_id)} <span class="badge {_mood(r)}">{escape(_phase(r))}</span></h1>
<p class="soft">{escape(_when(made))}</p>
<p class="cost">{escape(big)}</p>
<p class="soft">{escape("= " + rest) if rest else ""}</p>
{"".join(f'<p class="bad">Not known: {escape(text)}</p>' for text in r.unknown)}
<div class="facts">{_facts(r)}</div>
<h2>Price, placement, progress</h2>
<p class="soft">{escape(_clock_note(made))}</p>
<div class="card">{chart(made)}{_legend(made)}</div>
<h2></h2>
<div class="two">
<div class="card"><h2>Where the compute went</h2>{_split(r)}{_minimum(made)}</div>
<div class="card"><h2>The same work, otherwise</h2>{_baselines(made)}</div>
</div>
{_planned(made)}<h2>Machines</h2>
<div class="card">{_machines(r)}</div>
<h2>What happened</h2>
<div class="card">{_events(made)}</div>
<footer>
<p>Machines at the price in force at each moment, from the cloud's own launch to its end.
Not included: {escape(NOT_INCLUDED)}.</p>
<p>arylcloud {escape(__version__)}, counted up to {_moment(made.state.market_clock.wall_s(r.as_of_s))}</p>
</footer>
</body>
</html>
"""


def _phase(r: Report) -> str:
    return r.phase.value + (f", exit {r.exit_code}" if r.exit_code is not None else "")


def _mood(r: Report) -> str:
    return {"succeeded": "good", "failed": "bad"}.get(r.phase.value, "")


def _when(made: Account) -> str:
    """The submission is a moment of the wall's clock; all else is time since then. The local cloud's
    market runs faster, so that its moments have no date."""
    r = made.report
    took = elapsed((r.ended_s or r.as_of_s) - r.started_s)
    said = "" if r.phase.value == "succeeded" else f" · {spelled(r.phase_text)}"
    of_market = " of market time" if r.compressed else ""
    return f"submitted {_moment(made.state.submitted_at_s)} · {took}{of_market}{said}"


def _moment(wall_s: float) -> str:
    return f"{datetime.fromtimestamp(wall_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clock_note(made: Account) -> str:
    r = made.report
    if not r.compressed:
        note = "Times count from the submission."
        return f"{note} {LOCAL_DOLLARS[0].upper()}{LOCAL_DOLLARS[1:]}." if local_only(r) else note
    scale = made.state.market_clock.scale
    return (
        f"Times count from the submission, in market time: the local cloud's market ran {scale:g} times as"
        " fast as the clock on the wall, and nobody spent these dollars."
    )


def _facts(r: Report) -> str:
    announced = f" ({r.interruptions_with_notice} announced)" if r.interruptions else ""
    facts = [
        (f"{r.interruptions}", f"interruption{'' if r.interruptions == 1 else 's'}{announced}"),
        (f"{r.migrations}", f"migration{'' if r.migrations == 1 else 's'}"),
        (f"{r.attempts}", f"attempt{'' if r.attempts == 1 else 's'}"),
        (f"{len(r.leases)}", f"machine{'' if len(r.leases) == 1 else 's'}"),
        (hours(sum(cost.billed_s for cost in r.leases) / 3600), "paid for"),
        ("unknown" if r.final_step is None else f"{r.final_step:,}", "final step"),
    ]
    return "".join(f"<span><b>{escape(figure)}</b> {escape(what)}</span>" for figure, what in facts)


def _legend(made: Account) -> str:
    places = place_colours(made.report.leases)
    swatches = [f'<span><span class="sw {cls}"></span>{escape(key)}</span>' for key, cls in places.items()]
    kinds = [
        '<span><i class="l-boot"></i>boot</span>',
        "<span><i></i>useful steps</span>",
        '<span><i class="l-lost"></i>steps lost</span>',
        '<span><i class="l-idle"></i>idle</span>',
        f'<span><i class="l-after"></i>{escape(AFTER_END)}</span>' if minimum_of(made) else "",
        '<span><b class="bad">✕</b> interrupted without notice, or announced (orange)</span>',
        "<span>○ checkpoint</span>",
    ]
    return f'<div class="legend">{"".join(swatches)}</div><div class="legend">{"".join(kinds)}</div>'


def _table(head: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """``head``: (title, class of the column). Cells are HTML already."""
    top = "".join(f'<th class="{cls}">{escape(name)}</th>' for name, cls in head)
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{cls}">{cell}</td>' for cell, (_n, cls) in zip(row, head, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _split(r: Report) -> str:
    micro = r.split_micro
    shown = shown_parts(r, [getattr(micro, kind) for kind in KINDS]) if micro else ["unknown"] * len(KINDS)
    whole = r.seconds.useful + r.seconds.waste
    shares = {
        kind: getattr(micro, kind) / micro.total
        if micro is not None and micro.total > 0
        else (getattr(r.seconds, kind) / whole if whole else 0.0)
        for kind in KINDS
    }
    bar = "".join(
        f'<span class="b {kind}" style="flex:{share:.6f}"'
        f' title="{NAMES[kind]} {escape(percent(share))}"></span>'
        for kind, share in shares.items()
        if share > 0
    )
    rows = [
        [
            f'<span class="sw b {kind}"></span>{NAMES[kind]}',
            escape(text),
            escape(percent(shares[kind])),
            escape(seconds(getattr(r.seconds, kind))),
        ]
        for kind, text in zip(KINDS, shown, strict=True)
    ]
    return f'<div class="bar">{bar}</div>' + _table(
        [("", ""), ("cost", "n"), ("share", "n"), ("machine time", "n")], rows
    )


def _minimum(made: Account) -> str:
    text = minimum_text(made)
    return "" if text is None else f'<p class="soft small">{escape(text)}</p>'


def _baselines(made: Account) -> str:
    rows = []
    for b in made.baselines:
        saving = b.saving(made.report.total_micro)
        mood = "soft" if saving is None else "good" if saving >= 0 else "bad"
        rows.append(
            [
                f"{escape(b.label)}<br><small>{escape(b.basis)}</small>",
                "not known" if b.usd_micro is None else escape(amount(b.usd_micro, b.usd_micro)),
                f'<span class="{mood}">{"–" if saving is None else escape(saved_text(saving))}</span>',
            ]
        )
    return _table([("", "wrap"), ("cost", "n"), ("saved", "n")], rows)


def _planned(made: Account) -> str:
    rows = []
    for row in beside_plan(made):
        mood = "soft" if row.good is None else "good" if row.good else "bad"
        said = f'<span class="{mood}">{escape(row.verdict)}</span>'
        rows.append([escape(row.what), escape(row.p50), escape(row.p90), escape(row.came), said])
    head = [("", "wrap"), ("p50", "n"), ("p90", "n"), ("came", "n"), ("", "wrap")]
    why = "".join(f'<p class="soft">{escape(text)}</p>' for text in why_beside(made))
    return f'<div class="card"><h2>The plan at launch</h2>{_table(head, rows)}{why}</div>\n' if rows else ""


def _machines(r: Report) -> str:
    places = place_colours(r.leases)
    rows = [
        [
            str(i),
            f'<span class="sw {places[cost.offer.key]}"></span>{escape(cost.offer.place)}'
            f"<br><small>{escape(cost.offer.instance_type)} · {escape(MARKETS[cost.offer.market.value])}"
            f" · {escape(cost.instance_id or 'id unknown')}</small>",
            escape(elapsed(cost.launched_s - r.started_s)),
            escape(seconds(cost.billed_s)),
            escape("free" if cost.free else rate(cost.usd_per_hour)),
            escape(total),
            escape(ending(cost)),
        ]
        for i, (cost, total) in enumerate(zip(r.leases, machine_amounts(r), strict=True), 1)
    ]
    head = [
        ("#", ""), ("machine", "wrap"), ("launched after", "n"), ("paid for", "n"), ("mean price", "n"),
        ("cost", "n"), ("end", "wrap"),
    ]  # fmt: skip
    return _table(head, rows)


def _events(made: Account) -> str:
    shown = made.timeline[:MOST_ENTRIES]
    rows = [
        [elapsed(entry.at_s - made.report.started_s), escape(entry.kind), escape(entry.text)]
        for entry in shown
    ]
    left_out = len(made.timeline) - len(shown)
    more = f"<p class='soft'>and {count(left_out, 'event')} more: --json has all</p>" if left_out else ""
    table = _table([("after", "n"), ("what", ""), ("", "wrap")], rows)
    mode = " open" if len(rows) <= 60 else ""
    summary = count(len(made.timeline), "event")
    return f"<details{mode}><summary>{summary}</summary>{table}{more}</details>"
