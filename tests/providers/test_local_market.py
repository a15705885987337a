"""The market: steps, capacity, interruptions, bills. Pure where it can be, against the daemon where not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers.contract import check_history, gone, of, wait_for
from providers.localcloud import LocalCloud, a_market, an_offer, local_cloud

from arylcloud.core.errors import UsageError
from arylcloud.core.ports import EndCause, Machine, MachineState
from arylcloud.providers.local import marketfile
from arylcloud.providers.local.bill import bill
from arylcloud.providers.local.market import Market


def parsed(*offers: dict[str, Any], **changes: Any) -> Market:
    return marketfile.parse(json.dumps(a_market(*offers, **changes)), what="test market")


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("name", marketfile.bundled())
def test_bundled_markets_are_valid(name: str) -> None:
    market = marketfile.parse(marketfile.read(name).text, what=name)
    assert market.name == name
    for offer in market.offers:
        assert offer.source
        assert offer.gpu
        spot = [s.usd_per_hour for s in offer.steps] if offer.market.value == "spot" else []
        on_demand = [
            o.steps[0].usd_per_hour
            for o in market.offers
            if o.market.value == "on_demand"
            and (o.region, o.instance_type) == (offer.region, offer.instance_type)
        ]
        if spot and on_demand:
            assert max(spot) < on_demand[0]


def test_the_bundled_default_is_there() -> None:
    assert {"default", "demo"} <= set(marketfile.bundled())


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"time_scale": 0}, "time_scale"),
        ({"time_scale": "fast"}, "time_scale"),
        ({"boot_s": -1}, "boot_s"),
        ({"colour": "red"}, "colour"),
        ({"offers": []}, "offers"),
        ({"offers": {}}, "offers"),
        ({"offers": [an_offer(), an_offer()]}, "repeats"),
        ({"offers": [an_offer(steps=[])]}, "offers[0]: steps"),
        ({"offers": [an_offer(steps=[[5, 1.0, 1]])]}, "steps[0]"),
        ({"offers": [an_offer(steps=[[0, 1.0, 1], [0, 1.0, 1]])]}, "steps[1]"),
        ({"offers": [an_offer(steps=[[0, 0, 1]])]}, "price"),
        ({"offers": [an_offer(steps=[[0, float("nan"), 1]])]}, "price"),
        ({"offers": [an_offer(steps=[[0, 1.0, 1.5]])]}, "capacity"),
        ({"offers": [an_offer(steps=[[0, 1.0]])]}, "steps[0]"),
        ({"offers": [an_offer(market="reserved")]}, "market"),
        ({"offers": [an_offer(region="a/b")]}, "region"),
        ({"offers": [an_offer(gpu_count=0)]}, "gpu_count"),
        ({"offers": [an_offer(source="")]}, "source"),
        ({"offers": [an_offer(price=1)]}, "price"),
        ({"offers": [an_offer(market="on_demand", steps=[[0, 1.0, 1], [9, 1.1, 1]])]}, "on-demand"),
        (
            {"offers": [an_offer(market="on_demand", interruptions=[{"t_market_s": 1, "notice_s": 0}])]},
            "interruptions",
        ),
        ({"offers": [an_offer(interruptions=[{"t_market_s": 1}])]}, "notice_s"),
        ({"loop_s": 10, "offers": [an_offer(steps=[[0, 1.0, 1], [10, 1.0, 1]])]}, "loop_s"),
        ({"faults": [{"op": "create", "kind": "explode"}]}, "kind"),
    ],
)
def test_a_bad_market_file_names_the_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError) as caught:
        marketfile.parse(json.dumps({**a_market(), **change}), what="m.json")
    assert place in caught.value.message
    assert "m.json" in caught.value.message
    assert caught.value.hint


def test_what_is_no_market_at_all(tmp_path: Path) -> None:
    for text in ("", "[]", "{", "null"):
        with pytest.raises(UsageError):
            marketfile.parse(text, what="m.json")
    for setting in ("no-such-market", str(tmp_path / "missing.json"), str(tmp_path)):
        with pytest.raises(UsageError):
            marketfile.read(setting)


# ---------------------------------------------------------------- time

STEPS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(1, 90), st.integers(0, 5)), min_size=0, max_size=8
).map(
    lambda rows: [
        [0, 0.5, 3],
        *[[t, c / 100, n] for t, c, n in sorted({row[0]: row for row in rows}.values())],
    ]
)


@given(steps=STEPS, loop=st.sampled_from([None, 501, 777.5]), at=st.floats(0, 3000), to=st.floats(0, 3000))
def test_steps_between_are_the_steps_in_force(
    steps: list[list[float]], loop: float | None, at: float, to: float
) -> None:
    """Walking the steps of (a, b] from the one in force at a ends at the one in force at b."""
    market = parsed(an_offer(steps=steps), loop_s=loop)
    offer = market.offers[0]
    start, end = min(at, to), max(at, to)
    walk = [market.step_at(offer, start), *market.steps_between(offer, start, end)]
    assert [s.t_s for s in walk] == sorted({s.t_s for s in walk})
    assert walk[0].t_s <= start
    assert all(start < s.t_s <= end for s in walk[1:])
    assert walk[-1] == market.step_at(offer, end)


def test_a_loop_repeats_and_interruptions_are_told_apart() -> None:
    market = parsed(
        an_offer(steps=[[0, 1.0, 1], [60, 2.0, 2]], interruptions=[{"t_market_s": 30, "notice_s": 0}]),
        loop_s=100,
    )
    offer = market.offers[0]
    assert [market.step_at(offer, t).usd_per_hour for t in (0, 59, 60, 99, 100, 160, 259)] == [
        1,
        1,
        2,
        2,
        1,
        2,
        1,
    ]
    due = market.interruptions_between(offer, -1, 250)
    assert [item.t_s for _, item in due] == [30, 130, 230]
    assert len({script for script, _ in due}) == 3


# ---------------------------------------------------------------- the daemon


def running(cloud: LocalCloud, region: str = "here", **changes: Any) -> Machine:
    adapter = cloud.connect()
    machine = adapter.create(cloud.spec(cloud.offer(region), "echo up; sleep 600\n", **changes))
    wait_for(lambda: "up" in cloud.console(machine), "boot")
    return machine


def test_without_notice_the_youngest_goes_on_time(tmp_path: Path) -> None:
    struck = an_offer(interruptions=[{"t_market_s": 900, "notice_s": 0}])
    with local_cloud(tmp_path, a_market(struck)) as cloud:
        old, young = running(cloud), running(cloud)
        began_s = cloud.connect().capabilities().market_clock.origin_s
        cloud.pass_time(899.5 - (time.time() - began_s))
        end = gone(cloud.connect(), young)
        origin_s = cloud.connect().capabilities().market_clock.origin_s
        assert end.end_cause is EndCause.INTERRUPTED
        assert end.ended_s is not None
        assert end.ended_s >= origin_s + 900
        struck_at_s = next(r["wall_s"] for r in cloud.records if r["kind"] == "ending")
        assert struck_at_s >= origin_s + 900
        seen = of(cloud.connect(), old.instance_id, "j")
        assert seen is not None
        assert seen.state is MachineState.RUNNING
        assert [r for r in cloud.records if r["kind"] == "notice"] == []


def test_a_scripted_interruption_finds_nobody_or_waits(tmp_path: Path) -> None:
    soon = {"t_market_s": 0, "notice_s": 0}
    market = a_market(
        an_offer("missed", interruptions=[soon]),
        an_offer("waits", interruptions=[{**soon, "min_age_s": 1.5}]),
    )
    with local_cloud(tmp_path, market) as cloud:
        cloud.connect().offers()
        missed, waits = running(cloud, "missed"), running(cloud, "waits")
        end = gone(cloud.connect(), waits)
        assert end.ended_s is not None
        assert end.ended_s - end.launched_s >= 1.5
        again = running(cloud, "waits")  # it strikes once
        wait_for(lambda: time.time() - again.launched_s > 1.8, "an age at which it would be struck")
        for machine in (missed, again):
            seen = of(cloud.connect(), machine.instance_id, "j")
            assert seen is not None
            assert seen.state is MachineState.RUNNING


def test_capacity_that_falls_takes_the_youngest(tmp_path: Path) -> None:
    market = a_market(
        an_offer(steps=[[0, 0.5, 3], [900, 0.5, 1]]),
        an_offer("here", "on_demand", steps=[[0, 1, 3], [900, 1, 0]]),
    )
    with local_cloud(tmp_path, market) as cloud:
        adapter = cloud.connect()
        machines = [running(cloud) for _ in range(3)]
        bought = adapter.create(cloud.spec(cloud.offer("here", "on_demand")))
        cloud.pass_time(900)
        for machine in machines[1:]:
            assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED
        for machine in (machines[0], bought):  # on-demand machines are not taken back
            seen = of(adapter, machine.instance_id, "j")
            assert seen is not None
            assert seen.state is MachineState.RUNNING


def test_a_price_above_the_cap_takes_the_machine_with_notice(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(an_offer(steps=[[0, 0.5, 8], [900, 0.9, 8]]), notice_s=0.5)) as cloud:
        capped, free = running(cloud, max_usd_per_hour=0.8), running(cloud)
        cloud.pass_time(900)
        end = gone(cloud.connect(), capped)
        assert end.end_cause is EndCause.INTERRUPTED
        notice = next(r for r in cloud.records if r["kind"] == "notice")
        assert end.ended_s is not None
        assert end.ended_s >= notice["acts_at_s"]
        seen = of(cloud.connect(), free.instance_id, "j")
        assert seen is not None
        assert (seen.state, seen.usd_per_hour) == (MachineState.RUNNING, 0.9)


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[LocalCloud]:
    steps = [[n * 400, round(0.2 + 0.03 * (n % 5), 2), 8] for n in range(300)]
    with local_cloud(tmp_path, a_market(an_offer(steps=steps), time_scale=2000)) as cloud:
        yield cloud


def test_price_history_is_the_market_file(moving: LocalCloud) -> None:
    adapter = moving.connect()
    offer = moving.offer()
    origin_s = adapter.capabilities().market_clock.origin_s
    steps = moving.market["offers"][0]["steps"]
    history = adapter.price_history(offer, origin_s + 1000, origin_s + 8000)
    check_history(history, origin_s + 1000, origin_s + 8000)
    assert [(p.from_s - origin_s, p.usd_per_hour) for p in history] == [
        (pytest.approx(t, abs=1e-3), usd) for t, usd, _ in steps if 800 <= t <= 8000
    ]
    assert adapter.price_history(offer, origin_s + 400, origin_s + 400)[0].usd_per_hour == 0.23
    flat = adapter.price_history(offer, origin_s + 1e6, origin_s + 2e6)
    assert [p.usd_per_hour for p in flat] == [steps[-1][1]]


def test_the_bill_from_the_log_is_the_market_integrated(moving: LocalCloud) -> None:
    """Also over a daemon that is dead for a while: the log catches up with every price."""
    adapter = moving.connect()
    first = running(moving)
    time.sleep(0.5)
    moving.kill()
    time.sleep(0.7)
    second = running(moving)
    third = running(moving)
    time.sleep(0.4)
    for machine in (first, second):
        adapter.terminate(machine)
    ends = {m.instance_id: gone(adapter, m) for m in (first, second)}
    now_wall_s = time.time()
    now_s = adapter.capabilities().market_clock.market_s(now_wall_s)
    lines = {line.instance_id: line for line in bill(moving.folder, now_wall_s=now_wall_s)}
    assert set(lines) == {first.instance_id, second.instance_id, third.instance_id}
    for machine in (first, second):
        line, end = lines[machine.instance_id], ends[machine.instance_id]
        assert end.ended_s is not None
        assert (line.launched_s, line.ended_s) == (end.launched_s, end.ended_s)
        history = adapter.price_history(moving.offer(), end.launched_s, end.ended_s)
        edges = [end.launched_s, *[p.from_s for p in history[1:]], end.ended_s]
        expected = sum(
            (to_s - from_s) / 3600 * p.usd_per_hour
            for p, from_s, to_s in zip(history, edges[:-1], edges[1:], strict=True)
        )
        assert len(history) > 2
        assert line.usd == pytest.approx(expected, rel=1e-9)
    running_line = lines[third.instance_id]
    assert running_line.ended_s is None
    assert running_line.billed_s == pytest.approx(max(now_s - running_line.launched_s, 60.0))


def test_a_minute_is_billed_at_least(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(an_offer(steps=[[0, 3.6, 1]]))) as cloud:
        adapter = cloud.connect()
        machine = adapter.create(cloud.spec(cloud.offer()))
        adapter.terminate(machine)
        gone(adapter, machine)
        (line,) = bill(cloud.folder, now_wall_s=time.time())
        assert line.billed_s == pytest.approx(60.0)
        assert line.usd == pytest.approx(0.06)


def test_an_empty_cloud_has_no_bill(tmp_path: Path) -> None:
    assert bill(tmp_path, now_wall_s=0.0) == ()
