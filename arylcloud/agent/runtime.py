"""The runtime: one zip with all that a machine needs, so that nothing is installed there.

    lib/arylcloud/{core,checkpoint,agent,training}   the machine side, pure Python
    lib/obstore/                                     the object store client, as it is installed here
    lib/blake3/                                      a quicker digest, for machines with this Python
    lib-<machine>/obstore/                           the same for machines of another kind (``uname -m``)
    user/arylcloud/training/                         alone, for the user's PYTHONPATH

The zip is deterministic: the same sources give the same bytes, and so the same name in the store.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from arylcloud.core.errors import LocalStateError, MissingExtraError

MACHINE_SIDE = ("core", "checkpoint", "agent", "training")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNUSED = ("fsspec.py",)
_FORMAT = "1"
"""Of this zip's layout: part of the cached file's name."""


def build_runtime(cache_dir: Path, wheels: Mapping[str, Path] | None = None) -> tuple[Path, str]:
    """The zip for machines like this one, and its SHA-256. Built once per content. ``wheels``: of obstore,
    for machines of other kinds, by what ``uname -m`` says on them.

    Raises LocalStateError if ``cache_dir`` cannot be written.
    """
    files = sorted((*machine_side(), *native_packages()))
    read = [(name, path.read_bytes()) for name, path in files]
    for machine, wheel in sorted((wheels or {}).items()):
        read += _unpacked(machine, wheel)
    digest = hashlib.sha256(_FORMAT.encode())
    contents: list[tuple[str, bytes]] = []
    for name, data in read:
        contents.append((name, data))
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = cache_dir / f"runtime-{digest.hexdigest()[:32]}.zip"
    try:
        if not target.exists():
            _write(target, contents)
        return target, hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError as error:
        raise LocalStateError(f"the runtime cannot be kept in {cache_dir}: {error.strerror}") from error


def machine_side() -> Iterator[tuple[str, Path]]:
    """Our own part: (name in the zip, file)."""
    package = Path(__file__).resolve().parents[1]
    for room in MACHINE_SIDE:
        for path in sorted((package / room).rglob("*.py")):
            name = path.relative_to(package).as_posix()
            yield f"lib/arylcloud/{name}", path
            if room == "training":
                yield f"user/arylcloud/{name}", path
    for side in ("lib", "user"):
        yield f"{side}/arylcloud/__init__.py", package / "__init__.py"


def native_packages() -> Iterator[tuple[str, Path]]:
    """Those of the running environment: right for the local cloud, whose machines are this host."""
    suffix = sysconfig.get_config_var("SHLIB_SUFFIX") or ".so"
    for name, needed in (("obstore", True), ("blake3", False)):
        spec = find_spec(name)
        if (spec is None or spec.origin is None) and not needed:
            continue
        if spec is None or spec.origin is None:
            raise MissingExtraError(f"{name} is not installed", hint=f"pip install {name}")
        package = Path(spec.origin).parent
        for path in sorted(set(package.rglob("*")) - set(package.rglob("__pycache__/*"))):
            if path.suffix in (".py", suffix) and path.name not in _UNUSED:
                yield f"lib/{name}/{path.relative_to(package).as_posix()}", path


def _unpacked(machine: str, wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            path = Path(name)
            if path.parts[0] == "obstore" and path.suffix in (".py", ".so") and path.name not in _UNUSED:
                yield f"lib-{machine}/{name}", archive.read(name)


def _write(target: Path, contents: list[tuple[str, bytes]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=".runtime-")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z,
        ):
            for name, data in contents:
                info = zipfile.ZipInfo(name, date_time=_EPOCH)
                info.external_attr = 0o100644 << 16
                info.create_system = 3  # Unix, whatever wrote it
                info.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(info, data, compresslevel=6)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
