"""How often the training should save: advised anew whenever something has been measured.

The launcher says how often machines of this kind are lost; what a save and an upload take is measured
here. Daly's interval (``core/cadence``) follows, but never shorter than an upload takes: what cannot be sent
in time is overtaken, and was saved for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arylcloud.agent import words
from arylcloud.core.cadence import daly_interval_s
from arylcloud.core.protocol import EpochDoc

LEAST_CHANGE = 0.1
"""Measurements scatter: an advice that differs by less is not worth telling."""


def interval_s(epoch: EpochDoc, *, save_s: float | None, upload_s: float | None) -> float | None:
    """Seconds of training between two saves; None = nothing is known to go by.

    ``epoch.losses_per_hour`` None: the job's file or the launcher names the interval itself.
    """
    losses = epoch.losses_per_hour
    if losses is None or not losses > 0 or save_s is None or not save_s > 0:
        return epoch.checkpoint_interval_s
    return max(daly_interval_s(save_s, 3600.0 / losses), upload_s or 0.0)


class Advisor:
    """Keeps ``$ARYL_ADVICE_FILE`` up to date. Used by the deciding thread only."""

    def __init__(self, file: Path, *, log: Callable[[str], None]) -> None:
        self._file = file
        self._log = log
        self._said = ""
        self.interval_s: float | None = None
        """What the training is told at present."""

    def advise(self, epoch: EpochDoc, *, save_s: float | None, upload_s: float | None) -> None:
        found_s, told_s = interval_s(epoch, save_s=save_s, upload_s=upload_s), self.interval_s
        if found_s is not None and told_s is not None and abs(found_s - told_s) <= LEAST_CHANGE * told_s:
            return
        if found_s != told_s and words.leave(self._file, {"checkpoint_interval_s": found_s}, log=self._once):
            self.interval_s, self._said = found_s, ""

    def _once(self, text: str) -> None:
        """It is tried again at every turn, and said when it is new."""
        if text != self._said:
            self._log(text)
        self._said = text
