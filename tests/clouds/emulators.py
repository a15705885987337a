"""AWS, Google Cloud and Azure on this machine, with everything in the catalogue to be had at its price.

    scripts/emulators                 a shell in which arylcloud meets these three clouds; ``exit`` ends them
    scripts/emulators COMMAND…        the same for one command

Machines boot as processes of this machine, buckets are there, prices are the bundled catalogue's. The SDKs
are the real ones, and so is everything of arylcloud; only what they talk to is not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from clouds.aws.emulator import AwsEmulator
from clouds.azure.emulator import AzureEmulator
from clouds.azure.subscription import Size
from clouds.boots import Boots
from clouds.gcp.emulator import GcpEmulator
from clouds.stores.blob import Azure
from clouds.stores.gcs import Gcs

from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.select import Query, select

WELCOME = """AWS, GCP and Azure are emulated in this shell; `exit` ends them, and what still runs there. Try:

  arylcloud check --infra gcp/us-central1
  arylcloud prices --refresh --infra aws
  arylcloud launch examples/digits/job.yaml --infra aws/us-east-1
"""
MARK = "ARYLCLOUD_EMULATORS"
"""In the environment of all that is started in there: the folder of these emulators."""
GRACE_S = 10.0
SINCE_S = 86400.0
RATES = ("0-5", "5-10", "10-15")
"""Of evictions, in percent."""
USUAL = {"boot_s": 1.0, "end_s": 1.0}


def offers(cloud: str, *, whole: bool = False) -> tuple[Offer, ...]:
    """``whole``: also what is listed only, since nobody knows how many GPUs it has."""
    table = load_bundled()
    wanted = select(table, Query(infra=(cloud,)))
    return table.take(wanted if whole else wanted & table.plannable).offers()


class Clouds:
    """``with Clouds(folder) as clouds``; ``clouds.environ`` points arylcloud at them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self.environ: dict[str, str] = {}

    def __enter__(self) -> Clouds:
        boots = Boots(self._folder / "aws")
        self._open.callback(boots.close)
        aws = self._open.enter_context(AwsEmulator(boots))
        gcp = self._open.enter_context(GcpEmulator(self._folder / "gcp"))
        azure = self._open.enter_context(AzureEmulator(ca=self._folder, boots=self._folder / "azure"))
        then_s = time.time() - SINCE_S
        rows = [o for o in offers("aws") if not o.region.startswith("us-gov-")]  # accounts of their own
        account = aws.account(
            spot={
                (o.zone, o.instance_type): [(then_s, o.usd_per_hour or 0.0)]
                for o in rows
                if o.market is Market.SPOT and o.zone is not None
            },
            on_demand={
                (o.region, o.instance_type): o.usd_per_hour or 0.0
                for o in rows
                if o.market is Market.ON_DEMAND
            },
            types={o.instance_type: o for o in rows},
            regions=tuple(sorted({o.region for o in rows})),
            **USUAL,
        )
        project = gcp.project(offers("gcp"), **USUAL)
        buckets = self._open.enter_context(Gcs(project=project.id))
        gcp.token_for = buckets.machine_token
        blobs = self._open.enter_context(Azure())
        blobs.behind(azure.arm)
        rows = offers("azure")
        subscription = azure.subscription(
            usd={
                (o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour)]
                for o in offers("azure", whole=True)
                if o.usd_per_hour is not None
            },
            evictions={
                (o.region, o.instance_type): RATES[n % len(RATES)]
                for n, o in enumerate(rows)
                if o.market is Market.SPOT
            },
            sizes={
                o.instance_type: Size(
                    family=f"standard{o.gpu}Family", vcpus=int(o.vcpus or 4), gpus=o.gpu_count or 0
                )
                for o in rows
            },
            regions=tuple(sorted({o.region for o in rows})),
            **USUAL,
        )
        self.environ = {
            **aws.environ(account),
            **gcp.environ(project),
            **{f"ARYLCLOUD_GCP__{what}_ENDPOINT": buckets.url for what in ("STORAGE", "IAM", "STS")},
            **azure.environ(subscription),
            "ARYLCLOUD_AZURE__BLOB_ENDPOINT": blobs.settings["blob_endpoint"],
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def main(command: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="arylcloud-emulators-") as name:
        folder = Path(name)
        log = folder / "emulators.log"
        logging.basicConfig(filename=log, level=logging.WARNING)
        with Clouds(folder) as clouds:
            home = os.environ.get("ARYLCLOUD_HOME", str(folder / "home"))
            environ = {**os.environ, **clouds.environ, "ARYLCLOUD_HOME": home, MARK: name}
            environ.pop("AWS_PROFILE", None)
            if not command:
                print(WELCOME, file=sys.stderr)
                command = [os.environ.get("SHELL", "/bin/sh")]
            code = subprocess.run(command, env=environ, check=False).returncode
            if ended := end_all(name):  # launchers: the clouds that they look after are no more
                print(f"ended with the emulators: {ended} in the background", file=sys.stderr)
        if log.stat().st_size:
            kept = Path(tempfile.gettempdir()) / f"arylcloud-emulators-{os.getpid()}.log"
            shutil.copy(log, kept)
            print(f"the emulators had faults of their own: {kept}", file=sys.stderr)
        return code


def end_all(folder: str) -> int:
    """How many processes were begun in there and had outlived it: asked to end, and made to."""
    begun = left = background(folder)
    for how, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        give_up_s = time.monotonic() + patience_s
        while (left := background(folder)) and time.monotonic() < give_up_s:
            time.sleep(0.05)
    return len(begun)


def background(folder: str) -> list[int]:
    """Processes with the mark of these emulators; machines have none, and end with their clouds."""
    mark = f"{MARK}={folder}"
    if not Path("/proc/self/environ").exists():
        rows = subprocess.run(
            ["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, check=False
        )
        found = [row.split(None, 1) for row in rows.stdout.splitlines() if mark in row.split()]
        return [int(pid) for pid, _ in found]
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
