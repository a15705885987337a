"""What the package knows without a network, and what a user lays over it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from support.offers import QUICK, offer, offer_lists

from arylcloud.core import gpus
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.binary import save_file
from arylcloud.pricing.catalogue import CATALOGUE_VARIABLE, load, load_bundled
from arylcloud.pricing.table import from_offers
from arylcloud.pricing.usercsv import read_csv, write_csv

HEADER = "cloud,region,instance_type,market,usd_per_hour\n"


def test_bundled_catalogue_holds_what_the_sources_hold() -> None:
    offers = load_bundled().offers()
    assert len(offers) == 4248
    assert len({o.key for o in offers}) == len(offers)
    assert Counter(o.cloud for o in offers) == {"aws": 1542, "azure": 1704, "gcp": 1002}
    assert Counter(o.market for o in offers) == {Market.ON_DEMAND: 3159, Market.SPOT: 1089}
    assert all(o.usd_per_hour is not None and 0 < o.usd_per_hour < math.inf for o in offers)
    assert all(o.source for o in offers)
    assert {o.gpu for o in offers} <= set(gpus.BY_NAME)
    zoned = {o.cloud for o in offers if o.zone}
    assert zoned == {"aws", "gcp"}
    assert all("-az" in o.zone for o in offers if o.cloud == "aws" and o.zone)  # ids, not one account's names


def test_bundled_rows_are_in_order_and_known_prices_stand() -> None:
    table = load_bundled()
    keys = [(o.cloud, o.region, o.zone or "", o.instance_type, o.market.value) for o in table.offers()]
    assert keys == sorted(keys)
    prices = {o.key: o for o in table.offers()}
    assert prices["aws/us-east-1:p5.48xlarge:on_demand"].usd_per_hour == 55.04
    assert prices["azure/eastus:Standard_NC40ads_H100_v5:spot"].usd_per_hour == 1.289904  # the newer of two
    assert prices["azure/eastus:Standard_NC40ads_H100_v5:spot"].gpu == "H100-NVL"
    assert prices["gcp/us-central1:g4-standard-6:spot"].gpu_count is None  # an eighth of a GPU
    assert "aws/us-east-1/use1-az1:p5.48xlarge:spot" not in prices  # on-demand's price: quarantined


def test_a_users_row_wins_and_a_new_one_is_added(tmp_path: Path) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(
        HEADER
        + "aws,us-east-1,p5.48xlarge,on-demand,31.5\n"
        + "aws,us-east-1,p5.48xlarge,reserved,20\n"
        + "mycloud,lab,box,on_demand,1.5\n"
    )
    table = load(path, environ={})
    found = {o.key: o for o in table.offers()}
    assert len(table) == 4248 + 2
    own = found["aws/us-east-1:p5.48xlarge:on_demand"]
    assert (own.usd_per_hour, own.source, own.as_of) == (31.5, "user: offers.csv", None)
    assert (own.gpu, own.gpu_count, own.vcpus) == ("H100", 8, 192.0)  # the shape that the catalogue knows
    assert found["aws/us-east-1:p5.48xlarge:reserved"].usd_per_hour == 20
    assert found["mycloud/lab:box:on_demand"].gpu is None


def test_live_prices_go_under_the_users_and_over_the_bundled(tmp_path: Path) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(HEADER + "aws,us-east-1,p5.48xlarge,on_demand,31.5\n")
    live = [
        offer(instance_type="p5.48xlarge", usd_per_hour=50.0, source="live"),
        offer(instance_type="p4d.24xlarge", usd_per_hour=21.0, source="live"),
    ]
    found = {o.key: o.usd_per_hour for o in load(path, live, environ={}).offers()}
    assert found["aws/us-east-1:p5.48xlarge:on_demand"] == 31.5
    assert found["aws/us-east-1:p4d.24xlarge:on_demand"] == 21.0


def test_another_catalogue_file_can_take_the_bundled_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.bin"
    save_file(from_offers([offer()]), path)
    assert load(environ={CATALOGUE_VARIABLE: str(path)}).offers() == (offer(),)
    with pytest.raises(UsageError, match="cannot read the catalogue"):
        load(environ={CATALOGUE_VARIABLE: str(tmp_path / "none.bin")})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError):
        load(environ={CATALOGUE_VARIABLE: str(path)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("cloud,region,price\n", "line 1: column 'price' is unknown"),
        ("cloud,region,instance_type,market\n", "line 1: column usd_per_hour is missing"),
        (HEADER.replace("cloud", "region", 1), "line 1: column region stands twice"),
        (HEADER + "aws,r,t,spot\n", "line 2: 4 fields where the header has 5"),
        (HEADER + "\naws,r,t,spot,x\n", "line 3, column usd_per_hour: 'x' is not a number"),
        (HEADER + "aws,r,t,spot,0\n", "line 2, column usd_per_hour: 0 cannot be"),
        (HEADER + "aws,r,t,spot,-1\n", "line 2, column usd_per_hour: -1 cannot be"),
        (HEADER + "aws,r,t,spot,nan\n", "line 2, column usd_per_hour: nan cannot be"),
        (HEADER + "aws,r,t,spot,inf\n", "line 2, column usd_per_hour: inf cannot be"),
        (HEADER + "aws,r,t,Spott,1\n", "line 2, column market: 'Spott' is none of"),
        (HEADER + ",r,t,spot,1\n", "line 2, column cloud: must not be empty"),
        (HEADER + "aws,r,t,spot,1\naws,r,t,spot,2\n", "line 3: aws/r:t:spot stands on line 2 already"),
        (HEADER.strip() + ",as_of\naws,r,t,spot,1,yesterday\n", "line 2, column as_of: 'yesterday'"),
        (HEADER.strip() + ",gpu_count\naws,r,t,spot,1,-2\n", "line 2, column gpu_count: -2 must be above 0"),
        (HEADER.strip() + ",vcpus\naws,r,t,spot,1,inf\n", "line 2, column vcpus: inf must be"),
        (HEADER + 'aws,r,"t,spot,1\n', "line 2: unexpected end of data"),
    ],
)
def test_a_bad_csv_is_refused_with_its_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_csv(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_unreadable_csv_files_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_csv(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"aws,Z\xfcrich,t,spot,1\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_csv(tmp_path / "latin.csv")


def test_names_of_the_field_and_fractions_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(
        "\ufeffcloud,region,instance_type,gpu_name,gpu_count,market,price_usd_hour\n"
        "AWS,r,t,nvidia-tesla-a100,8,on-demand,1\naws,r,u,Home-Made,0.5,spot,\n",
        encoding="utf-8",
    )
    first, second = read_csv(path)
    assert (first.cloud, first.gpu, first.gpu_count) == ("aws", "A100", 8)
    assert (second.gpu, second.gpu_count, second.usd_per_hour) == ("Home-Made", None, None)


@given(offer_lists)
@settings(QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_that_we_write_is_csv_that_we_read(tmp_path: Path, offers: list[Offer]) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(write_csv(offers), encoding="utf-8")
    assert read_csv(path, strict=False) == tuple(offers)
