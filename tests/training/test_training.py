"""The library that a training script imports: alone, and under a kill at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from arylcloud import training as aryl
from arylcloud.training.progress import Reporter

VARIABLES = [
    "ARYL_JOB_ID",
    "ARYL_ATTEMPT",
    "ARYL_CHECKPOINT_DIR",
    "ARYL_PROGRESS_FILE",
    "ARYL_NODE_RANK",
    "ARYL_NUM_NODES",
    "ARYL_NODE_IPS",
    "ARYL_NOTICE_FILE",
    "ARYL_WARNING_FILE",
    "ARYL_CHECKPOINT_INTERVAL_S",
]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str = "x") -> None:
    (folder / "sub").mkdir()
    (folder / "w").write_text(text)
    (folder / "sub/v").write_text(text)


def script(code: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_plain_run_needs_no_variable(plain: Path) -> None:
    assert aryl.info() == aryl.Info(
        job_id=None,
        attempt=1,
        rank=0,
        world=1,
        node_ips=(),
        checkpoint_dir=Path("checkpoints"),
        progress_file=None,
        notice_file=None,
        warning_file=None,
        checkpoint_interval_s=None,
    )
    assert aryl.latest() is None
    aryl.progress(1, 2)
    with aryl.save(1) as folder:
        write(folder)
    assert aryl.latest() == Path("checkpoints/step-1")
    assert aryl.notice_seconds_left() is None
    assert not aryl.should_stop()
    aryl.finished()
    assert sorted(p.name for p in plain.iterdir()) == ["checkpoints"]


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = [
        "gpt-1a2b",
        "3",
        str(tmp_path / "c"),
        "p.json",
        "1",
        "2",
        "10.0.0.1\n10.0.0.2\n",
        "n.json",
        "w.json",
        "12.5",
    ]
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    info = aryl.info()
    assert (info.job_id, info.attempt, info.rank, info.world) == ("gpt-1a2b", 3, 1, 2)
    assert info.node_ips == ("10.0.0.1", "10.0.0.2")
    assert info.checkpoint_dir == tmp_path / "c"
    assert info.checkpoint_interval_s == 12.5
    for name, odd in (("ARYL_ATTEMPT", "x"), ("ARYL_NODE_RANK", ""), ("ARYL_CHECKPOINT_INTERVAL_S", "nan")):
        monkeypatch.setenv(name, odd)
    assert (aryl.info().attempt, aryl.info().rank, aryl.info().checkpoint_interval_s) == (1, 0, None)


def test_only_complete_checkpoints_are_found(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    for name in ("step-5", "step-40", "step-x", ".step-50", "step-60.tmp", "other"):
        (root / name).mkdir(parents=True)
        (root / name / "w").write_text("")
    assert aryl.completed() == []  # written in place, no mark: nobody can know
    (root / "step-5/_COMPLETE").touch()
    (root / ".step-50/_COMPLETE").touch()
    assert aryl.completed() == [(5, Path("checkpoints/step-5"))]
    time.sleep(0.02)  # past the kernel's clock tick
    (root / "step-60.tmp").rename(root / "step-60")
    (root / "step-7").write_text("a file")
    (root / "step-99").symlink_to(root / "step-5")
    assert [step for step, _ in aryl.completed()] == [5, 60]
    assert aryl.latest() == Path("checkpoints/step-60")
    assert aryl.latest(tmp_path / "nowhere") is None


def test_save_is_all_or_nothing(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"

    class Boom(Exception):
        pass

    def fail(error: BaseException) -> None:
        with aryl.save(2) as folder:
            write(folder)
            assert aryl.latest() == Path("checkpoints/step-1")
            raise error

    with aryl.save(1) as folder:
        write(folder, "one")
        assert aryl.latest() is None
    for error in (Boom(), KeyboardInterrupt(), SystemExit(1)):
        with pytest.raises(type(error)):
            fail(error)
        assert [p.name for p in root.iterdir()] == ["step-1"]
    assert sorted(p.name for p in (root / "step-1").iterdir()) == ["_COMPLETE", "sub", "w"]


def test_save_replaces_and_prunes(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    for step in (1, 2, 3, 10):
        with aryl.save(step) as folder:
            write(folder, str(step))
    assert sorted(p.name for p in root.iterdir()) == ["step-10", "step-3"]
    with aryl.save(10) as folder:
        write(folder, "again")
    assert (root / "step-10/w").read_text() == "again"
    assert sorted(p.name for p in root.iterdir()) == ["step-10", "step-3"]
    with aryl.save(4, keep=1) as folder:  # a run that began anew: the later ones are not its to remove
        write(folder)
    assert sorted(p.name for p in root.iterdir()) == ["step-10", "step-4"]
    (root / "step-2").mkdir()  # incomplete, not ours
    with aryl.save(11, keep=3) as folder:
        write(folder)
    assert sorted(p.name for p in root.iterdir()) == ["step-10", "step-11", "step-2", "step-4"]


def test_under_arylcloud_a_save_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's copy is what counts: nothing is synced, and what goes is removed beside the training."""
    monkeypatch.setenv("ARYL_JOB_ID", "j")
    monkeypatch.setattr("os.fsync", lambda _: pytest.fail("synced"))
    root = tmp_path / "checkpoints"
    for step in (1, 2, 3, 3):
        with aryl.save(step, sharded=True) as folder:
            write(folder, str(step))
        seen = sorted(p.name for p in root.iterdir() if not p.name.startswith("."))
        assert seen == [f"step-{n}" for n in range(max(1, step - 1), step + 1)]
    for thread in threading.enumerate():
        if thread.name == "aryl-prune":
            thread.join(120)
    assert sorted(p.name for p in root.iterdir()) == ["step-2", "step-3"]
    assert (root / "step-3" / "_SHARDED").exists()


def test_leftovers_go_but_not_those_of_a_living_process(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    alive = script("import time; time.sleep(60)")
    dead = script("pass")
    dead.communicate()
    for name in (f".step-1.{alive.pid}", f".step-1.{dead.pid}", f".step-5.{os.getpid()}", ".step-3.old"):
        (root / name).mkdir(parents=True)
    try:
        with aryl.save(7) as folder:
            write(folder)
        assert sorted(p.name for p in root.iterdir()) == [f".step-1.{alive.pid}", "step-7"]
    finally:
        alive.kill()
        alive.communicate()


SAVER = """
from arylcloud import training as aryl
step = int(aryl.latest().name[5:]) if aryl.latest() else 0
print("ready", flush=True)
while True:
    step += 1
    with aryl.save(step) as folder:
        for name in "abcdef":
            (folder / name).write_text(str(step) * 20000)
    print(step, flush=True)
"""


def test_killed_at_any_moment_it_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    last = 0
    for turn in range(10):
        process = script(SAVER)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(turn % 4):
            process.stdout.readline()
        time.sleep(0.003 * turn)
        process.kill()
        process.communicate()
        for step, path in aryl.completed():
            for name in "abcdef":
                assert (path / name).read_text() == str(step) * 20000
        newest = aryl.completed()[-1][0] if aryl.completed() else 0
        assert newest >= last
        last = newest
    assert last >= sum(turn % 4 for turn in range(10))


def test_progress_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.json"
    monkeypatch.setenv("ARYL_PROGRESS_FILE", str(path))
    reporter = Reporter()
    reporter.progress(1, 100)
    first = json.loads(path.read_text())
    assert abs(first.pop("at_s") - time.time()) < 60
    begun_s = first.pop("first_at_s")
    assert abs(begun_s - time.time()) < 60
    assert first == {"step": 1, "total_steps": 100, "save_s": None, "finished": False}
    begun = time.monotonic()
    writes = 0
    inode = path.stat().st_ino
    for step in range(2, 5000):
        reporter.progress(step, None)
        if path.stat().st_ino != inode:
            inode = path.stat().st_ino
            writes += 1
    assert writes <= (time.monotonic() - begun) / 0.2 + 1
    reporter.saved(4999, 0.25)
    assert json.loads(path.read_text())["save_s"] == 0.25
    reporter.finished()
    last = json.loads(path.read_text())
    assert (last["step"], last["total_steps"], last["finished"]) == (4999, 100, True)
    assert last["first_at_s"] == begun_s < last["at_s"]
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_the_agent_reads_what_the_library_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from arylcloud.agent.progress import read

    path = tmp_path / "p.json"
    monkeypatch.setenv("ARYL_PROGRESS_FILE", str(path))
    reporter = Reporter()
    reporter.progress(7, 70)
    reporter.saved(7, 1.5)
    told = read(path)
    assert (told.step, told.total_steps, told.save_s, told.finished) == (7, 70, 1.5, False)
    reporter.finished()
    assert read(path).finished


def test_progress_that_cannot_be_written_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARYL_PROGRESS_FILE", str(tmp_path / "no/such/p.json"))
    reporter = Reporter()
    reporter.progress(1, 2)
    reporter.saved(2, 0.1)
    reporter.finished()
    assert capsys.readouterr().err.count("progress cannot be written") == 1


def test_readers_never_see_half_a_progress_file(tmp_path: Path) -> None:
    code = """
from arylcloud.training.progress import Reporter
reporter = Reporter()
print("ready", flush=True)
step = 0
while True:
    step += 1
    reporter.saved(step, 0.1)
"""
    path = tmp_path / "p.json"
    process = script(code, ARYL_PROGRESS_FILE=str(path))
    assert process.stdout is not None
    process.stdout.readline()
    try:
        seen = 0
        for _ in range(3000):
            if path.exists():
                step = json.loads(path.read_text())["step"]
                assert step >= seen
                seen = step
        assert seen > 0
    finally:
        process.kill()
        process.communicate()


STOPPER = """
import time
from arylcloud import training as aryl
aryl.install()
print("ready", flush=True)
while not aryl.should_stop():
    time.sleep(0.01)
print("stopped", aryl.notice_seconds_left())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_to_stop(number: signal.Signals) -> None:
    process = script(STOPPER)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "stopped None\n", "")


CLOSING = """
import os, signal
from arylcloud import training as aryl
class Last:
    kill = staticmethod(os.kill)
    def __del__(self, pid=os.getpid(), number=signal.SIGTERM):
        self.kill(pid, number)
        print("the signal has come", flush=True)
last = Last()
aryl.install()
"""


def test_a_signal_while_the_interpreter_closes_makes_no_failure_of_the_end() -> None:
    process = script(CLOSING)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "the signal has come\n", "")


def test_a_notice_asks_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notice.json"
    monkeypatch.setenv("ARYL_NOTICE_FILE", str(path))
    assert aryl.notice_seconds_left() is None
    path.write_text(json.dumps({"action": "terminate", "at_s": time.time() + 100, "seen_s": time.time()}))
    left = aryl.notice_seconds_left()
    assert left is not None
    assert 50 < left <= 100
    assert aryl.should_stop()
    for text in (json.dumps({"at_s": time.time() - 5}), "not json", "[]", "{}"):
        path.write_text(text)
        assert aryl.notice_seconds_left() == 0.0


def test_cadence(monkeypatch: pytest.MonkeyPatch) -> None:
    from arylcloud.training import checkpoints

    now = [1000.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(checkpoints._Last, "at", None)
    assert not aryl.should_checkpoint(10.0)
    now[0] += 9.9
    assert not aryl.should_checkpoint(10.0)
    now[0] += 0.2
    assert aryl.should_checkpoint(10.0)
    assert aryl.should_checkpoint(10.0)  # until it is saved
    with aryl.save(1) as folder:
        write(folder)
    assert not aryl.should_checkpoint(10.0)
    monkeypatch.setenv("ARYL_CHECKPOINT_INTERVAL_S", "2")
    now[0] += 2.1
    assert aryl.should_checkpoint(10.0)


def test_it_stands_alone(tmp_path: Path) -> None:
    """Copied out on its own it works: nothing but the standard library is imported."""
    import shutil

    shutil.copytree(Path(aryl.__file__).parent, tmp_path / "lib/arylcloud/training")
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom arylcloud import training\n"
        "print(training.info().attempt, sorted(m for m in set(sys.modules) - before"
        " if m.split('.')[0] not in sys.stdlib_module_names and not m.startswith('arylcloud')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 []\n"
