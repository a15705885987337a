"""Cloud Storage through a server of ours: the store contract, who may do what, links, the usual bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("google.auth", reason="needs arylcloud[gcp]")
pytest.importorskip("requests", reason="needs arylcloud[gcp]")

from checkpoint.contract import ObjectStoreContract
from clouds.stores.gcs import USER, Gcs

from arylcloud.checkpoint.store import StoreAccessError, open_store, sub
from arylcloud.core.errors import AccessError, ArylError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.stores import JobPrefix, address_of
from arylcloud.providers.gcp import bucket, lending, roles, signing
from arylcloud.providers.gcp.client import Calls

NUMBERS = count(1)
ROOT = "gs://arylcloud-test/root"
MINE = JobPrefix(address=address_of(f"{ROOT}/jobs/mine-00000001"), journal_id="j1", job_id="mine-00000001")
OTHER = JobPrefix(address=address_of(f"{ROOT}/jobs/mine-00000002"), journal_id="j1", job_id="mine-00000002")
THIRD = replace(MINE, address=address_of(f"{ROOT}/jobs/mine-00000003"), job_id="mine-00000003")


@pytest.fixture(scope="module")
def gcs() -> Iterator[Gcs]:
    with Gcs() as server:
        bucket.create(Path(), server.settings).make(address_of(ROOT), "us-central1", "j1")
        yield server


@pytest.fixture(scope="module")
def storage(gcs: Gcs) -> bucket.GcpStorage:
    return bucket.create(Path(), gcs.settings)


@pytest.fixture(scope="module")
def made(gcs: Gcs) -> lending.GcpLending:
    return lending.create(Path(), gcs.settings)


@pytest.fixture
def lender(made: lending.GcpLending, monkeypatch: pytest.MonkeyPatch) -> Iterator[lending.GcpLending]:
    for module in (roles, signing):
        for name in ("SEEN_EVERY_S", "KNOWN_EVERY_S"):
            monkeypatch.setattr(module, name, 0.01, raising=False)
    yield made
    for job in (MINE, OTHER):
        made.revoke(job)


def users(storage: bucket.GcpStorage, job: JobPrefix) -> ObjectStore:
    return open_store(job.address.uri, **storage.options(job.address))


def with_token(gcs: Gcs, token: str, uri: str) -> ObjectStore:
    found = {"token": token, "expires_at": datetime.fromtimestamp(time.time() + 3600, UTC)}
    return open_store(uri, endpoint=gcs.url, credential_provider=lambda: found)


class TestGcs(ObjectStoreContract):
    races, reads = 10, 30

    @pytest.fixture
    def store(self, storage: bucket.GcpStorage) -> ObjectStore:
        uri = f"gs://arylcloud-test/c{next(NUMBERS)}"
        return open_store(uri, **storage.options(address_of(uri)))


@pytest.fixture(scope="module")
def lent_root(gcs: Gcs, made: lending.GcpLending) -> ObjectStore:
    return with_token(gcs, made.lend(THIRD, 3600.0).secret["token"], THIRD.address.uri)


class TestLent(ObjectStoreContract):
    races, reads = 5, 10

    @pytest.fixture
    def store(self, lent_root: ObjectStore) -> ObjectStore:
        return sub(lent_root, f"c{next(NUMBERS)}")


@pytest.mark.parametrize("how", ["lent", "identity"])
def test_one_prefix_and_nothing_beside_it(
    how: str, gcs: Gcs, storage: bucket.GcpStorage, lender: lending.GcpLending
) -> None:
    own = users(storage, MINE)
    own.delete([info.key for info in own.list("")])  # what other tests have left, in whatever order
    own.put("a", b"1")
    users(storage, OTHER).put("secrets.json", b"2")
    if how == "lent":
        token = lender.lend(MINE, 3600.0).secret["token"]
    else:
        identity = lender.identity(MINE)
        assert identity is not None
        token = gcs.machine_token(identity)
    mine = with_token(gcs, token, MINE.address.uri)
    assert mine.get("a") == b"1"
    assert mine.get("missing") is None
    assert [info.key for info in mine.list("")] == ["a"]
    mine.put("b", b"3")
    mine.delete(["b"])
    other = with_token(gcs, token, OTHER.address.uri)
    near = with_token(gcs, token, MINE.address.uri + "1")
    whole = with_token(gcs, token, "gs://arylcloud-test")
    for call in (
        lambda: other.get("secrets.json"),
        lambda: list(other.list("")),
        lambda: other.put("x", b""),
        lambda: other.create("y", b""),
        lambda: other.delete(["secrets.json"]),
        lambda: near.put("x", b""),
        lambda: list(whole.list("")),
        lambda: whole.put("runtime/x.zip", b""),
    ):
        with pytest.raises(StoreAccessError):
            call()
    assert users(storage, OTHER).get("secrets.json") == b"2"


def test_the_account_is_made_once_found_again_and_removed(gcs: Gcs, lender: lending.GcpLending) -> None:
    gcs.unseen = 2  # IAM is told in one place, and known in all of them later
    email = lender.identity(MINE)
    assert email is not None
    assert lending.create(Path(), gcs.settings).identity(MINE) == email
    assert list(gcs.accounts) == [email]
    assert gcs.accounts[email]["bindings"] == [
        {"role": "roles/iam.serviceAccountTokenCreator", "members": [f"user:{USER}"]}
    ]
    accounts = roles.Accounts(Calls(gcs.settings), gcs.settings)
    (found,) = accounts.resources(journal_id="j1")
    assert (found.resource_id, found.job_id, found.costs) == (email, MINE.job_id, False)
    assert accounts.resources(journal_id="j2") == ()
    for _ in range(2):
        lender.revoke(MINE)
        accounts.remove(email)
    assert not gcs.accounts
    assert f"{MINE.address.prefix}/" not in gcs.buckets["arylcloud-test"].folders


def test_only_an_account_that_is_new_is_waited_for(
    gcs: Gcs, lender: lending.GcpLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "SEEN_AFTER_S", 0.0)
    gcs.unseen = 3
    try:
        with pytest.raises(ArylError, match="does not exist"):
            lender.identity(MINE)
        assert gcs.unseen == 2  # asked once
    finally:
        gcs.unseen = 0
    assert lender.identity(MINE) is not None  # the next tick


def test_a_company_brings_its_own_account(gcs: Gcs) -> None:
    theirs = lending.create(Path(), {**gcs.settings, "service_account": "ml@corp.iam.gserviceaccount.com"})
    before = list(gcs.calls)
    assert theirs.identity(MINE) is None
    theirs.revoke(MINE)
    assert gcs.calls == before


def test_a_link_reads_one_object_for_a_while(
    gcs: Gcs, storage: bucket.GcpStorage, lender: lending.GcpLending
) -> None:
    assert storage.signs_as_job
    users(storage, MINE).put("a b+c", b"1")
    users(storage, MINE).put("d", b"2")
    identity = lender.identity(MINE)
    link = storage.sign(MINE.address, "a b+c", 1e9, identity)
    assert "X-Goog-Expires=3600" in link
    assert urlopen(link, timeout=60).read() == b"1"
    for other in (link.replace("a%20b%2Bc", "d"), link.replace("Expires=3600", "Expires=7200")):
        assert other != link
        with pytest.raises(HTTPError, match="403"):
            urlopen(other, timeout=60)
    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(link, data=b"x", method="PUT"), timeout=60)
    beside = storage.sign(OTHER.address, "secrets.json", 60, identity)  # the job's own rights, not the user's
    with pytest.raises(HTTPError, match="403"):
        urlopen(beside, timeout=60)
    short = storage.sign(MINE.address, "d", 1, identity)
    time.sleep(2.1)
    with pytest.raises(HTTPError, match="400"):
        urlopen(short, timeout=60)


def test_only_a_right_that_is_new_is_waited_for(
    gcs: Gcs, storage: bucket.GcpStorage, lender: lending.GcpLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> int:
        return gcs.calls.count("POST serviceAccounts signBlob")

    theirs = bucket.create(Path(), {**gcs.settings, "service_account": "ml@corp.iam.gserviceaccount.com"})
    before = asked()
    with pytest.raises(AccessError, match="ml@corp"):  # nobody has just let us sign as it
        theirs.sign(MINE.address, "a", 60)
    assert asked() == before + 1
    identity = lender.identity(OTHER)
    assert identity is not None
    allowed = gcs.accounts[identity]["bindings"]
    gcs.accounts[identity]["bindings"] = Late(allowed, 3)
    assert storage.sign(OTHER.address, "a", 60, identity)
    assert asked() == before + 1 + 4
    monkeypatch.setattr(signing, "KNOWN_AFTER_S", 0.0)
    gcs.accounts[identity]["bindings"] = []
    with pytest.raises(AccessError, match="no link can be signed"):
        storage.sign(OTHER.address, "a", 60, identity)
    assert asked() == before + 1 + 5


class Late(list[dict[str, Any]]):
    """Rights that hold only when they have been asked for so many times."""

    def __init__(self, given: list[dict[str, Any]], after: int) -> None:
        super().__init__(given)
        self.after = after

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.after -= 1
        return iter([]) if self.after >= 0 else super().__iter__()


def test_the_usual_bucket(gcs: Gcs, storage: bucket.GcpStorage) -> None:
    uri = storage.usual("northamerica-northeast1")
    address = address_of(uri)
    assert len(address.bucket) <= 63
    assert storage.missing(address)
    for _ in range(2):
        storage.make(address, "northamerica-northeast1", "j1")
    assert not storage.missing(address)
    assert storage.place(address) == "gcp/northamerica-northeast1"
    body = gcs.buckets[address.bucket].body
    body |= {"location": "US", "locationType": "multi-region"}
    assert storage.place(address) is None, "in no region"
    body |= {"location": "NORTHAMERICA-NORTHEAST1", "locationType": "region"}
    assert storage.place(address) == "gcp/northamerica-northeast1"
    assert body["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    assert body["iamConfiguration"]["uniformBucketLevelAccess"] == {"enabled": True}
    assert body["lifecycle"]["rule"] == [
        {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2}}
    ]
    gcs.taken.add("arylcloud-theirs")
    with pytest.raises(AccessError, match="somebody else"):
        storage.make(address_of("gs://arylcloud-theirs"), "us-central1", "j1")
    with pytest.raises(AccessError, match="not yours"):
        storage.missing(address_of("gs://arylcloud-theirs"))


def test_a_stranger_who_had_the_usual_name_first(gcs: Gcs, storage: bucket.GcpStorage) -> None:
    address = address_of(storage.usual("europe-west4"))
    bucket.create(Path(), {**gcs.settings, "project": "theirs-1"}).make(address, "europe-west4", "j2")
    with pytest.raises(AccessError, match="not yours"):  # though it lets us in
        storage.missing(address)
    with pytest.raises(AccessError, match="somebody else"):
        storage.make(address, "europe-west4", "j1")


def test_lent_tokens_end(gcs: Gcs, lender: lending.GcpLending, storage: bucket.GcpStorage) -> None:
    gcs.hands_out_s = 1.0
    try:
        grant = lender.lend(MINE, 7200.0)
    finally:
        gcs.hands_out_s = 3600.0
    assert grant.expires_s <= time.time() + 1.0
    time.sleep(1.2)
    with pytest.raises(StoreAccessError):
        with_token(gcs, grant.secret["token"], MINE.address.uri).put("a", b"")
