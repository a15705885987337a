"""A plan for people (table, chart, reasons) and for scripts (the JSON of DESIGN)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from arylcloud.cli.texttable import BOLD, paragraph, styled, table, width
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
        _table(plan, columns),
    ]
    chart = _chart(plan, columns)
    if chart:
        lines += ["", chart]
    lines += ["", styled("why", BOLD)]
    lines += [paragraph(text, columns=columns, first="  · ", rest="    ") for text in plan.why]
    if plan.rejected:
        lines += ["", styled("not considered", BOLD)]
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


_SOURCE = {"measured": "meas.", "published": "publ.", "estimated": "est.", "user": "yours"}


def _range(p50: float, p90: float) -> str:
    """Both in one unit: ``5.0-5.8 h``, ``12-14 min``, ``4.1-5.0 d``."""
    if p90 < 1:
        return f"{p50 * 60:.0f}-{p90 * 60:.0f} min"
    return f"{p50:.1f}-{p90:.1f} h" if p90 < 72 else f"{p50 / 24:.1f}-{p90 / 24:.1f} d"


def _limits(plan: Plan) -> str:
    from arylcloud.cli.output import hours, usd

    limits = plan.job.constraints
    parts = []
    if limits.deadline_s is not None:
        parts.append(f"deadline {hours(limits.deadline_s / 3600)}")
    if limits.budget_usd is not None:
        parts.append(f"budget {usd(limits.budget_usd)}")
    if limits.max_runtime_s is not None:
        parts.append(f"max_runtime {hours(limits.max_runtime_s / 3600)}")
    if limits.max_usd_per_hour is not None:
        parts.append(f"≤ {usd(limits.max_usd_per_hour)}/h per machine")
    return "".join(f" · {part}" for part in parts)


def _table(plan: Plan, columns: int) -> str:
    profiled = plan.chosen.usd is not None
    headers = ["#", "machines", "GPUs", "where", "market", "$/h each", "as of"]
    headers += ["hours p50-p90", "$ mean", "$ p90", "rate", ""] if profiled else ["why"]
    rows = [_row(c, places, profiled) for c, places in _grouped(plan.candidates)]
    right = frozenset({0, 5, 7, 8, 9} if profiled else {0, 5})
    return table(headers, rows, right=right, shrink=(3, 1), columns=columns, bold_rows=frozenset({0}))


def _grouped(candidates: tuple[Candidate, ...]) -> list[tuple[Candidate, int]]:
    """The best place of every (type, market, machines), and how many more places are in the list."""
    first: dict[tuple[str, str, int], Candidate] = {}
    count: dict[tuple[str, str, int], int] = {}
    for c in candidates:
        key = (c.offer.instance_type, c.offer.market.value, c.nodes)
        first.setdefault(key, c)
        count[key] = count.get(key, 0) + 1
    return [(c, count[key] - 1) for key, c in first.items()]


def _row(c: Candidate, places: int, profiled: bool) -> list[str]:
    offer = c.offer
    # a zone's own name tells its region, but for Azure's 1, 2, 3: the reasons below name places in full
    short = f"{offer.cloud}/{offer.zone}" if offer.zone and not offer.zone.isdigit() else offer.place
    where = short + (f" +{places}" if places else "")
    cells = [
        str(c.rank),
        f"{c.nodes} × {offer.instance_type}",
        f"{offer.gpu_count} × {offer.gpu}",
        where,
        {"on_demand": "on demand"}.get(offer.market.value, offer.market.value),
        "unknown" if offer.usd_per_hour is None else f"{offer.usd_per_hour:.4f}",
        (offer.as_of or "unknown")[:10],
    ]
    if not profiled or c.usd is None or c.hours is None:
        return [*cells, c.why]
    rel = "" if c.throughput_rel_error is None else f" +{c.throughput_rel_error:.0%}"
    flags = " ".join(
        text
        for text, true in (
            ("late", c.meets_deadline is False),
            ("over budget", c.meets_budget is False),
            ("P", c.pareto),
        )
        if true
    )
    return [
        *cells,
        _range(c.hours.p50, c.hours.p90),
        f"{c.usd.mean:,.2f}",
        f"{c.usd.p90:,.2f}",
        f"{_SOURCE[c.throughput_source or 'estimated']}{rel}",
        flags,
    ]


def _chart(plan: Plan, columns: int) -> str:
    """Time against money: dots are candidates, letters the Pareto set, * the chosen one."""
    from arylcloud.cli.charts import Point, scatter

    points = []
    if plan.chosen.usd is not None and plan.chosen.hours is not None:
        points.append(Point(x=plan.chosen.hours.p50, y=plan.chosen.usd.mean, mark="*"))
    legend = []
    for letter, c in zip("abcdefghijklmnopqrstuvwxyz", plan.frontier, strict=False):
        if c.usd is None or c.hours is None:
            continue
        points.append(Point(x=c.hours.p50, y=c.usd.mean, mark=letter))
        market = {"on_demand": "on demand"}.get(c.offer.market.value, c.offer.market.value)
        late = ", late" if c.meets_deadline is False else ""
        over = ", over budget" if c.meets_budget is False else ""
        legend.append(
            f"  {letter}  {c.hours.p50:8.2f} h  ${c.usd.mean:>10,.2f}  {c.nodes} × {c.offer.instance_type}"
            f" {market}, {c.offer.place}{late}{over}"
        )
    points += [
        Point(x=c.hours.p50, y=c.usd.mean)
        for c in plan.candidates
        if c.usd is not None and c.hours is not None
    ]
    if len(points) < 3:
        return ""
    text = scatter(
        points,
        x_label="hours (p50)",
        y_label="USD (mean)",
        width=min(columns, 76),
        height=12,
        unicode=is_utf8(),
    )
    return f"{text}\n  *  chosen; letters, and P above: the Pareto set (nothing is faster and cheaper)\n" + "\n".join(
        legend
    )
