"""Secret values out of what a command prints: ``***`` in their place, before anything is stored.

What is stored outlives the secrets object, and is read by whoever may read the logs. Only the value
itself is known: one that a command prints in another form (base64, a line of it alone) is not found.
"""

from __future__ import annotations

from collections.abc import Iterable

MIN_BYTES = 6
"""Shorter values (``1``, ``true``) are no secrets worth the name, and would riddle a log."""
STARS = b"***"


class Masker:
    """One command's output, chunk by chunk: the result does not depend on where the chunks are cut.

    Every longest run of bytes that are part of a value becomes one ``***``; all else is unchanged.
    Held back is only what may be the beginning of a value. Not thread-safe.
    """

    def __init__(self, values: Iterable[str]) -> None:
        # white space around it is a file's or a YAML block's, and a shell drops it
        stripped = {value.strip().encode("utf-8", "surrogateescape") for value in values}
        self._values = sorted(value for value in stripped if len(value) >= MIN_BYTES)
        self._held = b""
        self._run: int | None = None
        """Not None: the last that was given out is a ``***``, and its run goes on for that many bytes."""

    def feed(self, data: bytes) -> bytes:
        """What can be given out by now."""
        seen = self._held + data
        return self._give(seen, min((_begins(seen, value) for value in self._values), default=len(seen)))

    def close(self) -> bytes:
        """The rest: nothing more comes."""
        return self._give(self._held, len(self._held))

    def _give(self, seen: bytes, upto: int) -> bytes:
        """``seen[:upto]``, masked. A value that begins there is whole within ``seen``."""
        self._held = seen[upto:]
        if upto == 0:
            return b""
        given: list[bytes] = []
        runs = sorted(run for value in self._values for run in _found(seen, value))
        at, in_run = self._run or 0, self._run is not None
        for begin, end in runs:
            if begin >= upto:
                break
            if begin > at:
                given.append(seen[at:begin])
                in_run = False
            if not in_run:
                given.append(STARS)
                in_run = True
            at = max(at, end)
        if at < upto:
            given.append(seen[at:upto])
            in_run = False
        self._run = max(0, at - upto) if in_run else None
        return b"".join(given)


def _found(seen: bytes, value: bytes) -> Iterable[tuple[int, int]]:
    """Where ``value`` stands, overlaps with itself included."""
    at = seen.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = seen.find(value, at + 1)


def _begins(seen: bytes, value: bytes) -> int:
    """Where the end of ``seen`` may be the beginning of ``value``; its length if nowhere."""
    at = seen.find(value[:1], max(0, len(seen) - len(value) + 1))
    while at >= 0:
        if value.startswith(seen[at:]):
            return at
        at = seen.find(value[:1], at + 1)
    return len(seen)
