"""The server behind ``warm.py``: an interpreter that has imported, and is forked for every epoch's script.

The agent starts it when a script has asked for it (``agent/warmth.py``), with nothing loaded. The first
request says which Python, which environment and which modules: it becomes that (an exec), imports, and
serves. A request that does not fit is answered with the reason, and this server ends: the next one fits.

For each script a *keeper* is forked: a supervisor (``supervise.py``) by the rules of every command. Its
standard input is the connection to the process that stands in the script's place: signals come from there,
and its end, SIGKILL too, is the end of all that the script has started.
"""

from __future__ import annotations

import array
import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import socket
import struct
import sys
import types
import warnings
from pathlib import Path
from typing import Any, NoReturn

from arylcloud.training import supervise, warm

BACKLOG = 8
_HANDED_OVER = "ARYL_ZYGOTE"
"""Descriptors that the exec keeps: listener, connection, 0, 1, 2 of the first request."""
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class Begin(BaseException):
    """Unwinds the forked child out of the server: a script must not have one under its feet."""

    def __init__(self, wanted: dict[str, Any], descriptors: list[int]) -> None:
        self.wanted, self.descriptors = wanted, descriptors


class Refused(Exception):
    """Why this server cannot run that script."""


def serve(listener: socket.socket) -> NoReturn:
    """Raises Begin, in each child, and nothing else."""
    connection, _ = listener.accept()
    wanted, descriptors = receive(connection)
    if _HANDED_OVER not in os.environ:
        _become(listener, connection, wanted, descriptors)
    _serve(listener, connection, wanted, descriptors)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Raises OSError for a peer that is another user's, or says nothing that can be understood."""
    connection.settimeout(5.0)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        raise OSError("another user's")
    head, ancillary, _, _ = connection.recvmsg(10, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    try:
        with connection.makefile("rb") as reader:
            wanted: Any = json.loads(reader.read(int(head)))
    except ValueError as error:
        raise OSError("no request") from error
    if not isinstance(wanted, dict) or len(descriptors) != 3:
        raise OSError("no request")
    connection.settimeout(None)
    return wanted, list(descriptors)


def _become(
    listener: socket.socket, connection: socket.socket, wanted: dict[str, Any], descriptors: list[int]
) -> NoReturn:
    """The Python and the environment of the first request; it is asked again there, by ``resume``."""
    kept = [listener.fileno(), connection.fileno(), *descriptors]
    for number in kept:
        os.set_inheritable(number, True)
    note = os.memfd_create("request", 0)
    os.write(note, json.dumps(wanted).encode())
    env = {**wanted["env_at_exec"], _HANDED_OVER: " ".join(map(str, [*kept, note]))}
    os.chdir(wanted["cwd"])
    argv = [wanted["executable"], *wanted["options"], "-m", "arylcloud.training.zygote"]
    os.execve(wanted["executable"], argv, env)  # noqa: S606 - the very point


def resume() -> NoReturn:
    """After ``_become``: import, serve. Raises Begin, in each child."""
    numbers = [int(n) for n in os.environ.pop(_HANDED_OVER).split()]
    for number in numbers:
        os.set_inheritable(number, False)
    with open(numbers.pop(), "rb") as note:  # noqa: PTH123 - a descriptor
        note.seek(0)
        wanted = json.load(note)
    listener, connection = (socket.socket(fileno=n) for n in numbers[:2])
    _serve(listener, connection, wanted, numbers[2:])


def _serve(
    listener: socket.socket, connection: socket.socket, first: dict[str, Any], descriptors: list[int]
) -> NoReturn:
    mine = _identity(first)
    if first["script"] is not None and not sys.flags.safe_path:
        sys.path[0] = str(Path(first["script"]).resolve().parent)
    with _quiet_about_forks():
        try:
            for name in first["modules"]:
                importlib.import_module(name)
            _refuse_cuda()
        except Exception as error:  # noqa: BLE001 - the script itself will say what is wrong with its imports
            _answer(connection, {"cold": f"{type(error).__name__}: {error}"})
            os._exit(1)
        gc.collect()
        gc.freeze()  # collected in a child, every page of the modules would be copied
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
        wanted = first
        while True:
            if _identity(wanted) == mine:
                _fork_keeper(listener, connection, wanted, descriptors)
            else:
                _answer(connection, {"cold": "another Python, environment or set of modules"})
                if not _busy():
                    os._exit(1)
            connection.close()
            for number in descriptors:
                os.close(number)
            connection, wanted, descriptors = _next(listener)


def _next(listener: socket.socket) -> tuple[socket.socket, dict[str, Any], list[int]]:
    while True:
        connection, _ = listener.accept()
        try:
            return connection, *receive(connection)
        except OSError:  # another user, or a process that was killed as it asked
            connection.close()


def _busy() -> bool:
    """Does a script of ours run? (This server's end would be theirs.)"""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _gone(connection: socket.socket) -> bool:
    """Whoever asked has died meanwhile."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def _identity(wanted: dict[str, Any]) -> tuple[object, ...]:
    env = warm.fingerprint(wanted["env"])
    return wanted["executable"], wanted["options"], wanted["modules"], env


def _refuse_cuda() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise Refused("an import has initialised CUDA, which no fork survives")


def _fork_keeper(
    listener: socket.socket, connection: socket.socket, wanted: dict[str, Any], descriptors: list[int]
) -> None:
    if wanted["script"] is None:
        _answer(connection, {"started": 0})
    elif not _gone(connection) and os.fork() == 0:
        listener.close()
        _keep(connection, wanted, descriptors)


def _keep(connection: socket.socket, wanted: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """In the keeper, until nothing of the script is left. Raises Begin in the script's process."""
    try:
        os.dup2(connection.fileno(), 0)  # where a supervisor hears from

        def begin() -> None:
            connection.close()
            raise Begin(wanted, descriptors)  # noqa: TRY301 - through the supervisor, up to ``main``

        keeper = supervise.Supervisor(begin)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2, *descriptors):  # a pipe ends when the script closes it
            os.dup2(null, number)
        _answer(connection, {"started": keeper.pid})
        code = keeper.run()
        _answer(connection, {"code": code, "signal": keeper.signal})
    except Begin:
        raise
    except BaseException as error:  # noqa: BLE001 - the server's loop must not go on in a fork
        sys.stderr.write(f"arylcloud: a warm interpreter failed: {error!r}\n")
        os._exit(70)
    os._exit(0)


def become_script(begin: Begin) -> dict[str, Any]:
    """This process, as a plain interpreter would be just before the script's first line. Returns the
    namespace of its ``__main__``."""
    wanted = begin.wanted
    os.setsid()
    supervise.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, descriptor in enumerate(begin.descriptors):
        os.dup2(descriptor, number)
    for descriptor in begin.descriptors:
        if descriptor > 2:
            os.close(descriptor)
    os.chdir(wanted["cwd"])
    os.umask(wanted["umask"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    for name, (soft, hard) in wanted["limits"].items():
        with contextlib.suppress(OSError, ValueError):  # one that this kernel does not let us set was not set
            resource.setrlimit(getattr(resource, name), (soft, hard))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, wanted["cpus"])
    _signals(wanted["ignored"])
    for stream in (sys.stdout, sys.stderr):
        # where it was opened to is another now; unbuffered it is, if it was (``PYTHONUNBUFFERED``)
        stream.reconfigure(line_buffering=stream.isatty() or stream is sys.stderr)  # type: ignore[union-attr]
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()  # Python's own is seeded anew by the fork
    script = wanted["script"]
    sys.argv = list(wanted["argv"])
    sys.orig_argv = [wanted["executable"], *wanted["options"], *wanted["argv"]]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(script).resolve().parent)
    main = types.ModuleType("__main__")
    path = os.path.abspath(script)  # noqa: PTH100 - as Python does: links are not followed
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __cached__=None,
    )
    if "__annotations__" in globals():  # as this Python's own ``__main__`` has it, or not
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main.__dict__


def _signals(ignored: list[int]) -> None:
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # SIGKILL, SIGSTOP, and what the C library keeps
            usual: Any = signal.SIG_DFL
            if number in ignored or number in _PYTHON_IGNORES:
                usual = signal.SIG_IGN
            elif number == signal.SIGINT:
                usual = signal.default_int_handler
            signal.signal(number, usual)


def run_script(namespace: dict[str, Any]) -> None:
    """As ``python SCRIPT``: its traceback without ours, and Ctrl-C's end by the signal."""
    path = namespace["__file__"]
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - before the script's first line, nothing of ours is new
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), namespace)  # noqa: S102
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - it is the script's, and said as Python says it
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            atexit.register(_end_by_interrupt)
    else:
        return
    sys.exit(1)


def _end_by_interrupt() -> None:
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def _quiet_about_forks() -> Any:
    """Python 3.12 warns of a fork beside threads; NumPy's are made for it, and none of ours is started."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        yield


def _answer(connection: socket.socket, document: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone
        connection.sendall(json.dumps(document).encode() + b"\n")


def listen(folder: Path) -> socket.socket:
    """A socket that only this user reaches; an older one's file makes way."""
    listener = socket.socket(socket.AF_UNIX)
    where, handle = warm.address(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(where)  # noqa: PTH108
    old = os.umask(0o177)
    try:
        listener.bind(where)
    finally:
        os.umask(old)
        os.close(handle)
    listener.listen(BACKLOG)
    return listener


def main() -> dict[str, Any]:
    """Serves; returns only in a script's process."""
    try:
        if _HANDED_OVER in os.environ:
            resume()
        serve(listen(Path(sys.argv[1])))
    except Begin as found:
        begin = found
    return become_script(begin)


if __name__ == "__main__":
    run_script(main())
