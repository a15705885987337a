from __future__ import annotations

from collections.abc import Callable

import pytest
from clouds.azure.offers import V100, offer
from clouds.azure.subscription import Fault, Subscription
from providers.contract import CloudUnderTest, ProviderContract

from arylcloud.core.offer import Market
from arylcloud.providers.azure.adapter import AzureProvider


class TestAzure(ProviderContract):
    @pytest.fixture
    def cloud(self, sub: Subscription, connected: Callable[..., AzureProvider]) -> CloudUnderTest:
        sub.boot_s = sub.end_s = 0.2
        sub.capacity["eastus", V100, "spot"] = 1

        def fault(code: str, status: int, effect: str = "none") -> None:
            sub.faults.append(Fault(operation="PUT virtualMachines", code=code, status=status, effect=effect))

        def lag() -> None:
            sub.lag_s = 2.0

        return CloudUnderTest(
            connect=connected,
            plenty=offer(),
            single=offer(V100),
            nowhere=offer("Standard_ND96isr_H200_v5"),
            on_demand=offer(market=Market.ON_DEMAND),
            restart=lambda: None,  # it is Azure's: nobody kills it
            cut=lambda: fault("Cut", 500, "cut"),
            late=lambda: fault("InternalServerError", 500, "late"),
            throttle=lambda: fault("TooManyRequests", 429),
            lag=lag,
            forbid=lambda operations: setattr(sub, "denied", operations),
            ordered=lambda: bool(sub.vms),
        )
