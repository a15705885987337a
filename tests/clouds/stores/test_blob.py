"""Blob storage through a server of ours: the store contract, who may do what, links, the usual account."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("azure.identity", reason="needs arylcloud[azure]")
pytest.importorskip("azure.mgmt.compute", reason="needs arylcloud[azure]")

from checkpoint.contract import ObjectStoreContract
from clouds.stores.blob import Azure

from arylcloud.checkpoint.store import StoreAccessError, open_store
from arylcloud.core.errors import AccessError, ArylError, ConflictError, UsageError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.stores import JobPrefix, address_of
from arylcloud.providers.azure import bucket, lending, roles, sas
from arylcloud.providers.azure.client import Arm

NUMBERS = count(1)


@pytest.fixture(scope="module")
def azure() -> Iterator[Azure]:
    with Azure() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", *bucket.ENV_ACCOUNT):
            patch.delenv(name, raising=False)
        for name, value in server.environ.items():
            patch.setenv(name, value)
        for module in (bucket, roles):
            for name in ("SEEN_EVERY_S", "USABLE_EVERY_S", "MADE_EVERY_S"):
                patch.setattr(module, name, 0.01, raising=False)
        yield server


@pytest.fixture(scope="module")
def storage(azure: Azure) -> bucket.AzureStorage:
    made = bucket.create(Path(), azure.settings)
    azure.role_lag = 2  # a new role does not hold at once
    made.make(address_of(made.usual("eastus")), "eastus", "j1")
    return made


@pytest.fixture(scope="module")
def root(storage: bucket.AzureStorage) -> str:
    return f"{storage.usual('eastus')}/root"


@pytest.fixture(scope="module")
def made(azure: Azure) -> lending.AzureLending:
    return lending.create(Path(), azure.settings)


@pytest.fixture
def mine(root: str) -> JobPrefix:
    return job(root, "mine-00000001")


@pytest.fixture
def other(root: str) -> JobPrefix:
    return job(root, "mine-00000002")


@pytest.fixture
def lender(made: lending.AzureLending, mine: JobPrefix, other: JobPrefix) -> Iterator[lending.AzureLending]:
    yield made
    for one in (mine, other):
        made.revoke(one)


def job(root: str, job_id: str) -> JobPrefix:
    return JobPrefix(address=address_of(f"{root}/jobs/{job_id}"), journal_id="j1", job_id=job_id)


def users(storage: bucket.AzureStorage, one: JobPrefix) -> ObjectStore:
    return open_store(one.address.uri, **storage.options(one.address))


def opened(storage: bucket.AzureStorage, secret: dict[str, str], uri: str) -> ObjectStore:
    found = {**secret, "expires_at": datetime.fromtimestamp(time.time() + 3600, UTC)}
    options = storage.for_machines(address_of(uri), None)
    return open_store(uri, credential_provider=lambda: found, **options)


class TestBlob(ObjectStoreContract):
    races, reads = 10, 30

    @pytest.fixture
    def store(self, storage: bucket.AzureStorage, root: str) -> ObjectStore:
        address = address_of(f"{root}/c{next(NUMBERS)}")
        return open_store(address.uri, **storage.options(address))


@pytest.mark.parametrize("how", ["lent", "identity"])
def test_one_prefix_and_nothing_beside_it(
    how: str,
    azure: Azure,
    storage: bucket.AzureStorage,
    lender: lending.AzureLending,
    mine: JobPrefix,
    other: JobPrefix,
) -> None:
    own = users(storage, mine)
    own.delete([info.key for info in own.list("")])  # what other tests have left, in whatever order
    own.put("a", b"1")
    users(storage, other).put("secrets.json", b"2")
    if how == "lent":
        secret = dict(lender.lend(mine, 3600.0).secret)
    else:
        azure.unseen = 1
        identity = lender.identity(mine)
        assert identity is not None
        assert storage.for_machines(mine.address, identity)["msi_resource_id"] == identity
        secret = {"token": azure.token(azure.things[identity.lower()]["properties"]["principalId"])}
    here = opened(storage, secret, mine.address.uri)
    assert here.get("a") == b"1"
    assert here.get("missing") is None
    assert [info.key for info in here.list("")] == ["a"]
    here.put("b", bytes(range(256)) * 20_000)
    here.put("b", b"3")
    assert here.create("b", b"4") is False
    assert here.get("b") == b"3"
    with pytest.raises(StoreAccessError):  # what goes, goes by the launcher
        here.delete(["b"])
    users(storage, mine).delete(["b"])
    there = opened(storage, secret, other.address.uri)
    near = opened(storage, secret, mine.address.uri + "1")
    whole = opened(storage, secret, replace(mine.address, prefix="").uri)
    for call in (
        lambda: there.get("secrets.json"),
        lambda: list(there.list("")),
        lambda: there.put("x", b""),
        lambda: there.create("y", b""),
        lambda: there.delete(["secrets.json"]),
        lambda: near.put("x", b""),
        lambda: list(near.list("")),
        lambda: list(whole.list("")),
        lambda: whole.put("root/runtime/x.zip", b""),
    ):
        with pytest.raises(StoreAccessError):
            call()
    assert users(storage, other).get("secrets.json") == b"2"


def test_the_identity_is_made_once_found_again_and_removed(
    azure: Azure, lender: lending.AzureLending, mine: JobPrefix
) -> None:
    identity = lender.identity(mine)
    assert identity is not None
    puts = azure.calls.count("PUT userAssignedIdentities")
    assert lender.identity(mine) == identity
    assert azure.calls.count("PUT userAssignedIdentities") == puts
    assert lending.create(Path(), azure.settings).identity(mine) == identity
    ours = roles.Identities(Arm(azure.settings), azure.settings)
    found, definition = ours.resources(journal_id="j1")
    assert (found.resource_id, found.job_id, found.costs) == (identity, mine.job_id, False)
    assert ours.resources(journal_id="j2") == ()
    given = [key for key in azure.things if "/containers/" in key and "/roleassignments/" in key]
    assert len(given) == 1
    (role,) = [one for key, one in azure.things.items() if "/roledefinitions/" in key]
    assert role["properties"]["permissions"] == [{"actions": [], "dataActions": list(roles.ACTIONS)}]
    assert definition.kind == "role-definition"
    with pytest.raises(ConflictError, match="still given"):
        ours.remove(definition.resource_id)
    for _ in range(2):
        ours.remove(identity)
        lender.revoke(mine)
        ours.remove(definition.resource_id)
    assert ours.resources(journal_id=None) == ()
    assert not [key for key in azure.things if "/containers/" in key and "/roleassignments/" in key]


def test_who_may_give_no_roles_is_told_what_to_do(
    azure: Azure, lender: lending.AzureLending, mine: JobPrefix
) -> None:
    azure.denied.add("roleAssignments")
    try:
        with pytest.raises(AccessError) as caught:
            lender.identity(mine)
    finally:
        azure.denied.clear()
    assert "storage_identity" in (caught.value.hint or "")
    theirs = lending.create(Path(), {**azure.settings, "storage_identity": "/subscriptions/x/their"})
    assert theirs.identity(mine) == "/subscriptions/x/their"


def test_a_link_reads_one_object_for_a_while(
    storage: bucket.AzureStorage, mine: JobPrefix, azure: Azure
) -> None:
    users(storage, mine).put("a b+c", b"1")
    users(storage, mine).put("d", b"2")
    before_s = time.time()
    link = storage.sign(mine.address, "a b+c", 1e9)
    asked = parse_qs(link.partition("?")[2])
    assert (asked["sp"], asked["sr"]) == (["r"], ["b"])
    assert datetime.fromisoformat(asked["se"][0]).timestamp() <= before_s + 3601
    assert urlopen(link, timeout=60).read() == b"1"
    for bad in (link.replace("a%20b%2Bc", "d"), link.replace("sp=r", "sp=rw")):
        assert bad != link
        with pytest.raises(HTTPError, match="403"):
            urlopen(bad, timeout=60)
    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(link, data=b"x", method="PUT", headers={"x-ms-blob-type": "BlockBlob"}), timeout=60)
    short = storage.sign(mine.address, "d", 1)
    time.sleep(2.1)
    with pytest.raises(HTTPError, match="403"):
        urlopen(short, timeout=60)


def test_signatures_are_what_the_sdk_signs() -> None:
    blob = pytest.importorskip("azure.storage.blob", reason="needs azure-storage-blob")
    key = sas.Key(
        object_id="oid",
        tenant="tid",
        start="2026-01-01T00:00:00Z",
        expiry="2026-01-02T00:00:00Z",
        service="b",
        version=sas.VERSION,
        value=base64.b64encode(b"k" * 32).decode(),
    )
    theirs = blob.UserDelegationKey()
    for name, value in {
        "signed_oid": key.object_id,
        "signed_tid": key.tenant,
        "signed_start": key.start,
        "signed_expiry": key.expiry,
        "signed_service": key.service,
        "signed_version": key.version,
        "value": key.value,
    }.items():
        setattr(theirs, name, value)
    times = {
        "start": datetime.fromtimestamp(1767225600, UTC),
        "expiry": datetime.fromtimestamp(1767229200, UTC),
    }
    for ours, name, more in (
        (sas.of_blob, "a/b c", {"permission": "r"}),
        (sas.of_folder, "jobs/x-1", {"permission": "racwl", "is_directory": True, "sdd": 2}),
    ):
        signed = ours(key, "acct", "box", name, start_s=1767225600, end_s=1767229200)
        wanted = blob.generate_blob_sas("acct", "box", name, user_delegation_key=theirs, **times, **more)
        assert parse_qs(signed) == parse_qs(wanted)


def test_the_usual_account(azure: Azure, storage: bucket.AzureStorage) -> None:
    address = address_of(storage.usual("westeurope"))
    assert storage.missing(address)
    for _ in range(2):
        storage.make(address, "westeurope", "j1")
    assert not storage.missing(address)
    assert storage.place(address) == "azure/westeurope"
    assert storage.place(replace(address, account="somebody")) is None
    found = storage.find(storage.account(address))
    assert found is not None
    properties = found["properties"]
    assert properties["allowBlobPublicAccess"] is False
    assert properties["allowSharedKeyAccess"] is False
    assert "arylcloud-journal" not in found["tags"]  # it stays when the journal's things go


def test_a_container_of_ones_own(storage: bucket.AzureStorage) -> None:
    theirs = replace(address_of(storage.usual("eastus")), bucket="theirs")
    assert storage.missing(theirs)
    with pytest.raises(AccessError, match="somebody"):
        storage.missing(replace(theirs, account="somebody"))


def test_an_address_without_an_account(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_of("az://box/p")
    with pytest.raises(UsageError, match="names no storage account"):
        bucket.create(Path(), azure.settings).options(address)
    named = bucket.create(Path(), {**azure.settings, "storage_account": "acct"})
    assert named.for_machines(address, None)["account_name"] == "acct"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    assert bucket.create(Path(), azure.settings).for_machines(address, None)["account_name"] == "other"


def test_only_an_identity_that_is_new_is_waited_for(
    azure: Azure, lender: lending.AzureLending, mine: JobPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "SEEN_AFTER_S", 0.0)
    azure.unseen = 3
    try:
        with pytest.raises(ArylError, match="PrincipalNotFound"):
            lender.identity(mine)
        assert azure.unseen == 2  # asked once
    finally:
        azure.unseen = 0
    assert lender.identity(mine) is not None  # the next tick
