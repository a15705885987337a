"""Traffic and storage: what is charged, and what is said where no price is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import offer, spec
from support.situation import draft, epoch, events, lease, training

from arylcloud.core import events as ev
from arylcloud.core.codec import decode, encode
from arylcloud.core.job import DataSet
from arylcloud.core.phases import JobPhase
from arylcloud.core.stores import usual_place
from arylcloud.launcher import dueview
from arylcloud.launcher.charges import Charges
from arylcloud.launcher.fold import replay
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.reconcile import caps
from arylcloud.launcher.spent import known_spent_usd, spent_for_limits_usd, spent_usd
from arylcloud.launcher.state import JobState
from arylcloud.planner.upkeep import DEAR_USD_PER_GB
from arylcloud.pricing.tariffs import load_tariffs


def lone(place: str, prefix_uri: str, store_place: str | None, **more: Any) -> JobState:
    """A machine there that has sent one checkpoint of 100 GB, after it had fetched one."""
    cloud, region = place.split("/")
    there = lease(0, offer=replace(offer(), cloud=cloud, region=region, zone=f"{region}-a"))
    saved = (
        ev.CheckpointCommitted(manifest="m0", epoch=0, step=1, saved_at_s=1.0, total_bytes=100 * 10**9),
        ev.CheckpointCommitted(manifest="m1", epoch=1, step=2, saved_at_s=2.0, total_bytes=100 * 10**9),
    )
    drawn = draft(there, state={"epochs": (epoch(1, there, resume_from="m0"),)})
    return replace(drawn.state, prefix_uri=prefix_uri, store_place=store_place, checkpoints=saved, **more)


@pytest.mark.parametrize(
    ("place", "prefix_uri", "store_place", "usd_per_gb", "unknown"),
    [
        # known: up at the machine's tariff, down at the store's
        ("gcp/us-central1", "s3://mine/jobs/x", "aws/us-east-1", (0.12, 0.09), ""),
        ("aws/us-east-1", "s3://mine/jobs/x", "aws/us-east-1", (), ""),
        ("local/here", "s3://mine/jobs/x", "aws/us-east-1", (0.09,), ""),
        # what leaves a cloud costs the same wherever it goes; what comes back does not
        ("gcp/us-central1", "s3://mine/jobs/x", None, (0.12,), "to gcp/us-central1"),
        ("local/here", "az://box@acct/jobs/x", None, (), "to local/here"),
        # perhaps its own region, perhaps another
        ("azure/eastus", "az://box@acct/jobs/x", None, (), "to azure/eastus; from azure/eastus"),
        # no tariff is known there
        ("gcp/asia-east1", "s3://mine/jobs/x", "aws/us-east-1", (0.09,), "from gcp/asia-east1"),
        ("gcp/us-central1", "file:///x", None, (), ""),
    ],
)
def test_traffic_whose_price_is_unknown_is_unknown(
    place: str, prefix_uri: str, store_place: str | None, usd_per_gb: tuple[float, ...], unknown: str
) -> None:
    owed = Charges(tariffs=load_tariffs()).egress(lone(place, prefix_uri, store_place))
    assert owed.usd == pytest.approx(100.0 * sum(usd_per_gb))
    ways = [way for way in unknown.split("; ") if way]
    assert len(owed.unknown) == len(ways)
    for way in ways:
        assert any(way in text for text in owed.unknown)


def test_data_whose_tariff_is_unknown_is_not_free() -> None:
    state = lone("gcp/us-central1", "file:///x", None)
    data = DataSet(uri="gs://set", size_gb=100.0, region="gcp/asia-east1")
    (there,) = state.leases.values()
    state = replace(state, spec=replace(state.spec, data=(data,)), trainings=(training(there),))
    owed = Charges(tariffs=load_tariffs()).egress(state)
    assert (owed.usd, owed.unknown) == (0.0, frozenset({"traffic from gs://set to gcp/us-central1"}))


def test_what_is_unknown_is_journaled_once_and_enters_every_total() -> None:
    charges = Charges(tariffs=load_tariffs())
    state = lone("gcp/us-central1", "s3://mine/jobs/x", None, phase=JobPhase.RUNNING)
    state = replace(
        state, spec=replace(state.spec, constraints=replace(state.spec.constraints, budget_usd=100.0))
    )
    now_s = 3600.0
    egress, _storage = charges.due(state, now_s)
    assert egress.usd == pytest.approx(12.0)
    assert "to gcp/us-central1" in egress.unknown
    told = replace(state, charges=charges.due(state, now_s))
    assert [c for c in charges.due(told, now_s) if c.what == "egress"] == [], "said once"
    report = build_report(told, now_s=now_s)
    assert report.egress_micro is None
    assert report.total_micro is None
    assert report.known_micro >= 12_000_000
    assert any("egress: no price is known of traffic from the store" in text for text in report.unknown)
    assert spent_usd(told, now_s) is None
    assert known_spent_usd(told, now_s) == report.known_micro / 1e6
    # the budget goes by what is known, and says so once
    spent = spent_for_limits_usd(told, now_s)
    d = draft(*told.leases.values(), job=told.spec, desired={"spent_usd": spent})
    d.state = told
    assert caps.reached(d) is None
    (said,) = events(d, ev.LimitUnknown)
    assert "no price is known of traffic from the store" in said.text
    d = draft(*told.leases.values(), job=told.spec, desired={"spent_usd": 101.0})
    d.state = replace(told, limits_unknown=frozenset({"budget"}))
    assert (caps.reached(d) or ("",))[0] == "over_budget"
    assert events(d, ev.LimitUnknown) == []
    # it may turn out later, or have been found by another launcher
    known = replace(told, store_place="aws/us-east-1")
    (later,) = [c for c in charges.due(known, now_s) if c.what == "egress"]
    assert (later.usd, later.unknown) == (pytest.approx(9.0), "")
    assert (
        build_report(replace(known, charges=(*known.charges, later)), now_s=now_s).egress_micro == 21_000_000
    )


def test_where_a_store_is() -> None:
    """As its submission says; in journals of before, as its name does."""
    assert usual_place("s3://arylcloud-123456789012-us-east-1/jobs/a") == "aws/us-east-1"
    assert usual_place("gs://arylcloud-0123456789-europe-west4") == "gcp/europe-west4"
    assert usual_place("s3://mine/jobs/a") is None
    assert usual_place("file:///tmp/jobs/a") is None
    usual = "s3://arylcloud-123456789012-us-east-1/jobs/a"
    for uri, said, place in (
        (usual, None, "aws/us-east-1"),
        (usual, "aws/us-west-2", "aws/us-west-2"),
        (usual, "", None),
        ("az://box@acct/jobs/a", "azure/eastus", "azure/eastus"),
        ("az://box@acct/jobs/a", None, None),
    ):
        submitted = ev.JobSubmitted(
            spec=spec(),
            prefix_uri=uri,
            journal_id="j",
            market_origin_s=0.0,
            market_scale=1.0,
            store_place=said,
        )
        document = encode(submitted)
        if said is None:
            del document["store_place"]  # as older versions wrote it
        event = decode(ev.JobSubmitted, document, where="a journal")
        record = ev.Record(job_id="a", seq=1, at_s=1.0, writer="w", cause_id=None, event=event)
        assert replay([record]).store_place == place


@pytest.mark.parametrize(
    ("store", "usd_per_gb"),
    [
        (None, {"aws/us-west-2": 0.02, "gcp/us-central1": 0.09}),  # as if it went along
        ("aws/us-east-1", {"aws/us-west-2": 0.02, "gcp/us-central1": 0.09}),
        ("aws/us-west-2", {"aws/us-west-2": 0.02, "gcp/us-central1": 0.02 + 0.09}),
        ("gcp/us-central1", {"aws/us-west-2": 0.09 + 0.12, "gcp/us-central1": 0.09}),
        # nobody knows a tariff from there
        (
            "gcp/asia-east1",
            {"aws/us-west-2": 0.09 + DEAR_USD_PER_GB, "gcp/us-central1": 0.09 + DEAR_USD_PER_GB},
        ),
    ],
)
def test_a_deadline_policy_sees_moves_by_way_of_the_store(
    store: str | None, usd_per_gb: dict[str, float]
) -> None:
    regions = ("aws/us-east-1", *usd_per_gb)
    state = replace(lone("aws/us-east-1", "s3://mine/jobs/x", store), spec=spec())
    found = dueview._egress_usd(state, regions, 0, None)
    assert found[0].tolist() == pytest.approx([0.0, *(100.0 * usd for usd in usd_per_gb.values())])
