"""Machines on the emulated EC2: ends that AWS makes, what is asked of it, what is left and removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import botocore.session
import pytest
from clouds.asking import spec
from clouds.aws.account import Account, Fault
from clouds.aws.emulator import IMAGES, AwsEmulator
from clouds.aws.offers import connect, offer
from providers.contract import gone, of, wait_for

from arylcloud.core.errors import AccessError, CapacityError, ConflictError, OtherCloudError, UsageError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, MachineState, Verdict
from arylcloud.providers import marks
from arylcloud.providers.aws import checks, infrastructure, tags

HERE = "us-east-1"


def ec2(aws: AwsEmulator) -> object:
    return botocore.session.Session().create_client("ec2", region_name=HERE, endpoint_url=aws.url)


@pytest.mark.parametrize("says_when", [True, False])
def test_an_interruption(aws: AwsEmulator, account: Account, says_when: bool) -> None:
    account.says_when = says_when  # else only the spot request knows the moment
    adapter = connect()
    machine = adapter.create(spec(offer()))
    aws.interrupt(account, machine.instance_id, notice_s=0.0)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.INTERRUPTED
    life = account.lives[machine.instance_id]
    assert life.ending_s is not None
    assert end.ended_s == pytest.approx(life.ending_s, abs=1.0)
    assert account.bill() == {machine.instance_id: 0.0}  # within the first hour
    assert adapter.capabilities().billing.first_hour_interruption_free


def test_a_machine_that_ends_itself(aws: AwsEmulator, account: Account) -> None:
    account.says_when = False
    adapter = connect()
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    aws.ended_itself(machine.instance_id)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF
    assert end.ended_s is not None
    assert gone(adapter, machine).ended_s == end.ended_s  # EC2 does not say: the first look counts
    assert machine.launched_s <= end.ended_s <= time.time()


def test_another_account_ends_no_machine(
    aws: AwsEmulator, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one home. What the new account does not list may well run in the old one: it is not gone, nothing
    ends it, and its token makes no second one."""
    wanted, first = spec(offer()), connect(tmp_path)
    machine = first.create(wanted)
    old = {name: os.environ[name] for name in aws.environ(account) if "KEY" in name}
    other = aws.account(spot=account.spot, on_demand=account.on_demand)
    for name in old:
        monkeypatch.setenv(name, aws.environ(other)[name])
    second = connect(tmp_path)
    new = second.create(spec(offer()))
    for regions in ((), (offer(),)):
        seen = {m.instance_id: m for m in second.list_machines(journal_id="journal-1", offers=regions)}
        assert seen.keys() == {machine.instance_id, new.instance_id}
        kept = seen[machine.instance_id]
        assert (kept.state, kept.ended_s, kept.lease_id) == (MachineState.RUNNING, None, wanted.lease_id)
    assert {m.instance_id for m in second.list_machines(journal_id="journal-2")} == set()
    for ask in (lambda: second.terminate(machine), lambda: second.create(wanted)):
        with pytest.raises(AccessError, match=f"{machine.instance_id} is in account") as failed:
            ask()
        assert failed.value.hint is not None
    assert account.live()
    second.terminate(new)
    for name, value in old.items():
        monkeypatch.setenv(name, value)
    again = connect(tmp_path)
    again.terminate(machine)
    assert gone(again, machine).end_cause is EndCause.TERMINATED
    for name in old:
        monkeypatch.setenv(name, aws.environ(other)[name])
    seen = {m.instance_id for m in connect(tmp_path).list_machines(journal_id="journal-1")}
    assert seen == {new.instance_id}, "its end is known now"


def test_a_price_that_rises_above_the_cap_takes_the_machine(account: Account) -> None:
    account.notice_s = 0.0
    adapter = connect()
    machine = adapter.create(spec(offer(), max_usd_per_hour=0.5))
    account.spot["use1-az4", "g4dn.xlarge"].append((time.time(), 0.6))
    assert gone(adapter, machine).end_cause is EndCause.INTERRUPTED


def test_the_price_of_a_running_machine_moves(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    from arylcloud.providers.aws import spotprice

    monkeypatch.setattr(spotprice, "FRESH_S", 0.0)
    adapter = connect()
    machine = adapter.create(spec(offer()))
    account.spot["use1-az4", "g4dn.xlarge"].append((time.time(), 0.31))
    seen = of(adapter, machine.instance_id, None)
    assert seen is not None
    assert seen.usd_per_hour == 0.31
    now_s = time.time()
    history = adapter.price_history(offer(), now_s - 3 * 3600, now_s)
    assert history[0].from_s == now_s - 3 * 3600
    assert history[-1].usd_per_hour == 0.31
    assert len(history) > 10


def test_what_is_asked_of_ec2(aws: AwsEmulator, account: Account) -> None:
    adapter = connect(tags="team=vision, cost-center=42")
    wanted = spec(offer(), disk_gb=40.5, max_usd_per_hour=0.5)
    machine = adapter.create(wanted)
    client = ec2(aws)
    (found,) = client.describe_instances()["Reservations"][0]["Instances"]
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["ImageId"] == IMAGES["x86_64"]
    assert {t["Key"]: t["Value"] for t in found["Tags"]} == {
        "team": "vision",
        "cost-center": "42",
        **tags.of_machine(wanted),
    }
    (volume,) = client.describe_volumes()["Volumes"]
    assert volume["Size"] == 75  # no smaller than the image
    assert marks.TOKEN in {t["Key"] for t in volume["Tags"]}
    (group,) = client.describe_security_groups(Filters=[{"Name": "tag-key", "Values": [marks.JOURNAL]}])[
        "SecurityGroups"
    ]
    assert group["IpPermissions"] == []  # no way in
    assert [g["GroupId"] for g in found["NetworkInterfaces"][0]["Groups"]] == [group["GroupId"]]
    shutdown = client.describe_instance_attribute(
        InstanceId=machine.instance_id, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert shutdown["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    assert account.lives[machine.instance_id].user_data == wanted.user_data
    assert account.lives[machine.instance_id].max_usd == 0.5


def test_nothing_is_left_after_the_end(aws: AwsEmulator, account: Account) -> None:
    adapter = connect()
    machine = adapter.create(spec(offer()))
    ours = infrastructure.create(None, {})  # type: ignore[arg-type]
    (group,) = ours.resources(journal_id="journal-1")
    assert (group.kind, group.costs) == ("security-group", False)
    with pytest.raises(ConflictError):
        ours.remove(group)
    adapter.terminate(machine)
    gone(adapter, machine)
    ours.remove(group)
    ours.remove(group)  # the missing is success
    assert ours.resources(journal_id=None) == ()
    client = ec2(aws)
    assert client.describe_volumes()["Volumes"] == []
    assert client.describe_network_interfaces()["NetworkInterfaces"] == []
    assert client.describe_addresses()["Addresses"] == []
    again = spec(offer())
    with pytest.raises(OtherCloudError):  # the group was removed under the adapter's feet: it forgets it
        adapter.create(again)
    assert adapter.create(again).state is MachineState.PENDING


def test_left_behind_disks_are_found(aws: AwsEmulator, account: Account) -> None:
    client = ec2(aws)
    ours = [{"Key": marks.JOURNAL, "Value": "journal-1"}, {"Key": marks.JOB, "Value": "job-1"}]
    volume = client.create_volume(
        AvailabilityZone="us-east-1a",
        Size=75,
        TagSpecifications=[{"ResourceType": "volume", "Tags": ours}],
    )
    ours = infrastructure.create(None, {})  # type: ignore[arg-type]
    (found,) = ours.resources(journal_id="journal-1")
    assert (found.kind, found.resource_id, found.job_id, found.costs) == (
        "volume",
        volume["VolumeId"],
        "job-1",
        True,
    )
    assert ours.resources(journal_id="journal-2") == ()
    ours.remove(found)
    assert ours.resources(journal_id=None) == ()


def test_many_pages_and_regions(account: Account) -> None:
    account.page = 5  # EC2 takes no less
    account.spot["usw2-az1", "g4dn.xlarge"] = [(time.time() - 9, 0.3)]
    adapter = connect()
    far = offer(region="us-west-2", zone="usw2-az1")
    made = {adapter.create(spec(offer())).instance_id for _ in range(7)}
    made.add(adapter.create(spec(far)).instance_id)
    assert {m.instance_id for m in adapter.list_machines(journal_id="journal-1")} == made
    only = adapter.list_machines(journal_id=None, offers=[far])
    assert {(m.region, m.zone) for m in only} == {("us-west-2", "usw2-az1")}


def test_questions_are_asked_again_and_orders_are_not(account: Account) -> None:
    account.faults.append(Fault(operation="DescribeInstances", code="RequestLimitExceeded", status=503))
    account.faults.append(Fault(operation="DescribeRegions", code="InternalError", status=500))
    adapter = connect()
    assert adapter.list_machines(journal_id=None) == ()
    machine = adapter.create(spec(offer()))
    account.faults.append(Fault(operation="TerminateInstances", code="InternalError", status=500))
    with pytest.raises(OtherCloudError):
        adapter.terminate(machine)
    assert account.called["TerminateInstances"] == 1
    assert account.live()


def test_a_company_brings_its_own(aws: AwsEmulator, account: Account) -> None:
    client = ec2(aws)
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZoneId="use1-az4")["Subnet"]
    group = client.create_security_group(GroupName="theirs", Description="theirs", VpcId=vpc)["GroupId"]
    before = account.called["CreateSecurityGroup"]
    adapter = connect(subnet=subnet["SubnetId"], security_group=group)
    adapter.create(spec(offer()))
    (found,) = client.describe_instances()["Reservations"][0]["Instances"]
    assert found["SubnetId"] == subnet["SubnetId"]
    assert [g["GroupId"] for g in found["NetworkInterfaces"][0]["Groups"]] == [group]
    assert account.called["CreateSecurityGroup"] == before
    with pytest.raises(CapacityError) as failed:  # elsewhere there may be one
        adapter.create(spec(offer(zone="use1-az1")))
    assert failed.value.code in ("NoSubnet", "NoSpot")
    with pytest.raises(UsageError):
        connect(instance_profile="nobody").create(spec(offer()))


def test_user_data_has_a_limit(account: Account) -> None:
    with pytest.raises(UsageError, match="16384"):
        connect().create(spec(offer(), user_data="#" * 16385))
    assert account.called["RunInstances"] == 0


def test_check_makes_nothing(account: Account) -> None:
    found = checks.create(None, {}).check(  # type: ignore[arg-type]
        [offer(), offer(market=Market.ON_DEMAND)], nodes=2, until_s=None
    )
    assert [f.said for f in found if f.verdict is not Verdict.OK] == []
    assert {f.subject for f in found} == {
        "identity",
        "offered",
        "quota",
        "spot",
        "image",
        "network",
        "permissions",
    }
    assert not account.lives
    assert connect().list_machines(journal_id=None) == ()


def test_check_names_what_is_missing(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.quotas[HERE, "L-3819A6DF"] = 4.0
    account.denied.add("RunInstances")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2999-01-01T00:00:00Z")
    found = checks.create(None, {}).check(  # type: ignore[arg-type]
        [offer()], nodes=2, until_s=time.time() + 1e11
    )
    said = {f.subject: f for f in found if f.verdict is not Verdict.OK}
    assert set(said) == {"identity", "quota", "permissions"}
    assert "needs 8 vCPUs" in said["quota"].said
    assert "has 4" in said["quota"].said
    assert "L-3819A6DF" in (said["quota"].remedy or "")
    assert "2999-01-01" in said["identity"].said
    assert "UnauthorizedOperation" in said["permissions"].said


def test_check_asks_nothing_more_of_a_stranger(account: Account) -> None:
    account.denied.add("GetCallerIdentity")
    found = checks.create(None, {}).check([offer()], nodes=1, until_s=None)  # type: ignore[arg-type]
    assert [f.verdict for f in found] == [Verdict.FAILED]
    assert set(account.called) == {"GetCallerIdentity"}


def test_states_take_their_time(account: Account) -> None:
    account.boot_s = account.end_s = 1.0
    adapter = connect()
    machine = adapter.create(spec(offer()))
    assert machine.state is MachineState.PENDING
    adapter.terminate(machine)
    seen = of(adapter, machine.instance_id, None)
    assert seen is not None
    assert seen.state is MachineState.STOPPING
    assert seen.ended_s is None
    assert wait_for(lambda: gone(adapter, machine), "the end")


def test_what_cannot_be_a_price_or_a_moment_is_not_known() -> None:
    """Tags are anybody's to write, and a price is what money is counted by."""
    from arylcloud.providers.aws import spotprice

    odd = ("nan", "inf", "-inf", "1e999", "", "n/a")
    assert [marks.moment(text) for text in (*odd, None)] == [None] * (len(odd) + 1)
    assert marks.moment("1796027131.5") == 1796027131.5
    assert [spotprice._price(text) for text in (*odd, "0", "-5")] == [None] * (len(odd) + 2)
    assert spotprice._price("0.526") == 0.526
