"""How a machine ends itself: by deleting itself, where it has an identity that may; else by switching off.

``shutdown`` alone stops the bill for everything but the disk; who lists the machines next deletes that.
"""

from __future__ import annotations

import shlex
from typing import Final

_PROGRAM: Final = """\
import json, os
from urllib.request import Request, urlopen
base = os.environ.get("ARYL_METADATA_URL") or "http://metadata.google.internal"
def ask(path):
    address = base + "/computeMetadata/v1/" + path
    with urlopen(Request(address, headers={"Metadata-Flavor": "Google"}), timeout=5) as answer:
        return answer.read().decode()
token = json.loads(ask("instance/service-accounts/default/token"))["access_token"]
zone = ask("instance/zone").rpartition("/")[2]
me = (ask("project/project-id"), zone, ask("instance/name"))
path = "/compute/v1/projects/%s/zones/%s/instances/%s" % me
head = {"Authorization": "Bearer " + token}
urlopen(Request(@API@ + path, method="DELETE", headers=head), timeout=30).read()
"""


def poweroff(api: str) -> str:
    """The shell command; ``api``: where Compute Engine is asked."""
    program = _PROGRAM.replace("@API@", repr(api))
    return f"python3 -S -c {shlex.quote(program)} 2>/dev/null; shutdown -h now"
