"""The policy in docs/clouds/aws.md allows every call that we make, and none that we do not."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import botocore.session
from botocore import xform_name

ROOT = Path(__file__).parents[3]
SERVICES = {
    "ec2": "ec2",
    "ssm": "ssm",
    "iam": "iam",
    "s3": "s3",
    "sts": "sts",
    "pricing": "pricing",
    "service-quotas": "servicequotas",
}
OTHER_NAMES = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
}
IMPLIED = {
    "ec2:CreateTags": "everything is made with its tags",
    "iam:TagRole": "everything is made with its tags",
    "iam:TagInstanceProfile": "everything is made with its tags",
    "iam:PassRole": "a machine is started with its job's role",
    "s3:GetObject": "the mailbox, through obstore",
    "s3:PutObject": "the mailbox, through obstore",
    "s3:DeleteObject": "the mailbox, through obstore",
    "s3:AbortMultipartUpload": "the mailbox, through obstore",
    "s3:ListBucket": "the mailbox, through obstore",
}


@cache
def operations() -> dict[str, set[str]]:
    """Every operation of the services, as botocore's clients call it → the actions it needs."""
    session = botocore.session.Session()
    found: dict[str, set[str]] = {}
    for service, prefix in SERVICES.items():
        for name in session.get_service_model(service).operation_names:
            action = f"{prefix}:{name}"
            found.setdefault(xform_name(name), set()).add(OTHER_NAMES.get(action, action))
    return found


def called() -> dict[str, str]:
    """Action → the module that needs it: every text in our adapter that is an operation's name."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "arylcloud" / "providers" / "aws").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for action in operations().get(node.value, ()):
                    found[action] = path.name
    return found


def allowed() -> set[str]:
    page = (ROOT / "docs" / "clouds" / "aws.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    found: set[str] = set()
    for statement in json.loads(text)["Statement"]:
        actions = statement["Action"]
        found |= {actions} if isinstance(actions, str) else set(actions)
    return found


def test_every_call_is_allowed() -> None:
    missing = {action: module for action, module in called().items() if action not in allowed()}
    assert missing == {}


def test_nothing_else_is_allowed() -> None:
    assert allowed() - called().keys() - IMPLIED.keys() == set()
    assert not any("*" in action for action in allowed())


def test_the_search_finds_what_it_should() -> None:
    """Else the two above could not fail."""
    found = called()
    assert found["ec2:RunInstances"] in ("adapter.py", "checks.py")
    assert found["ec2:DescribeVolumes"] == "infrastructure.py"
    assert found["servicequotas:GetServiceQuota"] == "quota.py"
    assert len(found) > 30
