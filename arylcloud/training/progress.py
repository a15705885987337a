"""Telling the agent how far the training is, cheaply enough to be called at every step."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from arylcloud.training.environment import info

MIN_INTERVAL_S = 0.2


class Reporter:
    """Writes the progress file. One per process (``_REPORTER``): the file is the process's, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step: int | None = None
        self._total: int | None = None
        self._save_s: float | None = None
        self._finished = False
        self._written_at: float | None = None
        self._first_at_s: float | None = None
        self._warned = False

    def progress(self, step: int, total: int | None) -> None:
        with self._lock:
            self._step, self._total = step, total if total is not None else self._total
            self._finished = False
            if self._first_at_s is None:
                self._first_at_s = time.time()
            now = time.monotonic()
            if self._written_at is None or now - self._written_at >= MIN_INTERVAL_S:
                self._written_at = now
                self._write()

    def saved(self, step: int, save_s: float) -> None:
        with self._lock:
            self._step, self._save_s = max(step, self._step or 0), save_s
            self._write()

    def finished(self) -> None:
        with self._lock:
            self._finished = True
            self._write()

    def _write(self) -> None:
        path = info().progress_file
        if path is None or self._step is None:
            return
        document = {
            "step": self._step,
            "total_steps": self._total,
            "save_s": self._save_s,
            "at_s": time.time(),
            "first_at_s": self._first_at_s,
            "finished": self._finished,
        }
        try:
            _replace(path, json.dumps(document))
        except OSError as error:
            # a screen that lags is better than a training that ends
            if not self._warned:
                self._warned = True
                print(f"arylcloud: progress cannot be written to {path}: {error}", file=sys.stderr)  # noqa: T201


def _replace(path: Path, text: str) -> None:
    # per process: ranks on one machine may share a folder, even a file
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


_REPORTER = Reporter()


def progress(step: int, total: int | None = None) -> None:
    """``step`` optimiser steps are done, of ``total``. Call it at every step: it writes at most every
    0.2 s, and at the first call at once. Never raises for a file that cannot be written: it warns once."""
    _REPORTER.progress(int(step), None if total is None else int(total))


def finished() -> None:
    """All work is done and saved: an exit 0 from now on ends the job, even after a signal to stop."""
    _REPORTER.finished()


def saved(step: int, save_s: float) -> None:
    """Not for scripts: ``save`` tells how long it held up the training."""
    _REPORTER.saved(step, save_s)
