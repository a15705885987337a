"""Manifests: sealed when written, checked when read. A manifest that passes here can be trusted
with file names and sizes; what it names is checked chunk by chunk at restore."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arylcloud.checkpoint.chunks import MAX_CHUNK_BYTES, storable
from arylcloud.checkpoint.digests import sha256
from arylcloud.core.codec import SCHEMA_VERSION, decode, dumps, encode, parse
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.protocol import MANIFESTS_PREFIX, ChunkRef, FileEntry, Manifest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(re.escape(MANIFESTS_PREFIX) + r"e(\d{6,})-(\d{6,})\.json")


MAX_BYTES = 512 << 20
"""Of a manifest: some 26 TB of chunks."""
MAX_FILES = 1_000_000


def seal(manifest: Manifest) -> Manifest:
    """With ``digest`` filled in: sha256 over the canonical bytes with ``digest`` empty."""
    return replace(manifest, digest=digest_of(encode(manifest)))


def manifest_bytes(manifest: Manifest) -> bytes:
    return dumps(manifest)


def parse_manifest(data: bytes, *, key: str, job_id: str | None = None) -> Manifest:
    """The manifest in ``data``, or IntegrityError that names ``key``: not canonical JSON, a digest that
    does not hold, another job's or another key's manifest, a newer schema, an unsafe file name,
    sizes that do not add up."""
    manifest = decode(Manifest, checked_document(data, key=key), where=key)
    if manifest.key != key:
        raise IntegrityError(f"{key} holds the manifest {manifest.key}")
    if job_id is not None and manifest.job_id != job_id:
        raise IntegrityError(f"{key} belongs to job {manifest.job_id}, not to {job_id}")
    _check(manifest, key)
    return manifest


def checked_document(data: bytes, *, key: str) -> dict[str, Any]:
    """The sealed JSON object in ``data``; IntegrityError as :func:`parse_manifest` has it."""
    if len(data) > MAX_BYTES:
        raise IntegrityError(f"{key} has {len(data)} bytes: no manifest of ours is that long")
    document = parse(data, what=key)
    if not isinstance(document, dict):
        raise IntegrityError(f"{key} is not a manifest")
    # the digest covers the document as it was written, keys of a newer writer included; comparing
    # bytes as well refuses another spelling of the same values: no flipped byte passes
    if document.get("digest") != digest_of(document) or _canonical(document) != data:
        raise IntegrityError(f"{key} is damaged: its digest does not hold")
    version = document.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise IntegrityError(
            f"{key} has schema {version!r}, this arylcloud reads up to {SCHEMA_VERSION}",
            hint="upgrade arylcloud",
            code="schema",
        )
    return document


def read_manifest(store: ObjectStore, key: str, *, job_id: str | None = None) -> Manifest:
    """See :func:`parse_manifest`; a missing one is an IntegrityError, too. StoreError = try again."""
    data = store.get(key)
    if data is None:
        raise IntegrityError(f"{key} is missing", code="missing")
    return parse_manifest(data, key=key, job_id=job_id)


def list_manifests(store: ObjectStore, after: str = "") -> tuple[str, ...]:
    """Keys of all manifests greater than ``after``, by epoch, then number. Not read, not checked."""
    return tuple(info.key for info in listed_manifests(store, after=after))


def listed_manifests(store: ObjectStore, after: str = "") -> tuple[ObjectInfo, ...]:
    """The same, as listed: with the store's own time of each."""
    return tuple(info for info in store.list(MANIFESTS_PREFIX, after=after) if _KEY.fullmatch(info.key))


def next_number(store: ObjectStore, epoch: int) -> int:
    """The number after the highest that ``epoch`` has used: where an agent that was restarted goes on."""
    used = [
        int(match[2])
        for info in store.list(f"{MANIFESTS_PREFIX}e{epoch:06d}-")
        if (match := _KEY.fullmatch(info.key))
    ]
    return max(used, default=0) + 1


def storable_folder(name: str) -> bool:
    """May ``name`` be a checkpoint's folder? Names that begin with a dot are unfinished ones."""
    return storable(name) and "/" not in name and not name.startswith(".")


def well_formed(chunk: ChunkRef) -> bool:
    return all(d is None or _DIGEST.fullmatch(d) for d in (chunk.sha256, chunk.blake3))


def digest_of(document: dict[str, Any]) -> str:
    """sha256 over the canonical bytes with ``digest`` empty."""
    return sha256(_canonical({**document, "digest": ""}))


def _canonical(document: Any) -> bytes:
    try:
        return json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except ValueError:  # NaN, infinities, lone surrogates: no bytes of ours
        return b""


def _check(manifest: Manifest, key: str) -> None:
    if not storable_folder(manifest.directory):
        raise IntegrityError(f"{key}: {manifest.directory!r} is not the name of a checkpoint's folder")
    check_files(manifest.files, key)
    if manifest.total_bytes != sum(file.size for file in manifest.files):
        raise IntegrityError(f"{key}: the sizes of its files do not add up to {manifest.total_bytes}")


def check_files(files: Sequence[FileEntry], key: str) -> None:
    """IntegrityError for what no restore could or should lay down."""
    if len(files) > MAX_FILES:
        raise IntegrityError(f"{key} names {len(files)} files, more than {MAX_FILES}")
    seen: set[str] = set()
    folders: set[str] = set()
    for file in files:
        _check_file(file, key)
        seen.add(file.path)
        segments = file.path.split("/")
        folders.update("/".join(segments[:depth]) for depth in range(1, len(segments)))
    if len(seen) != len(files) or seen & folders:
        raise IntegrityError(f"{key} names a file twice")


def _check_file(file: FileEntry, key: str) -> None:
    if not storable(file.path):
        raise IntegrityError(f"{key}: {file.path!r} is not a safe file name")
    if not 0 <= file.mode <= 0o777:
        raise IntegrityError(f"{key}: {file.path} has the mode {file.mode:o}")
    for chunk in file.chunks:
        if not well_formed(chunk) or not 0 < chunk.size <= MAX_CHUNK_BYTES:
            raise IntegrityError(f"{key}: {file.path} has a chunk that cannot be")
    if file.size != sum(chunk.size for chunk in file.chunks):
        raise IntegrityError(f"{key}: the chunks of {file.path} do not add up to {file.size} bytes")
