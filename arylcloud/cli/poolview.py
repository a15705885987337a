"""The pool as a table, and as a document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arylcloud.cli.pooltend import usage

if TYPE_CHECKING:
    from arylcloud.providers.pool.adapter import State


def document(states: Sequence[State]) -> dict[str, Any]:
    return {"machines": [_row(state) for state in states], "usage": usage(states)}


def _row(state: State) -> dict[str, Any]:
    machine, lease = state.machine, state.lease
    return {
        "name": machine.name,
        "host": machine.host,
        "group": machine.group,
        "instance_type": machine.instance_type,
        "gpu": machine.gpu,
        "gpu_count": machine.gpu_count,
        "usd_per_hour": machine.usd_per_hour,
        "answers": state.problem is None,
        "problem": None if state.problem is None else state.problem.message,
        "lent": None if state.told is None else state.told["lent"],
        "job_id": None if lease is None else lease["job_id"],
        "lease_id": None if lease is None else lease["lease_id"],
        "since_s": None if lease is None else lease["launched_s"],
        "notice_at_s": None if lease is None else lease["notice_at_s"],
    }


def show(states: Sequence[State]) -> None:
    from arylcloud.cli.output import note, rate
    from arylcloud.cli.texttable import table, width

    if not states:
        note("the pool has no machines; `arylcloud pool add --help` says how one is entered")
        return
    now_s = time.time()
    rows = []
    for state in states:
        row = _row(state)
        gpus = f"{row['gpu_count']} × {row['gpu']}" if row["gpu"] else "no GPU"
        price = rate(row["usd_per_hour"])
        rows.append(
            [
                row["name"],
                row["host"],
                f"{row['group']}/{row['instance_type']}",
                gpus,
                price,
                _now(row, now_s),
            ]
        )
    print(  # noqa: T201 - data: on stdout
        table(
            ["machine", "host", "offer", "GPUs", "price", "now"],
            rows,
            right=frozenset({4}),
            shrink=(5, 1, 2),
            columns=width(),
        )
    )
    used = usage(states)
    share = "" if used["share"] is None else f" ({used['share']:.0%} of what answers)"
    note(f"{used['machines']} machines: {used['lent']} lent, {used['at_work']} at work for jobs{share}")


def _now(row: dict[str, Any], now_s: float) -> str:
    from arylcloud.core.units import say_duration

    if not row["answers"]:
        return f"does not answer: {row['problem']}"
    if row["job_id"] is None:
        return "free" if row["lent"] else "not lent"
    since = say_duration(max(1.0, now_s - row["since_s"]))
    if row["notice_at_s"] is not None:
        left_s = max(0.0, row["notice_at_s"] - now_s)
        return f"{row['job_id']}, for {since}; goes back in {left_s:.0f} s"
    return f"{row['job_id']}, for {since}"
