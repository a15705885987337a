"""What a company brings: its network, tags that it insists on, a proxy between it and AWS."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from clouds.asking import spec
from clouds.aws.account import Account, Fault
from clouds.aws.emulator import AwsEmulator
from clouds.aws.offers import connect, offer
from clouds.aws.test_aws_machines import ec2

from arylcloud.core.errors import CapacityError, UsageError
from arylcloud.providers.aws import infrastructure


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, to: int) -> None:
        self.to = to
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), Forward)


class Forward(BaseHTTPRequestHandler):
    """Whatever name is asked for, the emulator answers."""

    server: Proxy

    def do_POST(self) -> None:
        self.server.seen.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.to)
        connection.request("POST", "/", body=body, headers=dict(self.headers))
        answer = connection.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "text/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        connection.close()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def proxy(aws: AwsEmulator) -> Iterator[Proxy]:
    server = Proxy(int(aws.url.rpartition(":")[2]))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_everything_goes_through_the_proxy(
    account: Account, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint's name means nothing here: only the proxy knows it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://aws.company.invalid")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    adapter = connect()
    machine = adapter.create(spec(offer()))
    adapter.terminate(machine)
    assert len(proxy.seen) == len(account.calls)
    assert all(path.startswith("http://aws.company.invalid/") for path in proxy.seen)


def test_its_vpc_is_used_and_one_group_is_made_in_it(aws: AwsEmulator, account: Account) -> None:
    client = ec2(aws)
    vpc = client.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    made = client.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZoneId="use1-az4")["Subnet"]
    adapter = connect(vpc=vpc)
    adapter.create(spec(offer()))
    (found,) = client.describe_instances()["Reservations"][0]["Instances"]
    assert (found["VpcId"], found["SubnetId"]) == (vpc, made["SubnetId"])
    (group,) = infrastructure.create(None, {}).resources(journal_id="journal-1")  # type: ignore[arg-type]
    (listed,) = client.describe_security_groups(GroupIds=[group.resource_id])["SecurityGroups"]
    assert listed["VpcId"] == vpc
    account.spot["use1-az1", "g4dn.xlarge"] = account.spot["use1-az4", "g4dn.xlarge"]
    with pytest.raises(CapacityError) as failed:  # it has no subnet in that zone; another place may do
        adapter.create(spec(offer(zone="use1-az1")))
    assert failed.value.code == "NoSubnet"


def test_tags_are_on_all_that_is_made(aws: AwsEmulator, account: Account) -> None:
    client = ec2(aws)
    connect(tags="team=vision, cost-center=42").create(spec(offer(), nodes=2))
    made = [
        *client.describe_instances()["Reservations"][0]["Instances"],
        *client.describe_volumes()["Volumes"],
        *client.describe_security_groups(Filters=[{"Name": "tag-key", "Values": ["team"]}])["SecurityGroups"],
        *({"Tags": [{"Key": k, "Value": v} for k, v in t.items()]} for t in account.placements.values()),
    ]
    assert len(made) == 4
    for one in made:
        assert {"team": "vision", "cost-center": "42"}.items() <= {
            t["Key"]: t["Value"] for t in one["Tags"]
        }.items()


def test_a_tag_that_the_company_misses_is_said_with_the_setting(account: Account) -> None:
    account.faults.append(
        Fault(operation="RunInstances", code="TagPolicyViolation", message="owner is missing")
    )
    with pytest.raises(UsageError) as failed:
        connect().create(spec(offer()))
    assert "[aws] tags" in (failed.value.hint or "")


@pytest.mark.parametrize("tags", ["team", "=vision", "team=vision, ="])
def test_tags_that_are_none(account: Account, tags: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        connect(tags=tags).create(spec(offer()))
    assert account.called["RunInstances"] == 0


def test_a_profile_of_its_own(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "credentials"
    known.write_text(
        f"[work]\naws_access_key_id = {account.key}\naws_secret_access_key = emulated\n", encoding="utf-8"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(known))
    connect(profile="work").create(spec(offer()))
    assert len(account.lives) == 1
    with pytest.raises(UsageError, match="nobody"):
        connect(profile="nobody").create(spec(offer()))


def test_disks_and_regions_as_it_wants_them(aws: AwsEmulator, account: Account) -> None:
    adapter = connect(disk_type="gp2", regions="us-east-1")
    adapter.create(spec(offer(), disk_gb=200.0))
    (volume,) = ec2(aws).describe_volumes()["Volumes"]
    assert (volume["VolumeType"], volume["Size"]) == ("gp2", 200)
    account.calls.clear()
    assert len(adapter.list_machines(journal_id=None)) == 1
    assert {region for region, _ in account.calls} == {"us-east-1"}
    with pytest.raises(CapacityError):  # not one of its regions
        adapter.create(spec(offer(region="us-west-2", zone="usw2-az1")))
