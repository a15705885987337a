"""``Storage`` on Cloud Storage: a bucket opened with the user's own credentials, made once, links into it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from arylcloud.core.errors import AccessError, ArylError
from arylcloud.core.stores import SIGNED_S, Address
from arylcloud.providers.gcp.adapter import KNOWN
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.errors import not_sent
from arylcloud.providers.gcp.signing import Signer, link
from arylcloud.providers.settings import known_only
from arylcloud.providers.web import endpoint

STORAGE: Final = "https://storage.googleapis.com"
_MISSING: Final = ("notFound", "HTTP_404")
_FRESH: Final = timedelta(minutes=6)
"""See ``aws/bucket``: obstore asks again each minute, google-auth renews in time."""
ANONYMOUS: Final = "anonymous"


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpStorage:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("gcp", settings, KNOWN)
    return GcpStorage(Calls(settings), settings)


class GcpStorage:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self.base = endpoint(settings.get("storage_endpoint"), STORAGE, what="[gcp] storage_endpoint")
        self.tokens = Tokens(calls)
        self._signer = Signer(calls, settings, self.tokens)

    @property
    def signs_as_job(self) -> bool:
        return not self._signer.has_key

    def options(self, address: Address) -> Mapping[str, Any]:
        return {**self.for_machines(address, None), "credential_provider": self.tokens.for_obstore}

    def for_machines(self, address: Address, identity: str | None) -> Mapping[str, str]:
        del address, identity  # a machine finds its service account's token by itself
        return {} if self.base == STORAGE else {"endpoint": self.base}

    def usual(self, region: str) -> str:
        """Names of buckets are the whole world's: the project's is hashed, so that it stays short."""
        return f"gs://{self._usual_begins()}{region}"

    def _usual_begins(self) -> str:
        return f"arylcloud-{hashlib.sha256(self._calls.project.encode()).hexdigest()[:10]}-"

    def missing(self, address: Address) -> bool:
        """The usual one has to be among the project's: whoever is first may have the name."""
        bucket = address.bucket
        try:
            self._calls.rest("GET", self.url(bucket))
            if not bucket.startswith(self._usual_begins()) or self._of_project(bucket):
                return False
        except ArylError as error:
            if error.code in _MISSING:
                return True
            if isinstance(error, AccessError):
                raise _not_yours(bucket, error.code) from error
            raise
        raise _not_yours(bucket, "OfAnotherProject")

    def _of_project(self, bucket: str) -> bool:
        asked = urlencode({"project": self._calls.project, "prefix": bucket, "fields": "items(name)"})
        found = self._calls.rest("GET", f"{self.base}/storage/v1/b?{asked}")
        return any(one["name"] == bucket for one in found.get("items", []))

    def place(self, address: Address) -> str | None:
        """One of several regions is in none."""
        found = self._calls.rest("GET", self.url(address.bucket, "?fields=location,locationType"))
        region = str(found.get("location", "")).lower()
        return f"gcp/{region}" if region and found.get("locationType", "region") == "region" else None

    apart = False

    def make(self, address: Address, region: str, journal_id: str) -> None:
        body = {
            "name": address.bucket,
            "location": region,
            "labels": {"arylcloud-journal": journal_id},
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
            "lifecycle": {
                "rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2}}]
            },
        }
        try:
            self._calls.rest("POST", f"{self.base}/storage/v1/b?project={quote(self._calls.project)}", body)
        except ArylError as error:
            if error.code not in ("conflict", "HTTP_409"):
                raise
            try:
                self.missing(address)  # ours already, if we may look at it
            except AccessError:
                raise AccessError(
                    f"somebody else has a bucket called {address.bucket}",
                    code=error.code,
                    hint="name one: --store",
                ) from error

    def sign(self, address: Address, key: str, for_s: float, identity: str | None = None) -> str:
        return link(
            self.base,
            address.bucket,
            address.key(key),
            int(min(for_s, SIGNED_S)),
            now_s=time.time(),
            signer=self._signer.as_(identity),
        )

    def url(self, bucket: str, rest: str = "") -> str:
        return f"{self.base}/storage/v1/b/{quote(bucket, safe='')}{rest}"


class Tokens:
    """The user's access token, renewed before it ends."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()

    def fresh(self, least_s: float = 300.0) -> tuple[str, float]:
        """(token, wall seconds of its end), good for ``least_s`` where the cloud gives such. AccessError."""
        from google.auth import exceptions
        from google.auth.transport.requests import Request

        credentials: Any = self._calls.credentials()[0]
        with self._lock:
            expires_s = _wall_s(credentials)
            if _anonymous(credentials):
                return ANONYMOUS, time.time() + 3600.0  # an emulator on this host
            if not credentials.token or (expires_s is not None and expires_s - time.time() < least_s):
                try:
                    make: Any = Request
                    credentials.refresh(make())
                except exceptions.GoogleAuthError as error:
                    raise not_sent(error, "gcp") from error
                expires_s = _wall_s(credentials)
            return str(credentials.token), expires_s if expires_s is not None else time.time() + 3600.0

    def for_obstore(self) -> dict[str, Any]:
        token, expires_s = self.fresh()
        soon = datetime.now(UTC) + _FRESH
        return {"token": token, "expires_at": min(soon, datetime.fromtimestamp(expires_s, UTC))}


def _not_yours(bucket: str, code: str | None) -> AccessError:
    return AccessError(
        f"the bucket {bucket} is not yours, or you may not use it",
        code=code,
        hint="name another with --store, or allow storage.buckets.get on it, and storage.buckets.list",
    )


def _anonymous(credentials: Any) -> bool:
    from google.auth.credentials import AnonymousCredentials

    return isinstance(credentials, AnonymousCredentials)


def _wall_s(credentials: Any) -> float | None:
    """google-auth's moments are UTC without saying so."""
    expiry = getattr(credentials, "expiry", None)
    return None if expiry is None else float(expiry.replace(tzinfo=UTC).timestamp())
