"""Gavel's synthetic jobs (scheduler/utils.py, ``generate_job``), from numpy streams of our own.

* job type uniform over those of the table; GPUs 1, 2, 4, 8 with 70, 10, 15, 5 % (then uniform over the
  types that run on so many);
* length 10^U(1.5, 3) minutes with 80 %, else 10^U(3, 4), alone on the reference type (mean 16.8 h);
* weight 5 for 20 % where asked; SLO factor 1.2, 2, 10 with 33, 34, 33 % where asked;
* arrivals: Poisson at a rate, or all at 0.

One stream per property, each read in order: the first n jobs of a seed are the same whatever n.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F
from arylcloud.simulation.cluster.throughputs import Throughputs
from arylcloud.simulation.cluster.workload import Jobs

_SIZES = np.array([1, 2, 4, 8])
_SIZE_EDGES = np.array([0.70, 0.80, 0.95])
_SLO_EDGES = np.array([0.33, 0.67])
_SLO_FACTORS = np.array([1.2, 2.0, 10.0])
_FORM = re.compile(r"(single|multi):(\d+(?:\.\d*)?|\.\d+)(/h)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``jobs_per_hour`` None: ``count`` jobs, all at time 0."""

    multi_gpu: bool
    jobs_per_hour: float | None
    count: int | None
    seed: int
    priorities: bool = False
    slos: bool = False


def parse_recipe(text: str, *, seed: int, priorities: bool = False, slos: bool = False) -> Recipe:
    """``single:5.6`` or ``multi:2/h`` = jobs per hour; ``multi:700`` = so many at once.

    >>> parse_recipe("single:5.6", seed=0).jobs_per_hour, parse_recipe("multi:700", seed=0).count
    (5.6, 700)
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or float(found[2]) == 0:
        raise UsageError(
            f"--generate {text!r} is no recipe",
            hint="single:5.6 (jobs per hour, with a point or /h) or multi:700 (jobs, all at once)",
        )
    per_hour = "." in found[2] or found[3] is not None
    return Recipe(
        multi_gpu=found[1] == "multi",
        jobs_per_hour=float(found[2]) if per_hour else None,
        count=None if per_hour else int(found[2]),
        seed=seed,
        priorities=priorities,
        slos=slos,
    )


def generate(recipe: Recipe, n: int, table: Throughputs, worker_types: tuple[str, ...]) -> Jobs:
    """The first ``n`` jobs of the recipe."""
    streams = np.random.SeedSequence(recipe.seed).spawn(6)

    def draw(k: int) -> F:
        return np.random.default_rng(streams[k]).random(n)

    sizes = (
        _SIZES[np.searchsorted(_SIZE_EDGES, draw(0), side="right")] if recipe.multi_gpu else np.ones(n, int)
    )
    reference = table.reference(worker_types)
    pick = draw(1)
    job_class = np.empty(n, dtype=np.int64)
    for size in np.unique(sizes):
        usable = np.array(
            [i for i in table.by_gpus(int(size)) if table.isolated[i, reference] > 0], dtype=np.int64
        )
        if not len(usable) or table.class_gpus[usable[0]] != size:
            raise UsageError(f"{table.source} has no job type on {size} GPUs", hint="use --generate single:…")
        rows = sizes == size
        job_class[rows] = usable[(pick[rows] * len(usable)).astype(np.int64)]
    length = np.random.default_rng(streams[2]).random((n, 2))
    minutes = 10.0 ** np.where(length[:, 0] >= 0.8, 3.0 + length[:, 1], 1.5 + 1.5 * length[:, 1])
    if recipe.jobs_per_hour is None:
        arrival = np.zeros(n)
    else:
        gaps = -np.log1p(-draw(3)) * 3600.0 / recipe.jobs_per_hour
        arrival = np.concatenate(([0.0], np.cumsum(gaps)[:-1])) if n else gaps
    duration = 60.0 * minutes
    return Jobs(
        names=[str(i) for i in range(n)],
        job_type=[table.classes[i][0] for i in job_class],
        gpus=sizes.astype(np.int64),
        steps=np.maximum(np.floor(duration * table.isolated[job_class, reference]), 1.0),
        duration_s=duration,
        arrival_s=arrival,
        weight=np.where(draw(4) < 0.2, 5.0, 1.0) if recipe.priorities else np.ones(n),
        slo_factor=_SLO_FACTORS[np.searchsorted(_SLO_EDGES, draw(5), side="right")]
        if recipe.slos
        else np.full(n, np.nan),
        where=lambda i: f"generated job {i}",
    )
