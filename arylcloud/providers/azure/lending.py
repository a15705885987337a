"""``Lending`` on Azure: the job's own identity for its machines, signatures of its folder for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError
from arylcloud.core.stores import Grant, JobPrefix
from arylcloud.providers.azure import sas
from arylcloud.providers.azure.adapter import KNOWN
from arylcloud.providers.azure.bucket import AzureStorage
from arylcloud.providers.azure.client import Arm
from arylcloud.providers.azure.roles import Identities
from arylcloud.providers.settings import known_only

LONGEST_S: Final = 43_200.0
"""Azure would sign for a week; ours are to end soon."""
CLOCKS_DIFFER_S: Final = 300.0


def create(state_dir: Path, settings: Mapping[str, str]) -> AzureLending:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("azure", settings, KNOWN)
    arm = Arm(settings)
    return AzureLending(AzureStorage(arm, settings), Identities(arm, settings), settings)


class AzureLending:
    """Safe to use from several threads."""

    longest_s = LONGEST_S

    def __init__(self, storage: AzureStorage, identities: Identities, settings: Mapping[str, str]) -> None:
        self._storage = storage
        self._identities = identities
        self._theirs = settings.get("storage_identity")
        self._lock = threading.Lock()
        self._made: dict[str, str] = {}

    def identity(self, job: JobPrefix) -> str | None:
        if self._theirs is not None:  # the company's own, and its own affair what it reaches
            return self._theirs
        with self._lock:
            if job.job_id not in self._made:
                self._made[job.job_id] = self._identities.make(job, self._account(job))
            return self._made[job.job_id]

    def lend(self, job: JobPrefix, for_s: float) -> Grant:
        """A signature of the job's folder, of a key that is the user's."""
        account = self._storage.account(job.address)
        now_s = time.time()
        end_s = now_s + min(for_s, LONGEST_S)
        signature = sas.of_folder(
            self._storage.key(account),
            account,
            job.address.bucket,
            job.address.prefix,
            start_s=now_s - CLOCKS_DIFFER_S,
            end_s=end_s,
        )
        return Grant(secret={"sas_token": signature}, expires_s=float(int(end_s)))

    def revoke(self, job: JobPrefix) -> None:
        """(What has been signed ends by itself.)"""
        if self._theirs is not None:
            return
        with self._lock:
            self._made.pop(job.job_id, None)
        self._identities.forget(job, self._account(job))

    def _account(self, job: JobPrefix) -> Mapping[str, Any]:
        name = self._storage.account(job.address)
        found = self._storage.find(name)
        if found is None:
            raise AccessError(
                f"azure: the storage account {name} is not in this subscription, so that no machine can be "
                "let into it",
                hint="[azure] storage_identity, or an account of this subscription",
            )
        return found
