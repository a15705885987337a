"""``prices --refresh``: every part asked; one that is down leaves its rows, with their age.

Nothing that is kept is touched before all have answered or failed; then the catalogue is replaced at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from arylcloud.core.clock import Clock
from arylcloud.core.errors import ArylError, MissingExtraError, OtherCloudError
from arylcloud.core.live import LiveSource, Part
from arylcloud.pricing import history, live, livefile
from arylcloud.pricing.asking import Asking, Progress
from arylcloud.pricing.binary import load_file
from arylcloud.pricing.livefile import LiveState, PartState
from arylcloud.pricing.table import OfferTable


class Outcome(StrEnum):
    ANSWERED = "answered"
    UNCHANGED = "unchanged"
    """The cloud's list has the version that we have."""
    RECENT = "recent"
    """Answered less than a day ago; the cloud has no cheaper way to be asked."""
    STALE = "stale"
    """Down, or not believed: what there was stays, with its age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    cloud: str
    name: str
    regions: tuple[str, ...]
    outcome: Outcome
    offers: int
    answered_s: float | None
    """When the prices that are in force now were told; None = never."""
    error: ArylError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudReport:
    cloud: str
    calls: int
    bytes_in: int
    raw_rows: int
    waited: int
    error: ArylError | None = None
    """Why not even its parts could be told; None = they could."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was not asked, and need not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    table: OfferTable
    clouds: tuple[CloudReport, ...]
    parts: tuple[PartReport, ...]
    left_out: Mapping[str, int]
    """Rows that cannot be true, by reason."""

    @property
    def failed(self) -> ArylError | None:
        """Where nothing at all could be learned: the first reason."""
        if any(part.outcome is not Outcome.STALE for part in self.parts):
            return None
        errors = [*(cloud.error for cloud in self.clouds), *(part.error for part in self.parts)]
        known = [error for error in errors if error is not None]
        # that a cloud's SDK is not there says less than why a cloud that was asked said no
        return next((e for e in known if not isinstance(e, MissingExtraError)), known[0] if known else None)


def refresh(
    sources: Sequence[LiveSource],
    base: Path,
    folder: Path,
    *,
    clock: Clock,
    regions: Mapping[str, Sequence[str]] | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Refreshed:
    """Ask every source, merge, check, keep. ``base``: the catalogue that the refreshed one is made of;
    ``folder``: where it is kept; ``regions``: cloud → its regions to ask for (none: all).

    Raises ConflictError where another refresh is under way, LocalStateError where nothing can be written.
    What a cloud says no to is in the result.
    """
    with livefile.only_one(folder):
        table, state = livefile.load_live(folder, base)
        table = load_file(base) if table is None else table
        known = {source.cloud: live.known_of(table, source.cloud) for source in sources}
        asking = Asking(sources, known, state, regions or {}, clock, watch)
        heard, errors = asking.run()
        now_s = clock.now_s()
        merged = live.merge(table, heard, state.parts, known, now_s=now_s)
        taken = [one for one in heard if one.name not in merged.doubts]
        _append_history(folder / livefile.HISTORY, table, taken, now_s)
        errors |= {name: OtherCloudError(f"{name}: {why}") for name, why in merged.doubts.items()}
        parts = _states(state, asking.parts, heard, merged, errors, now_s)
        for one in taken:
            if one.answer is not None and one.answer.bands:
                day = datetime.fromtimestamp(now_s, UTC).date().isoformat()
                livefile.save_bands(folder, one.cloud, one.answer.bands, source=one.answer.source, as_of=day)
        livefile.save_live(folder, base, merged.table, LiveState(parts=parts))
    reports = tuple(_report(cloud, part, asking, merged, errors, parts) for cloud, part in asking.parts)
    clouds = tuple(
        CloudReport(
            cloud=source.cloud,
            calls=(meter := asking.meters[source.cloud]).calls,
            bytes_in=meter.bytes_in,
            raw_rows=meter.raw_rows,
            waited=meter.waited,
            error=errors.get(source.cloud),
            left_out=_left_out(source.cloud, heard),
            notes=tuple(note for cloud, note in asking.notes if cloud == source.cloud),
        )
        for source in sources
    )
    return Refreshed(table=merged.table, clouds=clouds, parts=reports, left_out=merged.left_out)


def _append_history(folder: Path, before: OfferTable, heard: Sequence[live.Heard], now_s: float) -> None:
    by_file: dict[Path, list[history.Changes]] = defaultdict(list)
    for one in heard:
        changes = live.changes_heard(before, one, now_s=now_s)
        for region, some in history.by_region(changes).items():
            by_file[history.file_of(folder, one.cloud, region)].append(some)
    for path, found in by_file.items():
        history.append(path, history.joined(found), now_s=now_s)


def _states(
    state: LiveState,
    asked: Sequence[tuple[str, Part]],
    heard: Sequence[live.Heard],
    merged: live.Merged,
    errors: Mapping[str, ArylError],
    now_s: float,
) -> dict[str, PartState]:
    by_name = {one.name: one for one in heard}
    result = dict(state.parts)
    for cloud, part in asked:
        name = f"{cloud}/{part.name}"
        before = result.get(name) or PartState(regions=part.regions, markets=part.markets)
        error = errors.get(name)
        one = by_name.get(name)
        if error is not None:
            doubted = merged.doubted.get(name)
            result[name] = replace(before, tried_s=now_s, error=error.message, doubted=doubted)
        elif one is not None:
            result[name] = PartState(
                regions=part.regions,
                markets=part.markets,
                answered_s=now_s,
                tried_s=now_s,
                version=part.version,
                memory=before.memory if one.answer is None else dict(one.answer.memory),
                rows=merged.rows[name],
            )
    return result


def _report(
    cloud: str,
    part: Part,
    asking: Asking,
    merged: live.Merged,
    errors: Mapping[str, ArylError],
    states: Mapping[str, PartState],
) -> PartReport:
    name = f"{cloud}/{part.name}"
    state = states.get(name)
    outcome = Outcome.ANSWERED
    if name in errors:
        outcome = Outcome.STALE
    elif name in asking.recent:
        outcome = Outcome.RECENT
    elif name in asking.unchanged:
        outcome = Outcome.UNCHANGED
    return PartReport(
        cloud=cloud,
        name=part.name,
        regions=part.regions,
        outcome=outcome,
        offers=state.rows if state is not None else merged.rows.get(name, 0),
        answered_s=state.answered_s if state is not None else None,
        error=errors.get(name),
    )


def _left_out(cloud: str, heard: Sequence[live.Heard]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for one in heard:
        if one.cloud == cloud and one.answer is not None:
            for reason, number in one.answer.left_out.items():
                total[reason] += number
    return {reason: number for reason, number in total.items() if number}
