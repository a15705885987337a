"""The local cloud's networks: what can be asked for, and what a machine on one of its own finds.

That machines reach one another, and can be cut off, is ``tests/netns``'s.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import LocalStateError, UsageError
from arylcloud.providers.local import network
from arylcloud.providers.local.adapter import create


def test_an_unknown_network_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no network 'bridged'") as caught:
        create(tmp_path, {"network": "bridged"})
    assert "namespaces" in (caught.value.hint or "")


def test_where_there_can_be_no_namespaces_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LocalStateError, match="need Linux, root") as caught:
        network.Namespaces(
            adopt=lambda *_: None, stop=lambda _: None, pid_of=lambda _: None, clock=SystemClock()
        )
    assert "ARYLCLOUD_LOCAL__NETWORK" in (caught.value.hint or "")


def test_a_cable_has_a_name_that_the_kernel_takes() -> None:
    assert len(network.port("i-0123456789abcdef")) <= 15
    assert network.port("i-0123456789abcdef") != network.port("i-0123456789abcdee")
    assert network.hostname("10.88.3.4") == "ip-10-88-3-4"


CHECK = f"""
import os, socket, subprocess, sys
sys.path.insert(0, {str(Path(network.__file__).parents[3])!r})
from pathlib import Path
from arylcloud.core.clock import SystemClock
from arylcloud.providers.local import network
listeners = {{}}
pids = {{}}
make = lambda: network.Namespaces(
    adopt=lambda i, s: listeners.update({{i: s}}), stop=listeners.pop, pid_of=pids.get, clock=SystemClock()
)
net = make()
address, port = net.bind("i-0123456789", None, None)
Path("look.py").write_text(
    "import socket\\nhost = socket.gethostname()\\nprint(host, socket.gethostbyname(host))\\n"
    "socket.create_connection(('169.254.169.254', 80), 5)\\n"
    "print(open('/proc/net/dev').read().count('eth0'))\\n"
)
first = ["sh", "-c", "read gate; exec {sys.executable} look.py"]
argv = net.wrap("i-0123456789", address, first, Path.cwd())
child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
net.connect("i-0123456789", address, child.pid)
pids["i-0123456789"] = child.pid
listeners.pop("i-0123456789").close()
again = make()  # a daemon that was started anew
assert again.bind("i-0123456789", address, port) == (address, port)
assert again.bind("i-1111111111", None, None)[0] not in (address, network.HUB)
out, _ = child.communicate("open\\n", timeout=120)
assert out.split() == [network.hostname(address), address, "1"], out
assert listeners["i-0123456789"].getsockname() == network.METADATA
again.unbind("i-0123456789")
print("fine")
"""


def test_a_machine_on_a_network_of_its_own(tmp_path: Path) -> None:
    possible = (
        sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare")
    )
    if not possible:
        assert not os.environ.get("CI"), "network namespaces are never left out there"
        pytest.skip("network namespaces need Linux, root and iproute2")
    enter = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "hub"]
    done = subprocess.run(
        [*enter, sys.executable, "-c", CHECK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
    assert socket.gethostname() not in done.stderr
