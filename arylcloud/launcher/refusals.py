"""What stands in a job's way, in one line: refusals by kind, with the next step that helps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from arylcloud.core.offer import Offer
from arylcloud.core.phases import LeasePhase
from arylcloud.launcher.state import JobState, Lease

NAMED: Final = 3
"""So many different quotas, clouds or errors are spelled out; the others are counted."""
_ORDER: Final = ("capacity", "over_cap", "never_came", "throttled", "other", "quota", "access")
_NEVER_CAME: Final = frozenset({"boot_timeout", "broken", "bad_hardware", "create_uncertain", "unheard"})
_NO_ROOM: Final = "no_room"


def since_it_last_worked(state: JobState) -> tuple[Lease, ...]:
    """Leases that came to nothing, after the last one that joined an epoch; oldest first."""
    members = {member.lease_id for epoch in state.epochs for member in epoch.members}
    worked = max((x.attempt for x in state.leases.values() if x.lease_id in members), default=0)
    least = max(worked, state.history_attempt)
    return tuple(x for x in state.leases.values() if x.attempt > least and _failed(x))


def summary(state: JobState) -> str | None:
    """``no capacity in 14 zones of 3 clouds (09:12–09:20 UTC); quota: …: ask for …``; None = nothing failed.

    Quota and credentials last in the sentence: they are what a person can do something about.
    """
    failed = since_it_last_worked(state)
    by_kind: dict[str, list[Lease]] = {}
    for lease in failed:
        by_kind.setdefault(_kind(lease), []).append(lease)
    kinds = [*(k for k in _ORDER if k in by_kind), *(k for k in by_kind if k not in _ORDER)]
    return "; ".join(_part(kind, by_kind[kind]) for kind in kinds) or None


def refusal_text(lease: Lease) -> str:
    """Of one refusal that ends the job: what the cloud said, and what helps."""
    said = lease.refusal
    if said is None:
        return f"{lease.offer.cloud} refused: {lease.cause}; no other try helps"
    hint = f" ({said.hint})" if said.hint else ""
    return f"{lease.offer.cloud} refused: {said.message}{hint}"


def _failed(lease: Lease) -> bool:
    return (
        lease.phase is LeasePhase.REFUSED
        or lease.ending_code in {*_NEVER_CAME, _NO_ROOM, "over_cap"}
        or lease.uncertain
    )


def _kind(lease: Lease) -> str:
    if lease.phase is LeasePhase.REFUSED:
        return lease.cause or "other"
    if lease.uncertain:
        return lease.uncertain_kind or "other"
    if lease.ending_code == _NO_ROOM:
        return "capacity"
    return "never_came" if lease.ending_code in _NEVER_CAME else lease.ending_code or "other"


def _part(kind: str, leases: Sequence[Lease]) -> str:
    if kind == "capacity":
        return f"no capacity in {_places(x.offer for x in leases)} {_when(leases)}"
    if kind == "quota":
        return "quota: " + _named(_quota(x) for x in leases)
    if kind == "access":
        return "no access: " + _named(_said(x) for x in leases)
    if kind == "over_cap":
        return f"too dear in {_places(x.offer for x in leases)}"
    if kind == "never_came":
        count = len(leases)
        return f"{count} machine{'' if count == 1 else 's'} never got to work {_when(leases)}"
    if kind == "throttled":
        return "throttled: " + _named(f"{x.offer.cloud}/{x.offer.region}" for x in leases)
    return f"{len(leases)} other error{'' if len(leases) == 1 else 's'}, the last: {_said(leases[-1])}"


def _quota(lease: Lease) -> str:
    """``spot in aws/us-east-1: ask for L-7212CCBC: https://…``."""
    market = lease.offer.market.value.replace("_", "-")
    where = f"{market} {lease.offer.instance_type} in {lease.offer.cloud}/{lease.offer.region}"
    said = lease.refusal
    if said is None:
        return where
    ask = said.hint or (f"ask for {said.code}" if said.code else "")
    if said.code and said.code not in ask:
        ask = f"{said.code}: {ask}"
    return f"{where}: {ask}" if ask else where


def _said(lease: Lease) -> str:
    said = lease.refusal
    if said is None:
        return lease.why
    return f"{said.message:.160}" + (f" ({said.hint})" if said.hint else "")


def _named(texts: Iterable[str]) -> str:
    different = list(dict.fromkeys(texts))
    more = len(different) - NAMED
    return ", ".join(different[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _places(offers: Iterable[Offer]) -> str:
    """``14 zones of 3 clouds``."""
    zones, clouds = set(), set()
    for offer in offers:
        zones.add(offer.place)
        clouds.add(offer.cloud)
    counted = f"{len(zones)} zone{'' if len(zones) == 1 else 's'}"
    return f"{counted} of {len(clouds)} clouds" if len(clouds) > 1 else f"{counted} of {min(clouds)}"


def _when(leases: Sequence[Lease]) -> str:
    first_s = min(x.intended_at_s for x in leases)
    last_s = max(x.intended_at_s for x in leases)
    first, last = utc(first_s), utc(last_s)
    return f"(tried {first})" if first == last else f"(tried {first.removesuffix(' UTC')}–{last})"


def utc(at_s: float) -> str:
    """``09:12 UTC`` of wall seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M UTC")
