"""When a machine ends itself (DESIGN, "Dead-man's switch"). Pure."""

from __future__ import annotations

from dataclasses import dataclass

UNHEARD = "nobody has renewed it"
USED_UP = "the job's budget or max_runtime is used up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    at_s: float
    """Wall seconds."""
    why: str


def limit(
    lease_until_s: float | None,
    *,
    launcher_heard_s: float | None,
    unattended_s: float,
    hard_until_s: float | None,
) -> Limit | None:
    """The end of this machine's lease; None = no limit is known.

    The lease as the launcher made it out, renewed by every sign of a launcher to ``unattended_s`` after
    it; never beyond ``hard_until_s``, which the newest of those signs has named.

    >>> heard = {"unattended_s": 600.0, "launcher_heard_s": 500.0}
    >>> limit(1000.0, hard_until_s=None, **heard)
    Limit(at_s=1100.0, why='nobody has renewed it')
    >>> limit(1000.0, hard_until_s=400.0, **heard)
    Limit(at_s=400.0, why="the job's budget or max_runtime is used up")
    """
    renewable_s = lease_until_s
    if launcher_heard_s is not None and renewable_s is not None:
        renewable_s = max(renewable_s, launcher_heard_s + unattended_s)
    if hard_until_s is not None and (renewable_s is None or hard_until_s < renewable_s):
        return Limit(at_s=hard_until_s, why=USED_UP)
    return None if renewable_s is None else Limit(at_s=renewable_s, why=UNHEARD)
