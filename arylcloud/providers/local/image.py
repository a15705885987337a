"""The *image* of a machine: a Python environment of its own, laid over the one that arylcloud runs from.

A job's ``pip install`` belongs to its machine and goes with it. It must not reach the environment that the
launcher imports from while it runs, so each machine has a virtual environment in its folder: what the
launcher's Python can import it can import too, what is installed goes into the machine's folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arylcloud.core.errors import LocalStateError

FOLDER: Final = ".venv"
"""In the machine's folder."""
ASK_TIMEOUT_S: Final = 60.0
_ASK: Final = """\
import importlib.util, json, site, sys, sysconfig
print(json.dumps({
    "base": getattr(sys, "_base_executable", None) or sys.executable,
    "version": "%d.%d" % sys.version_info[:2],
    "purelib": sysconfig.get_path("purelib", "posix_prefix", vars={"base": ""}),
    "packages": site.getsitepackages(),
    "pip": importlib.util.find_spec("pip") is not None,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a Python said of itself."""

    base: str
    """The interpreter below its virtual environment, if it is in one."""
    version: str
    """As in ``pip3.11``."""
    purelib: str
    """Where its packages lie, from the root of an environment: ``/lib/python3.11/site-packages``."""
    packages: tuple[str, ...]
    """Folders that it imports from, in their order."""
    pip: bool
    scripts: tuple[str, ...] = ()
    """Commands that came with its packages and begin with it, as torchrun does: full paths."""


def ask(python: str) -> Image:
    """Starts ``python`` once (some 40 ms). Raises LocalStateError where that is not possible."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
        told = json.loads(done.stdout)
        return Image(
            base=told["base"],
            version=told["version"],
            purelib=told["purelib"],
            packages=tuple(told["packages"]),
            pip=told["pip"],
            scripts=_scripts(Path(python).parent),
        )
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        raise LocalStateError(
            f"{python} cannot be asked what it is: {error}", hint="is arylcloud's environment still there?"
        ) from error


def lay(image: Image, machine: Path) -> Path:
    """Make the environment in the machine's folder; its root. The same again where it is there already.
    Raises OSError."""
    root = machine / FOLDER
    packages = root / image.purelib.lstrip("/")
    packages.mkdir(parents=True, exist_ok=True)
    (root / "bin").mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{image.version}"):
        _link(root / "bin" / name, image.base)
    _link(root / "lib64", "lib")  # systems that tell them apart look into both
    settings = {
        "home": Path(image.base).parent,
        "include-system-site-packages": "false",
        "version": image.version,
    }
    told = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (root / "pyvenv.cfg").write_text(told, encoding="utf-8")
    # in ASCII: it is read in the encoding of whatever locale a job sets
    lines = [f"import site; site.addsitedir({folder!a})" for folder in image.packages]
    (packages / "arylcloud-image.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _pip(root / "bin", image)
    for script in image.scripts:  # under the machine's own Python, which imports what was installed there
        _command(root / "bin" / Path(script).name, f'{_own(root / "bin")} {shlex.quote(script)} "$@"')
    return root


def _scripts(folder: Path) -> tuple[str, ...]:
    """By the first line; where that would be too long, pip writes sh's and Python's way into two."""
    python = rb"%s/python[0-9.]*" % re.escape(os.fsencode(folder))
    begins = re.compile(rb"#! ?%s *\n|#!/bin/sh\n'\'\'exec' \"?%s\"? " % (python, python))
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and os.access(path, os.R_OK | os.X_OK):
            with path.open("rb") as file:
                head = file.read(4096)
            if begins.match(head):
                found.append(str(path))
    return tuple(found)


def _own(folder: Path) -> str:
    return shlex.quote(str(folder / "python3"))


def _command(path: Path, words: str, first: str = "") -> None:
    """What is there already is the machine's own."""
    if not path.exists():
        path.write_text(f"#!/bin/sh\n{first}exec {words}\n", encoding="utf-8")
        path.chmod(0o700)


def _link(path: Path, to: str) -> None:
    if not path.is_symlink():
        path.symlink_to(to)


def _pip(folder: Path, image: Image) -> None:
    """Else ``pip`` would be one of another Python's, later on PATH. What pip says of itself is left as is."""
    python = _own(folder)
    had = "" if image.pip else f"{python} -c 'import pip' 2>/dev/null || {python} -m ensurepip >&2 || exit\n"
    for name in ("pip", "pip3", f"pip{image.version}"):
        _command(folder / name, f'{python} -m pip "$@"', had)
