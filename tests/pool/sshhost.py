"""A machine that is reached by the real ``ssh``: an SSH server of our own on loopback, which runs what it is
asked for as this user."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import asyncssh


@contextmanager
def ssh_host(folder: Path, name: str = "far") -> Iterator[Path]:
    """While it is open, ``ssh NAME`` reaches the server; given is the folder that comes first in PATH."""
    folder.mkdir(parents=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "key")
    (folder / "key").chmod(0o600)
    (folder / "authorized").write_bytes(key.export_public_key())
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    started, stop = threading.Event(), threading.Event()
    port = 0

    async def serve() -> None:
        nonlocal port
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=str(folder / "authorized"),
            process_factory=_run,
            encoding=None,
        )
        port = server.sockets[0].getsockname()[1]
        started.set()
        await asyncio.to_thread(stop.wait)
        server.close()
        await server.wait_closed()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="sshd")
    thread.start()
    assert started.wait(120)
    public = host_key.export_public_key().decode().strip()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public}\n")
    (folder / "config").write_text(
        f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User pool\n  IdentityFile {folder}/key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile /dev/null\n"
    )
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "ssh").write_text(f'#!/bin/sh\nexec {which("ssh")} -F {folder}/config -o ControlPath=none "$@"\n')
    (bin_ / "ssh").chmod(stat.S_IRWXU)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{bin_}{os.pathsep}{before}"
    try:
        yield bin_
    finally:
        os.environ["PATH"] = before
        stop.set()
        thread.join(30)


async def _run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    assert process.command is not None
    child = await asyncio.create_subprocess_shell(
        process.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    asked = await process.stdin.read()
    told, said = await child.communicate(asked)
    process.stdout.write(told)
    process.stderr.write(said)
    process.exit(child.returncode or 0)
