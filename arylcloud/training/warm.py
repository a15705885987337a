"""A script in an interpreter that has imported already: ``python -m arylcloud.training.warm``.

    python -m arylcloud.training.warm [--import torch,numpy] train.py ARGS…
    python -m arylcloud.training.warm [--import torch,numpy] --prepare        (in ``setup``: warm beforehand)

After a loss, most of the time to the next step goes into importing torch again. On a machine of ours (Linux)
a server (``zygote.py``) keeps an interpreter that has imported the modules; each epoch's script is a fork of
it, with this process's environment, folder, arguments, limits and open 0, 1 and 2. This process stays in its
place: it passes signals on, and ends as the script ends.

Everywhere else, and where the server cannot serve (another environment, another Python, CUDA initialised by
an import), the script is run by a plain ``python`` in this process's place; only the time is another.

What differs from a plain start: what a module does *when it is imported* was done once, before. Nothing that
is named in ``--import`` may start threads that it needs later, or touch a GPU: CUDA does not survive a fork
(``import torch`` does neither; a server whose imports have initialised CUDA refuses).
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

FOLDER_VARIABLE = "ARYL_WARM_DIR"
SOCKET, WANTED = "warm.sock", "wanted"
SERVER_PATIENCE_S = 3.0
"""The agent looks ten times a second whether a server is wanted; where none comes, nobody waits for long."""
_RELAYED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH", "SIGALRM")
_PER_EPOCH = ("ARYL_", "SKYPILOT_", "MASTER_")
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
_USAGE = "usage: python -m arylcloud.training.warm [--import MODULE,…] (SCRIPT ARG… | --prepare)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line."""

    modules: tuple[str, ...]
    script: str | None
    """None = ``--prepare``."""
    args: tuple[str, ...]


def parse(argv: list[str]) -> Asked:
    """Raises SystemExit (2) for what cannot be meant."""
    modules: list[str] = []
    rest = list(argv)
    prepare = False
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--import" and (equals or rest):
            modules += [name for name in (value if equals else rest.pop(0)).split(",") if name]
        elif option == "--prepare" and not equals:
            prepare = True
        else:
            _complain(f"{option}: no option of this, or without its value")
    if prepare == bool(rest):
        _complain("a script, or --prepare alone")
    return Asked(modules=tuple(modules), script=rest[0] if rest else None, args=tuple(rest[1:]))


def fingerprint(environ: dict[str, str]) -> dict[str, str]:
    """What a library may have read of the environment while it was imported: all but what each epoch sets."""
    return {k: v for k, v in environ.items() if not k.startswith(_PER_EPOCH) and k not in _OF_THE_SHELL}


def request(asked: Asked) -> dict[str, Any]:
    """All that makes this process what it is, for a fork to become."""
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in _limit_names()}
    at = sys.orig_argv.index("-m") if "-m" in sys.orig_argv else 1
    return {
        "modules": list(asked.modules),
        "script": asked.script,
        "argv": [asked.script, *asked.args],
        "executable": sys.executable,
        "options": sys.orig_argv[1:at],
        "env": dict(os.environ),
        "env_at_exec": _env_at_exec(),
        "cwd": str(Path.cwd()),
        "umask": _umask(),
        "limits": limits,
        "cpus": sorted(os.sched_getaffinity(0)),
        "ignored": [int(n) for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN],
    }


def main() -> NoReturn:
    asked = parse(sys.argv[1:])
    served = None if asked.script is not None and not Path(asked.script).is_file() else _connect()
    if served is not None:
        with served:
            _run_there(served, asked)
    _run_here(asked)


def send(connection: socket.socket, document: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """One message: its length and the descriptors, then JSON."""
    data = json.dumps(document).encode()
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([b"%010d" % len(data)], ancillary)
    connection.sendall(data)


def address(folder: Path) -> tuple[str, int]:
    """Of the server's socket, by way of an open folder (to be closed): the path of a machine's own folder may
    be longer than the 107 bytes that a socket's address holds."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{handle}/{SOCKET}", handle


def _connect() -> socket.socket | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or not sys.platform.startswith("linux"):
        return None
    give_up_s = time.monotonic() + SERVER_PATIENCE_S
    with contextlib.suppress(OSError):
        where, handle = address(Path(folder))
        try:
            while True:
                connection = socket.socket(socket.AF_UNIX)
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    connection.connect(where)
                    return connection
                connection.close()
                if time.monotonic() > give_up_s:
                    return None
                Path(folder, WANTED).touch()
                time.sleep(0.02)
        finally:
            os.close(handle)
    return None


def _run_there(connection: socket.socket, asked: Asked) -> None:
    """Returns only where the server does not serve."""
    told: list[int] = []

    def relay(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        with contextlib.suppress(OSError):
            connection.send(b"%d\n" % number)

    try:
        wanted = request(asked)
        send(connection, wanted, (0, 1, 2))
        answers = connection.makefile("r", encoding="utf-8")
        if _answer(answers.readline()).get("started") is None:
            return
    except OSError:
        return
    if asked.script is None:
        sys.exit(0)
    for name in _RELAYED:
        if getattr(signal, name) not in wanted["ignored"]:
            signal.signal(getattr(signal, name), relay)
    for number in (0, 1, 2):  # they are the script's now: a pipe ends when *it* closes it
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, number)
        os.close(null)
    end = _answer(answers.readline())
    if end.get("signal"):
        _die_of(int(end["signal"]))
    os._exit(
        int(end.get("code", 128 + signal.SIGKILL))
    )  # without a word: the keeper was killed, and all with it


def _answer(line: str) -> dict[str, Any]:
    found = json.loads(line) if line.strip() else {}
    return found if isinstance(found, dict) else {}


def _run_here(asked: Asked) -> NoReturn:
    if asked.script is None:
        sys.exit(0)
    at = sys.orig_argv.index("-m") if "-m" in sys.orig_argv else 1
    argv = [sys.executable, *sys.orig_argv[1:at], asked.script, *asked.args]
    os.execv(sys.executable, argv)  # noqa: S606 - the very point


def _die_of(number: int) -> NoReturn:
    """As the script did, so that whoever waits sees the same."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _limit_names() -> list[str]:
    return [name for name in dir(resource) if name.startswith("RLIMIT_")]


def _env_at_exec() -> dict[str, str]:
    """Without what this Python has added: it decides by the locale it was given what its encodings are."""
    items = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _complain(what: str) -> NoReturn:
    sys.stderr.write(f"{_USAGE}\nerror: {what}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
