"""From a confirmed plan to a submitted job: what is packed, and what the report will compare with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

EVERY = 1_000_000
"""More candidates than there can be."""

if TYPE_CHECKING:
    from arylcloud.cli.settings import Folders
    from arylcloud.core.events import Planned
    from arylcloud.core.job import JobSpec
    from arylcloud.core.offer import Offer
    from arylcloud.core.plan import Candidate, Plan
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal


def submit_plan(
    plan: Plan,
    spec: JobSpec,
    secrets: dict[str, str],
    job_id: str,
    *,
    quoted: tuple[Offer, ...] = (),
    root: ObjectStore,
    prefix: ObjectStore,
    journal: Journal,
    places: Folders,
    queued: bool = False,
    store_place: str | None = None,
    planned_on: str | None = None,
) -> None:
    """Pack what the machines need, and bring the job into being. ``quoted``: what the clouds have said
    meanwhile, for its launcher to begin with; ``store_place``: where ``root`` is; ``planned_on``: what
    the plan has of that. Raises what ``submit`` and the cloud raise; then there is no job."""
    from arylcloud.agent.runtime import build_runtime
    from arylcloud.cli.assemble import new_writer_id, providers_for
    from arylcloud.cli.jobfile import NOTIFY_ENV
    from arylcloud.cli.output import hanging, note
    from arylcloud.cli.secretfiles import holds_secrets, note_of
    from arylcloud.cli.settings import ensure
    from arylcloud.core.clock import SystemClock
    from arylcloud.launcher.bundle import pack
    from arylcloud.launcher.desire import quotes
    from arylcloud.launcher.pending import pending
    from arylcloud.launcher.probe import from_environment
    from arylcloud.launcher.submit import Submission, submit

    cloud = spec.resources.clouds[0]
    market_clock = providers_for([cloud], places)[cloud].capabilities().market_clock
    every = _everything(plan, places, quoted, planned_on)
    machines, wheels = _kinds(plan, every, ensure(places.cache))
    runtime, sha256 = build_runtime(ensure(places.cache), wheels)
    workdir = pack(Path(spec.workdir), holds_secrets) if spec.workdir is not None else None
    if workdir is not None and workdir.left_out:
        note(hanging(note_of(workdir.left_out), 2))
    submission = Submission(
        job_id=job_id,
        spec=spec,
        secrets={name: value for name, value in secrets.items() if name != NOTIFY_ENV},
        notify=secrets.get(NOTIFY_ENV),
        workdir=workdir,
        runtime=runtime,
        runtime_sha256=sha256,
        machines=machines,
        market_clock=market_clock,
        queued=queued,
        quotes=quotes(
            _of_size(every),
            _on_demand(_at_size(spec, plan.chosen.nodes), places, planned_on),
        ),
        nodes=plan.chosen.nodes if spec.nodes_min < spec.nodes_max else None,
        quoted=quoted,
        store_place=store_place,
        planned=_planned(plan.chosen),
    )
    probe = from_environment()
    journal.probe = probe
    with journal.claim(job_id), pending(ensure(places.state), job_id, prefix.uri):
        submit(
            submission,
            root=root,
            prefix=prefix,
            journal=journal,
            clock=SystemClock(),
            writer=new_writer_id(),
            probe=probe,
        )


def _planned(chosen: Candidate) -> Planned | None:
    from arylcloud.core.events import Planned

    usd, hours = chosen.usd, chosen.hours
    if usd is None or hours is None:
        return None
    return Planned(usd_p50=usd.p50, usd_p90=usd.p90, hours_p50=hours.p50, hours_p90=hours.p90)


def _kinds(plan: Plan, every: Plan, cache: Path) -> tuple[tuple[str, ...], dict[str, Path]]:
    """What the job's machines may be, as ``uname -m`` says (nothing: like this host), and what they need that
    is not installed here. Raises OtherCloudError, IntegrityError, LocalStateError where the chosen ones could
    not work; a kind that is only a possibility is left out, and that is said."""
    from arylcloud.cli.assemble import LOCAL
    from arylcloud.cli.output import hanging, note
    from arylcloud.core.errors import ArylError
    from arylcloud.launcher.wheels import foreign, machine_of

    candidates = (plan.chosen, *every.candidates)
    wanted = {machine_of(c.offer) for c in candidates if c.offer.cloud != LOCAL}
    kinds: list[str] = []
    wheels: dict[str, Path] = {}
    for kind in sorted(wanted):
        try:
            wheels |= foreign([kind], cache)
        except ArylError as error:
            if kind == machine_of(plan.chosen.offer):
                raise
            hint = f" ({error.hint})" if error.hint else ""
            note(hanging(f"no {kind} machines for this job: {error.message}{hint}", 2))
            continue
        kinds.append(kind)
    return tuple(kinds), wheels


def _everything(
    plan: Plan, places: Folders, quoted: tuple[Offer, ...], store_place: str | None = None
) -> Plan:
    """With every offer that the job may run on: the cheapest one per hour may be far down the ranking."""
    from arylcloud.cli.compose import make_plan
    from arylcloud.core.errors import InfeasibleError

    try:
        every = make_plan(plan.job, places, limit=EVERY, quoted=quoted, store_place=store_place).candidates
    except InfeasibleError:  # a plan of the past, which was confirmed all the same
        every = plan.candidates
    return dataclasses.replace(plan, candidates=every)


def _of_size(plan: Plan) -> Plan:
    """Without the candidates of other sizes: the report compares the same number of machines."""
    same = tuple(c for c in plan.candidates if c.nodes == plan.chosen.nodes)
    return dataclasses.replace(plan, candidates=same)


def _at_size(spec: JobSpec, nodes: int) -> JobSpec:
    return dataclasses.replace(spec, nodes_min=nodes, nodes_max=nodes)


def _on_demand(spec: JobSpec, places: Folders, store_place: str | None) -> Plan | None:
    """The same job planned on demand only, for the report's comparison."""
    from arylcloud.cli.compose import make_plan
    from arylcloud.core.errors import InfeasibleError
    from arylcloud.core.job import Constraints

    free = dataclasses.replace(spec, market="on_demand", constraints=Constraints())
    try:
        return make_plan(free, places, limit=EVERY, store_place=store_place)
    except InfeasibleError:
        return None
