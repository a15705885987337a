from __future__ import annotations

import pytest
from clouds.aws.account import Account, Fault
from clouds.aws.offers import connect, offer
from providers.contract import CloudUnderTest, ProviderContract

from arylcloud.core.offer import Market


class TestAws(ProviderContract):
    @pytest.fixture
    def cloud(self, account: Account) -> CloudUnderTest:
        account.boot_s = account.end_s = 0.2
        account.capacity["use1-az1", "g5.xlarge", "spot"] = 1

        def fault(code: str, status: int, effect: str = "none") -> None:
            account.faults.append(Fault(operation="RunInstances", code=code, status=status, effect=effect))

        def lag() -> None:
            account.lag_s = 3.0

        return CloudUnderTest(
            connect=connect,
            plenty=offer(),
            single=offer("g5.xlarge", zone="use1-az1"),
            nowhere=offer("p5.48xlarge", zone="use1-az3"),
            on_demand=offer(market=Market.ON_DEMAND),
            restart=lambda: None,  # it is AWS's: nobody kills it
            cut=lambda: fault("Cut", 500, "cut"),
            late=lambda: fault("InternalError", 500, "late"),
            throttle=lambda: fault("RequestLimitExceeded", 503),
            lag=lag,
            forbid=lambda operations: setattr(account, "denied", operations),
            ordered=lambda: bool(account.lives),
        )
