"""What a cloud holds for us beside machines, and whether it can go: ``gc``'s second look at each cloud."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arylcloud.cli.gcfacts import Jobs
    from arylcloud.core.ports import Infrastructure, Resource
    from arylcloud.launcher.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One resource, and what has become of it."""

    resource: Resource
    removed: bool
    why: str
    """Why it is kept, or whose it was."""

    @property
    def document(self) -> dict[str, Any]:
        resource = self.resource
        return {
            "cloud": resource.cloud,
            "region": resource.region,
            "kind": resource.kind,
            "resource_id": resource.resource_id,
            "owner": resource.journal_id,
            "job_id": resource.job_id,
            "costs": resource.costs,
            "removed": self.removed,
            "why": self.why,
        }

    def text(self, *, dryrun: bool) -> str:
        resource = self.resource
        name = f"{resource.cloud} {resource.region} {resource.kind} {resource.resource_id}"
        paid = ", which is paid for" if resource.costs else ""
        if self.removed:
            return f"{name}{paid}, {self.why}: {'would be removed' if dryrun else 'removed'}"
        return f"{name}{paid}: left alone: {self.why}"


def clear(
    infrastructure: Infrastructure,
    journal: Journal,
    jobs: Jobs,
    *,
    root_uri: str,
    root_named: bool,
    owner: str | None,
    busy: Collection[str],
    dryrun: bool,
) -> Iterator[Left]:
    """Remove what nobody needs any more. ``root_uri``: the store in which jobs of other journals may lie
    (``root_named``: do, by the user's word); ``busy``: journals that have machines in this cloud. A resource
    that is still in use stays. Raises CloudError, AccessError."""
    from arylcloud.cli.gcfacts import is_ours
    from arylcloud.core.errors import ConflictError

    for resource in infrastructure.resources(journal_id=None):
        ours = is_ours(journal, jobs, resource.journal_id, resource.job_id)
        if ours:
            kept = _ours_kept(resource, journal, jobs, busy)
        else:
            kept = _kept(resource, root_uri, owner, busy, named=root_named)
        whose = "of this journal" if ours else f"of journal {resource.journal_id}"
        try:
            if kept is None and not dryrun:
                infrastructure.remove(resource)
        except ConflictError as error:
            kept = error.message
        yield Left(resource=resource, removed=kept is None, why=whose if kept is None else kept)


def _ours_kept(resource: Resource, journal: Journal, jobs: Jobs, busy: Collection[str]) -> str | None:
    """Why it stays; None = it can go. What is a job's own goes by that job as its mailbox tells of it: the
    job may run elsewhere, and on another cloud, by this very role."""
    from arylcloud.cli.gcfacts import needed

    if jobs.unreadable:
        return f"the records of {min(jobs.unreadable)} cannot be read"
    running = sorted(
        state.job_id
        for state in jobs.states.values()
        if not state.phase.ended and resource.job_id in (None, state.job_id)
    )
    if running:
        return f"job {running[0]} has not ended"
    if resource.journal_id in busy:
        return "there are machines of ours here"
    return None if resource.job_id is None else needed(journal, jobs, resource.job_id)


def _kept(
    resource: Resource, root_uri: str, owner: str | None, busy: Collection[str], *, named: bool
) -> str | None:
    """Likewise, of another journal."""
    from arylcloud.cli.gcfacts import needed_elsewhere

    if resource.journal_id != owner:
        return f"it is of journal {resource.journal_id}: --owner {resource.journal_id} removes it"
    if resource.journal_id in busy:
        return "that journal has machines here"
    return None if resource.job_id is None else needed_elsewhere(root_uri, resource.job_id, named=named)
