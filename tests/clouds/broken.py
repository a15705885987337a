"""What an emulator says when it has a fault of its own: logged in full, answered in one line."""

from __future__ import annotations

import logging

log = logging.getLogger("emulators")


def broken(error: Exception) -> str:
    """Tests show the traceback with their log, ``scripts/emulators`` keeps it in a file."""
    log.error("of the emulator itself", exc_info=error)
    return f"the emulator: {type(error).__name__}: {' '.join(str(error).split())}"[:300]
