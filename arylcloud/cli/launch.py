"""``arylcloud launch``: plan, ask once, then run to completion."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arylcloud.cli.planflags import plan_flags

if TYPE_CHECKING:
    from arylcloud.cli.interrupts import Interrupts
    from arylcloud.cli.jobfile import Overrides
    from arylcloud.cli.settings import Folders
    from arylcloud.core.offer import Offer
    from arylcloud.core.plan import Candidate, Plan
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)
BUSY_PAUSES_S = (0.5, 1.0, 2.0)
"""Between the tries of a quote while the cloud says that it is asked too often."""


@app.command()
@plan_flags
def launch(
    *,
    job: Annotated[Path, typer.Argument(help="Job file (ours or SkyPilot's), or a plan.json.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once; the job goes on.")] = False,
    queue: Annotated[
        bool, typer.Option("--queue", help="`serve --policy` says when it runs; return at once.")
    ] = False,
    dryrun: Annotated[bool, typer.Option("--dryrun", "--dry-run", help="Stop after the quote.")] = False,
    allow_stale: Annotated[
        bool,
        typer.Option(
            "--allow-stale", help="Launch at a price older than 24 h, or of unknown age, where none is newer."
        ),
    ] = False,
    flags: Overrides,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", help="Object store for mailbox and checkpoints: file://, s3://, gs://, az://."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout at the end.")] = False,
) -> int:
    """Run a job to completion: at the best offer, through interruptions, and cleaned up after."""
    from arylcloud.cli import already
    from arylcloud.cli.assemble import clouds_of, open_journal, open_root, prefix_uri
    from arylcloud.cli.compose import say_unpriced
    from arylcloud.cli.interrupts import Interrupts
    from arylcloud.cli.launchview import show
    from arylcloud.cli.output import emit_json, hanging, note
    from arylcloud.cli.requote import as_confirmed, unmet
    from arylcloud.cli.settings import folders
    from arylcloud.cli.stores import Root, agreed, alone_s, named, place_of
    from arylcloud.cli.submission import submit_plan
    from arylcloud.cli.workdir import check_files
    from arylcloud.core.stores import cloud_of
    from arylcloud.core.tokens import new_job_id

    places = folders()
    journal = open_journal(places)  # first of all: what cannot be written down is not planned either
    asked = place_of(named(store), places)
    say_unpriced(named(store), asked)
    plan, secrets = _plan(job, places, flags, asked)
    clouds = clouds_of(plan.job)
    if (lacks := check_files(plan.job)) is not None:
        note(hanging(f"warning: {lacks}", 2))

    def present(chosen: Plan) -> None:
        if not json_:
            show(chosen, places)
        for text in unmet(chosen):
            note(hanging(text, 2))
        if not dryrun:
            _confirm(chosen.chosen, yes)

    if not dryrun:
        already.ask(journal, plan.job, yes=yes)
    present(plan)
    plan, quoted = _settled(plan, places, present, allow_stale=allow_stale, store_place=asked)
    spec = as_confirmed(plan, clouds)
    if dryrun:
        if json_:
            notes = list(unmet(plan))
            emit_json({"job": spec, "chosen": plan.chosen, "notes": notes, "launched": False})
        return 0

    job_id = new_job_id(spec.name)
    place = Root(places, store, plan.chosen.offer, clouds)
    place.check()
    agreed(place.question, yes)
    place.make(journal.journal_id)
    root = open_root(place.uri)
    prefix = open_root(prefix_uri(place.uri, job_id))
    with Interrupts() as interrupts:
        try:
            submit_plan(
                plan,
                spec,
                secrets,
                job_id,
                quoted=quoted,
                root=root,
                prefix=prefix,
                journal=journal,
                places=places,
                queued=queue,
                store_place=asked or place.place or ("" if cloud_of(place.uri) else None),
                planned_on=asked,
            )
            if queue:
                return _queued(job_id, prefix.uri, json_)
            if not json_ and not detach:
                unattended = f"{spec.unattended_s / 3600:.0f} h"
                text = (
                    f"{job_id} is run by a launcher in the background: close this terminal and it goes on. "
                    f"A sleeping laptop replaces no lost machine, but running ones go on for {unattended}"
                )
                lent_s = alone_s(place.uri, clouds, places)
                if lent_s is not None and lent_s < spec.unattended_s:
                    text += f" (for {lent_s / 3600:.0f} h at most in a cloud that is not the store's)"
                note(hanging(text, 0))
            return finish(
                journal, prefix, job_id, places, detach=detach, as_json=json_, interrupts=interrupts
            )
        except KeyboardInterrupt:  # a second one, in a hurry
            raise _hurried(journal, job_id) from None


def _queued(job_id: str, uri: str, as_json: bool) -> int:
    from arylcloud.cli.output import emit_json, note

    if as_json:
        emit_json({"job_id": job_id, "prefix_uri": uri, "queued": True, "detached": True})
        return 0
    note(f"{job_id} is queued: `arylcloud serve --policy …` says when it runs")
    sys.stdout.write(f"{job_id}\n")
    return 0


def _hurried(journal: Journal, job_id: str) -> Exception:
    from arylcloud.core.errors import Interrupted

    if not journal.head(job_id):
        return Interrupted("interrupted; nothing was launched")
    return Interrupted(
        f"interrupted; {job_id} has been submitted",
        hint=f"`arylcloud resume {job_id}` goes on with it, `arylcloud stop {job_id}` ends it",
    )


def _plan(
    path: Path, places: Folders, flags: Overrides, store_place: str | None
) -> tuple[Plan, dict[str, str]]:
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.jobfile import load_job, read_secrets
    from arylcloud.cli.planfile import load_plan
    from arylcloud.cli.planflags import given
    from arylcloud.core.errors import UsageError

    if path.suffix == ".json":
        if typed := given(flags):
            raise UsageError(
                f"a plan is launched as it was made: {', '.join(typed)} cannot change it",
                hint=f"plan again: `arylcloud plan JOB {' '.join(typed)} … -o {path}`",
            )
        plan = load_plan(path)
        return _with_store(plan, places, store_place), read_secrets(plan.job)
    spec, secrets = load_job(path, flags)
    return make_plan(spec, places, limit=50, store_place=store_place), secrets


def _with_store(plan: Plan, places: Folders, store_place: str | None) -> Plan:
    """A plan that was made before: where its choice is another one now that the store is known, the launcher
    would go there, and that has to be agreed to."""
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.output import hanging, note
    from arylcloud.core.errors import InfeasibleError

    if store_place is None:
        return plan
    try:
        found = make_plan(plan.job, places, limit=50, store_place=store_place)
    except InfeasibleError:
        return plan
    was, now = plan.chosen, found.chosen
    if (was.offer.key, was.nodes) == (now.offer.key, now.nodes):
        return plan
    text = f"with checkpoints in {store_place}, {now.offer.key} comes before the plan's {was.offer.key}"
    note(hanging(text, 2))
    return found


def _settled(
    plan: Plan,
    places: Folders,
    present: Callable[[Plan], None],
    *,
    allow_stale: bool,
    store_place: str | None,
) -> tuple[Plan, tuple[Offer, ...]]:
    """The plan on prices as its clouds say them now, and what they have said. A cloud that is busy is asked a
    few times."""
    from arylcloud.cli.assemble import ALL_OFFERS, clouds_of, providers_for
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.output import hanging, note
    from arylcloud.cli.requote import settle
    from arylcloud.core.errors import ThrottledError

    providers = providers_for(clouds_of(plan.job), places)

    def quote(offer: Offer) -> Offer:
        for pause_s in BUSY_PAUSES_S:
            try:
                return providers[offer.cloud].quote(offer)
            except ThrottledError:
                time.sleep(pause_s)
        return providers[offer.cloud].quote(offer)

    return settle(
        plan,
        quote=quote,
        replan=lambda quoted: make_plan(
            plan.job, places, limit=ALL_OFFERS, quoted=quoted, store_place=store_place
        ),
        ask=present,
        say=lambda text: note(hanging(text, 2)),
        now_s=time.time(),
        allow_stale=allow_stale,
    )


def _confirm(best: Candidate, yes: bool) -> None:
    from arylcloud.core.errors import Cancelled, UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "launch asks before it spends, and this is no terminal",
            hint="say -y to launch without a question",
        )
    if not typer.confirm(f"Launch on {best.offer.market} in {best.offer.place}?", default=True, err=True):
        raise Cancelled("not launched")


def finish(
    journal: Journal,
    prefix: ObjectStore,
    job_id: str,
    places: Folders,
    *,
    detach: bool,
    as_json: bool,
    interrupts: Interrupts | None = None,
    since_seq: int = 0,
) -> int:
    """Start a launcher if none is at work, then watch until the end; the job's outcome is the exit code."""
    from arylcloud.cli.attach import cost_line, follow
    from arylcloud.cli.money import spent
    from arylcloud.cli.output import emit_json, hanging, note
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import Interrupted

    ensure_launcher(journal, job_id, places)
    if detach and interrupts is not None and interrupts.wish is not None:
        raise Interrupted(
            f"{job_id} had been submitted already: it runs in the background",
            hint=f"`arylcloud stop {job_id}` ends it",
        )
    if detach:
        if as_json:
            emit_json({"job_id": job_id, "prefix_uri": prefix.uri, "detached": True})
        else:
            asked = f"`arylcloud status {job_id}`, `arylcloud logs -f {job_id}`, `arylcloud stop {job_id}`"
            note(f"{job_id} runs in the background: {asked}")
            sys.stdout.write(f"{job_id}\n")
        return 0
    state = follow(journal, prefix, job_id, places, quiet=as_json, interrupts=interrupts, since_seq=since_seq)
    if as_json:
        emit_json(
            {
                "job_id": job_id,
                "phase": state.phase,
                "code": state.phase_code,
                "text": state.phase_text,
                "exit_code": state.exit_code,
                "usd": spent(state),
                "interruptions": state.interruptions,
                "migrations": state.migrations_done,
                "prefix_uri": prefix.uri,
            }
        )
    else:
        note(hanging(cost_line(state, spent(state)), 2), style="bold")
        note(f"what it cost and why:  arylcloud report {job_id}")
        output = f"arylcloud logs {job_id}{' --provision' if state.phase_code == 'setup' else ''}"
        note(f"its output:            {output}")
        if state.phase_code == "user_command" and state.spec.workdir is not None:
            note(f"to go on, mended:      arylcloud resume {job_id} --workdir DIR")
    return outcome(state)


def outcome(state: JobState) -> int:
    """Exit code of an ended job (DESIGN, exit codes)."""
    from arylcloud.core import errors
    from arylcloud.core.phases import JobPhase

    if state.phase is JobPhase.SUCCEEDED:
        late = state.phase_code == errors.MissedDeadline.kind
        return errors.MissedDeadline.exit_code if late else 0
    if state.phase is JobPhase.STOPPED:
        return errors.Cancelled.exit_code
    return {
        "user_command": errors.UserCommandFailed.exit_code,
        "setup": errors.UserCommandFailed.exit_code,
        "hung": errors.UserCommandFailed.exit_code,
        "over_budget": errors.OverBudget.exit_code,
        "access": errors.AccessError.exit_code,
        "usage": errors.UsageError.exit_code,
        "integrity": errors.IntegrityError.exit_code,
        "max_runtime": errors.OverBudget.exit_code,
    }.get(state.phase_code, errors.CloudError.exit_code)
