"""Writes docs/exit-codes.md from core/errors.py, so that neither can say what the other does not.

python scripts/exit_codes.py            writes the page
python scripts/exit_codes.py --check    exits 1 if the page differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from arylcloud.core import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exit-codes.md"

REMEDY = {
    "usage": "Correct the flag, file or setting that the message names",
    "missing_extra": "Install the extra that the hint names: `pip install 'arylcloud[aws]'`",
    "local_state": "Free space, or set `ARYLCLOUD_HOME` to a folder that can be written",
    "infeasible": "Relax the constraint that the message names; it says by how much at least",
    "access": "Log in again, or grant the permission that the message names",
    "cloud": "See the finer kinds below",
    "capacity": "Name more zones, regions or GPU types, or try again later",
    "quota": "Ask the cloud for the quota that the message names, or use another region",
    "throttled": "Try again later: the same call will do",
    "store": "See that the object store can be reached and written",
    "other": "Read the cloud's own code in `error.code`",
    "conflict": "Another launcher works on this job: `arylcloud status`; or stop that one first",
    "integrity": "A digest, a document or a price does not hold; nothing was used of it",
    "outcome": "See the finer kinds below",
    "user_command": "The job's own command failed: `arylcloud logs`; its code is in `report.exit_code`",
    "not_finished": "It still runs: wait, or `arylcloud status`",
    "no_such_job": "`arylcloud status --all` lists the jobs of this journal",
    "cancelled": "It was stopped: `arylcloud resume` goes on from the last checkpoint",
    "over_budget": "It is used up: `arylcloud resume JOB --budget USD` (or `--max-runtime TIME`) goes on",
    "missed_deadline": "It finished, but late",
    "interrupted": "Ctrl-C: the job itself goes on, unless you chose to stop it",
    "bug": "Tell us: the lines above the message say where",
}


def tree(cls: type[errors.ArylError] = errors.ArylError) -> list[type[errors.ArylError]]:
    found = [cls]
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            found += tree(child)
    return found


def page() -> str:
    rows = []
    for cls in sorted(tree(), key=lambda c: c.exit_code):
        if cls in (errors.JobOutcome, errors.CloudError):
            continue  # never raised themselves: every cause has a class of its own
        rows.append(f"| {cls.exit_code} | `{cls.kind}` | {REMEDY[cls.kind]} |")
    return "\n".join(
        [
            "# Exit codes",
            "",
            "Made by `scripts/exit_codes.py` from `arylcloud/core/errors.py`; a test compares the two.",
            "",
            "Every command exits with one of these. With `--json` the same failure is one document on",
            "stdout: `{schema_version, error: {kind, code, message, hint, cause_id}}`; `code` is the cloud's",
            "own. Codes from 100 on say how a job ended; they are no fault of the tool.",
            "",
            "| code | `error.kind` | what to do |",
            "|---|---|---|",
            "| 0 | | Done |",
            *rows,
            "",
        ]
    )


def main() -> int:
    if "--check" in sys.argv:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
