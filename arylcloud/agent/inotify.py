"""Which names were *renamed* into a folder: the one way to know that a checkpoint, finished by a
rename, is finished, when it was written so fast that its times do not tell. Linux only."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any

_IN_CREATE, _IN_MOVED_TO, _IN_Q_OVERFLOW = 0x100, 0x80, 0x4000
_HEAD = struct.Struct("iIII")


class Renames:
    """Names moved into ``folder`` since it is watched and not created again since. Safe to ask from several
    threads. A host has few watches (``fs.inotify.max_user_instances``, 128 for all of one user's processes):
    where none is left, each question tries anew, and ``watching`` says so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moved: set[str] = set()
        self._lock = threading.Lock()
        self._fd = -1
        self._closed = not sys.platform.startswith("linux")
        with self._lock:
            self._open()

    def __del__(self) -> None:
        self.close()

    @property
    def watching(self) -> bool:
        """False: of a folder renamed within a tick of being written, only ``_COMPLETE`` can tell."""
        return self._fd >= 0

    def names(self) -> frozenset[str]:
        with self._lock:
            self._open()
            while self._fd >= 0:
                try:
                    data = os.read(self._fd, 65536)
                except BlockingIOError:
                    break
                self._take(data)
            return frozenset(self._moved)

    def close(self) -> None:
        """What was seen stays known."""
        self._closed = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        if self._closed or self._fd >= 0:
            return
        libc: Any = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            return
        if int(libc.inotify_add_watch(fd, os.fsencode(self._folder), _IN_CREATE | _IN_MOVED_TO)) < 0:
            os.close(fd)
            return
        self._fd = fd

    def _take(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            _, mask, _, length = _HEAD.unpack_from(data, offset)
            start = offset + _HEAD.size
            name = os.fsdecode(data[start : start + length].rstrip(b"\0"))
            offset = start + length
            if mask & _IN_Q_OVERFLOW:
                self._moved.clear()  # what was missed may have been created anew
            elif mask & _IN_CREATE:
                self._moved.discard(name)
            elif mask & _IN_MOVED_TO:
                self._moved.add(name)
