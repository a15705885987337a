"""``refresh`` over three emulated clouds: what is true there is what the catalogue says afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore", reason="the AWS extra is not installed")

from clouds.prices.aws import NEW_TYPE
from clouds.prices.gcp import NEW_TYPE as GCP_NEW_TYPE
from clouds.prices_emulators import PriceEmulators

from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import AccessError, ConflictError, OtherCloudError, ThrottledError
from arylcloud.core.live import LiveSource, Meter
from arylcloud.core.offer import Market, Offer
from arylcloud.pricing import history
from arylcloud.pricing.catalogue import base_file, load, refreshed_file
from arylcloud.pricing.doctor import examine
from arylcloud.pricing.hazard import MEAN_LIFE_H, read_advisor
from arylcloud.pricing.live import known_of
from arylcloud.pricing.livefile import HISTORY, STATE, advisor_file, load_live, only_one
from arylcloud.pricing.refresh import Outcome, Refreshed, refresh
from arylcloud.providers.aws.prices import create as create_aws
from arylcloud.providers.patience import Patience
from arylcloud.providers.registry import SOURCES, load_source

NOW_S = 1_796_000_000.0
HOUR_S = 3600.0
REGIONS = {"aws": ("us-east-1", "eu-west-1"), "azure": ("eastus", "westeurope")}
"""Of GCP all: its list knows no regions."""


class Waits(ManualClock):
    """Sleeps of several threads, each counted."""

    def __init__(self) -> None:
        super().__init__(at_s=NOW_S)
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            super().sleep(seconds)


@dataclass
class World:
    emulators: PriceEmulators
    clock: Waits
    folder: Path
    sources: dict[str, LiveSource] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def refresh(self, clouds: Sequence[str] = tuple(SOURCES), **more: Any) -> Refreshed:
        self.emulators.aws.now_s = self.clock.now_s()
        patience = Patience(clock=self.clock, random=random.Random(0))
        environ = self.emulators.environ() | self.environ
        for cloud in clouds:
            if cloud not in self.sources:  # an EC2 client is half a second
                self.sources[cloud] = load_source(cloud, patience, environ=environ)
        sources = [self.sources[cloud] for cloud in clouds]
        return refresh(sources, base_file({}), self.folder, clock=self.clock, regions=REGIONS, **more)

    def calls(self, cloud: str) -> dict[str, int]:
        """What was asked since the last time that this was asked."""
        emulator = getattr(self.emulators, cloud)
        found = {key: n for key, n in emulator.served.items() if n and key not in ("rows", "throttled")}
        emulator.served.clear()
        return found

    def series(self, key: str) -> list[tuple[int, float]]:
        cloud, region = key.partition(":")[0].split("/")[:2]
        at_s, usd = history.read(history.file_of(self.folder / HISTORY, cloud, region)).series(key)
        return list(zip(at_s.tolist(), usd.tolist(), strict=True))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with PriceEmulators(small=True, now_s=NOW_S) as emulators:
        for name, value in emulators.environ().items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        emulators.azure.page = 100
        yield World(emulators, Waits(), tmp_path / "prices")


def truth(world: World, offer: Offer) -> float | None:
    """What the emulated cloud itself takes; None where it sells no such thing."""
    aws, gcp, azure = world.emulators.all
    if offer.cloud == "aws" and offer.market is Market.SPOT:
        return aws.price_at(offer.region, offer.zone, offer.instance_type, world.clock.now_s())
    if offer.cloud == "aws":
        return aws.usd.get((offer.region, offer.instance_type))
    if offer.cloud == "gcp":
        return gcp.machine_usd(offer)
    if offer.market is Market.SPOT:
        return azure.spot_usd(offer.region, offer.instance_type)
    return azure.usd.get((offer.region, offer.instance_type, offer.market))


def in_regions(table: Any) -> list[Offer]:
    return [o for o in table.offers() if o.cloud == "gcp" or o.region in REGIONS.get(o.cloud, ())]


def test_every_price_is_the_cloud_s_own(world: World) -> None:
    done = world.refresh()
    assert done.failed is None
    assert {part.outcome for part in done.parts} == {Outcome.ANSWERED}
    offers = in_regions(done.table)
    assert len(offers) > 500
    for offer in offers:
        assert offer.usd_per_hour == pytest.approx(truth(world, offer), abs=2e-6), offer.key
        assert offer.as_of == "2026-11-30T00:53:20Z", offer.key
    # nothing is missing: every machine of the emulators, in every zone and market
    aws, gcp, azure = world.emulators.all
    keys = {offer.key for offer in offers}
    spot = {
        f"aws/{p.region}/{p.zone_id}:{p.instance_type}:spot" for r in REGIONS["aws"] for p in aws.pools(r)
    }
    assert {key for key in keys if key.startswith("aws") and key.endswith("spot")} == spot - {
        key
        for key in spot
        if NEW_TYPE in key  # spot is asked for by name: found by the next refresh
    }
    assert {(r, t) for r, t in aws.usd} == {
        (o.region, o.instance_type) for o in offers if o.cloud == "aws" and o.market is Market.ON_DEMAND
    }
    assert {o.key for o in gcp.offers} == {key for key in keys if key.startswith("gcp")}
    linux = {(r, t) for r, t, m in azure.usd if m is Market.ON_DEMAND}
    for market in (Market.ON_DEMAND, Market.SPOT):
        mine = {(o.region, o.instance_type) for o in offers if o.cloud == "azure" and o.market is market}
        assert mine == linux
    left_out = {one.cloud: set(one.left_out) for one in done.clouds}
    assert {"Windows", "low priority (Batch only)", "not in force yet"} <= left_out["azure"]
    assert {"a commitment", "no part of a GPU machine"} <= left_out["gcp"]
    assert [finding for finding in examine(done.table, now_s=NOW_S) if finding.level == "error"] == []


def test_a_machine_that_no_catalogue_knows_is_described_by_its_cloud(world: World) -> None:
    world.refresh(["aws"])
    done = world.refresh(["aws"])
    offers = [offer for offer in done.table.offers() if offer.instance_type == NEW_TYPE]
    assert {(o.gpu, o.gpu_count, o.gpu_mem_gib, o.vcpus) for o in offers} == {("H200", 8, 141.0, 192.0)}
    assert {o.market for o in offers} == {Market.ON_DEMAND, Market.SPOT}


def test_bands_of_interruptions_are_brought_home(world: World) -> None:
    world.refresh(["aws"])
    told = read_advisor(advisor_file(world.folder, "aws"))
    assert told.as_of == "2026-11-30"
    aws = world.emulators.aws
    bands = list(MEAN_LIFE_H)
    known = {o.instance_type for o in load(environ={}).offers() if o.cloud == "aws"}
    assert told.bands == {
        (region, name): bands[aws.band(region, name)] for region, name in aws.usd if name in known
    }


def test_an_endpoint_of_one_s_own_is_all_that_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    source = create_aws({}, Patience(clock=world.clock))
    known = known_of(load(environ={}), "aws")
    names = [part.name for part in source.parts(known, ["us-east-1"], Meter())]
    assert names == ["list/us-east-1", "spot/us-east-1"], "not the public Spot Advisor"


def test_with_a_project_gcp_tells_machines_and_zones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gcp = world.emulators.gcp
    monkeypatch.setattr("arylcloud.providers.gcp.machines._PAGE", 7)
    environ = {"ARYLCLOUD_GCP__PROJECT": "my-project", "ARYLCLOUD_GCP__API_ENDPOINT": gcp.url}
    world.environ |= environ
    done = world.refresh(["gcp"])
    assert done.failed is None
    assert gcp.served["machineTypes"] > 10, "every page"
    offers = [offer for offer in done.table.offers() if offer.cloud == "gcp"]
    places = {(o.zone, o.instance_type) for o in offers}
    listed = {(zone, row["name"]) for zone, row in gcp.machine_types() if row["name"][:2] != "n2"}
    assert places == listed - {("us-central1-b", "a2-oldgpu-1g")}
    new = [o for o in offers if o.instance_type == GCP_NEW_TYPE]
    assert {(o.market, o.usd_per_hour) for o in new} == {
        (Market.ON_DEMAND, 8 * 16.11),
        (Market.SPOT, 8 * 4.9542),
    }
    assert {(o.gpu, o.gpu_count, o.vcpus, o.mem_gib) for o in new} == {("B200", 8, 224.0, 3968.0)}
    for offer in offers:
        if offer.instance_type != GCP_NEW_TYPE:
            assert offer.usd_per_hour == pytest.approx(gcp.machine_usd(offer), abs=2e-6), offer.key
    world.environ["ARYLCLOUD_GCP__PROJECT"] = "forbidden"
    world.sources.clear()
    world.clock.sleep(25 * HOUR_S)
    again = world.refresh(["gcp"])
    assert again.failed is None, "prices are worth more than zones"
    assert any("compute.machineTypes.list" in reason for reason in again.clouds[0].left_out)
    assert {(o.zone, o.instance_type) for o in again.table.offers() if o.cloud == "gcp"} == places


def test_a_second_refresh_asks_only_for_what_can_have_changed(world: World) -> None:
    world.refresh()
    for cloud in SOURCES:
        world.calls(cloud)
    rows = world.emulators.aws.served["rows"]
    world.clock.sleep(6 * HOUR_S)
    done = world.refresh()
    outcomes = {f"{part.cloud}/{part.name}": part.outcome for part in done.parts}
    assert outcomes == {
        "aws/advisor": Outcome.RECENT,
        "aws/list/eu-west-1": Outcome.UNCHANGED,
        "aws/list/us-east-1": Outcome.UNCHANGED,
        "aws/spot/eu-west-1": Outcome.ANSWERED,
        "aws/spot/us-east-1": Outcome.ANSWERED,
        "azure/retail/eastus": Outcome.RECENT,
        "azure/retail/westeurope": Outcome.RECENT,
        "gcp/skus": Outcome.RECENT,
    }
    assert world.calls("gcp") == world.calls("azure") == {}
    rows = world.emulators.aws.served["rows"]
    aws = world.calls("aws")
    assert aws == {"calls": 5, "DescribeRegions": 1, "ListPriceLists": 2, "DescribeSpotPriceHistory": 2}
    pools = sum(len(world.emulators.aws.pools(region)) for region in REGIONS["aws"])
    assert rows < 1.3 * pools, "the 90 days are not asked for again"
    by_market = {(o.cloud, o.market): o.as_of for o in in_regions(done.table)}
    assert by_market["aws", Market.SPOT] == by_market["aws", Market.ON_DEMAND] == "2026-11-30T06:53:20Z"
    assert by_market["azure", Market.SPOT] == "2026-11-30T00:53:20Z", "nobody was asked"
    for offer in in_regions(done.table):
        assert offer.usd_per_hour == pytest.approx(truth(world, offer), abs=2e-6), offer.key


def test_lists_without_versions_are_asked_again_after_a_day(world: World) -> None:
    world.refresh()
    for cloud in SOURCES:
        world.calls(cloud)
    world.clock.sleep(25 * HOUR_S)
    world.emulators.aws.versions["eu-west-1"] += 1
    world.emulators.aws.usd["eu-west-1", "g5.xlarge"] = 1.11
    world.emulators.azure.usd["eastus", "Standard_NC24ads_A100_v4", Market.ON_DEMAND] = 3.33
    world.emulators.azure.items.cache_clear()
    done = world.refresh()
    assert {part.outcome for part in done.parts if part.cloud != "aws"} == {Outcome.ANSWERED}
    assert world.calls("aws")["GetProducts"] == 1
    found = {o.key: o.usd_per_hour for o in done.table.offers()}
    assert found["aws/eu-west-1:g5.xlarge:on_demand"] == 1.11
    assert found["azure/eastus:Standard_NC24ads_A100_v4:on_demand"] == 3.33
    series = world.series("azure/eastus:Standard_NC24ads_A100_v4:on_demand")
    assert [usd for _, usd in series][-1] == 3.33


def test_a_region_that_is_down_keeps_its_prices_and_their_age(world: World) -> None:
    world.refresh()
    world.clock.sleep(30 * HOUR_S)
    world.emulators.aws.faults.down = {"eu-west-1"}
    world.emulators.azure.faults.down = {"westeurope"}
    before = {o.key: o for o in in_regions(load(refreshed=world.folder, environ={}))}
    done = world.refresh()
    stale = {f"{p.cloud}/{p.name}": p for p in done.parts if p.outcome is Outcome.STALE}
    assert stale.keys() == {"aws/spot/eu-west-1", "azure/retail/westeurope"}
    assert all(isinstance(part.error, OtherCloudError) for part in stale.values())
    for offer in in_regions(load(refreshed=world.folder, environ={})):
        down = offer.region == "westeurope" or (offer.region == "eu-west-1" and offer.market is Market.SPOT)
        assert (offer == before[offer.key]) if down else (offer.as_of or "") > "2026-12-01", offer.key
    _, state = load_live(world.folder, base_file({}))
    assert state.stale.keys() == stale.keys()

    world.emulators.aws.faults.down = world.emulators.azure.faults.down = set()
    world.clock.sleep(HOUR_S)
    done = world.refresh()
    assert {part.outcome for part in done.parts} <= {Outcome.ANSWERED, Outcome.UNCHANGED, Outcome.RECENT}
    assert load_live(world.folder, base_file({}))[1].stale == {}


def test_aws_without_its_price_list_still_tells_its_spot_prices(world: World) -> None:
    world.emulators.aws.faults.down = {"pricing", "us-east-1"}
    done = world.refresh(["aws"])
    outcomes = {part.name: part.outcome for part in done.parts}
    assert outcomes["spot/eu-west-1"] is Outcome.ANSWERED, (
        "though us-east-1 cannot say which regions there are"
    )
    assert {name for name, outcome in outcomes.items() if outcome is Outcome.STALE} == {
        *("list/eu-west-1", "list/us-east-1", "spot/us-east-1"),
    }
    world.emulators.aws.faults.down = set()
    outcomes = {part.name: part.outcome for part in world.refresh(["aws"]).parts}
    assert outcomes.pop("advisor") is Outcome.RECENT
    assert set(outcomes.values()) == {Outcome.ANSWERED}


def test_the_history_has_every_change_and_no_other(world: World) -> None:
    """Over refreshes some of which fail, and one that begins anew."""
    world.refresh(["aws"])
    for step in range(5):
        world.clock.sleep((7 + 36 * step) * HOUR_S)
        world.emulators.aws.faults.down = {"us-east-1"} if step % 2 else set()
        if step == 2:
            (world.folder / STATE).write_text("{")
        world.refresh(["aws"])
    world.emulators.aws.faults.down = set()
    world.refresh(["aws"])
    checked = 0
    for region in REGIONS["aws"]:
        for pool in world.emulators.aws.pools(region):
            if pool.instance_type == NEW_TYPE:
                continue
            told = world.series(f"aws/{region}/{pool.zone_id}:{pool.instance_type}:spot")
            told_at = [at_s for at_s, _ in told]
            shown = pool.at_s <= world.clock.now_s()
            # of two changes in one second the later counts
            true = dict(zip(pool.at_s[shown].tolist(), pool.usd[shown].tolist(), strict=True))
            assert told_at == sorted(true), pool
            assert dict(told) == pytest.approx(true)
            checked += len(told)
    assert checked > 1000


def test_throttles_are_waited_out_as_long_as_the_cloud_says(world: World) -> None:
    for emulator in world.emulators.all:
        emulator.faults.throttle_every = 3
        emulator.faults.retry_after_s = 7.0
    done = world.refresh()
    assert {part.outcome for part in done.parts} == {Outcome.ANSWERED}
    asked_again = sum(cloud.waited for cloud in done.clouds)
    assert asked_again == sum(emulator.served["throttled"] for emulator in world.emulators.all) > 5
    assert len(world.clock.slept) == asked_again
    assert min(world.clock.slept) >= 7.0
    assert max(world.clock.slept) <= 7.7, "spread, but a little"


def test_a_throttle_without_an_end_is_a_stale_part_not_a_failed_refresh(world: World) -> None:
    world.refresh(["azure", "gcp"])
    world.clock.sleep(25 * HOUR_S)
    world.emulators.azure.faults.throttle_every = 1
    done = world.refresh(["azure", "gcp"])
    azure = [part for part in done.parts if part.cloud == "azure"]
    assert {part.outcome for part in azure} == {Outcome.STALE}
    assert all(isinstance(part.error, ThrottledError) for part in azure)
    assert done.failed is None
    assert isinstance(world.refresh(["azure"]).failed, ThrottledError)


@pytest.mark.parametrize("cloud", SOURCES)
def test_half_an_answer_is_none(world: World, cloud: str) -> None:
    world.refresh([cloud])
    kept = [o for o in in_regions(load(refreshed=world.folder, environ={})) if o.cloud == cloud]
    world.clock.sleep(25 * HOUR_S)
    getattr(world.emulators, cloud).faults.broken = True
    done = world.refresh([cloud])
    assert isinstance(done.failed, OtherCloudError)
    assert [o for o in in_regions(load(refreshed=world.folder, environ={})) if o.cloud == cloud] == kept


def test_an_answer_that_has_lost_most_is_believed_only_twice(world: World) -> None:
    world.refresh(["azure"])
    azure = world.emulators.azure
    for key in sorted(azure.usd)[: len(azure.usd) * 3 // 4]:
        del azure.usd[key]
    azure.items.cache_clear()
    world.clock.sleep(25 * HOUR_S)
    done = world.refresh(["azure"])
    stale = [part for part in done.parts if part.outcome is Outcome.STALE]
    assert stale
    assert "taken if it comes again" in str(stale[0].error)
    kept = sum(o.region == stale[0].regions[0] for o in done.table.offers())
    assert kept > 100
    again = world.refresh(["azure"])
    assert {part.outcome for part in again.parts} <= {Outcome.ANSWERED, Outcome.RECENT}
    assert sum(o.region == stale[0].regions[0] for o in again.table.offers()) < kept / 2


def change(world: World, how: Callable[[float], float], share: float) -> int:
    """Spoils that share of eastus's spot prices; how many it was."""
    azure = world.emulators.azure
    items = [
        item
        for item in azure.items("eastus")
        if item["skuName"].endswith(" Spot")
        and "Windows" not in item["productName"]
        and item["armSkuName"].startswith("Standard_N")
    ]
    spoilt = items[: int(len(items) * share)]
    for item in spoilt:
        item["retailPrice"] = how(item["retailPrice"])
    return len(spoilt)


def test_what_cannot_be_true_does_not_get_in(world: World) -> None:
    n = change(world, lambda usd: usd * 1000, 0.1)
    assert n > 2
    done = world.refresh(["azure"])
    assert done.left_out == {"spot above on-demand": n}
    assert [f for f in examine(done.table, now_s=NOW_S) if f.level == "error"] == []
    eastus = [o for o in done.table.offers() if (o.cloud, o.region) == ("azure", "eastus")]
    spot = sum(o.market is Market.SPOT for o in eastus)
    assert spot == len(eastus) - spot - n


def test_a_source_that_sends_a_form_we_do_not_know_is_stale_not_a_crash(world: World) -> None:
    change(world, lambda usd: {"amount": usd}, 1.0)  # type: ignore[arg-type, return-value]
    done = world.refresh(["azure"])
    stale = {part.name: part.error for part in done.parts if part.outcome is Outcome.STALE}
    assert stale.keys() == {"retail/eastus"}
    assert "a form that this version does not know" in str(stale["retail/eastus"])


def test_zones_are_ids_though_the_answer_has_names_only(world: World) -> None:
    world.emulators.aws.zone_ids_in_answers = False
    done = world.refresh(["aws"])
    for offer in in_regions(done.table):
        if offer.cloud == "aws" and offer.market is Market.SPOT:
            assert offer.usd_per_hour == pytest.approx(truth(world, offer)), offer.key
    assert world.calls("aws")["DescribeAvailabilityZones"] == 2


@pytest.mark.parametrize("damage", ["no state", "other state", "damaged catalogue", "no catalogue"])
def test_what_is_kept_is_checked(world: World, damage: str) -> None:
    world.refresh(["azure", "gcp"])
    path = refreshed_file(world.folder, base_file({}))
    assert path is not None
    if damage == "no state":
        (world.folder / STATE).unlink()
    elif damage == "other state":
        text = (world.folder / STATE).read_text()
        (world.folder / STATE).write_text(text.replace('"table": "', '"table": "00'))
    elif damage == "damaged catalogue":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.unlink()
    done = world.refresh(["azure", "gcp"])
    assert {part.outcome for part in done.parts} == {Outcome.ANSWERED}, "everything is asked for again"
    assert load(refreshed=world.folder, environ={}).digest == done.table.digest


def test_one_refresh_at_a_time(world: World) -> None:
    with only_one(world.folder), pytest.raises(ConflictError):
        world.refresh(["aws"])
    world.refresh(["aws"])


def test_credentials_that_are_not_there_concern_one_cloud(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = world.refresh()
    assert done.failed is None
    errors = {one.cloud: one.error for one in done.clouds}
    assert isinstance(errors["aws"], AccessError)
    assert errors["gcp"] is errors["azure"] is None
    assert isinstance(world.refresh(["aws"]).failed, AccessError)


def test_progress_is_told_part_by_part(world: World) -> None:
    seen: list[tuple[int, int]] = []
    done = world.refresh(["aws", "azure"], watch=lambda now: seen.append((now.done, now.parts)))
    assert [n for n, _ in seen] == list(range(1, len(done.parts) + 1))
    assert seen[-1] == (len(done.parts), len(done.parts))
