"""``arylcloud gc``: machines that carry a journal's id and that no open lease knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arylcloud.core.ports import Machine
    from arylcloud.launcher.journal import Journal

app = typer.Typer()


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
    providers = providers_for(infra or list(registry.PROVIDERS), places)
    now_s = time.time()
    known = _open_leases(journal)
    ours = _journal_ids(journal)
    found: list[dict[str, Any]] = []
    ended: list[str] = []
    for cloud, provider in providers.items():
        for machine in provider.list_machines(journal_id=None):
            if machine.state.value == "gone" or machine.lease_id in known:
                continue
            mine = machine.journal_id in ours
            expired = machine.until_s is not None and machine.until_s < now_s
            end = mine or (machine.journal_id == owner and expired)
            found.append(_document(machine, mine, expired))
            if end and not dryrun:
                provider.terminate(machine)
                ended.append(machine.instance_id)
            if not json_:
                whose = "of this journal, unknown to it" if mine else f"of journal {machine.journal_id}"
                what = "ended" if end and not dryrun else ("would be ended" if end else "left alone")
                note(
                    f"{cloud} {machine.instance_id} {machine.instance_type} at {rate(machine.usd_per_hour)}, "
                    f"job {machine.job_id}, {whose}: {what}"
                )
    if json_:
        emit_json({"found": found, "terminated": ended, "dryrun": dryrun})
    elif not found:
        note("nothing found: every machine with our tags belongs to an open lease")
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


def _open_leases(journal: Journal) -> set[str]:
    """Leases that a launcher still answers for. An ended job's are closed, or it had not ended."""
    from arylcloud.launcher.state import replay

    return {
        lease.lease_id for job_id in journal.jobs() for lease in replay(journal.records(job_id)).open_leases
    }


def _journal_ids(journal: Journal) -> set[str]:
    """This home's own, and those of the jobs that it has adopted."""
    from arylcloud.launcher.state import replay

    return {journal.journal_id} | {replay(journal.records(job_id)).journal_id for job_id in journal.jobs()}
