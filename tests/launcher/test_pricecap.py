"""The cap that reaches the cloud: the user's, and for spot the on-demand price of the same type and place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.harness import Harness, offer

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Machine, MachineSpec
from arylcloud.launcher.pricecap import max_usd_per_hour
from arylcloud.simulation.world import World

SPOT = offer(usd=1.0)


def twin(of: Offer, usd: float | None, **changes: object) -> ev.BaselineQuoted:
    on_demand = replace(of, market=Market.ON_DEMAND, usd_per_hour=usd, **changes)  # type: ignore[arg-type]
    return ev.BaselineQuoted(name="on_demand", offer=on_demand)


def capped(usd: float | None) -> JobSpec:
    return JobSpec(name="digits", run="true", constraints=Constraints(max_usd_per_hour=usd))


@pytest.mark.parametrize(
    ("users", "quotes", "expected"),
    [
        (None, [], None),
        (None, [twin(SPOT, 3.0)], 3.0),
        (2.0, [twin(SPOT, 3.0)], 2.0),
        (4.0, [twin(SPOT, 3.0)], 3.0),
        (4.0, [twin(SPOT, None)], 4.0),
        (None, [twin(SPOT, 3.0, zone=None)], 3.0),
        (None, [twin(SPOT, 2.0, zone="us-east-1-c"), twin(SPOT, 3.0)], 3.0),
        (None, [twin(SPOT, 2.0, region="eu-west-1")], None),
        (None, [twin(SPOT, 2.0, instance_type="p3.8xlarge")], None),
        (None, [ev.BaselineQuoted(name="fixed_zone", offer=SPOT)], None),
    ],
)
def test_the_lower_of_the_two(
    tmp_path: Path, users: float | None, quotes: list[ev.BaselineQuoted], expected: float | None
) -> None:
    state = replace(Harness(tmp_path, spec=capped(users)).state, baselines=tuple(quotes))
    assert max_usd_per_hour(state, SPOT) == expected
    on_demand = replace(SPOT, market=Market.ON_DEMAND)
    assert max_usd_per_hour(state, on_demand) == users, "on demand the user's cap alone holds"


def test_it_reaches_the_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h = Harness(tmp_path)
    asked: list[MachineSpec] = []
    create = World.create

    def seen(world: World, spec: MachineSpec) -> Machine:
        asked.append(spec)
        return create(world, spec)

    monkeypatch.setattr(World, "create", seen)
    h.state = h.launcher.executor.note(h.state, twin(SPOT, 2.5))
    h.tick(3)
    assert asked
    assert asked[0].max_usd_per_hour == 2.5
