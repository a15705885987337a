"""The cloud in memory keeps what every provider promises: what is learned on it holds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from providers.contract import CloudUnderTest, ProviderContract

from arylcloud.core.clock import ManualClock
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import PricePoint, Provider
from arylcloud.simulation.world import World


class Now(ManualClock):
    """The wall's clock, for a world that asks for a manual one: nobody has to move it."""

    at_s = property(lambda self: time.time(), lambda self, value: None)  # type: ignore[assignment]


class OneAtATime:
    """The world is made for one thread, and moves when it is told to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._world, name)
        return found if not callable(found) else self._alone(found)

    def _alone(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            with self._lock:
                self._world.advance(0.0)
                return call(*args, **named)

        return called


def offer(name: str, market: Market = Market.SPOT, usd: float = 0.4) -> Offer:
    return Offer(
        cloud="aws",
        region="us-east-1",
        zone="z1",
        instance_type=name,
        gpu="T4",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=4.0,
        mem_gib=16.0,
        market=market,
        usd_per_hour=usd,
        as_of="2026-11-30",
        source="test",
    )


class TestWorld(ProviderContract):
    @pytest.fixture
    def cloud(self) -> CloudUnderTest:
        plenty, single = offer("plenty"), offer("single")
        on_demand = offer("plenty", Market.ON_DEMAND, 1.0)
        now_s = time.time()
        moving = [PricePoint(from_s=now_s - 100 + n, usd_per_hour=0.3 + 0.01 * (n % 7)) for n in range(400)]
        world = World(clock=Now(), landing_s=0.5, end_takes_s=0.2, steps={plenty.key: tuple(moving)})
        world.room[single.key] = 1
        nowhere = replace(plenty, region="nowhere")
        world.unsold.add(nowhere.key)
        adapter = cast(Provider, OneAtATime(world))

        def lag() -> None:
            world.list_lag_s = 1.0

        return CloudUnderTest(
            connect=lambda: adapter,
            plenty=plenty,
            single=single,
            nowhere=nowhere,
            on_demand=on_demand,
            restart=lambda: None,
            cut=lambda: world.troubles.append("lost_answer"),
            late=lambda: world.troubles.append("lost_answer"),
            throttle=lambda: world.troubles.append("throttled"),
            lag=lag,
        )
