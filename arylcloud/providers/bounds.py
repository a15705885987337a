"""What every cloud's adapter holds to when it makes a machine, said once.

The caps of DESIGN ("Money"): nothing dearer than the job allows is asked for, and what was made all the same
ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    InfeasibleError,
    OtherCloudError,
    QuotaError,
    UsageError,
)
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Machine, MachineSpec

CLOUD_INIT: Final = {"ARYL_CLOUD_INIT": "/var/lib/cloud"}
"""Of a cloud whose images run user data once per machine, not at each boot: for ``machine_env``."""
NOTHING_MADE: Final = (CapacityError, QuotaError, AccessError, UsageError, InfeasibleError)
"""What these say of ``create`` (``core.ports``)."""

QUOTA_KEPT_S: Final = 600.0
"""For so long it is taken as said what a cloud allows."""
QUOTA_SURE_S: Final = 30.0
"""Nothing is refused for what it allowed longer ago: a refusal bars for a day."""
PAGES: Final = 10_000
"""No list of a cloud's has so many."""


def refuse_surely(refusal: Callable[[float], QuotaError | None]) -> None:
    """``refusal(fresh_s)``: what stands against it by quotas read at most ``fresh_s`` seconds ago. Raises it,
    if it still holds by such as have just been read."""
    if refusal(QUOTA_KEPT_S) is not None and (found := refusal(QUOTA_SURE_S)) is not None:
        raise found


class Paging:
    """Of one list: its end is the cloud's to say, and a cloud that never says it is not well."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._seen: set[str] = set()

    def turn(self, token: str) -> str:
        """The next page's token, as given. OtherCloudError for one that has been before, or too many."""
        if token in self._seen or len(self._seen) >= PAGES:
            raise OtherCloudError(f"{self._what}: its pages have no end", code="NoEnd")
        self._seen.add(token)
        return token


@contextmanager
def ordered(what: str) -> Iterator[None]:
    """Around all that is asked once a cloud has taken the order of ``what``. There may be a machine: a
    refusal in here is none of the order, so it comes out as OtherCloudError, and the caller looks."""
    try:
        yield
    except NOTHING_MADE as error:
        raise OtherCloudError(
            f"{what} is ordered, and what became of it is not known: {error.message}",
            code=error.code,
            hint=error.hint,
        ) from error


def user_data_fits(spec: MachineSpec, limit: int, who: str) -> None:
    """UsageError where the boot stub is longer than ``limit`` bytes; ``who``: ``EC2``."""
    size = len(spec.user_data.encode())
    if size > limit:
        raise UsageError(f"the user data has {size} bytes; {who} takes {limit}")


def within_cap(spec: MachineSpec, price: Callable[[], float | None]) -> None:
    """Before anything is made. ``price``: $/h now, asked only where there is a cap; None = unknown.

    Raises UsageError where it is unknown, CapacityError where it is above the cap."""
    cap = spec.max_usd_per_hour
    if cap is None:
        return
    usd = price()
    if usd is None:
        raise UsageError(
            f"the price of {spec.offer.key} is not known, so the cap of ${cap:.4f}/h cannot be kept",
            hint="arylcloud prices --refresh",
        )
    if not 0 < usd <= cap:  # nor what is no number
        raise CapacityError(
            f"{spec.offer.key} costs ${usd:.4f}/h, more than ${cap:.4f}/h",
            code="SpotMaxPriceTooLow" if spec.offer.market is Market.SPOT else "PriceAboveCap",
        )


def as_asked(spec: MachineSpec, machine: Machine, end: Callable[[Machine], None]) -> None:
    """The machine that was made is the one that may be paid for, or ``end`` ends it at once, and
    OtherCloudError (``NotAsAsked``) says why."""
    cap, price = spec.max_usd_per_hour, machine.usd_per_hour
    problem = None
    if (machine.instance_type, machine.market) != (spec.offer.instance_type, spec.offer.market.value):
        problem = f"is a {machine.instance_type} ({machine.market})"
    elif cap is not None and price is not None and price > cap:
        problem = f"costs ${price:.4f}/h, more than ${cap:.4f}/h"
    if problem is not None:
        made = f"{machine.cloud}: {machine.instance_id}, made for {spec.offer.key}, {problem}"
        try:
            end(machine)
        except ArylError as error:
            raise OtherCloudError(
                f"{made}, and is not ended yet: {error.message}", code="NotAsAsked", hint=error.hint
            ) from error
        raise OtherCloudError(f"{made}: it is ended", code="NotAsAsked")


def not_offered(offer: Offer) -> CapacityError:
    return CapacityError(
        f"{offer.cloud} does not offer {offer.instance_type} in {offer.place}", code="NotOffered"
    )


def iso(wall_s: float) -> str:
    """
    >>> iso(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pairs(text: str, what: str) -> dict[str, str]:
    """A company's own tags: ``team=vision, cost-center=42``; UsageError for what is no ``key=value``.

    >>> pairs("team=vision, cost-center=42", "[aws] tags")
    {'team': 'vision', 'cost-center': '42'}
    """
    found = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, sep, value = part.partition("=")
        if not sep or not key.strip():
            raise UsageError(f"{what}: {part!r} is no key=value", hint=f"{what} = 'team=vision, owner=me'")
        found[key.strip()] = value.strip()
    return found
