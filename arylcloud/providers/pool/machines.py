"""The machines of a pool, as their owner has entered them: ``pool.json`` in the state folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, LocalStateError, UsageError
from arylcloud.core.offer import Market, Offer

POOL: Final = "pool"
THIS: Final = "localhost"
"""As a machine's ``host``: no ``ssh``, it is this one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LIMIT_BYTES: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMachine:
    name: str
    host: str
    """As ``ssh`` takes it (``user@host``, or a name of ``~/.ssh/config``); ``localhost``: this machine."""
    group: str
    """Machines of a group can reach one another: a gang stays in one."""
    instance_type: str
    usd_per_hour: float
    """What an hour of it is worth: power and wear, or what its owner asks. Never 0: the planner would take
    an hour saved for worth nothing."""
    gpu: str | None = None
    gpu_count: int | None = None
    gpu_mem_gib: float | None = None
    vcpus: float | None = None
    mem_gib: float | None = None
    address: str | None = None
    """How other machines of its group reach it; None = ``host`` without the user."""
    folder: str = "~/.arylcloud/pool"
    """On the machine; its own below that, by name."""
    added_on: str
    """ISO date-time (UTC): the age of its price."""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("group", self.group), ("type", self.instance_type)):
            if not _NAME.fullmatch(text):
                raise UsageError(f"{text!r} cannot be a {what}: letters, digits, . _ - only")
        if self.host.startswith("-") or not self.host or any(c.isspace() for c in self.host):
            raise UsageError(f"{self.host!r} is no host", hint="user@host, or a name of ~/.ssh/config")
        if not 0 < self.usd_per_hour < 1e6:
            raise UsageError(
                f"a machine at ${self.usd_per_hour:g}/h cannot be planned with",
                hint="say what an hour of it is worth to you: power and wear, or what its owner asks",
            )

    @property
    def home(self) -> str:
        return f"{self.folder.rstrip('/')}/{self.name}"

    @property
    def reached_at(self) -> str:
        return self.address or self.host.rpartition("@")[2]

    @property
    def offer(self) -> Offer:
        """All machines of a type in a group are one offer: see :func:`offers`."""
        return Offer(
            cloud=POOL,
            region=self.group,
            zone=None,
            instance_type=self.instance_type,
            gpu=self.gpu,
            gpu_count=self.gpu_count,
            gpu_mem_gib=self.gpu_mem_gib,
            vcpus=self.vcpus,
            mem_gib=self.mem_gib,
            market=Market.RESERVED,
            usd_per_hour=self.usd_per_hour,
            as_of=self.added_on,
            source="pool",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFile:
    machines: tuple[OwnMachine, ...] = ()
    schema_version: int = 1


def read(path: Path) -> tuple[OwnMachine, ...]:
    """Raises IntegrityError, LocalStateError."""
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise IntegrityError(f"{path} is larger than {LIMIT_BYTES} bytes: it is no list of machines")
        return loads(PoolFile, path.read_bytes(), what=str(path)).machines
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise LocalStateError(f"{path} cannot be read: {error.strerror}") from error


def write(path: Path, machines: Iterable[OwnMachine]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_bytes(dumps(PoolFile(machines=tuple(machines))))
        part.replace(path)
    except OSError as error:
        raise LocalStateError(f"{path} cannot be written: {error.strerror}") from error


def offers(machines: Iterable[OwnMachine]) -> tuple[Offer, ...]:
    """One a type and group, at the price of the dearest: a job that takes several must not find one dearer
    than what it was told. Raises UsageError where machines of one type differ in what they have."""
    found: dict[str, Offer] = {}
    for machine in sorted(machines, key=lambda m: (-m.usd_per_hour, m.name)):
        offer = machine.offer
        first = found.setdefault(offer.key, offer)
        if (first.gpu, first.gpu_count) != (offer.gpu, offer.gpu_count):
            raise UsageError(
                f"{machine.name} has {offer.gpu_count} × {offer.gpu}, other machines called "
                f"{offer.instance_type} in {offer.region} have {first.gpu_count} × {first.gpu}",
                hint="another --type tells them apart",
            )
    return tuple(found.values())
