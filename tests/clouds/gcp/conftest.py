from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.compute_v1", reason="needs arylcloud[gcp]")

from clouds.gcp.emulator import GcpEmulator
from clouds.gcp.offers import connect, sold
from clouds.gcp.project import Project

from arylcloud.providers.gcp import client
from arylcloud.providers.gcp.adapter import GcpProvider


@pytest.fixture(scope="session")
def gcp() -> Iterator[GcpEmulator]:
    """One server for all tests: each has a project of its own."""
    with GcpEmulator() as emulator:
        yield emulator


@pytest.fixture
def project(gcp: GcpEmulator, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(client, "LOOK_EVERY_S", 0.02)
    return gcp.project(sold(), op_s=0.05, boot_s=0.1, end_s=0.1)


@pytest.fixture
def settings(gcp: GcpEmulator, project: Project) -> dict[str, str]:
    return gcp.settings(project)


@pytest.fixture
def adapter(tmp_path: Path, settings: dict[str, str]) -> GcpProvider:
    return connect(tmp_path, settings)
