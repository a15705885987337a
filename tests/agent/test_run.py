"""A command from start to end, with the real agent: exit codes, names, logs, set-up, exec."""

from __future__ import annotations

import os
import time

import pytest

from arylcloud.checkpoint.store import local_file
from arylcloud.core.codec import dumps, loads
from arylcloud.core.protocol import (
    SECRETS_KEY,
    ExecRequest,
    ExecResult,
    exec_key,
    exec_result_key,
)

from .conftest import Job, alive, spec, wait_for


@pytest.mark.parametrize(
    ("run", "code", "finished"),
    [
        ("echo fine", 0, True),
        ("echo bad; exit 1", 1, False),
        ("exit 7", 7, False),
        ("kill -9 $$", 137, False),
        ("python3 -c 'import os; os.kill(os.getpid(), 9)'; exit $?", 137, False),
        ("kill -TERM $$", 143, False),
        ("no-such-command-anywhere", 127, False),
    ],
)
def test_the_exit_code_is_the_commands_own(job: Job, run: str, code: int, finished: bool) -> None:
    job.submit(spec(run))
    machine = job.machine()
    job.open_epoch("lease-a")
    beat = machine.phase("exited")
    end = job.end(1)
    assert end is not None
    assert (end.exit_code, end.finished, end.signalled) == (code, finished, False)
    assert beat.exit_code == code
    assert beat.drained_epoch == 1


def test_a_run_is_logged_committed_and_reported(job: Job) -> None:
    job.submit(spec("echo hello; python3 train.py 20 5 0.02; echo oops >&2; exit 3"))
    machine = job.machine()
    machine.phase("ready")
    job.open_epoch("lease-a")
    beat = machine.phase("exited")
    end = job.end(1)
    assert end is not None
    assert end.exit_code == 3
    assert end.step == 20
    assert "oops" in end.tail
    # the log was complete before the end was said
    log = job.log("e000001-r00")
    assert log.splitlines() == ["hello", "begin at 0", "oops"]
    manifests = job.manifests()
    assert [m.number for m in manifests] == list(range(1, len(manifests) + 1))
    assert manifests[-1].step == 20
    assert (beat.committed, beat.committed_step) == (manifests[-1].key, 20)
    assert beat.first_step_s is not None
    assert beat.command_started_s is not None
    assert beat.first_step_s >= beat.command_started_s


@pytest.mark.parametrize("told", [True, False])
def test_when_the_first_step_was_is_by_its_own_word(job: Job, told: bool) -> None:
    """Also where it was over before anybody looked. Without a word: when it last told of any."""
    write = (
        "import json, os, time; began = time.time(); time.sleep(0.05);"
        "json.dump({'step': 7, 'at_s': time.time()} | ({'first_at_s': began} if BOTH else {}),"
        " open(os.environ['ARYL_PROGRESS_FILE'], 'w')); print(began)"
    ).replace("BOTH", str(told))
    job.submit(spec(f'python3 -c "{write}"'))
    machine = job.machine()
    job.open_epoch("lease-a")
    beat = machine.phase("exited")
    began_s = float(job.log("e000001-r00"))
    assert beat.first_step_s is not None
    assert (beat.first_step_s == began_s) is told
    assert beat.first_step_s >= began_s


def test_the_names_that_processes_get(job: Job) -> None:
    files = {"names.py": "import json, os\nopen('out.json', 'w').write(json.dumps(dict(os.environ)))\n"}
    job.submit(
        spec("python3 names.py; exit 1", envs={"MY": "x y", "PATHS": "a:b"}, secret_names=("TOKEN",)), files
    )
    job.store.put(SECRETS_KEY, dumps({"TOKEN": "s3cr3t", "OTHER": "not asked for"}))
    machine = job.machine(ARYL_GPUS="", IMAGE_SETS="this")
    job.open_epoch("someone-else", "lease-a", checkpoint_interval_s=12.5)
    machine.phase("exited")
    from .conftest import read_json

    env = read_json(machine.home / "workdir" / "out.json")
    assert {
        name: env[name]
        for name in (
            "ARYL_JOB_ID",
            "ARYL_ATTEMPT",
            "ARYL_NODE_RANK",
            "ARYL_NUM_NODES",
            "ARYL_NODE_IPS",
            "ARYL_CHECKPOINT_INTERVAL_S",
            "MASTER_ADDR",
            "MASTER_PORT",
            "SKYPILOT_NODE_RANK",
            "SKYPILOT_NUM_NODES",
            "SKYPILOT_NODE_IPS",
            "SKYPILOT_TASK_ID",
            "MY",
            "TOKEN",
            "IMAGE_SETS",
        )
    } == {
        "ARYL_JOB_ID": "job-1",
        "ARYL_ATTEMPT": "1",
        "ARYL_NODE_RANK": "1",
        "ARYL_NUM_NODES": "2",
        "ARYL_NODE_IPS": "127.0.0.2\n127.0.0.3",
        "ARYL_CHECKPOINT_INTERVAL_S": "12.5",
        "MASTER_ADDR": "127.0.0.2",
        "MASTER_PORT": "29500",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_IPS": "127.0.0.2\n127.0.0.3",
        "SKYPILOT_TASK_ID": "job-1",
        "MY": "x y",
        "TOKEN": "s3cr3t",
        "IMAGE_SETS": "this",
    }
    assert env["ARYL_CHECKPOINT_DIR"] == str(machine.checkpoints)
    assert "OTHER" not in env
    assert not {"ARYL_PREFIX_URI", "ARYL_JOURNAL_ID", "ARYL_UNTIL_S"} & set(env)
    # a secret reaches the processes only: neither disk nor log of ours
    for path in machine.home.rglob("*"):
        if path.is_file() and path.name != "out.json":
            assert b"s3cr3t" not in path.read_bytes(), path


def test_a_failed_setup_is_the_jobs_fault(job: Job) -> None:
    job.submit(spec("echo never", setup="echo preparing; echo no such wheel >&2; exit 9"))
    first, second = job.machine("lease-a"), job.machine("lease-b")
    for machine in (first, second):
        beat = machine.phase("broken")
        assert beat.exit_code == 9
        assert "setup" in (beat.message or "")
        mine = [e for e in job.ends() if e.lease_id == machine.lease_id]  # before it called itself broken
        assert [(e.in_setup, e.exit_code, e.finished) for e in mine] == [(True, 9, False)]
        assert "no such wheel" in mine[0].tail
        wait_for(lambda m=machine: "preparing" in job.log(f"boot-{m.lease_id}"))
    job.open_epoch("lease-a")
    time.sleep(0.6)
    assert job.end(1) is None  # a broken machine runs nothing


def test_setup_runs_once_per_machine_in_the_jobs_environment(job: Job) -> None:
    job.submit(spec("cat made; exit 5", setup="echo $GREETING >> made", envs={"GREETING": "hi"}))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.phase("exited")
    job.open_epoch("lease-a")
    wait_for(lambda: job.end(2))
    assert job.log("e000002-r00") == "hi\n"


def test_what_the_command_leaves_behind_is_ended(job: Job) -> None:
    job.submit(spec("(setsid sleep 300 & echo $! > left); (sleep 300 & echo $! >> left); exit 0"))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.phase("exited")
    pids = [int(line) for line in (machine.home / "workdir" / "left").read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_exec_runs_beside_the_command(job: Job) -> None:
    job.submit(spec("sleep 60", envs={"MY": "own"}))

    def ask(name: str, *argv: str, rank: int = 0, timeout_s: float = 30.0, at_s: float | None = None) -> None:
        request = ExecRequest(
            request_id=name, rank=rank, argv=argv, timeout_s=timeout_s, at_s=at_s or time.time()
        )
        job.store.create(exec_key(name), dumps(request))

    ask("d3", "touch", "long-ago")
    written = local_file(job.store, exec_key("d3"))
    assert written is not None
    os.utime(written, (time.time() - 3600, time.time() - 3600))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.phase("running")
    ask("e4", "echo", "clocks differ", at_s=time.time() - 3600)
    ask("b1", "sh", "-c", "echo $MY $ARYL_NODE_RANK; pwd; exit 4")
    ask("a0", "sh", "-c", "sleep 50", timeout_s=0.3)  # sorts before b1: order of names means nothing
    ask("c2", "touch", "other-rank", rank=1)

    def answer(name: str) -> ExecResult:
        data = wait_for(lambda: job.store.get(exec_result_key(name, 0)), why=name)
        return loads(ExecResult, data)

    found = answer("b1")
    assert found.exit_code == 4
    assert found.output == f"own 0\n{machine.home / 'workdir'}\n"
    assert answer("a0").exit_code == 124
    assert answer("e4").output == "clocks differ\n"
    assert not (machine.home / "workdir" / "other-rank").exists()
    assert not (machine.home / "workdir" / "long-ago").exists()
    assert machine.phase("running").exit_code is None


def test_the_command_does_not_outlive_its_agent(job: Job) -> None:
    job.submit(spec("(setsid sleep 300 & echo $! > pids); sleep 300 & echo $! >> pids; wait"))
    machine = job.machine()
    job.open_epoch("lease-a")
    pids = wait_for(
        lambda: len(lines := _lines(machine.home / "workdir" / "pids")) == 2 and [int(x) for x in lines]
    )
    assert all(alive(pid) for pid in pids)
    machine.kill()
    wait_for(lambda: not any(alive(pid) for pid in pids), why=f"the end of {pids}")


def _lines(path) -> list[str]:  # type: ignore[no-untyped-def]
    return path.read_text().split() if path.exists() else []
