"""Offers without a zone on the emulated EC2, as most on-demand ones are: which zones are tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clouds.asking import spec
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from clouds.aws.offers import connect, offer
from clouds.aws.test_aws_machines import ec2
from providers.contract import gone, of

from arylcloud.core.errors import CapacityError, OtherCloudError
from arylcloud.core.offer import Market
from arylcloud.core.ports import EndCause, MachineSpec, MachineState
from arylcloud.providers.aws.adapter import AwsProvider

KIND = "p4d.24xlarge"
ANYWHERE = offer(KIND, zone=None, market=Market.ON_DEMAND)


@pytest.fixture
def zones(aws: AwsEmulator, account: Account) -> list[str]:
    """That offer the type: not all of the region's."""
    account.on_demand["us-east-1", KIND] = 32.77
    client: Any = ec2(aws)
    asked = {"LocationType": "availability-zone-id", "Filters": [{"Name": "instance-type", "Values": [KIND]}]}
    found = client.describe_instance_type_offerings(**asked)["InstanceTypeOfferings"]
    there = sorted(one["Location"] for one in found)
    assert 1 < len(there) < len(client.describe_availability_zones()["AvailabilityZones"])
    return there


def full(account: Account, *zones: str) -> None:
    for zone in zones:
        account.capacity[zone, KIND, "on_demand"] = 0


def test_every_zone_that_offers_the_type_is_tried_and_no_other(account: Account, zones: list[str]) -> None:
    adapter = connect()
    made = [adapter.create(spec(ANYWHERE)) for _ in range(4)]
    assert {m.zone for m in made} <= set(zones)
    assert len({m.zone for m in made}) > 1, "they do not all ask the same first"
    assert account.called["RunInstances"] == len(made)
    full(account, *zones[1:])
    assert {adapter.create(spec(ANYWHERE)).zone for _ in range(3)} == {zones[0]}
    full(account, zones[0])
    before = account.called["RunInstances"]
    with pytest.raises(CapacityError) as failed:
        adapter.create(spec(ANYWHERE))
    assert (failed.value.code, failed.value.scope) == ("InsufficientInstanceCapacity", "region")
    assert account.called["RunInstances"] - before == len(zones)


def test_a_gang_is_in_one_zone(account: Account, zones: list[str]) -> None:
    adapter = connect()
    made = [adapter.create(spec(ANYWHERE, nodes=3, job_id="job-a")) for _ in range(2)]
    assert len({m.zone for m in made}) == 1
    full(account, str(made[0].zone))
    with pytest.raises(CapacityError):  # beside the others there is no room; elsewhere is none of it
        adapter.create(spec(ANYWHERE, nodes=3, job_id="job-a"))
    other = [
        adapter.create(spec(ANYWHERE, nodes=2, job_id="job-a", journal_id="journal-2")) for _ in range(2)
    ]
    assert len({m.zone for m in other}) == 1
    assert other[0].zone != made[0].zone, "the zone that its name decides is full"


def lose_the_answer(adapter: AwsProvider, wanted: MachineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = AwsProvider._run

    def cut(self: AwsProvider, *asked: Any, **more: Any) -> Any:
        plain(self, *asked, **more)
        raise OtherCloudError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(AwsProvider, "_run", cut)
        with pytest.raises(OtherCloudError, match="broke"):
            adapter.create(wanted)


def test_an_answer_lost_in_another_zone_than_the_first_is_found_there(
    account: Account, zones: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though lists lag, and though the first zone has room meanwhile: a token makes one machine."""
    wanted, first = spec(ANYWHERE), connect(tmp_path)
    (begins_in, *_) = first._places.zones(ANYWHERE, wanted.token)
    full(account, begins_in)
    account.lag_s = 600.0
    lose_the_answer(first, wanted, monkeypatch)
    (life,) = account.live()
    assert life.zone_id != begins_in
    account.capacity.clear()
    for adapter in (first, connect(tmp_path)):
        assert adapter.create(wanted).instance_id == life.instance_id
    assert len(account.live()) == 1


def test_a_gangs_answer_lost_in_a_zone_in_which_no_other_is_is_found_there(
    account: Account, zones: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though lists lag, and though the next one found no room there."""
    one, two = (spec(ANYWHERE, nodes=2, job_id="job-a") for _ in range(2))
    adapter = connect(tmp_path)
    account.lag_s = 600.0
    lose_the_answer(adapter, one, monkeypatch)
    (life,) = account.live()
    full(account, life.zone_id)
    assert adapter.create(two).zone != life.zone_id
    for again in (adapter, connect(tmp_path)):
        assert again.create(one).instance_id == life.instance_id
    assert len(account.live()) == 2


def test_a_machine_whose_tags_are_gone_is_there(aws: AwsEmulator, account: Account, tmp_path: Path) -> None:
    """As on the other clouds: who has seen it looks for it by its id."""
    machine = connect(tmp_path).create(spec(offer()))
    client: Any = ec2(aws)
    (listed,) = client.describe_instances()["Reservations"][0]["Instances"]
    client.delete_tags(Resources=[machine.instance_id], Tags=[{"Key": t["Key"]} for t in listed["Tags"]])
    for adapter in (connect(tmp_path), connect(tmp_path)):
        for asked in ((), (offer(),)):
            (seen,) = adapter.list_machines(journal_id="journal-1", offers=asked)
            assert (seen.instance_id, seen.lease_id) == (machine.instance_id, machine.lease_id)
            assert (seen.state, seen.end_cause) == (MachineState.RUNNING, None)
        assert adapter.list_machines(journal_id="journal-2") == ()
    assert of(connect(), machine.instance_id, "journal-1") is None, "who has not seen it cannot know"
    adapter.terminate(machine)
    assert gone(adapter, machine).end_cause is EndCause.TERMINATED
    assert not account.live()
