"""A process that has imported arylcloud and forks for each command: `arylcloud …` in tens of milliseconds.

    python warm.py SOCKET        ends when its standard input does

A connection is a command: one line of JSON ``{argv, env, cwd, stdout, stderr, …}``; the answers are
``{"pid": …}`` at once and ``{"code": …}`` at the end (−n: killed by signal n). A connection that the
other side closes first has its command killed: a test that dies leaves nothing behind. ``kept``: it goes
on, to the end of this process at most. ``modules`` are imported here, once, before its fork; and before the
next, whatever else a command had to import.

What runs in the fork is ``cli.main.run(argv)``: all of the product and nothing but the product, unless
the request says ``no_launcher`` (the test starts the launcher itself), ``fork_launcher`` (the launcher in
the background is a fork, too) or names files: crash points
(``points``) and calls to the local cloud (``calls``) are written to them as they are passed, and at a
point that ``die_once`` does not name yet, the process adds its name and kills itself. ``die_at``: the name
of the point at which it does; ``stop_at``: at which it stops, the first time, until it is sent SIGCONT.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PRELOAD = (
    "arylcloud.cli.main", "arylcloud.cli.launch", "arylcloud.cli.serve", "arylcloud.cli.adopt",
    "arylcloud.cli.assemble", "arylcloud.cli.attach", "arylcloud.cli.compose", "arylcloud.cli.jobfile",
    "arylcloud.cli.planfile", "arylcloud.cli.notify", "arylcloud.cli.report", "arylcloud.cli.status",
    "arylcloud.cli.events", "arylcloud.cli.stop", "arylcloud.cli.resume", "arylcloud.cli.migrate",
    "arylcloud.cli.gc", "arylcloud.cli.logs", "arylcloud.agent.bootstrap", "arylcloud.agent.runtime",
    "arylcloud.checkpoint.store", "arylcloud.launcher.desire", "arylcloud.launcher.loop",
    "arylcloud.launcher.submit", "arylcloud.launcher.bundle", "arylcloud.launcher.baselines",
    "arylcloud.launcher.timeline", "arylcloud.planner.profiles", "arylcloud.planner.single",
    "arylcloud.pricing.catalogue", "arylcloud.pricing.table", "arylcloud.providers.local.adapter",
    "numpy", "obstore", "yaml", "pydantic", "urllib.request",
)  # fmt: skip


def main(path: str) -> None:
    for name in PRELOAD:
        importlib.import_module(name)
    _read_profiles_once()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    for source in (0, woken, listener):
        selector.register(source, selectors.EVENT_READ)
    running: dict[int, socket.socket] = {}
    kept: set[int] = set()
    folders: set[str] = set()
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                if not os.read(0, 1):
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    _end_all(folders)
                    return
            elif key.fileobj == woken:
                os.read(woken, 4096)
            elif key.fileobj is listener:
                connection = listener.accept()[0]
                line = _line(connection)
                if not line:  # a command that was killed as it turned to us
                    connection.close()
                    continue
                request = json.loads(line)
                if folder := request.get("folder"):
                    folders.add(folder)
                if names := request.get("learn"):
                    _import(names)
                    connection.close()
                    continue
                _import(request.get("modules", ()))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    selector.close()
                    for opened in (listener, connection, *running.values()):
                        opened.close()
                    os.close(woken)
                    os.close(wake)
                    _child(request, path)
                running[pid] = connection
                if request.get("kept"):
                    kept.add(pid)
                selector.register(connection, selectors.EVENT_READ, pid)
                _say(connection, {"pid": pid})
            elif isinstance(key.fileobj, socket.socket):  # the other side has left
                selector.unregister(key.fileobj)
                if key.data in running and key.data not in kept:
                    os.kill(key.data, signal.SIGKILL)
        for pid in tuple(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                connection = running.pop(pid)
                kept.discard(pid)
                _say(connection, {"code": os.waitstatus_to_exitcode(status)})
                with contextlib.suppress(KeyError):
                    selector.unregister(connection)
                connection.close()


def _import(names: Iterable[str]) -> None:
    """What is imported before a fork, no fork has to: a cloud's SDK takes up to four CPU seconds."""
    missing = [name for name in names if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(ImportError):  # made up by another module at its import; or not installed
            importlib.import_module(name)
    if missing:
        gc.freeze()


def _read_profiles_once() -> None:
    """The bundled profiles are data, and the same for every fork (a home with its own reads them anew)."""
    from arylcloud.planner import profiles

    real, bundled = profiles.library, profiles.library()

    def library(user_dir: Path | None = None) -> profiles.Library:
        return bundled if user_dir is None or not user_dir.is_dir() else real(user_dir)

    profiles.library = library


def _end_all(folders: set[str]) -> None:
    """A test run that was killed closes no home: clouds and machines of its would go on for hours."""
    marks = [os.fsencode(folder) + b"/" for folder in folders]
    for _ in range(5):  # a machine may be starting a process at this moment
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command, environ = ((entry / part).read_bytes() for part in ("cmdline", "environ"))
                text = command + environ + os.fsencode((entry / "cwd").readlink()) + b"/"
                if any(mark in text for mark in marks):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended meanwhile, or is somebody else's


def _line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as reader:
        return reader.readline()


def _say(connection: socket.socket, document: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(document).encode() + b"\n")


def _child(request: dict[str, Any], path: str) -> None:
    code = 70
    before = set(sys.modules)
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number, key in ((1, "stdout"), (2, "stderr")):
            opened = os.open(request[key], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, number)
        if tty := request.get("tty"):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            terminal = os.open(tty, os.O_RDWR)  # a leader's first terminal: Ctrl-C and its end reach us
            for number in (0, 1, 2) if request.get("out_to_tty") else (0, 2):
                os.dup2(terminal, number)
        if kb := request.get("limit_file_kb"):
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (kb * 1024, kb * 1024))
        _instrument(request, path)
        from arylcloud.cli.main import run

        code = run(request["argv"])
        sys.stdout.flush()
        sys.stderr.flush()
        _teach(path, before)
    finally:
        os._exit(code)


def _teach(path: str, before: set[str]) -> None:
    names = [name for name in sys.modules if name not in before]
    if names:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:  # it may have ended
            connection.connect(path)
            _say(connection, {"learn": names})


def _instrument(request: dict[str, Any], path: str) -> None:
    if request.get("no_launcher"):
        from arylcloud.cli import spawn

        spawn.ensure_launcher = lambda *_args, **_options: False
    if request.get("fork_launcher"):
        from arylcloud.cli import spawn

        def started(args: list[str], *, stdout: Any, cwd: str, env: dict[str, str], **_: Any) -> Launcher:
            assert args[1:4] == ["-m", "arylcloud", "serve"]
            return Launcher(path, args[3:], stdout.name, cwd, env)

        spawn.subprocess = SimpleNamespace(Popen=started, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    if any(request.get(name) for name in ("points", "die_once", "die_at", "stop_at")):
        _watch_points(
            request.get("points"), request.get("die_once"), request.get("die_at"), request.get("stop_at")
        )
    if request.get("calls"):
        _write_calls(request["calls"])


class Launcher:
    """For what a command sees of the process of its launcher: a fork of the warm process, which goes on when
    the command has ended."""

    def __init__(self, path: str, argv: list[str], log: str, cwd: str, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(path)
        request = {"argv": argv, "env": env, "cwd": cwd, "stdout": log, "stderr": log, "kept": True}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        self._reader = self._connection.makefile("rb")
        self.pid: int = json.loads(self._reader.readline())["pid"]

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            line = self._reader.readline()
            self.returncode = json.loads(line)["code"] if line else -signal.SIGKILL
        return self.returncode


def _watch_points(points: str | None, died: str | None, die_at: str | None, stop_at: str | None) -> None:
    from arylcloud.launcher import probe

    real = probe.from_environment
    known = set(Path(died).read_text().splitlines()) if died and Path(died).exists() else set()

    def from_environment() -> probe.Probe:
        inner = real()
        stops = [stop_at]

        def passing(point: str) -> None:
            if points:
                _append(points, point)
            if died and point not in known:
                _append(died, point)
                os.kill(os.getpid(), signal.SIGKILL)
            if point == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if point in stops:
                stops.clear()
                os.kill(os.getpid(), signal.SIGSTOP)
            inner(point)

        return passing

    probe.from_environment = from_environment


def _write_calls(path: str) -> None:
    from arylcloud.providers.local.adapter import LocalProvider

    call = LocalProvider._call

    def recorded(self: LocalProvider, op: str, body: dict[str, Any]) -> dict[str, Any]:
        _append(path, f"{time.time():.6f} {os.getpid()} {op}")
        return call(self, op, body)

    LocalProvider._call = recorded  # type: ignore[method-assign]


def _append(path: str, text: str) -> None:
    """At once, whatever kills this process next."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(opened, text.encode() + b"\n")
    os.close(opened)


if __name__ == "__main__":
    main(sys.argv[1])
