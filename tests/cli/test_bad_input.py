"""Bad input: one clear line, a hint, the right exit code, no traceback, and nothing lost.

Every command is run twice, for people and with ``--json``: the same code and the same words.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.main import run
from arylcloud.core import events as ev
from arylcloud.core.job import JobSpec
from arylcloud.launcher.journal import Journal

Refuse = Callable[..., str]
OK = {"name": "t", "run": "true", "resources": {"accelerators": "T4:1"}}
PROFILED = {**OK, "aryl": {"profile": {"T4:1": 3.1, "unit": "steps/s"}, "work": "40000 steps"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("ARYLCLOUD_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def refuse(home: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """``refuse(code, kind, *args)``: what stands on stderr, all checks of form made."""

    def check(code: int, kind: str, *args: str) -> str:
        capsys.readouterr()
        assert run([*args]) == code
        out, err = capsys.readouterr()
        assert out == "", "an error is no data"
        lines = err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        hints = [line for line in lines if line.startswith("hint: ")]
        assert len(errors) == 1, err
        assert len(hints) == 1, f"no hint, or several: {err}"
        assert lines[-2:] == [*errors, *hints], "the error is not what stands last"
        assert len(errors[0]) < 250, "not one clear line"
        assert not errors[0].endswith(".")
        assert "Traceback" not in err

        assert run([*args, "--json"]) == code
        out, err = capsys.readouterr()
        document = json.loads(out)["error"]
        assert document["kind"] == kind
        assert f"error: {document['message']}" in err
        assert f"hint: {document['hint']}" in err
        assert f"error: {document['message']}" == errors[0]
        return f"{errors[0]}\n{hints[0]}"

    return check


def write(name: str, content: str | dict[str, Any]) -> str:
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    Path(name).write_text(text)
    return name


# ---------------------------------------------------------------- the job file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: t\n run: x\n", ["job.yaml:2:5", "not valid YAML"]),
        ("name: t\nresources:\n\taccelerators: T4\n", ["job.yaml:3:1", "tabs"]),
        ("", ["is empty", "arylcloud init"]),
        ("- a\n", ["job.yaml:1: a mapping", "not a list"]),
        ("just words\n", ["a mapping"]),
        ("name: t\n", ["run is missing"]),
        ("run: 'true'\nrun: 'false'\n", ["job.yaml:2: run stands twice", "line 1"]),
        ("run: 'true'\nworkdir: nosuch\n", ["workdir", "is no folder"]),
        ("run: 'true'\nresorces: {}\n", ["unknown key resorces", "did you mean resources?"]),
        ("run: 'true'\naryl: {bugdet: 5}\n", ["unknown key aryl.bugdet", "did you mean budget?"]),
        ("run: 'true'\naryl: {budget: -5}\n", ["aryl.budget: -5 is not more than zero"]),
        ("run: 'true'\naryl: {budget: $-5}\n", ["aryl.budget: $-5 is not more than zero"]),
        ("run: 'true'\naryl: {budget: lots}\n", ["is not an amount of money", "$500"]),
        ("run: 'true'\naryl: {deadline: 36}\n", ["aryl.deadline: 36 has no unit", "36h"]),
        ("run: 'true'\naryl: {deadline: tomorrow}\n", ["is not a duration"]),
        ("run: 'true'\naryl: {work: 4000}\n", ["aryl.work: 4000 has no unit", "steps"]),
        ("run: 'true'\naryl: {profile: {V100: 3.1}}\n", ["aryl.profile has no unit", "steps/s"]),
        ("run: 'true'\naryl: {profile: nosuch, work: 10 steps}\n", ["no profile is called 'nosuch'"]),
        ("run: 'true'\naryl: {nodes: 4..1}\n", ["ends below its beginning"]),
        ("run: 'true'\naryl: {on_node_loss: pray}\n", ["'pray' is none of"]),
        ("run: 'true'\nresources: {accelerators: [A1000:8]}\n", ["by the name 'A1000'", "did you mean A100"]),
        ("run: 'true'\nresources: {accelerators: [V100:0]}\n", ["whole number of GPUs"]),
        ("run: 'true'\nresources: {infra: k8s}\n", ["Kubernetes is not supported"]),
        ("run: 'true'\nresources: {image_id: docker:x}\n", ["resources.image_id is not supported"]),
        ("run: 'true'\nfile_mounts: {/x: {source: s3://b, mode: MOUNT}}\n", ["file_mounts is not supported"]),
        ("run: 'true'\nsecrets: {TOKEN: null}\n", ["TOKEN"]),
    ],
)  # fmt: skip
def test_a_job_file_that_is_wrong(refuse: Refuse, text: str, words: list[str]) -> None:
    said = refuse(2, "usage", "launch", write("job.yaml", text), "--infra", "local", "-y")
    for word in words:
        assert word in said


def test_a_job_file_that_is_not_there(refuse: Refuse) -> None:
    assert "no such file" in refuse(2, "usage", "plan", "nofile.yaml")
    assert "cannot be read" in refuse(2, "usage", "plan", ".")
    Path("bin.yaml").write_bytes(b"\xff\xfe\x00\x01")
    assert "is not UTF-8 text" in refuse(2, "usage", "plan", "bin.yaml")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--budget", "-5"], "--budget: -5 is not more than zero"),
        (["--gpus", "X9:2"], "no GPU is known by the name 'X9'"),
        (["--market", "flea"], "'flea' is no market"),
        (["--deadline", "3"], "--deadline: 3 has no unit"),
        (["--nodes", "0"], "--nodes: 0 is too few"),
        (["--infra", "a/b/c/d"], "is not CLOUD"),
        (["--nosuch"], "No such option: --nosuch"),
        (["--env", "novalue"], "--env"),
    ],
)
def test_flags_that_are_wrong(refuse: Refuse, flags: list[str], words: str) -> None:
    assert words in refuse(2, "usage", "plan", write("job.yaml", OK), *flags)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(["--budget", "0.01"], "budget $0.01"), (["--deadline", "1m"], "deadline 1 min")],
)
def test_a_wish_that_nothing_fulfils(refuse: Refuse, limit: list[str], words: str) -> None:
    """Exit 3, the limit that binds, and what would do."""
    said = refuse(3, "infeasible", "plan", write("job.yaml", PROFILED), *limit)
    assert words in said
    assert "the cheapest of all needs" in said or "the fastest of all needs" in said
    assert "to" in said.splitlines()[1]


def test_commands_that_there_are_not(refuse: Refuse) -> None:
    assert "No such command 'lauch'" in refuse(2, "usage", "lauch")
    assert "Missing argument" in refuse(2, "usage", "plan")


# ---------------------------------------------------------------- where to launch


@pytest.mark.parametrize(
    ("infra", "words"),
    [
        (["--infra", "mars"], "no offer is known for cloud 'mars'"),
        (["--infra", "lab"], "cannot launch on lab"),
        ([], "no cloud is named to launch on; say where: --infra aws (or gcp, azure, local, pool)"),
        (["--infra", "slurm"], "Slurm is not supported"),
    ],
)
def test_a_cloud_that_cannot_be_launched_on(home: Path, refuse: Refuse, infra: list[str], words: str) -> None:
    header = "cloud,region,instance_type,gpu,gpu_count,market,usd_per_hour\n"
    (home / "config").mkdir(parents=True)
    (home / "config" / "offers.csv").write_text(header + "lab,attic,box,T4,1,on_demand,0.1\n")
    assert words in refuse(2, "usage", "launch", write("job.yaml", OK), *infra, "-y")


def test_a_cloud_that_this_version_does_not_know(refuse: Refuse) -> None:
    assert "there is no provider called 'mars'" in refuse(2, "usage", "gc", "--infra", "mars")


def test_a_cloud_whose_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch, refuse: Refuse) -> None:
    """The error names the install command. (A cloud of this test alone: its module is not there.)"""
    from arylcloud.core.errors import MissingExtraError
    from arylcloud.providers import registry

    def load(name: str, **_: object) -> object:
        raise MissingExtraError(f"{name} needs its SDK", hint=f"pip install 'arylcloud[{name}]'")

    monkeypatch.setattr(registry, "load", load)
    assert "pip install 'arylcloud[aws]'" in refuse(2, "missing_extra", "gc", "--infra", "aws")


# ---------------------------------------------------------------- a plan on disk


@pytest.fixture
def plan(home: Path) -> dict[str, Any]:
    assert run(["plan", write("job.yaml", PROFILED), "-o", "plan.json", "--json"]) == 0
    found = json.loads(Path("plan.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_plan_that_was_changed(refuse: Refuse, plan: dict[str, Any]) -> None:
    plan["plan"]["chosen"]["offer"]["usd_per_hour"] = 0.01
    assert "has been changed" in refuse(7, "integrity", "launch", write("p.json", plan), "-y")


@pytest.mark.parametrize("version", [0, 99])
def test_a_plan_of_another_schema(refuse: Refuse, plan: dict[str, Any], version: int) -> None:
    plan["schema_version"] = version
    said = refuse(2, "usage", "launch", write("p.json", plan), "-y")
    assert f"has schema {version}, this version reads 1" in said


def test_half_a_plan(refuse: Refuse, plan: dict[str, Any]) -> None:
    assert "not valid JSON" in refuse(7, "integrity", "launch", write("p.json", json.dumps(plan)[:500]), "-y")
    del plan["plan"]["chosen"]
    assert "chosen is missing" in refuse(7, "integrity", "launch", write("p.json", plan), "-y")


def test_what_is_no_plan(refuse: Refuse) -> None:
    assert "is no plan" in refuse(2, "usage", "launch", write("p.json", {}), "-y")
    assert "no such file" in refuse(2, "usage", "launch", "nofile.json", "-y")


def test_a_plan_that_cannot_be_written(refuse: Refuse) -> None:
    said = refuse(2, "local_state", "plan", write("job.yaml", PROFILED), "-o", "/proc/nosuch/plan.json")
    assert "cannot be written" in said


# ---------------------------------------------------------------- jobs that there are not


@pytest.mark.parametrize("command", ["logs", "events", "stop", "resume", "report", "migrate"])
def test_no_job_at_all(refuse: Refuse, command: str) -> None:
    assert "no job has been launched from here yet" in refuse(102, "no_such_job", command)


@pytest.mark.parametrize("command", ["status", "logs", "events", "stop", "resume", "report", "migrate"])
def test_no_such_job(refuse: Refuse, command: str) -> None:
    assert "no job is called 'nosuch'" in refuse(102, "no_such_job", command, "nosuch")


def test_no_such_job_to_exec_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """(Everything after the job's name belongs to the command: ``--json`` stands before it.)"""
    assert run(["exec", "--json", "nosuch", "--", "ls"]) == 102
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "no_such_job"


def test_nothing_to_adopt(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "x-1").mkdir(parents=True)
    assert "holds no job.json" in refuse(102, "no_such_job", "adopt", (tmp_path / "jobs" / "x-1").as_uri())
    assert "there is no object store" in refuse(5, "store", "adopt", (tmp_path / "nowhere").as_uri())
    assert "is not the address of an object store" in refuse(2, "usage", "adopt", "somewhere")


# ---------------------------------------------------------------- our own folder


def test_a_file_where_the_folder_should_be(refuse: Refuse, home: Path) -> None:
    home.write_text("x")
    for args in (["status"], ["gc"], ["launch", write("job.yaml", OK), "--infra", "local", "-y"]):
        said = refuse(2, "local_state", *args)
        assert str(home) in said
        assert "ARYLCLOUD_HOME" in said
    assert run(["plan", "job.yaml"]) == 0, "a plan needs no folder of ours"


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_journal(refuse: Refuse, home: Path, content: bytes) -> None:
    (home / "state").mkdir(parents=True)
    path = home / "state" / "journal.db"
    path.write_bytes(content)
    for args in (["status"], ["gc"], ["launch", write("job.yaml", OK), "--infra", "local", "-y"]):
        said = refuse(7, "integrity", *args)
        assert str(path) in said
        assert "arylcloud adopt URI" in said
    assert path.read_bytes() == content, "nothing is written over it"
    assert not (home / "state" / "local-cloud").exists(), "and nothing is started"


def test_a_damaged_record(refuse: Refuse, home: Path) -> None:
    """One flipped byte in one record: named, and never folded."""
    import sqlite3

    add_job(home)
    with sqlite3.connect(home / "state" / "journal.db") as db:
        db.execute("UPDATE records SET body = replace(body, 'true', 'TRUE')")
    db.close()
    assert "record 1 of t-00000001" in refuse(7, "integrity", "report", "t-00000001")


def add_job(home: Path, job_id: str = "t-00000001") -> None:
    (home / "state").mkdir(parents=True, exist_ok=True)
    prefix = home / "state" / "store" / "jobs" / job_id
    prefix.mkdir(parents=True)
    from arylcloud.checkpoint.store import open_store

    with Journal(home / "state" / "journal.db") as journal:
        submitted = ev.JobSubmitted(
            spec=JobSpec(name="t", run="true"),
            prefix_uri=prefix.as_uri(),
            journal_id=journal.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
        )
        journal.append(job_id, 1.0, "w", submitted, mirror=open_store(prefix.as_uri()))


def test_a_name_that_fits_several_jobs(refuse: Refuse, home: Path) -> None:
    add_job(home, "t-00000001")
    add_job(home, "t-00000002")
    said = refuse(2, "usage", "report", "t-0")
    assert "fits 2 jobs" in said


def test_a_second_launcher(refuse: Refuse, home: Path) -> None:
    """Whoever comes second leaves, says who is first, and has touched nothing."""
    add_job(home)
    with Journal(home / "state" / "journal.db") as journal, journal.claim("t-00000001"):
        before = journal.records("t-00000001")
        said = refuse(6, "conflict", "serve", "--job", "t-00000001")
        assert f"process {os.getpid()}" in said
        assert journal.records("t-00000001") == before


# ---------------------------------------------------------------- disks


def mounted(folder: Path, *options: str) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A file system of its own (needs root: skipped without)."""
    made: list[Path] = []

    def make(name: str, *options: str) -> Path:
        folder = tmp_path / name
        if not mounted(folder, *options):
            pytest.skip("mounting needs more rights than this process has")
        made.append(folder)
        return folder

    yield make
    for folder in made:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_state_folder_that_cannot_be_written(
    refuse: Refuse, mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mount("readonly", "-o", "ro")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(folder))
    job = write("job.yaml", OK)
    for args in (["status"], ["gc"], ["launch", job, "--infra", "local", "-y"]):
        said = refuse(2, "local_state", *args)
        assert "Read-only file system" in said
        assert "ARYLCLOUD_HOME" in said
    assert run(["plan", job]) == 0


def test_a_state_folder_that_is_read_only_can_be_read(
    mount: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    home: Path,
) -> None:
    """A journal of before is shown, or refused in one line: never a traceback."""
    folder = mount("later", "-o", "size=8m")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(folder))
    add_job(folder)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    code = run(["events", "t-00000001", "--json"])
    out, err = capsys.readouterr()
    json.loads(out)
    assert code in (0, 2)
    assert "Traceback" not in err


def test_a_full_disk(mount: Callable[..., Path], refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a byte is free: said so, and the same command succeeds once there is room."""
    folder = mount("full", "-o", "size=1m")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(folder))
    add_job(folder)
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"\0" * 4096)
    said = refuse(2, "local_state", "launch", write("job.yaml", OK), "--infra", "local", "-y")
    assert "No space left" in said or "full" in said
    ballast.unlink()
    with Journal(folder / "state" / "journal.db") as journal:
        assert journal.jobs() == ("t-00000001",), "nothing of before is lost, nothing half is there"
        assert len(journal.records("t-00000001")) == 1


# ---------------------------------------------------------------- pipes


@pytest.mark.parametrize("args", [["prices"], ["prices", "--json"], ["profile", "list"]])
def test_a_reader_that_leaves(home: Path, args: list[str]) -> None:
    """``| head -1``: quiet."""
    process = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *args, *(["--limit", "900"] if args[0] == "prices" else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 0
    assert "error" not in err
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_within_a_command_is_said(
    home: Path, flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arylcloud.cli.settings.folders", stop)
    assert run(["profile", "list", *flags]) == 130
    out, err = capsys.readouterr()
    assert "error: interrupted" in err
    assert "hint:" in err
    assert not flags or json.loads(out)["error"]["kind"] == "interrupted"


def test_a_store_that_is_no_address(home: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    job = home.parent / "t.yaml"
    job.write_text(json.dumps(PROFILED))
    assert "'s3://[bad' is no address" in refuse(2, "usage", "launch", str(job), "-y", "--store", "s3://[bad")
    monkeypatch.setenv("ARYLCLOUD_STORE", "s3://[bad")
    assert "'s3://[bad' is no address" in refuse(2, "usage", "plan", str(job))
