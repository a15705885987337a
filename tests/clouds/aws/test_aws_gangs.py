"""Machines of a gang on the emulated EC2: near one another, with a way to one another, and to nobody else."""

from __future__ import annotations

import pytest
from clouds.asking import spec
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from clouds.aws.offers import connect, offer
from clouds.aws.test_aws_machines import ec2
from providers.contract import gone

from arylcloud.core.errors import CapacityError, ConflictError, OtherCloudError, QuotaError
from arylcloud.core.offer import Market
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.aws import infrastructure

BIG = offer("g5.8xlarge", zone="use1-az1", market=Market.ON_DEMAND)
"""One EFA."""


def member(**changes: object) -> MachineSpec:
    return spec(BIG, nodes=2, job_id="job-g", **changes)


@pytest.fixture
def priced(account: Account) -> Account:
    account.on_demand["us-east-1", "g5.8xlarge"] = 2.448
    return account


def test_two_machines_of_a_job_are_one_gang(aws: AwsEmulator, priced: Account) -> None:
    adapter = connect()
    machines = [adapter.create(member()) for _ in range(2)]
    first, second = (priced.lives[m.instance_id] for m in machines)
    assert first.placement == second.placement
    assert first.placement is not None
    assert (first.efas, second.efas) == (1, 1)
    client = ec2(aws)
    groups = client.describe_security_groups(Filters=[{"Name": "tag:arylcloud-job", "Values": ["job-g"]}])
    (group,) = groups["SecurityGroups"]
    inside = [{p["GroupId"] for p in rule["UserIdGroupPairs"]} for rule in group["IpPermissions"]]
    assert inside == [{group["GroupId"]}]  # from one another
    assert all(not rule["IpRanges"] and not rule["Ipv6Ranges"] for rule in group["IpPermissions"])
    assert priced.called["CreatePlacementGroup"] == priced.called["CreateSecurityGroup"] == 1
    # another launcher of the job finds them
    connect().create(member())
    # one that begins alone, of a job that may grow, stands where the others can come
    alone = connect().create(spec(BIG, nodes=1, gang=True, job_id="job-g"))
    assert priced.lives[alone.instance_id].placement == first.placement
    assert len(priced.placements) == 1
    assert priced.called["CreateSecurityGroup"] == 1


def test_a_machine_alone_has_neither(priced: Account) -> None:
    machine = connect().create(spec(BIG))
    life = priced.lives[machine.instance_id]
    assert (life.placement, life.efas) == (None, 0)
    assert priced.called["AuthorizeSecurityGroupIngress"] == 0


def test_all_cards_where_there_is_another_way_out(aws: AwsEmulator, priced: Account) -> None:
    """Of several interfaces none gets a public address: on a default network there is one."""
    far = offer("p4d.24xlarge", zone="use1-az1", market=Market.ON_DEMAND)
    priced.on_demand["us-east-1", "p4d.24xlarge"] = 32.77
    plain = connect().create(spec(far, nodes=2))
    assert priced.lives[plain.instance_id].efas == 1
    client = ec2(aws)
    vpc = client.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    made = client.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/24", AvailabilityZoneId="use1-az1")
    machine = connect(subnet=made["Subnet"]["SubnetId"]).create(spec(far, nodes=2))
    assert priced.lives[machine.instance_id].efas == 4


def test_a_type_without_either_is_a_gang_on_the_ordinary_network(account: Account) -> None:
    """g3s takes no EFA."""
    account.on_demand["us-east-1", "g4dn.xlarge"] = 0.526
    machine = connect().create(spec(offer(market=Market.ON_DEMAND), nodes=2))
    life = account.lives[machine.instance_id]
    assert life.efas == 0
    assert life.placement is not None  # g4dn may be near one another


def test_who_does_not_fit_beside_the_others_is_refused(priced: Account) -> None:
    priced.capacity["use1-az1", "g5.8xlarge", "on_demand"] = 1
    adapter = connect()
    adapter.create(member())
    with pytest.raises(CapacityError) as failed:
        adapter.create(member())
    assert failed.value.code == "InsufficientInstanceCapacity"


def test_a_gang_that_does_not_fit_into_the_quota_is_not_begun(account: Account) -> None:
    account.quotas["us-east-1", "L-3819A6DF"] = 4.0
    adapter = connect()
    with pytest.raises(QuotaError, match=r"2 × g4dn\.xlarge needs 8"):
        adapter.create(spec(offer(), nodes=2))
    assert account.called["RunInstances"] == account.called["CreatePlacementGroup"] == 0
    assert adapter.create(spec(offer()))


def test_groups_go_with_their_job(priced: Account) -> None:
    adapter = connect()
    machine = adapter.create(member())
    ours = infrastructure.create(None, {})  # type: ignore[arg-type]
    found = ours.resources(journal_id="journal-1")
    assert {(r.kind, r.job_id, r.costs) for r in found} == {
        ("placement-group", "job-g", False),
        ("security-group", "job-g", False),
    }
    with pytest.raises(ConflictError):
        ours.remove(found[0])
    adapter.terminate(machine)
    gone(adapter, machine)
    for resource in (*found, *found):  # the missing is success
        ours.remove(resource)
    assert ours.resources(journal_id="journal-1") == ()
    with pytest.raises(OtherCloudError):  # removed under the adapter's feet: made again by the next try
        adapter.create(member())
    assert adapter.create(member()).lease_id
    assert len(priced.placements) == 1
