"""A plan of many jobs for people (jobs, offers, what else one would do, what binds) and for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from arylcloud.cli.output import usd
from arylcloud.cli.plantable import span
from arylcloud.cli.planview import _fit
from arylcloud.cli.texttable import BOLD, paragraph, styled, table, width
from arylcloud.core.codec import encode
from arylcloud.core.units import say_duration

if TYPE_CHECKING:
    from arylcloud.planner.manyplan import Held, ManyPlan, PlannedJob, UsedPool

WIDE = 110
"""Columns from which the tables show everything on one line."""
LEAST = 0.005
"""Of a job's time: less is not shown (the JSON has all)."""


def document(plan: ManyPlan) -> dict[str, Any]:
    """``plan --json`` of many jobs, without its schema_version."""
    found: dict[str, Any] = encode(plan)
    return found


def show(plan: ManyPlan) -> None:
    columns = width()
    all_told = plan.totals
    head = (
        f"{all_told.jobs} job{'' if all_told.jobs == 1 else 's'} · policy {plan.policy} ({plan.policy_why})"
    )
    lines = [paragraph(head, columns=columns)]
    if plan.catalogue is not None:
        newest = f"newest price {plan.catalogue.as_of}" if plan.catalogue.as_of else "no price is dated"
        lines.append(f"{plan.catalogue.offers:,} offers, {newest}")
    lines += ["", _jobs(plan, columns), "", _offers(plan, columns), ""]
    total = f"all jobs: {usd(all_told.usd.mean)} ({usd(all_told.usd.p90)} p90), the last ends after"
    total += f" {span(all_told.hours.p50, all_told.hours.p90)}, {all_told.gpu_hours:,.1f} GPU-hours"
    lines += [styled(paragraph(total, columns=columns), BOLD), "", _baselines(plan, columns)]
    lines += ["", styled("what binds", BOLD)]
    texts = [b.text for b in plan.binding] or [_nothing_binds(plan)]
    lines += [paragraph(text, columns=columns, first="  · ", rest="    ") for text in texts]
    if plan.notes:
        lines += ["", styled("what the figures rest on", BOLD)]
        lines += [paragraph(text, columns=columns, first="  · ", rest="    ") for text in plan.notes]
    sys.stdout.write(_fit("\n".join(lines)) + "\n")


def _nothing_binds(plan: ManyPlan) -> str:
    if plan.objective_unit is None or all(pool.worth is None for pool in plan.offers):
        return f"{plan.policy} has no objective that says what one more GPU is worth"
    return "nothing: no further GPU and no later deadline would make this cheaper or better"


def _jobs(plan: ManyPlan, columns: int) -> str:
    bought = plan.objective_unit == "$"
    first = [_job_cells(job, bought) for job in plan.jobs]
    heads = ["job", "gets", "rate", "ends p50-p90", "$ mean", "$ p90"]
    right = frozenset({2, 4, 5})
    limited = any(job.deadline_h is not None for job in plan.jobs)
    if limited:
        heads.insert(4, "deadline")
        right = frozenset({2, 4, 5, 6})
    if columns >= WIDE:
        rows = []
        for job, cells in zip(plan.jobs, first, strict=True):
            row = [job.name, cells["gets"], cells["rate"], cells["ends"]]
            rows.append([*row, *([cells["deadline"]] if limited else []), cells["mean"], cells["p90"]])
        text = table(heads, rows, right=right, shrink=(1, 0), columns=columns)
        if max(map(len, text.splitlines())) <= columns:
            return f"{text}\n{_legend(plan, columns, bought)}"
    rows = []
    for job, cells in zip(plan.jobs, first, strict=True):
        rows.append(
            [job.name, cells["ends"], *([cells["deadline"]] if limited else []), cells["mean"], cells["p90"]]
        )
    heads = ["job", "ends p50-p90", *(["deadline"] if limited else []), "$ mean", "$ p90"]
    lines = table(
        heads, rows, right=frozenset(range(2, len(heads))), shrink=(0,), columns=columns
    ).splitlines()
    found = [lines[0]]
    for line, cells in zip(lines[1:], first, strict=True):
        found += [
            line,
            paragraph(f"{cells['gets']} · {cells['rate']}", columns=columns, first="    ", rest="      "),
        ]
    return "\n".join([*found, _legend(plan, columns, bought)])


def _job_cells(job: PlannedJob, bought: bool) -> dict[str, str]:
    shown = [h for h in job.gets if h.share >= LEAST]
    gets = " + ".join(_held(h, len(shown) > 1 or not bought) for h in shown)
    if job.waits:
        gets = f"waits, then {gets}"
    return {
        "gets": gets,
        "rate": f"{job.throughput:,.4g} {job.throughput_unit}",
        "ends": span(job.hours.p50, job.hours.p90),
        "deadline": "" if job.deadline_h is None else say_duration(job.deadline_h * 3600),
        "mean": f"{job.usd.mean:,.2f}",
        "p90": f"{job.usd.p90:,.2f}",
    }


def _held(held: Held, parted: bool) -> str:
    """``8 A100``, ``62% 8 A100``; behind an offer its type and place."""
    part = f"{100 * held.share:.0f}% " if parted and held.share < 0.9995 else ""
    if held.at is None:
        return f"{part}{held.gpus} {held.offer}"
    market = held.at.market.value.replace("_", "-")
    return (
        f"{part}{held.gpus} {held.at.gpu} ({held.nodes} × {held.at.instance_type} {market}, {held.at.place})"
    )


def _legend(plan: ManyPlan, columns: int, bought: bool) -> str:
    parts = ["ends: from now"]
    if any(job.gets and (len(job.gets) > 1 or job.gets[0].share < 0.9995) for job in plan.jobs):
        parts.append("N%: of its running time" if bought else "N%: of its time, at the beginning")
    parts.append("p90: pessimistic, throughputs at their low end and losses at their bad end")
    return paragraph("; ".join(parts), columns=columns, first="    ", rest="    ")


def _offers(plan: ManyPlan, columns: int) -> str:
    worth = any(pool.worth is not None and pool.worth.value > 0 for pool in plan.offers)
    heads = [
        "GPUs",
        "there are",
        "used",
        "free",
        "jobs",
        "GPU-h",
        "$/GPU-h",
        "$",
        *(["more of it"] if worth else []),
    ]
    # of quotas that are only assumed, those that the plan uses
    told = [p for p in plan.offers if not p.assumed or p.jobs or (p.worth is not None and p.worth.value > 0)]
    rows = [_offer_cells(pool, worth) for pool in told]
    right = frozenset(range(1, len(heads)))
    if columns < WIDE:
        keep = [i for i, name in enumerate(heads) if name not in ("jobs",)]
        heads, rows = [heads[i] for i in keep], [[row[i] for i in keep] for row in rows]
        right = frozenset(range(1, len(heads)))
    text = table(heads, rows, right=right, shrink=(0,), columns=columns)
    legend = "used, free: at the beginning, on average; $/GPU-h: what the jobs pay, everything included"
    if worth:
        legend += "; more of it: what so many more are worth"
    if any(pool.assumed for pool in told):
        legend += "; ?: assumed"
    if len(told) < len(plan.offers):
        legend += f"; {len(plan.offers) - len(told)} more that no job uses"
    return f"{text}\n{paragraph(legend, columns=columns, first='    ', rest='    ')}"


def _offer_cells(pool: UsedPool, worth: bool) -> list[str]:
    cells = [
        pool.name,
        f"{pool.gpus}{'?' if pool.assumed else ''}",
        f"{pool.used:.4g}",
        f"{pool.free:.4g}",
        str(pool.jobs),
        f"{pool.gpu_hours:,.1f}",
        "unknown" if pool.usd_per_gpu_hour is None else f"{pool.usd_per_gpu_hour:.4f}",
        f"{pool.usd:,.2f}",
    ]
    if worth:
        value = pool.worth
        if value is None or value.value <= 0:
            cells.append("")
        elif value.usd_per_hour is not None:
            cells.append(f"+{value.gpus}: ${value.usd_per_hour:.3g}/h")
        else:
            cells.append(f"+{value.gpus}: {value.value:.3g}")
    return cells


def _baselines(plan: ManyPlan, columns: int) -> str:
    late = any(b.late for b in plan.baselines)
    rows = [
        [
            f"this plan ({plan.policy})",
            usd(plan.totals.usd.mean),
            say_duration(plan.totals.hours.p50 * 3600),
            *(["0"] if late else []),
            "",
        ]
    ]
    for b in plan.baselines:
        if b.usd is None or b.hours is None:
            rows.append([b.name, "", "", *([""] if late else []), f"{b.title}: some job would never end"])
            continue
        count = [] if not late else [str(b.late or 0)]
        rows.append([b.name, usd(b.usd), say_duration(b.hours * 3600), *count, b.title])
    heads = ["beside", "$ mean", "last ends", *(["late"] if late else []), "what it is"]
    legend = ["beside: the same jobs on the same offers, shared out in other ways; last ends: p50"]
    if late:
        legend.append("late: jobs that would miss their deadline")
    right = frozenset(range(1, 3 + late))
    told = paragraph("; ".join(legend), columns=columns, first="    ", rest="    ")
    if columns >= WIDE:
        return f"{table(heads, rows, right=right, shrink=(len(heads) - 1,), columns=columns)}\n{told}"
    found = table(heads[:-1], [row[:-1] for row in rows], right=right, shrink=(0,), columns=columns)
    head, *lines = found.splitlines()
    for line, row in zip(lines, rows, strict=True):
        head += f"\n{line}"
        if row[-1]:
            head += "\n" + paragraph(row[-1], columns=columns, first="    ", rest="      ")
    return f"{head}\n{told}"
