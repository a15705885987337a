"""A cloud in network namespaces, for tests: everything of it lives in one namespace that is made for it.

    with Hub() as hub, Home(tmp_path, market, warm=hub) as home: …

Commands, launchers and the local cloud run in the hub; each machine in a namespace of its own behind it.
When the hub's last process has ended, nothing of all that is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.support import Home, Warm, wait_for

from arylcloud.providers.local import network, processes
from arylcloud.providers.local.machines import Instance, Machines

ENTER = ("unshare", "--net", "--", "/bin/sh", "-c", 'ip link set lo up && exec "$@"', "hub")


def missing() -> str | None:
    """Why there can be no namespaces here; None = there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        return "network namespaces need iproute2 and util-linux"
    tried = subprocess.run([*ENTER, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"network namespaces cannot be made: {tried.stderr.strip()}"


class Hub(Warm):
    """The warm process of ``e2e``, in a namespace of its own."""

    enter = ENTER

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cable(self, instance_id: str, state: str) -> None:
        """``down``: cut a machine off from its peers; ``up``: mend it."""
        subprocess.run(
            ["nsenter", "-t", str(self.pid), "-n", "ip", "link", "set", network.port(instance_id), state],
            check=True,
            capture_output=True,
        )


class Fleet:
    """Who is who on a home's cloud."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def machine(self, lease_id: str) -> Instance:
        machines = Machines.replay(self.home.cloud_records())  # type: ignore[arg-type]
        return next(i for i in machines.by_id.values() if i.lease_id == lease_id)

    def pids(self, lease_id: str, needle: str = "") -> list[int]:
        """Processes of a machine whose command line holds ``needle``."""
        found = []
        for pid in processes.members(self.machine(lease_id).instance_id, None):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if needle in b" ".join(words).decode(errors="replace"):
                found.append(pid)
        return found

    def agent(self, lease_id: str) -> int:
        wait_for(lambda: self.pids(lease_id, "-m arylcloud.agent"), f"the agent of {lease_id}")
        return self.pids(lease_id, "-m arylcloud.agent")[0]
