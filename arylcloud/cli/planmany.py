"""``plan`` of many jobs: files and flags in, one plan of all of them out, on the screen or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arylcloud.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arylcloud.cli.jobfile import Overrides
    from arylcloud.cli.settings import Folders
    from arylcloud.core.job import JobSpec
    from arylcloud.planner.manyplan import ManyPlan
    from arylcloud.pricing.table import OfferTable

KIND = "arylcloud-plan-of-many"
MOST_GPUS = 10_000_000


def plan_jobs(
    paths: Sequence[Path],
    flags: Overrides,
    *,
    policy: str | None,
    capacity: str | None,
    costs: str | None,
    partition: int | None,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Reads, plans, prints, writes. ``--budget`` is that of all jobs together; every other flag is each
    job's, as if its file said so."""
    from arylcloud.cli.compose import assumptions, own_history, profiles, store_of_plan
    from arylcloud.cli.manyview import document, show
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.settings import folders
    from arylcloud.core.units import parse_usd
    from arylcloud.planner.many import plan_many
    from arylcloud.planner.policies.registry import policy as known

    if policy is not None:
        known(policy)
    home = folders()
    specs = _specs(paths, flags)
    counts = None if capacity is None else counts_of(capacity)
    prices = {} if costs is None else _numbers(costs, "--costs", "a100=1.2,v100=0.6")
    if strange := [gpu for gpu in prices if gpu not in (counts or {})]:
        raise UsageError(
            f"--costs prices {', '.join(strange)}, of which --capacity has none",
            hint="--capacity a100=32 --costs a100=1.2",
        )
    all_own = counts is not None and set(counts) <= set(prices)
    found = plan_many(
        specs,
        library=profiles(home),
        table=None if all_own else _offers(specs, home),
        capacity=counts,
        costs=prices,
        policy_name=policy,
        budget_usd=None if flags.budget is None else parse_usd(flags.budget, what="--budget"),
        partition=partition,
        assumptions=assumptions(specs[0], home, store_of_plan()),
        history=() if all_own else own_history(home),
        seed=seed,
    )
    if output is not None:
        _save(found, output)
    if as_json:
        emit_json(document(found))
    else:
        show(found)
    if output is not None:
        note(f"written to {output}; `launch` takes one job: launch each file where the plan puts it")


def _specs(paths: Sequence[Path], flags: Overrides) -> list[JobSpec]:
    """The jobs, with names of their own."""
    from dataclasses import replace

    from arylcloud.cli.compose import names_local
    from arylcloud.cli.jobfile import load_job

    if flags.name is not None and len(paths) > 1:
        raise UsageError(f"--name names one job, and there are {len(paths)}", hint="say name: in each file")
    seen: dict[str, int] = {}
    found = []
    for path in paths:
        spec, _secrets = load_job(path, replace(flags, budget=None), need_secrets=False)
        if names_local(spec):
            raise UsageError(
                f"{spec.name}: the local cloud is one machine's, and takes no part in a plan of many",
                hint=f"`arylcloud plan {path}` plans it alone",
            )
        seen[spec.name] = seen.get(spec.name, 0) + 1
        if seen[spec.name] > 1:
            spec = replace(spec, name=f"{spec.name}-{seen[spec.name]}")
        found.append(spec)
    return found


def _offers(specs: Sequence[JobSpec], home: Folders) -> OfferTable:
    from arylcloud.cli.compose import offer_table

    return offer_table(specs[0], home)


def _numbers(text: str, flag: str, example: str) -> dict[str, float]:
    """Canonical GPU → number > 0 of ``a100=32,v100=64``."""
    from arylcloud.core import gpus

    found: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag}: {part!r} is not GPU=NUMBER", hint=f"{flag} {example}")
        gpu = gpus.resolve(name.strip())
        if gpu in found:
            raise UsageError(f"{flag} gives {gpu} twice", hint="name each GPU once")
        try:
            found[gpu] = float(value.strip().removeprefix("$"))
        except ValueError as error:
            raise UsageError(
                f"{flag}: {name.strip()}: {value.strip()!r} is no number", hint=f"{flag} {example}"
            ) from error
        if not 0 < found[gpu] <= 1e9:
            raise UsageError(f"{flag}: {part!r} must be above 0 and at most 1e9", hint=f"{flag} {example}")
    if not found:
        raise UsageError(f"{flag} is empty", hint=f"{flag} {example}")
    return found


def counts_of(text: str) -> dict[str, int]:
    found = _numbers(text, "--capacity", "a100=32,v100=64")
    for gpu, value in found.items():
        if value != int(value) or value > MOST_GPUS:
            raise UsageError(
                f"--capacity: {gpu}={value:g} is no number of GPUs",
                hint="a whole number from 0 to 10,000,000",
            )
    return {gpu: int(value) for gpu, value in found.items()}


def _save(plan: ManyPlan, path: Path) -> None:
    from arylcloud.cli.manyview import document
    from arylcloud.cli.planfile import write_document
    from arylcloud.core.codec import SCHEMA_VERSION, encode

    write_document({"schema_version": SCHEMA_VERSION, "kind": KIND, **encode(document(plan))}, path)
