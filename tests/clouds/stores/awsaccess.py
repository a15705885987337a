"""Who asks the emulated AWS, and what they may do: sessions of STS and of instances, S3 held to policies.

moto hands out credentials and asks for none. Here every request to S3 has its signature checked, a session
ends, its token has to come with it, and it may do only what its role and its session policy allow.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from clouds.stores.policies import allows, asked_of_s3, signature

if TYPE_CHECKING:
    from clouds.aws.account import Account

_HEADER = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)")


class NotAllowed(Exception):
    def __init__(self, code: str, message: str = "", status: int = 403) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message or code, status

    @property
    def document(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Temporary credentials."""

    account: Account
    key: str
    secret: str
    token: str
    role: str | None
    """None: of the account's user himself (GetFederationToken)."""
    policy: dict[str, Any] | None
    expires_s: float

    @property
    def document(self) -> dict[str, str]:
        """As an instance's metadata service shows it."""
        return {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": self.key,
            "SecretAccessKey": self.secret,
            "Token": self.token,
            "Expiration": iso(self.expires_s),
        }

    @property
    def caller(self) -> bytes:
        """GetCallerIdentity, which anybody may ask."""
        who = f"assumed-role/{self.role}/s" if self.role else "federated-user/s"
        text = f"<Arn>arn:aws:sts::{self.account.id}:{who}</Arn><Account>{self.account.id}</Account>"
        result = f"<GetCallerIdentityResult>{text}</GetCallerIdentityResult>"
        return f"<GetCallerIdentityResponse>{result}</GetCallerIdentityResponse>".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who signed a request, and for what."""

    key: str
    region: str
    service: str
    scope: str
    signed: tuple[str, ...]
    signature: str
    at: str
    link: bool
    """A signed link, not a header."""


def iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Sessions:
    """All of one emulator's. The emulator's lock is held around every call."""

    def __init__(self) -> None:
        self.by_key: dict[str, Session] = {}
        self.hands_out_s: float | None = None
        """The longest that STS gives, whatever is asked; for tests."""

    def issue(self, account: Account, role: str | None, policy: str | None, for_s: float) -> Session:
        if self.hands_out_s is not None:
            for_s = min(for_s, self.hands_out_s)
        made = Session(
            account=account,
            key=f"ASIA{secrets.token_hex(8).upper()}",
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(60),
            role=role,
            policy=json.loads(policy) if policy else None,
            expires_s=time.time() + for_s,
        )
        self.by_key[made.key] = made
        return made

    def of_instance(self, account: Account, profile: str) -> Session | None:
        """What the metadata service of an instance with this profile shows: renewed as EC2 does."""
        from moto.iam import iam_backends

        found = [
            p for p in iam_backends[account.id]["aws"].get_instance_profiles() if profile in (p.name, p.arn)
        ]
        if not found or not found[0].roles:
            return None
        role = found[0].roles[0].name
        known = [
            s
            for s in self.by_key.values()
            if s.account is account
            and s.role == role
            and s.policy is None
            and s.expires_s > time.time() + 600
        ]
        return known[-1] if known else self.issue(account, role, None, 21600)

    def policies(self, session: Session) -> list[dict[str, Any]]:
        from moto.iam import iam_backends

        backend = iam_backends[session.account.id]["aws"]
        roles = {role.name: role for role in backend.roles.values()}
        if session.role not in roles:  # deleted: its sessions are worth nothing
            return []
        return [json.loads(text) for text in roles[session.role].policies.values()]

    def may(self, session: Session, action: str, resource: str, context: dict[str, str]) -> bool:
        if session.role is not None and not any(
            allows(policy, action, resource, context) for policy in self.policies(session)
        ):
            return False
        if session.policy is not None:
            return allows(session.policy, action, resource, context)
        return session.role is not None

    # ------------------------------------------------------------ S3

    def check(
        self, asked: Asked, secret: str, session: Session | None, environ: dict[str, Any], body: bytes
    ) -> None:
        """Raises NotAllowed."""
        raw_path, _, raw_query = (environ.get("RAW_URI") or environ["REQUEST_URI"]).partition("?")
        headers = {
            key.removeprefix("HTTP_").replace("_", "-").lower(): value
            for key, value in environ.items()
            if key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        query = dict(parse_qsl(raw_query, keep_blank_values=True))
        payload = "UNSIGNED-PAYLOAD" if asked.link else headers.get("x-amz-content-sha256", "")
        right = signature(
            secret,
            method=environ["REQUEST_METHOD"],
            raw_path=raw_path,
            raw_query=raw_query,
            headers=headers,
            signed=asked.signed,
            payload=payload,
            at=asked.at,
            scope=asked.scope,
        )
        if right != asked.signature:
            raise NotAllowed("SignatureDoesNotMatch")
        if asked.link:
            begun = datetime.strptime(asked.at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
            if time.time() > begun + int(query["X-Amz-Expires"]):
                raise NotAllowed("AccessDenied", "Request has expired")
        owner = headers.get("x-amz-expected-bucket-owner")
        if owner is not None and _owner(unquote(raw_path)) not in (None, owner):
            raise NotAllowed("AccessDenied")
        if session is None:
            return
        token = query.get("X-Amz-Security-Token") if asked.link else headers.get("x-amz-security-token")
        if token != session.token:
            raise NotAllowed("InvalidToken", status=400)
        if time.time() > session.expires_s:
            raise NotAllowed("ExpiredToken", "The provided token has expired.", 400)
        for action, resource, context in asked_of_s3(
            environ["REQUEST_METHOD"], unquote(raw_path), query, body
        ):
            if not self.may(session, action, resource, context):
                raise NotAllowed(
                    "AccessDenied", f"not authorized to perform: {action} on resource: {resource}"
                )

    def hide(self, session: Session, environ: dict[str, Any]) -> None:
        """S3 tells only those that an object is missing who may list the bucket: without a prefix in the
        request, a condition on it does not hold. Raises NotAllowed."""
        raw_path = (environ.get("RAW_URI") or environ["REQUEST_URI"]).partition("?")[0]
        bucket = unquote(raw_path).lstrip("/").partition("/")[0]
        if not self.may(session, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {}):
            raise NotAllowed("AccessDenied", "Access Denied")


def _owner(path: str) -> str | None:
    """Account of the bucket; None = there is none, which is said as to anybody."""
    from moto.s3.models import s3_backends

    name = path.lstrip("/").partition("/")[0]
    for account, parts in s3_backends.items():
        for backend in parts.values():
            if name in backend.buckets:
                return str(account)
    return None


def asked_by(environ: dict[str, Any]) -> Asked | None:
    """None: nobody has signed it."""
    found = _HEADER.search(environ.get("HTTP_AUTHORIZATION", ""))
    if found is not None:
        scope = found[2]
        return Asked(
            key=found[1],
            region=scope.split("/")[1],
            service=scope.split("/")[2],
            scope=scope,
            signed=tuple(found[3].split(";")),
            signature=found[4],
            at=environ.get("HTTP_X_AMZ_DATE", ""),
            link=False,
        )
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if "X-Amz-Credential" not in query:
        return None
    key, _, scope = query["X-Amz-Credential"].partition("/")
    return Asked(
        key=key,
        region=scope.split("/")[1],
        service=scope.split("/")[2],
        scope=scope,
        signed=tuple(query["X-Amz-SignedHeaders"].split(";")),
        signature=query["X-Amz-Signature"],
        at=query["X-Amz-Date"],
        link=True,
    )
