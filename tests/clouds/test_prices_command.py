"""``prices --refresh`` and ``--history`` as a person and as a script see them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore", reason="the AWS extra is not installed")

from clouds.prices_emulators import PriceEmulators

from arylcloud.cli.main import run
from arylcloud.pricing.binary import save_file
from arylcloud.pricing.catalogue import CATALOGUE_VARIABLE, load_bundled
from arylcloud.pricing.hazard import MEAN_LIFE_H

KEY = "aws/us-east-1/use1-az4:p5.48xlarge:spot"


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceEmulators]:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in (CATALOGUE_VARIABLE, "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with PriceEmulators(small=True) as emulators:
        for name, value in emulators.environ().items():
            monkeypatch.setenv(name, value)
        yield emulators


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert run(["prices", *args, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    return found


def screen(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    assert run(["prices", *args]) == code
    found = capsys.readouterr()
    return found.out, found.err


def test_only_the_clouds_that_are_named_are_asked(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, "--refresh", "--infra", "aws/us-east-1", "--gpu", "H100", "--use-spot")
    assert clouds.gcp.asked == clouds.azure.asked == []
    parts = {part["part"]: part["outcome"] for part in found["refresh"]["parts"]}
    assert parts == dict.fromkeys(("advisor", "list/us-east-1", "spot/us-east-1"), "answered")
    (aws,) = found["refresh"]["clouds"]
    assert (aws["cloud"], aws["error"]) == ("aws", None)
    assert aws["raw_rows"] == clouds.aws.served["rows"]
    assert aws["calls"] == clouds.aws.served["calls"]
    assert {offer["source"] for offer in found["offers"]} == {"AWS spot price history"}
    now = clouds.aws.price_at("us-east-1", "use1-az4", "p5.48xlarge", clouds.aws.now_s)
    mine = next(o for o in found["offers"] if (o["zone"], o["instance_type"]) == ("use1-az4", "p5.48xlarge"))
    assert mine["usd_per_hour"] == pytest.approx(now)


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        (["--cloud", "azure", "--region", "eastus"], {"retail/eastus"}),
        (["--region", "azure/eastus", "--region", "westeurope"], {"retail/eastus", "retail/westeurope"}),
        (["--infra", "gcp"], {"skus"}),
        (["--infra", "gcp/us-central1"], {"skus/us-central1"}),
    ],
)
def test_regions_narrow_it(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str], args: list[str], asked: set[str]
) -> None:
    found = document(capsys, "--refresh", *args, "--limit", "1")
    assert {part["part"] for part in found["refresh"]["parts"]} == asked
    assert {part["outcome"] for part in found["refresh"]["parts"]} == {"answered"}
    assert clouds.aws.asked == []


def test_the_next_plan_uses_what_the_cloud_said(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    clouds.aws.usd["us-east-1", "p5.48xlarge"] = 44.44
    job = tmp_path / "job.yaml"
    job.write_text(
        "run: x\nresources: {infra: aws, accelerators: H100:8, use_spot: false}\n"
        "aryl: {profile: mpt-125m, work: 1000 steps}\n"
    )

    def plan(*more: str) -> dict[str, Any]:
        assert run(["plan", str(job), "--json", *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    before = plan()
    assert before["chosen"]["usd_per_hour"] != 44.44
    document(capsys, "--refresh", "--infra", "aws/us-east-1", "--limit", "1")
    after = plan()
    assert (after["chosen"]["usd_per_hour"], after["chosen"]["region"]) == (44.44, "us-east-1")
    assert after["chosen"]["as_of"] > "2026-01-01T"
    assert after["catalogue"]["digest"] != before["catalogue"]["digest"]
    # interruptions, too, are those of the Spot Advisor's file of today: its band is one life in hours
    job.write_text(job.read_text().replace("use_spot: false", "use_spot: true, infra: aws/us-east-1"))
    job.write_text(job.read_text().replace("infra: aws, ", ""))
    spot = plan()["chosen"]
    lives = list(MEAN_LIFE_H.values())
    band = clouds.aws.band("us-east-1", spot["instance_type"])
    assert spot["interruptions_per_hour"] == pytest.approx(1 / lives[band])


def test_another_catalogue_is_not_hidden_by_what_was_refreshed_over_the_bundled_one(
    clouds: PriceEmulators,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document(capsys, "--refresh", "--infra", "aws/us-east-1", "--limit", "1")
    few = load_bundled()
    save_file(few.take(few.mask("cloud", ["gcp"])), tmp_path / "own.bin")
    monkeypatch.setenv(CATALOGUE_VARIABLE, str(tmp_path / "own.bin"))
    found = document(capsys, "--limit", "1")
    assert found["catalogue"]["offers"] == int(few.mask("cloud", ["gcp"]).sum())


def test_what_is_stale_is_said_until_it_answers(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds.aws.faults.down = {"us-east-1"}
    monkeypatch.setattr("arylcloud.cli.refresh.Patience", _hurried)
    _, said = screen(capsys, "--refresh", "--cloud", "aws", "--limit", "2")
    assert "stale: aws/spot/us-east-1: the catalogue's prices stay: aws ec2 in us-east-1" in said
    assert "aws: 4 answered, 1 stale" in said
    _, said = screen(capsys, "--limit", "2")
    assert "stale: aws/spot/us-east-1 did not answer" in said
    clouds.aws.faults.down = set()
    screen(capsys, "--refresh", "--cloud", "aws", "--limit", "2")
    _, said = screen(capsys, "--limit", "2")
    assert "stale" not in said


def _hurried(clock: Any) -> Any:
    from arylcloud.providers.patience import Patience

    return Patience(clock=clock, tries=2, first_s=0.01)


def test_nothing_learned_is_an_error(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = document(capsys, "--refresh", "--cloud", "aws", code=4)
    assert found["error"]["kind"] == "access"
    _, said = screen(capsys, "--refresh", "--infra", "local", code=2)
    assert "local has no live prices" in said


def test_without_the_extra_the_others_are_asked(
    clouds: PriceEmulators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    _, said = screen(capsys, "--refresh", "--cloud", "aws,azure", "--region", "azure/eastus", "--limit", "1")
    assert "aws: nothing asked: prices of AWS need boto3" in said
    assert "pip install 'arylcloud[aws]'" in said
    found = document(capsys, "--refresh", "--cloud", "aws", code=2)
    assert found["error"]["kind"] == "missing_extra"


def test_history(clouds: PriceEmulators, capsys: pytest.CaptureFixture[str]) -> None:
    out, said = screen(capsys, "--history", KEY, code=2)
    assert "no price of" in said
    assert "prices --refresh --infra aws/us-east-1" in said
    document(capsys, "--refresh", "--infra", "aws/us-east-1", "--limit", "1")

    (line,) = document(capsys, "--history", KEY)["history"]
    pool = next(
        p
        for p in clouds.aws.pools("us-east-1")
        if (p.zone_id, p.instance_type) == ("use1-az4", "p5.48xlarge")
    )
    shown = pool.at_s <= clouds.aws.now_s
    points = [point["usd_per_hour"] for point in line["points"]]
    assert points == pytest.approx(pool.usd[shown].tolist())
    assert line["usd_per_hour"] == points[-1]
    assert min(points) <= line["mean_usd_per_hour"] <= max(points)
    # over time, not over changes
    ends = [*pool.at_s[shown][1:].tolist(), clouds.aws.now_s]
    begins = [max(at_s, ends[-1] - 90 * 86400) for at_s in pool.at_s[shown].tolist()]
    spans = [max(0.0, end - begin) for begin, end in zip(begins, ends, strict=True)]
    mean = sum(span * usd for span, usd in zip(spans, points, strict=True)) / sum(spans)
    assert line["mean_usd_per_hour"] == pytest.approx(mean, rel=1e-4)

    out, _ = screen(capsys, "--history", "aws/us-east-1:p5.48xlarge")
    assert out.count("p5.48xlarge:spot: now $") == 3, "every zone of the region"
    assert "p5.48xlarge:on_demand: now $" in out
    assert "└" in out
    _, said = screen(capsys, "--history", "aws/us-east-1:p5.48xlrge", code=2)
    assert "known there: p5.48xlarge" in said
    for wrong in ("p5.48xlarge", "aws:p5.48xlarge", "aws/us-east-1:p5.48xlarge:cheap", "aws/us-east-1"):
        screen(capsys, "--history", wrong, code=2)


def test_a_bar_on_a_terminal_only(clouds: PriceEmulators, tmp_path: Path) -> None:
    code = (
        "import os, pty, sys\n"
        "argv = [sys.executable, '-m', 'arylcloud', 'prices', '--refresh', '--cloud', 'aws', '--limit=1']\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(argv)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=120)
    assert "5/5" in done.stdout.decode(), "what a person sees"
    argv = [sys.executable, "-m", "arylcloud", "prices", "--refresh", "--infra", "aws", "--limit", "1"]
    plain = subprocess.run(argv, capture_output=True, check=True, timeout=120)
    assert b"5/5" not in plain.stderr
    assert b"\x1b" not in plain.stderr + plain.stdout
