"""The object store behind the mailbox and the checkpoints: ``file://``, ``s3://``, ``gs://``, ``az://``.

One implementation over obstore. What a ``file://`` store promises (obstore 0.12, seen by strace and
held by tests): a write goes to ``<name>#<n>`` and is then renamed (``put``) or hard-linked
(``create``) to its name, so that readers see the whole object or none; a writer killed half-way
leaves only ``<name>#<n>``, which :meth:`list` never shows and :func:`sweep_partials` removes.
Nothing is fsynced: after a *power cut* (not a kill) the newest objects may be empty or short. Chunks
are checked by digest at restore, so a damaged checkpoint is refused, not used. ``durable=True``
fsyncs each object and its folder before the call returns.
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from arylcloud.checkpoint.digests import CACHED_BYTES
from arylcloud.checkpoint.keys import checked_key, checked_prefix, is_temporary
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    IntegrityError,
    LocalStateError,
    StoreError,
    UsageError,
)
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.stores import SCHEMES, address_of

Buffer: TypeAlias = bytes | memoryview
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_REFUSED = re.compile(r"\bcode: (403|401)\b|<Code>(AccessDenied|ExpiredToken|InvalidToken)</Code>")
"""In what obstore calls a generic error: lists, and bulk deletes."""


class StoreAccessError(AccessError, StoreError):
    """The store refuses these credentials. A StoreError for the port, exit 4 for the user."""


class LocalStoreError(LocalStateError, StoreError):
    """The disk under a ``file://`` store is full, read-only or not ours. A StoreError for the
    port (an agent tries again), exit 2 for the user."""


# By what the OS says, where it says anything; else by obstore's class; else StoreError.
_BY_ERRNO: dict[int, tuple[type[ArylError], str]] = {
    errno.ENOSPC: (LocalStoreError, "free space there"),
    errno.EDQUOT: (LocalStoreError, "free space there, or raise the disk quota"),
    errno.EROFS: (LocalStoreError, "name a folder that can be written"),
    errno.EACCES: (LocalStoreError, "name a folder that can be written"),
    errno.EPERM: (LocalStoreError, "name a folder that can be written"),
    errno.ENAMETOOLONG: (LocalStoreError, "name a folder with a shorter path"),
}
_BY_CLASS: dict[str, tuple[type[ArylError], str]] = {
    "PermissionDeniedError": (StoreAccessError, "grant read, write, list and delete on this prefix"),
    "UnauthenticatedError": (StoreAccessError, "log in again, or check the credentials' expiry"),
    "UnknownConfigurationKeyError": (UsageError, "see the options of open_store"),
}

_OF_THE_FILE = {errno.EIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}

_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")
LIST_AGAIN_S = 60.0
_NEVER_ABSENT = re.compile(r"(^|/)(ckpt|journal)/")
"""Where a key that is wrongly taken to be missing would cost a checkpoint, or a launcher its fence."""
_ASK = "check the address, the network and the credentials"


def open_store(uri: str, *, create: bool = True, durable: bool = False, **options: Any) -> ObjectStore:
    """The store at ``uri``: ``file:///folder``, ``s3://bucket/prefix``, ``gs://…``, ``az://container/…``.

    ``create``: make the folder of a ``file://`` store if it is missing (private, 0700); False: a
    missing folder is a StoreError. ``durable``: see the module. ``options`` are a bucket's: see
    ``checkpoint/remote``; what is not named there comes from the environment. Raises UsageError for a URI
    that is none.
    """
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise UsageError(
            f"{uri!r} is not the address of an object store",
            hint="write file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        )
    if parts.scheme == "file":
        return _open_local(uri, create=create, durable=durable)
    checked_prefix(parts.path.strip("/"))
    return _open_remote(uri.rstrip("/"), options)


def file_uri(folder: Path) -> str:
    """``file://`` address of a folder; blanks and non-ASCII letters are percent-encoded."""
    return folder.absolute().as_uri()


def file_path(uri: str) -> Path:
    """The folder of a ``file://`` store. UsageError if ``uri`` is no absolute ``file://`` address."""
    parts = urlsplit(uri)
    path = Path(unquote(uri.removeprefix("file://").removeprefix(parts.netloc)))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.is_absolute():
        raise UsageError(f"{uri!r} is not the address of a local folder", hint="write file:///folder")
    return path


def stream(store: ObjectStore, key: str) -> Iterator[Buffer] | None:
    """The object's bytes, as they come: what is hashed and written on meanwhile is still in a core's cache.
    None = there is no such object. Raises StoreError, the iterator, too."""
    if isinstance(store, PrefixedStore):
        return stream(store.base, store.prefix + checked_key(key))
    if isinstance(store, ObstoreStore):
        return store.stream(key)
    data = store.get(key)
    return None if data is None else iter((data,))


def local_file(store: ObjectStore, key: str) -> Path | None:
    """Where ``key`` lies, or would, if ``store`` is a folder of this host; None: it is none, or names the
    object in another way there."""
    if isinstance(store, PrefixedStore):
        return local_file(store.base, store.prefix + key)
    if not isinstance(store, ObstoreStore) or store.folder is None or not _PLAIN.fullmatch(key):
        return None
    return store.folder / checked_key(key)


def folder_under(store: ObjectStore) -> Path | None:
    """The folder that ``store`` is, or is a part of, if it can be written without the store's help: it is on
    this host, and nothing is to be synced."""
    if isinstance(store, PrefixedStore):
        return folder_under(store.base)
    return store.folder if isinstance(store, ObstoreStore) and not store.durable else None


def sub(store: ObjectStore, prefix: str) -> ObjectStore:
    """The part of ``store`` under ``prefix``; keys are relative to it."""
    if not prefix.strip("/"):
        return store
    if isinstance(store, PrefixedStore):
        return PrefixedStore(store.base, store.prefix + prefix)
    return PrefixedStore(store, prefix)


class PrefixedStore:
    """A store's prefix as a store of its own."""

    def __init__(self, base: ObjectStore, prefix: str) -> None:
        self.base = base
        self.prefix = checked_key(prefix.strip("/")) + "/"
        encoded = quote(self.prefix) if base.uri.startswith("file:") else self.prefix
        self._uri = f"{base.uri.rstrip('/')}/{encoded.rstrip('/')}"

    @property
    def uri(self) -> str:
        return self._uri

    def create(self, key: str, data: bytes) -> bool:
        return self.base.create(self.prefix + checked_key(key), data)

    def put(self, key: str, data: bytes) -> None:
        self.base.put(self.prefix + checked_key(key), data)

    def get(self, key: str) -> bytes | None:
        return self.base.get(self.prefix + checked_key(key))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        checked_prefix(prefix)
        start = self.prefix + after if after else ""
        for info in self.base.list(self.prefix + prefix, after=start):
            yield ObjectInfo(key=info.key[len(self.prefix) :], size=info.size, modified_s=info.modified_s)

    def delete(self, keys: Sequence[str]) -> None:
        self.base.delete([self.prefix + checked_key(key) for key in keys])


class ObstoreStore:
    """The port over one obstore client. Safe to share between threads; not across ``fork``."""

    def __init__(self, uri: str, client: Any, *, folder: Path | None = None, durable: bool = False) -> None:
        self._uri = uri
        self._client = client
        self.folder = folder
        self.durable = durable and folder is not None
        self._absent_s: dict[str, float] = {}
        """Key → when a list did not have it (monotonic)."""

    @property
    def uri(self) -> str:
        return self._uri

    def create(self, key: str, data: bytes) -> bool:
        return self._write(key, data, "create")

    def put(self, key: str, data: bytes) -> None:
        self._write(key, data, "overwrite")

    def _write(self, key: str, data: bytes, mode: str) -> bool:
        from obstore.exceptions import AlreadyExistsError

        checked_key(key)
        self._there()
        try:
            # one request, never a multipart upload: it is atomic, and leaves nothing behind
            self._client.put(key, data, mode=mode, use_multipart=False)
        except AlreadyExistsError:
            return False
        except Exception as error:
            raise self._mapped(error, "write", key) from error
        if self.durable:
            self._sync(key)
        return True

    def _there(self) -> None:
        """A disk that has been unmounted is away, not empty: nothing is to be believed of the folder
        under it, nor written there. Raises StoreError."""
        if self.folder is not None and not self.folder.is_dir():
            raise StoreError(f"there is no object store at {self._uri} any more", hint=_ASK)

    def get(self, key: str) -> bytes | None:
        found = self._opened(key)
        if found is None:
            return None
        try:
            return bytes(found.bytes())
        except Exception as error:
            raise self._mapped(error, "read", key) from error

    def stream(self, key: str) -> Iterator[Buffer] | None:
        found = self._opened(key)
        return None if found is None else self._pieces(found, key)

    def _opened(self, key: str) -> Any:
        """obstore's result of a request that has been answered; None: there is no such object."""
        checked_key(key)
        try:
            return self._client.get(key)
        except FileNotFoundError:
            self._there()
            return None
        except Exception as error:
            if type(error).__name__ == "PermissionDeniedError" and self._hidden(key):
                return None
            raise self._mapped(error, "read", key) from error

    def _pieces(self, found: Any, key: str) -> Iterator[Buffer]:
        try:
            for piece in found.stream(min_chunk_size=CACHED_BYTES):
                yield memoryview(piece)
        except Exception as error:
            raise self._mapped(error, "read", key) from error

    def _hidden(self, key: str) -> bool:
        """S3 answers 403 for an object that is not there, to whoever may list a part of the bucket only. A
        list tells the one from the other; of this key it is believed for a while, since lists cost more."""
        now_s = time.monotonic()
        if now_s - self._absent_s.get(key, -math.inf) <= LIST_AGAIN_S:
            return True
        try:
            if any(info.key == key for info in self.list(key, after=key[:-1])):
                return False
        except ArylError:
            return False
        if not _NEVER_ABSENT.search(key):
            kept = {k: at_s for k, at_s in self._absent_s.items() if now_s - at_s <= LIST_AGAIN_S}
            self._absent_s = {**kept, key: now_s}  # a new one: other threads may be reading
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        checked_prefix(prefix)
        # obstore's prefixes are whole segments, and a local folder comes in no order
        folder = prefix.rpartition("/")[0] or None
        try:
            found = [
                ObjectInfo(key=m["path"], size=m["size"], modified_s=m["last_modified"].timestamp())
                for batch in self._client.list(folder, offset=after or None)
                for m in batch
                if m["path"].startswith(prefix) and m["path"] > after and not is_temporary(m["path"])
            ]
        except FileNotFoundError:
            found = []
        except Exception as error:
            raise self._mapped(error, "list", prefix) from error
        if not found:
            self._there()
        found.sort(key=lambda info: info.key)
        yield from found

    def delete(self, keys: Sequence[str]) -> None:
        names = [checked_key(key) for key in keys]
        try:
            if names:
                self._client.delete(names)
        except FileNotFoundError:
            # a bulk delete may stop at the first missing one
            for name in names:
                self._delete_one(name)
        except Exception as error:
            raise self._mapped(error, "delete", names[0]) from error

    def _delete_one(self, key: str) -> None:
        try:
            self._client.delete(key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._mapped(error, "delete", key) from error

    def _sync(self, key: str) -> None:
        assert self.folder is not None
        path = self.folder / key
        try:
            for target in (path, path.parent):
                handle = os.open(target, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        except OSError as error:
            raise self._mapped(error, "sync", key) from error

    def _mapped(self, error: Exception, verb: str, key: str) -> ArylError:
        return map_error(error, f"cannot {verb} {key} in {self._uri}")


def map_error(error: Exception, what: str) -> ArylError:
    """The one table from obstore's and the OS's errors to ours; the message stays one line."""
    text = str(error).partition("\n")[0].strip()
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    named = "PermissionDeniedError" if _REFUSED.search(str(error)) else type(error).__name__
    kind, hint = _BY_ERRNO.get(number or 0) or _BY_CLASS.get(named) or (StoreError, _ASK)
    reason = os.strerror(number) if number is not None else text[:300]
    return kind(f"{what}: {reason}", hint=hint, code=type(error).__name__)


def unreadable(error: OSError, what: str) -> ArylError:
    """Of files that are to be sent. Where a file itself is at fault (a bad sector, somebody else's), no
    waiting mends it: IntegrityError. Anything else is the host's, and passes: StoreError, as the table says.
    """
    if error.errno in _OF_THE_FILE:
        return IntegrityError(f"{what}: {os.strerror(error.errno or 0)}", hint="see the machine's disk")
    return map_error(error, what)


def sweep_partials(store: ObjectStore, *, now_s: float, older_than_s: float = 86400.0) -> int:
    """Remove what killed writers left in a ``file://`` store; returns how many files. Other stores
    keep nothing of the kind. Younger files may be somebody's write under way."""
    if not store.uri.startswith("file:"):
        return 0
    removed = 0
    for folder, _, names in os.walk(file_path(store.uri)):
        for name in filter(is_temporary, names):
            path = Path(folder, name)
            try:
                if path.stat().st_mtime < now_s - older_than_s:
                    path.unlink()
                    removed += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                raise map_error(error, f"cannot remove {path}") from error
    return removed


def _open_local(uri: str, *, create: bool, durable: bool) -> ObjectStore:
    from obstore.store import LocalStore

    folder = file_path(uri)
    try:
        if create:
            # parents with the user's umask, the store itself private: it may hold secrets.json
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise StoreError(f"there is no object store at {uri}", hint="check the address")
        return ObstoreStore(file_uri(folder), LocalStore(folder), folder=folder, durable=durable)
    except OSError as error:
        raise map_error(error, f"cannot open the object store {uri}") from error


def _open_remote(uri: str, options: dict[str, Any]) -> ObjectStore:
    from arylcloud.checkpoint.remote import client_of

    address = address_of(uri)
    try:
        return ObstoreStore(address.uri, client_of(address, options))
    except ArylError:
        raise
    except Exception as error:
        raise map_error(error, f"cannot open the object store {uri}") from error
