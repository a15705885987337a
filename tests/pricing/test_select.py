"""Filters and orders, against the plain Python that they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from support.offers import QUICK, offer, offer_lists

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.select import Order, Query, order, select
from arylcloud.pricing.table import from_offers

TABLE = load_bundled()


def chosen(**fields: object) -> list[Offer]:
    return list(TABLE.take(select(TABLE, Query(**fields))).offers())  # type: ignore[arg-type]


def test_filters_agree_with_plain_python() -> None:
    everything = TABLE.offers()
    assert chosen() == list(everything)
    assert chosen(gpus=("nvidia-tesla-a100:8",)) == [
        o for o in everything if o.gpu == "A100" and o.gpu_count == 8
    ]
    assert chosen(gpus=("L4:1", "t4")) == [
        o for o in everything if (o.gpu == "L4" and o.gpu_count == 1) or o.gpu == "T4"
    ]
    assert chosen(clouds=("GCP",), markets=(Market.SPOT,), max_usd_per_hour=0.5) == [
        o
        for o in everything
        if o.cloud == "gcp" and o.market is Market.SPOT and o.usd_per_hour and o.usd_per_hour <= 0.5
    ]
    assert chosen(regions=("us-east-1", "azure/eastus")) == [
        o for o in everything if (o.cloud, o.region) in {("aws", "us-east-1"), ("azure", "eastus")}
    ]
    assert chosen(infra=("aws/us-east-1/use1-az4", "gcp")) == [
        o for o in everything if o.zone == "use1-az4" or o.cloud == "gcp"
    ]
    assert chosen(infra=("*/us-east-1",)) == [o for o in everything if o.region == "us-east-1"]
    assert chosen(instance_types=("P5.48xlarge",)) == [
        o for o in everything if o.instance_type == "p5.48xlarge"
    ]


def test_other_forms_of_a_gpu_serve_whoever_asks_for_it() -> None:
    assert {o.gpu for o in chosen(gpus=("h100",))} == {"H100", "H100-NVL"}
    assert {o.gpu for o in chosen(gpus=("H100-NVL",))} == {"H100-NVL"}
    assert {o.gpu for o in chosen(gpus=("a100-80gb",))} == {"A100-80GB", "A100-80GB-PCIE"}
    assert {o.gpu for o in chosen(gpus=("a100",))} == {"A100"}


def test_a_gpu_that_only_the_users_catalogue_knows_can_be_asked_for() -> None:
    table = from_offers([offer(gpu="Z9", gpu_count=2), offer()])
    assert select(table, Query(gpus=("z9:2",))).tolist() == [True, False]
    assert select(table, Query(gpus=("z9:4",))).tolist() == [False, False]


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"gpus": ("A101",)}, "'A101'", "A100"),
        ({"gpus": ("A100:0",)}, "whole number", None),
        ({"gpus": ("A100:x",)}, "whole number", None),
        ({"gpus": ("A100:",)}, "whole number", None),
        ({"clouds": ("awz",)}, "cloud 'awz'", "aws"),
        ({"regions": ("us-esat-1",)}, "region 'us-esat-1'", "us-east-1"),
        ({"infra": ("aws/us-east-1/use1-az4/x",)}, "no place", None),
        ({"infra": ("aws//x",)}, "no place", None),
        ({"instance_types": ("p4d.24xlage",)}, "instance type", "p4d.24xlarge"),
    ],
)
def test_what_the_table_never_heard_of_is_said(
    fields: dict[str, object], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        chosen(**fields)
    assert hint is None or hint in (caught.value.hint or "")


def _age(o: Offer) -> float:
    row = from_offers([o])
    return math.inf if o.as_of is None else -float(row.as_of[0])


@pytest.mark.parametrize("by", ["price", "price_per_gpu", "age"])
@QUICK
@given(offers=offer_lists)
def test_order_is_by_the_figure_asked_for_then_price_with_the_unknown_last(
    by: Order, offers: list[Offer]
) -> None:
    table = from_offers(offers)
    rows = order(table, np.ones(len(offers), dtype=bool), by)
    assert sorted(rows.tolist()) == list(range(len(offers)))

    def figure(o: Offer) -> tuple[float, float]:
        price = math.inf if o.usd_per_hour is None else o.usd_per_hour
        if by == "price":
            return price, price
        if by == "age":
            return _age(o), price
        return (price / o.gpu_count if o.gpu_count else math.inf), price

    figures = [figure(offers[i]) for i in rows]
    assert figures == sorted(figures)


def test_ties_are_broken_by_key_whatever_order_the_rows_came_in() -> None:
    offers = [offer(zone=zone) for zone in "cabd"]
    for rows in (offers, offers[::-1]):
        table = from_offers(rows)
        found = [table.row(int(i)).zone for i in order(table, np.arange(4), "price")]
        assert found == ["a", "b", "c", "d"]
