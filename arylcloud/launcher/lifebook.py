"""What this home has seen of spot machines' lives, for the planner: each job folded once, and kept.

The journal stays what is true. In the cache folder lies ``lives.json``: of every job its newest record's
number and digest, and the lives that came out of its records. A job whose newest record is another one is
folded anew; of all others nothing is read but that number. The file may be removed at any time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arylcloud.core.errors import IntegrityError, LocalStateError

if TYPE_CHECKING:
    from arylcloud.pricing.hazard import OwnHistory

log = logging.getLogger(__name__)
SCHEMA: Final = 1
"""Raised where ``history.lives`` makes something else of the same records (a test knows)."""
RECENT_S: Final = 180 * 86400.0
"""Markets change: what ended before that says nothing of today's."""
HALF_DAYS: Final = 14
"""And after so many days a machine says half of what it said (by whole days: two plans of an hour agree)."""
LEAST_H: Final = 1.0
"""Fewer machine-hours without a loss are nothing seen."""

# the newest record of each job, found by the key alone: no other page is read
_HEADS: Final = """
WITH RECURSIVE job(id) AS (
  SELECT min(job_id) FROM records
  UNION ALL SELECT (SELECT min(job_id) FROM records WHERE job_id > job.id) FROM job WHERE job.id IS NOT NULL
)
SELECT r.job_id, r.seq, r.digest, r.at_s FROM job JOIN records AS r
ON r.job_id = job.id AND r.seq = (SELECT max(seq) FROM records WHERE job_id = job.id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One spot machine: market hours that it was ours, and whether the cloud ended it."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    hours: float
    lost: bool
    """Taken back, or left upon notice; False: we ended it, or it runs (censored)."""
    at_s: float
    """Wall seconds of the record that says so last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    seq: int
    digest: str
    """Of the newest record: one that was set aside and written anew has another."""
    lives: tuple[Life, ...]


def own_history(found: Iterable[Life], now_s: float) -> tuple[OwnHistory, ...]:
    """Machine-hours and losses by place and instance type, of a zone and of its whole region. ``now_s``:
    wall seconds."""
    groups: Mapping[tuple[str, str, str | None, str], list[Life]] = defaultdict(list)
    for life in found:
        if life.at_s >= now_s - RECENT_S:
            for zone in dict.fromkeys((None, life.zone)):
                groups[life.cloud, life.region, zone, life.instance_type].append(life)
    if not groups:
        return ()
    from arylcloud.pricing.hazard import OwnHistory

    told = []
    for (cloud, region, zone, kind), group in sorted(
        groups.items(), key=lambda item: (*item[0][:2], item[0][2] or "", item[0][3])
    ):
        hours, losses = sum(life.hours for life in group), sum(life.lost for life in group)
        if not losses and hours < LEAST_H:
            continue
        says = [0.5 ** (max(now_s - life.at_s, 0.0) // 86400.0 / HALF_DAYS) for life in group]
        told.append(
            OwnHistory(
                cloud=cloud, region=region, zone=zone, instance_type=kind, hours=hours, losses=losses,
                recent_hours=sum(w * life.hours for w, life in zip(says, group, strict=True)),
                recent_losses=sum(w for w, life in zip(says, group, strict=True) if life.lost),
            )
        )  # fmt: skip
    return tuple(told)


def read(journal: Path, now_s: float, kept: Path) -> tuple[OwnHistory, ...]:
    """What this home's journal tells; () where there is none. The journal is only read; ``kept`` is where
    the folded jobs lie. LocalStateError, IntegrityError: the journal cannot be read."""
    if not journal.is_file():
        return ()
    before = _load(kept)
    try:
        connection = sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            heads = connection.execute(_HEADS).fetchall()
            if not all(isinstance(digest, bytes) for _, _, digest, _ in heads):
                raise IntegrityError(f"{journal} holds records that are none")
            after = {
                job_id: _job(connection, journal, job_id, seq, digest.hex()[:16], at_s, before.get(job_id))
                for job_id, seq, digest, at_s in heads
            }
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise LocalStateError(f"{journal} cannot be read: {error}") from error
    if after != before:
        _keep(kept, after)
    return own_history((life for job in after.values() for life in job.lives), now_s)


def _job(
    connection: sqlite3.Connection,
    journal: Path,
    job_id: str,
    seq: int,
    digest: str,
    last_s: float,
    known: _Job | None,
) -> _Job:
    if known is not None and (known.seq, known.digest) == (seq, digest):
        return known
    from arylcloud.launcher.history import KINDS, fold  # the events are loaded where there is one to read

    rows = connection.execute(
        f"SELECT at_s, body FROM records WHERE job_id = ? AND seq <= ? AND kind IN "  # noqa: S608
        f"({', '.join('?' * len(KINDS))}) ORDER BY seq",
        (job_id, seq, *KINDS),
    ).fetchall()
    if not all(isinstance(body, bytes) for _, body in rows):
        raise IntegrityError(f"{journal} holds records that are none")
    return _Job(seq=seq, digest=digest, lives=fold(rows, last_s, f"a record in {journal}"))


def _load(kept: Path) -> dict[str, _Job]:
    """{} where there is no such file, or it is no such file: then all is folded anew."""
    try:
        document: Any = json.loads(kept.read_bytes())
        if document["schema_version"] != SCHEMA:
            return {}
        return {
            job_id: _Job(seq=seq, digest=digest, lives=tuple(_life(*row) for row in lives))
            for job_id, (seq, digest, lives) in document["jobs"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        log.debug("%s is written anew: %s", kept, error)
        return {}


def _life(
    cloud: str, region: str, zone: str | None, kind: str, hours: float, lost: bool, at_s: float
) -> Life:
    names = all(isinstance(name, str) for name in (cloud, region, kind)) and isinstance(zone, str | None)
    found = Life(
        cloud=cloud, region=region, zone=zone, instance_type=kind,
        hours=float(hours), lost=bool(lost), at_s=float(at_s),
    )  # fmt: skip
    if not names or not 0 < found.hours < math.inf or not math.isfinite(found.at_s):
        raise ValueError(f"{found} is no life")
    return found


def _keep(kept: Path, jobs: Mapping[str, _Job]) -> None:
    """Whole or not at all; of several writers the last one's stands, and each one's is right."""
    document = {
        "schema_version": SCHEMA,
        "jobs": {
            job_id: [job.seq, job.digest, [astuple(life) for life in job.lives]]
            for job_id, job in jobs.items()
        },
    }
    part = kept.with_name(f"{kept.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_text(json.dumps(document, separators=(",", ":")))
        part.replace(kept)
    except OSError as error:  # a read-only or full cache costs time, nothing else
        log.debug("%s cannot be written: %s", kept, error)
        with contextlib.suppress(OSError):
            part.unlink()
