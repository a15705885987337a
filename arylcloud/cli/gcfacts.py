"""Who answers for a machine that a cloud shows: what ``gc`` has to know before it ends anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from arylcloud.core.ports import Machine, ObjectStore
    from arylcloud.launcher.holder import Holding
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

T = TypeVar("T")
Standing = Literal["well", "unattended", "stray", "unknown"]
"""Of a machine of ours. *Well*: a launcher works on its job, here or elsewhere. *Unattended*: its lease is
open, and no launcher is at work: it goes on costing. *Stray*: no lease of any journal knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The jobs of this home's journal."""

    states: dict[str, JobState] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Job → why its records cannot be read: nothing of it is touched."""


def jobs_of(journal: Journal) -> Jobs:
    """Raises IntegrityError, LocalStateError if the journal as a whole cannot be read."""
    from arylcloud.core.errors import IntegrityError
    from arylcloud.launcher.fold import replay

    found = Jobs()
    for job_id in journal.jobs():
        try:
            found.states[job_id] = replay(journal.records(job_id))
        except IntegrityError as error:
            found.unreadable[job_id] = error.message
    return found


def is_ours(journal: Journal, jobs: Jobs, journal_id: str, job_id: str | None) -> bool:
    """Whether what carries these marks is this home's to judge: its own, or of a job that it has adopted.
    Of another home's journal nothing else is: its other jobs go on over there."""
    state = None if job_id is None else jobs.states.get(job_id)
    return journal_id == journal.journal_id or (state is not None and state.journal_id == journal_id)


def standing(journal: Journal, jobs: Jobs, machine: Machine) -> tuple[Standing, str]:
    """Of a machine of ours, and why (empty where there is nothing to add).

    A launcher that died between ``create`` and its record leaves a lease without a machine, and a machine
    without a record: a stray. The mailbox is asked too: the job may have been adopted elsewhere, and this
    home's journal of it may have ended long ago. A launcher at work elsewhere sweeps its own strays, and may
    be making this very machine."""
    from arylcloud.core.errors import ArylError

    if machine.job_id in jobs.unreadable:
        return (
            "unknown",
            f"the records of {machine.job_id} cannot be read ({jobs.unreadable[machine.job_id]})",
        )
    state = jobs.states.get(machine.job_id)
    if state is None:
        return "stray", ""
    if journal.claimed(state.job_id):
        return "well", ""
    try:
        found = _holding(journal, state)
    except ArylError as error:
        return "unknown", f"its job's mailbox cannot be read ({error.message})"
    if found.at_work is not None and found.elsewhere:
        return "well", ""
    if not _knows(
        found.state, machine
    ):  # by a launcher of this home, which has no claim any more: it is dead
        return "stray", ""
    if found.at_work is not None:
        return "well", ""
    return "unattended", f"its lease is {found.state.leases[machine.lease_id].phase}"


def needed(journal: Journal, jobs: Jobs, job_id: str) -> str | None:
    """Why what was made for this job of ours has to stay: it goes on, here or where it was resumed since.
    None = it has ended everywhere, or no such job is known."""
    from arylcloud.core.errors import ArylError

    state = jobs.states.get(job_id)
    if state is None:
        return None
    if not state.phase.ended:
        return f"job {job_id} has not ended"
    try:
        return _goes_on(_holding(journal, state), job_id)
    except ArylError as error:
        return f"the mailbox of {job_id} cannot be read ({error.message})"


def needed_elsewhere(root_uri: str, job_id: str, *, named: bool) -> str | None:
    """The same of a job of another journal, as its mailbox in that store tells. ``named``: the user says that
    its jobs lie there: then one that does not is no more. A job that never ended needs nothing where its
    home is lost: no launcher is heard, and its machines have ended themselves."""
    from arylcloud.core.errors import ArylError
    from arylcloud.core.events import Record
    from arylcloud.core.protocol import journal_key
    from arylcloud.launcher.fold import apply
    from arylcloud.launcher.holder import holding

    try:
        store = _prefix(root_uri, job_id)
        first = None if store is None else store.get(journal_key(1))
        if store is None or first is None:
            if named and store is not None and next(iter(store.list("")), None) is None:
                return None
            return f"whether {job_id} goes on cannot be seen here: name its store with --store"
        state = apply(None, Record.from_bytes(first))
        found = holding(store, state, state.journal_id)
        return None if _given_up(store, found) else _goes_on(found, job_id)
    except ArylError as error:
        if named and _deleted(root_uri):
            return None
        return f"the mailbox of {job_id} cannot be read ({error.message})"


def _given_up(store: ObjectStore, found: Holding) -> bool:
    """Whether ``unattended`` is over since anybody worked on the job, and no machine of it is heard. By the
    store's clock. Raises StoreError."""
    from arylcloud.checkpoint.storetime import age_s
    from arylcloud.core import protocol as mail
    from arylcloud.launcher.holder import FRESH_S

    if found.at_work is not None:
        return False
    spec, ages = found.state.spec, [age_s(store, mail.journal_key(found.state.seq))]
    ages.append(age_s(store, mail.LAUNCHER_KEY))
    beats = (age_s(store, mail.beat_key(lease.lease_id)) for lease in found.state.open_leases)
    if any(age is not None and age < FRESH_S for age in beats):
        return False
    known = [age for age in ages if age is not None]
    return bool(known) and min(known) > spec.unattended_s + spec.grace_s


def _goes_on(found: Holding, job_id: str) -> str | None:
    if not found.state.phase.ended:
        return f"job {job_id} has not ended: another home goes on with it"
    if found.elsewhere and found.at_work is not None:  # one of this home that winds up needs none of it
        return f"job {job_id} has a launcher at work in another home"
    return None


def _holding(journal: Journal, state: JobState) -> Holding:
    from arylcloud.core.errors import StoreError
    from arylcloud.launcher.holder import Holding, holding

    nobody = Holding(state=state, at_work=None, elsewhere=False)
    try:
        store = _mailbox(state)
        return nobody if store is None else holding(store, state, journal.journal_id)
    except StoreError:
        if not _deleted(state.prefix_uri):
            raise
        return nobody  # as with a folder that has been deleted


def _knows(state: JobState, machine: Machine) -> bool:
    lease = state.leases.get(machine.lease_id)
    return lease is not None and lease.open and lease.instance_id == machine.instance_id


def _deleted(uri: str) -> bool:
    """Whether the bucket is not there any more; False where its cloud does not say so. Asked only of what
    could not be read."""
    from arylcloud.cli.settings import folders
    from arylcloud.cli.stores import storage_of
    from arylcloud.core.errors import ArylError
    from arylcloud.core.stores import address_of, cloud_of

    try:
        cloud = cloud_of(uri)
        return cloud is not None and storage_of(cloud, folders()).missing(address_of(uri))
    except ArylError:  # then what was said of the reading stands
        return False


def _mailbox(state: JobState) -> ObjectStore | None:
    """None: its folder has been deleted, so that nobody can have gone on with the job."""
    from arylcloud.checkpoint.store import file_path
    from arylcloud.cli.stores import open_uri

    if state.prefix_uri.startswith("file://") and not file_path(state.prefix_uri).is_dir():
        return None
    return open_uri(state.prefix_uri)


# ---------------------------------------------------------------- machines of other journals


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What can be known here of a machine of another journal."""

    expired: bool | None
    """Whether its lease is over, every renewal counted that can be seen. None = that cannot be told."""
    launcher_heard_s: float | None = None
    """Wall seconds, by our clock, of its owner's last heartbeat (aged by the store's); None = not known."""
    machine_heard_s: float | None = None
    why_not: str = ""
    """Why it is not ended, even if that is asked for; empty = nothing stands against it."""


def foreign(machine: Machine, root_uri: str, *, renewed: bool, now_s: float) -> Foreign:
    """``root_uri``: the store in which its job may lie. ``renewed``: what the cloud lists as ``until`` is
    kept up to date by the machine itself (``Capabilities.renews_until``)."""
    from arylcloud.checkpoint.storetime import age_s
    from arylcloud.core import protocol as mail
    from arylcloud.core.errors import ArylError
    from arylcloud.launcher.holder import FRESH_S

    launcher_age_s = agent_age_s = unattended_s = None
    try:
        store = _prefix(root_uri, machine.job_id)
        if store is not None:
            job = _document(store, mail.JOB_KEY, mail.JobDoc)
            unattended_s = None if job is None else job.spec.unattended_s
            launcher_age_s = age_s(store, mail.LAUNCHER_KEY)
            agent_age_s = age_s(store, mail.beat_key(machine.lease_id))
    except ArylError as error:
        return Foreign(expired=None, why_not=f"its job's mailbox cannot be read ({error.message})")
    launcher_s = None if launcher_age_s is None else now_s - launcher_age_s
    agent_s = None if agent_age_s is None else now_s - agent_age_s
    until_s = machine.until_s
    if until_s is not None and launcher_s is not None and unattended_s is not None:
        until_s = max(until_s, launcher_s + unattended_s)
    expired: bool | None = None
    if until_s is not None and until_s >= now_s:
        expired = False
    elif until_s is not None and (renewed or unattended_s is not None):
        expired = True
    heard_s = max((s for s in (launcher_s, agent_s) if s is not None), default=None)
    why_not = ""
    if expired is None:
        why_not = "its lease may have been renewed, which cannot be seen here: name its store with --store"
    elif not expired:
        why_not = "its lease goes on"
    elif heard_s is not None and now_s - heard_s < FRESH_S:
        why_not = f"it was heard {max(0.0, now_s - heard_s):.0f} s ago"
    return Foreign(expired=expired, launcher_heard_s=launcher_s, machine_heard_s=agent_s, why_not=why_not)


def _prefix(root_uri: str, job_id: str) -> ObjectStore | None:
    """The mailbox of that job in that store; None where a folder is not there. ``job_id`` is a tag that
    anybody may have written: checked as a key before it becomes part of a path."""
    from arylcloud.checkpoint.keys import checked_key
    from arylcloud.checkpoint.store import file_path, sub
    from arylcloud.cli.stores import open_uri

    if root_uri.startswith("file://") and not file_path(root_uri).is_dir():
        return None
    if "/" in job_id:
        return None
    return sub(open_uri(root_uri), checked_key(f"jobs/{job_id}"))


def _document(store: ObjectStore, key: str, cls: type[T]) -> T | None:
    from arylcloud.core.codec import loads

    data = store.get(key)
    return None if data is None else loads(cls, data, what=key)
