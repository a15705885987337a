"""A machine's Python is its own, and imports what the launcher's imports (e2e/test_exits.py installs)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arylcloud.core.errors import LocalStateError
from arylcloud.providers.local import image

TOLD = "import sys, numpy; print(sys.prefix); print(sys.base_prefix); print(numpy.__file__)"


def run(root: Path, *argv: str, **env: str) -> str:
    path = f"{root / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    done = subprocess.run(
        argv,
        env={"PATH": path, "HOME": str(root.parent), "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def ours() -> image.Image:
    return image.ask(sys.executable)


def test_it_is_an_environment_over_ours(tmp_path: Path, ours: image.Image) -> None:
    import numpy

    machine = tmp_path / "a machine's"  # what a path may hold
    machine.mkdir()
    root = image.lay(ours, machine)
    assert image.lay(ours, machine) == root, "a boot that is tried again finds it there"
    for name in ("python", "python3"):
        prefix, base, found = run(root, name, "-c", TOLD).splitlines()
        assert Path(prefix) == root
        assert base == sys.base_prefix
        assert Path(found) == Path(str(numpy.__file__)), "what we can import, it can"


def test_a_command_of_ours_imports_what_the_machine_has_installed(tmp_path: Path) -> None:
    """``torchrun`` beside arylcloud, ``pip install einops`` on the machine."""
    bin_ = tmp_path / "launcher's" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python3").symlink_to(sys.executable)
    (bin_ / "torchrun").write_text(
        f"#!{bin_}/python3\nimport sys, einops; print(einops.__file__, *sys.argv[1:])\n"
    )
    # as pip writes it where a path is long
    long = f"#!/bin/sh\n'''exec' \"{bin_}/python3\" \"$0\" \"$@\"\n' '''\n"
    (bin_ / "long").write_text(long)
    (bin_ / "other").write_text(f"#!/bin/sh\nexec {bin_}/python3 -m other\n")
    (bin_ / "older").write_text(f"#!{bin_}/python2.7-config\n")
    (bin_ / "unreadable").write_text(f"#!{bin_}/python3\n")
    for name in ("torchrun", "long", "other", "older"):
        (bin_ / name).chmod(0o755)
    (bin_ / "unreadable").chmod(0o111)
    asked = image.ask(str(bin_ / "python3"))
    scripts = [Path(one).name for one in asked.scripts]
    assert [name for name in scripts if name != "unreadable" or os.getuid()] == ["long", "torchrun"]
    root = image.lay(asked, tmp_path)
    installed = root / asked.purelib.lstrip("/") / "einops.py"
    installed.write_text("")
    assert run(root, "torchrun", "a b").strip() == f"{installed} a b"


@pytest.mark.slow
def test_a_python_without_pip_gets_its_own(tmp_path: Path, ours: image.Image) -> None:
    bare = replace(ours, packages=(), pip=False)
    root = image.lay(bare, tmp_path)
    told = run(root, "pip", "--version").splitlines()[-1]
    assert str(root) in told


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LocalStateError, match="cannot be asked what it is"):
        image.ask(str(tmp_path / "python3"))
