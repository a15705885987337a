"""Writing a user's own profiles: whole files, replaced in one rename, read back before they count."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arylcloud.core.errors import LocalStateError, UsageError
from arylcloud.planner.profile_files import read_user_file

Row = Mapping[str, Any]
"""One measurement with the keys of a user's file (:mod:`.profile_files`)."""


def file_name(name: str) -> str:
    """A file's stem for a profile: letters, digits and dashes.

    >>> file_name("My GPT (batch 64)"), file_name("../..")
    ('my-gpt-batch-64', 'profile')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "profile"


def write(path: Path, profiles: Sequence[Mapping[str, Any]]) -> None:
    """``path`` holds exactly these, or is as before: UsageError where they do not read back as profiles,
    LocalStateError where the folder cannot be written."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LocalStateError(f"cannot make {path.parent}: {error.strerror or error}") from error
    try:
        text = json.dumps(list(profiles), indent=1, ensure_ascii=False, allow_nan=False)
        partial.write_text(text + "\n", encoding="utf-8")
        try:
            read_user_file(partial)
        except UsageError as error:
            message = error.message.replace(str(partial), path.name)
            raise UsageError(message, hint=error.hint) from error
        partial.replace(path)
    except OSError as error:
        raise LocalStateError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def record(folder: Path, name: str, unit: str, row: Row) -> Path:
    """Adds a measurement to the profile ``name`` in its own file; one of the same allocation, precision and
    batch is replaced. UsageError where the profile there has another unit."""
    path = folder / f"{file_name(name)}.json"
    profile: dict[str, Any] = {"name": name, "unit": unit, "measurements": []}
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8")) if read_user_file(path) else []
        kept = found if isinstance(found, list) else [found]
        if len(kept) != 1 or kept[0]["name"] != name:
            raise UsageError(f"{path} holds another profile", hint="choose another --name")
        profile = kept[0]
        if profile["unit"] != unit:
            raise UsageError(
                f"profile {name} in {path} is in {profile['unit']}, this is {unit}", hint="another --name"
            )
    same = ("gpu", "gpus", "nodes", "precision", "batch", "seq_len")
    rows = [r for r in profile["measurements"] if any(r.get(k) != row.get(k) for k in same)]
    write(path, [{**profile, "measurements": [*rows, dict(row)]}])
    return path
