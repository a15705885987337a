"""One call to a machine of the pool: ``hostside`` is sent along, so that nothing is to be installed there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, OtherCloudError
from arylcloud.providers.pool import hostside
from arylcloud.providers.pool.machines import THIS, OwnMachine

ANSWER_BYTES: Final = 4_000_000
_RUN: Final = (
    "import sys;sys.version_info>=(3,11) or sys.exit('its python3 is %d.%d; 3.11 or newer is needed'"
    "%sys.version_info[:2]);i=sys.stdin.buffer;n=int(i.readline());SOURCE=i.read(n).decode();"
    "exec(compile(SOURCE,'arylcloud-pool','exec'))"
)
"""A constant, free of what a shell would read in it: the request goes by standard input."""
_DENIED: Final = ("permission denied", "host key verification failed", "too many authentication failures")


def call(machine: OwnMachine, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """``hostside.answer`` on that machine. Raises AccessError where it lets nobody in, OtherCloudError where
    it cannot be reached, or answers nonsense; an answer may hold an ``error`` of its own."""
    source = Path(hostside.__file__).read_bytes()
    told = json.dumps({**request, "folder": machine.home}).encode()
    try:
        done = subprocess.run(
            _argv(machine, timeout_s),
            input=b"%d\n%s%s" % (len(source), source, told),
            capture_output=True,
            timeout=timeout_s + 5.0,
            check=False,
            env=_env(machine),
        )
    except subprocess.TimeoutExpired as error:
        raise OtherCloudError(
            f"{machine.name} did not answer in {timeout_s:.0f} s", code="Timeout"
        ) from error
    except OSError as error:
        raise OtherCloudError(f"ssh cannot be started: {error.strerror}", code="NoSsh") from error
    if done.returncode != 0 or len(done.stdout) > ANSWER_BYTES:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no word"])[-1][:300]
        if any(word in said.lower() for word in _DENIED):
            raise AccessError(
                f"{machine.name} does not let us in: {said}",
                hint=f"`ssh {machine.host} true` must work without a question",
            )
        raise OtherCloudError(f"{machine.name} ({machine.host}): {said}", code=f"Exit{done.returncode}")
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        raise OtherCloudError(f"{machine.name} answered with no JSON: {done.stdout[:120]!r}") from error
    if not isinstance(found, dict):
        raise OtherCloudError(f"{machine.name} answered with no object: {done.stdout[:120]!r}")
    return found


def _argv(machine: OwnMachine, timeout_s: float) -> list[str]:
    if machine.host == THIS:
        return [sys.executable, "-I", "-S", "-c", _RUN]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(timeout_s))),
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "2",
        **_shared(),
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return ["ssh", "-T", *flags, "--", machine.host, f'python3 -I -S -c "{_RUN}"']


def _env(machine: OwnMachine) -> dict[str, str] | None:
    """On this machine, ``python3`` of the stub is the interpreter that we run with, as on the local cloud."""
    if machine.host != THIS:
        return None
    mine = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{mine}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def _shared() -> dict[str, str]:
    """One connection for many calls, where a folder of ours can be had that nobody else may write."""
    folder = Path(tempfile.gettempdir()) / f"arylcloud-ssh-{os.getuid()}"  # sockets' names must be short
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return {}
    if about.st_uid != os.getuid() or about.st_mode & 0o077 or folder.is_symlink():
        return {}
    return {"ControlMaster": "auto", "ControlPath": f"{folder}/%C", "ControlPersist": "60"}
