"""What machines of another kind than this host need: the right obstore, pinned, fetched once, or a no."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.diary import offer

from arylcloud.agent.runtime import build_runtime, native_packages
from arylcloud.cli import submission
from arylcloud.cli.compose import make_plan
from arylcloud.cli.jobfile import load_job
from arylcloud.cli.settings import folders
from arylcloud.core.errors import IntegrityError, OtherCloudError
from arylcloud.launcher import wheels
from arylcloud.launcher.wheels import ARM, PINNED, X86, Wheel, foreign, machine_of
from arylcloud.pricing.catalogue import load


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """This host's own obstore, as a wheel on a server."""
    path = tmp_path / "server" / "obstore-1-cp311-abi3-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in native_packages():
            archive.write(file, name.removeprefix("lib/"))
        archive.writestr("obstore/_obstore.pyi", "")
        archive.writestr("obstore-1.dist-info/RECORD", "")
    return Wheel(url=path.as_uri(), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host is a Mac."""
    monkeypatch.setattr(wheels, "like_this_host", lambda machine: False)


def test_it_is_fetched_once(wheel: Wheel, elsewhere: None, tmp_path: Path) -> None:
    pinned = {X86: wheel}
    (path,) = foreign([X86], tmp_path / "cache", pinned).values()
    assert path.parent == tmp_path / "cache" / "wheels"
    Path(wheel.url.removeprefix("file://")).unlink()
    assert foreign([X86], tmp_path / "cache", pinned) == {X86: path}
    path.write_bytes(path.read_bytes()[:-1])  # a disk that was full
    with pytest.raises(OtherCloudError, match="cannot be fetched") as failed:
        foreign([X86], tmp_path / "cache", pinned)
    assert str(path) in (failed.value.hint or "")
    assert wheel.sha256 in (failed.value.hint or "")


def test_another_file_is_not_taken(wheel: Wheel, elsewhere: None, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="not the file that is pinned"):
        foreign([X86], tmp_path / "cache", {X86: replace(wheel, sha256="0" * 64)})
    assert not (tmp_path / "cache" / "wheels").exists()


def test_nothing_is_fetched_for_machines_like_this_host(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("this host is no Linux")
    assert foreign([platform.machine()], tmp_path, {}) == {}


def test_a_machine_of_another_kind_finds_its_own(wheel: Wheel, elsewhere: None, tmp_path: Path) -> None:
    """The path of the stub, and nothing else: obstore comes from the folder of the machine's kind."""
    pinned = {platform.machine(): wheel, "pdp11": wheel}
    kinds = foreign(pinned, tmp_path / "cache", pinned)
    runtime, digest = build_runtime(tmp_path, kinds)
    assert build_runtime(tmp_path, {})[1] != digest
    with zipfile.ZipFile(runtime) as archive:
        archive.extractall(tmp_path / "runtime")
        names = archive.namelist()
    assert not [n for n in names if n.endswith(("fsspec.py", ".pyi", "RECORD"))]
    assert {n.partition("/")[0] for n in names} == {"lib", "user", "lib-pdp11", f"lib-{platform.machine()}"}
    from arylcloud.agent.bootstrap import _STUB  # the line that a machine runs

    (line,) = (line for line in _STUB.splitlines() if "PYTHONPATH" in line and "runtime/lib" in line)
    said = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f"{line}\nexec {sys.executable} -s -S -c 'import obstore; print(obstore.__file__)'",
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"/runtime/lib-{platform.machine()}/obstore/" in said


def test_what_is_arm() -> None:
    """All that the adapters take an ARM image for, and nothing else of the catalogue."""
    from arylcloud.providers.aws.place import _ARM as AWS
    from arylcloud.providers.gcp.place import _ARM as GCP

    prefixes = {"aws": AWS, "gcp": GCP}  # Azure says it of each size, when asked
    for one in load().offers():
        by_name = one.instance_type.startswith(prefixes.get(one.cloud, ())) or "_GB" in one.instance_type
        assert (machine_of(one) == ARM) is by_name, one.key
    assert set(PINNED) == {X86, ARM}
    assert all(len(pin.sha256) == 64 and pin.name.endswith(f"{kind}.whl") for kind, pin in PINNED.items())


def test_a_kind_that_cannot_be_had_is_left_out_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        '{"run": "true", "resources": {"accelerators": {"T4g": 1, "T4": 1}}, "aryl": {"work": "9 steps",'
        ' "profile": {"T4:1": 1, "T4g:1": 1, "unit": "steps/s"}}}'
    )
    spec, _ = load_job(job)
    plan = make_plan(spec, folders(), limit=1_000_000)
    chosen = {machine_of(c.offer): c for c in plan.candidates}
    assert set(chosen) == {X86, ARM}
    gone = {ARM: Wheel(url=(tmp_path / "no.whl").as_uri(), sha256="0" * 64)}
    monkeypatch.setattr(wheels, "like_this_host", lambda machine: machine == X86)
    monkeypatch.setattr(foreign, "__defaults__", (gone,))
    here = replace(plan, chosen=chosen[X86])
    assert submission._kinds(here, plan, tmp_path / "cache") == ((X86,), {})
    assert "no aarch64 machines for this job" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(OtherCloudError, match="cannot be fetched"):
        submission._kinds(replace(plan, chosen=chosen[ARM]), plan, tmp_path / "cache")
    local = replace(plan.chosen, offer=offer(cloud="local"))
    assert submission._kinds(
        replace(plan, chosen=local), replace(plan, candidates=()), tmp_path / "cache"
    ) == ((), {})
