"""The three price emulators together: for tests in this process, for benchmarks in one of their own.

    python tests/clouds/prices_emulators.py [--small]

prints one JSON line with the environment that points arylcloud at them, and serves until standard input is
closed. A line ``{"forward_s": 3600}`` moves their clock; each line is answered with what was served so far.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from clouds.prices.aws import NEW_TYPE, AwsPriceEmulator
from clouds.prices.azure import AzurePriceEmulator
from clouds.prices.gcp import GcpPriceEmulator

from arylcloud.core.offer import Offer
from arylcloud.pricing.catalogue import load_bundled

SMALL = ("us-east-1", "eu-west-1", "eastus", "westeurope")


@cache
def bundled_offers(regions: tuple[str, ...] | None = None) -> tuple[Offer, ...]:
    """The bundled catalogue's offers, and an AWS type that it does not know."""
    found = [o for o in load_bundled().offers() if regions is None or o.region in regions or o.cloud == "gcp"]
    like = next(o for o in found if (o.instance_type, o.region) == ("p5.48xlarge", "us-east-1"))
    new = replace(like, instance_type=NEW_TYPE, gpu="H200", gpu_mem_gib=141.0, zone=None, usd_per_hour=77.0)
    return (*found, new)


class PriceEmulators:
    """AWS, GCP and Azure. ``small``: two regions of AWS and Azure, little beside GPU machines; for tests."""

    def __init__(self, *, small: bool = False, now_s: float | None = None) -> None:
        offers = bundled_offers(SMALL if small else None)
        now_s = time.time() if now_s is None else now_s
        self.aws = AwsPriceEmulator(offers, now_s, changes_per_day=0.1 if small else 0.9)
        self.gcp = GcpPriceEmulator(offers, copies=0 if small else 6)
        self.azure = AzurePriceEmulator(offers, other_sizes=50 if small else 300)
        self._open = ExitStack()

    def __enter__(self) -> PriceEmulators:
        for emulator in self.all:
            self._open.enter_context(emulator)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def all(self) -> tuple[Any, ...]:
        return (self.aws, self.gcp, self.azure)

    def environ(self) -> dict[str, str]:
        """What points arylcloud at them."""
        return {
            "AWS_ENDPOINT_URL": self.aws.url,
            "ARYLCLOUD_AWS__SPOT_ADVISOR": self.aws.url,
            "AWS_ACCESS_KEY_ID": "AKIAEMULATED",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "ARYLCLOUD_GCP__BILLING_ENDPOINT": self.gcp.url,
            "ARYLCLOUD_AZURE__RETAIL_PRICES": self.azure.url,
        }

    def served(self) -> dict[str, Any]:
        return {
            "held_rows": sum(emulator.held_rows() for emulator in self.all),
            "served_rows": sum(emulator.served["rows"] for emulator in self.all),
            "calls": sum(emulator.served["calls"] for emulator in self.all),
            "throttled": sum(emulator.served["throttled"] for emulator in self.all),
        }


def main() -> None:
    with PriceEmulators(small="--small" in sys.argv) as emulators:
        for emulator in emulators.all:
            emulator.faults.throttle_every = 23
            emulator.faults.retry_after_s = 0.2
        emulators.served()  # made before anybody waits for it
        print(json.dumps(emulators.environ()), flush=True)
        for line in sys.stdin:
            emulators.aws.now_s += json.loads(line).get("forward_s", 0)
            print(json.dumps(emulators.served()), flush=True)


if __name__ == "__main__":
    main()
