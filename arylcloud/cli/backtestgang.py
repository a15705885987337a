"""``backtest --gang 2..8``: an elastic gang, and how fast it is at each of its sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec
    from arylcloud.simulation.deadline.elastic import Gang

MOST: Final = 1000
REGAIN_S: Final = 60.0
"""Without work after a change of size (docs/elastic.md has what it takes)."""


def gang_of(
    text: str | None, machines: int | None, job: Path | JobSpec | None, instance_type: str, scaling: float
) -> Gang | None:
    """Of ``--gang``, or of a job that shrinks (``nodes: 2..8``) where nothing else is said. Speeds are the
    planner's for the job's profile, else a power of the number of machines. None: no elastic gang."""
    from arylcloud.core.errors import UsageError

    if text is not None and machines is not None:
        raise UsageError("--gang and --machines exclude each other", hint="--gang 2..8")
    if not 0 < scaling <= 1:
        raise UsageError(f"--scaling is {scaling:g}: more than 0, at most 1", hint="--scaling 0.9")
    spec = None if isinstance(job, Path) else job
    if isinstance(job, Path):
        from arylcloud.cli.jobfile import Overrides, load_job

        spec, _ = load_job(job, Overrides(), need_secrets=False)
    if text is not None:
        least, most = _range(text)
    elif spec is not None and machines is None and spec.nodes_min < spec.nodes_max:
        if spec.on_node_loss != "shrink":
            return None
        least, most = spec.nodes_min, spec.nodes_max
    else:
        return None
    from arylcloud.simulation.deadline.elastic import power_law

    if spec is None or spec.profile is None or spec.work is None:
        return power_law(least, most, scaling, REGAIN_S / 3600)
    return _planned(spec, least, most, instance_type)


def _range(text: str) -> tuple[int, int]:
    from arylcloud.core.errors import UsageError

    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and 1 <= int(first) < int(last) <= MOST):
        raise UsageError(
            f"--gang {text}: two numbers of machines, the smaller first, at most {MOST:,}",
            hint="--gang 2..8",
        )
    return int(first), int(last)


def _planned(spec: JobSpec, least: int, most: int, instance_type: str) -> Gang:
    """Throughput at every size as the planner has it; what more machines would slow down, they leave as it
    is."""
    from dataclasses import replace

    import numpy as np

    from arylcloud.cli.compose import make_plan, profiles
    from arylcloud.cli.settings import folders
    from arylcloud.core.errors import UsageError
    from arylcloud.core.job import Constraints, Resources
    from arylcloud.simulation.deadline.elastic import Gang

    plain = replace(spec, constraints=Constraints(), resources=Resources(instance_types=(instance_type,)))
    places = folders()
    known = profiles(places)
    rate = np.zeros(most + 1)
    for n in range(least, most + 1):
        chosen = make_plan(replace(plain, nodes_min=n, nodes_max=n), places, limit=1, known=known).chosen
        if not chosen.throughput:
            raise UsageError(
                f"nobody knows how fast {spec.name} runs on {n} × {instance_type}",
                hint="leave the profile out, and say --work-h and --scaling",
            )
        rate[n] = chosen.throughput
    rate[least:] = np.maximum.accumulate(rate[least:])
    return Gang(least=least, most=most, speed=rate / rate[most], regain_h=REGAIN_S / 3600)
