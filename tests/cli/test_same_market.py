"""Two homes have two local clouds: the list of one is never taken for the word of the other."""

from __future__ import annotations

import pytest

from arylcloud.cli.assemble import check_same_market
from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import UsageError
from arylcloud.core.ports import Billing, Capabilities
from arylcloud.simulation.world import World


def _world(clock: MarketClock) -> World:
    class Other(World):
        def capabilities(self) -> Capabilities:
            return Capabilities(notice_s=0, billing=Billing(), market_clock=clock, boot_s=1)

    return Other.__new__(Other)


def test_the_same_cloud_is_let_through() -> None:
    clock = MarketClock(origin_s=17.5, scale=600.0)
    check_same_market("j-1", clock, {"local": _world(MarketClock(origin_s=17.5, scale=600.0))})


@pytest.mark.parametrize("other", [MarketClock(origin_s=17.6, scale=600.0), MarketClock(origin_s=17.5)])
def test_another_one_is_refused_with_the_way_out(other: MarketClock) -> None:
    with pytest.raises(UsageError, match="another local cloud") as caught:
        check_same_market("j-1", MarketClock(origin_s=17.5, scale=600.0), {"local": _world(other)})
    assert "ARYLCLOUD_LOCAL__FOLDER" in (caught.value.hint or "")
