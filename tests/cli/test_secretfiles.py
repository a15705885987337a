"""A job file that holds secret values is not packed with its workdir; every other file is."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from arylcloud.cli.secretfiles import holds_secrets, note_of
from arylcloud.launcher.bundle import pack


@pytest.mark.parametrize(
    ("name", "text", "kept_home"),
    [
        ("job.yaml", "run: x\nsecrets: {TOKEN: hush}\n", True),
        ("job.yaml", "run: x\nsecrets:\n  A:\n  TOKEN: |\n    hush\n", True),
        ("job", '{"run": "x", "secrets": {"TOKEN": "hush"}}', True),
        ("job.yaml", "run: x\naryl: {notify: 'https://hooks.example.com/T0K3N'}\n", True),
        ("job.aryl.yaml", "notify: https://hooks.example.com/T0K3N\n", True),
        ("job.aryl.yaml", "aryl:\n  notify: https://hooks.example.com/T0K3N\n", True),
        ("job.yaml", "run: x\nsecrets: {TOKEN: null, B: }\n", False),
        ("job.yaml", "run: x\nsecrets: [TOKEN]\n", False),
        ("job.yaml", 'run: x\nsecrets: {TOKEN: ""}\n', False),
        ("job.yaml", "run: x\nsecrets:\n", False),
        ("app.yaml", "secrets: {path: /run/secrets}\n", False),  # a program's own
        ("values.py", "secrets: dict[str, str] = {}\n", False),
        ("odd.yaml", "run: x\nsecrets: {TOKEN: hush\n", False),
        ("bytes.yaml", "run: x\nsecrets: {TOKEN: \udcff}\n", False),
    ],
)
def test_which_files_hold_values(tmp_path: Path, name: str, text: str, kept_home: bool) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert holds_secrets(tmp_path / name) is kept_home


def test_they_are_not_in_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "train.py").write_text("print('secrets: none')\n")
    (tmp_path / "safe.yaml").write_text("run: x\nsecrets: {TOKEN: null}\n")
    before = pack(tmp_path, holds_secrets)
    (tmp_path / "job.yaml").write_text("run: x\nworkdir: .\nsecrets: {TOKEN: hush-hush}\n")
    (tmp_path / "latest").symlink_to("job.yaml")
    (tmp_path / "jobs" / "big.yaml").write_text("run: x\nworkdir: ..\nsecrets: {TOKEN: hush-hush}\n")
    (tmp_path / "ignored.yaml").hardlink_to(tmp_path / "job.yaml")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / ".arylignore").write_text("ignored.yaml\n.arylignore\ngone\n")
    after = pack(tmp_path, holds_secrets)
    assert after.left_out == ("job.yaml", "latest", "jobs/big.yaml")
    assert before.left_out == ()
    assert (after.data, after.files) == (before.data, before.files)  # to the byte, as if they were not there
    with tarfile.open(fileobj=io.BytesIO(after.data)) as archive:
        assert archive.getnames() == ["safe.yaml", "train.py"]
    (tmp_path / ".arylignore").unlink()
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path, holds_secrets).data)) as archive:
        assert "gone" in archive.getnames()


def test_the_note_names_them() -> None:
    assert note_of(("job.yaml",)) == (
        "secret values stand in job.yaml: it is not sent to machines; better: "
        "`secrets: {TOKEN: null}` and the environment"
    )
    assert "a.yaml, b.yaml: they are not sent" in note_of(("a.yaml", "b.yaml"))
