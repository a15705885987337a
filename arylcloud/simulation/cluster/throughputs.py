"""What a job gets out of a worker type, alone and beside another job: Gavel's tables, as CSV or JSON.

* CSV, one row per (job type, GPUs, worker type): ``job_type, scale_factor, worker_type, consolidated,
  steps_per_s``; pairs in a file beside it (``isolated`` in the name becomes ``colocated``):
  ``worker_type, consolidated, scale_factor, job_type_a, job_type_b, steps_per_s_a, steps_per_s_b``.
* JSON, Gavel's own ``simulation_throughputs.json``: ``{type: {"('JOB', GPUS)": {"null": steps/s,
  "('OTHER', GPUS)": [own, other]}}}``.

Only consolidated rows count (all GPUs of a job on one machine), as in Gavel's simulator. Any of them may
be compressed (``.gz``).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from arylcloud.core.bounded import read_bounded
from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F, I

REFERENCE = "v100"
"""Gavel measures a job's length on this type."""
_KEY = re.compile(r"\('(.*)', (\d+)\)")
_PAIR_COLUMNS = ("worker_type", "scale_factor", "job_type_a", "job_type_b", "steps_per_s_a", "steps_per_s_b")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Throughputs:
    """Rates of c classes (job type × GPUs) on m worker types, alphabetical; shapes (c, m) and (c, c, m)."""

    source: str
    worker_types: tuple[str, ...]
    classes: tuple[tuple[str, int], ...]
    isolated: F
    """(c, m) steps/s of the whole job, alone; 0 = cannot run."""
    pairs: Callable[[], Iterator[tuple[str, str, str, int, float, float, str]]] | None
    """Rows (worker type, a, b, GPUs, rate of a, rate of b, where in the file), read when first needed."""

    @cached_property
    def index(self) -> dict[tuple[str, int], int]:
        return {key: i for i, key in enumerate(self.classes)}

    @cached_property
    def class_gpus(self) -> I:
        return np.array([gpus for _, gpus in self.classes], dtype=np.int64)

    @cached_property
    def scales(self) -> tuple[tuple[int, ...], ...]:
        """Per class, the classes of its job type in order of GPUs."""
        families: dict[str, list[int]] = {}
        for i, (kind, _) in enumerate(self.classes):
            families.setdefault(kind, []).append(i)
        ordered = {k: tuple(sorted(v, key=lambda i: self.classes[i][1])) for k, v in families.items()}
        return tuple(ordered[kind] for kind, _ in self.classes)

    @cached_property
    def _by_gpus(self) -> dict[int, I]:
        found: dict[int, list[int]] = {}
        for i, (_, gpus) in enumerate(self.classes):
            found.setdefault(gpus, []).append(i)
        return {gpus: np.array(rows, dtype=np.int64) for gpus, rows in found.items()}

    def by_gpus(self, gpus: int) -> I:
        """Classes that run on ``gpus`` GPUs, or on the largest number below for which there are any."""
        sizes = [size for size in self._by_gpus if size <= gpus] or [min(self._by_gpus)]
        return self._by_gpus[max(sizes)]

    def columns(self, worker_types: tuple[str, ...]) -> list[int]:
        """Where these types stand; UsageError for one that the table does not have."""
        for kind in worker_types:
            if kind not in self.worker_types:
                known = ", ".join(self.worker_types)
                raise UsageError(f"no throughput for worker type '{kind}'", hint=f"{self.source} has {known}")
        return [self.worker_types.index(kind) for kind in worker_types]

    def reference(self, worker_types: tuple[str, ...]) -> int:
        """The type on which a job's length is told: v100, or where there is none the fastest of these."""
        if REFERENCE in self.worker_types:
            return self.worker_types.index(REFERENCE)
        return self.worker_types.index(self.fastest_first(worker_types)[0])

    def fastest_first(self, worker_types: tuple[str, ...]) -> tuple[str, ...]:
        """By the mean of log rate over the classes that run on all of these types."""
        rates = self.isolated[:, self.columns(worker_types)]
        both = rates[(rates > 0).all(axis=1)]
        level = np.log(both).mean(axis=0) if len(both) else np.zeros(len(worker_types))
        return tuple(worker_types[j] for j in np.argsort(-level, kind="stable"))

    def shared(self) -> F:
        """(c, c, m) steps/s of the first class beside the second; 0 = they cannot share.

        UsageError where there is no table of pairs."""
        return self._shared

    @cached_property
    def _shared(self) -> F:
        if self.pairs is None:
            raise UsageError(
                f"no co-located throughputs beside {self.source}",
                hint="a policy that packs jobs needs colocated_throughputs….csv(.gz) in the same folder",
            )
        c, m = self.isolated.shape
        rate = np.zeros((c, c, m))
        types = {kind: j for j, kind in enumerate(self.worker_types)}
        for kind, a, b, gpus, rate_a, rate_b, where in self.pairs():
            j, ia, ib = types.get(kind), self.index.get((a, gpus)), self.index.get((b, gpus))
            if j is None or ia is None or ib is None:
                missing = kind if j is None else a if ia is None else b
                raise UsageError(
                    f"{where}: {missing!r} is not in {self.source}",
                    hint="both jobs of a pair need a rate alone, too",
                )
            rate[ia, ib, j], rate[ib, ia, j] = rate_a, rate_b
        return rate


def read_throughputs(path: Path) -> Throughputs:
    """Gavel's JSON (``.json``, ``.json.gz``) or the CSV form. UsageError names the file and the line."""
    return _from_json(path) if ".json" in path.suffixes else _from_csv(path)


def uniform(worker_types: tuple[str, ...], sizes: tuple[int, ...]) -> Throughputs:
    """For traces without job types and without a table: every type does one second of work a second."""
    return Throughputs(
        source="no table",
        worker_types=tuple(sorted(worker_types)),
        classes=tuple(("any", size) for size in sizes),
        isolated=np.ones((len(sizes), len(worker_types))),
        pairs=None,
    )


def open_text(path: Path) -> io.TextIOWrapper:
    """The file as text, unpacked where it is gzip. UsageError if it cannot be read, or is far too large."""
    try:
        data = read_bounded(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}", hint="name a text file, gzipped or not") from error
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")  # spreadsheets write a BOM


MOST_ROWS = 5_000_000
"""Of a CSV: a few kB of gzip hold more, and minutes of reading."""


def rows_of(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row) of a CSV with these columns at least."""
    with open_text(path) as stream:
        try:
            reader = csv.DictReader(stream)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(
                    f"{path}:1: no column {', '.join(missing)}", hint=f"columns needed: {', '.join(needed)}"
                )
            for count, row in enumerate(reader):
                if count == MOST_ROWS:
                    raise UsageError(f"{path}: more than {MOST_ROWS:,} rows", hint="is it the right file?")
                yield reader.line_num, row
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(
                f"{path} is not a CSV file: {error}", hint="a table in UTF-8 with a header, gzipped or not"
            ) from error


MOST = 1e12
"""Seconds, steps, steps/s: 30,000 years, and more than any training does."""


def number(text: str | None, where: str, name: str, *, least: float = 0.0) -> float:
    """A finite number ≥ ``least``; UsageError otherwise."""
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:
        raise UsageError(
            f"{where}: {name} is {text!r}, not a number from {least:g} to {MOST:g}",
            hint="a plain number, as 12.5",
        )
    return value


def whole(text: str | None, where: str, name: str, *, least: int = 0) -> int:
    value = number(text, where, name, least=least)
    if value != int(value):
        raise UsageError(f"{where}: {name} is {text!r}, not a whole number", hint="a whole number, as 12")
    return int(value)


def _from_csv(path: Path) -> Throughputs:
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for line, row in rows_of(path, ("job_type", "scale_factor", "worker_type", "steps_per_s")):
        if (row.get("consolidated") or "1") != "1":
            continue
        where = f"{path}:{line}"
        key = (row["job_type"], whole(row["scale_factor"], where, "scale_factor", least=1))
        rates.setdefault(key, {})[row["worker_type"]] = number(row["steps_per_s"], where, "steps_per_s")
    beside = _beside(path)
    return _table(path, rates, None if beside is None else lambda: _csv_pairs(beside))


def _beside(path: Path) -> Path | None:
    """The table of pairs: the same name with ``colocated``, or the only one there is (rates beside
    another job were measured once; Gavel uses them with both of its isolated tables)."""
    name = path.name.replace("isolated", "colocated")
    if name == path.name:
        return None
    stem = name.removesuffix(".gz")
    for candidate in (path.with_name(stem), path.with_name(stem + ".gz")):
        if candidate.exists():
            return candidate
    others = sorted(path.parent.glob("colocated_throughputs*.csv*"))
    return others[0] if len(others) == 1 else None


def _csv_pairs(path: Path) -> Iterator[tuple[str, str, str, int, float, float, str]]:
    for line, row in rows_of(path, _PAIR_COLUMNS):
        if (row.get("consolidated") or "1") != "1":
            continue
        where = f"{path}:{line}"
        yield (
            row["worker_type"],
            row["job_type_a"],
            row["job_type_b"],
            whole(row["scale_factor"], where, "scale_factor", least=1),
            number(row["steps_per_s_a"], where, "steps_per_s_a"),
            number(row["steps_per_s_b"], where, "steps_per_s_b"),
            where,
        )


def _from_json(path: Path) -> Throughputs:
    with open_text(path) as stream:
        try:
            document = json.load(stream)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path} is not a JSON file: {error}", hint="Gavel's throughputs as JSON in UTF-8, or a .csv"
            ) from error
    if not isinstance(document, Mapping) or not all(isinstance(v, Mapping) for v in document.values()):
        raise UsageError(f"{path}: not Gavel's layout", hint='{"v100": {"(\'JOB\', 1)": {"null": steps/s}}}')
    kept = {k: v for k, v in document.items() if not k.endswith("_unconsolidated")}
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for kind, jobs in kept.items():
        for key, entry in jobs.items():
            where = f"{path}: {kind}: {key}"
            if not isinstance(entry, Mapping) or "null" not in entry:
                raise UsageError(f'{where}: no rate alone (key "null")', hint='{"null": steps/s}')
            rates.setdefault(_key(key, where), {})[kind] = number(str(entry["null"]), where, "null")

    def pairs() -> Iterator[tuple[str, str, str, int, float, float, str]]:
        for kind, jobs in kept.items():
            for key, entry in jobs.items():
                a, gpus = _key(key, str(path))
                for other, value in entry.items():
                    if other == "null":
                        continue
                    where = f"{path}: {kind}: {key}: {other}"
                    b, _ = _key(other, where)
                    if not isinstance(value, list) or len(value) != 2:
                        raise UsageError(
                            f"{where}: not [own rate, other's rate]",
                            hint="two rates in steps/s, as [4.1, 3.9]",
                        )
                    own, others = (number(str(v), where, "rate") for v in value)
                    yield kind, a, b, gpus, own, others, where

    return _table(path, rates, pairs)


def _key(text: str, where: str) -> tuple[str, int]:
    found = _KEY.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{where}: {text!r} is not a key like \"('ResNet-50 (batch size 64)', 1)\"",
            hint="the job type and its number of GPUs",
        )
    return found[1], int(found[2])


def _table(
    path: Path,
    rates: dict[tuple[str, int], dict[str, float]],
    pairs: Callable[[], Iterator[tuple[str, str, str, int, float, float, str]]] | None,
) -> Throughputs:
    if not rates:
        raise UsageError(
            f"{path}: no throughput in it", hint="a row for each job type, number of GPUs and worker type"
        )
    types = tuple(sorted({kind for row in rates.values() for kind in row}))
    classes = tuple(sorted(rates))
    isolated = np.array([[rates[key].get(kind, 0.0) for kind in types] for key in classes])
    return Throughputs(source=path.name, worker_types=types, classes=classes, isolated=isolated, pairs=pairs)
