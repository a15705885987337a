"""``arylcloud gc``: machines that carry a journal's id and that nobody answers for."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from arylcloud.cli.gcfacts import Foreign, Jobs
    from arylcloud.cli.settings import Folders
    from arylcloud.core.errors import ArylError
    from arylcloud.core.ports import Infrastructure, Machine, Provider
    from arylcloud.launcher.journal import Journal

app = typer.Typer(add_completion=False)


@app.command()
def gc(
    dryrun: Annotated[bool, typer.Option("--dryrun", "--dry-run", help="List only.")] = False,
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Also end machines of this other journal whose lease has expired."),
    ] = None,
    infra: Annotated[
        list[str] | None,
        typer.Option("--infra", help="Which clouds; those that this journal has used, or that are set up."),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Where the jobs of other journals lie, to see their owners.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Find and end machines that this journal started and does not know; list those of others."""
    from arylcloud.cli.assemble import infrastructure_for, open_journal, providers_for, store_root_uri
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.settings import folders

    places = folders()
    journal = open_journal(places)
    asked = infra or _usual(journal, places)
    sweep = Sweep(
        journal=journal,
        root_uri=store_root_uri(places, store),
        root_named=store is not None,
        owner=owner,
        dryrun=dryrun,
        quiet=json_,
        now_s=time.time(),
    )
    for cloud, provider in providers_for(asked, places).items():
        sweep.asked.append(cloud)
        sweep.cloud(cloud, provider)
        beside = infrastructure_for(cloud, places)
        if beside is not None and cloud not in {error["cloud"] for error in sweep.errors}:
            sweep.resources_of(cloud, beside)
    sweep.launches(places.state)
    sweep.say_the_rest()
    if json_:
        emit_json(
            {
                "found": sweep.found,
                "terminated": sweep.terminated,
                "resources": sweep.resources,
                "unattended": list(sweep.unattended.values()),
                "unknown": sweep.unknown,
                "cut_short": sweep.cut_short,
                "errors": sweep.errors,
                "dryrun": dryrun,
            }
        )
    return sweep.exit_code


def _usual(journal: Journal, places: Folders) -> list[str]:
    """The clouds that this journal has used, or that this home has settings for. Any other gets no call."""
    from arylcloud.cli.gcfacts import jobs_of
    from arylcloud.providers import registry
    from arylcloud.providers.settings import settings_for

    leases = (lease for state in jobs_of(journal).states.values() for lease in state.leases.values())
    used = {lease.offer.cloud for lease in leases}
    return [
        cloud
        for cloud in registry.PROVIDERS
        if cloud in used
        or (cloud == "local" and places.local_cloud.exists())
        or (
            cloud != "local"
            and settings_for(cloud, os.environ, places.config).keys() - registry.PRICES_ONLY.get(cloud, set())
        )
    ]


@dataclass(slots=True, kw_only=True)
class Sweep:
    """One cloud after the other; an error of one does not stop the others."""

    journal: Journal
    root_uri: str
    root_named: bool
    """By ``--store``: the jobs of other journals do lie there."""
    owner: str | None
    dryrun: bool
    quiet: bool
    now_s: float
    asked: list[str] = field(default_factory=list)
    """Clouds that were looked at."""
    found: list[dict[str, Any]] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    """Networks, disks and the like, and what has become of them."""
    busy: set[str] = field(default_factory=set)
    """Journals that have machines in the cloud that was looked at last."""
    unattended: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By job: machines with an open lease, and no launcher at work."""
    unknown: list[dict[str, Any]] = field(default_factory=list)
    """Machines of this journal that run, and of which nobody can say whether they are worked with."""
    cut_short: list[dict[str, Any]] = field(default_factory=list)
    """Launches that died before there was a job: what they have left in a store."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = 0

    def cloud(self, cloud: str, provider: Provider) -> None:
        from arylcloud.cli.gcfacts import jobs_of
        from arylcloud.core.errors import AccessError, CloudError, OtherCloudError

        try:
            machines = provider.list_machines(journal_id=None)
            renewed = bool(machines) and provider.capabilities().renews_until
        except (CloudError, AccessError) as error:
            self._failed(cloud, error)
            return
        except Exception as error:  # noqa: BLE001 - an odd answer of one cloud hides no machine of another
            self._failed(cloud, OtherCloudError(f"{cloud}: not listed, by a bug of ours: {error!r}"))
            return
        jobs = jobs_of(self.journal)  # after the list: what it shows was written down before it was asked for
        self.busy = {machine.journal_id for machine in machines if machine.state.value != "gone"}
        for machine in machines:
            if machine.state.value == "gone":
                continue
            try:
                self._machine(provider, machine, jobs, renewed=renewed)
            except (CloudError, AccessError) as error:
                self._failed(cloud, error)

    def resources_of(self, cloud: str, beside: Infrastructure) -> None:
        """After the cloud's machines: what they used can go with them, or at the next look."""
        from arylcloud.cli.gcfacts import jobs_of
        from arylcloud.cli.gcresources import clear
        from arylcloud.core.errors import AccessError, CloudError

        jobs = jobs_of(self.journal)
        try:
            for left in clear(
                beside,
                self.journal,
                jobs,
                root_uri=self.root_uri,
                root_named=self.root_named,
                owner=self.owner,
                busy=self.busy,
                dryrun=self.dryrun,
            ):
                self.resources.append(left.document)
                self._say(left.text(dryrun=self.dryrun))
        except (CloudError, AccessError) as error:
            self._failed(cloud, error)

    def _machine(self, provider: Provider, machine: Machine, jobs: Jobs, *, renewed: bool) -> None:
        from arylcloud.cli.gcfacts import foreign, is_ours, standing
        from arylcloud.core.errors import IntegrityError, StoreError

        ours = is_ours(self.journal, jobs, machine.journal_id, machine.job_id)
        if not ours and machine.job_id not in jobs.unreadable:
            seen = foreign(machine, self.root_uri, renewed=renewed, now_s=self.now_s)
            self.found.append(_document(machine, seen, self.now_s))
            self._end_foreign(provider, machine, seen)
            return
        how, why = standing(self.journal, jobs, machine)
        if how == "unknown":
            self.unknown.append({**_document(machine, None, self.now_s), "why": why})
            error = IntegrityError if machine.job_id in jobs.unreadable else StoreError
            self.exit_code = max(self.exit_code, error.exit_code)
            self._say(f"{_name(machine)}: left alone: {why}")
        elif how == "unattended":
            self._unattended(machine, why)
        elif how == "stray":
            self.found.append(_document(machine, None, self.now_s))
            self._end(provider, machine, "of this journal, and nobody works with it")

    def _end_foreign(self, provider: Provider, machine: Machine, seen: Foreign) -> None:
        from arylcloud.cli.output import seconds

        heard = "its owner's last heartbeat is not known here"
        if seen.launcher_heard_s is not None:
            heard = f"its owner was heard {seconds(max(0.0, self.now_s - seen.launcher_heard_s))} ago"
        elif seen.machine_heard_s is not None:
            heard = f"itself heard {seconds(max(0.0, self.now_s - seen.machine_heard_s))} ago"
        whose = f"of journal {machine.journal_id}, {heard}"
        if machine.journal_id == self.owner and not seen.why_not:
            self._end(provider, machine, whose)
        else:
            hint = seen.why_not or f"its lease is over: --owner {machine.journal_id} ends it"
            self._say(f"{_line(machine)}, {whose}: left alone: {hint}")

    def _end(self, provider: Provider, machine: Machine, whose: str) -> None:
        if not self.dryrun:
            provider.terminate(machine)
            self.terminated.append(machine.instance_id)
        self._say(f"{_line(machine)}, {whose}: {'would be ended' if self.dryrun else 'ended'}")

    def _unattended(self, machine: Machine, why: str) -> None:
        entry = self.unattended.setdefault(
            machine.job_id,
            {"job_id": machine.job_id, "machines": [], "hint": f"arylcloud resume {machine.job_id}"},
        )
        entry["machines"].append(
            {"cloud": machine.cloud, "instance_id": machine.instance_id, "usd_per_hour": machine.usd_per_hour}
        )
        self._say(f"{_line(machine)}: no launcher works on its job, and it goes on costing ({why})")

    def launches(self, state_dir: Path) -> None:
        from arylcloud.cli.gclaunches import clear
        from arylcloud.core.errors import ArylError
        from arylcloud.launcher.pending import found

        for launch in found(state_dir):
            try:
                left = clear(self.journal, launch, state_dir, dryrun=self.dryrun)
            except ArylError as error:
                self._failed(launch.prefix_uri, error)
                continue
            if left is not None:
                self.cut_short.append(left.document)
                self._say(left.text)

    def say_the_rest(self) -> None:
        for entry in self.unattended.values():
            n = len(entry["machines"])
            self._say(
                f"job {entry['job_id']} has {n} machine{'s' * (n != 1)} and no launcher\n"
                f"hint: `{entry['hint']}` gives it one"
            )
        seen = self.found or self.unattended or self.unknown or self.cut_short or self.resources
        if not (seen or self.errors):
            if self.asked:
                where = ", ".join(self.asked)
                self._say(f"nothing found in {where}: every machine of this journal is known and worked with")
            else:
                self._say("no cloud was asked: this home has used none (--infra names one)")

    def _failed(self, cloud: str, error: ArylError) -> None:
        self.errors.append({"cloud": cloud, "kind": error.kind, "code": error.code, "message": error.message})
        self.exit_code = max(self.exit_code, error.exit_code)
        whose = "" if error.message.startswith(f"{cloud}: ") else f"{cloud}: "
        self._say(f"error: {whose}{error.message}")
        if error.hint:
            self._say(f"hint: {error.hint}")

    def _say(self, text: str) -> None:
        from arylcloud.cli.output import note

        if not self.quiet:
            note(text)


def _name(machine: Machine) -> str:
    return f"{machine.cloud} {machine.instance_id}"


def _line(machine: Machine) -> str:
    from arylcloud.cli.output import rate

    price = rate(machine.usd_per_hour)
    return f"{_name(machine)} {machine.instance_type} at {price}, job {machine.job_id}"


def _document(machine: Machine, seen: Foreign | None, now_s: float) -> dict[str, Any]:
    """``seen`` None: a machine of ours, whose lease nobody counts any more."""
    over = None if machine.until_s is None else machine.until_s < now_s
    return {
        "cloud": machine.cloud,
        "region": machine.region,
        "instance_id": machine.instance_id,
        "instance_type": machine.instance_type,
        "usd_per_hour": machine.usd_per_hour,
        "job_id": machine.job_id,
        "lease_id": machine.lease_id,
        "owner": machine.journal_id,
        "ours": seen is None,
        "lease_until_s": machine.until_s,
        "lease_expired": over if seen is None else seen.expired,
        "launcher_heard_s": None if seen is None else seen.launcher_heard_s,
        "machine_heard_s": None if seen is None else seen.machine_heard_s,
    }
