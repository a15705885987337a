from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from providers.contract import CloudUnderTest, ProviderContract
from providers.localcloud import a_market, an_offer, local_cloud


class TestLocal(ProviderContract):
    """Time compressed 3600 times and a price that moves, so that the price tests see it move."""

    @pytest.fixture
    def cloud(self, tmp_path: Path) -> Iterator[CloudUnderTest]:
        moving = [[n * 300, 0.3 + 0.01 * (n % 7), 8] for n in range(400)]
        market = a_market(
            an_offer("plenty", steps=moving),
            an_offer("single", steps=[[0, 0.4, 1]]),
            an_offer("plenty", market="on_demand", steps=[[0, 1.0, 8], [600, 1.0, 7]]),
            time_scale=3600,
            boot_s=0.05,
        )
        with local_cloud(tmp_path, market) as local:
            plenty = local.offer("plenty")
            yield CloudUnderTest(
                connect=local.connect,
                plenty=plenty,
                single=local.offer("single"),
                nowhere=replace(plenty, region="nowhere"),
                restart=local.kill,
                on_demand=local.offer("plenty", "on_demand"),
                offers=lambda: local.connect().offers(),
            )
