"""An emulated machine boots: its user data runs as local processes, in a folder of its own, with a metadata
service of its own on a loopback address of its own. What a cloud's emulator does with it is its own affair.

``nvidia-smi`` and ``shutdown`` of its image are ours: the first shows the GPUs that the type has, the second
ends this machine and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from clouds.stores.rolemetadata import Credentials, RoleMetadata

from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import OtherCloudError
from arylcloud.providers.local import image as python_image
from arylcloud.providers.local import processes
from arylcloud.providers.local.machines import Instance
from arylcloud.providers.local.metadata import Tokens

LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Booting:
    """What an emulator knows of a machine when it lets it boot."""

    instance_id: str
    user_data: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    """``spot`` or ``on_demand``."""
    gpus: int = 0
    environ: dict[str, str] = field(default_factory=dict)
    """What the cloud itself would give its machines, beside the metadata service."""


class Metadata(Protocol):
    """A metadata service: one for all machines, a listener for each."""

    def start(self) -> None: ...
    def bind(self, instance_id: str, address: str | None, port: int | None) -> tuple[str, int]: ...
    def unbind(self, instance_id: str) -> None: ...
    def close(self) -> None: ...


Serve = Callable[["Boots"], Metadata]


def ec2(boots: Boots) -> Metadata:
    """IMDSv2, as the local cloud serves it, with the credentials of the machine's role."""
    made = RoleMetadata(
        lookup=boots.lookup,
        renew=lambda instance_id, until_s: None,  # EC2 keeps no such thing
        tokens=Tokens(secrets.token_bytes(32), SystemClock()),
        own_addresses=sys.platform == "linux",
    )
    made.credentials = lambda instance_id: boots.credentials(instance_id)
    return made


class Boots:
    """All machines of one emulator. Safe to use from several threads.

    ``exited``: called once with the id of a machine whose user data has come to its end, or that has
    switched itself off."""

    def __init__(self, folder: Path, *, serve: Serve = ec2, python: str = sys.executable) -> None:
        self.exited: Callable[[str], None] = lambda instance_id: None
        self.credentials: Credentials = lambda instance_id: None
        self._folder = folder
        self._python = python
        self._own: python_image.Image | None = None
        self._gates: dict[str, processes.Gate] = {}
        self._machines: dict[str, Instance] = {}
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._metadata = serve(self)
        self._metadata.start()
        self._thread = threading.Thread(target=self._watch, name="boots", daemon=True)
        self._thread.start()

    def lookup(self, instance_id: str) -> Instance | None:
        """For the metadata service."""
        with self._lock:
            return self._machines.get(instance_id)

    # ------------------------------------------------------------ what an emulator calls

    def start(self, machine: Booting) -> str:
        """Its user data runs from now on. Returns its address."""
        home = self.home(machine.instance_id)
        home.mkdir(parents=True, mode=0o700)
        (home / processes.USER_DATA).write_text(machine.user_data, encoding="utf-8")
        address, port = self._metadata.bind(machine.instance_id, None, None)
        environ = {
            "HOME": str(home),
            "PATH": os.pathsep.join(self._path(machine)),
            "LANG": "C.UTF-8",
            "ARYL_METADATA_URL": f"http://{address}:{port}",
            processes.ENV_INSTANCE: machine.instance_id,
            **machine.environ,
        }
        now_s = time.time()
        instance = Instance(
            instance_id=machine.instance_id,
            token="",
            journal_id="",
            job_id="",
            lease_id="",
            offer_key="",
            region=machine.region,
            zone=machine.zone,
            instance_type=machine.instance_type,
            market=machine.market,
            launched_s=now_s,
            launched_wall_s=now_s,
            launch_usd_per_hour=0.0,
            max_usd_per_hour=None,
            until_s=now_s,
            address=address,
            metadata_port=port,
            python=self._python,
        )
        with self._lock:
            gate = processes.prepare(home, self._console(machine.instance_id), environ)
            self._machines[machine.instance_id] = instance
            self._gates[machine.instance_id] = gate
        gate.open()
        return address

    def notice(self, instance_id: str, acts_at_s: float) -> None:
        """The metadata service says from now on that the machine will be taken at ``acts_at_s`` (wall)."""
        with self._lock:
            if (known := self._machines.get(instance_id)) is not None:
                self._machines[instance_id] = replace(known, notice_acts_wall_s=acts_at_s)

    def stop(self, instance_id: str, *, grace_s: float = 0.0) -> None:
        """No process of it is left, nor its disk. The missing is success."""
        with self._lock:
            gate = self._gates.pop(instance_id, None)
        if gate is None:
            return
        if not processes.end_all(instance_id, gate.leader, SystemClock(), grace_s=grace_s):
            raise OtherCloudError(f"{instance_id}: some processes cannot be ended")
        gate.child.wait()
        if gate.child.stdin is not None:
            with contextlib.suppress(OSError):
                gate.child.stdin.close()
        self._metadata.unbind(instance_id)
        with self._lock:
            self._machines.pop(instance_id, None)
        shutil.rmtree(self.home(instance_id), ignore_errors=True)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        for instance_id in list(self._gates):
            self.stop(instance_id)
        self._metadata.close()

    # ------------------------------------------------------------ what tests look at

    def home(self, instance_id: str) -> Path:
        return self._folder / "machines" / _name(instance_id)

    def console(self, instance_id: str) -> str:
        path = self._console(instance_id)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def running(self) -> list[str]:
        with self._lock:
            return sorted(self._gates)

    # ------------------------------------------------------------ parts

    def _console(self, instance_id: str) -> Path:
        folder = self._folder / "consoles"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{_name(instance_id)}.log"

    def _path(self, machine: Booting) -> list[str]:
        """Its image: our two commands before everything else."""
        image = self._folder / f"image-{machine.gpus}"
        if not image.exists():
            part = self._folder / f"image-{machine.gpus}.{secrets.token_hex(4)}"
            part.mkdir(parents=True)
            name = "NVIDIA ${ARYL_GPU:-emulated}"  # as the agent wants it: no emulator knows chips
            lines = "\n".join(f"GPU {n}: {name} (UUID: GPU-{n})" for n in range(machine.gpus))
            listing = f"cat <<END\n{lines}\nEND" if lines else "exit 9"
            for name, text in (("nvidia-smi", listing), ("shutdown", 'touch "$HOME/.off"'), ("poweroff", "")):
                body = text or 'touch "$HOME/.off"'
                (part / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
                (part / name).chmod(0o700)
            with contextlib.suppress(OSError):
                part.rename(image)
        if self._own is None:
            self._own = python_image.ask(self._python)
        own = python_image.lay(self._own, self.home(machine.instance_id)) / "bin"
        return [str(image), str(own), str(Path(self._python).parent), "/usr/local/bin", "/usr/bin", "/bin"]

    def _watch(self) -> None:
        told: set[str] = set()
        while not self._closing.wait(LOOK_EVERY_S):
            with self._lock:
                gates = dict(self._gates)
            for instance_id, gate in gates.items():
                off = (self.home(instance_id) / ".off").exists()
                if instance_id not in told and (off or gate.child.poll() is not None):
                    told.add(instance_id)
                    self.exited(instance_id)


def _name(instance_id: str) -> str:
    """Azure's ids are paths: one with a slash first would lie at the root of this host."""
    return instance_id.rpartition("/")[2]
