"""When a machine ends itself (DESIGN, "Dead-man's switch"). Pure."""

from __future__ import annotations


def until_s(
    lease_until_s: float | None,
    *,
    launcher_heard_s: float | None,
    unattended_s: float,
    first_started_s: float | None,
    max_runtime_s: float | None,
) -> float | None:
    """Wall seconds; None = no limit is known.

    The lease as the launcher made it out, renewed by every sign of a launcher to ``unattended_s``
    after it; never beyond ``max_runtime_s`` of running.

    >>> limits = {"unattended_s": 600.0, "launcher_heard_s": 500.0}
    >>> until_s(1000.0, first_started_s=None, max_runtime_s=None, **limits)
    1100.0
    >>> until_s(1000.0, first_started_s=100.0, max_runtime_s=300.0, **limits)
    400.0
    """
    found = lease_until_s
    if launcher_heard_s is not None and found is not None:
        found = max(found, launcher_heard_s + unattended_s)
    if first_started_s is not None and max_runtime_s is not None:
        cap_s = first_started_s + max_runtime_s
        found = cap_s if found is None else min(found, cap_s)
    return found
