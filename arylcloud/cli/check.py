"""``arylcloud check``: what a launch would meet, cloud by cloud, without launching."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arylcloud.core.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from arylcloud.cli.checking import Ladder
    from arylcloud.cli.settings import Folders
    from arylcloud.core.offer import Offer
    from arylcloud.core.ports import Finding

app = typer.Typer(add_completion=False)
OFFERS_PER_CLOUD = 3
"""Of a job: its best so many on each cloud are checked, those that the cloud sells."""


@app.command()
def check(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="Job file: where it would run is checked.")
    ] = None,
    infra: Annotated[
        list[str] | None,
        typer.Option(
            "--infra", help="No job: CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE, on its cheapest GPUs."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Ask each cloud, dry, all that a launch would ask: identity, permissions, quotas, images, network."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.checking import lifted, walked
    from arylcloud.cli.output import emit_json, hanging, note
    from arylcloud.cli.settings import folders
    from arylcloud.cli.stores import looked_at
    from arylcloud.core.codec import encode
    from arylcloud.core.ports import Verdict
    from arylcloud.providers import registry
    from arylcloud.providers.findings import not_set_up

    if (job is None) == (not infra):
        raise UsageError(
            "check takes a job, or --infra", hint="`arylcloud check job.yaml`, `arylcloud check --infra aws`"
        )
    if job is not None and str(job) in registry.CHECKS and not job.exists():
        raise UsageError(f"{job} is a cloud, not a job file", hint=f"`arylcloud check --infra {job}`")
    places = folders()
    clouds: frozenset[str] | None = None
    if job is not None:
        ladders, nodes, until_s, clouds = _of_job(job, places)
    else:
        ladders, nodes, until_s = _of_infra(infra or [], places)
    found: list[Finding] = [] if ladders else [_needs_nothing()]
    asked_of = sorted({ladder.offers[0].cloud for ladder in ladders})
    absent: list[MissingExtraError] = []
    for cloud in asked_of:
        here = [ladder for ladder in ladders if ladder.offers[0].cloud == cloud]
        try:
            checks = registry.load_checks(
                cloud, state_dir=places.state, environ=os.environ, config_dir=places.config
            )
            seen = walked(checks, here, nodes=nodes, until_s=until_s)
        except MissingExtraError as error:
            if clouds is None or cloud in clouds:  # asked for by name: as a launch there would end
                raise
            absent.append(error)
            found.append(_not_set_up(cloud, error.message, error.hint))
            continue
        found += seen
        if any(f.subject == "identity" and f.verdict is Verdict.FAILED for f in seen):
            continue  # nobody is asked a second time who it is
        store = looked_at(cloud, here[0].offers[0].region, places)
        found += [store] if store is not None else []
    if absent and len(absent) == len(asked_of):
        raise MissingExtraError(
            f"no cloud's SDK is installed here: {'; '.join(error.message for error in absent)}",
            hint=f"{absent[0].hint}, or another's; the local cloud needs none: "
            f"`arylcloud launch {job} --infra local`",
        )
    bare = {f.cloud for f in found if clouds is not None and f.cloud not in clouds and not_set_up(f)}
    if len(bare) + len(absent) < len(asked_of):  # else nothing is left to launch on, and that is why
        found = [_not_set_up(f.cloud, f.said, f.remedy) if f.cloud in bare else f for f in found]
    asked = [offer for ladder in ladders for offer in ladder.offers]
    # of a home that has launched nothing, nothing is made either
    freed = list(lifted(open_journal(places), found, asked, nodes=nodes)) if places.journal.is_file() else []
    if json_:
        emit_json(
            {
                "findings": encode(found),
                "ok": all(f.verdict is not Verdict.FAILED for f in found),
                "lifted": [{"job_id": job_id, "scope": scope} for job_id, scope in freed],
            }
        )
    else:
        _show(found)
        if asked_of and job is not None and not clouds and len(bare) + len(absent) == len(asked_of):
            try_it = f"`arylcloud launch {job} --infra local`"
            note(f"no cloud is set up here; the local one needs no account: {try_it}")
        for job_id, scope in freed:
            note(hanging(f"{job_id} waited for quota: its launcher tries {scope} again", 2))
    failed = [finding for finding in found if finding.verdict is Verdict.FAILED]
    if not failed:
        return 0
    return 4 if any(finding.subject in ("identity", "permissions") for finding in failed) else 5


def _not_set_up(cloud: str, why: str, remedy: str | None) -> Finding:
    """Of a cloud that the job may use, and nobody has named: it is one place less, and no fault."""
    from arylcloud.core.ports import Finding, Verdict

    return Finding(
        cloud=cloud,
        region=None,
        subject="set up",
        verdict=Verdict.WARNING,
        said=f"not set up here: {why}",
        remedy=remedy,
    )


def _needs_nothing() -> Finding:
    from arylcloud.cli.compose import LOCAL
    from arylcloud.core.ports import Finding, Verdict

    return Finding(
        cloud=LOCAL,
        region=None,
        subject="set up",
        verdict=Verdict.OK,
        said="it is this machine, and asks for no account, quota or image",
    )


def _of_job(job: Path, places: Folders) -> tuple[list[Ladder], int, float | None, frozenset[str]]:
    """The job's best offers on clouds that can be checked, and the clouds that it names; one that it forbids
    is not among them. None of a job for the local cloud alone."""
    from arylcloud.cli.checking import Ladder
    from arylcloud.cli.compose import LOCAL, make_plan, named_clouds
    from arylcloud.cli.jobfile import Overrides, load_job
    from arylcloud.providers.registry import CHECKS

    spec, _secrets = load_job(job, Overrides(), need_secrets=False)
    plan = make_plan(spec, places, limit=500)
    chosen: dict[str, list[Offer]] = {}
    for candidate in plan.candidates:
        there = chosen.setdefault(candidate.offer.cloud, [])
        if candidate.offer.cloud in CHECKS:
            there.append(candidate.offer)
    ladders = [Ladder(offers=tuple(there), want=OFFERS_PER_CLOUD) for there in chosen.values() if there]
    named = named_clouds(spec)
    if not ladders and named != {LOCAL}:
        raise UsageError(
            f"{spec.name}: no offer on a cloud that can be checked", hint=f"known: {', '.join(CHECKS)}"
        )
    hours = plan.chosen.hours
    until_s = None if hours is None else time.time() + hours.p90 * 3600
    return ladders, plan.chosen.nodes, until_s, named


def _of_infra(infra: list[str], places: Folders) -> tuple[list[Ladder], int, float | None]:
    """The cheapest GPU offer of each market there, and what comes after it: the first that is sold counts.
    None of the local cloud."""
    from arylcloud.cli.checking import MOST, Ladder
    from arylcloud.cli.compose import LOCAL
    from arylcloud.cli.places import parse_infra
    from arylcloud.core.offer import Market
    from arylcloud.pricing.catalogue import load
    from arylcloud.pricing.select import Query, select
    from arylcloud.providers.registry import CHECKS

    user = places.user_catalogue if places.user_catalogue.is_file() else None
    table = load(user, refreshed=places.live_prices)
    ladders: list[Ladder] = []
    for text in infra:
        cloud, _, _ = parse_infra(text, what="--infra")
        if cloud == LOCAL:
            continue
        if cloud not in CHECKS:
            raise UsageError(f"--infra: {text!r} cannot be checked", hint=f"known: {', '.join(CHECKS)}")
        for market in (Market.SPOT, Market.ON_DEMAND):
            rows = table.take(select(table, Query(infra=(text,), markets=(market,))) & table.plannable)
            first: dict[tuple[str, str], Offer] = {}
            for n in rows.usd_per_hour.argsort(kind="stable").tolist():
                offer = rows.row(n)
                first.setdefault((offer.region, offer.instance_type), offer)
                if len(first) == MOST:
                    break
            if first:
                ladders.append(Ladder(offers=tuple(first.values()), want=1))
    if not ladders and any(parse_infra(text, what="--infra")[0] != LOCAL for text in infra):
        raise UsageError(
            f"the catalogue has no GPU in {', '.join(infra)}", hint="`arylcloud prices --refresh`"
        )
    return ladders, 1, None


def _show(found: list[Finding]) -> None:
    from arylcloud.cli.output import stdout

    screen = stdout()
    marks: dict[str, Any] = {"ok": "ok", "warning": "warning", "failed": "FAILED", "unknown": "unknown"}
    for finding in found:
        where = "/".join(part for part in (finding.cloud, finding.region) if part)
        screen.print(
            f"{marks[finding.verdict.value]:<8} {where}: {finding.subject}: {finding.said}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        if finding.remedy and finding.verdict.value != "ok":
            screen.print(f"         hint: {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
