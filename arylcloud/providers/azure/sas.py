"""Shared access signatures of a user delegation key: what Azure lets a person sign without an account's key.

A signature says itself what it is good for (``sr``, ``sp``, ``se``); the format is version 2026-10-06's.
For one blob, or for a folder and all below it (``sr=d``, ``sdd`` its depth): never for a whole container.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

VERSION: Final = "2026-10-06"
READ: Final = "r"
WORK: Final = "racwl"
"""Read, add, create, write, list, in the order that Azure asks for. What goes, goes by the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A user delegation key. Texts as Azure gave them: they are signed."""

    object_id: str
    tenant: str
    start: str
    expiry: str
    service: str
    version: str
    value: str

    @property
    def expires_s(self) -> float:
        return datetime.fromisoformat(self.expiry).timestamp()


def request(now_s: float, until_s: float) -> bytes:
    """What ``Get User Delegation Key`` is asked with."""
    return f"<KeyInfo><Start>{moment(now_s)}</Start><Expiry>{moment(until_s)}</Expiry></KeyInfo>".encode()


def key_of(answer: bytes) -> Key:
    """Raises ValueError for what is none."""
    try:
        tree = ElementTree.fromstring(answer.decode("utf-8-sig"))  # noqa: S314 - of Azure itself, over TLS
    except ElementTree.ParseError as error:
        raise ValueError(f"no user delegation key: {error}") from error
    told = {child.tag: child.text or "" for child in tree}
    try:
        return Key(
            object_id=told["SignedOid"],
            tenant=told["SignedTid"],
            start=told["SignedStart"],
            expiry=told["SignedExpiry"],
            service=told["SignedService"],
            version=told["SignedVersion"],
            value=told["Value"],
        )
    except KeyError as error:
        raise ValueError(f"no user delegation key: {error} is missing") from error


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_blob(key: Key, account: str, container: str, blob: str, *, start_s: float, end_s: float) -> str:
    """Read this one blob."""
    return _signed(key, f"/blob/{account}/{container}/{blob}", READ, "b", None, start_s, end_s)


def of_folder(key: Key, account: str, container: str, folder: str, *, start_s: float, end_s: float) -> str:
    """Work on all below ``folder``, and list it. ``folder``: without slashes at its ends."""
    depth = len(folder.split("/"))
    return _signed(key, f"/blob/{account}/{container}/{folder}", WORK, "d", depth, start_s, end_s)


def _signed(
    key: Key, resource: str, permissions: str, kind: str, depth: int | None, start_s: float, end_s: float
) -> str:
    start, end = moment(start_s), moment(end_s)
    of_key = [key.object_id, key.tenant, key.start, key.expiry, key.service, key.version]
    nobody = 5 * [""]  # authorized and unauthorized object, correlation, tenant and object of a delegate
    anywhere = ["", ""]  # address, protocol: an account of ours takes https alone
    rest = [VERSION, kind, *9 * [""]]  # snapshot, encryption scope, headers and query asked, headers answered
    text = "\n".join([permissions, start, end, resource, *of_key, *nobody, *anywhere, *rest])
    digest = hmac.new(base64.b64decode(key.value), text.encode(), hashlib.sha256).digest()
    asked = {
        "sv": VERSION,
        "st": start,
        "se": end,
        "sr": kind,
        "sp": permissions,
        "skoid": key.object_id,
        "sktid": key.tenant,
        "skt": key.start,
        "ske": key.expiry,
        "sks": key.service,
        "skv": key.version,
    }
    if depth is not None:
        asked["sdd"] = str(depth)
    asked["sig"] = base64.b64encode(digest).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())
