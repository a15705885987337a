"""Where a job's store lies: what a launch writes down of it, and what a plan makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import offer

from arylcloud.cli import stores
from arylcloud.cli.settings import Folders, folders
from arylcloud.core.errors import AccessError
from arylcloud.core.stores import Address


class Buckets:
    """A cloud that knows where some of its buckets are."""

    def __init__(self, **places: str) -> None:
        self.places = places

    def usual(self, region: str) -> str:
        return f"s3://usual-{region}"

    def missing(self, address: Address) -> bool:
        return False

    def place(self, address: Address) -> str | None:
        if address.bucket == "secret":
            raise AccessError("not yours to look at")
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
        ("file:///tmp/x", None),
    ],
)
def test_a_launch_knows_where_its_store_lies(home: Folders, asked: str | None, place: str | None) -> None:
    chosen = offer()
    assert (chosen.cloud, chosen.region) == ("aws", "us-east-1")
    assert stores.Root(home, asked, chosen, ["aws"]).place == place
