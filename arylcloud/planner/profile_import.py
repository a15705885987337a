"""Profiles out of other people's files: Gavel's throughputs (JSON), and tables (CSV).

Gavel's ``simulation_throughputs.json``: ``{worker type: {"('ResNet-18 (batch size 16)', 2)": {"null":
steps/s, "('LM (batch size 5)', 1)": [a, b], …}}}``; worker types ``v100``, ``v100_unconsolidated``…. Rates
beside another job (space sharing) are not a job's own and are left out; a rate of 0 means: not run.

CSV: Gavel's columns (``job_type, scale_factor, worker_type, steps_per_s``, also ``consolidated,
batch_size``), or a user's own: ``name, gpu, gpus, rate, unit``, also the other keys of a measurement.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError

MOST_BYTES: Final = 32 * 1024 * 1024
MOST_ROWS: Final = 100_000
_APART: Final = "_unconsolidated"
_BATCH: Final = re.compile(r"batch size (\d+)")
_OWN: Final = ("name", "gpu", "gpus", "rate", "unit")
_OWN_MORE: Final = ("nodes", "precision", "framework", "batch", "seq_len", "source", "as_of")
_GAVEL: Final = ("job_type", "scale_factor", "worker_type", "steps_per_s")
_NUMBERS: Final = ("gpus", "rate", "nodes", "batch", "seq_len")

Profiles = list[dict[str, Any]]
"""As a user's file has them."""


def read(path: Path, *, source: str | None = None) -> Profiles:
    """The profiles of a file; UsageError with what is wrong and where. ``source``: said of each figure
    (None: the file's name)."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise UsageError(
                f"{path} has {size:,} bytes; at most {MOST_BYTES:,} are read", hint="is it the right file?"
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="a JSON or CSV file in UTF-8") from error
    said = source or f"imported from {path.name}"
    rows = _gavel_json(text, path) if path.suffix.lower() == ".json" else _csv(text, path)
    found: dict[str, dict[str, Any]] = {}
    for count, (name, unit, row) in enumerate(rows, 1):
        if count > MOST_ROWS:
            raise UsageError(f"{path}: more than {MOST_ROWS:,} rates", hint="is it the right file?")
        profile = found.setdefault(name, {"name": name, "unit": unit, "measurements": []})
        if profile["unit"] != unit:
            raise UsageError(
                f"{path}: {name} stands in {profile['unit']} and in {unit}",
                hint="one unit per profile: give the other a name of its own",
            )
        profile["measurements"].append({"source": said, **row})
    if not found:
        raise UsageError(f"{path}: no rates in it", hint="Gavel's throughputs as JSON, or CSV with a header")
    return list(found.values())


_Row = tuple[str, str, dict[str, Any]]
"""(profile, unit, measurement)."""


def _gavel_json(text: str, path: Path) -> Iterator[_Row]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid JSON: {error}", hint="Gavel's throughputs; a table ends in .csv"
        ) from error
    if not isinstance(document, dict):
        raise UsageError(
            f"{path}: not Gavel's layout: an object of worker types at the top",
            hint='{"v100": {"(\'JOB\', 1)": {"null": steps/s}}}',
        )
    for worker, jobs in document.items():
        if not isinstance(jobs, dict):
            raise UsageError(
                f"{path}: {worker}: not an object of jobs",
                hint='{"v100": {"(\'JOB\', 1)": {"null": steps/s}}}',
            )
        for key, rates in jobs.items():
            where = f"{path}: {worker}: {key}"
            job, count = _gavel_key(key, where)
            if not isinstance(rates, dict):
                raise UsageError(f"{where}: not an object of rates", hint='{"null": steps/s alone}')
            if "null" in rates:
                row = _gavel_row(job, count, worker, rates["null"], where)
                if row is not None:
                    yield row


def _gavel_key(key: str, where: str) -> tuple[str, int]:
    try:
        job, count = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"{where}: not a job as Gavel writes it: ('name', scale factor)",
            hint="\"('ResNet-50 (batch size 64)', 1)\": the job type and its number of GPUs",
        ) from error
    if not isinstance(job, str) or not isinstance(count, int) or count < 1:
        raise UsageError(
            f"{where}: not a job as Gavel writes it: ('name', scale factor)",
            hint="\"('ResNet-50 (batch size 64)', 1)\": the job type and its number of GPUs",
        )
    return job, count


def _gavel_row(job: str, count: int, worker: str, rate: Any, where: str) -> _Row | None:
    value = _number(rate, where)
    if value < 0:
        raise UsageError(f"{where}: a rate of {value:g}", hint="steps/s, 0 where the job did not run")
    apart = worker.endswith(_APART)
    if value == 0 or (apart and count == 1):  # not run; one GPU is one GPU
        return None
    batch = _BATCH.search(job)
    row: dict[str, Any] = {
        "gpu": gpus.resolve(worker.removesuffix(_APART)),
        "gpus": count,
        "nodes": None if apart else 1,
        "rate": value,
        "precision": "fp32",
        "framework": "PyTorch (Gavel)",
        "kind": "published",
    }
    if batch is not None:
        row["batch"] = int(batch[1])
    return job, "steps/s", row


def _csv(text: str, path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    header = tuple(reader.fieldnames or ())
    if set(_GAVEL) <= set(header):
        return _gavel_csv(reader, path)
    if set(_OWN) <= set(header):
        unknown = sorted(set(header) - {*_OWN, *_OWN_MORE})
        if unknown:
            raise UsageError(
                f"{path}: unknown column {unknown[0]!r}", hint=f"known: {', '.join((*_OWN, *_OWN_MORE))}"
            )
        return _own_csv(reader, path)
    raise UsageError(
        f"{path}: the columns are neither Gavel's nor ours",
        hint=f"{', '.join(_OWN)}; or Gavel's {', '.join(_GAVEL)}",
    )


def _rows(reader: csv.DictReader[str], path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise UsageError(
                    f"{where}: not as many fields as the header has", hint="quote fields that contain commas"
                )
            yield where, row
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {reader.line_num}: {error}", hint="a table with a header and a row per rate"
        ) from error


def _gavel_csv(reader: csv.DictReader[str], path: Path) -> Iterator[_Row]:
    for where, row in _rows(reader, path):
        worker = row["worker_type"].strip()
        if row.get("consolidated") in ("0", "False", "false") and not worker.endswith(_APART):
            worker += _APART
        count = _number(row["scale_factor"], f"{where}: scale_factor")
        if count < 1 or count != int(count):
            raise UsageError(
                f"{where}: scale_factor: {row['scale_factor']} is no number of GPUs",
                hint="a whole number from 1",
            )
        found = _gavel_row(row["job_type"], int(count), worker, row["steps_per_s"], where)
        if found is not None:
            yield found


def _own_csv(reader: csv.DictReader[str], path: Path) -> Iterator[_Row]:
    for where, row in _rows(reader, path):
        cells = {k: v.strip() for k, v in row.items() if v.strip()}
        missing = next((k for k in _OWN if k not in cells), None)
        if missing is not None:
            raise UsageError(f"{where}: {missing} is empty", hint="every row gives every needed column")
        name, unit = cells.pop("name"), cells.pop("unit")
        row_: dict[str, Any] = dict(cells)
        for k in _NUMBERS:
            if k in row_:
                row_[k] = _whole_if(_number(row_[k], f"{where}: {k}"))
        yield name, unit, row_


def _whole_if(value: float) -> float:
    return int(value) if value == int(value) else value


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise UsageError(f"{where}: {value!r} is no number", hint="a number, as 12.5")
    return number


def counts(profiles: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """(profiles, figures)."""
    found = [len(p["measurements"]) for p in profiles]
    return len(found), sum(found)
