"""Blob storage as obstore and we speak to it, and the parts of the Resource Manager that say who may do what.

Blobs: Put Blob (If-None-Match), Put Block and Block List, Get with ranges, List, Delete; bearer tokens, whose
owners have roles under conditions, and signatures of a user delegation key. Resource Manager: what is put is
shown again; accounts take a moment.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from clouds.served import Served, handler_of

from arylcloud.providers.azure.sas import VERSION

TENANT = "11111111-2222-3333-4444-555555555555"
USER = "99999999-8888-7777-6666-555555555555"
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_ATOM = re.compile(
    r"(ActionMatches|SubOperationMatches)\{'([^']*)'\}"
    r"|@(Resource|Request)\[" + re.escape(_BLOBS) + r":(path|prefix)\] StringStartsWith '([^']*)'"
)
Answer = tuple[int, dict[str, str], bytes]


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request needs."""

    action: str
    """``read``, ``write``, ``delete``."""
    listing: bool = False
    path: str = ""
    prefix: str = ""
    letter: str = "r"
    """Of a signature's permissions."""


@dataclass(slots=True)
class Blob:
    data: bytes
    at_s: float
    number: int


@dataclass(slots=True)
class Azure(Served):
    """``with Azure() as azure``; ``azure.settings``, ``azure.environ``."""

    subscription: str = "00000000-1111-2222-3333-444444444444"
    things: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The Resource Manager's, by path (in small letters)."""
    blobs: dict[str, dict[str, Blob]] = field(default_factory=dict)
    """``account/container`` → name → blob."""
    blocks: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Token → (object id, wall seconds of its end)."""
    whose: Callable[[str], str | None] = lambda token: None
    """Object id of a token that another emulator has given out."""
    unseen: int = 0
    """So many role assignments fail because the principal is not known yet."""
    role_lag: int = 0
    """So many keys are refused because a role does not hold yet."""
    denied: set[str] = field(default_factory=set)
    """Kinds of things that may not be put: ``roleAssignments``…"""
    calls: list[str] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)
    """Of folders, that were used."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _server: Any = None
    _secret: bytes = b"of the service"
    _numbers: int = 0

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return handler_of(self._told)

    def _told(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        try:
            return self.answer(method, path, headers, body)
        except Refused as refused:
            told = {"x-ms-error-code": refused.code}
            if path.startswith("/blob/"):
                return refused.status, told, _error(refused.code)
            told["Content-Type"] = "application/json"
            return (
                refused.status,
                told,
                json.dumps({"error": {"code": refused.code, "message": "."}}).encode(),
            )

    @property
    def settings(self) -> dict[str, str]:
        return {
            "subscription": self.subscription,
            "resource_manager": self.url,
            "blob_endpoint": f"{self.url}/blob",
        }

    @property
    def environ(self) -> dict[str, str]:
        return {"IDENTITY_ENDPOINT": f"{self.url}/msi", "IDENTITY_HEADER": "secret"}

    def token(self, object_id: str, for_s: float = 3600.0) -> str:
        """Of whoever has this object id: a person, or a machine's identity."""
        claims = {"oid": object_id, "tid": TENANT, "n": secrets.token_hex(4)}
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        made = f"aaa.{body}.bbb"
        self.tokens[made] = (object_id, time.time() + for_s)
        return made

    # ------------------------------------------------------------ requests

    def answer(self, verb: str, address: str, headers: dict[str, str], body: bytes) -> Answer:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        with self.lock:
            if parts.path == "/msi":
                made = self.token(USER)
                until = str(int(self.tokens[made][1]))
                return _json({"access_token": made, "expires_on": until, "resource": query["resource"]})
            if parts.path.startswith("/blob/"):
                return self._blob(verb, unquote(parts.path), query, headers, body)
            self._who(headers)
            return self._manager(verb, unquote(parts.path), json.loads(body or b"{}"))

    def _who(self, headers: dict[str, str]) -> str:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if (oid := self.whose(token)) is not None:
            return oid
        found = self.tokens.get(token)
        if found is None or time.time() > found[1]:
            raise Refused(401, "InvalidAuthenticationInfo")
        return found[0]

    # ------------------------------------------------------------ Resource Manager

    def behind(self, arm: Any) -> None:
        """Stores and identities of another emulator's subscriptions (``clouds/azure/arm``) are here."""
        from clouds.azure.arm import Asked, Reply
        from clouds.azure.arm import Refused as Theirs

        def beside(asked: Asked) -> Reply | None:
            try:
                status, _, data = self._manager(asked.method, asked.path, asked.body or {})
            except Refused as refused:
                raise Theirs(refused.code, status=refused.status) from refused
            return Reply(status=status, body=json.loads(data) if data else None)

        def whose(token: str) -> str | None:
            principal = arm.who({"authorization": f"Bearer {token}"})[0]
            found = self.things.get(principal.lower())  # a machine's token names its identity
            return principal if found is None else str(found["properties"]["principalId"])

        arm.beside, self.whose = beside, whose

    def _manager(self, verb: str, path: str, body: dict[str, Any]) -> Answer:
        key, kind = path.lower(), path.split("/")[-2]
        self.calls.append(f"{verb} {kind}")
        if verb == "GET" and path.endswith(
            ("/storageAccounts", "/userAssignedIdentities", "/roleDefinitions")
        ):
            tail = path.rpartition("/")[2].lower()
            return _json({"value": [v for k, v in self.things.items() if k.split("/")[-2] == tail]})
        if verb == "PUT":
            return self._put_thing(path, kind, body)
        if key not in self.things:
            if verb == "DELETE":
                return 204, {}, b""
            raise Refused(404, "ResourceNotFound")
        found = self.things[key]
        if verb == "DELETE":
            given = [
                one.get("properties", {}).get("roleDefinitionId", "").lower() for one in self.things.values()
            ]
            if key in given:
                raise Refused(400, "RoleDefinitionHasAssignments")
            del self.things[key]
            return 200, {}, b""
        if kind == "storageAccounts":  # made by the time of the second look
            found["properties"], shown = {**found["properties"], "provisioningState": "Succeeded"}, found
            return _json(shown)
        return _json(found)

    def _put_thing(self, path: str, kind: str, body: dict[str, Any]) -> Answer:
        if kind in self.denied:
            raise Refused(403, "AuthorizationFailed")
        key = path.lower()
        made = {**self.things.get(key, {}), **body, "id": path, "name": path.rpartition("/")[2]}
        if kind == "storageAccounts":
            if not re.fullmatch("[a-z0-9]{3,24}", made["name"]):
                raise Refused(400, "AccountNameInvalid")
            made["properties"] = {**body["properties"], "provisioningState": "Creating"}
        if kind == "containers":
            self.blobs.setdefault("/".join((path.split("/")[8], made["name"])), {})
        if kind == "userAssignedIdentities":
            oid = hashlib.sha256(key.encode()).hexdigest()[:32]
            made["properties"] = {"principalId": oid, "clientId": oid[::-1]}
        if kind == "roleAssignments":
            if self.unseen > 0:
                self.unseen -= 1
                raise Refused(400, "PrincipalNotFound")
            if key in self.things:
                raise Refused(409, "RoleAssignmentExists")
        self.things[key] = made
        return _json(made, 201)

    # ------------------------------------------------------------ rights

    def _may(self, oid: str, account: str, container: str, wish: Wish) -> None:
        """By roles on the account or the container. Raises Refused."""
        for key, one in list(self.things.items()):
            if "/roleassignments/" not in key or one["properties"]["principalId"] != oid:
                continue
            scope = key.partition("/providers/microsoft.authorization/")[0]
            own = f"/storageaccounts/{account}"
            if not scope.endswith((own, f"{own}/blobservices/default/containers/{container}")):
                continue
            role = self.things.get(one["properties"]["roleDefinitionId"].lower())
            data = [f"{_BLOBS}/*"] if role is None else role["properties"]["permissions"][0]["dataActions"]
            action = f"{_BLOBS}/{wish.action}"
            allowed = any(a == action or a.endswith("/*") for a in data)
            if allowed and holds(one["properties"].get("condition", ""), action, wish):
                return
        raise Refused(403, "AuthorizationPermissionMismatch")

    def _signed(self, account: str, container: str, query: dict[str, str], wish: Wish) -> None:
        """A signature says what it is good for, and Azure holds it to that. Raises Refused."""
        folder = query["sr"] == "d"
        name = wish.prefix if wish.listing else wish.path
        if folder:
            within = "/".join(name.split("/")[: int(query["sdd"])])
            if not name.startswith(within + "/"):
                raise Refused(403, "AuthorizationPermissionMismatch")
        else:
            within = name
        text = "\n".join(
            [query["sp"], query["st"], query["se"], f"/blob/{account}/{container}/{within}"]
            + [query[k] for k in ("skoid", "sktid", "skt", "ske", "sks", "skv")]
            + [""] * 5
            + [query.get("sip", ""), query.get("spr", ""), query["sv"], query["sr"], "", "", "", ""]
            + [query.get(k, "") for k in ("rscc", "rscd", "rsce", "rscl", "rsct")]
        )
        value = self._value(query["skoid"], query["skt"], query["ske"])
        right = base64.b64encode(hmac.new(value, text.encode(), hashlib.sha256).digest()).decode()
        if folder:
            self.signatures.add(query["sig"])
        if query["sv"] != VERSION or right != query["sig"]:
            raise Refused(403, "AuthenticationFailed")
        now_s = time.time()
        if not _s(query["st"]) <= now_s < min(_s(query["se"]), _s(query["ske"])):
            raise Refused(403, "AuthenticationFailed")
        if wish.letter not in query["sp"]:
            raise Refused(403, "AuthorizationPermissionMismatch")
        self._may(query["skoid"], account, container, wish)  # no more than whoever has signed it

    def _value(self, oid: str, start: str, expiry: str) -> bytes:
        return hmac.new(self._secret, f"{oid}|{start}|{expiry}".encode(), hashlib.sha256).digest()

    # ------------------------------------------------------------ blobs

    def _blob(
        self, verb: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> Answer:
        account, _, rest = path.removeprefix("/blob/").partition("/")
        if query.get("comp") == "userdelegationkey":
            return self._key(account, headers, body)
        container, _, name = rest.partition("/")
        if query.get("comp") == "batch":
            return self._batch(query, headers, body)
        there = self.blobs.get(f"{account}/{container}")
        if verb == "HEAD" and query.get("restype") == "container" and not name:
            self._may(self._who(headers), account, container, Wish(action="read"))
            if there is None:
                raise Refused(404, "ContainerNotFound")
            return 200, {}, b""
        wish = _wish(verb, name, query)
        if "sig" in query:
            self._signed(account, container, query, wish)
        else:
            self._may(self._who(headers), account, container, wish)
        if there is None:
            raise Refused(404, "ContainerNotFound")
        if wish.listing:
            return 200, {"Content-Type": "application/xml"}, _listed(there, query)
        if verb == "PUT":
            return self._put(account, container, name, query, headers, body)
        found = there.get(name)
        if found is None:
            raise Refused(404, "BlobNotFound")
        if verb == "DELETE":
            del there[name]
            return 202, {}, b""
        return _got(found, headers)

    def _batch(self, query: dict[str, str], headers: dict[str, str], body: bytes) -> Answer:
        """Each part is a request of its own, with an authorization of its own."""
        if "sig" in query:
            raise Refused(403, "AuthorizationPermissionMismatch")
        self._who(headers)
        mark = headers["content-type"].partition("boundary=")[2].encode()
        lines = []
        for part in body.split(b"--" + mark)[1:-1]:
            outer, _, inner = part.strip(b"\r\n").partition(b"\r\n\r\n")
            number = re.search(rb"(?i)content-id: *(\S+)", outer)
            first, *rest = inner.decode().splitlines()
            verb, path, _ = first.split(" ")
            told = {k.strip().lower(): v.strip() for k, _, v in (one.partition(":") for one in rest if one)}
            parts = urlsplit(path)
            asked = dict(parse_qsl(parts.query, keep_blank_values=True))
            try:
                where = "/blob" + unquote(parts.path)  # obstore leaves the endpoint's own path out
                status, _, _ = self._blob(verb, where, asked, told, b"")
                said = f"HTTP/1.1 {status} Accepted\r\n\r\n"
            except Refused as refused:
                said = f"HTTP/1.1 {refused.status} Refused\r\nx-ms-error-code: {refused.code}\r\n\r\n"
            content = number[1].decode() if number else ""
            lines.append(
                f"--answer\r\nContent-Type: application/http\r\nContent-ID: {content}\r\n\r\n{said}\r\n"
            )
        return (
            202,
            {"Content-Type": "multipart/mixed; boundary=answer"},
            "".join([*lines, "--answer--"]).encode(),
        )

    def _key(self, account: str, headers: dict[str, str], body: bytes) -> Answer:
        oid = self._who(headers)
        if self.role_lag > 0:
            self.role_lag -= 1
            raise Refused(403, "AuthorizationPermissionMismatch")
        self._may(oid, account, "", Wish(action="read"))
        asked = {child.tag: child.text or "" for child in ElementTree.fromstring(body)}
        start, expiry = asked["Start"], asked["Expiry"]
        if _s(expiry) - time.time() > 7 * 86400:
            raise Refused(400, "InvalidXmlNodeValue")
        value = base64.b64encode(self._value(oid, start, expiry)).decode()
        told = {
            "SignedOid": oid,
            "SignedTid": TENANT,
            "SignedStart": start,
            "SignedExpiry": expiry,
            "SignedService": "b",
            "SignedVersion": headers["x-ms-version"],
            "Value": value,
        }
        inside = "".join(f"<{tag}>{text}</{tag}>" for tag, text in told.items())
        xml = f"<?xml version='1.0' encoding='utf-8'?><UserDelegationKey>{inside}</UserDelegationKey>"
        return 200, {"Content-Type": "application/xml"}, b"\xef\xbb\xbf" + xml.encode()

    def _put(
        self,
        account: str,
        container: str,
        name: str,
        query: dict[str, str],
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        there = self.blobs[f"{account}/{container}"]
        blocks = self.blocks.setdefault((f"{account}/{container}", name), {})
        if query.get("comp") == "block":
            blocks[query["blockid"]] = body
            return 201, {}, b""
        if headers.get("if-none-match") == "*" and name in there:
            raise Refused(409, "BlobAlreadyExists")
        if query.get("comp") == "blocklist":
            body = b"".join(blocks[one.text or ""] for one in ElementTree.fromstring(body))
            blocks.clear()
        elif headers.get("x-ms-blob-type") != "BlockBlob":
            raise Refused(400, "MissingRequiredHeader")
        self._numbers += 1
        made = there[name] = Blob(body, time.time(), self._numbers)
        return 201, _told(made), b""


def holds(condition: str, action: str, wish: Wish) -> bool:
    """A condition of Azure's, version 2.0, on what is asked: what ours use of it."""
    if not condition:
        return True

    def atom(found: re.Match[str]) -> str:
        if found[1] == "ActionMatches":
            return str(found[2] == action)
        if found[1] == "SubOperationMatches":
            return str(found[2] == "Blob.List" and wish.listing)
        value = wish.path if found[4] == "path" else wish.prefix
        return str(value.startswith(found[5]))

    text = _ATOM.sub(atom, condition)
    text = text.replace("!", " not ").replace("AND", "and").replace("OR", "or").replace("NOT", "not")
    assert re.fullmatch(r"(True|False|and|or|not|[() ])+", text), text
    return bool(eval(text))


def _wish(verb: str, name: str, query: dict[str, str]) -> Wish:
    if query.get("comp") == "list" and verb == "GET":
        return Wish(action="read", listing=True, prefix=query.get("prefix", ""), letter="l")
    if not name:
        raise Refused(403, "AuthorizationPermissionMismatch")  # nobody here may do anything with containers
    if verb in ("GET", "HEAD"):
        return Wish(action="read", path=name)
    if verb == "DELETE":
        return Wish(action="delete", path=name, letter="d")
    return Wish(action="write", path=name, letter="w")


def _told(blob: Blob) -> dict[str, str]:
    return {"ETag": f'"0x{blob.number:X}"', "Last-Modified": formatdate(blob.at_s, usegmt=True)}


def _got(found: Blob, headers: dict[str, str]) -> Answer:
    told = {**_told(found), "Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("x-ms-range") or headers.get("range", ""))
    if asked is None:
        return 200, told, found.data
    begin, size = int(asked[1]), len(found.data)
    end = min(int(asked[2]) if asked[2] else size - 1, size - 1)
    told["Content-Range"] = f"bytes {begin}-{end}/{size}"
    return 206, told, found.data[begin : end + 1]


def _listed(there: dict[str, Blob], query: dict[str, str]) -> bytes:
    names = sorted(k for k in there if k.startswith(query.get("prefix", "")) and k > query.get("marker", ""))
    page = names[: int(query.get("maxresults", 5000))]
    rows = "".join(
        f"<Blob><Name>{escape(k)}</Name><Properties><Last-Modified>{formatdate(there[k].at_s, usegmt=True)}"
        f"</Last-Modified><Content-Length>{len(there[k].data)}</Content-Length>"
        f"<Content-Type>application/octet-stream</Content-Type><Etag>0x{there[k].number:X}</Etag>"
        f"<BlobType>BlockBlob</BlobType></Properties></Blob>"
        for k in page
    )
    marker = escape(page[-1]) if len(page) < len(names) else ""
    xml = f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    return xml.encode()


def _s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _json(document: dict[str, Any], status: int = 200) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(document).encode()


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>.</Message></Error>".encode()
