"""Two homes and one mailbox on disk, without a process or a cloud: who may write what, and where."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from arylcloud.checkpoint.store import file_path, open_store
from arylcloud.cli.settings import Folders, folders
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.job import JobSpec, Resources
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.state import JobState

JOB = "gpt-0a1b2c3d"
SPEC = JobSpec(name="gpt", run="true", resources=Resources(clouds=("local",)))


@dataclass
class Shared:
    """A job's prefix at ``root/store/jobs/JOB``, and homes around it."""

    root: Path
    spec: JobSpec = SPEC
    queued: bool = False

    @property
    def folder(self) -> Path:
        return self.root / "store" / "jobs" / JOB

    def store(self) -> ObjectStore:
        return open_store(self.folder.as_uri())

    def home(self, name: str) -> Folders:
        return folders({"ARYLCLOUD_HOME": str(self.root / name)})

    def journal(self, name: str) -> Journal:
        place = self.home(name)
        place.state.mkdir(parents=True, exist_ok=True)
        return Journal(place.journal)

    def submit(self, name: str) -> None:
        with self.journal(name) as journal:
            store = self.store()
            doc = mail.JobDoc(job_id=JOB, journal_id=journal.journal_id, spec=self.spec, submitted_s=1.0)
            assert store.create(mail.JOB_KEY, dumps(doc))
            event = ev.JobSubmitted(
                spec=self.spec,
                prefix_uri=store.uri,
                journal_id=journal.journal_id,
                market_origin_s=0.0,
                market_scale=1.0,
                queued=self.queued,
            )
            journal.append(JOB, 1.0, f"cli-{name}", event, mirror=store)

    def say(self, name: str, *found: ev.Event) -> None:
        """``name``'s launcher journals these, having read what is there."""
        with self.journal(name) as journal:
            journal.catch_up(JOB, self.store())
            for event in found:
                journal.append(JOB, time.time(), f"l-{name}", event, mirror=self.store())

    def started(self, name: str) -> None:
        with self.journal(name) as journal:
            home = journal.journal_id
        self.say(name, ev.LauncherStarted(launcher_id=f"l-{name}", host="h", pid=1, home=home))

    def phase(self, name: str, phase: JobPhase, code: str = "x") -> None:
        self.say(name, ev.JobPhaseChanged(phase=phase, code=code, text=code))

    def beat(self, name: str, age_s: float = 0.0) -> None:
        beat = mail.LauncherBeat(launcher_id=f"l-{name}", host="h", pid=1, at_s=time.time() - age_s)
        store = self.store()
        store.put(mail.LAUNCHER_KEY, dumps(beat))
        os.utime(file_path(store.uri) / mail.LAUNCHER_KEY, (time.time() - age_s,) * 2)

    def state(self, name: str) -> JobState:
        with self.journal(name) as journal:
            return journal.state(JOB)

    def mirrored(self) -> int:
        return sum(1 for _ in self.store().list(mail.JOURNAL_PREFIX))
