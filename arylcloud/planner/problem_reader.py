"""What stands in a problem document, read key by key: every complaint is one line with its place."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F, I

MOST = 1e15
"""No number of a problem is larger (nor, but for 0, its reciprocal smaller): beyond it doubles lose the steps
that a job has left, or what a solver adds up."""
HINT: Final = "docs/problem-file.md describes the format"
GAVEL_TYPES: Final = ("k80", "p100", "v100")
"""The order of lists where the document names none and there are three types."""
PER_ENTITY: Final = ("fairness", "fifo")


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def bad(where: str, wanted: str, value: Any, hint: str = HINT) -> UsageError:
    return UsageError(f"{where}: {wanted} was expected, not {shown(value)}", hint=hint)


class Reader:
    """Typed access to one problem document; ``where`` stands before every complaint."""

    def __init__(self, document: dict[str, Any], where: str) -> None:
        self.document, self.where = document, where

    def at(self, key: str) -> str:
        return f"{self.where}: {key}"

    def required(self, key: str) -> Any:
        if self.document.get(key) is None:
            raise UsageError(f"{self.at(key)} is missing", hint=HINT)
        return self.document[key]

    def number(
        self,
        value: Any,
        place: str,
        *,
        least: float | None = None,
        above: float | None = None,
        whole: bool = False,
    ) -> float:
        wanted = "a whole number" if whole else "a number"
        if least is not None:
            wanted += f" ≥ {least:g}"
        if above is not None:
            wanted += f" > {above:g}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise bad(place, wanted, value)
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        low = (least is not None and found < least) or (above is not None and found <= above)
        if abs(found) > MOST or 0 < abs(found) < 1 / MOST:
            raise bad(place, f"{wanted} of a size between {1 / MOST:g} and {MOST:g}", value)
        if not math.isfinite(found) or low or (whole and not found.is_integer()):
            raise bad(place, wanted, value)
        return found

    def numbers(self, values: Any, place: str, size: int, what: str, **limits: Any) -> F:
        if not isinstance(values, list) or len(values) != size:
            raise bad(place, f"a list of {size} numbers, one per {what},", values)
        return np.array(
            [self.number(x, f"{place}[{i}]", **limits) for i, x in enumerate(values)], dtype=float
        )

    def worker_types(self) -> tuple[str, ...]:
        workers = self.required("num_workers")
        key = "worker_type_order" if self.document.get("worker_type_order") is not None else "worker_types"
        names = self.document.get(key)
        if names is None and isinstance(workers, dict):
            return tuple(sorted(map(str, workers)))
        if names is None and isinstance(workers, list):
            three = len(workers) == len(GAVEL_TYPES)
            return GAVEL_TYPES if three else tuple(f"type{j}" for j in range(len(workers)))
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise bad(self.at(key), "a list of names", names)
        if len(set(names)) < len(names):
            raise UsageError(f"{self.at(key)}: a name stands twice", hint="name each worker type once")
        return tuple(names)

    def per_type(self, key: str, types: tuple[str, ...], **limits: Any) -> F:
        """(m,) from a list in the order of the types, or from an object by name."""
        values = self.required(key)
        if isinstance(values, dict):
            if set(values) != set(types):
                raise bad(self.at(key), f"a number for each of {', '.join(types)}", list(values))
            values = [values[name] for name in types]
        return self.numbers(values, self.at(key), len(types), "worker type", **limits)

    def jobs(self) -> list[dict[str, Any]]:
        jobs = self.required("jobs")
        if not isinstance(jobs, list) or not jobs:
            raise bad(self.at("jobs"), "a list of one or more objects", jobs)
        for i, job in enumerate(jobs):
            if not isinstance(job, dict):
                raise bad(self.at(f"jobs[{i}]"), "an object", job)
        return jobs

    def column(self, jobs: list[dict[str, Any]], key: str, default: float | None, **limits: Any) -> F:
        found = np.empty(len(jobs))
        for i, job in enumerate(jobs):
            value = job.get(key, default)
            if value is None and key not in job:
                raise UsageError(f"{self.at(f'jobs[{i}].{key}')} is missing", hint=HINT)
            found[i] = self.number(value, self.at(f"jobs[{i}].{key}"), **limits)
        return found

    def matrix(self, key: str, n: int, m: int) -> F:
        rows = self.required(key)
        if not isinstance(rows, list) or len(rows) != n:
            raise bad(self.at(key), f"a list of {n} rows, one per job,", rows)
        read = [
            self.numbers(row, self.at(f"{key}[{i}]"), m, "worker type", least=0.0)
            for i, row in enumerate(rows)
        ]
        return np.stack(read)

    def scalar(self, key: str) -> float | None:
        value = self.document.get(key)
        return None if value is None else self.number(value, self.at(key), above=0.0)

    def optional(self, key: str, n: int) -> F | None:
        values = self.document.get(key)
        return None if values is None else self.numbers(values, self.at(key), n, "job", least=0.0)

    def index(self, value: Any, place: str, n: int) -> int:
        short = isinstance(value, str) and value.isdecimal() and len(value) < 20
        text = int(value) if short else value
        if isinstance(text, bool) or not isinstance(text, int) or not 0 <= text < n:
            raise bad(place, f"the index of a job, 0 … {n - 1},", value)
        return text

    def deadlines(self, n: int) -> F | None:
        """(n,) from ``SLOs_s``: {index: seconds from now}, or a list with null for none."""
        given = self.document.get("SLOs_s")
        if given is None:
            return None
        place = self.at("SLOs_s")
        if isinstance(given, list):
            if len(given) != n:
                raise bad(place, f"a list of {n} numbers, one per job,", given)
            given = {i: value for i, value in enumerate(given) if value is not None}
        if not isinstance(given, dict):
            raise bad(place, "an object {index of the job: seconds}", given)
        found = np.full(n, np.inf)
        for key, value in given.items():
            found[self.index(key, place, n)] = self.number(value, f"{place}[{key}]", above=0.0)
        return found

    def entities(self, n: int) -> dict[str, Any]:
        """The hierarchy: ``{name: [indices of jobs]}``, weights (1) and policies (fairness) by name."""
        given = self.document.get("entities")
        if given is None:
            return {}
        if not isinstance(given, dict) or not given:
            raise bad(self.at("entities"), "an object {entity: [indices of jobs]}", given)
        entity: I = np.full(n, -1)
        for e, (name, members) in enumerate(given.items()):
            place = self.at(f"entities.{name}")
            if not isinstance(members, list):
                raise bad(place, "a list of indices of jobs", members)
            for member in members:
                i = self.index(member, place, n)
                if entity[i] >= 0:
                    raise UsageError(f"{place}: job {i} stands in two entities", hint="one entity per job")
                entity[i] = e
        if (entity < 0).any():
            raise UsageError(
                f"{self.at('entities')}: job {int(entity.argmin())} is in none",
                hint="put each job in one entity",
            )
        weights = self.by_entity("entity_weights", given, 1.0)
        policies = self.by_entity("per_entity_policy", given, "fairness")
        for name, rule in zip(given, policies, strict=True):
            if rule not in PER_ENTITY:
                raise bad(self.at(f"per_entity_policy.{name}"), " or ".join(PER_ENTITY), rule)
        read = [
            self.number(value, self.at(f"entity_weights.{name}"), above=0.0)
            for name, value in zip(given, weights, strict=True)
        ]
        return {"entity": entity, "entity_weight": np.array(read), "entity_policy": tuple(policies)}

    def by_entity(self, key: str, entities: dict[str, Any], default: Any) -> list[Any]:
        values = self.document.get(key)
        if values is None:
            return [default] * len(entities)
        if not isinstance(values, dict) or not set(values) <= set(entities):
            raise bad(self.at(key), f"an object with keys among {', '.join(entities)}", values)
        return [values.get(name, default) for name in entities]

    def pairs(self, n: int, m: int) -> tuple[I, F] | None:
        """(q, 2) indices, (q, 2, m) rates of the two, from ``[{i, j, throughputs: [[a, b] per type]}]``."""
        pairs = self.document.get("pairs")
        if pairs is None:
            return None
        if not isinstance(pairs, list):
            raise bad(self.at("pairs"), "a list of objects", pairs)
        ends = np.empty((len(pairs), 2), dtype=np.int64)
        rates = np.empty((len(pairs), 2, m))
        seen: set[tuple[int, int]] = set()
        for p, pair in enumerate(pairs):
            place = self.at(f"pairs[{p}]")
            if not isinstance(pair, dict):
                raise bad(place, "an object {i, j, throughputs}", pair)
            i, j = (self.index(pair.get(key), f"{place}.{key}", n) for key in ("i", "j"))
            if i == j or (min(i, j), max(i, j)) in seen:
                raise UsageError(f"{place}: jobs {i} and {j}", hint="each pair of two different jobs once")
            seen.add((min(i, j), max(i, j)))
            rows = pair.get("throughputs")
            if not isinstance(rows, list) or len(rows) != m:
                raise bad(
                    f"{place}.throughputs", f"a list of {m} pairs of numbers, one per worker type,", rows
                )
            ends[p] = i, j
            for t, row in enumerate(rows):
                rates[p, :, t] = self.numbers(row, f"{place}.throughputs[{t}]", 2, "job", least=0.0)
        return ends, rates
