"""A job's folder is looked at before anything is paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.cli.workdir import check_files
from arylcloud.core.errors import UsageError
from arylcloud.core.job import JobSpec
from arylcloud.launcher import bundle


def test_a_folder_that_is_too_large_names_what_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    for name, size in (("data/a", 400), ("data/b", 500), ("x.bin", 300), ("small", 1), ("tiny", 2)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    for look in (bundle.check, bundle.pack):
        with pytest.raises(
            UsageError, match=r"more than 0\.00: data/ \(.*\), x\.bin \(.*\), tiny \("
        ) as caught:
            look(tmp_path)
        assert ".arylignore" in (caught.value.hint or "")
    (tmp_path / ".arylignore").write_text("data\n")
    bundle.check(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        bundle.check(tmp_path / "gone")


@pytest.mark.parametrize(
    ("run", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("# first\n\npython3 src/go.py\n", "src/go.py"),
        ("./run.sh", "./run.sh"),
        ("bash run.sh", "run.sh"),
        ("python -m train", None),
        ("python -c 'print(1)'", None),
        ("cd src && python train.py", None),
        ("python $HOME/train.py", None),
        ("python /opt/train.py", None),
        ("python ../train.py", None),
        ("git clone x", None),
        ("python 'unclosed", None),
    ],
)
def test_a_script_that_is_not_sent_is_warned_of(tmp_path: Path, run: str, script: str | None) -> None:
    job = JobSpec(name="j", run=run)
    here = JobSpec(name="j", run=run, workdir=str(tmp_path))
    if script is None:
        assert check_files(job) is None
        assert check_files(here) is None
        return
    assert f"run names {script}, and the job file has no workdir" in (check_files(job) or "")
    assert f"run names {script}, and there is none in {tmp_path}" in (check_files(here) or "")
    assert check_files(JobSpec(name="j", run=run, setup="git clone x .")) is None
    (tmp_path / script).parent.mkdir(exist_ok=True)
    (tmp_path / script).write_text("")
    assert check_files(here) is None


def test_names_that_are_not_utf8_leave_out_the_others(tmp_path: Path) -> None:
    (tmp_path / ".arylignore").write_bytes(b"caf\xe9\ndata/\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "big").write_bytes(b"x" * 1000)
    (tmp_path / "train.py").write_text("")
    assert bundle.newer(tmp_path, 0.0) == 2, "data is left out; train.py and .arylignore are not"
