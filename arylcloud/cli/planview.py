"""A plan for people (table, chart, reasons) and for scripts (the JSON of DESIGN)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

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
    """Table and chart on stdout."""
    from arylcloud.cli.output import stdout

    console = stdout()
    job = plan.job
    newest = f"newest price {plan.catalogue.as_of}" if plan.catalogue.as_of else "no price is dated"
    work = f" · {job.work.amount:g} {job.work.unit}" if job.work else ""
    console.print(f"{job.name}{work} · objective {plan.objective}{_limits(plan)}", markup=False, style="bold")
    console.print(f"{plan.catalogue.offers:,} offers, {newest}\n", markup=False)
    console.print(_table(plan))
    chart = _chart(plan, console.width)
    if chart:
        console.print(chart, markup=False)
    console.print("\nwhy", style="bold")
    for text in plan.why:
        console.print(f"  · {text}", markup=False)
    if plan.rejected:
        console.print("\nnot considered", style="bold")
        for r in plan.rejected:
            console.print(f"  {r.count:>7,}  {r.reason}  (such as {r.example})", markup=False)


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


def _table(plan: Plan) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    profiled = plan.chosen.usd is not None
    table.add_column("#", justify="right")
    table.add_column("machines", overflow="fold")
    table.add_column("GPUs")
    table.add_column("where", overflow="fold")
    table.add_column("market")
    table.add_column("$/h", justify="right")
    table.add_column("as of")
    if profiled:
        table.add_column("hours p50", justify="right")
        table.add_column("p90", justify="right")
        table.add_column("$ mean", justify="right")
        table.add_column("p90", justify="right")
        table.add_column("rate from")
        table.add_column("")
    else:
        table.add_column("why", overflow="fold")
    for c, places in _grouped(plan.candidates):
        table.add_row(*_row(c, places, profiled), style="bold" if c.rank == 1 else "")
    return table


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
    from arylcloud.cli.output import hours

    offer = c.offer
    where = offer.place + (f" (+{places} more)" if places else "")
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
            ("pareto", c.pareto),
        )
        if true
    )
    return [
        *cells,
        hours(c.hours.p50),
        hours(c.hours.p90),
        f"{c.usd.mean:,.2f}",
        f"{c.usd.p90:,.2f}",
        f"{c.throughput_source}{rel}",
        flags,
    ]


def _chart(plan: Plan, width: int) -> str:
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
    utf8 = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "") == "utf8"
    text = scatter(
        points, x_label="hours (p50)", y_label="USD (mean)", width=min(width, 76), height=12, unicode=utf8
    )
    return f"{text}\n  *  chosen; letters: the Pareto set (nothing is faster and cheaper)\n" + "\n".join(
        legend
    )
