"""Every code of AWS, through the real SDK over HTTP: what it means for us, and that it is asked once."""

from __future__ import annotations

import pytest
from clouds.asking import spec
from clouds.aws.account import Account, Fault
from clouds.aws.offers import connect, offer

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
from arylcloud.core.live import Meter
from arylcloud.core.offer import Market
from arylcloud.providers import bounds
from arylcloud.providers.aws import client, roles
from arylcloud.providers.aws.ask import Aws
from arylcloud.providers.patience import Patience

CODES = [
    ("InsufficientInstanceCapacity", 500, CapacityError),
    ("InsufficientHostCapacity", 500, CapacityError),
    ("InsufficientFreeAddressesInSubnet", 400, CapacityError),
    ("Unsupported", 400, CapacityError),
    ("SpotMaxPriceTooLow", 400, CapacityError),
    ("VcpuLimitExceeded", 400, QuotaError),
    ("MaxSpotInstanceCountExceeded", 400, QuotaError),
    ("InstanceLimitExceeded", 400, QuotaError),
    ("VolumeLimitExceeded", 400, QuotaError),
    ("RequestLimitExceeded", 503, ThrottledError),
    ("ThrottlingException", 400, ThrottledError),
    ("UnauthorizedOperation", 403, AccessError),
    ("AuthFailure", 401, AccessError),
    ("ExpiredToken", 400, AccessError),
    ("OptInRequired", 401, AccessError),
    ("PendingVerification", 400, AccessError),
    ("InvalidAMIID.NotFound", 400, UsageError),
    ("InvalidSubnetID.NotFound", 400, UsageError),
    ("InvalidParameterValue", 400, UsageError),
    ("NoSuchEntity", 404, UsageError),
    ("TagPolicyViolation", 400, UsageError),
    ("InternalError", 500, OtherCloudError),
    ("Unavailable", 503, OtherCloudError),
    ("IdempotentParameterMismatch", 400, OtherCloudError),
    ("InvalidGroup.NotFound", 400, OtherCloudError),  # of a group of ours: made again by the next try
    ("SomethingNobodyHasSeen", 400, OtherCloudError),
]


@pytest.mark.parametrize(("code", "status", "kind"), CODES, ids=[c[0] for c in CODES])
def test_code(account: Account, code: str, status: int, kind: type[ArylError]) -> None:
    account.faults.append(Fault(operation="RunInstances", code=code, status=status, times=5))
    with pytest.raises(ArylError) as failed:
        connect().create(spec(offer()))
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert "\n" not in failed.value.message
    assert account.called["RunInstances"] == 1  # botocore would repeat some of them
    assert not account.lives


def test_an_answer_that_is_no_document(account: Account) -> None:
    account.faults.append(Fault(operation="RunInstances", code="", effect="html", status=500))
    with pytest.raises(OtherCloudError):
        connect().create(spec(offer()))
    assert account.called["RunInstances"] == 1


@pytest.mark.parametrize("market", [Market.SPOT, Market.ON_DEMAND])
def test_no_create_call_without_quota(account: Account, market: Market) -> None:
    code = "L-3819A6DF" if market is Market.SPOT else "L-DB2E81BA"
    account.quotas["us-east-1", code] = 0.0
    with pytest.raises(QuotaError) as failed:
        connect().create(spec(offer(market=market)))
    assert failed.value.code == code
    assert failed.value.hint is not None
    assert code in failed.value.hint
    assert account.called["RunInstances"] == 0
    assert account.called["CreateSecurityGroup"] == 0


def test_a_raised_quota_is_seen_after_a_while(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.quotas["us-east-1", "L-3819A6DF"] = 0.0
    adapter = connect()
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    account.quotas["us-east-1", "L-3819A6DF"] = 4.0
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    monkeypatch.setattr(bounds, "QUOTA_KEPT_S", 0.0)
    adapter.create(spec(offer()))


def test_regions_that_are_not_enabled(account: Account) -> None:
    adapter = connect(regions="us-east-9")
    with pytest.raises(UsageError, match="us-east-9"):
        adapter.list_machines(journal_id=None)
    with pytest.raises(UsageError, match="us-east-9"):
        adapter.create(spec(offer()))


def test_quotas_that_may_not_be_read_are_ec2s_affair(account: Account) -> None:
    account.denied.add("GetServiceQuota")
    account.quotas["us-east-1", "L-3819A6DF"] = 3.0
    with pytest.raises(QuotaError) as failed:
        connect().create(spec(offer()))
    assert failed.value.code == "MaxSpotInstanceCountExceeded"
    assert failed.value.in_use


def test_a_dollar_never_buys_a_machine_for_more(account: Account) -> None:
    wanted = offer("g4dn.2xlarge", market=Market.ON_DEMAND, usd_per_hour=0.9)  # a price of last year
    with pytest.raises(CapacityError, match=r"1\.52"):
        connect().create(spec(wanted, max_usd_per_hour=1.0))
    assert account.called["RunInstances"] == 0


def test_a_machine_that_is_not_as_asked_ends_at_once(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of the *created* machine: here the list has been raised between question and creation."""
    adapter = connect()
    answers = iter([0.9, 1.52])
    monkeypatch.setattr(adapter._list, "now", lambda region, kind: (next(answers, 1.52), 0.0))
    with pytest.raises(OtherCloudError) as failed:
        adapter.create(spec(offer("g4dn.2xlarge", market=Market.ON_DEMAND), max_usd_per_hour=1.0))
    assert failed.value.code == "NotAsAsked"
    assert not account.live()


def test_permissions_that_are_missing_for_prices_hide_no_machine(account: Account) -> None:
    account.denied.add("GetProducts")
    adapter = connect()
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    assert machine.usd_per_hour is None
    account.denied.add("DescribeSpotPriceHistory")
    assert {m.instance_id for m in adapter.list_machines(journal_id=None)} == {machine.instance_id}


def test_no_credentials(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(AccessError) as failed:
        connect().create(spec(offer()))
    assert failed.value.exit_code == 4
    assert failed.value.hint is not None
    assert "aws configure" in failed.value.hint


def test_pages_that_have_no_end(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = connect()._calls
    monkeypatch.setattr(calls, "read", lambda *_, **__: {"Reservations": [], "NextToken": "same"})
    with pytest.raises(OtherCloudError, match="no end"):
        calls.pages("ec2", "us-east-1", "describe_instances", "Reservations")
    asking = Aws(None, Patience())
    monkeypatch.setattr(asking, "call", lambda *_: {"SpotPriceHistory": [], "NextToken": "same"})
    with pytest.raises(OtherCloudError, match="no end"):
        list(asking.pages("ec2", "us-east-1", "describe_spot_price_history", {}, Meter()))
    answer = {"Roles": [], "IsTruncated": True, "Marker": "same"}
    monkeypatch.setattr(calls, "read", lambda *_, **__: answer)
    with pytest.raises(OtherCloudError, match="no end"):
        roles.resources(calls, journal_id=None)


def test_no_sdk(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(MissingExtraError) as failed:
        connect().create(spec(offer()))
    assert failed.value.hint == "pip install 'arylcloud[aws]'"
    assert client.__name__ in sys.modules  # our own part needs none


def test_an_unknown_setting() -> None:
    with pytest.raises(UsageError, match="regoins"):
        connect(regoins="us-east-1")
