"""Zones of a region in which an offer that names none can be made: which first, and which then."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

from arylcloud.core.errors import CapacityError
from arylcloud.core.ports import Machine, MachineSpec


def beginning_with(zones: Iterable[str], token: str) -> list[str]:
    """All of them, in an order that the token decides: many machines do not all ask the same zone first.

    >>> beginning_with(["b", "a", "c"], "x"), beginning_with([], "x")
    (['c', 'a', 'b'], [])
    """
    found = sorted(zones)
    first = zlib.crc32(token.encode()) % (len(found) or 1)
    return found[first:] + found[:first]


def turn_of(spec: MachineSpec) -> str:
    """What decides it: machines of a gang begin in the same zone."""
    return spec.job_id if spec.in_gang else spec.token


def together(spec: MachineSpec, zones: Sequence[str], live: Iterable[Machine]) -> list[str]:
    """Of ``zones`` that in which the gang's other machines are; all of them while there are none."""
    kind, region = spec.offer.instance_type, spec.offer.region
    taken = {
        one.zone
        for one in live
        if (one.job_id, one.journal_id) == (spec.job_id, spec.journal_id)
        and (one.instance_type, one.region) == (kind, region)
    }
    return [zone for zone in zones if zone in taken] or list(zones)


def where_there_is_room(spec: MachineSpec, zones: Sequence[str], make: Callable[[str], Machine]) -> Machine:
    """``make(zone)`` in one after the other, until one does not say that there is no capacity. Any other
    error is the whole's; CapacityError (of the region, if there were several) where all have said so."""
    refused: list[CapacityError] = []
    for zone in zones:
        try:
            return make(zone)
        except CapacityError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    last, offer = refused[-1], spec.offer
    raise CapacityError(
        f"{offer.cloud}: no {offer.key} in {', '.join(zones)}: {last.message}",
        code=last.code,
        scope="region",
        hint=last.hint,
    )
