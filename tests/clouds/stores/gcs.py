"""Cloud Storage as obstore and we speak to it, with the parts of IAM that decide who may do what.

XML API: PUT (x-goog-if-generation-match), GET with ranges, HEAD, DELETE, list, multipart uploads, links.
JSON API: buckets, managed folders and their policies. IAM: service accounts, signBlob. STS: token exchange.

A bearer token is the user's, a service account's (of a machine), or one that a boundary limits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from clouds.served import Served, handler_of

USER = "someone@example.com"
_STARTS = re.compile(
    r"(resource\.name|api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\))"
    r"\.startsWith\('([^']*)'\)"
)


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or code


@dataclass(slots=True)
class Object:
    data: bytes
    at_s: float
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}-{self.generation}"'


@dataclass(slots=True)
class Bucket:
    body: dict[str, Any]
    project: str
    objects: dict[str, Object] = field(default_factory=dict)
    folders: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Managed folder → its policy's bindings."""
    uploads: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Who:
    email: str
    rules: tuple[dict[str, Any], ...] | None = None
    """Of a boundary; None = not limited."""
    expires_s: float = float("inf")


@dataclass(slots=True)
class Gcs(Served):
    """``with Gcs() as gcs``; ``gcs.settings`` are the product's."""

    project: str = "proj-1"
    buckets: dict[str, Bucket] = field(default_factory=dict)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """E-mail → its document; ``key``: its private key, ``bindings``: who may act as it."""
    tokens: dict[str, Who] = field(default_factory=lambda: {"anonymous": Who(USER)})
    taken: set[str] = field(default_factory=set)
    """Names of buckets that are somebody else's."""
    hands_out_s: float = 3600.0
    unseen: int = 0
    """So many calls that name a new account do not find it yet."""
    calls: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _server: Any = None
    _generation: int = 0

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return handler_of(self._told)

    def _told(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            return self.answer(method, path, headers, body)
        except Refused as refused:
            if "/v1/" not in path:
                return refused.status, {}, _error(refused.code)
            error = {
                "code": refused.status,
                "message": refused.message,
                "errors": [{"reason": refused.code}],
            }
            return refused.status, {}, json.dumps({"error": error}).encode()

    @property
    def settings(self) -> dict[str, str]:
        keys = ("api_endpoint", "storage_endpoint", "iam_endpoint", "sts_endpoint")
        return {"project": self.project, **dict.fromkeys(keys, self.url)}

    def machine_token(self, email: str) -> str:
        """What the metadata service gives to a machine that runs as this account."""
        token = f"ya29.{secrets.token_urlsafe(24)}"
        self.tokens[token] = Who(email, None, time.time() + self.hands_out_s)
        return token

    # ------------------------------------------------------------ rights

    def asker(self, headers: dict[str, str]) -> Who:
        """Of the JSON APIs: google-auth's anonymous credentials send nothing."""
        return self.who(headers) if "authorization" in headers else Who(USER)

    def who(self, headers: dict[str, str]) -> Who:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        found = self.tokens.get(token)
        if found is None or time.time() > found.expires_s:
            raise Refused(401, "AuthenticationRequired")
        return found

    def may(self, who: Who, bucket: str, key: str | None, prefix: str = "") -> None:
        """``key`` None: a list of ``prefix``. Raises Refused."""
        if who.rules is not None and not any(_within(r, bucket, key, prefix) for r in who.rules):
            raise Refused(403, "AccessDenied")
        if who.email == USER:
            return
        name = prefix if key is None else key
        for folder, bindings in self.buckets[bucket].folders.items():
            for one in bindings:
                objects = one["role"] in ("roles/storage.objectUser", "roles/storage.objectAdmin")
                if objects and f"serviceAccount:{who.email}" in one["members"] and name.startswith(folder):
                    return
        raise Refused(403, "AccessDenied")

    # ------------------------------------------------------------ requests

    def answer(
        self, verb: str, address: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        path = parts.path
        with self.lock:
            if path.startswith("/storage/v1/b"):
                return _json(self._buckets(verb, path, query, headers, json.loads(body or b"{}")))
            if path.startswith("/v1/projects/"):
                return _json(self._iam(verb, unquote(path), headers, json.loads(body or b"{}")))
            if path == "/v1/token":
                return _json(self._exchange(dict(parse_qsl(body.decode()))))
            if path == "/tokeninfo":
                return _json({"email": self.tokens[query["access_token"]].email})
            return self._objects(verb, parts, query, headers, body)

    def _objects(
        self, verb: str, parts: Any, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        name, _, key = unquote(parts.path).lstrip("/").partition("/")
        bucket = self.buckets.get(name)
        who = self._signer(verb, parts, query, headers) if "X-Goog-Signature" in query else self.who(headers)
        if bucket is None:
            raise Refused(404, "NoSuchBucket")
        if not key:
            self.may(who, name, None, query.get("prefix", ""))
            return 200, {"Content-Type": "application/xml"}, _listed(bucket, query)
        self.may(who, name, key)
        if verb == "POST" and "uploads" in query:
            upload = secrets.token_hex(8)
            bucket.uploads[upload] = (key, {})
            text = f"<InitiateMultipartUploadResult><Bucket>{name}</Bucket><Key>{escape(key)}</Key>"
            return 200, {}, f"{text}<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
        if "uploadId" in query:
            return self._upload(verb, bucket, key, query, headers, body)
        if verb == "PUT":
            return self._put(bucket, key, headers, body)
        found = bucket.objects.get(key)
        if found is None:
            raise Refused(404, "NoSuchKey")
        if verb == "DELETE":
            del bucket.objects[key]
            return 204, {}, b""
        return _got(found, headers)

    def _put(
        self, bucket: Bucket, key: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        wanted = headers.get("x-goog-if-generation-match")
        there = bucket.objects.get(key)
        if wanted is not None and int(wanted) != (there.generation if there else 0):
            raise Refused(412, "PreconditionFailed")
        self._generation += 1
        made = bucket.objects[key] = Object(body, time.time(), self._generation)
        return 200, {"ETag": made.etag, "x-goog-generation": str(made.generation)}, b""

    def _upload(
        self,
        verb: str,
        bucket: Bucket,
        key: str,
        query: dict[str, str],
        headers: dict[str, str],
        body: bytes,
    ) -> tuple[int, dict[str, str], bytes]:
        upload = query["uploadId"]
        if upload not in bucket.uploads:
            raise Refused(404, "NoSuchUpload")
        parts = bucket.uploads[upload][1]
        if verb == "PUT":
            parts[int(query["partNumber"])] = body
            return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
        del bucket.uploads[upload]
        if verb == "DELETE":
            return 204, {}, b""
        data = b"".join(parts[number] for number in sorted(parts))
        status, told, _ = self._put(bucket, key, headers, data)
        return (
            status,
            told,
            f"<CompleteMultipartUploadResult><ETag>{escape(told['ETag'])}</ETag></CompleteMultipartUploadResult>".encode(),
        )

    def _signer(self, verb: str, parts: Any, query: dict[str, str], headers: dict[str, str]) -> Who:
        """Whose signature a link has. It is for a while, and for one request."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        email, _, scope = query["X-Goog-Credential"].partition("/")
        raw = "&".join(p for p in parts.query.split("&") if not p.startswith("X-Goog-Signature="))
        canonical = "\n".join(
            [verb, parts.path, raw, f"host:{headers['host']}\n", "host", "UNSIGNED-PAYLOAD"]
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(["GOOG4-RSA-SHA256", query["X-Goog-Date"], scope, digest])
        if email not in self.accounts:
            raise Refused(403, "AccessDenied")
        try:
            self.accounts[email]["key"].public_key().verify(
                bytes.fromhex(query["X-Goog-Signature"]), text.encode(), PKCS1v15(), SHA256()
            )
        except InvalidSignature as error:
            raise Refused(403, "SignatureDoesNotMatch") from error
        begun = time.mktime(time.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ")) - time.timezone
        if time.time() > begun + int(query["X-Goog-Expires"]):
            raise Refused(400, "ExpiredToken")
        return Who(email)

    # ------------------------------------------------------------ JSON API

    def _buckets(
        self, verb: str, path: str, query: dict[str, str], headers: dict[str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        who = self.asker(headers)
        if who.email != USER or who.rules is not None:
            raise Refused(403, "forbidden")
        names = path.removeprefix("/storage/v1/b").strip("/").split("/")
        self.calls.append(f"{verb} {'/'.join(names[1:2] + names[3:]) or 'bucket'}")
        if verb == "POST" and names == [""]:
            if body["name"] in self.buckets or body["name"] in self.taken:
                raise Refused(409, "conflict", "You already own this bucket. Please select another name.")
            self.buckets[body["name"]] = Bucket(body, query["project"])
            return body
        if names == [""]:
            mine = (n for n, one in self.buckets.items() if one.project == query["project"])
            return {"items": [{"name": n} for n in mine if n.startswith(query["prefix"])]}
        name = unquote(names[0])
        if name in self.taken:
            raise Refused(403, "forbidden")
        bucket = self.buckets.get(name)
        if bucket is None:
            raise Refused(404, "notFound")
        if names[1:2] != ["managedFolders"]:
            return bucket.body
        if verb == "POST":
            if body["name"] in bucket.folders:
                raise Refused(409, "conflict")
            bucket.folders[body["name"]] = []
            return body
        folder = unquote(names[2])
        if folder not in bucket.folders:
            raise Refused(404, "notFound")
        if verb == "DELETE":
            del bucket.folders[folder]
            return {}
        for one in body["bindings"]:
            for member in one["members"]:
                self._seen(member.removeprefix("serviceAccount:"), 400)
        bucket.folders[folder] = body["bindings"]
        return body

    # ------------------------------------------------------------ IAM and STS

    def _seen(self, email: str, status: int) -> dict[str, Any]:
        if email not in self.accounts or self.unseen > 0:
            self.unseen -= 1
            raise Refused(
                status, "invalid" if status == 400 else "notFound", f"Service account {email} does not exist."
            )
        return self.accounts[email]

    def _iam(self, verb: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        who = self.asker(headers)
        found = re.fullmatch(r"/v1/projects/([^/]+)/serviceAccounts(?:/([^:]+)(?::(\w+))?)?", path)
        if found is None or who.rules is not None:
            raise Refused(404, "notFound", path)
        _, email, action = found.groups()
        self.calls.append(f"{verb} serviceAccounts {action or ''}".strip())
        if email is None and verb == "POST":
            return self._make_account(body)
        if email is None:
            return {"accounts": [one["document"] for one in self.accounts.values()]}
        if action == "setIamPolicy":
            self._seen(email, 404)["bindings"] = body["policy"]["bindings"]
            return body["policy"]
        if action == "signBlob":
            return self._sign(who, email, base64.b64decode(body["payload"]))
        if verb == "DELETE" and email in self.accounts:
            del self.accounts[email]
            return {}
        raise Refused(404, "notFound", path)

    def _make_account(self, body: dict[str, Any]) -> dict[str, Any]:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        name = body["accountId"]
        if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", name):
            raise Refused(400, "badRequest", f"Invalid account id {name}")
        email = f"{name}@{self.project}.iam.gserviceaccount.com"
        if email in self.accounts:
            raise Refused(409, "alreadyExists")
        document = {"email": email, **body["serviceAccount"]}
        self.accounts[email] = {
            "document": document,
            "key": generate_private_key(65537, 2048),
            "bindings": [],
        }
        return document

    def _sign(self, who: Who, email: str, data: bytes) -> dict[str, Any]:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        account = self.accounts.get(email)
        allowed = [b for b in (account or {}).get("bindings", []) if f"user:{who.email}" in b["members"]]
        if account is None or not allowed:
            raise Refused(403, "forbidden", "Permission 'iam.serviceAccounts.signBlob' denied")
        signed = account["key"].sign(data, PKCS1v15(), SHA256())
        return {"keyId": "1", "signedBlob": base64.b64encode(signed).decode()}

    def _exchange(self, form: dict[str, str]) -> dict[str, Any]:
        who = self.tokens[form["subject_token"]]
        rules = json.loads(unquote(form["options"]))  # quoted twice, as google-auth does
        rules = rules["accessBoundary"]["accessBoundaryRules"]
        token = f"ya29.{secrets.token_urlsafe(40)}"
        self.tokens[token] = Who(who.email, tuple(rules), time.time() + self.hands_out_s)
        return {
            "access_token": token,
            "issued_token_type": form["requested_token_type"],
            "token_type": "Bearer",
            "expires_in": int(self.hands_out_s),
        }


def _within(rule: dict[str, Any], bucket: str, key: str | None, prefix: str) -> bool:
    if rule["availableResource"] != f"//storage.googleapis.com/projects/_/buckets/{bucket}":
        return False
    name = f"projects/_/buckets/{bucket}" + (f"/objects/{key}" if key is not None else "")
    clauses = rule["availabilityCondition"]["expression"].split(" || ")
    for clause in clauses:
        found = _STARTS.fullmatch(clause)
        assert found is not None, clause
        value = name if found[1] == "resource.name" else (prefix if key is None else "")
        if value.startswith(found[2]):
            return True
    return False


def _got(found: Object, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    told = {
        "ETag": found.etag,
        "Last-Modified": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(found.at_s)),
        "x-goog-generation": str(found.generation),
        "Content-Type": "application/octet-stream",
    }
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
    if asked is None:
        return 200, told, found.data
    begin, size = int(asked[1]), len(found.data)
    end = min(int(asked[2]) if asked[2] else size - 1, size - 1)
    told["Content-Range"] = f"bytes {begin}-{end}/{size}"
    return 206, told, found.data[begin : end + 1]


def _listed(bucket: Bucket, query: dict[str, str]) -> bytes:
    prefix = query.get("prefix", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    names = sorted(k for k in bucket.objects if k.startswith(prefix) and k > after)
    page = names[: int(query.get("max-keys", 1000))]
    more = len(page) < len(names)
    rows = "".join(
        f"<Contents><Key>{escape(k)}</Key><Size>{len(bucket.objects[k].data)}</Size>"
        f"<ETag>{escape(bucket.objects[k].etag)}</ETag><LastModified>{_iso(bucket.objects[k].at_s)}</LastModified></Contents>"
        for k in page
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    return (
        f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{rows}{token}</ListBucketResult>"
    ).encode()


def _iso(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s * 1000) % 1000:03d}Z"


def _json(document: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>.</Message></Error>".encode()
