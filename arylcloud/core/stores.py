"""Addresses of object stores, and what is needed of the cloud that a bucket is in.

Two sides of one bucket: :class:`Storage` is the user's own (open it, make it, sign a link into it),
:class:`Lending` is what machines get: an identity that is made for one job and reaches one prefix, or, where
they are another cloud's, credentials that end soon and are renewed through the mailbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

from arylcloud.core.errors import UsageError

CLOUDS: Final = {"s3": "aws", "gs": "gcp", "az": "azure"}
"""Scheme → the cloud whose machines reach such a store by an identity of their own."""
SCHEMES: Final = ("file", *CLOUDS)
_WRITE: Final = "write s3://bucket/prefix, gs://bucket/prefix or az://container@account/prefix"
_USUAL: Final = {
    "aws": re.compile(r"s3://arylcloud-\d{12}-([a-z0-9-]+)(?:/|$)"),
    "gcp": re.compile(r"gs://arylcloud-[0-9a-f]{10}-([a-z0-9-]+)(?:/|$)"),
}
SIGNED_S: Final = 3600.0
"""The longest that a signed link is good for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container[@account]/prefix``."""

    scheme: str
    bucket: str
    account: str | None = None
    """Azure's storage account, where the address names one."""
    prefix: str = ""
    """Without slashes at its ends."""

    @property
    def cloud(self) -> str:
        return CLOUDS[self.scheme]

    @property
    def uri(self) -> str:
        account = f"@{self.account}" if self.account else ""
        prefix = f"/{self.prefix}" if self.prefix else ""
        return f"{self.scheme}://{self.bucket}{account}{prefix}"

    def key(self, name: str) -> str:
        """Of an object under the prefix, as the bucket calls it."""
        return f"{self.prefix}/{name}" if self.prefix else name


def address_of(uri: str) -> Address:
    """UsageError for what is no address of a bucket (``file://`` is none).

    >>> address_of("az://box@acct/a/b/")
    Address(scheme='az', bucket='box', account='acct', prefix='a/b')
    """
    parts = _split(uri)
    if parts.scheme not in CLOUDS or parts.query or parts.fragment:
        raise UsageError(
            f"{uri!r} is not the address of a bucket",
            hint=_WRITE,
        )
    bucket, _, account = parts.netloc.partition("@")
    if not bucket or (account and parts.scheme != "az"):
        raise UsageError(f"{uri!r} names no bucket")
    return Address(scheme=parts.scheme, bucket=bucket, account=account or None, prefix=parts.path.strip("/"))


def cloud_of(uri: str) -> str | None:
    """The cloud that a store is in; None = a folder. UsageError for what is no address at all."""
    return CLOUDS.get(_split(uri).scheme)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError as error:  # a bracket that is not closed
        raise UsageError(f"{uri!r} is no address: {error}", hint=_WRITE) from error


def usual_place(uri: str) -> str | None:
    """``cloud/region`` of a store, where its name tells: that of the bucket which launch makes. None = a
    folder, or its name does not say.

    >>> usual_place("gs://arylcloud-0123456789-europe-west4/jobs/a"), usual_place("s3://mine")
    ('gcp/europe-west4', None)
    """
    cloud = cloud_of(uri)
    found = _USUAL[cloud].match(uri) if cloud in _USUAL else None
    return None if found is None else f"{cloud}/{found[1]}"


class Storage(Protocol):
    """A cloud's buckets, with the user's own credentials. May raise AccessError, UsageError, CloudError."""

    def options(self, address: Address) -> Mapping[str, Any]:
        """How ``checkpoint.store.open_store`` opens it in this process: endpoint, region, and a provider
        that renews the user's credentials by itself. No call goes out."""
        ...

    def for_machines(self, address: Address, identity: str | None) -> Mapping[str, str]:
        """What a machine has to know to open it, beside its credentials: no secret. ``identity``: what the
        machine runs as; None = its credentials are lent."""
        ...

    def usual(self, region: str) -> str:
        """Address of the bucket that is this account's for ``region``, whether it is there or not."""
        ...

    def missing(self, address: Address) -> bool:
        """Whether there is no such bucket. Read-only. AccessError where it is somebody else's."""
        ...

    def place(self, address: Address) -> str | None:
        """``cloud/region`` where the bucket is, as its cloud says; None = it spans several, or we may not be
        told. Read-only."""
        ...

    @property
    def apart(self) -> bool:
        """Whether its buckets are somebody else's than the cloud's own: an endpoint leads elsewhere, so that
        the names of regions say nothing of where they lie, nor tariffs what they cost. No call goes out."""
        ...

    def make(self, address: Address, region: str, journal_id: str) -> None:
        """The bucket: private, with a rule that removes what broken uploads leave. Idempotent."""
        ...

    @property
    def signs_as_job(self) -> bool:
        """Whether links are signed as the job's identity, which reaches the job's prefix only."""
        ...

    def sign(self, address: Address, key: str, for_s: float, identity: str | None) -> str:
        """A link by which anybody may read this one object (its key under the prefix) for so long."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPrefix:
    """The part of a bucket that is one job's."""

    address: Address
    journal_id: str
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Credentials that reach one job's prefix, for a while."""

    secret: Mapping[str, str] = field(repr=False)
    """As obstore's credential provider of that cloud returns them, without the moment they end."""
    expires_s: float
    """Wall seconds, as the cloud says."""


class Lending(Protocol):
    """How machines reach a job's prefix. May raise AccessError, UsageError, CloudError."""

    @property
    def longest_s(self) -> float:
        """What a loan lasts at most: how long machines elsewhere reach their store without a launcher. May
        ask the cloud who we are."""
        ...

    def identity(self, job: JobPrefix) -> str | None:
        """What this cloud's own machines run as: made for the job, limited to its prefix. Idempotent, found
        again by its name. None: the user's settings name an identity already."""
        ...

    def lend(self, job: JobPrefix, for_s: float) -> Grant:
        """Credentials for machines elsewhere, for ``for_s`` seconds or as long as the cloud allows."""
        ...

    def revoke(self, job: JobPrefix) -> None:
        """The job has ended: its identity goes. Idempotent; the missing is success."""
        ...
