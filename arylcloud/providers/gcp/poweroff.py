"""How a machine ends itself: by deleting itself, where it has an identity that may; else by switching off.

Tried some times, the metadata service without a proxy; what fails is told in the machine's log. ``shutdown``
alone stops the bill for everything but the disk; the machine's launcher, or ``gc``, has that deleted.
"""

from __future__ import annotations

import shlex
from typing import Final

_PROGRAM: Final = """\
import json, os, time
from urllib.request import ProxyHandler, Request, build_opener, urlopen
base = os.environ.get("ARYL_METADATA_URL") or "http://metadata.google.internal"
here = build_opener(ProxyHandler({}))
def ask(path):
    address = base + "/computeMetadata/v1/" + path
    with here.open(Request(address, headers={"Metadata-Flavor": "Google"}), timeout=10) as answer:
        return answer.read().decode()
for n in range(@TRIES@):
    try:
        token = json.loads(ask("instance/service-accounts/default/token"))["access_token"]
        zone = ask("instance/zone").rpartition("/")[2]
        me = (ask("project/project-id"), zone, ask("instance/name"))
        path = "/compute/v1/projects/%s/zones/%s/instances/%s" % me
        head = {"Authorization": "Bearer " + token}
        urlopen(Request(@API@ + path, method="DELETE", headers=head), timeout=60).read()
        break
    except Exception as error:
        print("this machine cannot delete itself:", error)
        if getattr(error, "code", None) in (403, 404):  # no account, or one that may not: it stays so
            break
        time.sleep(min(60, 2 ** n))
"""


def poweroff(api: str, *, tries: int = 6) -> str:
    """The shell command; ``api``: where Compute Engine is asked."""
    program = _PROGRAM.replace("@API@", repr(api)).replace("@TRIES@", str(tries))
    return f"python3 -S -c {shlex.quote(program)}; shutdown -h now"
