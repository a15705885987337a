"""A local cloud in a folder of its own, for tests: markets written by hand, a daemon that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from arylcloud.core.offer import Offer
from arylcloud.core.ports import Machine, MachineSpec
from arylcloud.providers.local import processes
from arylcloud.providers.local.adapter import LocalProvider, create
from arylcloud.providers.local.log import Record, read
from arylcloud.providers.local.wire import FOLDER, LOG_FILE, PORT_FILE

HOLD = [[0, 0.5, 8]]


def an_offer(region: str = "here", market: str = "spot", **changes: Any) -> dict[str, Any]:
    base = {
        "region": region,
        "instance_type": "g.small",
        "gpu": "T4",
        "gpu_count": 1,
        "gpu_mem_gib": 16,
        "vcpus": 4,
        "mem_gib": 16,
        "market": market,
        "steps": HOLD,
        "source": "test",
    }
    return {**base, **changes}


def a_market(*offers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base = {
        "schema_version": 1,
        "name": "test",
        "time_scale": 1,
        "boot_s": 0.0,
        "notice_s": 0,
        "minimum_s": 60,
        "until_grace_s": 0.2,
        "offers": list(offers) or [an_offer()],
    }
    return {**base, **changes}


@dataclass(kw_only=True)
class LocalCloud:
    state: Path
    market: dict[str, Any]
    idle_exit_s: float = 3.0
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def folder(self) -> Path:
        return self.state / FOLDER

    def connect(self) -> LocalProvider:
        path = self.state / "market.json"
        if not path.exists():
            path.write_text(json.dumps(self.market), encoding="utf-8")
        return create(self.state, {"market": str(path), "idle_exit_s": str(self.idle_exit_s)})

    @property
    def pid(self) -> int | None:
        try:
            return int(json.loads((self.folder / PORT_FILE).read_text(encoding="utf-8"))["pid"])
        except (OSError, ValueError):
            return None

    def kill(self) -> None:
        """SIGKILL to the daemon, and wait until it is gone."""
        pid = self.pid
        if pid is None or b"providers.local.daemon" not in command_line(pid):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        port = json.loads((self.folder / PORT_FILE).read_text(encoding="utf-8"))["port"]
        while processes.identify(pid) is not None or listens(port):  # its threads go one by one
            time.sleep(0.005)

    def pass_time(self, seconds: float) -> None:
        """The market is so much further than it would be: nothing has to be done before a moment of it. (By
        an earlier origin, while there is no daemon. With a scale of 1 no other moment changes.)"""
        assert self.market["time_scale"] == 1
        self.kill()
        path = self.folder / LOG_FILE
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        opened = json.loads(first)
        opened["origin_s"] -= seconds
        path.write_text(json.dumps(opened) + "\n" + rest, encoding="utf-8")
        self.connect().offers()

    @property
    def records(self) -> list[Record]:
        return read(self.folder / LOG_FILE)[0]

    def offer(self, region: str = "here", market: str = "spot") -> Offer:
        return next(o for o in self.connect().offers() if (o.region, o.market.value) == (region, market))

    def spec(self, offer: Offer, user_data: str = "exec sleep 600\n", **changes: Any) -> MachineSpec:
        number = next(self.numbers)
        base: dict[str, Any] = {
            "token": f"t{number}",
            "journal_id": "j",
            "job_id": "job",
            "lease_id": f"job-n0-a{number}",
            "offer": offer,
            "user_data": user_data,
            "until_s": time.time() + 3600,
            "max_usd_per_hour": None,
        }
        return MachineSpec(**{**base, **changes})

    def home(self, machine: Machine) -> Path:
        return self.folder / "machines" / machine.instance_id

    def console(self, machine: Machine) -> str:
        path = self.folder / "consoles" / f"{machine.instance_id}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def close(self) -> None:
        """End daemon and machines, whatever the test did."""
        self.kill()
        for record in self.records:
            if record["kind"] == "launch":
                for pid in processes.members(record["instance"]["instance_id"], None):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def local_cloud(folder: Path, market: dict[str, Any], **changes: Any) -> Iterator[LocalCloud]:
    cloud = LocalCloud(state=folder, market=market, **changes)
    try:
        yield cloud
    finally:
        cloud.close()


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
