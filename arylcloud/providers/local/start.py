"""Finding the local cloud's daemon, and starting it where there is none: one, whoever asks first."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import arylcloud
from arylcloud.core.clock import Clock
from arylcloud.core.errors import ArylError, IntegrityError, LocalStateError, OtherCloudError, UsageError
from arylcloud.providers.local import marketfile
from arylcloud.providers.local.wire import API, OUTPUT_FILE, PORT_FILE, START_LOCK_FILE

START_PATIENCE_S: Final = 30.0
_START_ERRORS: Final[dict[str, type[ArylError]]] = {
    cls.kind: cls for cls in (UsageError, LocalStateError, IntegrityError)
}


class NotThere(Exception):
    """Nothing listens: the request was certainly not received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    port: int
    token: str

    def call(self, op: str, body: Mapping[str, Any], timeout_s: float) -> tuple[int, dict[str, Any]]:
        """One request: status and document. Raises NotThere, or OSError / HTTPException when the
        connection broke after it was made: the cloud may have acted."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotThere(str(error)) from error
            connection.request(
                "POST",
                f"/v1/{op}",
                body=json.dumps(dict(body), allow_nan=False).encode(),
                headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        try:
            document = json.loads(data)
        except ValueError as error:
            raise http.client.HTTPException("the answer is not JSON") from error
        if not isinstance(document, dict):
            raise http.client.HTTPException("the answer is no object")
        return response.status, document


def find(folder: Path, *, market: str | None = None) -> Endpoint | None:
    """The daemon that wrote the port file, if it answers to it. Raises UsageError if it runs another
    market than ``market``, OtherCloudError if it is of another version."""
    try:
        raw = json.loads((folder / PORT_FILE).read_text(encoding="utf-8"))
        endpoint = Endpoint(port=raw["port"], token=raw["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        status, document = endpoint.call("health", {}, 5.0)
    except (NotThere, OSError, http.client.HTTPException):
        return None
    if status != http.client.OK:
        return None  # another process has the port by now
    if document.get("api") != API:
        raise OtherCloudError(
            f"the local cloud that runs speaks version {document.get('api')!r}, this arylcloud {API}",
            hint="it goes by itself when its machines have ended; then try again",
        )
    marketfile.check_same(market, document)
    return endpoint


def ensure(
    folder: Path,
    *,
    market: str | None,
    idle_exit_s: float | None,
    clock: Clock,
    network: str | None = None,
) -> Endpoint:
    """The daemon of ``folder``, started if there is none. Raises LocalStateError, UsageError,
    OtherCloudError."""
    if (found := find(folder, market=market)) is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _starter(folder):
            return find(folder, market=market) or _start(folder, market, idle_exit_s, network, clock)
    except OSError as error:
        raise LocalStateError(f"the local cloud cannot use {folder}: {error.strerror or error}") from error


def _start(
    folder: Path, market: str | None, idle_exit_s: float | None, network: str | None, clock: Clock
) -> Endpoint:
    command = [sys.executable, "-m", "arylcloud.providers.local.daemon", str(folder)]
    if market is not None:
        marketfile.parse(marketfile.read(market).text, what=f"market {market}")  # its errors, with hints
        command += ["--market", market]
    if idle_exit_s is not None:
        command += ["--idle-exit-s", str(idle_exit_s)]
    if network is not None:
        command += ["--network", network]
    output = folder / OUTPUT_FILE
    with output.open("ab") as stream:
        begin = stream.tell()
        subprocess.run(  # it forks; the one that we wait for returns at once
            command,
            cwd=folder,
            env=_environ(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            check=False,
        )
    give_up_s = clock.monotonic_s() + START_PATIENCE_S
    while clock.monotonic_s() < give_up_s:
        if (found := find(folder)) is not None:
            return found
        tail = output.read_bytes()[begin:].decode(errors="replace")
        for line in tail.splitlines():
            if " ERROR " in line:
                kind, _, message = line.partition(" ERROR ")[2].partition(": ")
                cls = _START_ERRORS.get(kind, OtherCloudError)
                raise cls(f"the local cloud did not start: {message}", hint=f"see {output}")
        clock.sleep(0.03)
    raise OtherCloudError(
        f"the local cloud did not start within {START_PATIENCE_S:.0f} s", hint=f"see {output}"
    )


@contextmanager
def _starter(folder: Path) -> Iterator[None]:
    """Starters take turns; the second finds what the first has started."""
    descriptor = os.open(folder / START_LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _environ() -> dict[str, str]:
    """The daemon's environment: this arylcloud importable, and nothing of a machine that we may be in."""
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG", "TZ") if key in os.environ}
    package = str(Path(arylcloud.__file__).resolve().parent.parent)
    return {**keep, "PYTHONPATH": package}
