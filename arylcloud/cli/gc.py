"""``arylcloud gc``: machines that carry a journal's id and that no open lease knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arylcloud.core.ports import Machine
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def gc(
    dryrun: Annotated[bool, typer.Option("--dryrun", "--dry-run", help="List only.")] = False,
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Also end machines of this other journal whose lease has expired."),
    ] = None,
    infra: Annotated[
        list[str] | None, typer.Option("--infra", help="Which clouds; all that this version knows.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Find and end machines that this journal started and does not know; list those of others."""
    from arylcloud.cli.assemble import open_journal, providers_for
    from arylcloud.cli.output import emit_json, note, rate
    from arylcloud.cli.settings import folders
    from arylcloud.providers import registry

    places = folders()
    journal = open_journal(places)
    asked = infra or [
        cloud for cloud in registry.PROVIDERS if cloud != "local" or places.local_cloud.exists()
    ]
    providers = providers_for(asked, places)
    now_s = time.time()
    found: list[dict[str, Any]] = []
    ended: list[str] = []
    for cloud, provider in providers.items():
        machines = provider.list_machines(journal_id=None)
        jobs = _jobs(journal)  # after the list: what it shows was written down before it was asked for
        ours = {journal.journal_id} | {state.journal_id for state in jobs.values()}
        for machine in machines:
            if machine.state.value == "gone":
                continue
            mine = machine.journal_id in ours
            answered_for = _answered_for(journal, jobs.get(machine.job_id), machine) if mine else None
            if answered_for is not None:
                if answered_for:
                    note(f"{cloud} {machine.instance_id}: left alone: {answered_for}")
                continue
            expired = machine.until_s is not None and machine.until_s < now_s
            end = mine or (machine.journal_id == owner and expired)
            found.append(_document(machine, mine, expired))
            if end and not dryrun:
                provider.terminate(machine)
                ended.append(machine.instance_id)
            if not json_:
                whose = (
                    "of this journal, and nobody works with it"
                    if mine
                    else f"of journal {machine.journal_id}"
                )
                what = "ended" if end and not dryrun else ("would be ended" if end else "left alone")
                note(
                    f"{cloud} {machine.instance_id} {machine.instance_type} at {rate(machine.usd_per_hour)}, "
                    f"job {machine.job_id}, {whose}: {what}"
                )
    if json_:
        emit_json({"found": found, "terminated": ended, "dryrun": dryrun})
    elif not found:
        note("nothing found: every machine of this journal is known and worked with")
    return 0


def _document(machine: Machine, mine: bool, expired: bool) -> dict[str, Any]:
    return {
        "cloud": machine.cloud,
        "region": machine.region,
        "instance_id": machine.instance_id,
        "instance_type": machine.instance_type,
        "usd_per_hour": machine.usd_per_hour,
        "job_id": machine.job_id,
        "lease_id": machine.lease_id,
        "owner": machine.journal_id,
        "ours": mine,
        "lease_expired": expired,
    }


def _jobs(journal: Journal) -> dict[str, JobState]:
    from arylcloud.launcher.fold import replay

    return {job_id: replay(journal.records(job_id)) for job_id in journal.jobs()}


def _answered_for(journal: Journal, state: JobState | None, machine: Machine) -> str | None:
    """None: nobody answers for this machine of ours. Else why it is left alone; empty where all is well.

    Well is: an open lease in the journal that knows the machine, or a launcher at work on the job. A
    launcher that died between ``create`` and its record leaves a lease without a machine, and a machine
    without a record: that one is found. The mailbox is asked too: the job may have been adopted
    elsewhere, and this home's journal of it may have ended long ago."""
    from arylcloud.core.errors import ArylError

    if state is None:
        return None
    if _knows(state, machine) or journal.claimed(state.job_id):
        return ""
    try:
        return "" if _knows(_newest(journal, state), machine) else None
    except ArylError as error:
        return f"its job's records cannot be read ({error.message})"


def _knows(state: JobState, machine: Machine) -> bool:
    lease = state.leases.get(machine.lease_id)
    return lease is not None and lease.open and lease.instance_id == machine.instance_id


def _newest(journal: Journal, state: JobState) -> JobState:
    """The job as its mailbox tells it: records beyond this home's own. Nothing is written."""
    from arylcloud.checkpoint.store import file_path, open_store
    from arylcloud.core.events import Record
    from arylcloud.core.protocol import JOURNAL_PREFIX, journal_key
    from arylcloud.launcher.fold import replay

    if state.prefix_uri.startswith("file://") and not file_path(state.prefix_uri).is_dir():
        return state  # deleted: nobody can have gone on with it
    store = open_store(state.prefix_uri, create=False)
    head = journal.head(state.job_id)
    found = (store.get(info.key) for info in store.list(JOURNAL_PREFIX, after=journal_key(head)))
    return replay((Record.from_bytes(data) for data in found if data is not None), state)
