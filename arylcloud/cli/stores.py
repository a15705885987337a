"""Which object store a job uses, how each is opened, and the one bucket that is made where none is named."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from arylcloud.core.stores import Address, address_of, cloud_of, usual_place

if TYPE_CHECKING:
    from collections.abc import Collection

    from arylcloud.cli.settings import Folders
    from arylcloud.core.offer import Offer
    from arylcloud.core.ports import Finding, ObjectStore
    from arylcloud.core.stores import Lending, Storage

log = logging.getLogger("arylcloud.stores")


def named(asked: str | None = None) -> str | None:
    """``--store``, or ``ARYLCLOUD_STORE``; None = nobody has named one."""
    found = (asked or os.environ.get("ARYLCLOUD_STORE") or "").rstrip("/")
    return found or None


def storage_of(cloud: str, folders: Folders) -> Storage:
    from arylcloud.providers import registry

    return registry.load_storage(
        cloud, state_dir=folders.state, environ=os.environ, config_dir=folders.config
    )


def lending_of(cloud: str, folders: Folders) -> Lending:
    from arylcloud.providers import registry

    return registry.load_lending(
        cloud, state_dir=folders.state, environ=os.environ, config_dir=folders.config
    )


def open_uri(uri: str, *, create: bool = False, durable: bool = False) -> ObjectStore:
    """Any store, a bucket with the user's own credentials. Raises what ``open_store`` raises, and what is
    wrong with a cloud's settings or SDK."""
    from arylcloud.checkpoint.store import open_store

    cloud = cloud_of(uri)
    if cloud is None:
        return open_store(uri, create=create, durable=durable)
    from arylcloud.cli.settings import folders

    return open_store(uri, **storage_of(cloud, folders()).options(address_of(uri)))


def place_of(uri: str | None, folders: Folders) -> str | None:
    """``cloud/region`` of a bucket that a user names, as its cloud says. None: a folder, no store, or nobody
    tells us; whatever is wrong with it says whoever opens it."""
    from arylcloud.core.errors import ArylError

    cloud = None if uri is None else cloud_of(uri)
    if uri is None or cloud is None:
        return None
    try:
        return storage_of(cloud, folders).place(address_of(uri))
    except ArylError as error:
        log.info("where %s lies is not known: %s", uri, error.message)
        return None if _apart(cloud, folders) else usual_place(uri)


def _apart(cloud: str, folders: Folders) -> bool:
    """False where even that cannot be found out: then the cloud is not set up at all."""
    from arylcloud.core.errors import ArylError

    try:
        return storage_of(cloud, folders).apart
    except ArylError:
        return False


class Root:
    """The store of a job that is about to be launched: what is named, or the usual one, which is a folder
    for the local cloud, and a bucket of this account in the first machine's region for any other."""

    def __init__(self, folders: Folders, asked: str | None, chosen: Offer, clouds: Collection[str]) -> None:
        self._folders = folders
        self._region = chosen.region
        self._cloud = chosen.cloud
        self._missing = False
        uri = named(asked)
        self._theirs = uri is not None
        if uri is None and self._usual_is_a_folder(clouds):
            uri = folders.local_store.as_uri()
        if uri is None:
            uri = storage_of(chosen.cloud, folders).usual(chosen.region)
            self._missing = storage_of(chosen.cloud, folders).missing(address_of(uri))
        self.uri = uri

    def _usual_is_a_folder(self, clouds: Collection[str]) -> bool:
        from arylcloud.providers.registry import STORAGES

        return set(clouds) == {"local"} or self._cloud not in STORAGES

    @property
    def question(self) -> str | None:
        """What the user has to agree to; None = it is there."""
        if not self._missing:
            return None
        return f"make the bucket {self.uri} in {self._region}: private, kept when the job has ended"

    def make(self, journal_id: str) -> None:
        """After consent. Idempotent."""
        if self._missing:
            storage_of(self._cloud, self._folders).make(address_of(self.uri), self._region, journal_id)
            self._missing = False

    @property
    def place(self) -> str | None:
        """``cloud/region`` of the bucket; None = a folder, or not known. A cloud may be asked."""
        if self._theirs or cloud_of(self.uri) is None:
            return place_of(self.uri, self._folders)
        return None if _apart(self._cloud, self._folders) else f"{self._cloud}/{self._region}"

    def check(self) -> None:
        """One that the user names is never made: whether it is there is told here, before anything is
        written. Raises StoreError, AccessError."""
        cloud = cloud_of(self.uri)
        if not self._theirs or cloud is None:
            return
        from arylcloud.core.errors import StoreError

        address: Address = address_of(self.uri)
        if storage_of(cloud, self._folders).missing(address):
            raise StoreError(
                f"there is no bucket {address.bucket}", hint="make it, or leave --store out for the usual one"
            )


def alone_s(uri: str, clouds: Collection[str], folders: Folders) -> float | None:
    """How long machines of a job on these clouds reach the store at ``uri`` without a launcher, at most;
    None = as long as they live, or the cloud does not tell: nothing else hangs on it."""
    from arylcloud.core.errors import ArylError

    cloud = cloud_of(uri)
    if cloud is None or set(clouds) <= {cloud}:
        return None
    try:
        return lending_of(cloud, folders).longest_s
    except ArylError as error:
        log.info("how long credentials can be lent is not known: %s", error.message)
        return None


def looked_at(cloud: str, region: str, folders: Folders) -> Finding | None:
    """For ``check``: the store that a launch on this cloud would use; None = it is another cloud's, or a
    folder."""
    from arylcloud.core.errors import AccessError, ArylError, UsageError
    from arylcloud.core.ports import Finding, Verdict
    from arylcloud.providers.registry import STORAGES

    theirs = named()
    if cloud not in STORAGES or (theirs is not None and cloud_of(theirs) != cloud):
        return None

    def say(verdict: Verdict, said: str, remedy: str | None = None) -> Finding:
        return Finding(
            cloud=cloud, region=region, subject="bucket", verdict=verdict, said=said, remedy=remedy
        )

    try:
        storage = storage_of(cloud, folders)
        uri = theirs or storage.usual(region)
        if not storage.missing(address_of(uri)):
            return say(Verdict.OK, f"{uri} is there")
    except (AccessError, UsageError) as error:
        return say(Verdict.FAILED, error.message, error.hint)
    except ArylError as error:
        return say(Verdict.UNKNOWN, error.message, error.hint)
    if theirs is not None:
        return say(Verdict.FAILED, f"there is no {uri}", "make it, or name none: then launch makes one")
    return say(Verdict.OK, f"{uri} is not there yet: launch makes it, after asking")


def agreed(question: str | None, yes: bool) -> None:
    """Ask once. Raises Cancelled; UsageError where nobody can be asked."""
    from arylcloud.cli.output import note
    from arylcloud.core.errors import Cancelled, UsageError

    if question is None:
        return
    if yes:
        note(f"will {question}")
        return
    if not sys.stdin.isatty():
        raise UsageError(f"asked before: {question}", hint="-y agrees, --store names a store of your own")
    import typer

    if not typer.confirm(f"{question[0].upper()}{question[1:]}?", default=True, err=True):
        raise Cancelled("not launched", hint="--store names a store of your own")
