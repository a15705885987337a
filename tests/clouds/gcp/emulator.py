"""Google Cloud as it behaves: Compute Engine, its price list, and who may what.

* What is asked for is an operation that takes time; what goes wrong is said inside it, with a 200 before.
* A request id is the same request for an hour; a name that is taken is 409.
* Machines are provisioned, staged, run, and vanish when they end: only operations remain to tell.
* Spot machines are taken after a notice; ``maxRunDuration`` ends any of them.
* Lists come in pages, and may lag; calls may be throttled, refused, cut, answered by a proxy.

One server for all tests, a project for each. Real SDKs talk to it over HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from clouds.boots import Boots
from clouds.gcp import machines, metadata, things
from clouds.gcp.pricing import PriceBook
from clouds.gcp.project import Project
from clouds.gcp.server import GcpServer

from arylcloud.core.offer import Offer


class GcpEmulator:
    """``with GcpEmulator() as gcp: project = gcp.project(offers)``; settings: ``gcp.settings(project)``."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder``: where machines boot, as processes; None = they only pretend to run."""
        self.server = GcpServer()
        serve: Any = metadata.serve_for(self)
        self.boots = boots = None if folder is None else Boots(folder, serve=serve)
        self.token_for: Callable[[str], str] = lambda account: f"ya29.{secrets.token_hex(12)}"
        """What the metadata service gives to a machine that runs as a service account."""
        self._numbers = count(1)
        self.machines = machines.Machines(self.server.lock, boots)
        self.server.routes += things.routes() + self.machines.routes()
        self.server.before = self.machines.tick
        self.server.raw = _skus
        if boots is not None:
            boots.exited = self.ended_itself

    def project(self, offers: tuple[Offer, ...], **changes: Any) -> Project:
        name = f"emulated-{next(self._numbers)}"
        made = Project(id=name, lock=self.server.lock, prices=PriceBook(offers), **changes)
        with self.server.lock:
            self.server.projects = {name: made, **self.server.projects}
        return made

    def settings(self, project: Project) -> dict[str, str]:
        keys = ("api_endpoint", "billing_endpoint", "resource_manager", "iam_endpoint", "storage_endpoint")
        return {"project": project.id, **dict.fromkeys(keys, self.url)}

    def environ(self, project: Project) -> dict[str, str]:
        return {f"ARYLCLOUD_GCP__{key.upper()}": value for key, value in self.settings(project).items()}

    @property
    def url(self) -> str:
        return self.server.url

    def preempt(self, project: Project, name: str, notice_s: float | None = None) -> None:
        """Compute Engine wants the machine back: notice now, the end ``notice_s`` later."""
        with self.server.lock:
            self.machines.preempt(project, project.lives[name], notice_s)

    def ended_itself(self, name: str) -> None:
        """``shutdown`` in the machine: it is stopped, and stays."""
        with self.server.lock:
            for project in self.server.projects.values():
                life = project.lives.get(name)
                if life is not None and life.live and life.stopping_s is None:
                    self.machines.switched_off(project, life)

    def __enter__(self) -> GcpEmulator:
        self.server.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        if self.boots is not None:
            self.boots.close()


def _skus(path: str, query: dict[str, str], project: Project) -> bytes | None:
    return project.prices.page(query) if path.endswith("/skus") else None
