"""Prices as they were: a compact file per region, appended to by every refresh.

A file is a row of segments, each of them whole or ignored (what a crash left half-written is cut off by the
next one who writes):

    magic     8 bytes   b"ARYLHIS1"
    digest   32 bytes   sha256 of the packed rest
    length    8 bytes   of the packed rest, little-endian
    packed              zlib of: length of the header (8 bytes), header (JSON: the keys), then columns
                        key (int32), at (int64, Unix seconds), usd_per_hour (float64), sorted by key and time
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAGIC: Final = b"ARYLHIS1"
_HEAD: Final = 48
MOST_SEGMENTS: Final = 32
"""More of them are made one, and what is older than ``KEPT_S`` goes then."""
KEPT_S: Final = 400 * 86400

Floats = NDArray[np.float64]
Seconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """``n`` changes of prices: from ``at_s[i]`` on, ``keys[key[i]]`` costs ``usd_per_hour[i]``."""

    keys: tuple[str, ...]
    """``Offer.key``: place, type and market."""
    key: NDArray[np.int32]
    at_s: Seconds
    """Unix seconds."""
    usd_per_hour: Floats
    """Per instance."""

    def __len__(self) -> int:
        return int(self.key.shape[0])

    def series(self, key: str) -> tuple[Seconds, Floats]:
        """Times (ascending, distinct) and prices of one offer; empty where it has none."""
        rows = self.key == (self.keys.index(key) if key in self.keys else -1)
        return self.at_s[rows], self.usd_per_hour[rows]


def changes_of(keys: Sequence[str], at_s: Sequence[float], usd_per_hour: Sequence[float]) -> Changes:
    """Columns of equal length, in any order; of the same key and second, the last one counts."""
    names = {name: i for i, name in enumerate(sorted(set(keys)))}
    return _tidy(
        tuple(names),
        np.array([names[key] for key in keys], dtype=np.int32),
        np.asarray(at_s, dtype=np.float64).astype(np.int64),
        np.asarray(usd_per_hour, dtype=np.float64),
    )


def _tidy(keys: tuple[str, ...], key: NDArray[np.int32], at_s: Seconds, usd: Floats) -> Changes:
    order = np.lexsort((at_s, key))  # stable: of equal ones the later stays the later
    key, at_s, usd = key[order], at_s[order], usd[order]
    last = np.ones(key.size, dtype=bool)
    last[:-1] = (key[1:] != key[:-1]) | (at_s[1:] != at_s[:-1])
    return Changes(keys=keys, key=key[last], at_s=at_s[last], usd_per_hour=usd[last])


def joined(parts: Sequence[Changes]) -> Changes:
    """All of them; of the same key and second the last one counts."""
    return parts[0] if len(parts) == 1 else _join(parts)


def by_region(changes: Changes) -> dict[str, Changes]:
    """Region → its changes, by what the keys begin with."""
    regions = [key.partition(":")[0].split("/")[1] for key in changes.keys]
    found = {}
    for region in dict.fromkeys(regions):
        rows = np.array([one == region for one in regions], dtype=bool)[changes.key]
        found[region] = (
            changes_of(
                [changes.keys[i] for i in changes.key[rows]], changes.at_s[rows], changes.usd_per_hour[rows]
            )
            if not rows.all()
            else changes
        )
    return found


def file_of(folder: Path, cloud: str, region: str) -> Path:
    return folder / cloud / f"{region}.his"


def append(path: Path, changes: Changes, *, now_s: float) -> None:
    """Add a segment; nothing where there are no changes."""
    if not len(changes):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    segments, sound = _walk(path.read_bytes()) if path.is_file() else ([], 0)
    if len(segments) >= MOST_SEGMENTS:
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(_packed(_shortened(_join([*segments, changes]), now_s - KEPT_S)))
        scratch.replace(path)
        return
    with path.open("r+b" if path.is_file() else "wb") as file:
        file.seek(sound)
        file.truncate()
        file.write(_packed(changes))


def _shortened(whole: Changes, since_s: float) -> Changes:
    """Without what was in force before ``since_s`` only."""
    followed = whole.key[1:] == whole.key[:-1]
    recent = whole.at_s >= since_s
    kept = recent | np.append(~followed | recent[1:], True)
    return Changes(
        keys=whole.keys, key=whole.key[kept], at_s=whole.at_s[kept], usd_per_hour=whole.usd_per_hour[kept]
    )


def read(path: Path) -> Changes:
    """Every change in a file; none where there is no file. A damaged end is as if it were not there."""
    return _join(_walk(path.read_bytes())[0] if path.is_file() else [])


def _packed(changes: Changes) -> bytes:
    header = json.dumps(list(changes.keys), ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    steps = np.diff(changes.at_s, prepend=0)  # small numbers pack better
    columns = (changes.key.astype("<i4"), steps.astype("<i8"), changes.usd_per_hour.astype("<f8"))
    plain = b"".join([len(header).to_bytes(8, "little"), header, *(column.tobytes() for column in columns)])
    body = zlib.compress(plain, 6)
    return MAGIC + hashlib.sha256(body).digest() + len(body).to_bytes(8, "little") + body


def _walk(data: bytes) -> tuple[list[Changes], int]:
    """Segments up to the first that does not hold, and where that one begins."""
    found: list[Changes] = []
    at = 0
    for begin, end, body in _bodies(data):
        if hashlib.sha256(body).digest() != data[begin + 8 : begin + 40]:
            break
        found.append(_unpacked(zlib.decompress(body)))
        at = end
    return found, at


def _bodies(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while data[at : at + 8] == MAGIC and len(data) >= at + _HEAD:
        end = at + _HEAD + int.from_bytes(data[at + 40 : at + _HEAD], "little")
        if end > len(data):
            return
        yield at, end, data[at + _HEAD : end]
        at = end


def _unpacked(plain: bytes) -> Changes:
    size = int.from_bytes(plain[:8], "little")
    keys = tuple(json.loads(plain[8 : 8 + size]))
    rest = 8 + size
    rows = (len(plain) - rest) // 20
    key = np.frombuffer(plain, dtype="<i4", count=rows, offset=rest)
    steps = np.frombuffer(plain, dtype="<i8", count=rows, offset=rest + 4 * rows)
    usd = np.frombuffer(plain, dtype="<f8", count=rows, offset=rest + 12 * rows)
    return Changes(keys=keys, key=key, at_s=np.cumsum(steps), usd_per_hour=usd)


def _join(segments: Sequence[Changes]) -> Changes:
    names = {name: i for i, name in enumerate(sorted({key for one in segments for key in one.keys}))}
    codes = [np.array([names[key] for key in one.keys], dtype=np.int32)[one.key] for one in segments]
    none: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    return _tidy(
        tuple(names),
        np.concatenate(codes or none),
        np.concatenate([one.at_s for one in segments] or [np.zeros(0, dtype=np.int64)]),
        np.concatenate([one.usd_per_hour for one in segments] or [np.zeros(0)]),
    )
