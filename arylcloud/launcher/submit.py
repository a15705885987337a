"""A job comes into being: its files in the mailbox first, then the journal's first record, then its secrets.

A crash before that record leaves a prefix without a secret in it, and no job; ``launcher/pending`` remembers
where, and ``gc`` removes it. After it there is a job that any launcher can run once it has its secrets
(``resume`` gives them).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock, MarketClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ConflictError
from arylcloud.core.events import BaselineQuoted, JobSubmitted, Planned
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.bundle import Archive
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.probe import Probe, no_probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    job_id: str
    spec: JobSpec
    secrets: dict[str, str]
    """Of the processes, by name."""
    notify: str | None = None
    """The whole address, where somebody is to be told."""
    workdir: Archive | None
    runtime: Path
    """Zip of the machine side, see ``agent/runtime.py``."""
    runtime_sha256: str
    machines: tuple[str, ...] = ()
    """As ``JobDoc.machines``."""
    market_clock: MarketClock
    plan_digest: str | None = None
    queued: bool = False
    """It waits for ``serve --policy``."""
    nodes: int | None = None
    """How many machines were confirmed, of a job whose number may change."""
    quotes: tuple[BaselineQuoted, ...] = ()
    """What the report will compare with."""
    quoted: tuple[Offer, ...] = ()
    """As ``JobSubmitted.quoted``."""
    store_place: str | None = None
    """As ``JobSubmitted.store_place``."""
    planned: Planned | None = None
    """As ``JobSubmitted.planned``."""


def runtime_key(sha256: str) -> str:
    """Beside the jobs, at the store's root: shared by all jobs of one version."""
    return f"runtime/{sha256}.zip"


def put_secrets(prefix: ObjectStore, secrets: dict[str, str], notify: str | None) -> None:
    """Only where a job's journal leads to them: what no command finds, nobody ever removes."""
    if secrets:
        prefix.put(mail.SECRETS_KEY, dumps(secrets))
    if notify is not None:
        prefix.put(mail.LAUNCHER_SECRETS_KEY, dumps(mail.LauncherSecrets(notify=notify)))


def submit(
    submission: Submission,
    *,
    root: ObjectStore,
    prefix: ObjectStore,
    journal: Journal,
    clock: Clock,
    writer: str,
    probe: Probe = no_probe,
) -> None:
    """Write everything under ``prefix`` and journal the submission. Raises ConflictError if the
    prefix is a job's already."""
    s = submission
    probe("before runtime")
    root.create(runtime_key(s.runtime_sha256), s.runtime.read_bytes())
    probe("after runtime")
    if s.workdir is not None:
        prefix.create(mail.workdir_key(s.workdir.sha256), s.workdir.data)
        probe("after workdir")
    now_s = clock.now_s()
    document = mail.JobDoc(
        job_id=s.job_id,
        journal_id=journal.journal_id,
        spec=s.spec,
        submitted_s=now_s,
        market_origin_s=s.market_clock.origin_s,
        market_scale=s.market_clock.scale,
        workdir_sha256=s.workdir.sha256 if s.workdir is not None else None,
        runtime_sha256=s.runtime_sha256,
        machines=s.machines,
    )
    if not prefix.create(mail.JOB_KEY, dumps(document)):
        raise ConflictError(f"{prefix.uri} holds a job already")
    probe("after job document")
    journal.append(
        s.job_id,
        at_s=now_s,
        writer=writer,
        event=JobSubmitted(
            spec=s.spec,
            prefix_uri=prefix.uri,
            journal_id=journal.journal_id,
            market_origin_s=s.market_clock.origin_s,
            market_scale=s.market_clock.scale,
            plan_digest=s.plan_digest,
            queued=s.queued,
            quotes=s.quotes,
            nodes=s.nodes,
            quoted=s.quoted,
            store_place=s.store_place,
            planned=s.planned,
        ),
        cause_id=None,
        mirror=prefix,
    )
    probe("after journal JobSubmitted")
    put_secrets(prefix, s.secrets, s.notify)
    probe("after secrets")
