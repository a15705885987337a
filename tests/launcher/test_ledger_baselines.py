"""Baselines and timeline by worked example; a catalogue swap changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.diary import Diary, offer, survivor

from arylcloud.core import events as ev
from arylcloud.core.offer import Market
from arylcloud.core.ports import PricePoint
from arylcloud.launcher.baselines import Baseline, baselines
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.timeline import timeline

ON_DEMAND = offer("", market=Market.ON_DEMAND, usd_per_hour=7.2)
ON_DEMAND_WEST = offer("", market=Market.ON_DEMAND, usd_per_hour=9.0, region="us-west-2")
K80 = offer("use1-az1", instance_type="p2.xlarge", usd_per_hour=0.36)
# kept steps of `survivor`: a 600 s, b 490 s, c 800 s, d 1390 s = 3280 s; boots (100 + 100 + 140 + 210) / 4
KEPT_S, BOOT_S = 3280.0, 137.5


def quoted(*quotes: ev.BaselineQuoted) -> dict[str, Baseline]:
    d = survivor()
    for quote in quotes:
        d.write(4001.0, quote)
    return {b.name: b for b in baselines(d.state, build_report(d.state, now_s=5000.0))}


def on_demand(*offers: object) -> tuple[ev.BaselineQuoted, ...]:
    return tuple(ev.BaselineQuoted(name="on_demand", offer=o, speed=1.0) for o in offers)  # type: ignore[arg-type]


def test_on_demand_is_kept_time_and_one_boot_at_its_regions_price() -> None:
    found = quoted(*on_demand(ON_DEMAND, ON_DEMAND_WEST))["on_demand"]
    usd = (600 + 490 + BOOT_S) * 7.2 / 3600 + (800 + 1390) * 9.0 / 3600
    assert found.usd_micro == round(usd * 1e6) + 10_000  # and the same storage
    assert found.hours == (KEPT_S + BOOT_S) / 3600


def test_a_region_without_quote_takes_the_clouds_cheapest_twin() -> None:
    found = quoted(*on_demand(ON_DEMAND))["on_demand"]
    assert found.usd_micro == round((KEPT_S + BOOT_S) * 7.2 / 3600 * 1e6) + 10_000


def test_the_cheapest_hour_is_slow() -> None:
    report = build_report(survivor().state, now_s=5000.0)
    total = report.total_micro
    assert total is not None
    quote = ev.BaselineQuoted(name="cheapest_per_hour", offer=K80, speed=0.1)
    found = quoted(quote)["cheapest_per_hour"]  # spot: interrupted like this run
    assert found.usd_micro == round((KEPT_S / 0.1 + report.seconds.waste) * 0.0001 * 1e6) + 10_000
    steady = replace(K80, market=Market.ON_DEMAND)
    uninterrupted = quoted(replace(quote, offer=steady))["cheapest_per_hour"]
    assert uninterrupted.usd_micro == round((KEPT_S / 0.1 + BOOT_S) * 0.0001 * 1e6) + 10_000
    assert found.saving(total) == pytest.approx(1 - total / found.usd_micro)


def test_one_fixed_zone_keeps_this_runs_waste() -> None:
    quote = ev.BaselineQuoted(name="fixed_zone", offer=offer(usd_per_hour=3.6))
    report = build_report(survivor().state, now_s=5000.0)
    seconds = KEPT_S + report.seconds.waste
    assert quoted(quote)["fixed_zone"].usd_micro == round(seconds * 1000) + 10_000
    steps = (PricePoint(from_s=-1.0, usd_per_hour=3.6), PricePoint(from_s=1000.0, usd_per_hour=7.2))
    dearer = quoted(replace(quote, prices=steps))["fixed_zone"]
    assert dearer.usd_micro == round(1000 * 1000 + (seconds - 1000) * 2000) + 10_000


@pytest.mark.parametrize(
    ("quote", "missing"),
    [
        (
            replace(on_demand(ON_DEMAND)[0], offer=replace(ON_DEMAND, usd_per_hour=None)),
            "on-demand price of p3",
        ),
        (ev.BaselineQuoted(name="cheapest_per_hour", offer=K80), "speed on p2.xlarge is not known"),
        (
            ev.BaselineQuoted(name="cheapest_per_hour", offer=replace(K80, usd_per_hour=None), speed=1.0),
            "the price of",
        ),
        (ev.BaselineQuoted(name="fixed_zone", offer=offer(usd_per_hour=None)), "the price of"),
    ],
)
def test_a_missing_figure_is_named_and_no_total_is_invented(quote: ev.BaselineQuoted, missing: str) -> None:
    found = quoted(quote)[quote.name]
    assert found.usd_micro is None
    assert found.saving(1) is None
    assert missing in found.basis


def test_without_quotes_or_without_steps_nothing_is_known() -> None:
    assert [b.usd_micro for b in quoted().values()] == [None] * 3
    d = Diary().lease("a", 0.0)
    for b in baselines(d.state, build_report(d.state, now_s=100.0)):
        assert b.usd_micro is None
        assert "no steps" in b.basis


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_short_job_is_compared_with_the_minute_that_every_cloud_bills(nodes: int) -> None:
    """Ten seconds of boot and twenty of steps: nobody sells less than sixty of each machine."""
    names = [f"m{n}" for n in range(nodes)]
    d = Diary()
    for n, name in enumerate(names):
        d.lease(name, 0.0, index=n)
    d.epoch(9.0, *names)
    for name in names:
        d.train(1, name, 10.0)
    d.save(1, 1, 30.0, 20)
    for name in names:
        d.halt(1, name, 30.0, how="exited", last=20, committed=20, saved_s=30.0)
    for name in names:
        d.end(name, 31.0)
    slow = ev.BaselineQuoted(name="cheapest_per_hour", offer=K80, speed=1.0)
    fixed = ev.BaselineQuoted(name="fixed_zone", offer=offer(usd_per_hour=3.6))
    for quote in (*on_demand(ON_DEMAND), slow, fixed):
        d.write(40.0, quote)
    report = build_report(d.state, now_s=100.0)
    found = {b.name: b for b in baselines(d.state, report)}
    for name, usd_per_hour in (("on_demand", 7.2), ("cheapest_per_hour", 0.36), ("fixed_zone", 3.6)):
        usd = found[name].usd_micro
        assert usd is not None
        assert usd - report.storage_micro == pytest.approx(nodes * 60 * usd_per_hour / 3600 * 1e6, abs=1)
        assert found[name].hours == pytest.approx(nodes * 60 / 3600)


def test_a_later_quote_of_the_same_offer_replaces_the_earlier_one() -> None:
    first = ev.BaselineQuoted(name="fixed_zone", offer=offer(usd_per_hour=1.0))
    d = survivor().write(4001.0, first).write(4002.0, replace(first, offer=offer(usd_per_hour=2.0)))
    assert [b.offer.usd_per_hour for b in d.state.baselines] == [2.0]


def test_another_catalogue_changes_no_report() -> None:
    """Case 47: everything comes from the journal; the offers of today are not even an argument."""
    d = survivor().write(4001.0, on_demand(ON_DEMAND)[0])
    before = build_report(d.state, now_s=5000.0)
    compared = baselines(d.state, before)
    again = Diary(records=[ev.Record.from_bytes(r.to_bytes()) for r in d.records])
    assert build_report(again.state, now_s=777_777.0) == replace(before, as_of_s=777_777.0)
    assert baselines(again.state, build_report(again.state, now_s=777_777.0)) == compared


def test_the_timeline_tells_the_story_in_market_order() -> None:
    entries = timeline(survivor().records)
    assert [e.at_s for e in entries] == sorted(e.at_s for e in entries)
    kinds = [e.kind for e in entries]
    assert kinds.count("launch") == 4
    assert kinds.count("checkpoint") == 5
    assert [(e.lease_id, e.noticed) for e in entries if e.kind == "interruption"] == [
        ("a", False),
        ("b", True),
    ]
    assert [e.at_s for e in entries if e.kind in ("migration", "migrated")] == [2250.0, 2511.0]
    price = next(e for e in entries if e.kind == "price")
    assert (price.at_s, price.usd_per_hour) == (1510.0, 7.2)


def test_the_timeline_of_a_compressed_market_is_in_market_time() -> None:
    d = Diary(scale=100.0, origin_s=0.0).lease("a", 500.0).epoch(7.0, "a").train(1, "a", 8.0)
    found = {e.kind: e.at_s for e in timeline(d.records)}
    assert found == {"submitted": 0.0, "launch": 500.0, "epoch": 700.0, "training": 800.0}
