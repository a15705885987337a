"""Every code of Azure, through the real SDK over HTTP: what it means for us, and that it is asked once."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from clouds.asking import spec
from clouds.azure.offers import T4, T4_LARGE, V100, offer
from clouds.azure.subscription import Fault, Size, Subscription
from providers.contract import wait_for

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    MissingExtraError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)
from arylcloud.core.offer import Market
from arylcloud.core.ports import MachineState
from arylcloud.providers import bounds
from arylcloud.providers.azure import errors
from arylcloud.providers.azure.adapter import AzureProvider

Connect = Callable[..., AzureProvider]
PUT = "PUT virtualMachines"
SPOT_QUOTA = "Operation could not be completed as it results in exceeding approved LowPriorityCores quota."
FAMILY_QUOTA = SPOT_QUOTA.replace("LowPriorityCores", "standardNCASv3_T4Family Cores")
SYNC = [
    ("SkuNotAvailable", 409, "", CapacityError, "region"),
    ("OperationNotAllowed", 409, SPOT_QUOTA, QuotaError, "market"),
    ("OperationNotAllowed", 409, FAMILY_QUOTA, QuotaError, None),
    ("OperationNotAllowed", 409, "The VM is marked for deletion.", OtherCloudError, None),
    ("QuotaExceeded", 400, "", QuotaError, "market"),
    ("PublicIPCountLimitReached", 400, "", QuotaError, "market"),
    ("TooManyRequests", 429, "", ThrottledError, None),
    ("SomethingOfTomorrow", 429, "", ThrottledError, None),
    ("SubscriptionRequestsThrottled", 429, "", ThrottledError, None),
    ("AuthorizationFailed", 403, "", AccessError, None),
    ("LinkedAuthorizationFailed", 403, "", AccessError, None),
    ("ReadOnlyDisabledSubscription", 409, "", AccessError, None),
    ("SomethingForbidden", 403, "", AccessError, None),
    ("RequestDisallowedByPolicy", 403, "", UsageError, None),
    ("PlatformImageNotFound", 404, "", UsageError, None),
    ("InvalidParameter", 400, "", UsageError, None),
    ("ScopeLocked", 409, "", UsageError, None),
    ("SubnetIsFull", 400, "", CapacityError, None),
    ("InternalServerError", 500, "", OtherCloudError, None),
    ("AnotherOperationInProgress", 409, "", OtherCloudError, None),
    ("SomethingNobodyHasSeen", 400, "", OtherCloudError, None),
]
INSIDE = [
    ("AllocationFailed", CapacityError, "region"),
    ("ZonalAllocationFailed", CapacityError, None),
    ("OverconstrainedAllocationRequest", CapacityError, "region"),
    ("OverconstrainedZonalAllocationRequest", CapacityError, None),
    ("SkuNotAvailable", CapacityError, "region"),
    ("QuotaExceeded", QuotaError, "market"),
    ("OSProvisioningTimedOut", OtherCloudError, None),
]


@pytest.mark.parametrize(("code", "status", "message", "kind", "scope"), SYNC)
def test_code(
    sub: Subscription,
    connected: Connect,
    code: str,
    status: int,
    message: str,
    kind: type[ArylError],
    scope: str | None,
) -> None:
    sub.faults.append(Fault(operation=PUT, code=code, status=status, message=message or "no", times=5))
    with pytest.raises(ArylError) as failed:
        connected().create(spec(offer()))
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert failed.value.scope == scope
    assert "\n" not in failed.value.message
    assert sub.called[PUT] == 1  # the SDK would repeat some of them
    assert not sub.vms
    if kind is QuotaError:
        assert failed.value.hint is not None
        assert "https://" in failed.value.hint


@pytest.mark.parametrize(("code", "kind", "scope"), INSIDE)
def test_code_inside_an_operation(
    sub: Subscription, connected: Connect, code: str, kind: type[ArylError], scope: str | None
) -> None:
    """HTTP 200, status Failed: and what is left of it is deleted before the error is told."""
    sub.faults.append(Fault(operation=PUT, code=code, effect="inside", late_s=0.2))
    adapter = connected()
    wanted = spec(offer())
    with pytest.raises(ArylError) as failed:
        adapter.create(wanted)
    assert type(failed.value) is kind
    assert (failed.value.code, failed.value.scope) == (code, scope)
    assert sub.called[PUT] == 1
    assert sub.there() == []
    kept = {one.split("/")[-2].lower() for one in sub.left()}
    assert kept == {"resourcegroups", "virtualnetworks", "networksecuritygroups"}  # no disk, NIC, address
    assert adapter.list_machines(journal_id=None) == ()
    assert adapter.create(wanted).state is not MachineState.GONE  # and the same order may be made again


def test_a_refusal_that_comes_later_is_seen_in_the_list(
    sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is told: pending. What fails then is paid for until it is ended: STOPPING."""
    from arylcloud.providers.azure import making

    monkeypatch.setattr(making, "ALLOCATED_S", 0.0)
    sub.faults.append(Fault(operation=PUT, code="AllocationFailed", effect="inside", late_s=0.4))
    adapter = connected()
    machine = adapter.create(spec(offer()))
    assert machine.state is MachineState.PENDING

    def failed() -> bool:
        (seen,) = adapter.list_machines(journal_id="journal-1")
        return seen.state is MachineState.STOPPING

    wait_for(failed, "the failure")
    adapter.terminate(machine)
    wait_for(lambda: not sub.there(), "its end")
    (seen,) = adapter.list_machines(journal_id="journal-1")
    assert seen.state is MachineState.GONE


def test_a_launcher_that_died_while_azure_looked_for_room(sub: Subscription, connected: Connect) -> None:
    """The same order again finds the machine that failed, buries it, and says why."""
    sub.faults.append(Fault(operation=PUT, code="ZonalAllocationFailed", effect="inside", late_s=0.0))
    sub.faults.append(Fault(operation="GET virtualMachines", code="Cut", effect="cut", times=0))
    adapter, wanted = connected(), spec(offer())
    adapter._making.allocated = lambda group, name: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        adapter.create(wanted)
    assert len(sub.there()) == 1
    with pytest.raises(CapacityError):
        connected().create(wanted)
    assert sub.there() == []
    assert sub.called[PUT] == 1


def test_an_answer_that_is_no_document(sub: Subscription, connected: Connect) -> None:
    sub.faults.append(Fault(operation=PUT, code="", effect="html", status=502))
    with pytest.raises(OtherCloudError):
        connected().create(spec(offer()))
    assert sub.called[PUT] == 1


@pytest.mark.parametrize(
    ("market", "name"),
    [
        (Market.SPOT, "lowPriorityCores"),
        (Market.ON_DEMAND, "standardNCASv3_T4Family"),
        (Market.ON_DEMAND, "cores"),
    ],
)
def test_no_create_call_without_quota(
    sub: Subscription, connected: Connect, market: Market, name: str
) -> None:
    sub.quotas["eastus", name] = 0.0
    adapter = connected()
    for _ in range(2):
        with pytest.raises(QuotaError) as failed:
            adapter.create(spec(offer(market=market)))
        assert failed.value.code is not None
        assert failed.value.code.lower() == name.lower()
        assert failed.value.hint is not None
        assert name.lower() in failed.value.hint.lower()
        assert failed.value.scope == ("family" if "Family" in name else "market")
    made = [call for call in sub.calls if call.split()[0] in ("PUT", "POST", "DELETE")]
    assert made == []
    assert sub.called["GET usages"] == 1  # read once
    sub.quotas["eastus", name] = 2.0  # enough for some size, not for this one
    with pytest.raises(QuotaError) as failed:
        connected().create(spec(offer(market=market)))
    assert failed.value.scope == "region"


def test_a_quota_that_others_have_at_present(sub: Subscription, connected: Connect) -> None:
    """Large enough for one of them: whoever waits may get it. Azure itself says so, at once."""
    sub.quotas["eastus", "lowPriorityCores"] = 4.0
    adapter = connected()
    adapter.create(spec(offer()))
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer()))
    assert (failed.value.code, failed.value.scope) == ("OperationNotAllowed", "market")
    assert failed.value.in_use
    assert failed.value.hint is not None
    assert "LowPriorityCores" in failed.value.hint
    assert len(sub.there()) == 1


def test_a_gang_is_not_begun_where_its_quota_holds_a_part(sub: Subscription, connected: Connect) -> None:
    sub.quotas["eastus", "lowPriorityCores"] = 4.0
    with pytest.raises(QuotaError, match="needs 8"):
        connected().create(spec(offer(), nodes=2))
    assert sub.called[PUT] == 0


def test_a_raised_quota_is_seen_after_a_while(
    sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub.quotas["eastus", "lowPriorityCores"] = 0.0
    adapter = connected()
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    sub.quotas["eastus", "lowPriorityCores"] = 4.0
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    monkeypatch.setattr(bounds, "QUOTA_KEPT_S", 0.0)
    adapter.create(spec(offer()))


def test_quotas_that_may_not_be_read_are_azures_affair(sub: Subscription, connected: Connect) -> None:
    sub.denied.add("GET usages")
    sub.quotas["eastus", "lowPriorityCores"] = 3.0
    with pytest.raises(QuotaError) as failed:
        connected().create(spec(offer()))
    assert failed.value.code == "OperationNotAllowed"
    assert failed.value.scope == "market"
    assert not failed.value.in_use


def test_a_dollar_never_buys_a_machine_for_more(sub: Subscription, connected: Connect) -> None:
    wanted = offer(T4_LARGE, market=Market.ON_DEMAND, usd_per_hour=0.9)  # a price of last year
    with pytest.raises(CapacityError, match=r"1\.52"):
        connected().create(spec(wanted, max_usd_per_hour=1.0))
    assert sub.called[PUT] == 0


def test_a_machine_that_is_not_as_asked_ends_at_once(
    sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of the *created* machine: here the list has been raised between question and creation."""
    adapter = connected()
    answers = iter([0.9, 1.52])
    monkeypatch.setattr(adapter._prices, "now", lambda offer: (next(answers, 1.52), 0.0))
    with pytest.raises(OtherCloudError) as failed:
        adapter.create(spec(offer(T4_LARGE, market=Market.ON_DEMAND), max_usd_per_hour=1.0))
    assert failed.value.code == "NotAsAsked"
    assert not sub.live()


def test_a_machine_of_another_size_ends_at_once(sub: Subscription, connected: Connect) -> None:
    sub.gives[T4] = T4_LARGE
    with pytest.raises(OtherCloudError) as failed:
        connected().create(spec(offer()))
    assert failed.value.code == "NotAsAsked"
    assert T4_LARGE in failed.value.message
    assert not sub.live()


def test_sizes_that_the_subscription_may_not_have(sub: Subscription, connected: Connect) -> None:
    sub.sizes[V100] = Size(family="f", vcpus=6, gpus=1, barred="NotAvailableForSubscription")
    sub.sizes[T4_LARGE] = Size(family="f", vcpus=8, gpus=1, zones=("2",))
    adapter = connected()
    for wanted in (offer(V100), offer(T4_LARGE, zone="1"), offer(region="nowhere")):
        with pytest.raises(CapacityError):
            adapter.create(spec(wanted))
    assert sub.called[PUT] == 0
    assert adapter.create(spec(offer(T4_LARGE, zone="2"))).zone == "2"


def test_prices_that_cannot_be_read_hide_no_machine(sub: Subscription, connected: Connect) -> None:
    sub.denied.add("GET prices")
    adapter = connected()
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    assert machine.usd_per_hour is None
    assert {m.instance_id for m in adapter.list_machines(journal_id=None)} == {machine.instance_id}
    with pytest.raises(UsageError, match="not known"):
        adapter.create(spec(offer(), max_usd_per_hour=1.0))


def test_no_roles_to_give_is_no_machine(sub: Subscription, connected: Connect) -> None:
    """Nobody could end it, should the launcher be lost."""
    sub.denied.add("PUT roleAssignments")
    with pytest.raises(AccessError) as failed:
        connected().create(spec(offer()))
    assert failed.value.hint is not None
    assert "identity" in failed.value.hint
    assert not sub.live()
    sub.denied.add("DELETE virtualMachines")
    with pytest.raises(OtherCloudError, match=r"is not ended yet: .*DELETE virtualMachines"):
        connected().create(spec(offer()))
    assert len(sub.live()) == 1
    machine = connected(identity="none").create(spec(offer()))
    assert machine.instance_id in {m.instance_id for m in connected().list_machines(journal_id=None)}


def test_wrong_credentials(sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    with pytest.raises(AccessError) as failed:
        connected().create(spec(offer()))
    assert failed.value.exit_code == 4
    assert failed.value.code == "AuthenticationFailed"
    assert "AADSTS7000215: Invalid client secret" in failed.value.message
    assert "wrong" not in failed.value.message
    assert "\n" not in failed.value.message
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/nonexistent")  # nor any tool that somebody has signed in with
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:1/")  # nor a machine of Azure's
    monkeypatch.setenv("IDENTITY_HEADER", "none")
    with pytest.raises(AccessError) as failed:
        connected().create(spec(offer()))
    assert failed.value.hint is not None
    assert "az login" in failed.value.hint


def test_no_subscription(sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    with pytest.raises(AccessError) as failed:
        connected(subscription="").list_machines(journal_id=None)
    assert failed.value.hint is not None
    assert "az account show" in failed.value.hint


def test_no_sdk(sub: Subscription, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("azure.mgmt.compute", "azure.identity", "azure.mgmt.resource.resources"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as failed:
        connected().create(spec(offer()))
    assert failed.value.hint == "pip install 'arylcloud[azure]'"
    assert errors.__name__ in sys.modules  # our own part needs none


def test_an_unknown_setting(connected: Connect) -> None:
    with pytest.raises(UsageError, match="regoin"):
        connected(regoin="eastus")


@pytest.mark.parametrize("url", ["http://management.example.com", "ftp://127.0.0.1"])
def test_a_token_goes_over_tls_only(connected: Connect, url: str) -> None:
    with pytest.raises(UsageError, match="no https address"):
        connected(resource_manager=url)
