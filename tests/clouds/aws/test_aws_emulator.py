"""The emulated AWS where it is more than moto: types that moto has not heard of, versions of price lists."""

from __future__ import annotations

import time
from dataclasses import replace

import botocore.session
import pytest
from clouds.asking import spec
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from clouds.aws.offers import connect, offer

from arylcloud.core.errors import CapacityError
from arylcloud.core.offer import Market

V100 = replace(offer("p3.2xlarge", zone="use1-az1"), gpu="V100", vcpus=8.0)


def test_what_moto_has_not_heard_of(account: Account) -> None:
    account.types = {"p3.2xlarge": V100}
    account.spot["use1-az1", "p3.2xlarge"] = [(time.time() - 60, 0.9)]
    adapter = connect()
    machine = adapter.create(spec(V100))
    assert (machine.instance_type, machine.market, machine.usd_per_hour) == ("p3.2xlarge", "spot", 0.9)
    with pytest.raises(CapacityError, match="does not offer"):
        adapter.create(spec(replace(V100, zone="use1-az4")))
    account.on_demand["us-east-1", "p3.8xlarge"] = 12.24
    assert (
        adapter.quote(replace(V100, instance_type="p3.8xlarge", market=Market.ON_DEMAND)).usd_per_hour
        == 12.24
    )


def test_a_list_has_another_version_when_a_price_is_another(aws: AwsEmulator, account: Account) -> None:
    client = botocore.session.Session().create_client("pricing", region_name="us-east-1")
    asked = {"ServiceCode": "AmazonEC2", "EffectiveDate": "2026-11-30", "CurrencyCode": "USD"}

    def arn() -> str:
        (one,) = client.list_price_lists(**asked)["PriceLists"]
        assert one["RegionCode"] == "us-east-1"
        return str(one["PriceListArn"])

    first = arn()
    assert arn() == first
    account.on_demand["us-east-1", "g4dn.xlarge"] = 0.6
    assert arn() != first
    for n in range(40):
        account.on_demand["us-east-1", f"g{n}.x"] = 1.0
    pages = list(client.get_paginator("get_products").paginate(ServiceCode="AmazonEC2"))
    assert [len(page["PriceList"]) for page in pages] == [100, 26]  # three kinds of each, 100 to a page
