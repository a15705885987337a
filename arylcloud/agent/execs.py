"""``arylcloud exec``: a user's command beside the job, in its environment and folder."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from arylcloud.agent.process import Command
from arylcloud.agent.shipper import one_line
from arylcloud.checkpoint.storetime import age_s
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EXEC_PREFIX, ExecRequest, ExecResult, exec_result_key

POLL_S = 0.5
OUTPUT_BYTES = 64_000
STALE_S = 60.0
_RESULT = re.compile(r"-r\d{2,}\.json$")
EXIT_TIMEOUT = 124
"""As ``timeout(1)`` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and as whom commands run at present."""

    rank: int
    cwd: Path
    env: Mapping[str, str]
    secrets: Collection[str] = ()
    """The values: no answer shows them."""


class Execs(threading.Thread):
    """Polls for requests to this machine's rank; each runs in a thread of its own."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        place: Callable[[], Place | None],
        log: Callable[[str], None],
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(name="exec", daemon=True)
        self._store = store
        self._place = place
        self._log = log
        self._poll_s = poll_s
        self._halt = threading.Event()
        self._done: set[str] = set()

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        wait_s = self._poll_s
        while not self._halt.is_set():
            try:
                self.poll()
                wait_s = self._poll_s
            except Exception as error:  # noqa: BLE001 - the store is away, or a request is odd: go on
                if wait_s == self._poll_s:
                    self._log(f"exec requests cannot be read: {one_line(error)}")
                wait_s = min(10.0, wait_s * 2)
            self._halt.wait(wait_s)

    def poll(self) -> None:
        place = self._place()
        if place is None:
            return
        keys = [info.key for info in self._store.list(EXEC_PREFIX)]
        for key in keys:
            if key in self._done or _RESULT.search(key):
                continue
            request = self._request(key)
            if request is None:
                self._done.add(key)
            elif request.rank == place.rank:
                answered = exec_result_key(request.request_id, request.rank) in keys
                runs = not answered and not self._stale(key, request)
                self._done.add(key)
                if runs:
                    threading.Thread(target=self._answer, args=(request, place), daemon=True).start()

    def _request(self, key: str) -> ExecRequest | None:
        data = self._store.get(key)
        if data is None:
            return None
        try:
            return loads(ExecRequest, data, what=key)
        except IntegrityError as error:
            self._log(error.message)
            return None

    def _stale(self, key: str, request: ExecRequest) -> bool:
        """One that was asked of a machine now gone must not run on its successor much later. By the store's
        clock: those of this machine and of who asks need not agree."""
        waited_s = age_s(self._store, key)
        return waited_s is None or waited_s > max(STALE_S, request.timeout_s)

    def _answer(self, request: ExecRequest, place: Place) -> None:
        try:
            code, output = run_captured(request.argv, request.timeout_s, place)
            result = ExecResult(
                request_id=request.request_id,
                rank=request.rank,
                exit_code=code,
                output=output.decode(errors="replace"),
            )
            self._store.create(exec_result_key(request.request_id, request.rank), dumps(result))
        except Exception as error:  # noqa: BLE001 - asked for by hand: whoever asked sees a time-out
            self._log(f"exec {request.request_id} failed: {one_line(error)}")


def run_captured(argv: tuple[str, ...], timeout_s: float, place: Place) -> tuple[int, bytes]:
    """Exit code (124 at the time-out, and nothing of it is left) and the last 64 kB of output."""
    kept = bytearray()

    def keep(data: bytes) -> None:
        kept.extend(data)
        del kept[:-OUTPUT_BYTES]

    command = Command(argv, cwd=place.cwd, env=place.env, output=keep, secrets=place.secrets)
    try:
        return command.wait(timeout_s), bytes(kept)
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait(10.0)
        return EXIT_TIMEOUT, bytes(kept) + f"\narylcloud: ended after {timeout_s:g} s\n".encode()
