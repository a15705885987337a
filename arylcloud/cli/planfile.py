"""A plan on disk: what ``plan -o`` writes and ``launch plan.json`` reads, with a digest over it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arylcloud.core.codec import SCHEMA_VERSION, decode, dumps, encode, parse
from arylcloud.core.errors import IntegrityError, LocalStateError, UsageError

if TYPE_CHECKING:
    from arylcloud.core.plan import Plan

KIND = "arylcloud-plan"


def digest(plan: Plan) -> str:
    """sha256 (hex) of the plan's canonical bytes."""
    return hashlib.sha256(dumps(plan)).hexdigest()


def save_plan(plan: Plan, path: Path) -> None:
    """LocalStateError: it cannot be written."""
    document = {"schema_version": SCHEMA_VERSION, "kind": KIND, "digest": digest(plan), "plan": encode(plan)}
    write_document(document, path)


def write_document(document: dict[str, Any], path: Path) -> None:
    """Written beside and renamed: a reader sees the old file or the new one, never half of it. A device or a
    pipe is written to as it is: a rename would put a file in its place. LocalStateError: it cannot be."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    part: Path | None = None
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_text(text, "utf-8")
            return
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(text, "utf-8")
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise LocalStateError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="name a file in a folder that can be written",
        ) from error


def load_plan(path: Path) -> Plan:
    """UsageError: no such file, no plan, a newer schema. IntegrityError: changed since it was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file", hint="`arylcloud plan JOB -o plan.json` writes one"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror or error}", hint="name a plan file"
        ) from error
    try:
        return _checked(parse(data, what=str(path)), path)
    except IntegrityError as error:
        raise IntegrityError(error.message, hint="plan again: `arylcloud plan JOB -o plan.json`") from error


def _checked(document: Any, path: Path) -> Plan:
    from arylcloud.core.plan import Plan

    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UsageError(f"{path} is no plan", hint="`arylcloud plan JOB -o plan.json` writes one")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema {document.get('schema_version')}, this version reads {SCHEMA_VERSION}",
            hint="plan again",
        )
    plan = decode(Plan, document.get("plan"), where=f"{path}: plan")
    if digest(plan) != document.get("digest"):
        raise IntegrityError(f"{path} has been changed since it was written: its digest does not hold")
    return plan
