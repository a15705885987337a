"""S3 through the emulated AWS: the store contract, the user's credentials, who may do what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("boto3", reason="needs arylcloud[aws]")
pytest.importorskip("moto.server", reason="needs moto[server]")

from checkpoint.contract import ObjectStoreContract
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator

from arylcloud.checkpoint.store import ObstoreStore, StoreAccessError, open_store
from arylcloud.core.errors import AccessError, StoreError, UsageError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.stores import JobPrefix, address_of
from arylcloud.providers.aws import bucket, infrastructure, lending, roles
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.marks import name_of_job

NUMBERS = count(1)
ROOT = "s3://arylcloud-test/root"
MINE = JobPrefix(address=address_of(f"{ROOT}/jobs/mine-00000001"), journal_id="j1", job_id="mine-00000001")
OTHER = JobPrefix(address=address_of(f"{ROOT}/jobs/mine-00000002"), journal_id="j1", job_id="mine-00000002")


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsEmulator]:
    with AwsEmulator() as emulator:
        yield emulator


@pytest.fixture(scope="module")
def account(aws: AwsEmulator) -> Iterator[Account]:
    made = aws.account()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.environ(made).items():
            patch.setenv(name, value)
        bucket.create(Path(), {}).make(address_of(ROOT), "us-east-1", "j1")
        yield made


@pytest.fixture(scope="module")
def storage(account: Account) -> bucket.AwsStorage:
    return bucket.create(Path(), {})


@pytest.fixture(scope="module")
def made(account: Account) -> lending.AwsLending:
    return lending.create(Path(), {})


@pytest.fixture
def lender(made: lending.AwsLending) -> Iterator[lending.AwsLending]:
    yield made
    for job in (MINE, OTHER):
        made.revoke(job)


class TestS3(ObjectStoreContract):
    races, reads = 4, 10

    @pytest.fixture
    def store(self, storage: bucket.AwsStorage) -> ObjectStore:
        uri = f"s3://arylcloud-test/c{next(NUMBERS)}"
        return open_store(uri, **storage.options(address_of(uri)))


def lent(lender: lending.AwsLending, aws: AwsEmulator, job: JobPrefix, uri: str | None = None) -> ObjectStore:
    from datetime import UTC, datetime

    grant = lender.lend(job, 3600.0)
    found = {**grant.secret, "expires_at": datetime.fromtimestamp(grant.expires_s, UTC)}
    return open_store(
        uri or job.address.uri, endpoint=aws.url, region="us-east-1", credential_provider=lambda: found
    )


def users(storage: bucket.AwsStorage, job: JobPrefix) -> ObjectStore:
    return open_store(job.address.uri, **storage.options(job.address))


def test_lent_credentials_reach_one_prefix(
    storage: bucket.AwsStorage, lender: lending.AwsLending, aws: AwsEmulator
) -> None:
    own = users(storage, MINE)
    own.delete([info.key for info in own.list("")])  # what other tests have left, in whatever order
    own.put("a", b"1")
    users(storage, OTHER).put("secrets.json", b"2")
    mine = lent(lender, aws, MINE)
    assert mine.get("a") == b"1"
    assert mine.get("missing") is None
    assert [info.key for info in mine.list("")] == ["a"]
    mine.put("b", bytes(range(256)) * 20_000)
    mine.put("b", b"3")
    assert mine.create("b", b"4") is False
    assert mine.get("b") == b"3"
    with pytest.raises(StoreAccessError):  # what goes, goes by the launcher
        mine.delete(["b"])
    users(storage, MINE).delete(["b"])
    other = lent(lender, aws, MINE, OTHER.address.uri)
    for call in (
        lambda: other.get("secrets.json"),
        lambda: other.get("missing"),
        lambda: list(other.list("")),
        lambda: other.put("x", b""),
        lambda: other.create("y", b""),
        lambda: other.delete(["secrets.json"]),
    ):
        with pytest.raises(StoreAccessError):
            call()
    whole = lent(lender, aws, MINE, "s3://arylcloud-test")
    with pytest.raises(StoreAccessError):
        list(whole.list(""))
    near = lent(lender, aws, MINE, MINE.address.uri + "1")  # begins as the prefix does
    with pytest.raises(StoreAccessError):
        near.put("x", b"")
    assert users(storage, OTHER).get("secrets.json") == b"2"


def test_a_missing_object_hides_no_other(
    storage: bucket.AwsStorage, lender: lending.AwsLending, aws: AwsEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may list, and not read all: only what a list lacks is not there."""
    for key in ("a", "ckpt/manifests/e1.json", "journal/2.json"):
        users(storage, MINE).put(key, b"1")
    real = roles.policy

    def narrow(*asked: str, **more: str) -> dict[str, object]:
        found = real(*asked, **more)
        found["Statement"][0]["Resource"] += "x"  # of objects: only what ends in x
        return found

    monkeypatch.setattr(lending.roles, "policy", narrow)
    mine = lent(lender, aws, MINE)
    lists = Lists(monkeypatch)
    for _ in range(2):
        assert mine.get("missing-x") is None
        for key in ("a", "ckpt/manifests/e1.json", "journal/2.json"):
            with pytest.raises(StoreAccessError):
                mine.get(key)
    assert lists.asked.count("missing-x") == 1  # believed for a while
    for key in ("ckpt/chunks/x", "journal/x"):
        for _ in range(2):
            assert mine.get(key) is None
        assert lists.asked.count(key) == 2
    users(storage, MINE).put("missing-x", b"2")
    assert mine.get("missing-x") == b"2"


class Lists:
    """What is listed from now on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        real = ObstoreStore.list

        def listed(store: ObstoreStore, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            self.asked.append(prefix)
            return real(store, prefix, after=after)

        patch.setattr(ObstoreStore, "list", listed)


def test_a_role_that_is_gone_lends_nothing(
    storage: bucket.AwsStorage, lender: lending.AwsLending, aws: AwsEmulator
) -> None:
    users(storage, MINE).put("a", b"1")
    mine = lent(lender, aws, MINE)
    assert mine.get("a") == b"1"
    lender.revoke(MINE)
    with pytest.raises(StoreAccessError):
        mine.put("a", b"2")


def test_the_role_is_made_once_found_again_and_removed(
    account: Account, lender: lending.AwsLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, calls = infrastructure.create(Path(), {}), Calls(None)
    before = account.called["CreateRole"]
    name = lender.identity(MINE)
    assert name == name_of_job("j1", "mine-00000001")
    assert lender.identity(MINE) == name
    assert account.called["CreateRole"] == before + 1
    assert lending.create(Path(), {}).identity(MINE) == name  # another process: found again
    lender.identity(OTHER)
    ours = roles.resources(calls, journal_id="j1")
    assert {(r.kind, r.job_id) for r in ours} == {("role", "mine-00000001"), ("role", "mine-00000002")}
    assert roles.resources(calls, journal_id="j2") == ()
    for one in ours:
        found.remove(one)
        found.remove(one)
    assert roles.resources(calls, journal_id="j1") == ()
    assert "j1" not in {one.journal_id for one in roles.resources(calls, journal_id=None)}


def test_a_role_that_was_cut_short_is_completed(account: Account, lender: lending.AwsLending) -> None:
    from clouds.aws.account import Fault

    account.faults.append(Fault(operation="AddRoleToInstanceProfile", code="ServiceFailure", status=500))
    with pytest.raises(Exception, match="ServiceFailure"):
        lender.identity(MINE)
    name = lender.identity(MINE)
    calls = Calls(None)
    profile = calls.read("iam", "us-east-1", "get_instance_profile", InstanceProfileName=name)
    assert [r["RoleName"] for r in profile["InstanceProfile"]["Roles"]] == [name]


def test_who_is_a_roles_session_gets_an_hour(
    account: Account, lender: lending.AwsLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clouds.aws.account import Fault

    long = lender.lend(MINE, 1e9)
    assert long.expires_s == pytest.approx(time.time() + 43200, abs=60)
    account.faults.append(Fault(operation="AssumeRole", code="ValidationError"))
    assert lender.lend(MINE, 1e9).expires_s == pytest.approx(time.time() + 3600, abs=60)
    assert lender.longest_s == 43200.0
    session = lender.lend(OTHER, 3600.0).secret
    for name, key in (
        ("AWS_ACCESS_KEY_ID", "access_key_id"),
        ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        ("AWS_SESSION_TOKEN", "token"),
    ):
        monkeypatch.setenv(name, session[key])
    assert lending.create(Path(), {}).longest_s == 3600.0


def test_a_new_role_cannot_be_taken_on_at_once(
    account: Account, lender: lending.AwsLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clouds.aws.account import Fault

    monkeypatch.setattr(lending, "NEW_EVERY_S", 0.01)
    account.faults.append(Fault(operation="AssumeRole", code="AccessDenied", status=403, times=3))
    assert lender.lend(MINE, 3600.0).secret["token"]
    account.faults += [
        Fault(operation="AssumeRole", code="AccessDenied", status=403, times=20),
        Fault(operation="AssumeRole", code="ValidationError"),
    ]
    assert lender.lend(MINE, 43200.0).expires_s == pytest.approx(time.time() + 3600, abs=60)


def test_a_role_that_is_not_new_is_not_waited_for(
    account: Account, lender: lending.AwsLending, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clouds.aws.account import Fault

    lender.identity(MINE)
    monkeypatch.setattr(lending, "NEW_FOR_S", 0.0)
    before = account.called["AssumeRole"]
    account.faults.append(Fault(operation="AssumeRole", code="AccessDenied", status=403))
    with pytest.raises(AccessError):
        lender.lend(MINE, 3600.0)
    assert account.called["AssumeRole"] == before + 1


def test_where_the_company_makes_the_roles(
    account: Account, aws: AwsEmulator, storage: bucket.AwsStorage
) -> None:
    before = account.called["CreateRole"]
    theirs = lending.create(Path(), {"instance_profile": "theirs"})
    assert theirs.identity(MINE) is None
    users(storage, OTHER).put("secrets.json", b"2")
    lent(theirs, aws, MINE).put("a", b"1")
    with pytest.raises(StoreAccessError):
        lent(theirs, aws, MINE, OTHER.address.uri).get("secrets.json")
    account.denied.add("GetFederationToken")
    try:
        with pytest.raises(AccessError) as caught:
            theirs.lend(MINE, 3600.0)
    finally:
        account.denied.clear()
    assert "instance_profile" in (caught.value.hint or "")
    theirs.revoke(MINE)
    assert account.called["CreateRole"] == before


def test_a_profile_that_ec2_has_not_heard_of_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "KNOWN_EVERY_S", 0.0)
    new = roles.Newcomers()
    tries = []

    def run(text: str) -> str:
        tries.append(text)
        if len(tries) < 3:
            raise UsageError(text, code="InvalidParameterValue")
        return "i-1"

    unknown = "Value (aryl-1) for parameter iamInstanceProfile.name is invalid"
    assert new.once_known("aryl-1", lambda: run(unknown)) == "i-1"
    tries.clear()
    with pytest.raises(UsageError):
        new.once_known("aryl-1", lambda: run("another parameter"))
    assert len(tries) == 1
    tries.clear()
    monkeypatch.setattr(roles, "KNOWN_AFTER_S", 0.0)  # it is not new any more: it has gone
    with pytest.raises(UsageError):
        new.once_known("aryl-1", lambda: run(unknown))
    assert len(tries) == 1


def test_names_fit_iam() -> None:
    longest = "a" * 40 + "-0123abcd"
    name = name_of_job("0123456789abcdef", longest)
    assert len(name) <= 64
    assert name != name_of_job("0123456789abcdee", longest)


def test_a_link_reads_one_object_for_a_while(storage: bucket.AwsStorage, aws: AwsEmulator) -> None:
    users(storage, MINE).put("a b+c", b"1")
    users(storage, MINE).put("d", b"2")
    link = storage.sign(MINE.address, "a b+c", 1e9)
    assert "X-Amz-Expires=3600" in link
    assert urlopen(link, timeout=60).read() == b"1"
    for other in (link.replace("a%20b%2Bc", "d"), link.replace("Expires=3600", "Expires=7200")):
        assert other != link
        with pytest.raises(HTTPError, match="403"):
            urlopen(other, timeout=60)
    from urllib.request import Request

    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(link, data=b"x", method="PUT"), timeout=60)
    short = storage.sign(MINE.address, "d", 1)
    time.sleep(2.1)
    with pytest.raises(HTTPError, match="403"):
        urlopen(short, timeout=60)


def test_the_usual_bucket(account: Account, storage: bucket.AwsStorage) -> None:
    uri = storage.usual("us-west-2")
    assert uri == f"s3://arylcloud-{account.id}-us-west-2"
    address = address_of(uri)
    assert storage.missing(address)
    for _ in range(2):
        storage.make(address, "us-west-2", "j1")
    assert not storage.missing(address)
    calls = Calls(None)
    asked = {"Bucket": address.bucket}
    blocked = calls.read("s3", "us-west-2", "get_public_access_block", **asked)
    assert set(blocked["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = calls.read("s3", "us-west-2", "get_bucket_lifecycle_configuration", **asked)["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    assert "Expiration" not in rule
    assert bucket.create(Path(), {}).region(address.bucket) == "us-west-2"
    options = bucket.create(Path(), {}).for_machines(address, None)
    assert options["region"] == "us-west-2"
    assert not {"access_key_id", "secret_access_key", "token"} & options.keys()


def test_where_a_bucket_is(
    account: Account, storage: bucket.AwsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_of("s3://arylcloud-far/root")
    storage.make(address, "eu-west-1", "j1")
    before = sum(account.called.values())
    assert bucket.create(Path(), {}).place(address) is None, "whoever speaks S3 there"
    assert not bucket.create(Path(), {}).apart, "the machines are there, too"
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", "https://minio.example.com")
        assert bucket.create(Path(), {}).apart
    assert sum(account.called.values()) == before
    own = "https://{}.{}.amazonaws.com"
    monkeypatch.setattr(Calls, "endpoint", lambda self, service, region: own.format(service, region))
    for name, place in (("arylcloud-test", "aws/us-east-1"), ("arylcloud-far", "aws/eu-west-1")):
        fresh = bucket.create(Path(), {})
        assert fresh.place(address_of(f"s3://{name}/x")) == place
        assert f"aws/{fresh.region(name)}" == place
    nowhere = bucket.create(Path(), {})
    assert not nowhere.apart
    assert nowhere.place(address_of("s3://arylcloud-nobodys")) is None
    assert nowhere.region("arylcloud-nobodys") == "us-east-1", "through which it is asked"


def test_somebody_elses_bucket(
    aws: AwsEmulator, storage: bucket.AwsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environ(aws.account()).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AccessError, match="somebody else"):
        bucket.create(Path(), {}).make(address_of(ROOT), "us-east-1", "j2")


def test_a_stranger_who_had_the_usual_name_first(aws: AwsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, stranger = aws.account(), aws.account()
    for name, value in aws.environ(stranger).items():
        monkeypatch.setenv(name, value)
    uri = f"s3://arylcloud-{mine.id}-us-west-2"
    theirs = bucket.create(Path(), {})
    theirs.make(address_of(uri), "us-west-2", "j2")
    for name, value in aws.environ(mine).items():
        monkeypatch.setenv(name, value)
    ours = bucket.create(Path(), {})
    assert ours.usual("us-west-2") == uri
    with pytest.raises(AccessError, match="not yours"):  # though it lets us in
        ours.missing(address_of(uri))


def test_without_credentials_it_is_one_line(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    storage = bucket.create(Path(), {})
    with pytest.raises((AccessError, StoreError)) as caught:
        open_store(ROOT, **storage.options(address_of(ROOT))).get("a")
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 4, caught.value


def test_plain_http_leaves_this_host_only_on_purpose() -> None:
    with pytest.raises(UsageError, match="plain http"):
        open_store("s3://b/p", endpoint="http://192.0.2.1:9000", region="us-east-1")
