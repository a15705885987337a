"""A plan for people (table, chart, reasons) and for scripts (the JSON of DESIGN)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from arylcloud.cli.plantable import FEW_CENTS, candidates_table
from arylcloud.cli.texttable import BOLD, paragraph, styled, width
from arylcloud.core.codec import encode

if TYPE_CHECKING:
    from arylcloud.core.plan import Candidate, Plan


def document(plan: Plan) -> dict[str, Any]:
    """``plan --json`` without its schema_version."""
    from arylcloud.cli.planfile import digest

    return {
        "job": encode(plan.job),
        "objective": plan.objective,
        "policy": plan.policy,
        "catalogue": encode(plan.catalogue),
        "chosen": _flat(plan.chosen),
        "candidates": [_flat(c) for c in plan.candidates],
        "frontier": [_flat(c) for c in plan.frontier],
        "rejected": encode(plan.rejected),
        "why": list(plan.why),
        "seed": plan.seed,
        "digest": digest(plan),
    }


def _flat(candidate: Candidate) -> dict[str, Any]:
    """The offer's fields stand beside the candidate's own."""
    own = encode(candidate)
    offer = own.pop("offer")
    return {"rank": own.pop("rank"), **offer, **own}


def show(plan: Plan) -> None:
    """Table, chart, reasons and rejections on stdout."""
    columns = width()
    job = plan.job
    newest = f"newest price {plan.catalogue.as_of}" if plan.catalogue.as_of else "no price is dated"
    work = f" · {job.work.amount:g} {job.work.unit}" if job.work else ""
    lines = [
        styled(f"{job.name}{work} · objective {plan.objective}{_limits(plan)}", BOLD),
        f"{plan.catalogue.offers:,} offers, {newest}",
        "",
        candidates_table(plan, columns),
    ]
    chart = _chart(plan, columns)
    if chart:
        lines += ["", chart]
    lines += ["", styled("why", BOLD)]
    lines += [paragraph(text, columns=columns, first="  · ", rest="    ") for text in plan.why]
    if plan.rejected:
        lines += ["", styled("not considered: offers, each under what it falls to", BOLD)]
        lines += [
            paragraph(
                f"{r.reason} (such as {r.example})", columns=columns, first=f"{r.count:>9,}  ", rest=" " * 11
            )
            for r in plan.rejected
        ]
    sys.stdout.write(_fit("\n".join(lines)) + "\n")


def _fit(text: str) -> str:
    """A terminal that is not UTF-8 gets letters that it has, and no traceback."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if is_utf8():
        return text
    plain = text.translate({ord("×"): "x", ord("·"): "-", ord("≤"): "<=", ord("…"): "~", ord("–"): "-"})
    return plain.encode(encoding, "replace").decode(encoding)


def is_utf8() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def _limits(plan: Plan) -> str:
    from arylcloud.core.units import say_limit, say_usd_limit

    limits = plan.job.constraints
    parts = []
    if limits.deadline_s is not None:
        parts.append(f"deadline {say_limit(limits.deadline_s)}")
    if limits.budget_usd is not None:
        parts.append(f"budget {say_usd_limit(limits.budget_usd)}")
    if limits.max_runtime_s is not None:
        parts.append(f"max_runtime {say_limit(limits.max_runtime_s)}")
    if limits.max_usd_per_hour is not None:
        parts.append(f"≤ {say_usd_limit(limits.max_usd_per_hour)}/h per machine")
    if limits.priced_since_s is not None:
        from arylcloud.pricing.table import format_as_of

        parts.append(f"prices from {format_as_of(int(limits.priced_since_s))} on")
    return "".join(f" · {part}" for part in parts)


def _chart(plan: Plan, columns: int) -> str:
    """Time against money: dots are candidates, letters the Pareto set, * the chosen one."""
    from arylcloud.cli.charts import Point, scatter

    known = [c for c in (plan.chosen, *plan.candidates) if c.usd is not None and c.hours is not None]
    if not known or plan.chosen.usd is None:
        return ""
    unit, per_hour = _time_unit(max(c.hours.p50 for c in known if c.hours is not None))
    digits = 2 if plan.chosen.usd.mean >= FEW_CENTS else 4
    points, legend = [], []

    def point(c: Candidate, mark: str | None = None) -> None:
        if c.usd is not None and c.hours is not None:
            points.append(Point(x=c.hours.p50 * per_hour, y=c.usd.mean, mark=mark))

    point(plan.chosen, "*")
    for letter, c in zip("abcdefghijklmnopqrstuvwxyz", plan.frontier, strict=False):
        if c.usd is None or c.hours is None:
            continue
        point(c, letter)
        market = {"on_demand": "on demand"}.get(c.offer.market.value, c.offer.market.value)
        late = ", late" if c.meets_deadline is False else ""
        over = ", over budget" if c.meets_budget is False else ""
        figures = f"{c.hours.p50 * per_hour:8.2f} {unit}  ${c.usd.mean:>10,.{digits}f}  "
        text = f"{figures}{c.nodes} × {c.offer.instance_type} {market}"
        text += f", {c.offer.place}{late}{over}"
        rest = " " * (5 + len(figures))
        legend.append(paragraph(text, columns=columns, first=f"  {letter}  ", rest=rest))
    for c in plan.candidates:
        point(c)
    if len(points) < 3:
        return ""
    names = {"h": "hours", "min": "minutes", "s": "seconds"}
    text = scatter(
        points,
        x_label=f"{names[unit]} (p50)",
        y_label="USD (mean)",
        width=min(columns, 76),
        height=12,
        unicode=is_utf8(),
    )
    key = "  *  chosen; letters: the Pareto set (nothing is faster and cheaper)"
    return "\n".join([text, key, *legend])


def _time_unit(most_h: float) -> tuple[str, float]:
    """(unit, how many of it are an hour) in which the longest of some times is well read."""
    if most_h * 3600 < 100:
        return "s", 3600.0
    return ("min", 60.0) if most_h < 1 else ("h", 1.0)
