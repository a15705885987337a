"""Signed links, version 4: with the key of a service account, or by IAM as a service account of ours.

Most people log in as themselves, and a person has no key to sign with. IAM signs for whoever may create
tokens for an account: the job's own, which is allowed for its maker when it is made.
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

from arylcloud.core.errors import AccessError, ArylError, UsageError
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.web import endpoint

if TYPE_CHECKING:
    from arylcloud.providers.gcp.bucket import Tokens

IAM_CREDENTIALS: Final = "https://iamcredentials.googleapis.com"
KNOWN_AFTER_S: Final = 120.0
KNOWN_EVERY_S: Final = 3.0
"""A right that has just been given holds everywhere after a minute or two: only then is it waited for."""


class Signing(Protocol):
    @property
    def email(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


def link(base: str, bucket: str, key: str, for_s: int, *, now_s: float, signer: Signing) -> str:
    """GET of one object, nothing else, for ``for_s`` seconds."""
    day, at = time.strftime("%Y%m%d", time.gmtime(now_s)), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    scope = f"{day}/auto/storage/goog4_request"
    path = f"/{bucket}/{quote(key, safe='/-_.~')}"
    host = urlsplit(base).netloc
    asked = {
        "X-Goog-Algorithm": "GOOG4-RSA-SHA256",
        "X-Goog-Credential": f"{signer.email}/{scope}",
        "X-Goog-Date": at,
        "X-Goog-Expires": str(for_s),
        "X-Goog-SignedHeaders": "host",
    }
    query = "&".join(f"{k}={quote(v, safe='-_.~')}" for k, v in sorted(asked.items()))
    canonical = "\n".join(["GET", path, query, f"host:{host}\n", "host", "UNSIGNED-PAYLOAD"])
    text = "\n".join(["GOOG4-RSA-SHA256", at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return f"{base}{path}?{query}&X-Goog-Signature={signer.sign(text.encode()).hex()}"


class Signer:
    """Whoever can sign for this user."""

    def __init__(self, calls: Calls, settings: Mapping[str, str], tokens: Tokens) -> None:
        self._calls = calls
        self._company = settings.get("service_account")
        self._tokens = tokens
        self._base = endpoint(settings.get("iam_endpoint"), IAM_CREDENTIALS, what="[gcp] iam_endpoint")
        self._first_s: dict[str, float] = {}
        """Account of a job → when it was first to sign here, right after it was made (monotonic)."""

    @property
    def has_key(self) -> bool:
        """Whether the user's own credentials are a service account's, with its key."""
        return type(self._calls.credentials()[0]).__module__ == "google.oauth2.service_account"

    def as_(self, identity: str | None) -> Signing:
        if self.has_key:
            return _Key(self._calls.credentials()[0])
        if identity is not None:
            known_s = self._first_s.setdefault(identity, time.monotonic()) + KNOWN_AFTER_S
            return _ByIam(email=identity, calls=self._calls, base=self._base, known_s=known_s)
        if self._company is None:
            raise UsageError("gcp: nobody can sign a link", hint="[gcp] service_account")
        return _ByIam(email=self._company, calls=self._calls, base=self._base, known_s=-math.inf)


class _Key:
    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    @property
    def email(self) -> str:
        return str(self._credentials.signer_email)

    def sign(self, data: bytes) -> bytes:
        return bytes(self._credentials.sign_bytes(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByIam:
    email: str
    calls: Calls
    base: str
    known_s: float
    """When our right to it has to hold (monotonic)."""

    def sign(self, data: bytes) -> bytes:
        url = f"{self.base}/v1/projects/-/serviceAccounts/{quote(self.email)}:signBlob"
        body = {"payload": base64.b64encode(data).decode()}
        while True:
            try:
                return base64.b64decode(self.calls.rest("POST", url, body)["signedBlob"])
            except ArylError as error:
                if not isinstance(error, AccessError) and error.code not in ("notFound", "HTTP_404"):
                    raise
                if time.monotonic() >= self.known_s:
                    raise AccessError(
                        f"no link can be signed as {self.email}: {error.message}",
                        code=error.code,
                        hint="you need roles/iam.serviceAccountTokenCreator on it",
                    ) from error
            time.sleep(KNOWN_EVERY_S)
