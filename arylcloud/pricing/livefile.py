"""Where refreshed prices lie, and what is remembered of them.

A folder (``Folders.live_prices``) with ``offers-BASE.bin`` (a whole catalogue: BASE is the beginning of the
digest of the one that it was made from, so that a new version's bundled figures are never hidden by an
old file), ``state.json`` (of each part: when it answered, its version, its memory) and ``history/``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import ConflictError, IntegrityError, LocalStateError, UsageError
from arylcloud.core.offer import Market
from arylcloud.pricing.binary import load_file, save_file
from arylcloud.pricing.catalogue import refreshed_file
from arylcloud.pricing.table import OfferTable

SCHEMA_VERSION: Final = 1
STATE: Final = "state.json"
HISTORY: Final = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """What is remembered of one part."""

    regions: tuple[str, ...]
    markets: tuple[Market, ...]
    answered_s: float | None = None
    """Unix seconds of the last answer that was taken; None = none yet."""
    tried_s: float | None = None
    error: str | None = None
    """Why the last try brought nothing; None = it did."""
    version: str | None = None
    memory: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    """Offers of the last answer that was taken."""
    doubted: int | None = None
    """Kinds of machines in an answer that was not taken since it was so short: the same again is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    parts: Mapping[str, PartState] = field(default_factory=dict)
    """By ``cloud/part``."""

    @property
    def stale(self) -> dict[str, PartState]:
        """Parts whose last try brought nothing."""
        return {name: part for name, part in self.parts.items() if part.error is not None}


def load_live(folder: Path, base: Path) -> tuple[OfferTable | None, LiveState]:
    """The refreshed catalogue over ``base`` and its state; (None, nothing) where there is none, or where
    one of the two does not fit the other: then everything is asked for again."""
    path = refreshed_file(folder, base)
    try:
        document = json.loads((folder / STATE).read_text(encoding="utf-8"))
        if path is None or document["schema_version"] != SCHEMA_VERSION:
            return None, LiveState()
        table = load_file(path)
        if document["table"] != table.digest:
            return None, LiveState()
        return table, LiveState(parts={name: _part(part) for name, part in document["parts"].items()})
    except (OSError, ValueError, KeyError, TypeError, IntegrityError, UsageError):
        return None, LiveState()


def read_state(folder: Path) -> LiveState:
    """The state alone, for screens; empty where there is none that can be read."""
    try:
        document = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return LiveState(parts={name: _part(part) for name, part in document["parts"].items()})
    except (OSError, ValueError, KeyError, TypeError):
        return LiveState()


def save_live(folder: Path, base: Path, table: OfferTable, state: LiveState) -> None:
    """The catalogue first, the state after it: whoever dies between them asks once more for everything."""
    path = refreshed_file(folder, base, must_exist=False)
    assert path is not None
    try:
        save_file(table, path)
        document = {
            "schema_version": SCHEMA_VERSION,
            "table": load_file(path).digest,
            "parts": {name: asdict(part) for name, part in sorted(state.parts.items())},
        }
        scratch = folder / f".{STATE}.{os.getpid()}"
        scratch.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
        scratch.replace(folder / STATE)
        for other in folder.glob("offers-*.bin"):
            if other != path:
                other.unlink()
    except OSError as error:
        raise LocalStateError(f"cannot write {folder}: {error.strerror or error}") from error


def advisor_file(folder: Path, cloud: str) -> Path:
    """Bands of interruptions as a cloud told them last, in the form of ``hazard.read_advisor``."""
    return folder / f"advisor-{cloud}.json"


def save_bands(
    folder: Path, cloud: str, bands: Mapping[tuple[str, str], str], *, source: str, as_of: str
) -> None:
    by_band: dict[str, dict[str, list[str]]] = {}
    for (region, name), band in sorted(bands.items()):
        by_band.setdefault(band, {}).setdefault(region, []).append(name)
    document = {
        "schema_version": SCHEMA_VERSION,
        "cloud": cloud,
        "source": source,
        "as_of": as_of,
        "bands": by_band,
    }
    path = advisor_file(folder, cloud)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise LocalStateError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder against another refresh. Raises ConflictError where one is under way."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise LocalStateError(f"cannot write {folder}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError("prices are being refreshed by another process") from error
        yield
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _part(part: Mapping[str, Any]) -> PartState:
    values = dict(part)
    values["regions"] = tuple(values["regions"])
    values["markets"] = tuple(Market(market) for market in values["markets"])
    return PartState(**values)
