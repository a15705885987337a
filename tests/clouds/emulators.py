"""AWS, Google Cloud and Azure on this machine, with everything in the catalogue to be had at its price.

    scripts/emulators                 a shell in which arylcloud meets these three clouds; ``exit`` ends them
    scripts/emulators COMMAND…        the same for one command

Machines boot as processes of this machine, buckets are there, prices are the bundled catalogue's. The SDKs
are the real ones, and so is everything of arylcloud; only what they talk to is not.
"""

from __future__ import annotations

import os
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

WELCOME = """AWS, GCP and Azure are emulated in this shell; `exit` ends them. Try:

  arylcloud check --infra gcp/us-central1
  arylcloud launch examples/digits/job.yaml --infra aws/us-east-1
"""
SINCE_S = 86400.0
USUAL = {"boot_s": 1.0, "end_s": 1.0}


def offers(cloud: str) -> tuple[Offer, ...]:
    table = load_bundled()
    return table.take(select(table, Query(infra=(cloud,))) & table.plannable).offers()


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
        rows = offers("aws")
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
                (o.region, o.instance_type, o.market.value): [(then_s, o.usd_per_hour or 0.0)] for o in rows
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
        with Clouds(folder) as clouds:
            home = os.environ.get("ARYLCLOUD_HOME", str(folder / "home"))
            environ = {**os.environ, **clouds.environ, "ARYLCLOUD_HOME": home}
            environ.pop("AWS_PROFILE", None)
            if not command:
                print(WELCOME, file=sys.stderr)
                command = [os.environ.get("SHELL", "/bin/sh")]
            return subprocess.run(command, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
