"""Error codes of a cloud: how its adapter's one table is made, and refusals that are as good as done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    QuotaError,
    ThrottledError,
    UsageError,
)


def kinds_of(
    *, capacity: str, quota: str, throttled: str, access: str, wrong: Collection[str]
) -> dict[str, type[ArylError]]:
    """Code → what it means; of each kind the codes, apart by spaces. ``wrong``: what was asked for is.

    >>> kinds_of(capacity="Full", quota="", throttled="Slow Slower", access="", wrong=())["Slower"].__name__
    'ThrottledError'
    """
    return {
        **dict.fromkeys(capacity.split(), CapacityError),
        **dict.fromkeys(quota.split(), QuotaError),
        **dict.fromkeys(throttled.split(), ThrottledError),
        **dict.fromkeys(access.split(), AccessError),
        **dict.fromkeys(wrong, UsageError),
    }


def hints_of(cloud: str, access: str, wrong: Mapping[str, str | None]) -> dict[str, str | None]:
    """Code → what to do next."""
    where = f"`arylcloud check --infra {cloud}` says what is missing; docs/clouds/{cloud}.md"
    return {**dict.fromkeys(access.split(), where), **wrong}


def unless(codes: Collection[str], call: Callable[[], object]) -> None:
    """One order; a refusal with one of these codes (it is there already, it is gone already) is success."""
    try:
        call()
    except ArylError as error:
        if error.code not in codes:
            raise
