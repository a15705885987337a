"""Every error a user can meet, by what they can do about it.

    ArylError                     1  a bug of ours, unless a subclass says otherwise
    ├── UsageError                2  bad flag, bad file, bad setting
    │   ├── MissingExtraError     2  a cloud's SDK is not installed
    │   └── LocalStateError       2  our own folder is full, read-only or unreadable
    ├── InfeasibleError           3  no offer satisfies the constraints
    ├── AccessError               4  credentials or permission
    ├── CloudError                5  the cloud said no; ``kind`` tells which no
    │   ├── CapacityError         5  bars zone × type for 10 min
    │   ├── QuotaError            5  bars region × family until `check` or 24 h
    │   ├── ThrottledError        5  the same call again, later
    │   ├── StoreError            5  the object store cannot be reached
    │   └── OtherCloudError       5  an unknown code: tried elsewhere and logged
    ├── ConflictError             6  another launcher holds the job
    ├── IntegrityError            7  a digest, schema or price that does not hold
    └── JobOutcome                   how a job ended, as an exit code
        ├── UserCommandFailed   100
        ├── NotFinished         101
        ├── NoSuchJob           102
        ├── Cancelled           103
        ├── OverBudget          104
        ├── MissedDeadline      105
        └── Interrupted         130

Adapters map SDK errors onto this tree in one table; no SDK exception crosses a port.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Scope = Literal["zone", "region", "family", "market", "account"]
"""How much of a cloud an error speaks of: the type in its zone, the type in its region, types that share a
quota in the region and market, everything of the market in the region, the account."""


class ArylError(Exception):
    """Base of the tree. ``kind`` is stable for scripts, ``hint`` says what to do next."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "bug"
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        cause_id: str | None = None,
        scope: Scope | None = None,
        elsewhere: tuple[str, ...] = (),
        in_use: bool = False,
        chosen: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.code = code
        """The provider's own error code, where there is one."""
        self.cause_id = cause_id
        self.scope = scope
        """Of a refusal to create; None = its class's usual one: the zone of a CapacityError, the family of a
        QuotaError, the account of an AccessError."""
        self.elsewhere = elsewhere
        """Zones of the region that the cloud itself names as having what was asked for."""
        self.in_use = in_use
        """Of a quota: large enough, but other machines have it at present."""
        self.chosen = chosen
        """What the user wanted, told by its exit code alone: nothing went wrong."""


class UsageError(ArylError):
    exit_code = 2
    kind = "usage"


class MissingExtraError(UsageError):
    kind = "missing_extra"


class LocalStateError(UsageError):
    kind = "local_state"
    default_hint = "free space or set ARYLCLOUD_HOME to a folder that can be written"


class InfeasibleError(ArylError):
    exit_code = 3
    kind = "infeasible"


class AccessError(ArylError):
    exit_code = 4
    kind = "access"


class CloudError(ArylError):
    exit_code = 5
    kind = "cloud"


class CapacityError(CloudError):
    kind = "capacity"


class QuotaError(CloudError):
    kind = "quota"


class ThrottledError(CloudError):
    kind = "throttled"


class StoreError(CloudError):
    kind = "store"


class OtherCloudError(CloudError):
    kind = "other"


class ConflictError(ArylError):
    exit_code = 6
    kind = "conflict"


class IntegrityError(ArylError):
    exit_code = 7
    kind = "integrity"


class JobOutcome(ArylError):
    """Not a fault of ours: how a job ended, carried to the exit code."""

    kind = "outcome"


class UserCommandFailed(JobOutcome):
    exit_code = 100
    kind = "user_command"


class NotFinished(JobOutcome):
    exit_code = 101
    kind = "not_finished"


class NoSuchJob(JobOutcome):
    exit_code = 102
    kind = "no_such_job"


class Cancelled(JobOutcome):
    exit_code = 103
    kind = "cancelled"


class OverBudget(JobOutcome):
    exit_code = 104
    kind = "over_budget"


class MissedDeadline(JobOutcome):
    exit_code = 105
    kind = "missed_deadline"


class Interrupted(JobOutcome):
    exit_code = 130
    kind = "interrupted"
