"""``check``: what a cloud does not sell is passed over; a quota that does now is told to who waits for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.diary import offer

from arylcloud.cli.checking import MOST, Ladder, lifted, walked
from arylcloud.cli.main import run
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import MissingExtraError
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Finding, Verdict
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.fold import replay
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.offers import bar_for, barred
from arylcloud.providers.findings import Findings, quota_of

AWS = Findings("aws")
SPOT = offer()
OTHER = replace(SPOT, zone="use1-az2")
DEMAND = replace(SPOT, market=Market.ON_DEMAND)


@dataclass
class Cloud:
    """Sells some zones only."""

    sold: set[str]
    known: bool = True
    asked: list[str] = field(default_factory=list)

    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        if not self.known:
            self.asked.append("who")
            return (AWS.say(None, "identity", Verdict.FAILED, "nobody knows you"),)
        found = [AWS.say(None, "identity", Verdict.OK, "you")]
        for one in offers:
            self.asked.append(one.zone or "")
            sold = one.zone in self.sold
            found.append(
                AWS.say(one.region, "offered", Verdict.OK, f"{one.zone} is") if sold else AWS.not_offered(one)
            )
        return tuple(found)


def ladder(*zones: str, want: int = 1) -> Ladder:
    return Ladder(offers=tuple(offer(zone) for zone in zones), want=want)


def verdicts(found: Sequence[Finding]) -> list[str]:
    return [f"{one.subject} {one.verdict}" for one in found]


def test_what_is_not_sold_is_passed_over() -> None:
    cloud = Cloud({"c", "e"})
    found = walked(cloud, [ladder("a", "b", "c", "d")], nodes=1, until_s=None)
    assert cloud.asked == ["a", "b", "c"]
    assert verdicts(found) == ["identity ok", "offered warning", "offered warning", "offered ok"]
    assert found[1].remedy == "a launch passes it over"
    cloud.asked.clear()
    found = walked(cloud, [ladder("c", "a", "b", "d", "e", want=2)], nodes=1, until_s=None)
    assert cloud.asked == ["c", "a", "b", "d", "e"], "as many as are wanted, and no more than are missing"
    assert [one.verdict for one in found].count(Verdict.FAILED) == 0


def test_nothing_that_is_sold_is_a_failure() -> None:
    cloud = Cloud(set())
    found = walked(cloud, [ladder(*(f"z{n}" for n in range(99)))], nodes=1, until_s=None)
    assert len(cloud.asked) == MOST
    assert verdicts(found)[1:] == ["offered failed"] * MOST
    nobody = Cloud({"a"}, known=False)
    assert verdicts(walked(nobody, [ladder("a", "b", want=2)], nodes=1, until_s=None)) == ["identity failed"]
    assert nobody.asked == ["who"]


# ---------------------------------------------------------------- quotas


def quota(of: Offer, verdict: Verdict) -> Finding:
    return AWS.say(of.region, "quota", verdict, "quota L-1", about=quota_of(of))


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Journal, Path]:
    """A job that has been refused for want of quota, and for want of capacity in one zone."""
    journal, prefix = Journal(tmp_path / "journal.db"), tmp_path / "jobs" / "digits-1"
    prefix.mkdir(parents=True)
    spec = JobSpec(name="digits", run="true", nodes_min=2, nodes_max=2)
    submitted = ev.JobSubmitted(
        spec=spec,
        prefix_uri=f"file://{prefix}",
        journal_id=journal.journal_id,
        market_origin_s=0.0,
        market_scale=1.0,
    )
    bars = [bar_for(kind, SPOT, 0.0, Timing()) for kind in ("quota", "capacity")]
    for event in (submitted, *bars):
        assert event is not None
        journal.append(
            "digits-1", at_s=0.0, writer="w", event=event, cause_id=None, mirror=None, strict=False
        )
    return journal, prefix


def test_a_quota_that_does_now_lifts_its_bar(waiting: tuple[Journal, Path]) -> None:
    journal, prefix = waiting
    before = journal.state("digits-1")
    assert {bar.code for bar in before.bars} == {"quota", "capacity"}
    found = list(lifted(journal, [quota(OTHER, Verdict.OK)], [OTHER], nodes=2))
    (scope,) = (bar.scope for bar in before.bars if bar.code == "quota")
    assert found == [("digits-1", scope)]
    (asked,) = (prefix / "requests").iterdir()
    request = loads(mail.RequestDoc, asked.read_bytes(), what=asked.name)
    seen = ev.RequestSeen(number=request.number, verb=request.verb, args=request.args, by=request.by)
    journal.append("digits-1", at_s=1.0, writer="w", event=seen, cause_id=None, mirror=None, strict=False)
    after = replay(journal.records("digits-1"))
    assert {bar.code for bar in after.bars} == {"capacity"}, "what is sold out stays so"
    assert barred(OTHER, after.bars, 1.0) is None
    assert barred(SPOT, after.bars, 1.0) is not None
    assert not after.stop
    assert not list(lifted(journal, [quota(OTHER, Verdict.OK)], [OTHER], nodes=2)), "once"


@pytest.mark.parametrize(
    ("findings", "offers", "nodes"),
    [
        ([quota(SPOT, Verdict.FAILED)], [SPOT], 2),
        ([quota(SPOT, Verdict.WARNING)], [SPOT], 2),
        ([quota(SPOT, Verdict.OK), quota(SPOT, Verdict.FAILED)], [SPOT], 2),
        ([quota(SPOT, Verdict.UNKNOWN)], [SPOT], 2),
        ([], [SPOT], 2),
        ([quota(DEMAND, Verdict.OK)], [DEMAND], 2),
        ([quota(SPOT, Verdict.OK)], [SPOT], 1),
    ],
)
def test_any_other_answer_lifts_none(
    waiting: tuple[Journal, Path], findings: list[Finding], offers: list[Offer], nodes: int
) -> None:
    journal, prefix = waiting
    assert not list(lifted(journal, findings, offers, nodes=nodes))
    assert not (prefix / "requests").exists()


def test_a_cloud_that_nobody_named_and_that_is_not_set_up_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its SDK is not installed. Where it was named, check ends as a launch does; so where none is left."""
    job = tmp_path / "job.yaml"
    job.write_text("run: x\nresources: {accelerators: A100:8}\n")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    there = {"aws"}

    def load(cloud: str, **_: object) -> Cloud:
        if cloud in there:
            return Anywhere(set())
        raise MissingExtraError(f"{cloud} needs its SDK", hint=f"pip install 'arylcloud[{cloud}]'")

    monkeypatch.setattr("arylcloud.providers.registry.load_checks", load)
    monkeypatch.setattr("arylcloud.cli.stores.looked_at", lambda *_: None)
    assert run(["check", str(job)]) == 0
    out = capsys.readouterr().out
    assert "warning  azure: set up: not set up here: azure needs its SDK" in out
    assert "hint: pip install 'arylcloud[azure]'" in out
    assert run(["check", "--infra", "azure"]) == 2
    assert "azure needs its SDK" in capsys.readouterr().err
    there.clear()
    assert run(["check", str(job)]) == 2
    said = capsys.readouterr().err
    assert "aws needs its SDK; azure needs its SDK; gcp needs its SDK" in said
    assert f"`arylcloud launch {job} --infra local`" in said
    assert run(["check", "aws"]) == 2
    assert "`arylcloud check --infra aws`" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["botocore", "google.auth", "azure.identity", "azure.core"])
def test_a_missing_sdk_is_not_a_missing_right(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the real adapters: the exit code is that of the extra to install, not that of a sign-in."""
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    for loaded in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, module, None)
    cloud = {"botocore": "aws", "google": "gcp", "azure": "azure"}[module.partition(".")[0]]
    assert run(["check", "--infra", cloud, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["hint"]) == ("missing_extra", f"pip install 'arylcloud[{cloud}]'")


def test_the_local_cloud_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("run: x\nresources: {infra: local}\n")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    for asked in ([str(job)], ["--infra", "local"]):
        assert run(["check", *asked]) == 0
        assert capsys.readouterr().out.startswith("ok       local: set up: it is this machine")
    assert run(["check", "--infra", "pool"]) == 2


def test_a_cloud_without_credentials_that_nobody_named_is_not_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("run: x\nresources: {accelerators: A100:8}\n")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    says = {"azure": "azure: a token: no credentials", "gcp": "gcp: no project is named"}

    def load(cloud: str, **_: object) -> Cloud:
        return Stranger(cloud, says[cloud]) if cloud in says else Anywhere(set())

    monkeypatch.setattr("arylcloud.providers.registry.load_checks", load)
    monkeypatch.setattr("arylcloud.cli.stores.looked_at", lambda *_: None)
    assert run(["check", str(job)]) == 0
    out = capsys.readouterr().out
    assert "warning  azure: set up: not set up here: azure: a token: no credentials" in out
    assert "warning  gcp: set up: not set up here: gcp: no project is named" in out
    assert "hint: sign in" in out
    assert run(["check", "--infra", "azure"]) == 4, "named"
    says["azure"] = "azure: the sign-in was refused"
    assert run(["check", str(job)]) == 4, "there are some, and they are no good"
    says |= {"azure": "azure: a token: no credentials", "aws": "aws: no credentials"}
    capsys.readouterr()
    assert run(["check", str(job)]) == 4, "none is left"
    told = capsys.readouterr()
    assert "FAILED   aws: identity" in told.out
    assert f"arylcloud launch {job} --infra local" in told.err


class Stranger(Cloud):
    """A cloud that does not know who asks."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(set())
        self.name, self.said = name, said

    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        return (Findings(self.name).say(None, "identity", Verdict.FAILED, self.said, "sign in"),)


class Anywhere(Cloud):
    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        return (AWS.say(None, "identity", Verdict.OK, "you"),)
