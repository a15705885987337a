"""IAM's policies as AWS evaluates them: what our documents use of them, and S3's signatures, version 4."""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote
from xml.etree import ElementTree


def allows(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """An explicit Deny wins; nothing is allowed that no statement allows."""
    effects = {
        statement["Effect"]
        for statement in _many(policy["Statement"])
        if _named(statement["Action"], action, fold=True)
        and _named(statement["Resource"], resource)
        and all(_holds(kind, wanted, context) for kind, wanted in statement.get("Condition", {}).items())
    }
    return "Allow" in effects and "Deny" not in effects


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(patterns: Any, name: str, *, fold: bool = False) -> bool:
    return any(_like(name.lower() if fold else name, p.lower() if fold else p) for p in _many(patterns))


def _like(text: str, pattern: str) -> bool:
    """IAM knows ``*`` and ``?``, no brackets."""
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def _holds(kind: str, wanted: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    """A condition on a key that the request does not have does not hold."""
    if kind not in ("StringLike", "StringEquals"):
        raise AssertionError(f"the emulator does not know the condition {kind}")
    for key, patterns in wanted.items():
        if key not in context:
            return False
        found = context[key]
        if not any(_like(found, p) if kind == "StringLike" else found == p for p in _many(patterns)):
            return False
    return True


def asked_of_s3(
    method: str, path: str, query: Mapping[str, str], body: bytes
) -> list[tuple[str, str, dict[str, str]]]:
    """(action, resource, context) of each right that a request needs. ``path``: decoded, ``/bucket/key``."""
    bucket, _, key = path.lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if key:
        action = {"GET": "GetObject", "HEAD": "GetObject", "DELETE": "DeleteObject"}.get(method, "PutObject")
        if method == "DELETE" and "uploadId" in query:
            action = "AbortMultipartUpload"
        return [(f"s3:{action}", f"{arn}/{key}", {})]
    if method == "POST" and "delete" in query:
        keys = [one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.endswith("Key")]
        return [("s3:DeleteObject", f"{arn}/{one}", {}) for one in keys]
    if method == "GET" and ("list-type" in query or not query):
        context = {"s3:prefix": query["prefix"]} if "prefix" in query else {}
        return [("s3:ListBucket", arn, context)]
    return [(f"s3:{method}Bucket{'-'.join(sorted(query))}", arn, {})]


def signature(
    secret: str,
    *,
    method: str,
    raw_path: str,
    raw_query: str,
    headers: Mapping[str, str],
    signed: Iterable[str],
    payload: str,
    at: str,
    scope: str,
) -> str:
    """What a request has to be signed with. ``scope``: ``20261130/us-east-1/s3/aws4_request``."""
    pairs = [(k, v) for k, v in parse_qsl(raw_query, keep_blank_values=True) if k != "X-Amz-Signature"]
    query = "&".join(sorted(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in pairs))
    names = sorted(signed)
    lines = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names)
    canonical = "\n".join([method, raw_path, query, lines, ";".join(names), payload])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}".encode(), hashlib.sha256).hexdigest()
