"""Of a command's last output, the line that says why it failed. Pure."""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 200
"""Characters."""
_CHATTER: Final = re.compile(r"(\[notice\]|WARNING:|\s*$)")
"""What installers print after what they had to say, and before (pip's advice to upgrade itself)."""
_ERROR: Final = re.compile(r"(ERROR|error|fatal|FATAL|Error|E)\b\s*:|.*\b\w*(Error|Exception):")


def telling_line(tail: str, *, of_setup: bool) -> str:
    """The last line that is no chatter; of a setup (``of_setup``) the last that names an error, where one
    does: after it installers go on talking. Empty where nothing was printed.

    >>> telling_line("ERROR: No matching distribution\\n[notice] A new release of pip\\n", of_setup=True)
    'ERROR: No matching distribution'
    """
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    said = [line for line in lines if not _CHATTER.match(line)]
    errors = [line for line in said if of_setup and _ERROR.match(line)]
    return (errors or said or lines or [""])[-1][:MOST]
