"""Names that both sides can derive, so that nothing is created twice and nothing is unknown."""

from __future__ import annotations

import hashlib
import re
import secrets

_NAME = re.compile(r"[^a-z0-9]+")
_JOB_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?-[0-9a-f]{8}")


def new_job_id(name: str) -> str:
    """Durable identity of a job: its name made safe for every cloud's tags, and 8 random hex digits."""
    safe = _NAME.sub("-", name.lower()).strip("-")[:40].rstrip("-") or "job"
    return f"{safe}-{secrets.token_hex(4)}"


def is_job_id(text: str) -> bool:
    """Whether :func:`new_job_id` can have made it. An id becomes a file name, a tag and a key: one that
    somebody else has written (``job.json`` of a prefix, a flag) is asked this first.

    >>> is_job_id("my-gpt-1a2b3c4d"), is_job_id("../../x-1a2b3c4d"), is_job_id("my-gpt")
    (True, False, False)
    """
    return _JOB_ID.fullmatch(text) is not None


def new_journal_id() -> str:
    return secrets.token_hex(8)


def lease_id(job_id: str, index: int, attempt: int) -> str:
    """One lease = one attempt to hold one machine for slot ``index``; attempts count up per job."""
    return f"{job_id}-n{index}-a{attempt}"


def client_token(journal_id: str, lease: str, role: str = "machine") -> str:
    """The cloud's idempotency token: a pure function of what is wanted, known before the call."""
    digest = hashlib.sha256(f"{journal_id}|{lease}|{role}".encode()).hexdigest()
    return f"aryl-{digest[:32]}"
