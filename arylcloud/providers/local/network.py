"""Machines with a network of their own (Linux, root): a namespace each, on a bridge in the cloud's.

    sudo unshare --net sh -c 'ip link set lo up &&
        ARYLCLOUD_LOCAL__NETWORK=namespaces arylcloud launch job.yaml --infra local'

The cloud's own namespace should be one that is made for it, as above: then nothing of it is left when its
last process has ended. There the bridge has ``10.88.0.1``; a machine has an address of ``10.88.0.0/16`` on
its ``eth0``, a host name that resolves, a name service that answers at once (there is none), and its metadata
at the real address, ``169.254.169.254``. Whoever takes down the machine's cable in the cloud's namespace
(``port(instance_id)``) cuts it off from its peers, and from nothing else.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from arylcloud.core.clock import Clock
from arylcloud.core.errors import LocalStateError, OtherCloudError

NAME: Final = "namespaces"
BRIDGE: Final = "aryl0"
HUB: Final = "10.88.0.1"
METADATA: Final = ("169.254.169.254", 80)
CLONE_NEWNET: Final = 0x40000000
PATIENCE_S: Final = 10.0

# $1: a folder with hosts and resolv.conf, $2: the machine's host name; the rest is run in its place
_ENTER: Final = """\
mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv.conf" /etc/resolv.conf || exit 1
hostname "$2" || exit 1
shift 2
exec "$@"
"""


class Network(Protocol):
    """How machines are connected."""

    def bind(self, instance_id: str, address: str | None, port: int | None) -> tuple[str, int]:
        """Its address, and the port at which its metadata is served there; again after a restart. Raises
        OtherCloudError."""
        ...

    def unbind(self, instance_id: str) -> None: ...

    def wrap(self, instance_id: str, address: str, argv: Sequence[str], folder: Path) -> list[str]:
        """The command line of its first process, put where it belongs. Raises OSError."""
        ...

    def connect(self, instance_id: str, address: str, pid: int) -> None:
        """Before its first process does anything. Raises OSError."""
        ...

    def environ(self, address: str, port: int) -> dict[str, str]:
        """What a machine's environment says of it."""
        ...


class Loopback:
    """All machines share the host's network, each with a loopback address of its own."""

    def __init__(
        self, serve: Callable[[str, str | None, int | None], tuple[str, int]], stop: Callable[[str], None]
    ):
        self.bind = serve
        self.unbind = stop

    def wrap(self, instance_id: str, address: str, argv: Sequence[str], folder: Path) -> list[str]:
        del instance_id, address, folder
        return list(argv)

    def connect(self, instance_id: str, address: str, pid: int) -> None:
        del instance_id, address, pid

    def environ(self, address: str, port: int) -> dict[str, str]:
        return {"ARYL_METADATA_URL": f"http://{address}:{port}"}


class Namespaces:
    """``adopt(instance_id, listener)`` serves metadata on a socket that lies in the machine's namespace;
    ``pid_of`` is its first process, if it has one."""

    def __init__(
        self,
        *,
        adopt: Callable[[str, socket.socket], None],
        stop: Callable[[str], None],
        pid_of: Callable[[str], int | None],
        clock: Clock,
    ) -> None:
        """Raises LocalStateError where namespaces cannot be made."""
        self._adopt = adopt
        self._stop = stop
        self._pid_of = pid_of
        self._clock = clock
        self._addresses: dict[str, str] = {}
        if (
            sys.platform != "linux"
            or os.geteuid() != 0
            or not all(map(shutil.which, ("ip", "nsenter", "unshare")))
        ):
            raise LocalStateError(
                "networks of machines need Linux, root, and the commands ip, nsenter, unshare",
                hint="leave ARYLCLOUD_LOCAL__NETWORK out: then machines share this host's network",
            )
        there = subprocess.run(["ip", "link", "show", "dev", BRIDGE], capture_output=True, check=False)
        if there.returncode != 0:
            _ip(
                [f"link add {BRIDGE} type bridge", f"addr add {HUB}/16 dev {BRIDGE}", f"link set {BRIDGE} up"]
            )

    def bind(self, instance_id: str, address: str | None, port: int | None) -> tuple[str, int]:
        del port
        if address is not None:
            self._addresses[instance_id] = address
            pid = self._pid_of(instance_id)
            if pid is not None:
                try:
                    self._adopt(instance_id, _listener(pid))
                except OSError as error:
                    raise OtherCloudError(
                        f"its namespace cannot be entered: {error}", code="Network"
                    ) from error
            return address, METADATA[1]
        random = secrets.SystemRandom()
        taken = {HUB, *self._addresses.values()}
        free = (f"10.88.{random.randrange(256)}.{random.randrange(1, 255)}" for _ in range(1000))
        self._addresses[instance_id] = found = next(a for a in free if a not in taken)
        return found, METADATA[1]

    def unbind(self, instance_id: str) -> None:
        self._addresses.pop(instance_id, None)
        self._stop(instance_id)

    def wrap(self, instance_id: str, address: str, argv: Sequence[str], folder: Path) -> list[str]:
        del instance_id
        etc = folder / ".etc"
        etc.mkdir(exist_ok=True)
        name = hostname(address)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n", encoding="ascii")
        (etc / "resolv.conf").write_text(
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", encoding="ascii"
        )
        enter = ["/bin/sh", "-c", _ENTER, "enter", str(etc), name]
        return ["unshare", "--net", "--uts", "--mount", *enter, *argv]

    def connect(self, instance_id: str, address: str, pid: int) -> None:
        own = Path("/proc/self/ns/net").readlink()
        give_up_s = self._clock.monotonic_s() + PATIENCE_S
        while Path(f"/proc/{pid}/ns/net").readlink() == own:
            if self._clock.monotonic_s() > give_up_s:
                raise OSError("its first process has not entered a namespace of its own")
            self._clock.sleep(0.002)
        port_name = port(instance_id)
        _ip(
            [
                f"link add {port_name} type veth peer name eth0 netns {pid}",
                f"link set {port_name} master {BRIDGE}",
                f"link set {port_name} up",
            ]
        )
        _ip(
            [
                "link set lo up",
                f"addr add {METADATA[0]}/32 dev lo",
                f"addr add {address}/16 dev eth0",
                "link set eth0 up",
            ],
            inside=pid,
        )
        self._adopt(instance_id, _listener(pid))

    def environ(self, address: str, port: int) -> dict[str, str]:
        del address
        return {
            "ARYL_METADATA_URL": f"http://{METADATA[0]}:{port}",
            "GLOO_SOCKET_IFNAME": "eth0",
            "NCCL_SOCKET_IFNAME": "eth0",
        }


def port(instance_id: str) -> str:
    """The cloud's end of the machine's cable."""
    return f"m{instance_id[-10:]}"


def hostname(address: str) -> str:
    """As EC2 names them."""
    return f"ip-{address.replace('.', '-')}"


def _ip(commands: Sequence[str], *, inside: int | None = None) -> None:
    """Raises LocalStateError. ``inside``: the namespace of this process."""
    enter = [] if inside is None else ["nsenter", "-t", str(inside), "-n"]
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LocalStateError(f"the network cannot be made: {done.stderr.strip()}", hint="it needs root")


def _listener(pid: int) -> socket.socket:
    """At the metadata address of that process's namespace. A socket stays where it was made; the thread that
    made it has gone there for that alone."""
    found: list[socket.socket] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(handle)
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(METADATA)
            listener.listen(16)
            listener.setblocking(False)
            found.append(listener)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="enter")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
