"""The pool keeps the contract of every provider: on this machine, and on one that is reached by ssh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
from providers.contract import CloudUnderTest, ProviderContract

from arylcloud.providers.pool.adapter import create
from arylcloud.providers.pool.machines import OwnMachine, write
from pool.sshhost import ssh_host

SOME = 3
"""No test of the contract asks for more of them at once."""


def own(name: str, folder: Path, **changes: object) -> OwnMachine:
    machine = OwnMachine(
        name=name,
        host="localhost",
        group="lab",
        instance_type="plenty",
        usd_per_hour=0.5,
        gpu="T4",
        gpu_count=1,
        folder=str(folder),
        added_on="2026-11-01T00:00:00+00:00",
    )
    return replace(machine, **changes)  # type: ignore[arg-type]


def cloud_of(state: Path, machines: list[OwnMachine]) -> CloudUnderTest:
    write(state / "pool" / "pool.json", machines)
    provider = create(state, {})
    for machine in machines:
        provider.lend(machine)
    by_type = {m.instance_type: m.offer for m in machines}
    return CloudUnderTest(
        connect=lambda: create(state, {}),
        plenty=by_type["plenty"],
        single=by_type["single"],
        nowhere=replace(by_type["plenty"], region="nowhere"),
        on_demand=by_type["plenty"],
        restart=lambda: None,
        offers=lambda: create(state, {}).offers(),
    )


class TestHere(ProviderContract):
    @pytest.fixture
    def cloud(self, tmp_path: Path) -> CloudUnderTest:
        many = [own(f"m{n}", tmp_path / "own") for n in range(SOME)]
        return cloud_of(tmp_path / "state", [*many, own("one", tmp_path / "own", instance_type="single")])


@pytest.mark.skipif(which("ssh") is None, reason="there is no ssh here")
@pytest.mark.slow
class TestBySsh(ProviderContract):
    @pytest.fixture
    def cloud(self, tmp_path: Path) -> Iterator[CloudUnderTest]:
        with ssh_host(tmp_path / "ssh"):
            many = [own(f"m{n}", tmp_path / "own", host="far") for n in range(SOME)]
            one = own("one", tmp_path / "own", host="far", instance_type="single")
            yield cloud_of(tmp_path / "state", [*many, one])
