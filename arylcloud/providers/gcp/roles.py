"""One service account for each job: what its machines run as, and, where nobody has a key, who signs links.

It has rights on one managed folder of one bucket (the job's prefix) and on nothing else of the project; they
go with the folder. Service accounts carry no labels: whose it is stands in its description.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import Resource
from arylcloud.core.stores import JobPrefix
from arylcloud.providers.bounds import Paging
from arylcloud.providers.codes import unless
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.web import endpoint

IAM: Final = "https://iam.googleapis.com"
ACCOUNT: Final = "service-account"
OBJECTS: Final = "roles/storage.objectUser"
"""Read, write, list and delete, multipart uploads too; on a managed folder."""
SIGNS: Final = "roles/iam.serviceAccountTokenCreator"
GLOBAL: Final = "global"
_PREFIX: Final = "aryl-"
_TOLD: Final = re.compile(r"arylcloud-journal=(\S+) arylcloud-job=(\S+)")
_MISSING: Final = ("notFound", "HTTP_404")
_THERE: Final = ("alreadyExists", "ALREADY_EXISTS", "conflict", "HTTP_409")
SEEN_AFTER_S: Final = 60.0
SEEN_EVERY_S: Final = 2.0
"""A new account cannot be given rights for some seconds: only then is anything waited for."""


def name_of(journal_id: str, job_id: str) -> str:
    """6 to 30 characters, another one for every journal.

    >>> len(name_of("j", "digits-00000001"))
    25
    """
    return _PREFIX + hashlib.sha256(f"{journal_id}|{job_id}".encode()).hexdigest()[:20]


class Accounts:
    """Service accounts of one project."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._base = endpoint(settings.get("iam_endpoint"), IAM, what="[gcp] iam_endpoint")
        self._first_s: dict[str, float] = {}
        """Account → when it was first made, or found, here (monotonic)."""

    def email(self, journal_id: str, job_id: str) -> str:
        return f"{name_of(journal_id, job_id)}@{self._calls.project}.iam.gserviceaccount.com"

    def make(self, job: JobPrefix, bucket_url: str, user: str | None) -> str:
        """The account with its rights; ``bucket_url``: of the JSON API; ``user``: an IAM member that is to
        sign as it. Idempotent; cut off anywhere, the next call completes it. Returns its e-mail address."""
        email = self.email(job.journal_id, job.job_id)
        body = {
            "accountId": name_of(job.journal_id, job.job_id),
            "serviceAccount": {
                "displayName": f"arylcloud {job.job_id}"[:100],
                "description": f"arylcloud-journal={job.journal_id} arylcloud-job={job.job_id}",
            },
        }
        unless(_THERE, lambda: self._calls.rest("POST", self._accounts(), body))
        seen_s = self._first_s.setdefault(email, time.monotonic()) + SEEN_AFTER_S
        if user is not None:
            policy = {"policy": {"bindings": [{"role": SIGNS, "members": [user]}]}}
            url = f"{self._account(email)}:setIamPolicy"
            _when_seen(lambda: self._calls.rest("POST", url, policy), seen_s)
        folder = f"{job.address.prefix}/"
        unless(_THERE, lambda: self._calls.rest("POST", f"{bucket_url}/managedFolders", {"name": folder}))
        rights = {"bindings": [{"role": OBJECTS, "members": [f"serviceAccount:{email}"]}]}
        where = f"{bucket_url}/managedFolders/{quote(folder, safe='')}"
        _when_seen(lambda: self._calls.rest("PUT", f"{where}/iam", rights), seen_s)
        return email

    def forget_folder(self, job: JobPrefix, bucket_url: str) -> None:
        """The rights, not the objects. The missing is success."""
        folder = quote(f"{job.address.prefix}/", safe="")
        url = f"{bucket_url}/managedFolders/{folder}?allowNonEmpty=true"
        unless(_MISSING, lambda: self._calls.rest("DELETE", url))

    def remove(self, name: str) -> None:
        """``name``: of the account, or its address. Idempotent; the missing is success."""
        email = name if "@" in name else f"{name}@{self._calls.project}.iam.gserviceaccount.com"
        self._first_s.pop(email, None)
        unless(_MISSING, lambda: self._calls.rest("DELETE", self._account(email)))

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        """For ``Infrastructure``."""
        found: list[Resource] = []
        token, paging = "", Paging("gcp: service accounts")
        while True:
            page = self._calls.rest("GET", f"{self._accounts()}?pageSize=100{token}")
            for one in page.get("accounts", []):
                told = _TOLD.search(one.get("description", ""))
                if told is None or not one["email"].startswith(_PREFIX):
                    continue
                if journal_id in (None, told[1]):
                    found.append(
                        Resource(
                            cloud="gcp",
                            region=GLOBAL,
                            kind=ACCOUNT,
                            resource_id=one["email"],
                            journal_id=told[1],
                            job_id=told[2],
                        )
                    )
            if not page.get("nextPageToken"):
                return tuple(found)
            token = f"&pageToken={quote(paging.turn(page['nextPageToken']))}"

    def _accounts(self) -> str:
        return f"{self._base}/v1/projects/{self._calls.project}/serviceAccounts"

    def _account(self, email: str) -> str:
        return f"{self._base}/v1/projects/{self._calls.project}/serviceAccounts/{quote(email)}"


def _when_seen(call: Callable[[], Any], seen_s: float) -> None:
    while True:
        try:
            call()
            return
        except ArylError as error:
            unseen = error.code in _MISSING or "does not exist" in error.message
            if not unseen or time.monotonic() >= seen_s:
                raise
        time.sleep(SEEN_EVERY_S)
