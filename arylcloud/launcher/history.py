"""How long machines lived that the clouds could take back: from this home's journal, for the planner.

Only events of five kinds are read, and nothing at all before enough machines were lost: a home without a
journal, or with a young one, costs one look at a file.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import IntegrityError, LocalStateError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import EndCause

if TYPE_CHECKING:
    from arylcloud.pricing.hazard import OwnHistory

KINDS: Final = ("JobSubmitted", "LeaseIntended", "LeaseCreated", "NoticeSeen", "LeaseReleased")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One spot machine: market hours that it was ours, and whether the cloud ended it."""

    offer: Offer
    hours: float
    lost: bool
    """Taken back, or left upon notice; False: we ended it, or it runs (censored)."""


def lives(events: Iterable[tuple[str, ev.Event]], now_s: float) -> tuple[Life, ...]:
    """Of the spot machines in ``(job id, event)``, in the journal's order. ``now_s``: wall seconds, to which
    what still runs is counted. Pure."""
    clocks: dict[str, MarketClock] = {}
    offers: dict[tuple[str, str], Offer] = {}
    launched: dict[tuple[str, str], float] = {}
    noticed: set[tuple[str, str]] = set()
    found: list[Life] = []
    for job_id, event in events:
        match event:
            case ev.JobSubmitted():
                clocks[job_id] = MarketClock(origin_s=event.market_origin_s, scale=event.market_scale)
            case ev.LeaseIntended() if event.offer.market is Market.SPOT:
                offers[job_id, event.lease_id] = event.offer
            case ev.LeaseCreated() if (job_id, event.lease_id) in offers:
                launched[job_id, event.lease_id] = event.launched_s
            case ev.NoticeSeen():
                # whoever leaves in time has lost the machine all the same
                noticed.add((job_id, event.lease_id))
            case ev.LeaseReleased() if (job_id, event.lease_id) in launched:
                key = (job_id, event.lease_id)
                hours = (event.ended_s - launched.pop(key)) / 3600.0
                lost = event.cause == EndCause.INTERRUPTED or key in noticed
                found.append(Life(offer=offers[key], hours=hours, lost=lost))
            case _:
                pass
    for key, from_s in launched.items():
        clock = clocks.get(key[0])
        if clock is not None:
            hours = (clock.market_s(now_s) - from_s) / 3600.0
            found.append(Life(offer=offers[key], hours=hours, lost=False))
    return tuple(life for life in found if life.hours > 0)


def own_history(found: Iterable[Life]) -> tuple[OwnHistory, ...]:
    """Survival by place and instance type, of a zone and of its whole region, where enough were lost."""
    import numpy as np

    from arylcloud.pricing.hazard import MIN_LOSSES, OwnHistory, nelson_aalen

    groups: Mapping[tuple[str, str, str | None, str], list[Life]] = defaultdict(list)
    for life in found:
        o = life.offer
        for zone in dict.fromkeys((None, o.zone)):
            groups[o.cloud, o.region, zone, o.instance_type].append(life)
    return tuple(
        OwnHistory(
            cloud=cloud,
            region=region,
            zone=zone,
            instance_type=kind,
            estimate=nelson_aalen(
                np.array([life.hours for life in group]), np.array([life.lost for life in group], dtype=bool)
            ),
        )
        for (cloud, region, zone, kind), group in sorted(
            groups.items(), key=lambda item: (*item[0][:2], item[0][2] or "", item[0][3])
        )
        if sum(life.lost for life in group) >= MIN_LOSSES
    )


def read(path: Path, now_s: float) -> tuple[OwnHistory, ...]:
    """What this home's journal tells; () where there is none, or too little was lost. Read-only.

    LocalStateError, IntegrityError: it cannot be read.
    """
    if not path.is_file():
        return ()
    from arylcloud.pricing.hazard import MIN_LOSSES

    marks = ", ".join("?" * len(KINDS))
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            [released] = connection.execute(
                "SELECT count(*) FROM records WHERE kind = 'LeaseReleased'"
            ).fetchone()
            if released < MIN_LOSSES:
                return ()
            rows = connection.execute(
                f"SELECT body FROM records WHERE kind IN ({marks}) ORDER BY job_id, seq",  # noqa: S608
                KINDS,
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise LocalStateError(f"{path} cannot be read: {error}") from error
    if not all(isinstance(body, bytes) for (body,) in rows):
        raise IntegrityError(f"{path} holds records that are none")
    records = (ev.Record.from_bytes(body, what=f"a record in {path}") for (body,) in rows)
    return own_history(lives(((r.job_id, r.event) for r in records), now_s))
