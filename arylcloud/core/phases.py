"""The phases of a job and of a lease, and every way from one to another."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobPhase(StrEnum):
    PENDING = "pending"
    """Submitted; no machine asked for yet."""
    PROVISIONING = "provisioning"
    """A machine has been asked for, and no epoch has started training."""
    WAITING = "waiting"
    """Every acceptable offer is barred (capacity, quota, cool-down); tried again later."""
    RUNNING = "running"
    """An epoch with members is open."""
    RECOVERING = "recovering"
    """The epoch lost its machines; a replacement is on its way."""
    MIGRATING = "migrating"
    """A second machine is coming up, or the first is handing over to it."""
    STOPPING = "stopping"
    """Ending on request or for cause: final checkpoint, then release of every lease."""
    STOPPED = "stopped"
    """Ended on request, all leases released; can be resumed."""
    SUCCEEDED = "succeeded"
    """The command exited 0 on all ranks, and all leases are released."""
    FAILED = "failed"
    """Ended for the cause that the event names, all leases released."""

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED: Final = frozenset({JobPhase.STOPPED, JobPhase.SUCCEEDED, JobPhase.FAILED})


class LeasePhase(StrEnum):
    INTENDED = "intended"
    """Journaled; the cloud may or may not know it."""
    PENDING = "pending"
    """The cloud has accepted it (an instance id is known); it has not been heard."""
    READY = "ready"
    """Its agent has been heard."""
    SUSPECT = "suspect"
    """Not heard for a while, though the cloud does not say that it is gone."""
    DOOMED = "doomed"
    """The cloud has given notice."""
    ENDING = "ending"
    """We have asked for its end (journaled before the call); the cloud still lists it."""
    RELEASED = "released"
    """The cloud no longer lists it, or lists it as ended. Nothing is paid for it any more."""
    REFUSED = "refused"
    """The cloud said no, and nothing has come of it: nothing is paid for it."""

    @property
    def closed(self) -> bool:
        return self is LeasePhase.RELEASED or self is LeasePhase.REFUSED  # asked for thousands of times


LEASE_TRANSITIONS: Final[dict[LeasePhase, frozenset[LeasePhase]]] = {
    LeasePhase.INTENDED: frozenset(
        {
            LeasePhase.PENDING,  # create answered, or list shows our token
            LeasePhase.REFUSED,  # create answered no (capacity, quota, cap on price...)
            LeasePhase.ENDING,  # no longer wanted, or create timed out: sweep by token
        }
    ),
    LeasePhase.PENDING: frozenset(
        {
            LeasePhase.READY,  # first heartbeat
            LeasePhase.DOOMED,  # notice while booting
            LeasePhase.ENDING,  # not wanted, over the cap, or booted for too long
            LeasePhase.RELEASED,  # the cloud took it back while booting
        }
    ),
    LeasePhase.READY: frozenset(
        {
            LeasePhase.SUSPECT,  # silent for 10 s
            LeasePhase.DOOMED,  # notice
            LeasePhase.ENDING,  # work done, stop, migration, budget
            LeasePhase.RELEASED,  # gone without notice
        }
    ),
    LeasePhase.SUSPECT: frozenset(
        {
            LeasePhase.READY,  # heard again
            LeasePhase.DOOMED,
            LeasePhase.ENDING,
            LeasePhase.RELEASED,  # the cloud says gone
        }
    ),
    LeasePhase.DOOMED: frozenset(
        {
            LeasePhase.ENDING,  # handed over: no reason to pay until the cloud acts
            LeasePhase.RELEASED,  # the cloud acted
        }
    ),
    LeasePhase.ENDING: frozenset({LeasePhase.RELEASED}),  # only when the cloud agrees
    LeasePhase.RELEASED: frozenset(),
    LeasePhase.REFUSED: frozenset({LeasePhase.ENDING}),  # a machine came of it after all: billed, and ended
}
