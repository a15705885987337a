"""One home, one market, one cloud per test: commands as a user types them, and other eyes to look with.

    with Home(tmp_path, rough()) as home:
        job_id = home.submit(job(steps=200))
        home.serve(job_id, crash_at=17).wait()      # −9
        home.serve(job_id).wait()                   # 0
        settled(home, job_id)                       # truth.py

Commands run in forks of one warm process (``warm.py``); ``cold=True`` starts a Python of its own.
Leaving the block ends whatever is left, and fails the test if a process of this home survives that.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arylcloud.checkpoint.store import open_store
from arylcloud.core.clock import MarketClock, SystemClock
from arylcloud.core.events import Record
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.fold import replay
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.state import JobState
from arylcloud.providers.local import log as cloud_log
from arylcloud.providers.local import processes, start
from arylcloud.providers.local.wire import FOLDER, LOG_FILE, PORT_FILE

WAIT_S = 120.0
"""For anything that must happen at all. No test says how fast; a machine may be busy."""
_OURS = ("ARYL", "SKYPILOT", "E2E_")


class Warm:
    """The warm process: one per test process."""

    enter: tuple[str, ...] = ()
    """What it is started with: a command that execs the rest of its line."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.folder = Path(self._folder.name)
        self._path = str(self.folder / "s")
        script = Path(__file__).with_name("warm.py")
        env = {**_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [*self.enter, sys.executable, str(script), self._path], stdin=subprocess.PIPE, env=env
        )
        self.pid = self._process.pid
        self.cache = self.folder / "cache"
        """Shared by all homes: the runtime's zip is built once."""
        self.cache.mkdir()

    def run(self, request: dict[str, Any]) -> Child:
        connection = socket.socket(socket.AF_UNIX)

        def connected() -> bool:
            assert self._process.poll() is None, "the warm process has died"
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(self._path)
                return True
            return False

        wait_for(connected, "the warm process")
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Child(connection, request)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._folder.cleanup()


class Child:
    """A command that runs in a fork of the warm process."""

    def __init__(self, connection: socket.socket, request: dict[str, Any]) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self.request = request
        self.pid: int = json.loads(self._reader.readline())["pid"]
        self.code: int | None = None

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Its exit code; −9 if SIGKILL ended it."""
        if self.code is None:
            self._connection.settimeout(timeout_s)
            try:
                line = self._reader.readline()
            except TimeoutError:
                self.send(signal.SIGKILL)
                self.code = -signal.SIGKILL  # its connection cannot be read any more
                raise AssertionError(f"{self.request['argv']} does not end: {self.err[-2000:]}") from None
            self.code = json.loads(line)["code"]
            self._reader.close()
            self._connection.close()
        return self.code

    def send(self, number: int) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, number)

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        return self.wait()

    @property
    def running(self) -> bool:
        return self._state not in "ZX"

    @property
    def stopped(self) -> bool:
        """By SIGSTOP."""
        return self._state == "T"

    @property
    def _state(self) -> str:
        """Of its process, as ``ps`` says it."""
        if self.code is not None:
            return "X"
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between open and read
            return "X"
        return stat.rpartition(")")[2].split()[0]

    @property
    def out(self) -> str:
        return _text(Path(self.request["stdout"]))

    @property
    def err(self) -> str:
        return _text(Path(self.request["stderr"]))


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that has ended."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Home:
    """An ``ARYLCLOUD_HOME`` of its own. ``cloud_of``: another home whose local cloud this one uses."""

    def __init__(
        self,
        folder: Path,
        market: dict[str, Any] | None = None,
        *,
        warm: Warm,
        cloud_of: Home | None = None,
        idle_exit_s: float = 30.0,
    ) -> None:
        assert (market is None) != (cloud_of is None)
        self.path = folder / "home"
        self.path.mkdir(parents=True)
        self.state_dir = self.path / "state"
        self.steps_log = folder / "steps.log" if cloud_of is None else cloud_of.steps_log
        self.market_file = folder / "market.json" if cloud_of is None else cloud_of.market_file
        self.cloud = self.state_dir / FOLDER if cloud_of is None else cloud_of.cloud
        self.idle_exit_s = idle_exit_s
        self._folder = folder
        self._warm = warm
        self._children: list[Child] = []
        self._states: dict[tuple[int, str], JobState] = {}
        self._guest = cloud_of is not None
        (self.path / "cache").symlink_to(warm.cache)
        if market is not None:
            self.market_file.write_text(json.dumps(market, indent=1))

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ commands

    def env(self, **more: str | None) -> dict[str, str]:
        found: dict[str, str | None] = {
            **_environment(),
            "ARYLCLOUD_HOME": str(self.path),
            "ARYLCLOUD_LOCAL__MARKET": str(self.market_file),
            "ARYLCLOUD_LOCAL__IDLE_EXIT_S": str(self.idle_exit_s),
            **({"ARYLCLOUD_LOCAL__FOLDER": str(self.cloud)} if self._guest else {}),
            **more,
        }
        return {key: value for key, value in found.items() if value is not None}

    def start(
        self,
        *args: str,
        env: dict[str, str | None] | None = None,
        no_launcher: bool = False,
        points: Path | None = None,
        calls: Path | None = None,
        die_once: Path | None = None,
        die_at: str | None = None,
        stop_at: str | None = None,
        fork_launcher: bool = False,
        tty: str | None = None,
        out_to_tty: bool = True,
        limit_file_kb: int | None = None,
    ) -> Child:
        """Any command, not waited for. ``fork_launcher``: the launcher that it starts is there at once,
        however busy the machine, and is not among the ``processes``; ``tty``: name of the terminal that it
        runs on (terminal.py); ``limit_file_kb``: no file of its may grow longer, as on a full disk."""
        number = len(self._children)
        child = self._warm.run(
            {
                "argv": list(args),
                "env": self.env(**(env or {})),
                "cwd": str(self._folder),
                "folder": str(self._folder),
                "stdout": str(self._folder / f"{number:03d}-{args[0]}.out"),
                "stderr": str(self._folder / f"{number:03d}-{args[0]}.err"),
                "no_launcher": no_launcher,
                "points": str(points) if points else None,
                "calls": str(calls) if calls else None,
                "die_once": str(die_once) if die_once else None,
                "die_at": die_at,
                "stop_at": stop_at,
                "fork_launcher": fork_launcher,
                "tty": tty,
                "out_to_tty": out_to_tty,
                "limit_file_kb": limit_file_kb,
            }
        )
        self._children.append(child)
        return child

    def cli(
        self,
        *args: str,
        env: dict[str, str | None] | None = None,
        timeout_s: float = WAIT_S,
        cold: bool = False,
        no_launcher: bool = False,
        code: int | None = None,
    ) -> Done:
        """A command to its end. ``code``: what it must exit with."""
        if cold:
            process = subprocess.run(
                [sys.executable, "-m", "arylcloud", *args],
                env=self.env(**(env or {})), cwd=self._folder, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=timeout_s, check=False,
            )  # fmt: skip
            done = Done(args=args, code=process.returncode, out=process.stdout, err=process.stderr)
        else:
            child = self.start(*args, env=env, no_launcher=no_launcher)
            done = Done(args=args, code=child.wait(timeout_s), out=child.out, err=child.err)
        if code is not None:
            assert done.code == code, f"{args} exited {done.code}, not {code}:\n{done.out}\n{done.err}"
        return done

    def job_file(self, spec: dict[str, Any], name: str = "job.yaml") -> Path:
        """``spec`` as a file (JSON is YAML); its training writes its steps to ``steps_log``."""
        path = self._folder / name
        envs = {"E2E_LOG": str(self.steps_log), **spec.get("envs", {})}
        path.write_text(json.dumps({**spec, "envs": envs}, indent=1))
        return path

    def submit(self, spec: dict[str, Any], *flags: str) -> str:
        """Launch without a launcher; the job's id. ``serve`` runs it."""
        path = self.job_file(spec)
        args = ("launch", str(path), "--infra", "local", "-y", "-d", *flags)
        return self.cli(*args, no_launcher=True, code=0).out.strip()

    def launch(self, spec: dict[str, Any], *flags: str, code: int | None = 0, cold: bool = False) -> Done:
        """As a user does: attached, with a launcher of its own in the background, to the end."""
        args = ("launch", str(self.job_file(spec)), "--infra", "local", "-y", *flags)
        return self.cli(*args, code=code, cold=cold)

    def serve(self, job_id: str, *, crash_at: int | None = None, **options: Any) -> Child:
        """A launcher of one job; ``crash_at=n``: it kills itself at its n-th crash point."""
        env = {"ARYLCLOUD_CRASH_AT": None if crash_at is None else str(crash_at)}
        return self.start("serve", "--job", job_id, env=env, **options)

    def serve_to_the_end(self, job_id: str) -> JobState:
        """One more launcher, until the job has ended. Returns the job's state."""
        child = self.serve(job_id)
        assert child.wait() == 0, child.err[-3000:]
        return self.state(job_id)

    def go(self, step: int = 1_000_000_000) -> None:
        """The trainings of jobs with ``hold`` may go on, as far as ``step``."""
        part = self.steps_log.with_name("go.part")
        part.write_text(str(step))
        part.replace(self.steps_log.with_name("go"))

    # ------------------------------------------------------------ what the product says

    def events(self, job_id: str) -> tuple[Record, ...]:
        with Journal(self.state_dir / "journal.db") as journal:
            return journal.records(job_id)

    def state(self, job_id: str) -> JobState:
        """Folded on from where the last look ended: tests look fifty times a second."""
        path = self.state_dir / "journal.db"
        with Journal(path) as journal:
            key = path.stat().st_ino, job_id
            known = self._states.get(key)
            found = replay(journal.records(job_id, after=known.seq if known else 0), known)
        self._states[key] = found
        return found

    def jobs(self) -> tuple[str, ...]:
        with Journal(self.state_dir / "journal.db") as journal:
            return journal.jobs()

    def status(self) -> dict[str, Any]:
        return self.cli("status", "--all", "--json", code=0).json

    def report(self, job_id: str) -> dict[str, Any]:
        return self.cli("report", job_id, "--json", code=0).json

    # ------------------------------------------------------------ what can be seen without it

    def prefix(self, job_id: str) -> Path:
        return Path(self.state(job_id).prefix_uri.removeprefix("file://"))

    def mailbox(self, job_id: str) -> ObjectStore:
        return open_store(self.state(job_id).prefix_uri)

    def cloud_records(self) -> list[dict[str, Any]]:
        return cloud_log.read(self.cloud / LOG_FILE)[0]

    def daemon_pid(self) -> int | None:
        """Of the local cloud, if it runs."""
        try:
            pid = int(json.loads((self.cloud / PORT_FILE).read_text())["pid"])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"providers.local.daemon" in command and str(self.cloud).encode() in command else None

    def processes(self) -> dict[int, str]:
        """Everything that has to do with this home by its command line, environment or folder: pid →
        command. (Forks of the warm process are not seen so: they are in ``running``.)"""
        own = str(self._folder).encode()
        return {pid: command for pid, command, text in _processes() if own in text and pid != os.getpid()}

    def machine_processes(self, needle: str = "") -> dict[int, str]:
        """Those of the local cloud's machines; ``needle``: part of the command."""
        daemon = self.daemon_pid()
        cloud = str(self.cloud / "machines").encode()
        return {
            pid: command
            for pid, command, text in _processes()
            if cloud in text and pid != daemon and needle in command
        }

    def kill_machine(self, instance_id: str) -> None:
        """As a host that fails: everything on it at once, without a word. A machine that is not there
        (any more) is fine."""
        assert instance_id, "no machine is named: nothing of it could be told from others'"
        assert processes.end_all(instance_id, None, SystemClock(), grace_s=0.0, patience_s=WAIT_S)

    def give_notice(self, instance_id: str, notice_s: float = WAIT_S) -> None:
        """The cloud will take a machine in so many seconds; 0: it takes it. Written down as its daemon does
        it, while there is none: nothing has to be timed."""
        with self._without_daemon():
            log, now_s = cloud_log.CloudLog(self.cloud / LOG_FILE), time.time()
            market_s = _market_clock(next(iter(log))).market_s(now_s)
            body = {"acts_at_s": now_s + notice_s} if notice_s else {"cause": "interrupted"}
            kind = "notice" if notice_s else "ending"
            log.append(kind, wall_s=now_s, market_s=market_s, instance_id=instance_id, **body)
            log.close()

    def set_price(self, region: str, usd_per_hour: float) -> None:
        """From now on: what the market of this cloud has foretold all the time, as its log has it then."""
        with self._without_daemon():
            path = self.cloud / LOG_FILE
            first, *others = path.read_text().splitlines()
            opened = json.loads(first)
            prices = json.loads(opened["text"])
            now_s = _market_clock(opened).market_s(time.time()) - opened["origin_s"]
            (offer,) = (offer for offer in prices["offers"] if offer["region"] == region)
            offer["steps"].append([now_s, usd_per_hour, offer["steps"][-1][2]])
            opened["text"] = json.dumps(prices)
            part = path.with_suffix(".part")
            part.write_text("".join(f"{line}\n" for line in (json.dumps(opened), *others)))
            part.replace(path)

    @contextlib.contextmanager
    def _without_daemon(self) -> Iterator[None]:
        """A launcher that finds none waits."""
        with start._starter(self.cloud):
            self.stop_cloud()
            yield
        start.ensure(
            self.cloud, market=str(self.market_file), idle_exit_s=self.idle_exit_s, clock=SystemClock()
        )

    @property
    def running(self) -> list[Child]:
        return [child for child in self._children if child.code is None and child.running]

    # ------------------------------------------------------------ the end

    def stop_cloud(self) -> None:
        """End the local cloud's daemon, which would go by itself when it has been idle for a while."""
        pid = self.daemon_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has been idle and has gone by itself
                os.kill(pid, signal.SIGTERM)
            wait_for(lambda: self.daemon_pid() is None, "the local cloud's end")

    def close(self) -> None:
        """End everything, whatever the test did, and see that nothing survives."""
        for child in self._children:
            if child.code is None:
                child.kill()
        give_up_s = time.monotonic() + 30
        looks = 0
        while looks < 2:  # one may have been between fork and exec, with nothing of ours to be seen on it
            found = self.processes()
            looks = 0 if found else looks + 1
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.03)
            assert time.monotonic() < give_up_s, f"processes that cannot be ended: {found}"


def _market_clock(opened: dict[str, Any]) -> MarketClock:
    return MarketClock(origin_s=opened["origin_s"], scale=opened["scale"])


def wait_for(true: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll until ``true()`` is truthy; returns that. Raises AssertionError."""
    give_up_s = time.monotonic() + timeout_s
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < give_up_s, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.02)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "120"}


def _processes() -> Iterator[tuple[int, str, bytes]]:
    """(pid, command, command line + environment + folder) of everything that runs."""
    for folder in Path("/proc").iterdir():
        name = folder.name
        if not name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            text = (
                command
                + b"\0"
                + (folder / "environ").read_bytes()
                + b"\0"
                + os.fsencode((folder / "cwd").readlink())
            )
            alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            continue  # it has ended meanwhile, or is somebody else's
        if alive:
            yield int(name), command.replace(b"\0", b" ").decode(errors="replace").strip(), text
