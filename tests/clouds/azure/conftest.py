from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.mgmt.compute", reason="needs arylcloud[azure]")
pytest.importorskip("azure.mgmt.network", reason="needs arylcloud[azure]")
pytest.importorskip("azure.identity", reason="needs arylcloud[azure]")
pytest.importorskip("trustme", reason="needs trustme")

from clouds.azure.emulator import AzureEmulator
from clouds.azure.offers import T4, T4_LARGE, V100, connect
from clouds.azure.subscription import Subscription

from arylcloud.providers.azure.adapter import AzureProvider

DAY_S = 86400.0


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureEmulator]:
    """One server for all tests, over TLS: each has a subscription of its own."""
    with AzureEmulator(ca=tmp_path_factory.mktemp("ca")) as emulator:
        yield emulator


@pytest.fixture
def sub(azure: AzureEmulator, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    then_s = time.time() - DAY_S
    usd = {
        ("eastus", T4, "spot"): 0.149174,
        ("eastus", T4, "on_demand"): 0.526,
        ("eastus", T4_LARGE, "on_demand"): 1.52,
        ("eastus", V100, "spot"): 0.3978,
        ("westeurope", T4, "spot"): 0.2,
    }
    made = azure.subscription(usd={key: [(then_s, price)] for key, price in usd.items()})
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_CLIENT_CERTIFICATE_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in azure.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def connected(azure: AzureEmulator, sub: Subscription, tmp_path: Path) -> Callable[..., AzureProvider]:
    def make(**settings: str) -> AzureProvider:
        return connect(azure, sub, tmp_path / "state", **settings)

    return make
