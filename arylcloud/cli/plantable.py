"""The candidates of a plan as a table that explains its own columns; two lines each where it is narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arylcloud.cli.texttable import paragraph, shown_width, table

if TYPE_CHECKING:
    from arylcloud.core.plan import Candidate, Plan

SOURCES = {"measured": "meas.", "published": "publ.", "estimated": "est.", "user": "yours"}
MARKETS = {"on_demand": "on demand"}
KEEP = "\xa0"
"""A space at which no line is broken."""
FEW_CENTS = 0.1
"""Dollars below which two decimals would make all candidates look alike."""


def candidates_table(plan: Plan, columns: int) -> str:
    """The best place of every machine, and below it what the columns mean."""
    rows = [_Row(plan, c, places) for c, places in grouped(plan.candidates)]
    figures = rows[0].figures
    headers = ["#", "machines", "GPUs", "where", "market", *figures]
    right = frozenset({0, *(5 + i for i, name in enumerate(figures) if name in _NUMBERS)})
    for short in (False, True):
        wide = table(
            headers,
            [[r.rank, r.machines, r.gpus, r.where(short), r.market, *r.figures.values()] for r in rows],
            right=right,
            columns=10_000,
            bold_rows=frozenset({0}),
        )
        if max(map(shown_width, wide.splitlines())) <= columns:
            return f"{wide}\n{_legend(plan, rows, columns, short=short)}"
    return f"{_narrow(rows, columns)}\n{_legend(plan, rows, columns)}"


_NUMBERS = frozenset({"$/h each", "time p50-p90", "$ mean", "$ p90", "score $"})


class _Row:
    """The cells of one candidate."""

    def __init__(self, plan: Plan, c: Candidate, places: int) -> None:
        offer = c.offer
        self.rank = str(c.rank)
        self.machines = f"{c.nodes} × {offer.instance_type}"
        self.gpus = f"{offer.gpu_count} × {offer.gpu}"
        self.more = places
        self.offer = offer
        self.market = MARKETS.get(offer.market.value, offer.market.value)
        self.pareto = c.pareto
        self.figures = {
            "$/h each": "unknown" if offer.usd_per_hour is None else f"{offer.usd_per_hour:.4f}",
            "as of": (offer.as_of or "unknown")[:10],
        }
        if plan.chosen.usd is None or c.usd is None or c.hours is None:
            self.figures["why"] = c.why
            return
        self.figures["time p50-p90"] = span(c.hours.p50, c.hours.p90)
        digits = 2 if plan.chosen.usd.mean >= FEW_CENTS else 4
        self.figures["$ mean"] = f"{c.usd.mean:,.{digits}f}"
        self.figures["$ p90"] = f"{c.usd.p90:,.{digits}f}"
        aim = plan.job.objective
        if aim.name == "mixed":
            score = aim.cost_weight * c.usd.mean + aim.usd_per_hour_of_waiting * c.hours.p50
            self.figures["score $"] = f"{score:,.{digits}f}"
        self.figures["rate"] = f"{SOURCES[c.throughput_source or 'estimated']} {band(c)}".rstrip()
        notes = [
            text
            for text, true in (
                ("late", c.meets_deadline is False),
                ("over budget", c.meets_budget is False),
                ("P", c.pareto),
            )
            if true
        ]
        if c.survival is not None and c.survival.p50 < 1:
            notes.append(f"no loss {c.survival.p50:.0%}")
        self.figures["notes"] = ", ".join(notes)

    def where(self, short: bool = False) -> str:
        """The place as every screen names it. ``short``: without the region, where the zone's own name
        tells it (as those of AWS and GCP do, and Azure's 1, 2, 3 do not); ``--infra`` reads both."""
        offer = self.offer
        cut = short and offer.zone is not None and not offer.zone.isdigit()
        place = f"{offer.cloud}/{offer.zone}" if cut else offer.place
        return place + (f" +{self.more}" if self.more else "")


def _narrow(rows: list[_Row], columns: int) -> str:
    """Figures on one line, where they are had on the next."""
    names = [name for name in rows[0].figures if name not in ("rate", "notes")]
    right = frozenset({0, *(1 + i for i, name in enumerate(names) if name in _NUMBERS)})
    lines = table(
        ["#", *names],
        [[r.rank, *(r.figures[name] for name in names)] for r in rows],
        right=right,
        columns=columns,
        bold_rows=frozenset({0}),
    ).splitlines()
    found = [lines[0]]
    for line, row in zip(lines[1:], rows, strict=True):
        rate, notes = row.figures.get("rate", ""), row.figures.get("notes", "")
        where = f"{row.machines} ({row.gpus}) {row.market}, {row.where()}"
        # a band stays beside its rate
        kept = [part.replace(" ", KEEP) for part in (rate and f"rate {rate}", notes) if part]
        where = " · ".join((where, *kept))
        text = paragraph(where, columns=columns, first="    ", rest="      ")
        found += [line, text.replace(KEEP, " ")]
    return "\n".join(found)


def _legend(plan: Plan, rows: list[_Row], columns: int, *, short: bool = False) -> str:
    parts = ["#: rank among all places"]
    if short and any(row.where(short) != row.where() for row in rows):
        parts.append("where: CLOUD/ZONE, of CLOUD/REGION/ZONE")
    if any(row.more for row in rows):
        parts.append(f"+N: N more places of it among the first {len(plan.candidates)}")
    if plan.chosen.usd is not None:
        parts.append(
            "p50: median; p90: pessimistic, expected with the losses at their bad end (of assumed ones three"
            " times as many) and the rate at its low end, both at once"
        )
        parts.append("rate: where it is from, and its band")
    aim = plan.job.objective
    if aim.name == "mixed":
        weight = "" if aim.cost_weight == 1 else f"{aim.cost_weight:g} × "
        parts.append(f"score: {weight}$ mean + ${aim.usd_per_hour_of_waiting:g} × hours p50")
    if any(row.pareto for row in rows):
        parts.append("P: nothing is faster and cheaper")
    return paragraph("; ".join(parts), columns=columns, first="    ", rest="    ")


def grouped(candidates: tuple[Candidate, ...]) -> list[tuple[Candidate, int]]:
    """The best place of every (type, market, machines), and how many more places are in the list."""
    first: dict[tuple[str, str, int], Candidate] = {}
    count: dict[tuple[str, str, int], int] = {}
    for c in candidates:
        key = (c.offer.instance_type, c.offer.market.value, c.nodes)
        first.setdefault(key, c)
        count[key] = count.get(key, 0) + 1
    return [(c, count[key] - 1) for key, c in first.items()]


def span(p50: float, p90: float) -> str:
    """Both in one unit: ``5.0-5.8 h``, ``12-14 min``, ``4.1-5.0 d``, ``17-19 s``.

    >>> span(5.04, 5.81), span(0.2, 0.24), span(98.0, 120.0), span(0.0047, 0.0052), span(0.002, 0.0022)
    ('5.0-5.8 h', '12-14 min', '4.1-5.0 d', '17-19 s', '7.2-7.9 s')
    """
    if p90 < 1:
        unit, per_hour = ("s", 3600.0) if p90 * 3600 < 100 else ("min", 60.0)
        digits = 1 if p90 * per_hour < 10 else 0
        return f"{p50 * per_hour:.{digits}f}-{p90 * per_hour:.{digits}f} {unit}"
    return f"{p50:.1f}-{p90:.1f} h" if p90 < 72 else f"{p50 / 24:.1f}-{p90 / 24:.1f} d"


def band(c: Candidate) -> str:
    """``-33/+100%``: the throughput's band beside the estimate; empty where there is none."""
    if c.throughput is None or c.throughput_low is None or c.throughput_high is None:
        return ""
    low, high = 1 - c.throughput_low / c.throughput, c.throughput_high / c.throughput - 1
    return f"-{low * 100:.0f}/+{high * 100:.0f}%"
