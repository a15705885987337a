"""Launches under way, written down before anything of them lies in a store: what a cut-short one has left is
found by ``gc``. One small file each, beside the journal, gone once the journal has the job."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import LocalStateError
from arylcloud.core.tokens import is_job_id

FOLDER = "submitting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    job_id: str
    prefix_uri: str


@contextlib.contextmanager
def pending(state_dir: Path, job_id: str, prefix_uri: str) -> Iterator[None]:
    """While the block runs, and after it unless it returned: a launch that fails may have left something.
    Raises LocalStateError before the block if it cannot be written down."""
    path = state_dir / FOLDER / f"{job_id}.json"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(json.dumps({"job_id": job_id, "prefix_uri": prefix_uri}))
    except OSError as error:
        raise LocalStateError(f"cannot write {path}: {error.strerror or error}") from error
    yield
    path.unlink(missing_ok=True)


def found(state_dir: Path) -> tuple[Pending, ...]:
    """In order of job id. A file that is cut short belongs to a launch that had not begun yet."""
    result = []
    for path in sorted((state_dir / FOLDER).glob("*.json")):
        try:
            document = json.loads(path.read_text())
            one = Pending(job_id=str(document["job_id"]), prefix_uri=str(document["prefix_uri"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
            continue
        if is_job_id(one.job_id) and one.prefix_uri.endswith(f"/{one.job_id}"):
            result.append(one)
    return tuple(result)


def forget(state_dir: Path, job_id: str) -> None:
    (state_dir / FOLDER / f"{job_id}.json").unlink(missing_ok=True)
