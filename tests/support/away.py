"""A folder that is away for a while: from one moment to the next there is a file where it was, so that every
read and every write below it fails, and from one moment to the next it is back."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE, _EXCHANGE = -100, 2


@contextmanager
def away(folder: Path) -> Iterator[None]:
    """Whoever writes there at this moment finds the folder or the file, never a free name."""
    other = folder.with_name(f"{folder.name}.away")
    other.write_text("a file where a folder was: every call fails")
    _exchange(folder, other)
    yield
    _exchange(folder, other)
    other.unlink()


def _exchange(one: Path, other: Path) -> None:
    """Linux's renameat2. Where there is no such thing there is a moment in which nothing is there."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
            return
        if (number := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(number, os.strerror(number), str(one))
    spare = one.with_name(f"{one.name}.spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
