"""Notices of one's own machines: a file that appears beside the machine's folder.

``{"action": "terminate", "at_s": 1780000000.0}``: the owner wants the machine back, at that moment of its own
clock.
"""

from __future__ import annotations

import json
from pathlib import Path

from arylcloud.agent.metadata import Warned
from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

LEAD_S = 60.0
"""A notice without a time that can be read."""


class NoticeFile:
    def __init__(self, url: str, clock: Clock, lead_s: float | None = None) -> None:
        self._path = Path(url)
        self._clock = clock
        self._lead_s = LEAD_S if lead_s is None else lead_s

    def ask(self) -> Notice | Warned | None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        now_s = self._clock.now_s()
        try:
            at_s = float(json.loads(text)["at_s"])
        except (ValueError, TypeError, LookupError):  # a notice all the same, however odd
            at_s = now_s + self._lead_s
        return Notice(action="terminate", at_s=at_s, seen_s=now_s)

    def acknowledge(self) -> None:
        """Nobody waits for it: the machine is given back once its lease has ended."""
