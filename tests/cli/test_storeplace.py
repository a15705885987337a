"""Where a job's store lies: what a launch writes down of it, and what a plan makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness import offer
from support.twohomes import JOB as JOB_ID
from support.twohomes import Shared

from arylcloud.cli import compose, launch, stores
from arylcloud.cli.assemble import Parts, build_launcher
from arylcloud.cli.jobfile import load_job
from arylcloud.cli.main import run
from arylcloud.cli.settings import Folders, folders
from arylcloud.core.errors import AccessError, ThrottledError
from arylcloud.core.stores import Address
from arylcloud.launcher.desire import Desires


class Buckets:
    """A cloud that knows where some of its buckets are."""

    def __init__(self, **places: str) -> None:
        self.places = places

    apart = False

    def usual(self, region: str) -> str:
        return f"s3://usual-{region}"

    def missing(self, address: Address) -> bool:
        return False

    def place(self, address: Address) -> str | None:
        if address.bucket == "secret":
            raise AccessError("not yours to look at")
        if address.bucket.startswith("arylcloud-"):
            raise ThrottledError("later")
        return self.places.get(address.bucket)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ARYLCLOUD_STORE", raising=False)
    monkeypatch.setattr(stores, "storage_of", lambda cloud, folders: Buckets(mine="aws/eu-west-1"))
    return folders()


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (None, "aws/us-east-1"),  # the usual one of the first machine's region
        ("s3://mine/jobs", "aws/eu-west-1"),
        ("s3://other", None),
        ("s3://secret", None),
        ("s3://arylcloud-123456789012-eu-west-1/x", "aws/eu-west-1"),  # nobody says so, but its name
        ("file:///tmp/x", None),
    ],
)
def test_a_launch_knows_where_its_store_lies(home: Folders, asked: str | None, place: str | None) -> None:
    chosen = offer()
    assert (chosen.cloud, chosen.region) == ("aws", "us-east-1")
    assert stores.Root(home, asked, chosen, ["aws"]).place == place


class Apart(Buckets):
    """S3 by ``AWS_ENDPOINT_URL_S3``: the account, and what it calls its regions, are somebody else's."""

    apart = True

    def place(self, address: Address) -> str | None:
        raise ThrottledError("later")


@pytest.mark.parametrize("asked", [None, "s3://arylcloud-123456789012-eu-west-1/x"])
def test_a_store_elsewhere_is_in_no_region_of_the_clouds(
    home: Folders, monkeypatch: pytest.MonkeyPatch, asked: str | None
) -> None:
    monkeypatch.setattr(stores, "storage_of", lambda cloud, folders: Apart())
    assert stores.Root(home, asked, offer(), ["aws"]).place is None


JOB = """\
name: big
resources: {accelerators: [A100-80GB:8], cloud: gcp, use_spot: true}
run: python train.py
aryl:
  profile: {A100-80GB:8: 1.0, unit: steps/s}
  work: 360000 steps
  checkpoint: {size_gb: 100, interval: 30m}
"""


def planned(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[dict[str, Any], str]:
    assert run(["plan", str(path), "--json", "--limit", "1000"]) == 0
    out = capsys.readouterr()
    return {c["cloud"]: c["usd"]["egress"] for c in json.loads(out.out)["candidates"]}, out.err


def test_plan_prices_the_way_to_a_store_that_is_named(
    home: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No cloud is asked: one's own usual bucket says where it is, of another that is said."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    monkeypatch.setattr(stores, "storage_of", None)
    assert planned(capsys, path) == ({"gcp": 0.0}, "")
    monkeypatch.setenv("ARYLCLOUD_STORE", "s3://arylcloud-123456789012-us-east-1")
    egress, said = planned(capsys, path)
    assert egress["gcp"] > 200 * 100 * 0.12, "two hundred checkpoints, and some that are fetched"
    assert said == ""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.us-east-1.amazonaws.com")
    assert planned(capsys, path)[0]["gcp"] > 0.0
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://minio.example.com")
    egress, said = planned(capsys, path)
    assert egress == {"gcp": 0.0}
    assert "lies is not known here" in " ".join(said.split())
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.setenv("ARYLCLOUD_STORE", "s3://mine")
    egress, said = planned(capsys, path)
    assert egress == {"gcp": 0.0}
    assert "where s3://mine lies is not known here" in " ".join(said.split())


def test_a_plan_made_before_is_shown_anew_where_its_store_changes_the_choice(
    home: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The launcher goes by the store: what it would begin with is what has to be agreed to."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("cloud: gcp, ", ""), encoding="utf-8")
    plan = compose.make_plan(load_job(path)[0], home, limit=50)
    cheap = plan.chosen.offer
    assert launch._with_store(plan, home, None) is plan
    assert launch._with_store(plan, home, f"{cheap.cloud}/{cheap.region}") is plan, (
        "beside it nothing changes"
    )
    assert capsys.readouterr().err == ""
    far = "azure/eastus" if cheap.cloud != "azure" else "aws/us-east-1"
    found = launch._with_store(plan, home, far)
    assert found.chosen.offer.key != cheap.key
    assert f"with checkpoints in {far}, {found.chosen.offer.key} comes before" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_launcher_plans_with_the_place_that_the_journal_has(
    home: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(compose, "make_plan", lambda spec, folders, **how: asked.append(how["store_place"]))
    shared = Shared(root=tmp_path)
    shared.submit("a")
    with shared.journal("a") as journal:
        parts = Parts(journal=journal, store=shared.store(), providers={})
        for place in (None, "gcp/us-central1"):
            state = replace(journal.state(JOB_ID), store_place=place)
            desire = build_launcher(JOB_ID, state, parts, shared.home("a")).desire
            assert isinstance(desire, Desires)
            desire.plan(state.spec, quoted=(), also=())
    assert asked == [None, "gcp/us-central1"]
