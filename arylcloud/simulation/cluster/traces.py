"""Job traces: Gavel's ``.trace`` (ten tab-separated columns, or the older seven) and the jobs CSV.

* ten: job type, command, working directory, steps flag, needs data, **total steps, GPUs, weight, SLO factor**
  (−1 = none)**, arrival (s)**;
* seven (Gavel before 2020-06, its msr and philly files): job type, command, flag, needs data, **total steps,
  arrival (s), GPUs**; weight 1, no SLO;
* CSV: ``job_id, submit_s, duration_s, num_gpus`` and, where known, ``model`` (a job type of the table);
  ``duration_s`` is on the reference worker type. Whatever a job's ``status``, it held its GPUs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.simulation.cluster.throughputs import number, open_text, rows_of, whole
from arylcloud.simulation.cluster.workload import Jobs

_CSV = ("job_id", "submit_s", "duration_s", "num_gpus")


def read_trace(path: Path) -> Jobs:
    """Jobs in order of arrival (file order where equal). UsageError with the line for bad input."""
    jobs = _csv(path) if ".csv" in path.suffixes else _gavel(path)
    if not len(jobs):
        raise UsageError(f"{path}: no job in it", hint="a line per job")
    return jobs


def _gavel(path: Path) -> Jobs:
    types: list[str] = []
    rows: list[tuple[float, float, float, float, float]] = []  # steps, GPUs, weight, SLO, arrival
    lines: list[int] = []
    with open_text(path) as stream:
        try:
            for line, text in enumerate(stream, 1):
                if not text.strip():
                    continue
                cells: list[str] = text.rstrip("\r\n").split("\t")
                where = f"{path}:{line}"
                if len(cells) == 10:
                    steps, gpus, weight, slo, arrival = cells[5:]
                elif len(cells) == 7:
                    steps, arrival, gpus, weight, slo = *cells[4:], "1", "-1"
                else:
                    raise UsageError(
                        f"{where}: {len(cells)} tab-separated columns, not ten",
                        hint="a Gavel trace has ten (or, the older layout, seven); a jobs CSV ends in .csv",
                    )
                if not cells[0]:
                    raise UsageError(
                        f"{where}: no job type",
                        hint="the first column names a job type of the throughput table",
                    )
                factor = number(slo, where, "SLO", least=-1.0)
                rows.append(
                    (
                        whole(steps, where, "total_steps", least=1),
                        whole(gpus, where, "scale_factor", least=1),
                        _positive(weight, where, "priority_weight"),
                        factor if factor > 0 else np.nan,
                        number(arrival, where, "arrival_time"),
                    )
                )
                types.append(cells[0])
                lines.append(line)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not a text file: {error}", hint="a trace is text in UTF-8, gzipped or not"
            ) from error
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    order = np.argsort(table[:, 4], kind="stable")
    table = table[order]
    at = [lines[i] for i in order]
    return Jobs(
        names=[str(i) for i in range(len(rows))],
        job_type=[types[i] for i in order],
        gpus=table[:, 1].astype(np.int64),
        steps=table[:, 0],
        duration_s=np.full(len(rows), np.nan),
        arrival_s=table[:, 4],
        weight=table[:, 2],
        slo_factor=table[:, 3],
        where=lambda i: f"{path}:{at[i]}",
    )


def _csv(path: Path) -> Jobs:
    names: list[str] = []
    types: list[str] = []
    rows: list[tuple[float, float, float]] = []
    lines: list[int] = []
    for line, row in rows_of(path, _CSV):
        where = f"{path}:{line}"
        rows.append(
            (
                number(row["submit_s"], where, "submit_s"),
                _positive(row["duration_s"], where, "duration_s"),
                whole(row["num_gpus"], where, "num_gpus", least=1),
            )
        )
        names.append(row["job_id"])
        types.append(row.get("model") or "")
        lines.append(line)
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    order = np.argsort(table[:, 0], kind="stable")
    table = table[order]
    at = [lines[i] for i in order]
    unknown = np.full(len(rows), np.nan)
    return Jobs(
        names=[names[i] for i in order],
        job_type=[types[i] for i in order],
        gpus=table[:, 2].astype(np.int64),
        steps=unknown,
        duration_s=table[:, 1],
        arrival_s=table[:, 0],
        weight=np.ones(len(rows)),
        slo_factor=unknown,
        where=lambda i: f"{path}:{at[i]}",
    )


def _positive(text: str | None, where: str, name: str) -> float:
    value = number(text, where, name)
    if value <= 0:
        raise UsageError(f"{where}: {name} is {text!r}, not more than 0", hint="a number above 0")
    return value
