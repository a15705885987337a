"""What may be the name of an object: the same rule for every store, so that a job can move between them."""

from __future__ import annotations

import re
from functools import lru_cache

from arylcloud.core.errors import IntegrityError

_TEMPORARY = re.compile(r"#\d+$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
MAX_KEY_BYTES = 1024
MAX_SEGMENT_BYTES = 240
"""A local file's name may have 255; the store's temporary names add a few."""


def checked_key(key: str) -> str:
    """``key`` itself; IntegrityError if it is empty, absolute, climbs (``..``), has control
    characters or a backslash, is too long, or ends in ``#<digits>`` (obstore's temporary files)."""
    if problem := _problem(key):
        raise IntegrityError(f"{key!r:.120} cannot be the name of an object: {problem}")
    return key


def checked_prefix(prefix: str) -> str:
    """Like :func:`checked_key`; may be empty, end in ``/`` or in the middle of a name."""
    trimmed = prefix.removesuffix("/")
    if trimmed and (problem := _problem(trimmed, whole=False)):
        raise IntegrityError(f"{prefix!r:.120} cannot begin the name of an object: {problem}")
    return prefix


def is_temporary(key: str) -> bool:
    """True for what a writer killed half-way leaves in a ``file://`` store; never an object."""
    return _TEMPORARY.search(key) is not None


@lru_cache(maxsize=1024)  # of a job's mailbox the same few names are used at every look
def _problem(key: str, *, whole: bool = True) -> str | None:
    if not key:
        return "it is empty"
    if key.startswith("/"):
        return "it is absolute"
    if _CONTROL.search(key):
        return "it has a control character or a backslash"
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return "it is not Unicode text"
    if len(encoded) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"a segment is longer than {MAX_SEGMENT_BYTES} bytes"
        if whole and _TEMPORARY.search(segment):
            return "a segment ends in '#' and digits"
    return None
