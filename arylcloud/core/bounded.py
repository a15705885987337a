"""A user's file, unpacked, no larger than what a person means: a few kB of gzip may hold more than memory."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

from arylcloud.core.errors import UsageError

MOST_BYTES: Final = 256 << 20
"""Unpacked. 100,000 jobs on 100 types of GPU, or a million lines of a trace, are well below."""


def read_bounded(path: Path) -> bytes:
    """The bytes of a file, unpacked where its first ones say gzip. UsageError above MOST_BYTES; what cannot
    be read raises as it comes: OSError, and from a broken gzip EOFError or zlib.error."""
    with path.open("rb") as plain:
        zipped = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if zipped:
            with gzip.open(plain) as packed:
                data = packed.read(MOST_BYTES + 1)
        else:
            data = plain.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path}: holds more than {MOST_BYTES >> 20} MiB", hint="is it the right file?")
    return data
