"""``Lending`` on AWS: the job's own role for EC2, sessions of it for machines of other clouds."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError
from arylcloud.core.stores import Grant, JobPrefix
from arylcloud.providers.aws import roles
from arylcloud.providers.aws.adapter import KNOWN
from arylcloud.providers.aws.bucket import AwsStorage
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.marks import name_of_job
from arylcloud.providers.settings import known_only

CHAINED_S: Final = 3600
"""The longest session of a role that is taken on by another role's session."""
LEAST_S: Final = 900
"""The shortest that STS gives."""
NEW_FOR_S: Final = 30.0
NEW_EVERY_S: Final = 2.0
"""A role that has just been made cannot be taken on for some seconds: only then is anything waited for."""


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsLending:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("aws", settings, KNOWN)
    calls = Calls(settings.get("profile"))
    return AwsLending(calls, AwsStorage(calls, settings), settings)


class AwsLending:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, storage: AwsStorage, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._storage = storage
        self._settings = settings
        self._lock = threading.Lock()
        self._made: dict[str, float] = {}
        """Role → when this process made it, or found it (monotonic)."""

    @property
    def longest_s(self) -> float:
        """An hour where we are a role's session ourselves. Asks STS who we are."""
        arn = str(self._calls.read("sts", roles.HOME, "get_caller_identity")["Arn"])
        return float(CHAINED_S if ":assumed-role/" in arn else roles.LONGEST_S)

    def identity(self, job: JobPrefix) -> str | None:
        if "instance_profile" in self._settings:  # the company's own, and its own affair what it reaches
            return None
        return self._role(job)

    def lend(self, job: JobPrefix, for_s: float) -> Grant:
        """A session of the job's role, once more limited by a session policy; where the company does not let
        us make roles (``[aws] instance_profile``), of the user himself, limited by that policy alone."""
        region = self._storage.region(job.address.bucket)
        where = roles.partition(region)
        limited = json.dumps(roles.policy(job.address.bucket, job.address.prefix, where=where))
        session = job.job_id[-32:]
        if "instance_profile" in self._settings:
            asked: dict[str, Any] = {"Name": session, "Policy": limited, "DurationSeconds": _whole(for_s)}
            try:
                return _grant(self._calls.act("sts", region, "get_federation_token", **asked))
            except AccessError as error:
                raise AccessError(
                    f"no credentials can be lent to machines of other clouds: {error.message}",
                    code=error.code,
                    hint="with [aws] instance_profile set they come from GetFederationToken, which an IAM "
                    "user may call and a role may not; or leave instance_profile out",
                ) from error
        account = self._calls.read("sts", region, "get_caller_identity")["Account"]
        role = self._role(job)
        arn = f"arn:{where}:iam::{account}:role{roles.PATH}{role}"
        asked = {"RoleArn": arn, "RoleSessionName": session, "Policy": limited}
        return _grant(self._assume(region, asked, _whole(for_s), role))

    def revoke(self, job: JobPrefix) -> None:
        if "instance_profile" in self._settings:
            return
        name = name_of_job(job.journal_id, job.job_id)
        with self._lock:
            self._made.pop(name, None)
        roles.remove(self._calls, self._storage.region(job.address.bucket), name)

    def _role(self, job: JobPrefix) -> str:
        name = name_of_job(job.journal_id, job.job_id)
        with self._lock:
            if name not in self._made:
                region = self._storage.region(job.address.bucket)
                self._made[roles.make(self._calls, region, job, self._settings)] = time.monotonic()
        return name

    def _assume(self, region: str, asked: dict[str, Any], for_s: int, role: str) -> Any:
        with self._lock:
            known_s = self._made.get(role, -math.inf) + NEW_FOR_S
        while True:
            try:
                return self._calls.act("sts", region, "assume_role", DurationSeconds=for_s, **asked)
            except ArylError as error:
                if for_s > CHAINED_S and error.code == "ValidationError":
                    for_s = CHAINED_S  # we are a role's session ourselves
                    continue
                if error.code != "AccessDenied" or time.monotonic() >= known_s:
                    raise
            time.sleep(NEW_EVERY_S)


def _whole(for_s: float) -> int:
    return max(LEAST_S, min(int(for_s), roles.LONGEST_S))


def _grant(answer: Any) -> Grant:
    found = answer["Credentials"]
    return Grant(
        secret={
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
        },
        expires_s=found["Expiration"].timestamp(),
    )
