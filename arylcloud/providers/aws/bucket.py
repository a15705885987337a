"""``Storage`` on S3: a bucket opened with the user's own credentials, made once, and links into it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError, OtherCloudError
from arylcloud.core.stores import SIGNED_S, Address
from arylcloud.providers.aws.adapter import KNOWN
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.tags import companys
from arylcloud.providers.settings import known_only

HOME: Final = "us-east-1"
_OWN: Final = re.compile(
    r"https://s3(-fips)?([.-][a-z0-9-]+)?(\.dualstack)?\.(amazonaws\.com(\.cn)?|api\.aws)"
)
_USUAL: Final = re.compile(r"arylcloud-(\d{12})-([a-z0-9-]+)")
"""An account's usual buckets: whoever is first may have the name, so S3 is told whose it has to be."""
_FRESH: Final = timedelta(minutes=6)
"""obstore asks again five minutes before the end that it is told: so, each minute. botocore keeps what it
has, and renews it in time."""
_FIRST: Final = {"": HOME, "EU": "eu-west-1"}
"""What S3 calls the regions that it had first."""
RULES: Final = [
    {
        "ID": "arylcloud-broken-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
    }
]


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsStorage:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("aws", settings, KNOWN)
    return AwsStorage(Calls(settings.get("profile")), settings)


def region_of(calls: Calls, bucket: str) -> str | None:
    """Where the bucket is. None: there is none, or nobody may see it."""
    try:
        region = calls.read("s3", HOME, "head_bucket", Bucket=bucket).get("BucketRegion")
        if region:
            return str(region)
    except ArylError as error:
        if error.code in ("404", "NoSuchBucket"):
            return None
        if error.code not in ("301", "400", "403"):
            raise
    # the answer's header would say it; so does this, where allowed
    try:
        said = calls.read("s3", HOME, "get_bucket_location", Bucket=bucket).get("LocationConstraint")
    except AccessError:
        return None
    return _FIRST.get(str(said or ""), str(said))


class AwsStorage:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._lock = threading.Lock()
        self._regions: dict[str, str | None] = {}

    def options(self, address: Address) -> Mapping[str, Any]:
        return {**self.for_machines(address, None), "credential_provider": Own(self._calls)}

    def for_machines(self, address: Address, identity: str | None) -> Mapping[str, str]:
        del identity  # an instance has one role, and finds it by itself
        region = self.region(address.bucket)
        endpoint = self._calls.endpoint("s3", region)
        return {"region": region} if _OWN.fullmatch(endpoint) else {"region": region, "endpoint": endpoint}

    def region(self, bucket: str) -> str:
        """Through which it is asked; what nobody may see is taken to be at home."""
        return self._region(bucket) or HOME

    def place(self, address: Address) -> str | None:
        if not _OWN.fullmatch(self._calls.endpoint("s3", HOME)):
            return None  # whoever speaks S3 there: what it names as a region is none of AWS's
        region = self._region(address.bucket)
        return None if region is None else f"aws/{region}"

    @property
    def apart(self) -> bool:
        """``AWS_ENDPOINT_URL_S3``: a MinIO, an R2. Where all of AWS is at one endpoint, S3 is as much AWS's
        as the machines are."""
        found = self._calls.endpoint("s3", HOME)
        return _OWN.fullmatch(found) is None and found != self._calls.endpoint("ec2", HOME)

    def _region(self, bucket: str) -> str | None:
        with self._lock:
            if bucket not in self._regions:
                self._regions[bucket] = region_of(self._calls, bucket)
            return self._regions[bucket]

    def usual(self, region: str) -> str:
        account = self._calls.read("sts", region, "get_caller_identity")["Account"]
        return f"s3://arylcloud-{account}-{region}"

    def missing(self, address: Address) -> bool:
        usual = _USUAL.fullmatch(address.bucket)
        region, owner = (usual[2], {"ExpectedBucketOwner": usual[1]}) if usual else (HOME, {})
        try:
            self._calls.read("s3", region, "head_bucket", Bucket=address.bucket, **owner)
        except ArylError as error:
            if error.code in ("404", "NoSuchBucket"):
                return True
            # the usual one is where its name says, or somebody else has made it
            if error.code in ("403", "AccessDenied", *(("301", "400") if usual else ())):
                raise AccessError(
                    f"the bucket {address.bucket} is not yours, or you may not use it",
                    code=error.code,
                    hint="name another with --store, or allow s3:ListBucket on it",
                ) from error
            if error.code not in ("301", "400"):  # it is there, in another region
                raise
        return False

    def make(self, address: Address, region: str, journal_id: str) -> None:
        where = {} if region == HOME else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        bucket = address.bucket
        try:
            self._calls.act("s3", region, "create_bucket", Bucket=bucket, **where)
        except ArylError as error:
            if error.code == "BucketAlreadyExists":
                raise AccessError(
                    f"somebody else has a bucket called {bucket}", code=error.code, hint="name one: --store"
                ) from error
            if error.code != "BucketAlreadyOwnedByYou":
                raise
        with self._lock:
            self._regions[bucket] = region
        blocked = dict.fromkeys(
            ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
        )
        self._calls.act(
            "s3", region, "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=blocked
        )
        self._calls.act(
            "s3",
            region,
            "put_bucket_lifecycle_configuration",
            Bucket=bucket,
            LifecycleConfiguration={"Rules": RULES},
        )
        tags = {**companys(self._settings), "arylcloud-journal": journal_id}
        tag_set = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._calls.act("s3", region, "put_bucket_tagging", Bucket=bucket, Tagging={"TagSet": tag_set})

    signs_as_job = False

    def sign(self, address: Address, key: str, for_s: float, identity: str | None = None) -> str:
        del identity  # as the user
        return self._calls.signed_get(
            self.region(address.bucket), address.bucket, address.key(key), int(min(for_s, SIGNED_S))
        )


class Own:
    """The user's credentials, for obstore."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __call__(self) -> dict[str, Any]:
        found = self._calls.credentials()
        if found is None:
            raise OtherCloudError("there are no credentials for AWS", hint="aws configure, or aws sso login")
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _FRESH,
        }
