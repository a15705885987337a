"""What a cloud holds for us beside machines, and whether it can go: ``gc``'s second look at each cloud."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arylcloud.cli.gcfacts import Jobs
    from arylcloud.core.ports import Infrastructure, Resource


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
    jobs: Jobs,
    ours: Collection[str],
    *,
    owner: str | None,
    busy: Collection[str],
    dryrun: bool,
) -> Iterator[Left]:
    """Remove what nobody needs any more; ``ours``: ids of this home's journals, ``busy``: journals that have
    machines in this cloud. A resource that is still in use stays. Raises CloudError, AccessError."""
    from arylcloud.core.errors import ConflictError

    for resource in infrastructure.resources(journal_id=None):
        kept = _kept(resource, jobs, ours, owner, busy)
        whose = "of this journal" if resource.journal_id in ours else f"of journal {resource.journal_id}"
        try:
            if kept is None and not dryrun:
                infrastructure.remove(resource)
        except ConflictError as error:
            kept = error.message
        yield Left(resource=resource, removed=kept is None, why=whose if kept is None else kept)


def _kept(
    resource: Resource, jobs: Jobs, ours: Collection[str], owner: str | None, busy: Collection[str]
) -> str | None:
    """Why it stays; None = it can go."""
    if resource.journal_id not in ours:
        if resource.journal_id != owner:
            return f"it is of journal {resource.journal_id}: --owner {resource.journal_id} removes it"
        return "that journal has machines here" if resource.journal_id in busy else None
    if jobs.unreadable:
        return f"the records of {min(jobs.unreadable)} cannot be read"
    running = sorted(
        state.job_id
        for state in jobs.states.values()
        if not state.phase.ended and resource.job_id in (None, state.job_id)
    )
    if running:
        return f"job {running[0]} has not ended"
    return "there are machines of ours here" if resource.journal_id in busy else None
