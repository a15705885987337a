"""What the daemon and its callers agree on."""

from __future__ import annotations

from typing import Final

API: Final = 1
"""Version of the HTTP API; an adapter speaks to a daemon of its own version only."""

FOLDER: Final = "local-cloud"
"""Under the launcher's state folder: one cloud per folder."""

PORT_FILE: Final = "daemon.json"
"""``{api, pid, port, token}``, readable by the user only."""

LOG_FILE: Final = "cloud.jsonl"
KEY_FILE: Final = "metadata-key.json"
LOCK_FILE: Final = "daemon.lock"
START_LOCK_FILE: Final = "start.lock"
OUTPUT_FILE: Final = "daemon.log"
