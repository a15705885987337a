"""What the boot stub tells the agent, through the environment.

ARYL_PREFIX_URI      the job's prefix: the mailbox
ARYL_JOB_ID  ARYL_LEASE_ID  ARYL_JOURNAL_ID
ARYL_UNTIL_S         wall seconds: end of the lease, unless a launcher renews it
ARYL_METADATA        protocol of the notices: ``ec2`` (default), ``gce``, ``azure`` or ``none``
ARYL_METADATA_URL    its endpoint; ARYL_METADATA_POLL_S how often to ask; ARYL_METADATA_LEAD_S from notice to
                     end, where it is another than that cloud's usual time
ARYL_STORE_OPTIONS   JSON: how a bucket is opened, without credentials (``agent/opening.py``)
ARYL_GPUS, ARYL_GPU  how many GPUs this machine must have, and which (canonical name)
ARYL_CHECK_GPUS      ``1``: they are looked at before work begins; ``own``: as far as the user's own machine
                     can tell; absent = not at all
ARYL_CHECKPOINTS     ``memory``: local checkpoints lie in /dev/shm; absent = on the disk
ARYL_LINGER_S        idle without a launcher for this long, the machine ends itself
ARYL_POWEROFF        shell command by which the stub ends the machine; absent = its exit does
ARYL_CLOUD_INIT      cloud-init's folder, where that runs the stub at the first boot only: at any later one
                     the machine ends; absent = the cloud runs it at each, or never boots a machine again
ARYL_USER_PYTHONPATH the image's own PYTHONPATH, for the user's processes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arylcloud.agent import inmemory
from arylcloud.core.errors import UsageError

LENT_FILE = "lent.json"
"""In the machine's folder: the first credentials that were lent to it, from the boot stub."""
EC2_METADATA_URL = "http://169.254.169.254"
PRIVATE = frozenset(
    {
        "ARYL_STORE_URI",
        "ARYL_PREFIX_URI",
        "ARYL_JOURNAL_ID",
        "ARYL_UNTIL_S",
        "ARYL_METADATA",
        "ARYL_METADATA_URL",
        "ARYL_METADATA_POLL_S",
        "ARYL_METADATA_LEAD_S",
        "ARYL_GPUS",
        "ARYL_GPU",
        "ARYL_CHECK_GPUS",
        "ARYL_CHECKPOINTS",
        "ARYL_LINGER_S",
        "ARYL_POWEROFF",
        "ARYL_CLOUD_INIT",
        "ARYL_USER_PYTHONPATH",
        "ARYL_RUNTIME_SHA256",
        "ARYL_RUNTIME_URL",
        "ARYL_BOOT_URL",
        "ARYL_STORE_OPTIONS",
        "ARYL_BOOT_LOG_DIR",
        "PYTHONPATH",
    }
)
"""Ours: the user's processes do not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    prefix_uri: str
    job_id: str
    lease_id: str
    journal_id: str
    until_s: float | None
    home: Path
    """The machine's own folder: workdir, checkpoints, logs lie in it."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """What the machine itself sets: the base of the user's environment."""
    metadata: str = "ec2"
    metadata_url: str = EC2_METADATA_URL
    metadata_poll_s: float = 1.0
    metadata_lead_s: float | None = None
    gpus: int | None = None
    gpu: str | None = None
    check_gpus: str = ""
    in_memory: bool = False
    """Local checkpoints are to lie in memory, if this host can."""
    linger_s: float = 600.0
    store_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def pace(self) -> float:
        """How much slower than on a local folder the mailbox is polled: every request to a bucket
        costs money (at AWS's tariff, all of an agent's together come to about half a dollar a day)."""
        return 1.0 if self.prefix_uri.startswith("file:") else 3.0

    @property
    def workdir(self) -> Path:
        return self.home / "workdir"

    @property
    def memory(self) -> Path | None:
        return inmemory.folder_of(self.lease_id) if self.in_memory else None

    @property
    def checkpoints(self) -> Path:
        return (self.memory or self.home) / "checkpoints"

    @property
    def scratch(self) -> Path:
        """Ours: spooled logs, the notice, the progress file."""
        return self.home / "agent"

    @property
    def notice_file(self) -> Path:
        return self.scratch / "notice.json"

    @property
    def warning_file(self) -> Path:
        return self.scratch / "warning.json"

    @property
    def advice_file(self) -> Path:
        return self.scratch / "advice.json"

    @property
    def warm_dir(self) -> Path:
        """Where a script finds the server of warm interpreters (``agent/warmth.py``)."""
        return self.scratch / "warm"


def from_environment(environ: Mapping[str, str], home: Path) -> Config:
    """Raises UsageError that names the variable which is missing or is no number."""
    url = environ.get("ARYL_METADATA_URL")
    # of 30 s every second counts, and every cloud's service takes far more questions than this
    default_poll_s = 1.0 if url is None else 0.5
    return Config(
        prefix_uri=_required(environ, "ARYL_PREFIX_URI"),
        job_id=_required(environ, "ARYL_JOB_ID"),
        lease_id=_required(environ, "ARYL_LEASE_ID"),
        journal_id=environ.get("ARYL_JOURNAL_ID", ""),
        until_s=_number(environ, "ARYL_UNTIL_S"),
        home=home,
        environ=dict(environ),
        metadata=environ.get("ARYL_METADATA") or "ec2",
        metadata_url=(url or EC2_METADATA_URL).rstrip("/"),
        metadata_poll_s=_number(environ, "ARYL_METADATA_POLL_S", default_poll_s) or default_poll_s,
        metadata_lead_s=_number(environ, "ARYL_METADATA_LEAD_S"),
        gpus=_whole(environ, "ARYL_GPUS"),
        gpu=environ.get("ARYL_GPU") or None,
        check_gpus=environ.get("ARYL_CHECK_GPUS") or "",
        in_memory=environ.get("ARYL_CHECKPOINTS") == "memory",
        linger_s=_number(environ, "ARYL_LINGER_S", 600.0) or 0.0,
        store_options=_texts(environ, "ARYL_STORE_OPTIONS"),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise UsageError(f"{name} is not set", hint="the agent is started by the boot stub of its machine")
    return value


def _texts(environ: Mapping[str, str], name: str) -> dict[str, str]:
    try:
        found = json.loads(environ.get(name) or "{}")
    except ValueError as error:
        raise UsageError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError(f"{name}: an object of texts was expected")
    return found


def _number(environ: Mapping[str, str], name: str, default: float | None = None) -> float | None:
    text = environ.get(name)
    if not text:
        return default
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}: a number was expected") from error


def _whole(environ: Mapping[str, str], name: str) -> int | None:
    value = _number(environ, name)
    return None if value is None else int(value)
