"""What each machine of the pool said last: silence is no proof that its lease has ended."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arylcloud.core.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    folder: Path
    gone_after_s: float
    """Not reached for so long (wall seconds): its leases are taken for ended. Should it come back with one,
    that is found and ended as any other machine without a lease."""
    clock: Clock

    def note(self, name: str, told: dict[str, Any]) -> None:
        """It has just answered."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{name}.json"
        part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
        part.write_text(json.dumps({"at_s": self.clock.now_s(), "told": told}), encoding="utf-8")
        part.replace(path)

    def last(self, name: str) -> dict[str, Any] | None:
        """What it said last; its lease as ended, once it is given up. None = it has never answered."""
        try:
            found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        told: dict[str, Any] = found["told"]
        at_s = float(found["at_s"])
        lease = told["lease"]
        if lease is None or "ended_s" in lease or self.clock.now_s() - at_s < self.gone_after_s:
            return told
        return {**told, "lease": {**lease, "ended_s": at_s, "cause": "unknown"}}
