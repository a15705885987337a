"""``Lending`` on Google Cloud: the job's own service account; downscoped tokens for machines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError
from arylcloud.core.stores import Grant, JobPrefix
from arylcloud.providers.gcp.adapter import KNOWN
from arylcloud.providers.gcp.bucket import GcpStorage
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.errors import not_sent
from arylcloud.providers.gcp.roles import Accounts
from arylcloud.providers.settings import known_only
from arylcloud.providers.web import endpoint

STS: Final = "https://sts.googleapis.com"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a kind of token
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
OBJECTS: Final = "inRole:roles/storage.objectAdmin"
WHOLE_S: Final = 3000.0
"""A loan lasts as long as the token that it is made of: one of an hour that is young."""


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpLending:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("gcp", settings, KNOWN)
    calls = Calls(settings)
    return GcpLending(calls, GcpStorage(calls, settings), settings)


def boundary(bucket: str, prefix: str) -> dict[str, Any]:
    """A Credential Access Boundary: objects under ``prefix``, and lists of it."""
    inside = f"projects/_/buckets/{bucket}/objects/{prefix}/"
    listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    return {
        "accessBoundary": {
            "accessBoundaryRules": [
                {
                    "availablePermissions": [OBJECTS],
                    "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
                    "availabilityCondition": {
                        "expression": (
                            f"resource.name.startsWith('{inside}') || {listed}.startsWith('{prefix}/')"
                        )
                    },
                }
            ]
        }
    }


class GcpLending:
    """Safe to use from several threads."""

    longest_s = 3600.0

    def __init__(self, calls: Calls, storage: GcpStorage, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._storage = storage
        self._settings = settings
        self._accounts = Accounts(calls, settings)
        self._sts = endpoint(settings.get("sts_endpoint"), STS, what="[gcp] sts_endpoint")
        self._lock = threading.Lock()
        self._made: dict[str, str] = {}

    def identity(self, job: JobPrefix) -> str | None:
        if "service_account" in self._settings:  # the company's own, and its own affair what it reaches
            return None
        with self._lock:
            if job.job_id not in self._made:
                user = self._member() if self._storage.signs_as_job else None
                self._made[job.job_id] = self._accounts.make(job, self._storage.url(job.address.bucket), user)
            return self._made[job.job_id]

    def lend(self, job: JobPrefix, for_s: float) -> Grant:
        """At most an hour, which is what Google's access tokens last."""
        from google.auth import exceptions
        from google.auth.transport.requests import Request
        from google.oauth2 import sts

        token, expires_s = self._storage.tokens.fresh(min(for_s, WHOLE_S))
        make: Any = sts.Client
        request: Any = Request
        try:
            answer = make(f"{self._sts}/v1/token").exchange_token(
                request(),
                grant_type=_EXCHANGE,
                subject_token=token,
                subject_token_type=_ACCESS_TOKEN,
                requested_token_type=_ACCESS_TOKEN,
                additional_options=boundary(job.address.bucket, job.address.prefix),
            )
        except exceptions.GoogleAuthError as error:
            raise not_sent(error, "gcp: a token for machines of other clouds") from error
        if (told := answer.get("expires_in")) is not None:
            expires_s = time.time() + float(told)
        return Grant(secret={"token": str(answer["access_token"])}, expires_s=expires_s)

    def revoke(self, job: JobPrefix) -> None:
        if "service_account" in self._settings:
            return
        with self._lock:
            self._made.pop(job.job_id, None)
        self._accounts.forget_folder(job, self._storage.url(job.address.bucket))
        self._accounts.remove(self._accounts.email(job.journal_id, job.job_id))

    def _member(self) -> str:
        """The user, as IAM calls him."""
        email = self._calls.identity
        if email is not None and email != "default":
            return f"serviceAccount:{email}"
        token, _ = self._storage.tokens.fresh()
        base = endpoint(self._settings.get("sts_endpoint"), "https://oauth2.googleapis.com", what="sts")
        told = self._calls.rest("GET", f"{base}/tokeninfo?access_token={token}")
        found = told.get("email")
        if not found:
            raise AccessError(
                "gcp: your credentials do not say who you are, and so nobody can be allowed to sign",
                hint="gcloud auth application-default login, or [gcp] service_account",
            )
        kind = "serviceAccount" if found.endswith(".gserviceaccount.com") else "user"
        return f"{kind}:{found}"
