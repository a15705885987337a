from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("boto3", reason="needs arylcloud[aws]")
pytest.importorskip("moto.server", reason="needs moto[server]")

from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator

DAY_S = 86400.0
SHARED_KEY = "AKIASHAREDBYTESTS000"
CLIENTS_DEPEND_ON = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)


@pytest.fixture(scope="session", autouse=True)
def _one_model() -> Iterator[None]:
    """Each adapter has a botocore session, which reads EC2's whole description again: once is enough here."""
    from functools import cache

    from botocore.loaders import JSONFileLoader

    plain = JSONFileLoader.load_file
    load = cache(lambda path: plain(JSONFileLoader(), path))
    JSONFileLoader.load_file = lambda self, path: load(path)
    yield
    JSONFileLoader.load_file = plain


@pytest.fixture(scope="session", autouse=True)
def _one_client() -> Iterator[None]:
    """Nor does each adapter need clients of its own (0.1 CPU s each): tests have accounts of their own behind
    one and the same key."""
    from arylcloud.providers.aws.client import Calls

    plain = Calls._make
    made: dict[tuple[object, ...], object] = {}

    def make(self: Calls, service: str, region: str) -> object:
        if sys.modules.get("botocore.session") is None:
            return plain(self, service, region)
        said = tuple(os.environ.get(name) for name in CLIENTS_DEPEND_ON)
        key = (service, region, self._profile, *said)
        if key not in made:
            made[key] = plain(self, service, region)
        return made[key]

    Calls._make = make  # type: ignore[method-assign]
    yield
    Calls._make = plain  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def aws() -> Iterator[AwsEmulator]:
    """One server for all tests: each has an account of its own."""
    with AwsEmulator() as emulator:
        yield emulator


@pytest.fixture
def account(aws: AwsEmulator, monkeypatch: pytest.MonkeyPatch) -> Account:
    now_s = time.time()
    moving = [(now_s - DAY_S + 600 * n, round(0.2 + 0.01 * (n % 7), 4)) for n in range(int(DAY_S / 600))]
    made = aws.account(
        key=SHARED_KEY,
        spot={("use1-az4", "g4dn.xlarge"): moving, ("use1-az1", "g5.xlarge"): [(now_s - DAY_S, 0.4)]},
        on_demand={("us-east-1", "g4dn.xlarge"): 0.526, ("us-east-1", "g4dn.2xlarge"): 1.52},
    )
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws.environ(made).items():
        monkeypatch.setenv(name, value)
    return made
