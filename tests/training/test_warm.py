"""A script in a warm interpreter is the script in a plain one, but for the time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arylcloud.agent.process import Command
from arylcloud.agent.warmth import Warmth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm interpreters are Linux's")
WAIT_S = 120.0
WARM = [sys.executable, "-m", "arylcloud.training.warm", "--import", "http.client,told"]


def wait_for(true: Callable[[], Any], what: str) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.01)


@dataclass
class Place:
    folder: Path
    warmth: Warmth
    log: list[str]

    def env(self, **more: str) -> dict[str, str]:
        """``told`` is a module that says in a file when it is imported, and by which process."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.folder / "modules"),
            "ARYL_WARM_DIR": str(self.folder / "warm"),
            **more,
        }

    def imports(self) -> list[int]:
        file = self.folder / "imports"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / "work" / name).write_text(text)
        return name

    def run(self, start: list[str], *args: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*start, *args],
            cwd=self.folder / "work",
            env=self.env(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Of each test its own: what one has had imported, another would take for its own server's."""
    folder = tmp_path_factory.mktemp(
        "a-folder-with-a-name-so-long-that-no-socket-could-have-it-in-its-address"
    )
    (folder / "modules").mkdir()
    (folder / "work").mkdir()
    (folder / "modules" / "told.py").write_text(
        "import os, sys\n"
        f"with open({str(folder / 'imports')!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
    )
    log: list[str] = []
    warmth = Warmth(folder / "warm", environ={"PATH": os.environ["PATH"]}, log=log.append)
    warmth.start()
    yield Place(folder, warmth, log)
    warmth.stop()


SCRIPTS = {
    "what it sees of itself": """
import os, sys, signal
print(__name__, __file__, __doc__, __package__, __spec__, type(__loader__).__name__, __builtins__)
print(sys.argv, sys.path[:2], os.getcwd(), sys.modules['__main__'].__dict__ is globals())
print(sorted(k for k in globals()), sys.flags, sys.stdin.read() == '', sys.stdout.line_buffering)
print({k: v for k, v in os.environ.items() if k not in ('_', 'SHLVL')})
print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD))
print(signal.getsignal(signal.SIGPIPE), os.umask(0o22), len(os.sched_getaffinity(0)))
""",
    "descriptors": "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "exit code": "raise SystemExit(7)",
    "exit text": "import sys; print('x'); sys.exit('that is why')",
    "traceback": """
def inner(n):
    return 1 / n
def outer():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise ValueError('again') from error
outer()
""",
    "syntax error": "a = (\n",
    "interrupt": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "killed": "import os; print('x', flush=True); os.kill(os.getpid(), 9)",
    "terminated": "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
    "at exit": """
import atexit, threading, time, sys
atexit.register(print, 'last')
said = threading.Event()
threading.Thread(target=lambda: (said.wait(), time.sleep(0.05), print('thread'))).start()
sys.stderr.write('no newline')
print('main')
said.set()
""",
    "os._exit": "import os; os._exit(3)",
    "children": """
import subprocess, multiprocessing, sys
def square(n): return n * n
if __name__ == '__main__':
    print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True))
    for how in ('fork', 'spawn'):
        with multiprocessing.get_context(how).Pool(1) as pool: print(pool.map(square, [3]))
""",
    "many bytes": "import sys; sys.stdout.write('x' * 300_000)",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_as_in_a_plain_interpreter(place: Place, name: str) -> None:
    script = place.script(SCRIPTS[name])
    if not place.imports():
        place.run(WARM, place.script("import told", "first.py"))
    (server,) = place.imports()
    plain, warm = (
        place.run(start, script, "--a", "b c", ARYL_EPOCH="4") for start in ([sys.executable], WARM)
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert place.imports() == [server], place.log  # it has run in a fork of the one that imported


def test_each_has_its_own_chance_and_its_own_environment(place: Place) -> None:
    script = place.script(
        "import os, random, uuid\nprint(random.random(), uuid.uuid4(), os.environ['ARYL_EPOCH'], os.getpid())"
    )
    first, second = (place.run(WARM, script, ARYL_EPOCH=n).stdout.split() for n in "12")
    assert not set(first) & set(second)


def test_another_environment_is_served_by_another_server(place: Place) -> None:
    script = place.script("import os; print(os.environ.get('OMP_NUM_THREADS'), os.environ['ARYL_EPOCH'])")
    place.run(WARM, script, ARYL_EPOCH="1")
    before = place.imports()
    cold = place.run(WARM, script, ARYL_EPOCH="2", OMP_NUM_THREADS="1")
    assert (cold.returncode, cold.stdout) == (0, b"1 2\n")
    assert place.imports() == before  # a plain run: the script itself imports nothing
    again = place.run(WARM, script, ARYL_EPOCH="3", OMP_NUM_THREADS="1")
    assert again.stdout == b"1 3\n"
    assert len(place.imports()) == len(before) + 1


@pytest.mark.parametrize("modules", ["no_such_module", "bad"])
def test_an_import_that_fails_is_the_scripts_to_tell(place: Place, modules: str) -> None:
    (place.folder / "modules" / "bad.py").write_text("raise RuntimeError('bad luck')")
    script = place.script(f"print('before')\nimport {modules}")
    start = [*WARM[:-1], modules]
    plain, warm = place.run([sys.executable], script), place.run(start, script)
    assert (warm.returncode, warm.stdout, warm.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert warm.returncode == 1


def test_no_fork_after_cuda(place: Place) -> None:
    (place.folder / "modules" / "torch.py").write_text(
        "import os, types\npid = os.getpid()\ncuda = types.SimpleNamespace(is_initialized=lambda: True)\n"
    )
    script = place.script("import os, torch; print(torch.pid == os.getpid())")
    answer = place.run([*WARM[:-1], "torch"], script)
    (place.folder / "modules" / "torch.py").unlink()
    assert answer.stdout == b"True\n", answer.stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 2),
        (["--nonsense", "x.py"], 2),
        (["--prepare", "x.py"], 2),
        (["no-such-file.py"], 2),
        (["-m", "x"], 2),
    ],
)
def test_what_cannot_be_meant(place: Place, args: list[str], code: int) -> None:
    (place.folder / "work").mkdir(exist_ok=True)
    answer = place.run(WARM[:3], *args)
    assert answer.returncode == code
    assert answer.stderr


def test_without_a_server_it_just_runs(place: Place, tmp_path: Path) -> None:
    script = place.script("import sys; print(sys.argv); sys.exit(5)")
    env = {k: v for k, v in place.env().items() if k != "ARYL_WARM_DIR"}
    for more in ({}, {"ARYL_WARM_DIR": str(tmp_path / "nowhere")}):
        answer = subprocess.run(
            [*WARM, script, "x"],
            cwd=place.folder / "work",
            env=env | more,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (answer.returncode, answer.stdout) == (5, b"['train.py', 'x']\n"), answer.stderr


def test_prepared_beforehand(place: Place) -> None:
    (place.folder / "modules" / "big.py").write_text("from told import *\nimport os\npid = os.getpid()")
    start = [*WARM[:-1], "big"]
    assert place.run(start, "--prepare").returncode == 0
    wait_for(lambda: (place.folder / "warm" / "warm.sock").exists(), "the server")
    before = place.imports()
    script = place.script("import os, big; print(big.pid, os.getpid())")
    pids = place.run(start, script).stdout.split()
    assert pids[0] != pids[1]
    assert len(place.imports()) == len(before) or place.imports()[-1] == int(pids[0])


PARENT = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
if sys.argv[1] == 'daemon':
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        open('daemon', 'w').write(str(os.getpid())); time.sleep(600)
    os.wait()
    while not os.path.exists('daemon') or not open('daemon').read(): time.sleep(0.01)
signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), os.kill(child.pid, 9), sys.exit(0)))
print(os.getpid(), child.pid, open('daemon').read() if sys.argv[1] == 'daemon' else '', flush=True)
time.sleep(600)
"""


@pytest.fixture
def command(place: Place) -> Iterator[Callable[..., tuple[Command, list[bytes]]]]:
    """A script as the agent runs it: by a shell, under a supervisor."""
    open_: list[Command] = []

    def start(*args: str) -> tuple[Command, list[bytes]]:
        said: list[bytes] = []
        line = " ".join([*WARM, *args])
        open_.append(
            Command(
                ["sh", "-c", f"{line}; exit $?"],
                cwd=place.folder / "work",
                env=place.env(),
                output=said.append,
            )
        )
        return open_[-1], said

    yield start
    for one in open_:
        one.kill()
        one.wait(WAIT_S)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids_of(said: list[bytes]) -> list[int]:
    wait_for(lambda: b"\n" in b"".join(said), "the script's first line")
    return [int(n) for n in b"".join(said).splitlines()[0].split()]


def test_a_signal_is_the_scripts(place: Place, command: Any) -> None:
    running, said = command(place.script(PARENT), "plain")
    pids = pids_of(said)
    running.signal(signal.SIGTERM)
    # the shell dies of the signal, the script takes its time: as without a warm interpreter
    assert running.wait(WAIT_S) == 143
    assert b"asked" in b"".join(said)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("how", ["kill", "agent gone"])
def test_nothing_outlives_the_command(place: Place, command: Any, how: str) -> None:
    (place.folder / "work" / "daemon").unlink(missing_ok=True)
    running, said = command(place.script(PARENT), "daemon")
    pids = pids_of(said)
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    if how == "kill":
        running.kill()
        assert running.wait(WAIT_S) == 137
    else:
        os.kill(running.pid, signal.SIGKILL)  # not even the supervisor: what the end of a machine is like
        running.wait(WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            for pid in _clients(place):
                os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in pids), "the end of all")


def _clients(place: Place) -> list[int]:
    work = os.fsencode(place.folder / "work")
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode((entry / "cwd").readlink()) == work:
                found.append(int(entry.name))
    return found


def test_nothing_outlives_the_agent(place: Place, tmp_path: Path) -> None:
    """SIGKILL of a process that holds a Warmth: its server and what it forked are gone."""
    holder = tmp_path / "agent.py"
    holder.write_text(
        "import os, sys, time\nfrom pathlib import Path\nfrom arylcloud.agent.warmth import Warmth\n"
        f"Warmth(Path({str(tmp_path / 'warm')!r}), environ=dict(os.environ), log=print).start()\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    agent = subprocess.Popen([sys.executable, str(holder)], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    with agent.stdout:
        assert agent.stdout.readline() == b"up\n"
    script = place.script("import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(600)")
    client = subprocess.Popen(
        [*WARM, script],
        cwd=place.folder / "work",
        env=place.env(ARYL_WARM_DIR=str(tmp_path / "warm")),
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    with client.stdout:
        pids = [int(n) for n in client.stdout.readline().split()]
    agent.kill()
    agent.wait()
    assert client.wait(WAIT_S) == 137
    wait_for(lambda: not any(alive(pid) for pid in pids), "the end of all")
