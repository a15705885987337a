"""Machines on the emulated Azure: ends that Azure makes, what is asked of it, what is left and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clouds.asking import spec
from clouds.azure.arm import Reply
from clouds.azure.emulator import AzureEmulator
from clouds.azure.lists import action as permission
from clouds.azure.offers import T4, connect, offer
from clouds.azure.subscription import Fault, Size, Subscription
from clouds.stores.blob import Azure
from providers.contract import gone, of, wait_for

from arylcloud.cli.settings import folders
from arylcloud.cli.stores import looked_at
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    ConflictError,
    OtherCloudError,
    UsageError,
)
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, Machine, MachineState, Resource, Verdict
from arylcloud.providers import marks
from arylcloud.providers.azure import checks, infrastructure, permissions, roster
from arylcloud.providers.azure.adapter import AzureProvider
from arylcloud.providers.azure.infrastructure import AzureInfrastructure

Connect = Callable[..., AzureProvider]
JOURNAL = "journal-1"
GROUP = "arylcloud-journal-1-eastus"


@pytest.fixture
def ours(azure: AzureEmulator, sub: Subscription) -> Callable[..., AzureInfrastructure]:
    return lambda **settings: infrastructure.create(Path("/nonexistent"), {**azure.settings(sub), **settings})


@pytest.fixture
def check(azure: AzureEmulator, sub: Subscription) -> Callable[..., Any]:
    def ask(*offers: Any, nodes: int = 1, until_s: float | None = None, **settings: str) -> Any:
        made = checks.create(Path("/nonexistent"), {**azure.settings(sub), **settings})
        return made.check(offers, nodes=nodes, until_s=until_s)

    return ask


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("log_lag_s", [0.0, 600.0])
def test_an_eviction(azure: AzureEmulator, sub: Subscription, connected: Connect, log_lag_s: float) -> None:
    """Azure deletes the machine, and the activity log may not know it yet."""
    sub.log_lag_s = log_lag_s
    adapter = connected()
    machine = adapter.create(spec(offer()))
    azure.evict(sub, machine.instance_id, notice_s=0.0)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.INTERRUPTED
    ending_s = sub.vm(machine.instance_id).ending_s
    assert end.ended_s == pytest.approx(ending_s, abs=1e-5 if not log_lag_s else 5.0)
    assert of(connected(), machine.instance_id, JOURNAL) == end  # another process knows it, too


def test_an_end_that_is_under_way_is_not_ours(
    azure: AzureEmulator, sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher that sees it go, and asks for its end as well, has not ended it."""
    monkeypatch.setattr(roster, "LOOK_EVERY_S", 0.0)
    sub.log_lag_s, sub.end_s = 600.0, 0.5
    adapter = connected()
    machine = adapter.create(spec(offer()))
    azure.evict(sub, machine.instance_id, notice_s=0.0)

    def going() -> Machine | None:
        seen = of(adapter, machine.instance_id, JOURNAL)
        return seen if seen is not None and seen.state is MachineState.STOPPING else None

    adapter.terminate(wait_for(going, "STOPPING"))
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED


def test_an_end_is_ours_from_the_order_on(
    sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher that is killed, or a list that is asked, between the order and its answer."""
    sub.log_lag_s = 600.0
    adapter = connected()
    machine = adapter.create(spec(offer()))
    end = adapter._making.end

    def killed(group: str, name: str) -> None:
        end(group, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(adapter._making, "end", killed)
    with pytest.raises(KeyboardInterrupt):
        adapter.terminate(machine)
    assert gone(connected(), machine).end_cause is EndCause.TERMINATED


def test_another_subscription_ends_no_machine(
    azure: AzureEmulator,
    sub: Subscription,
    connected: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one home: what it does not list may well run in the other. It is not gone, nothing ends it, and its
    token makes no second one."""
    wanted = spec(offer())
    machine = connected().create(wanted)
    other = azure.subscription(usd=sub.usd)
    for name, value in azure.environ(other).items():
        monkeypatch.setenv(name, value)
    second = connect(azure, other, tmp_path / "state")
    (kept,) = second.list_machines(journal_id=JOURNAL)
    assert (kept.instance_id, kept.state, kept.ended_s) == (machine.instance_id, MachineState.RUNNING, None)
    assert second.list_machines(journal_id="journal-2") == ()
    for ask in (lambda: second.terminate(machine), lambda: second.create(wanted)):
        with pytest.raises(AccessError, match=f"{machine.instance_id} is in subscription {sub.id}"):
            ask()
    assert not any(call.startswith(("PUT", "DELETE")) for call in other.called)
    for name, value in azure.environ(sub).items():
        monkeypatch.setenv(name, value)
    seen = of(connected(), machine.instance_id, JOURNAL)
    assert seen is not None
    assert seen.ended_s is None


def test_a_machine_whose_tags_are_gone_is_there_and_hides_no_other(
    azure: AzureEmulator, sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "LOOK_EVERY_S", 0.0)
    adapter = connected()
    wanted = spec(offer())
    one, other = adapter.create(wanted), adapter.create(spec(offer()))
    with sub.lock:
        sub.vm(one.instance_id).doc["tags"].clear()
    for journal_id in (JOURNAL, None):
        found = {m.instance_id: m for m in adapter.list_machines(journal_id=journal_id)}
        assert found.keys() == {one.instance_id, other.instance_id}
        seen = found[one.instance_id]
        assert (seen.state, seen.lease_id) == (MachineState.RUNNING, wanted.lease_id)
    assert connected().create(wanted).instance_id == one.instance_id
    azure.evict(sub, one.instance_id, notice_s=0.0)
    assert gone(adapter, one).end_cause is EndCause.INTERRUPTED


def test_an_end_that_nobody_saw_makes_no_second_machine(
    azure: AzureEmulator, sub: Subscription, connected: Connect
) -> None:
    wanted = spec(offer())
    machine = connected().create(wanted)
    azure.evict(sub, machine.instance_id, notice_s=0.0)
    wait_for(lambda: sub.vm(machine.instance_id).gone, "its end")
    again = connected().create(wanted)
    assert (again.instance_id, again.end_cause) == (machine.instance_id, EndCause.INTERRUPTED)
    assert sub.called["PUT virtualMachines"] == 1
    assert sub.live() == []


def test_a_failed_machine_of_somebody_else_is_left_alone(
    azure: AzureEmulator, sub: Subscription, connected: Connect, tmp_path: Path
) -> None:
    """Of our name, by chance or by malice: without our tags it is none of ours."""
    wanted = spec(offer())
    vm = sub.vm(connected().create(wanted).instance_id)
    with sub.lock:
        vm.doc["tags"], vm.state, vm.power = {"owner": "somebody"}, "Failed", "deallocated"
    with pytest.raises(OtherCloudError) as failed:
        connect(azure, sub, tmp_path / "other").create(wanted)
    assert failed.value.code == "NoTags"
    assert sub.called["DELETE virtualMachines"] == 0
    assert not vm.gone


def test_azure_was_faster_than_we(azure: AzureEmulator, sub: Subscription, connected: Connect) -> None:
    adapter = connected()
    machine = adapter.create(spec(offer()))
    azure.evict(sub, machine.instance_id, notice_s=0.0)
    wait_for(lambda: sub.vm(machine.instance_id).gone, "its end")
    adapter.terminate(machine)  # as we knew it: running
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED


def test_an_end_while_nobody_looked(azure: AzureEmulator, sub: Subscription, connected: Connect) -> None:
    """The log's moment counts, not that of whoever comes back."""
    machine = connected().create(spec(offer()))
    azure.evict(sub, machine.instance_id, notice_s=0.0)
    wait_for(lambda: sub.vm(machine.instance_id).gone, "its end")
    long_ago_s = machine.launched_s + 0.001
    sub.log[-1]["eventTimestamp"] = _stamp(long_ago_s)
    end = gone(connected(), machine)
    assert end.ended_s == pytest.approx(long_ago_s, abs=1e-4)


def test_ends_that_others_made(sub: Subscription, connected: Connect) -> None:
    adapter = connected()
    theirs = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    sub.log_lag_s = 600.0
    with sub.lock:
        vm = sub.vm(theirs.instance_id)
        vm.state, vm.ending_s, vm.gone = "Deleting", time.time(), True
    assert gone(adapter, theirs).end_cause is EndCause.UNKNOWN
    lapsed = adapter.create(spec(offer(market=Market.ON_DEMAND), until_s=time.time() - 1.0))
    with sub.lock:
        vm = sub.vm(lapsed.instance_id)
        vm.state, vm.ending_s, vm.gone = "Deleting", time.time(), True
    assert gone(adapter, lapsed).end_cause is EndCause.SELF


def test_a_price_that_rises_above_the_cap_takes_the_machine(sub: Subscription, connected: Connect) -> None:
    sub.notice_s = 0.0
    adapter = connected()
    machine = adapter.create(spec(offer(), max_usd_per_hour=0.2))
    assert sub.vm(machine.instance_id).max_usd == 0.2
    sub.usd["eastus", T4, "spot"].append((time.time(), 0.3))
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED


def test_a_machine_that_is_only_switched_off(
    azure: AzureEmulator, sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure bills it on: it is not gone, and whoever looks has to end it."""
    monkeypatch.setattr(roster, "LOOK_EVERY_S", 0.0)
    adapter = connected()
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    with sub.lock:
        azure.machines.switched_off(sub, sub.vm(machine.instance_id))
    seen = of(adapter, machine.instance_id, JOURNAL)
    assert seen is not None
    assert (seen.state, seen.ended_s) == (MachineState.STOPPING, None)
    assert sub.live()
    adapter.terminate(machine)
    assert gone(adapter, machine).end_cause is EndCause.TERMINATED


def test_a_machine_that_was_seen_is_never_lost_to_a_lagging_list(
    sub: Subscription, connected: Connect
) -> None:
    machine = connected().create(spec(offer()))
    sub.lag_s = 600.0
    seen = of(connected(), machine.instance_id, JOURNAL)
    assert seen is not None
    assert seen.state is MachineState.RUNNING


# ---------------------------------------------------------------- prices


def test_that_the_list_has_no_price_is_an_answer_too(sub: Subscription, connected: Connect) -> None:
    """For a market, or for a size: not asked for at every look at a machine, and asked for again in time."""
    prices = connected()._prices
    del sub.usd[offer().region, offer().instance_type, "spot"]
    unknown = offer("Standard_NC64as_T4_v3")
    for one in (offer(market=Market.SPOT), unknown):
        for _ in range(3):
            assert prices.now(one) is None
        assert prices.history(one, 0.0, time.time()) == ()
    assert sub.called["GET prices"] == 2
    sub.usd[offer().region, offer().instance_type, "spot"] = [(0.0, 0.15)]
    again = prices.now(offer(), fresh_s=-1.0)
    assert again is not None
    assert again[0] == 0.15


def test_the_price_of_a_running_machine_moves(
    sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = connected()
    machine = adapter.create(spec(offer()))
    moved_s = time.time()
    sub.usd["eastus", T4, "spot"].append((moved_s, 0.17))
    monkeypatch.setattr(adapter._prices, "_known", dict(adapter._prices._known))
    for key, (steps, _) in list(adapter._prices._known.items()):
        adapter._prices._known[key] = (steps, 0.0)  # asked long ago
    seen = of(adapter, machine.instance_id, JOURNAL)
    assert seen is not None
    assert seen.usd_per_hour == 0.17
    history = adapter.price_history(offer(), machine.launched_s, time.time())
    assert [point.usd_per_hour for point in history] == [0.149174, 0.17]
    assert history[1].from_s == pytest.approx(moved_s, abs=1e-3)


# ---------------------------------------------------------------- what is asked


def test_what_is_asked_of_azure(sub: Subscription, connected: Connect) -> None:
    adapter = connected(tags="team=vision, cost-center=42")
    wanted = spec(offer(zone="2"), disk_gb=40.5, max_usd_per_hour=0.5)
    machine = adapter.create(wanted)
    vm = sub.vm(machine.instance_id)
    properties = vm.doc["properties"]
    assert (machine.zone, vm.zone) == ("2", "2")
    assert properties["priority"] == "Spot"
    assert properties["evictionPolicy"] == "Delete"
    assert properties["billingProfile"] == {"maxPrice": 0.5}
    image = properties["storageProfile"]["imageReference"]
    assert [image[k] for k in ("publisher", "offer", "sku", "version")] == [
        "microsoft-dsvm",
        "ubuntu-hpc",
        "2404",
        "24.04.2026052501",  # the newest
    ]
    disk = properties["storageProfile"]["osDisk"]
    assert (disk["diskSizeGB"], disk["deleteOption"]) == (64, "Delete")  # no smaller than the image
    assert vm.doc["tags"] == {
        "team": "vision",
        "cost-center": "42",
        "arylcloud-journal": wanted.journal_id,
        "arylcloud-job": wanted.job_id,
        "arylcloud-lease": wanted.lease_id,
        "arylcloud-until": repr(wanted.until_s),
        "arylcloud-token": wanted.token,
    }
    (nic,) = properties["networkProfile"]["networkInterfaceConfigurations"]
    assert nic["properties"]["deleteOption"] == "Delete"
    (one,) = nic["properties"]["ipConfigurations"]
    assert one["properties"]["publicIPAddressConfiguration"]["properties"]["deleteOption"] == "Delete"
    left = {doc["type"].rpartition("/")[2]: doc for doc in sub.documents.values()}
    guard = left["networkSecurityGroups"]
    assert not guard["properties"].get("securityRules")  # no way in
    assert nic["properties"]["networkSecurityGroup"]["id"] == guard["id"]
    (subnet,) = left["virtualNetworks"]["properties"]["subnets"]
    assert subnet["properties"]["networkSecurityGroup"]["id"] == guard["id"]
    assert subnet["properties"]["defaultOutboundAccess"] is False
    assert vm.user_data == wanted.user_data
    login = properties["osProfile"]["linuxConfiguration"]
    assert login["disablePasswordAuthentication"] is True
    assert "adminPassword" not in properties["osProfile"]
    assert vm.doc["identity"]["type"] == "SystemAssigned"
    assert [scope.lower() for scope, principal in sub.roles.values() if principal == vm.principal] == [
        vm.id.lower()  # of itself, and of nothing else
    ]


@pytest.mark.parametrize("looked", [True, False])
def test_one_that_ended_by_itself_leaves_no_role(
    azure: AzureEmulator, sub: Subscription, connected: Connect, looked: bool
) -> None:
    """Whether its end is met by looking, or by an order to end what has ended."""
    adapter = connected()
    machine = adapter.create(spec(offer()))
    assert len(sub.roles) == 1
    azure.machines.end(sub, sub.vm(machine.instance_id), "self", {})
    wait_for(lambda: not sub.there(), "its end")
    connected().list_machines(journal_id=None)
    assert len(sub.roles) == 1  # whoever only looks takes nothing
    if looked:
        adapter.list_machines(journal_id=JOURNAL)
    else:
        adapter.terminate(replace(machine, state=MachineState.GONE))
    assert sub.roles == {}


def test_a_role_given_behind_an_end_is_taken(sub: Subscription, connected: Connect) -> None:
    """Two looks and an end at once: the look that saw it running gives its role when it has ended."""
    adapter = connected()
    machine = adapter.create(spec(offer()))
    seen = adapter._making.look(*sub.vm(machine.instance_id).id.split("/")[4:9:4])
    adapter.terminate(machine)
    assert sub.roles == {}
    adapter._roster.entitle(seen)
    assert sub.roles == {}


def test_one_whose_end_was_asked_for_in_vain_may_still_end_itself(
    sub: Subscription, connected: Connect
) -> None:
    adapter = connected()
    machine = adapter.create(spec(offer()))
    sub.faults.append(Fault(operation="DELETE virtualMachines", code="OperationNotAllowed"))
    with pytest.raises(ArylError):
        adapter.terminate(machine)
    assert sub.live()
    adapter = connected()
    for _ in range(3):
        adapter.list_machines(journal_id=JOURNAL)
    assert [scope.lower() for scope, _ in sub.roles.values()] == [sub.vm(machine.instance_id).id.lower()]


def test_a_machine_whose_order_had_no_answer_may_end_itself_too(
    sub: Subscription, connected: Connect
) -> None:
    sub.faults.append(Fault(operation="PUT virtualMachines", code="Cut", effect="cut"))
    with pytest.raises(OtherCloudError):
        connected().create(spec(offer()))
    adapter = connected()
    assert len(adapter.list_machines(journal_id=None)) == 1
    assert sub.roles == {}  # whoever only looks gives nothing
    for _ in range(3):
        (found,) = adapter.list_machines(journal_id=JOURNAL)
    assert [scope.lower() for scope, _ in sub.roles.values()] == [sub.vm(found.instance_id).id.lower()]
    assert sub.called["PUT roleAssignments"] == 1


def test_a_gpu_that_the_usual_driver_does_not_know(sub: Subscription, connected: Connect) -> None:
    machine = connected().create(spec(replace(offer(), gpu="V100")))
    image = sub.vm(machine.instance_id).doc["properties"]["storageProfile"]["imageReference"]
    assert image["sku"] == "2404-v100"
    sub.images = ()
    with pytest.raises(UsageError, match="ubuntu-hpc"):
        connected().create(spec(offer()))
    own = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/images/mine"
    machine = connected(image=own).create(spec(offer()))
    image = sub.vm(machine.instance_id).doc["properties"]["storageProfile"]["imageReference"]
    assert image == {"id": own}
    with pytest.raises(UsageError, match="no image of Azure"):
        connected().create(spec(offer(), image="ami-1"))


def test_on_demand_has_no_price_cap_of_azures(sub: Subscription, connected: Connect) -> None:
    machine = connected().create(spec(offer(market=Market.ON_DEMAND), max_usd_per_hour=1.0))
    properties = sub.vm(machine.instance_id).doc["properties"]
    assert properties["priority"] == "Regular"
    assert "billingProfile" not in properties
    assert "evictionPolicy" not in properties
    spot = connected().create(spec(offer()))
    assert sub.vm(spot.instance_id).doc["properties"]["billingProfile"] == {"maxPrice": -1.0}


def test_user_data_has_a_limit(sub: Subscription, connected: Connect) -> None:
    with pytest.raises(UsageError, match="48000"):
        connected().create(spec(offer(), user_data="#" * 48001))
    assert sub.calls == []


def test_a_network_takes_a_moment_and_is_made_once(
    azure: AzureEmulator, sub: Subscription, connected: Connect
) -> None:
    azure.resources.made_s = 0.5
    try:
        adapter = connected()
        for _ in range(2):
            adapter.create(spec(offer()))
        connected().create(spec(offer()))
    finally:
        azure.resources.made_s = 0.0
    made = sub.called
    assert (made["PUT resourceGroups"], made["PUT virtualNetworks"], made["PUT networkSecurityGroups"]) == (
        1,
        1,
        1,
    )


def test_many_pages_and_regions(sub: Subscription, connected: Connect) -> None:
    sub.page = 2
    adapter = connected()
    made = {adapter.create(spec(offer())).instance_id for _ in range(5)}
    made.add(adapter.create(spec(offer(region="westeurope"))).instance_id)
    assert {m.instance_id for m in adapter.list_machines(journal_id=JOURNAL)} == made
    assert {m.region for m in adapter.list_machines(journal_id=None)} == {"eastus", "westeurope"}


def test_a_following_page_is_asked_of_nobody_else(sub: Subscription, connected: Connect) -> None:
    """Whatever host its link names: that would get our token."""
    adapter = connected()
    adapter.create(spec(offer()))
    arm = adapter._arm
    link = f"https://elsewhere.invalid{arm.scope}/resourceGroups?api-version=2021-04-01"
    assert [group["name"] for group in arm.rest("GET", link, "")["value"]] == [GROUP]


def test_pages_that_have_no_end(connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = connected()._arm
    page = {"value": [], "nextLink": f"{arm.base}{arm.scope}/again"}
    monkeypatch.setattr(arm, "rest", lambda *_, **__: page)
    with pytest.raises(OtherCloudError, match="no end"):
        permissions.missing(arm, {})


def test_the_sdk_s_own_pagers_have_an_end(
    azure: AzureEmulator, sub: Subscription, connected: Connect
) -> None:
    """They would follow a link to themselves for ever."""
    adapter, ours = connected(), infrastructure.create(Path("/nonexistent"), azure.settings(sub))
    adapter.create(spec(offer()))
    plain = azure.arm.paged
    azure.arm.paged = lambda asked, items: Reply(  # type: ignore[method-assign]
        body={"value": [], "nextLink": f"{azure.arm.url}{asked.path}?api-version=2024-01-01&$skiptoken=1"}
    )
    try:
        asks: list[Callable[[], object]] = [
            lambda: adapter.list_machines(journal_id=JOURNAL),
            lambda: adapter._roster._list(GROUP),
            lambda: adapter._quotas._ask("eastus"),
            lambda: ours._list(infrastructure.NIC, GROUP),
            lambda: ours._list(infrastructure.DISK, GROUP),
        ]
        for ask in asks:
            with pytest.raises(OtherCloudError, match="no end"):
                ask()
    finally:
        azure.arm.paged = plain  # type: ignore[method-assign]


def test_questions_are_asked_again_and_orders_are_not(sub: Subscription, connected: Connect) -> None:
    adapter = connected()
    machine = adapter.create(spec(offer()))
    throttle = {"code": "TooManyRequests", "status": 429, "retry_after_s": 0.1}
    sub.faults.append(Fault(operation="GET resourceGroups", **throttle))
    sub.faults.append(Fault(operation="GET virtualMachines", code="InternalServerError", status=500))
    sub.faults.append(Fault(operation="GET virtualMachines", code="Cut", effect="cut"))
    assert {m.instance_id for m in adapter.list_machines(journal_id=JOURNAL)} == {machine.instance_id}
    assert [fault.times for fault in sub.faults] == [0, 0, 0]
    sub.faults.append(Fault(operation="DELETE virtualMachines", code="InternalServerError", status=500))
    with pytest.raises(OtherCloudError):
        adapter.terminate(machine)
    assert sub.called["DELETE virtualMachines"] == 1
    assert sub.live()


def test_a_look_at_what_runs_is_cheap(sub: Subscription, connected: Connect) -> None:
    """Two calls, however many machines; and no price that cannot be read is asked for at every look."""
    adapter = connected()
    for _ in range(3):
        adapter.create(spec(offer()))
    adapter.list_machines(journal_id=JOURNAL)
    before = sub.called
    sub.denied.add("GET prices")
    for _ in range(5):
        assert len(adapter.list_machines(journal_id=JOURNAL)) == 3
    assert dict(sub.called - before) == {"GET resourceGroups": 5, "GET virtualMachines": 5}


def test_a_list_that_cannot_be_read_is_left_alone_for_a_while(sub: Subscription, connected: Connect) -> None:
    sub.denied.add("GET prices")
    adapter = connected()
    wanted = replace(offer(), usd_per_hour=0.3, as_of="2026-11-01")
    assert adapter.quote(wanted) == wanted  # with the catalogue's age
    assert adapter.quote(wanted) == wanted
    assert sub.called["GET prices"] == 1


def test_a_token_that_ends_is_renewed(sub: Subscription, connected: Connect) -> None:
    sub.token_s = 3.0
    adapter = connected()
    adapter.create(spec(offer()))
    time.sleep(3.2)
    assert len(adapter.list_machines(journal_id=JOURNAL)) == 1


def test_over_plain_http_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token of a managed identity, as on a machine of Azure."""
    with AzureEmulator() as plain:
        sub = plain.subscription(usd={("eastus", T4, "spot"): [(0.0, 0.1)]})
        for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "REQUESTS_CA_BUNDLE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in plain.environ(sub).items():
            monkeypatch.setenv(name, value)
        adapter = connect(plain, sub, tmp_path)
        machine = adapter.create(spec(offer()))
        assert machine.state is MachineState.RUNNING
        assert machine.usd_per_hour == 0.1


# ---------------------------------------------------------------- a company's own


def test_a_company_brings_its_own(azure: AzureEmulator, sub: Subscription, connected: Connect) -> None:
    group = f"/subscriptions/{sub.id}/resourceGroups/ML-Prod"
    vnet = f"{group}/providers/Microsoft.Network/virtualNetworks/corp"
    with sub.lock:
        azure.resources.write(sub, group, {"location": "eastus"})
        sub.documents[group.lower()]["type"] = "Microsoft.Resources/resourceGroups"
        subnets = [{"name": "gpu", "properties": {}}, {"name": "other", "properties": {}}]
        azure.resources.write(sub, vnet, {"location": "eastus", "properties": {"subnets": subnets}})
    before = sub.called
    theirs = {"resource_group": "ML-Prod", "subnet": f"{vnet}/subnets/other"}
    adapter = connected(**theirs)
    machine = adapter.create(spec(offer()))
    assert machine.instance_id.startswith("ml-prod/")
    (nic,) = sub.vm(machine.instance_id).doc["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    (one,) = nic["properties"]["ipConfigurations"]
    assert one["properties"]["subnet"]["id"].endswith("/subnets/other")
    assert "publicIPAddressConfiguration" not in one["properties"]  # the way out is theirs
    assert "networkSecurityGroup" not in nic["properties"]
    made = sub.called - before
    assert not {kind for kind in made if kind.startswith("PUT")} - {
        "PUT virtualMachines",
        "PUT roleAssignments",
    }
    assert {m.instance_id for m in adapter.list_machines(journal_id=JOURNAL)} == {machine.instance_id}
    assert adapter.list_machines(journal_id="other") == ()
    with pytest.raises(CapacityError) as failed:  # elsewhere there may be one
        adapter.create(spec(offer(region="westeurope")))
    assert failed.value.code == "NoSubnet"
    by_vnet = connected(vnet=vnet).create(spec(offer(), journal_id="journal-2"))
    assert by_vnet.instance_id.startswith("arylcloud-journal-2-eastus/")
    with pytest.raises(UsageError):
        connected(resource_group="nobody").create(spec(offer()))
    with pytest.raises(UsageError):
        connected(subnet="default").create(spec(offer()))


def test_in_a_companys_group_only_ours_is_removed(
    azure: AzureEmulator, sub: Subscription, connected: Connect, ours: Callable[..., AzureInfrastructure]
) -> None:
    group = f"/subscriptions/{sub.id}/resourceGroups/shared"
    with sub.lock:
        azure.resources.write(sub, group, {"location": "eastus"})
        sub.documents[group.lower()]["type"] = "Microsoft.Resources/resourceGroups"
        azure.resources.write(
            sub, f"{group}/providers/Microsoft.Compute/disks/precious", {"location": "eastus"}
        )
    adapter = connected(resource_group="shared")
    machine = adapter.create(spec(offer()))
    adapter.terminate(machine)
    gone(adapter, machine)
    infra = ours(resource_group="shared")
    found = infra.resources(journal_id=JOURNAL)
    assert [r.kind for r in found] == ["virtual-network", "security-group"]
    assert infra.resources(journal_id="other") == ()
    for resource in found:
        infra.remove(resource)
    assert [one.rpartition("/")[2] for one in sub.left()] == ["shared", "precious"]


def test_a_policy_that_wants_a_tag(sub: Subscription, connected: Connect) -> None:
    sub.policy = "owner"
    with pytest.raises(UsageError) as failed:
        connected().create(spec(offer()))
    assert failed.value.hint is not None
    assert "[azure] tags" in failed.value.hint
    connected(tags="owner=me").create(spec(offer()))


# ---------------------------------------------------------------- what is left


def test_nothing_is_left_after_the_end(
    sub: Subscription, connected: Connect, ours: Callable[..., AzureInfrastructure]
) -> None:
    adapter = connected()
    machine = adapter.create(spec(offer()))
    infra = ours()
    (group,) = infra.resources(journal_id=JOURNAL)
    assert (group.kind, group.resource_id, group.costs) == ("resource-group", GROUP, False)
    with pytest.raises(ConflictError):
        infra.remove(group)
    assert sub.live()
    adapter.terminate(machine)
    gone(adapter, machine)
    assert sub.roles == {}
    infra.remove(group)
    infra.remove(group)  # the missing is success
    wait_for(lambda: not sub.left(), "an empty subscription")
    assert infra.resources(journal_id=None) == ()
    again = spec(offer())
    with pytest.raises(OtherCloudError):  # the group was removed under the adapter's feet: it forgets it
        adapter.create(again)
    assert adapter.create(again).state is not MachineState.GONE


def test_a_region_that_is_being_tidied_up_is_left_alone(
    sub: Subscription, connected: Connect, ours: Callable[..., AzureInfrastructure]
) -> None:
    """Removing a group takes Azure minutes: the launcher knows that nothing was made, and goes elsewhere."""
    adapter = connected()
    machine = adapter.create(spec(offer()))
    adapter.terminate(machine)
    gone(adapter, machine)
    (group,) = ours().resources(journal_id=JOURNAL)
    sub.end_s = 600.0
    ours().remove(group)
    assert ours().resources(journal_id=JOURNAL) == ()
    with pytest.raises(CapacityError) as failed:
        connected().create(spec(offer()))
    assert (failed.value.code, failed.value.scope) == ("GroupDeleting", "region")
    assert connected().create(spec(offer(region="westeurope"))).region == "westeurope"


def test_left_behind_things_that_cost_are_found(
    azure: AzureEmulator, sub: Subscription, connected: Connect, ours: Callable[..., AzureInfrastructure]
) -> None:
    adapter = connected()
    adapter.create(spec(offer()))
    group = f"/subscriptions/{sub.id}/resourceGroups/{GROUP}"
    lost = {"location": "eastus", "tags": {marks.JOURNAL: JOURNAL, marks.JOB: "job-1"}}
    with sub.lock:
        azure.resources.write(sub, f"{group}/providers/Microsoft.Compute/disks/lost", dict(lost))
        azure.resources.write(sub, f"{group}/providers/Microsoft.Network/publicIPAddresses/lost", dict(lost))
        azure.resources.write(sub, f"{group}/providers/Microsoft.Network/networkInterfaces/lost", dict(lost))
    infra = ours()
    found = infra.resources(journal_id=JOURNAL)
    assert [(r.kind, r.job_id, r.costs) for r in found] == [
        ("disk", "job-1", True),
        ("network-interface", "job-1", False),
        ("public-address", "job-1", True),
        ("resource-group", None, False),
    ]
    assert infra.resources(journal_id="journal-2") == ()
    for resource in found[:3]:
        infra.remove(resource)
    assert [r.kind for r in infra.resources(journal_id=None)] == ["resource-group"]
    in_use = replace(found[0], resource_id=f"{GROUP}/{_disk_of(sub)}")
    with pytest.raises(ConflictError):
        infra.remove(in_use)
    infra.remove(Resource(cloud="azure", region="eastus", kind="disk", resource_id="odd", journal_id=JOURNAL))


# ---------------------------------------------------------------- check


def test_check_makes_nothing(sub: Subscription, check: Callable[..., Any]) -> None:
    found = check(offer(), offer(market=Market.ON_DEMAND), nodes=2)
    assert [f.said for f in found if f.verdict is not Verdict.OK] == []
    assert {f.subject for f in found} == {"identity", "permissions", "offered", "quota", "image", "network"}
    assert {call.split()[0] for call in sub.calls} == {"GET"}


def test_check_names_what_is_missing(
    sub: Subscription, check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sub.quotas["eastus", "lowPriorityCores"] = 4.0
    sub.denied |= {"PUT virtualMachines", "PUT roleAssignments"}
    lent = tmp_path / "token"
    lent.write_text(_jwt({"exp": int(time.time() + 900)}))
    monkeypatch.setenv(checks.FEDERATED, str(lent))
    found = check(offer(), nodes=2, until_s=time.time() + 9000)
    said = {f.subject: f for f in found if f.verdict is not Verdict.OK}
    assert set(said) == {"identity", "quota", "permissions"}
    assert "needs 8 vCPUs" in said["quota"].said
    assert "has 4" in said["quota"].said
    assert "lowPriorityCores" in (said["quota"].remedy or "")
    assert said["identity"].verdict is Verdict.WARNING
    assert "Microsoft.Compute/virtualMachines/write" in said["permissions"].said
    lent.write_text(_jwt({"exp": 7}))
    assert Verdict.FAILED in {f.verdict for f in check() if f.subject == "identity"}


def test_check_of_a_bucket(
    azure: AzureEmulator, sub: Subscription, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Azure() as blobs:
        monkeypatch.setattr(azure.arm, "beside", azure.arm.beside)
        blobs.behind(azure.arm)
        settings = {**azure.settings(sub), "blob_endpoint": blobs.settings["blob_endpoint"]}
        for key, value in settings.items():
            monkeypatch.setenv(f"ARYLCLOUD_AZURE__{key.upper()}", value)
        places = folders({"ARYLCLOUD_HOME": str(tmp_path)})
        said = {}
        for store in ("", "az://arylcloud@arylnobody", "az://mine@arylnobody", "az://mine", "az:nothing"):
            monkeypatch.setenv("ARYLCLOUD_STORE", store)
            found = looked_at("azure", "eastus", places)
            assert found is not None
            said[store] = found.verdict
        monkeypatch.setenv("ARYLCLOUD_STORE", "s3://another")
        assert looked_at("azure", "eastus", places) is None
    assert list(said.values()) == [Verdict.OK] + [Verdict.FAILED] * 4


def test_check_of_sizes_and_settings(sub: Subscription, check: Callable[..., Any]) -> None:
    sub.sizes[T4] = Size(family="f", vcpus=4, gpus=1, barred="NotAvailableForSubscription")
    sub.denied.add("PUT roleAssignments")
    found = check(offer(), identity="none")
    said = {f.subject: f for f in found if f.verdict is not Verdict.OK}
    assert set(said) == {"offered", "permissions"}
    assert "NotAvailableForSubscription" in said["offered"].said
    assert said["permissions"].verdict is Verdict.WARNING  # nobody but we would end its bill
    (roles,) = [f for f in check() if f.verdict is Verdict.FAILED]
    assert "roleAssignments/write" in roles.said
    assert "[azure] identity" in (roles.remedy or "")


def test_check_asks_nothing_more_of_a_stranger(
    sub: Subscription, check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    found = check(offer())
    assert [f.verdict for f in found] == [Verdict.FAILED]
    assert sub.calls == []


def test_the_role_in_the_docs_is_what_a_launch_needs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clouds" / "azure.md").read_text(encoding="utf-8")
    role = json.loads(page.split("```json\n")[1].split("```")[0])
    for settings in ({}, {"identity": "/subscriptions/1"}, {"resource_group": "g", "subnet": "s"}):
        for action in permissions.needed(settings):
            assert permissions.allowed(action, [{"actions": role["Actions"]}]), action
    assert not [a for a in role["Actions"] if a == "*"]


def test_every_call_is_in_the_role(
    sub: Subscription, connected: Connect, ours: Callable[..., AzureInfrastructure]
) -> None:
    """A whole life, with a machine that failed and one that vanished: nothing is asked but what is named."""
    adapter = connected()
    sub.faults.append(Fault(operation="PUT virtualMachines", code="AllocationFailed", effect="inside"))
    with pytest.raises(CapacityError):
        adapter.create(spec(offer()))
    machine, taken = adapter.create(spec(offer(market=Market.ON_DEMAND))), adapter.create(spec(offer()))
    with sub.lock:
        sub.vm(taken.instance_id).notice_acts_s = time.time()
    gone(adapter, taken)
    adapter.terminate(machine)
    gone(adapter, machine)
    for resource in ours().resources(journal_id=JOURNAL):
        ours().remove(resource)
    wanted = set(filter(None, map(permission, sub.called)))
    assert wanted <= set(permissions.needed({}))
    assert {"Microsoft.Insights/eventtypes/values/read", "Microsoft.Compute/disks/delete"} <= wanted


def _disk_of(sub: Subscription) -> str:
    (disk,) = [doc["name"] for doc in sub.documents.values() if doc.get("managedBy")]
    return str(disk)


def _stamp(at_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _jwt(claims: dict[str, Any]) -> str:
    import base64

    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"
