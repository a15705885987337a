"""IMDSv2 as EC2 speaks it, met by a plain HTTP client and by a machine itself."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from providers.contract import gone, of, wait_for
from providers.localcloud import LocalCloud, a_market, an_offer, local_cloud

from arylcloud.core.clock import ManualClock
from arylcloud.core.ports import Machine, MachineState
from arylcloud.providers.local.metadata import Tokens
from arylcloud.providers.registry import Adapter

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"
ACTION = "/latest/meta-data/spot/instance-action"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    struck = an_offer(
        "struck", zone="struck-1", interruptions=[{"t_market_s": 0, "notice_s": 5, "min_age_s": 0.5}]
    )
    with local_cloud(tmp_path, a_market(an_offer(), struck, an_offer("struck", "on_demand"))) as found:
        yield found


def url_of(cloud: LocalCloud, machine: Machine) -> str:
    launch = next(
        r["instance"]
        for r in cloud.records
        if r["kind"] == "launch" and r["instance"]["instance_id"] == machine.instance_id
    )
    return f"http://{launch['address']}:{launch['metadata_port']}"


def ask(
    url: str, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str, dict[str, str]]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def token_of(url: str) -> dict[str, str]:
    status, token, _ = ask(url, "PUT", "/latest/api/token", {TTL: "60"})
    assert status == 200
    return {TOKEN: token}


def test_token_protocol(cloud: LocalCloud) -> None:
    url = url_of(cloud, cloud.connect().create(cloud.spec(cloud.offer())))
    status, token, headers = ask(url, "PUT", "/latest/api/token", {TTL: "21600"})
    assert (status, headers[TTL.lower()]) == (200, "21600")
    assert ask(url, "GET", "/latest/meta-data/instance-id", {TOKEN: token})[0] == 200
    for ttl in ("0", "21601", "-1", "1.5", "", "abc", "٣"):
        value = ttl.encode().decode("latin-1")
        assert ask(url, "PUT", "/latest/api/token", {TTL: value})[0] == 400, ttl
    assert ask(url, "PUT", "/latest/api/token")[0] == 400
    assert ask(url, "PUT", "/latest/api/token", {TTL: "60", "X-Forwarded-For": "10.0.0.1"})[0] == 403
    assert ask(url, "PUT", "/latest/other", {TTL: "60"})[0] == 404


def test_without_a_valid_token_everything_is_401(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    url = url_of(cloud, adapter.create(cloud.spec(cloud.offer())))
    other = url_of(cloud, adapter.create(cloud.spec(cloud.offer())))
    good = token_of(url)[TOKEN]
    forged = [None, "", "nonsense", ".", "..", f"{good}0", good[:-1], "nan.aa.bb", token_of(other)[TOKEN]]
    for token in forged:
        headers = {} if token is None else {TOKEN: token}
        for path in (ACTION, "/latest/meta-data/instance-id", "/nowhere"):
            assert ask(url, "GET", path, headers)[0] == 401, token


def test_tokens_expire_and_are_one_machines() -> None:
    clock = ManualClock(at_s=1000.0)
    tokens = Tokens(b"key", clock)
    token = tokens.issue("i-1", 60)
    assert tokens.valid("i-1", token)
    assert not tokens.valid("i-2", token)
    assert not Tokens(b"another", clock).valid("i-1", token)
    clock.at_s = 1059.9
    assert tokens.valid("i-1", token)
    clock.at_s = 1060.0
    assert not tokens.valid("i-1", token)


def test_what_a_machine_can_read(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = adapter.create(cloud.spec(cloud.offer()))
    url = url_of(cloud, machine)
    token = token_of(url)

    def read(path: str) -> tuple[int, str]:
        return ask(url, "GET", f"/latest/meta-data/{path}", token)[:2]

    assert read("instance-id") == (200, machine.instance_id)
    assert read("instance-type") == (200, "g.small")
    assert read("instance-life-cycle") == (200, "spot")
    assert read("placement/region") == (200, "here")
    assert read("placement/availability-zone-id") == (200, "here")
    assert read("local-ipv4") == (200, machine.address)
    assert read("spot/instance-action")[0] == 404
    assert read("events/recommendations/rebalance")[0] == 404
    assert read("spot")[0] == 404


def test_notice_is_announced_and_kept(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = adapter.create(cloud.spec(cloud.offer("struck")))
    calm = adapter.create(cloud.spec(cloud.offer("struck", "on_demand")))
    url = url_of(cloud, machine)
    token = token_of(url)

    def look() -> str | None:
        status, body, _ = ask(url, "GET", ACTION, token)
        assert status in (200, 404)
        return body if status == 200 else None

    body = wait_for(look, "the notice")
    seen_s = time.time()
    notice = json.loads(body)
    assert set(notice) == {"action", "time"}
    assert notice["action"] == "terminate"
    announced_s = datetime.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    end = gone(adapter, machine)
    record = next(r for r in cloud.records if r["kind"] == "notice")
    assert announced_s == int(record["acts_at_s"])
    assert record["acts_at_s"] - record["wall_s"] == pytest.approx(5.0)
    assert end.end_cause is not None
    assert end.end_cause.value == "interrupted"
    assert end.ended_s is not None
    assert end.ended_s >= record["acts_at_s"] > seen_s - 5.0  # market scale 1: the same clock
    assert ask(url_of(cloud, calm), "GET", ACTION, token_of(url_of(cloud, calm)))[0] == 404


def test_a_restart_keeps_address_token_and_notice(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = adapter.create(cloud.spec(cloud.offer()))
    url = url_of(cloud, machine)
    token = token_of(url)
    cloud.kill()
    adapter.offers()
    assert ask(url, "GET", "/latest/meta-data/instance-id", token)[:2] == (200, machine.instance_id)


def test_the_machine_itself_reaches_its_metadata(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    script = (
        "python3 - <<'EOF'\n"
        "import os, urllib.request as u\n"
        "url = os.environ['ARYL_METADATA_URL']\n"
        f"ask = u.Request(url + '/latest/api/token', method='PUT', headers={{'{TTL}': '60'}})\n"
        "token = u.urlopen(ask).read().decode()\n"
        f"ask = u.Request(url + '/latest/meta-data/instance-id', headers={{'{TOKEN}': token}})\n"
        "print('I am', u.urlopen(ask).read().decode(), flush=True)\n"
        "EOF\n"
    )
    machine = adapter.create(cloud.spec(cloud.offer(), script))
    gone(adapter, machine)
    assert cloud.console(machine) == f"I am {machine.instance_id}\n"


def test_machines_have_addresses_of_their_own(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    urls = {url_of(cloud, adapter.create(cloud.spec(cloud.offer()))) for _ in range(5)}
    assert len(urls) == 5


def now(adapter: Adapter, machine: Machine) -> Machine:
    found = of(adapter, machine.instance_id, None)
    assert found is not None
    return found


def renew(url: str, body: str, headers: dict[str, str]) -> int:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
    try:
        connection.request("PUT", "/latest/arylcloud/until", body=body.encode(), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_machine_renews_its_own_lease_and_no_other(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    first = adapter.create(cloud.spec(cloud.offer()))
    second = adapter.create(cloud.spec(cloud.offer()))
    token, other = token_of(url_of(cloud, first)), token_of(url_of(cloud, second))
    later_s = time.time() + 7200.0
    assert renew(url_of(cloud, first), repr(later_s), token) == 200
    assert now(adapter, first).until_s == later_s
    assert now(adapter, second).until_s == second.until_s
    for headers in ({}, other, {TOKEN: "0.0.0"}):
        assert renew(url_of(cloud, first), repr(later_s + 1), headers) == 401
    for body in ("", "nan", "inf", "tomorrow", "1" * 100, "{}"):
        assert renew(url_of(cloud, first), body, token) == 400, body
    assert now(adapter, first).until_s == later_s
    cloud.kill()
    assert now(cloud.connect(), first).until_s == later_s  # it was written down


def test_a_lease_that_is_renewed_does_not_end(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    until_s = time.time() + 6.0
    kept = adapter.create(cloud.spec(cloud.offer(), until_s=until_s))
    assert renew(url_of(cloud, kept), repr(time.time() + 3600.0), token_of(url_of(cloud, kept))) == 200
    left = adapter.create(cloud.spec(cloud.offer(), until_s=until_s))
    gone(adapter, left)  # its end is what the renewed one would have had, too
    assert now(adapter, kept).state is not MachineState.GONE
    assert renew(url_of(cloud, kept), repr(time.time() - 3600.0), token_of(url_of(cloud, kept))) == 200
    gone(adapter, kept)
