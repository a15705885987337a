"""What launches that were cut short have left in a store: found by ``gc``, and cleared."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.pending import Pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    document: dict[str, Any]
    text: str


def clear(journal: Journal, launch: Pending, state_dir: Path, *, dryrun: bool) -> Left | None:
    """None: nothing was left, or the launch goes on at this moment.

    Cut off before its first record, there is no job: its objects are deleted. Cut off between that record's
    two copies, there is one, in its prefix: this journal takes it in. Raises StoreError, IntegrityError."""
    from arylcloud.core.protocol import journal_key
    from arylcloud.launcher.pending import forget

    if journal.claimed(launch.job_id):
        return None
    if journal.head(launch.job_id):
        forget(state_dir, launch.job_id)
        return None
    store = _there(launch.prefix_uri)
    keys = [] if store is None else [info.key for info in store.list("")]
    document = {"job_id": launch.job_id, "prefix_uri": launch.prefix_uri, "objects": len(keys)}
    if store is not None and journal_key(1) in keys:
        if not dryrun:
            journal.catch_up(launch.job_id, store)
            forget(state_dir, launch.job_id)
        text = (
            f"{launch.job_id} had been submitted when its launch was cut short\n"
            f"hint: `arylcloud resume {launch.job_id}` goes on with it, "
            f"`arylcloud stop {launch.job_id}` ends it"
        )
        return Left(document={**document, "submitted": True, "deleted": False}, text=text)
    if not dryrun:
        if store is not None:
            store.delete(keys)
            _remove_folders(launch.prefix_uri)
        forget(state_dir, launch.job_id)
    if not keys:
        return None
    done = "would be deleted" if dryrun else "deleted"
    text = f"the launch of {launch.job_id} was cut short: {len(keys)} objects in {launch.prefix_uri} {done}"
    return Left(document={**document, "submitted": False, "deleted": not dryrun}, text=text)


def _there(uri: str) -> ObjectStore | None:
    from arylcloud.checkpoint.store import file_path
    from arylcloud.cli.stores import open_uri

    if uri.startswith("file://") and not file_path(uri).is_dir():
        return None
    return open_uri(uri)


def _remove_folders(uri: str) -> None:
    """Empty ones, on a disk; one into which somebody writes meanwhile stays."""
    from arylcloud.checkpoint.store import file_path

    if uri.startswith("file://"):
        for folder, _, _ in os.walk(file_path(uri), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - of many, as os.walk names them
