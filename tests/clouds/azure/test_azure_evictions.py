"""Eviction rates: asked of Azure Resource Graph with the account that there is, kept, and planned with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clouds.azure.emulator import AzureEmulator
from clouds.azure.subscription import Fault, Subscription
from clouds.prices.azure import AzurePriceEmulator
from clouds.prices_emulators import SMALL, bundled_offers

from arylcloud.cli.main import run
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import AccessError, OtherCloudError, ThrottledError
from arylcloud.core.live import Meter, NotAsked
from arylcloud.pricing.catalogue import CATALOGUE_VARIABLE, base_file
from arylcloud.pricing.hazard import read_advisor
from arylcloud.pricing.livefile import advisor_file
from arylcloud.pricing.refresh import Outcome, Refreshed, refresh
from arylcloud.providers.azure.evictions import QUERY, Evictions
from arylcloud.providers.azure.prices import create
from arylcloud.providers.patience import Patience
from arylcloud.providers.registry import load_source
from arylcloud.providers.web import Web

A100 = "Standard_NC24ads_A100_v4"
T4 = "Standard_NC4as_T4_v3"
CPU = "Standard_D2s_v4"
RATES = {"0-5": "<5%", "5-10": "5-10%", "10-15": "10-15%", "15-20": "15-20%", "20+": ">20%"}


@pytest.fixture(scope="module")
def prices() -> Iterator[AzurePriceEmulator]:
    with AzurePriceEmulator(bundled_offers(SMALL), other_sizes=0) as emulator:
        yield emulator


@dataclass
class World:
    sub: Subscription
    clock: ManualClock
    folder: Path
    settings: dict[str, str]

    def ask(self, *sizes: str, meter: Meter | None = None) -> Any:
        patience = Patience(clock=self.clock)
        return Evictions(self.settings, patience, Web("azure", patience)).ask(sizes, meter or Meter())

    def refresh(self) -> Refreshed:
        source = load_source("azure", Patience(clock=self.clock), environ=os.environ)
        regions = {"azure": ("eastus",)}
        return refresh([source], base_file({}), self.folder, clock=self.clock, regions=regions)


@pytest.fixture
def world(
    azure: AzureEmulator,
    sub: Subscription,
    prices: AzurePriceEmulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    monkeypatch.setenv("ARYLCLOUD_AZURE__RETAIL_PRICES", prices.url)
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv(CATALOGUE_VARIABLE, raising=False)
    sub.evictions = {("eastus", A100): "15-20", ("eastus", T4): "0-5", ("westeurope", T4): "20+"}
    clock = ManualClock(at_s=1_796_000_000.0)
    return World(sub, clock, tmp_path / "prices", azure.settings(sub))


def test_every_page_is_read_and_every_band_known(world: World) -> None:
    regions = {rate: f"region{n}" for n, rate in enumerate(RATES)}
    world.sub.evictions = {(region, A100): rate for rate, region in regions.items()}
    world.sub.evictions |= {("region9", A100): None, ("region9", "Standard_NC_unknown"): "0-5"}
    world.sub.evictions |= {(f"region{n}", CPU): "0-5" for n in range(9)}
    world.sub.page = 2
    meter = Meter()
    answer = world.ask(A100, CPU, meter=meter)
    assert answer.bands == {(regions[rate], A100): band for rate, band in RATES.items()}
    assert answer.left_out == {"eviction rate ''": 1, "eviction rate of a size without a price": 1}
    assert (meter.raw_rows, world.sub.called["POST graph"]) == (7, 4), "the query leaves CPU sizes out"


def test_pages_need_an_id_and_half_an_answer_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QUERY.replace("id, ", "").replace("order by id", "order by location")
    monkeypatch.setattr("arylcloud.providers.azure.evictions.QUERY", query)
    world.sub.page = 2
    with pytest.raises(OtherCloudError, match="only 2 of 3 came"):
        world.ask(A100, T4)


def test_pages_that_have_no_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"data": [], "$skipToken": "same", "Items": [], "NextPageLink": "https://x.invalid/?$skip=0"}
    monkeypatch.setattr(Web, "_once", lambda *_: page)
    with pytest.raises(OtherCloudError, match="no end"):
        world.ask(A100, T4)
    prices = create({"retail_prices": "http://127.0.0.1:9"}, Patience(clock=world.clock))
    with pytest.raises(OtherCloudError, match="no end"):
        prices.of_size("eastus", T4)


def test_what_azure_refuses(world: World) -> None:
    world.sub.faults.append(
        Fault(operation="POST graph", code="RateLimiting", status=429, retry_after_s=9.0, times=2)
    )
    assert len(world.ask(A100, T4).bands) == 3, "waited for"
    assert world.clock.now_s() >= 1_796_000_018.0
    world.sub.faults.append(Fault(operation="POST graph", code="RateLimiting", status=429, times=99))
    with pytest.raises(ThrottledError):
        world.ask(A100, T4)
    world.sub.faults.clear()
    world.sub.denied.add("POST graph")
    with pytest.raises(AccessError, match="does not have authorization"):
        world.ask(A100, T4)
    world.sub.denied.clear()
    with pytest.raises(OtherCloudError, match="nothing is said"):
        world.ask("Standard_NC_other")


def test_without_an_account_it_is_not_asked_and_no_error(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.refresh()
    assert {p.name: p.outcome for p in before.parts}["evictions"] is Outcome.ANSWERED
    told = advisor_file(world.folder, "azure").read_bytes()
    world.clock.sleep(30 * 3600.0)
    for name in ("AZURE_SUBSCRIPTION_ID", "ARYLCLOUD_AZURE__RESOURCE_MANAGER"):
        monkeypatch.delenv(name)
    calls = len(world.sub.calls)
    done = world.refresh()
    assert [part.name for part in done.parts] == ["retail/eastus"]
    assert (done.failed, done.clouds[0].error) == (None, None)
    (note,) = done.clouds[0].notes
    assert "no subscription is named" in note
    assert len(world.sub.calls) == calls
    assert advisor_file(world.folder, "azure").read_bytes() == told, "what was known stays"
    assert run(["prices", "--refresh", "--infra", "azure/eastus", "--limit", "1"]) == 0
    assert capsys.readouterr().err.count("eviction rates are not asked for") == 1


def test_with_credentials_that_are_absent_or_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    done = world.refresh()
    stale = {part.name: part.error for part in done.parts if part.outcome is Outcome.STALE}
    assert isinstance(stale["evictions"], AccessError)
    assert done.failed is None, "prices came all the same"
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # asks no metadata service
    for name in ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name)
    with pytest.raises(NotAsked, match="no credentials"):
        world.ask(T4)


def test_it_is_asked_once_a_day_and_kept(world: World) -> None:
    world.refresh()
    told = read_advisor(advisor_file(world.folder, "azure"))
    assert (told.cloud, told.as_of) == ("azure", "2026-11-30")
    assert told.bands == {("eastus", A100): "15-20%", ("eastus", T4): "<5%", ("westeurope", T4): ">20%"}
    world.clock.sleep(3600.0)
    done = world.refresh()
    assert {part.outcome for part in done.parts} == {Outcome.RECENT}
    assert world.sub.called["POST graph"] == 1


def test_plan_shows_it(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "run: x\nresources: {infra: azure/eastus, accelerators: A100-80GB:1, use_spot: true}\n"
        "aryl: {profile: mpt-125m, work: 1000 steps}\n"
    )

    def chosen() -> dict[str, Any]:
        assert run(["plan", str(job), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["chosen"]
        assert (found["cloud"], found["instance_type"]) == ("azure", A100)
        return found

    assert run(["prices", "--refresh", "--infra", "azure/eastus", "--limit", "1"]) == 0
    capsys.readouterr()
    after = chosen()
    assert after["interruptions_per_hour"] == pytest.approx(1 / 8)
    assert after["hazard_source"].startswith("assumed: Azure eviction rate 15-20% (20")
    (told,) = (tmp_path / "home").rglob("advisor-azure.json")
    told.write_text(told.read_text().replace('"cloud":"azure"', '"cloud":"mars"'))
    assert run(["plan", str(job), "--json"]) == 0
    captured = capsys.readouterr()
    assert "bands of mars" in captured.err
    assert "no band" in json.loads(captured.out)["chosen"]["hazard_source"]
