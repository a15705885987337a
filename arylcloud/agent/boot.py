"""From a bare machine to a ready one: the job's document, its files, a look at the GPUs, ``setup``."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from arylcloud.agent import environment
from arylcloud.agent.config import Config
from arylcloud.agent.gpucheck import Wanted, check_gpus
from arylcloud.agent.process import Command, shell_argv
from arylcloud.agent.shipper import TAIL_BYTES, Stream, one_line
from arylcloud.checkpoint.digests import sha256
from arylcloud.core.codec import loads, parse
from arylcloud.core.errors import ArylError, IntegrityError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import JOB_KEY, SECRETS_KEY, AgentPhase, JobDoc, workdir_key

WORKDIR_BYTES = 20 << 30
"""Unpacked: more is not a workdir but a data set, or an attack."""
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """How far this machine is. BROKEN: ``problem`` says why; with ``exit_code``, the job's own
    ``setup`` failed, and would on any other machine."""

    phase: AgentPhase = AgentPhase.BOOTING
    problem: str | None = None
    exit_code: int | None = None
    setup_tail: str = ""
    """The last words of a ``setup`` that failed, without ours among them."""
    job: JobDoc | None = None
    secrets: dict[str, str] | None = None


class Boot(threading.Thread):
    """Runs once. Everything that waits (for the store, for ``setup``) waits in this thread."""

    def __init__(self, store: ObjectStore, config: Config, stream: Stream, *, log: Callable[[str], None]):
        super().__init__(name="boot", daemon=True)
        self._store = store
        self._config = config
        self._stream = stream
        self._log = log
        self._lock = threading.Lock()
        self._state = Booted()
        self._setup: Command | None = None
        self._halt = threading.Event()

    @property
    def state(self) -> Booted:
        with self._lock:
            return self._state

    def stop(self) -> None:
        """The machine is not wanted any more: ``setup`` is ended, too."""
        self._halt.set()
        if self._setup is not None:
            self._setup.kill()

    def run(self) -> None:
        try:
            self._boot()
        except ArylError as error:
            self._broken(error.message)
        except Exception as error:  # noqa: BLE001 - this machine is of no use; the launcher must know
            self._broken(f"this machine could not be prepared: {one_line(error)}")

    def _boot(self) -> None:
        job = loads(JobDoc, self._patiently(JOB_KEY), what=JOB_KEY)
        if job.job_id != self._config.job_id:
            raise IntegrityError(
                f"{JOB_KEY} is of {job.job_id}, this machine was made for {self._config.job_id}"
            )
        self._set(Booted(phase=AgentPhase.SETUP, job=job))
        if self._config.gpus and self._config.check_gpus:
            own_host = self._config.check_gpus == "own"
            self._log(check_gpus(Wanted(count=self._config.gpus, gpu=self._config.gpu, own_host=own_host)))
        unpack_workdir(self._workdir(job), self._config.workdir)
        secrets = self._secrets(job)
        self._set(Booted(phase=AgentPhase.SETUP, job=job, secrets=secrets))
        if job.spec.setup:
            env = environment.base(self._config, job.spec, secrets)
            self._log("running setup")
            said = bytearray()

            def output(data: bytes) -> None:
                self._stream.write(data)
                said.extend(data)
                del said[:-TAIL_BYTES]

            self._setup = Command(
                shell_argv(job.spec.setup, self._config.scratch),
                cwd=self._config.workdir,
                env=env,
                output=output,
                secrets=secrets.values(),
            )
            code = self._setup.wait()
            if code != 0 and not self._halt.is_set():
                problem = f"setup failed with exit code {code}"
                self._log(problem)
                tail = said.decode(errors="replace")
                self._set(
                    Booted(phase=AgentPhase.BROKEN, problem=problem, exit_code=code, setup_tail=tail, job=job)
                )
                return
        self._set(Booted(phase=AgentPhase.READY, job=job, secrets=secrets))
        self._log("ready")

    def _workdir(self, job: JobDoc) -> bytes | None:
        if job.workdir_sha256 is None:
            return None
        key = workdir_key(job.workdir_sha256)
        data = self._patiently(key)
        if sha256(data) != job.workdir_sha256:
            raise IntegrityError(f"{key} is damaged: its digest does not hold")
        return data

    def _secrets(self, job: JobDoc) -> dict[str, str]:
        """Into the commands' environment only: never to disk, never to a log (see ``agent/mask.py``)."""
        if not job.spec.secret_names:
            return {}
        document = parse(self._patiently(SECRETS_KEY), what=SECRETS_KEY)
        if not isinstance(document, dict):
            raise IntegrityError(f"{SECRETS_KEY}: an object was expected")
        missing = [name for name in job.spec.secret_names if name not in document]
        if missing:
            raise IntegrityError(f"{SECRETS_KEY} lacks {', '.join(missing)}")
        return {str(name): str(document[name]) for name in job.spec.secret_names}

    def _patiently(self, key: str) -> bytes:
        """An outage is waited for. An object that is not there after a minute never will be."""
        missing = 0
        wait_s = 0.5
        while not self._halt.is_set():
            try:
                data = self._store.get(key)
                if data is not None:
                    return data
                missing += 1
                if missing > 60:
                    raise IntegrityError(f"{key} is not in the mailbox")
                self._halt.wait(1.0)
            except StoreError as error:
                self._log(f"waiting for the store: {error.message}")
                self._halt.wait(wait_s)
                wait_s = min(10.0, wait_s * 2)
        raise IntegrityError(f"{key} was not read: this machine is ending")

    def _broken(self, problem: str) -> None:
        self._log(problem)
        with self._lock:
            job = self._state.job
        self._set(Booted(phase=AgentPhase.BROKEN, problem=problem, job=job))

    def _set(self, state: Booted) -> None:
        with self._lock:
            self._state = state


def unpack_workdir(data: bytes | None, target: Path) -> None:
    """``data`` (tar.gz; None: no files) becomes the folder ``target``, by one rename.

    Raises IntegrityError for an archive that would leave the folder, holds devices, or is too big.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    if data is not None:
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
                members = _vetted(archive)
                if sum(member.size for member in members) > WORKDIR_BYTES:
                    raise IntegrityError(f"the workdir is larger than {WORKDIR_BYTES >> 30} GiB unpacked")
                archive.extractall(partial, members=members, **_FILTER)  # noqa: S202 - vetted, see there
        except (tarfile.TarError, EOFError, OSError, KeyError) as error:  # KeyError: a link to nothing
            raise IntegrityError(f"the workdir cannot be unpacked: {one_line(error)}") from error
    if target.exists():
        shutil.rmtree(target)
    partial.rename(target)


def _vetted(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """All members. Python has judged them itself since 3.11.4 only, and Debian 12 has 3.11.2. Raises
    IntegrityError: one leaves the folder, goes by way of a link, or is neither file nor folder nor link."""
    found: list[tarfile.TarInfo] = []
    links: set[PurePosixPath] = set()
    for member in archive:
        path = PurePosixPath(member.name)
        ways, passed = [path], {path, *path.parents}
        if member.issym():  # from where it stands; a hard link, from the archive's top
            ways.append(PurePosixPath(os.path.normpath(path.parent / member.linkname)))
        elif member.islnk():
            ways.append(PurePosixPath(member.linkname))
            passed |= {ways[1], *ways[1].parents}
        plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
        leaves = any(way.is_absolute() or ".." in way.parts for way in ways)
        if not plain or leaves or links & passed:
            raise IntegrityError(f"the workdir holds the unsafe name {member.name!r}")
        if member.issym():
            links.add(path)
        member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
        found.append(member)
    return found
