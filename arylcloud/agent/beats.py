"""The heartbeat: the one object that is overwritten, every second (on a bucket: three), also while
uploading."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from arylcloud.agent.shipper import one_line
from arylcloud.core.clock import Clock
from arylcloud.core.codec import dumps
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import Heartbeat, beat_key

BEAT_S = 1.0
HUNG_S = 30.0


class Beats(threading.Thread):
    """Writes the newest published heartbeat each second, and at once when its phase changes.

    It beats on when the deciding thread hangs, and says so: the command is alive, and whoever
    reads must know both."""

    def __init__(
        self,
        store: ObjectStore,
        first: Heartbeat,
        *,
        clock: Clock,
        log: Callable[[str], None],
        pace: float = 1.0,
    ) -> None:
        super().__init__(name="beats", daemon=True)
        self._store = store
        self._clock = clock
        self._log = log
        self._beat_s = BEAT_S * pace
        self._beat = first
        self._published_s = clock.monotonic_s()
        self._seq = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._halt = threading.Event()
        self._failed = False
        self.written: Heartbeat | None = None
        """The newest that is in the store."""

    def publish(self, beat: Heartbeat) -> None:
        """``seq`` and ``at_s`` are filled in when it is written."""
        with self._lock:
            old = self._beat
            self._beat = beat
            self._published_s = self._clock.monotonic_s()
        if _urgent(old) != _urgent(beat):
            self._wake.set()

    def run(self) -> None:
        while not self._halt.is_set():
            self.write()
            self._wake.wait(self._beat_s)
            self._wake.clear()

    def write(self) -> bool:
        """One heartbeat now. False = the store did not take it."""
        with self._writing:
            with self._lock:
                beat, published_s = self._beat, self._published_s
            now_s, quiet_s = self._clock.now_s(), self._clock.monotonic_s() - published_s
            if quiet_s > HUNG_S:
                text = f"the agent has decided nothing for {quiet_s:.0f} s"
                beat = replace(beat, message=text)
            self._seq += 1
            try:
                self._store.put(beat_key(beat.lease_id), dumps(replace(beat, seq=self._seq, at_s=now_s)))
            except Exception as error:  # noqa: BLE001 - silence is noticed by others; this thread goes on
                if not self._failed:
                    self._log(f"heartbeats are not getting through: {one_line(error)}")
                self._failed = True
                return False
            if self._failed:
                self._log("heartbeats are getting through again")
            self._failed = False
            self.written = beat
            return True

    def stop(self) -> None:
        self._halt.set()
        self._wake.set()


def _urgent(beat: Heartbeat) -> tuple[object, ...]:
    return (beat.phase, beat.epoch, beat.drained_epoch, beat.notice, beat.committed, beat.prefetched)
