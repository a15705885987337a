"""The user's files as one archive: the same files always give the same bytes, so the same name."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import LocalStateError, UsageError

ALWAYS_LEFT_OUT = (".git", "__pycache__", ".venv", "*.pyc", ".mypy_cache", ".pytest_cache", ".ruff_cache")
IGNORE_FILES = (".arylignore", ".skyignore")
MAX_BYTES = 1 << 30
LARGEST = 3
"""Parts of a workdir that is too large that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    data: bytes
    sha256: str
    files: int
    left_out: tuple[str, ...] = ()
    """What ``leave_out`` named, relative to the workdir."""


def _nothing(_: Path) -> bool:
    return False


def pack(workdir: Path, leave_out: Callable[[Path], bool] = _nothing) -> Archive:
    """Deterministic tar.gz of ``workdir``: sorted, no times, no owners; ``.arylignore`` is honoured,
    and files (and links to them) of which ``leave_out`` is true stay out as well.

    Symbolic links are kept as links where they stay inside; one that leads outside is an error,
    since it would be dangling (or worse) on a machine.
    """
    if not workdir.is_dir():
        raise UsageError(f"workdir {workdir} is not a folder", hint="`workdir:` in the job file")
    root = workdir.resolve()
    buffer = io.BytesIO()
    total = count = 0
    left_out: list[str] = []
    try:
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=6) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in _files(root, _patterns(root)):
                name = path.relative_to(root).as_posix()
                if leave_out(path):
                    left_out.append(name)
                    continue
                info = tar.gettarinfo(str(path), arcname=name)
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = 0
                total += info.size
                if total > MAX_BYTES:
                    raise _too_large(workdir)
                count += 1
                if info.isreg():
                    with path.open("rb") as content:
                        tar.addfile(info, content)
                else:
                    tar.addfile(info)
    except OSError as error:
        raise LocalStateError(f"cannot read {error.filename or workdir}: {error.strerror}") from error
    data = buffer.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    return Archive(data=data, sha256=sha256, files=count, left_out=tuple(left_out))


def check(workdir: Path) -> None:
    """Raises what ``pack`` would raise of the folder, its files' sizes and links, without reading one."""
    if not workdir.is_dir():
        raise UsageError(f"workdir {workdir} is not a folder", hint="`workdir:` in the job file")
    root = workdir.resolve()
    try:
        if sum(path.lstat().st_size for path in _files(root, _patterns(root))) > MAX_BYTES:
            raise _too_large(workdir)
    except OSError as error:
        raise LocalStateError(f"cannot read {error.filename or workdir}: {error.strerror}") from error


def _too_large(workdir: Path) -> UsageError:
    """With what is largest in it: folders and files right below the workdir."""
    root = workdir.resolve()
    sizes: Counter[str] = Counter()
    for path in _files(root, _patterns(root)):
        first, *rest = path.relative_to(root).parts
        sizes[f"{first}/" if rest else first] += path.lstat().st_size
    largest = ", ".join(f"{name} ({size / 1e9:.2f} GB)" for name, size in sizes.most_common(LARGEST))
    return UsageError(
        f"workdir {workdir} holds {sizes.total() / 1e9:.2f} GB, more than {MAX_BYTES / 1e9:.2f}: {largest}",
        hint="name what to leave out in .arylignore, put data sets under `aryl: data`",
    )


def newer(workdir: Path, than_s: float) -> int:
    """How many of the files that ``pack`` would take were written after ``than_s`` (Unix seconds). Raises
    UsageError where there is no such folder."""
    if not workdir.is_dir():
        raise UsageError(f"workdir {workdir} is not a folder", hint="`workdir:` in the job file")
    root = workdir.resolve()
    return sum(path.lstat().st_mtime > than_s for path in _files(root, _patterns(root)))


def _patterns(root: Path) -> tuple[str, ...]:
    found = list(ALWAYS_LEFT_OUT)
    for name in IGNORE_FILES:
        path = root / name
        if path.is_file():
            lines = (line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
            found += [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    return tuple(found)


def _files(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(n for n in names if not _ignored(here / n, root, patterns))
        for name in sorted([*files, *(n for n in names if (here / n).is_symlink())]):
            path = here / name
            if _ignored(path, root, patterns):
                continue
            if path.is_symlink():
                if not path.resolve().is_relative_to(root):
                    raise UsageError(
                        f"{path} links to a file outside the workdir",
                        hint="copy it in, or name it in .arylignore",
                    )
                yield path
            elif path.is_file():
                yield path


def _ignored(path: Path, root: Path, patterns: tuple[str, ...]) -> bool:
    relative = path.relative_to(root).as_posix()
    return any(fnmatch.fnmatch(path.name, p) or fnmatch.fnmatch(relative, p.lstrip("/")) for p in patterns)
