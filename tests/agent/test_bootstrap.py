"""The boot stub under the real ``sh``: what it fetches, what it refuses, and that it says why."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from arylcloud.agent import bootstrap
from arylcloud.agent.bootstrap import user_data
from arylcloud.agent.runtime import build_runtime
from arylcloud.core.codec import dumps
from arylcloud.core.errors import UsageError
from arylcloud.core.protocol import BootDoc, LentDoc

from .conftest import WAIT_S, Job, read_json, spec, wait_for

PYTHON = Path(sys.executable)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return build_runtime(tmp_path_factory.mktemp("cache"))


def stub(job: Job, runtime: tuple[Path, str], **more: object) -> str:
    path, digest = runtime
    arguments: dict[str, object] = {
        "store_uri": "file:///unused",
        "prefix_uri": job.store.uri,
        "runtime_sha256": digest,
        "runtime_url": path.as_uri(),
        "job_id": job.job_id,
        "lease_id": "lease-a",
        "journal_id": "journal",
        "until_s": time.time() + 3600,
        "metadata": {"protocol": "none"},
        "env": {"ARYL_LINGER_S": "0.5"},
        "fetch_tries": 1,
        **more,
    }
    return user_data(**arguments)  # type: ignore[arg-type]


def boot(job: Job, text: str, **env: str) -> tuple[int, str]:
    """Run a stub to its end. Returns its exit code and boot.log."""
    home = job.folder / "machine a"  # a blank in the name
    home.mkdir(exist_ok=True)
    (home / "stub").write_text(text)
    base = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", "HOME": str(home)}
    done = subprocess.run(
        ["sh", "stub"],
        cwd=home,
        env={**base, **env},
        start_new_session=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, (home / "boot.log").read_text()


def test_from_stub_to_a_commands_end(job: Job, runtime: tuple[Path, str]) -> None:
    names = (
        "import importlib.util as u, json, os, arylcloud.training\n"
        "import mine\n"
        "found = {n: u.find_spec(n) is not None for n in ('arylcloud.core', 'arylcloud.agent')}\n"
        "found['obstore of ours'] = 'runtime' in str(getattr(u.find_spec('obstore'), 'origin', ''))\n"
        "found['mine'] = mine.WHO\n"
        "found['path'] = os.environ['PYTHONPATH'].split(os.pathsep)\n"
        "open('out.json', 'w').write(json.dumps(found))\n"
    )
    job.submit(spec("python3 -S names.py; exit 7", secret_names=()), {"names.py": names})
    theirs = job.folder / "theirs"
    theirs.mkdir()
    (theirs / "mine.py").write_text("WHO = 'the image'\n")
    job.open_epoch("lease-a")
    code, log = boot(job, stub(job, runtime), PYTHONPATH=str(theirs))
    assert code == 0, log
    end = job.end(1)
    assert end is not None
    assert end.exit_code == 7, end.tail
    found = read_json(job.folder / "machine a" / "workdir" / "out.json")
    assert found == {
        "arylcloud.core": False,
        "arylcloud.agent": False,
        "obstore of ours": False,
        "mine": "the image",
        "path": [str(theirs), str(job.folder / "machine a" / "runtime" / "user")],
    }


def test_the_first_loan_comes_by_a_document_and_is_seen_by_nobody(
    job: Job, runtime: tuple[Path, str]
) -> None:
    path, _ = runtime
    lent = LentDoc(secret={"token": "l0an"}, expires_s=time.time() + 3600)
    document = job.folder / "boot.json"
    document.write_bytes(dumps(BootDoc(runtime_url=path.as_uri(), lent=lent)))
    look = "env; ls -R ..; cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'"
    job.submit(spec(f"({look}) > seen; exit 7", secret_names=()))
    job.open_epoch("lease-a")
    text = stub(job, runtime, runtime_url="", boot_url=document.as_uri())
    assert path.as_uri() not in text
    code, log = boot(job, text)
    assert code == 0, log
    end = job.end(1)
    assert end is not None
    assert end.exit_code == 7, end.tail
    home = job.folder / "machine a"
    assert not (home / "lent.json").exists()
    seen = (home / "workdir" / "seen").read_text()
    assert "PATH=" in seen
    assert "l0an" not in seen
    assert "lent.json" not in seen
    assert "l0an" not in log


def test_the_stub_is_small_holds_what_it_is_told_and_quotes_it(job: Job, runtime: tuple[Path, str]) -> None:
    text = stub(job, runtime, env={"GREETING": "it's $HOME `date`\nand more"})
    folders = (str(job.folder), str(runtime[0].parent))  # as long as this machine's happen to be
    assert len(text.encode()) - sum(text.count(one) * len(one.encode()) for one in folders) < 4096
    job.submit(spec('printf %s "$GREETING" > out; exit 1'))
    job.open_epoch("lease-a")
    boot(job, text.replace("export GREETING", "export ARYL_LINGER_S=0.5\nexport GREETING"))
    assert (job.folder / "machine a" / "workdir" / "out").read_text() == "it's $HOME `date`\nand more"


def fake_python(folder: Path, version: str) -> Path:
    """A python3 that says it is of ``version``, and is real in all else."""
    folder.mkdir()
    (folder / "python3").write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -S ] && exec {PYTHON} -S -c "import sys; sys.version_info = {version}; '
        'exec(open(sys.argv[1]).read())" "$2"\n'
        f'exec {PYTHON} "$@"\n'
    )
    (folder / "python3").chmod(0o755)
    return folder


def test_an_old_python_is_one_clear_line(job: Job, runtime: tuple[Path, str]) -> None:
    old = fake_python(job.folder / "bin", "(3, 10, 2, 'final', 0)")
    code, log = boot(job, stub(job, runtime), PATH=f"{old}:/usr/bin:/bin")
    assert code == 1
    assert log.count("\n") == 1
    assert log.endswith(" arylcloud needs Python 3.11 or newer, and this machine's image has 3.10\n")
    assert job.log("boot-lease-a") == log  # field case 84: where `logs --provision` looks


def test_no_python_at_all_is_one_clear_line(job: Job, runtime: tuple[Path, str]) -> None:
    tools = job.folder / "bin"
    tools.mkdir()
    for name in ("sh", "date", "tee", "mkdir", "cp", "cat"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    code, log = boot(job, stub(job, runtime), PATH=str(tools))
    assert code == 1
    assert log.endswith("this machine's image has no python3\n")


def test_a_runtime_that_is_not_the_one_is_refused(job: Job, runtime: tuple[Path, str]) -> None:
    path = job.folder / "other.zip"
    path.write_bytes(runtime[0].read_bytes()[:-1] + b"x")
    code, log = boot(job, stub(job, runtime, runtime_url=path.as_uri()))
    assert code == 1
    assert "sha256" in log
    assert not (job.folder / "machine a" / "runtime").exists()
    code, log = boot(job, stub(job, runtime, runtime_url=(job.folder / "none.zip").as_uri()))
    assert code == 1
    assert "FileNotFoundError" in log


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../../b", "back\\slash", "link"])
def test_an_unsafe_archive_is_refused(job: Job, name: str) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (stat.S_IFLNK if name == "link" else stat.S_IFREG) << 16
        archive.writestr(info, "x")
    path = job.folder / "bad.zip"
    path.write_bytes(data.getvalue())
    digest = hashlib.sha256(data.getvalue()).hexdigest()
    code, log = boot(job, stub(job, (path, digest)))
    assert code == 1
    assert "unsafe name" in log
    assert not (job.folder / "machine a" / "runtime").exists()
    assert not (job.folder / "out").exists()


def test_a_failed_boot_ends_the_machine(job: Job, runtime: tuple[Path, str]) -> None:
    text = stub(job, ((job.folder / "none"), runtime[1]), env={"ARYL_POWEROFF": "touch off"})
    assert boot(job, text)[0] == 1
    assert (job.folder / "machine a" / "off").exists()


@pytest.mark.parametrize("whose", ["lease-a", "somebody"])
def test_a_machine_that_boots_again_ends(
    job: Job, runtime: tuple[Path, str], tmp_path: Path, whose: str
) -> None:
    """Its cloud runs a stub once, so neither agent nor timer would be there. Installed by cloud-init's own
    machine only: whose user data this stub is."""
    there = tmp_path / "cloud init"
    (there / "instance").mkdir(parents=True)
    mine = {"ARYL_POWEROFF": "touch 'o ff'\n: two lines", "ARYL_CLOUD_INIT": str(there)}
    text = stub(job, ((job.folder / "none"), runtime[1]), env=mine, lease_id="lease-a")
    (there / "instance" / "user-data.txt").write_text(text if whose == "lease-a" else f"#!/bin/sh\n: {whose}")
    assert boot(job, text)[0] == 1
    hooks = list(there.glob("scripts/*/*"))
    if whose != "lease-a":
        assert hooks == []
        return
    assert [hook.relative_to(there).as_posix() for hook in hooks] == ["scripts/per-boot/arylcloud"]
    again = tmp_path / "again"
    again.mkdir()
    subprocess.run([hooks[0]], cwd=again, check=True, timeout=60)
    assert (again / "o ff").exists()
    assert stat.S_IMODE(hooks[0].stat().st_mode) == 0o700


@pytest.mark.parametrize("other", ["#!/bin/sh\necho theirs\n", "", "export ARYL_LEASE_ID=lease-a1\n", None])
def test_an_instance_of_the_machines_image_does_not_end(
    job: Job, runtime: tuple[Path, str], tmp_path: Path, other: str | None
) -> None:
    """It has the hook, and a user data of its own: one's own, none, or that of another lease."""
    there = tmp_path / "cloud init"
    (there / "instance").mkdir(parents=True)
    mine = {"ARYL_POWEROFF": f"touch '{tmp_path}/off'", "ARYL_CLOUD_INIT": str(there)}
    text = stub(job, ((job.folder / "none"), runtime[1]), env=mine, lease_id="lease-a")
    told = there / "instance" / "user-data.txt"
    told.write_text(text)
    assert boot(job, text)[0] == 1
    (hook,) = there.glob("scripts/*/*")
    (tmp_path / "off").unlink()  # the stub's own end
    told.unlink() if other is None else told.write_text(other)
    subprocess.run([hook], check=True, timeout=60)
    assert not (tmp_path / "off").exists()
    assert not hook.exists()


def test_an_agent_that_is_killed_ends_the_machine(job: Job, runtime: tuple[Path, str]) -> None:
    """A machine without its agent is paid for and does nothing."""
    # the command's parent is its supervisor, whose parent is the agent
    job.submit(spec("kill -9 $(sed -n 's/^PPid:[^0-9]*//p' /proc/$PPID/status); sleep 60"))
    job.open_epoch("lease-a")
    code, log = boot(job, stub(job, runtime, env={"ARYL_POWEROFF": "touch off"}))
    assert code == 137
    assert "the agent ended with exit code 137" in log
    assert (job.folder / "machine a" / "off").exists()
    assert job.end(1) is None


def test_the_fetch_is_tried_again(job: Job, runtime: tuple[Path, str], tmp_path: Path) -> None:
    job.submit(spec("exit 5"))
    job.open_epoch("lease-a")
    late = tmp_path / "late.zip"
    home = job.folder / "machine a"
    home.mkdir()
    (home / "stub").write_text(stub(job, runtime, runtime_url=late.as_uri(), fetch_tries=12))
    process = subprocess.Popen(
        ["sh", "stub"],
        cwd=home,
        env={"PATH": f"{PYTHON.parent}:/usr/bin:/bin", "HOME": str(home)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(0.3)
        shutil.copy(runtime[0], late)
        wait_for(lambda: job.end(1))
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()


def test_bad_arguments_are_refused(job: Job, runtime: tuple[Path, str]) -> None:
    for more in (
        {"runtime_sha256": "zz"},
        {"runtime_url": "s3://bucket/x.zip"},
        {"env": {"A-B": "1"}},
        {"env": {"A": "x" * bootstrap.USER_DATA_BYTES}},
    ):
        with pytest.raises(UsageError):
            stub(job, runtime, **more)


def test_the_runtime_is_deterministic_and_holds_the_machine_side_only(tmp_path: Path) -> None:
    first, digest = build_runtime(tmp_path / "a")
    before = first.stat().st_mtime_ns
    assert build_runtime(tmp_path / "a") == (first, digest)
    assert first.stat().st_mtime_ns == before  # kept
    time.sleep(0.01)
    second, again = build_runtime(tmp_path / "b")
    assert again == digest == hashlib.sha256(second.read_bytes()).hexdigest()
    names = zipfile.ZipFile(first).namelist()
    rooms = {
        name.split("/")[2] for name in names if name.startswith("lib/arylcloud/") and name.count("/") > 2
    }
    assert rooms == {"core", "checkpoint", "agent", "training"}
    user = {name for name in names if name.startswith("user/")}
    assert all(name.startswith(("user/arylcloud/training/", "user/arylcloud/__init__.py")) for name in user)
    assert not any("__pycache__" in name for name in names)
    assert os.listdir(tmp_path / "a") == [first.name]  # noqa: PTH208 - no partial file is left
