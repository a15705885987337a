"""One IAM role for each job: what its instances run as, and what is lent to machines elsewhere.

It reaches one prefix of one bucket, and nothing else of the account. IAM is told in one region and known in
all of them some seconds later: EC2 may refuse an instance profile that has just been made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import Resource
from arylcloud.core.stores import JobPrefix
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.tags import as_list
from arylcloud.providers.bounds import Paging
from arylcloud.providers.codes import unless
from arylcloud.providers.marks import JOB, JOURNAL, name_of_job

T = TypeVar("T")
HOME: Final = "us-east-1"
PATH: Final = "/arylcloud/"
"""Of every role and profile of ours: what a policy that lets us make them is limited to."""
ROLE: Final = "role"
POLICY: Final = "prefix"
LONGEST_S: Final = 43_200
"""That a session of the role may last, where it is not one role that takes on another (then 3,600)."""
KNOWN_AFTER_S: Final = 60.0
KNOWN_EVERY_S: Final = 2.0
_MISSING: Final = ("NoSuchEntity",)
_THERE: Final = ("EntityAlreadyExists",)


def partition(region: str) -> str:
    """
    >>> partition("us-east-1"), partition("cn-north-1"), partition("us-gov-west-1")
    ('aws', 'aws-cn', 'aws-us-gov')
    """
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"


def policy(bucket: str, prefix: str, *, where: str = "aws") -> dict[str, Any]:
    """Read, write and list under ``prefix``, nothing beside it; machines delete nothing. ``where``: the ARN's
    partition."""
    arn = f"arn:{where}:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Objects",
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject"],
                "Resource": f"{arn}/{prefix}/*",
            },
            {
                "Sid": "List",
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": arn,
                "Condition": {"StringLike": {"s3:prefix": f"{prefix}/*"}},
            },
        ],
    }


def trust(account: str, *, where: str = "aws") -> dict[str, Any]:
    """Instances may run as it, and whoever of this account is allowed ``sts:AssumeRole`` may lend it."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com" + (".cn" if where == "aws-cn" else "")},
                "Action": "sts:AssumeRole",
            },
            {
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:{where}:iam::{account}:root"},
                "Action": "sts:AssumeRole",
            },
        ],
    }


def make(calls: Calls, region: str, job: JobPrefix, settings: Mapping[str, str]) -> str:
    """The role and its instance profile, of one name, which is returned. Idempotent; cut off anywhere, the
    next call completes it."""
    name = name_of_job(job.journal_id, job.job_id)
    account = calls.read("sts", region, "get_caller_identity")["Account"]
    where = partition(region)
    tags = as_list({JOURNAL: job.journal_id, JOB: job.job_id}, settings)
    unless(
        _THERE,
        lambda: calls.act(
            "iam",
            region,
            "create_role",
            RoleName=name,
            Path=PATH,
            AssumeRolePolicyDocument=json.dumps(trust(account, where=where)),
            Description=f"arylcloud: machines of {job.job_id}",
            MaxSessionDuration=LONGEST_S,
            Tags=tags,
        ),
    )
    document = policy(job.address.bucket, job.address.prefix, where=where)
    calls.act(
        "iam",
        region,
        "put_role_policy",
        RoleName=name,
        PolicyName=POLICY,
        PolicyDocument=json.dumps(document),
    )
    unless(
        _THERE,
        lambda: calls.act(
            "iam", region, "create_instance_profile", InstanceProfileName=name, Path=PATH, Tags=tags
        ),
    )
    profile = calls.read("iam", region, "get_instance_profile", InstanceProfileName=name)["InstanceProfile"]
    if not profile["Roles"]:
        calls.act("iam", region, "add_role_to_instance_profile", InstanceProfileName=name, RoleName=name)
    return name


def remove(calls: Calls, region: str, name: str) -> None:
    """Idempotent; the missing is success."""
    of_profile = {"InstanceProfileName": name}
    unless(
        _MISSING,
        lambda: calls.act("iam", region, "remove_role_from_instance_profile", RoleName=name, **of_profile),
    )
    unless(_MISSING, lambda: calls.act("iam", region, "delete_instance_profile", **of_profile))
    unless(_MISSING, lambda: calls.act("iam", region, "delete_role_policy", RoleName=name, PolicyName=POLICY))
    unless(_MISSING, lambda: calls.act("iam", region, "delete_role", RoleName=name))


def resources(calls: Calls, *, journal_id: str | None) -> tuple[Resource, ...]:
    """Roles of this journal (None: of any), for ``Infrastructure``; their region is where IAM is asked."""
    found = []
    marker: dict[str, str] = {}
    paging = Paging("aws: list_roles")
    while True:
        page = calls.read("iam", HOME, "list_roles", PathPrefix=PATH, **marker)
        for role in page["Roles"]:
            resource = _resource(calls, role["RoleName"])
            if resource is not None and journal_id in (None, resource.journal_id):
                found.append(resource)
        if not page.get("IsTruncated"):
            return tuple(found)
        marker = {"Marker": paging.turn(page["Marker"])}


def _resource(calls: Calls, name: str) -> Resource | None:
    try:
        listed = calls.read("iam", HOME, "list_role_tags", RoleName=name)["Tags"]
    except ArylError as error:
        if error.code in _MISSING:
            return None
        raise
    tags = {tag["Key"]: tag["Value"] for tag in listed}
    if JOURNAL not in tags:
        return None
    return Resource(
        cloud="aws",
        region=HOME,
        kind=ROLE,
        resource_id=name,
        journal_id=tags[JOURNAL],
        job_id=tags.get(JOB),
    )


class Newcomers:
    """Profiles of jobs, which EC2 has to hear of."""

    def __init__(self) -> None:
        self._first_s: dict[str, float] = {}
        """Profile → when it was first named here, right after it was made (monotonic)."""

    def once_known(self, profile: str, call: Callable[[], T]) -> T:
        """RunInstances with a profile that has just been made: EC2 refuses it, and creates nothing, until it
        has heard of it. The one refusal that is asked again, with the same token; later it is an error."""
        known_s = self._first_s.setdefault(profile, time.monotonic()) + KNOWN_AFTER_S
        while True:
            try:
                return call()
            except ArylError as error:
                unknown = error.code == "InvalidParameterValue" and "iamInstanceProfile" in error.message
                if not unknown or time.monotonic() >= known_s:
                    raise
            time.sleep(KNOWN_EVERY_S)
