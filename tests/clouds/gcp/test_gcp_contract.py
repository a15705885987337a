from __future__ import annotations

from pathlib import Path

import pytest
from clouds.gcp.offers import connect, offer
from clouds.gcp.project import Fault, Project
from providers.contract import CloudUnderTest, ProviderContract

from arylcloud.core.offer import Market


class TestGcp(ProviderContract):
    @pytest.fixture
    def cloud(self, project: Project, settings: dict[str, str], tmp_path: Path) -> CloudUnderTest:
        project.boot_s = project.end_s = 0.2
        project.capacity["us-central1-a", "a2-highgpu-1g", "spot"] = 1

        def fault(code: str, status: int, effect: str = "none") -> None:
            method = "instances.insert"
            project.faults.append(Fault(method=method, code=code, status=status, effect=effect))

        def lag() -> None:
            project.lag_s = 3.0

        return CloudUnderTest(
            connect=lambda: connect(tmp_path, settings),
            plenty=offer(),
            single=offer("a2-highgpu-1g"),
            nowhere=offer("a2-highgpu-1g", zone="us-central1-c"),
            on_demand=offer(market=Market.ON_DEMAND),
            restart=lambda: None,  # it is Google's: nobody kills it
            cut=lambda: fault("Cut", 500, "cut"),
            late=lambda: fault("backendError", 500, "late"),
            throttle=lambda: fault("rateLimitExceeded", 403),
            lag=lag,
            forbid=lambda operations: setattr(project, "denied", operations),
            ordered=lambda: bool(project.lives),
        )
