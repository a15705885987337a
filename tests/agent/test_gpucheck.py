"""GPUs are looked at before work begins; a real process stands in for ``nvidia-smi`` (field case 87)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from arylcloud.agent.gpucheck import Wanted, check_gpus
from arylcloud.core.errors import IntegrityError
from arylcloud.core.protocol import BAD_HARDWARE

from .conftest import Job, spec, wait_for

FINE = "40536, 0, No, No"
TWO = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's image: its own ``nvidia-smi`` and ``dmesg`` before everything else."""
    folder = tmp_path / "image"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    tool(folder, "dmesg", "exit 1")
    return folder


def tool(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def driver(folder: Path, *names: str, rows: tuple[str, ...] | None = None, query_code: int = 0) -> None:
    listed = "\n".join(f"GPU {n}: {name} (UUID: GPU-{n})" for n, name in enumerate(names))
    told = "\n".join((FINE,) * len(names) if rows is None else rows)
    query = f"cat <<END\n{told}\nEND\nexit {query_code}"
    tool(folder, "nvidia-smi", f'if [ "$1" = -L ]; then cat <<END\n{listed}\nEND\nelse {query}\nfi')


def problem(wanted: Wanted) -> str:
    with pytest.raises(IntegrityError) as error:
        check_gpus(wanted)
    return error.value.message


def test_all_there_and_sound(tools: Path) -> None:
    driver(tools, "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
    assert check_gpus(Wanted(count=2, gpu="A100")) == "2 × NVIDIA A100-SXM4-40GB"
    assert check_gpus(Wanted(count=1)) == "2 × NVIDIA A100-SXM4-40GB"


def test_an_image_without_a_driver_is_not_the_machines_fault(tools: Path) -> None:
    said = problem(Wanted(count=1, gpu="A100"))
    assert said == "no nvidia-smi on this machine: its image has no NVIDIA driver"
    assert not said.startswith(BAD_HARDWARE)
    assert "not looked at" in check_gpus(Wanted(count=1, gpu="A100", own_host=True))


@pytest.mark.parametrize(
    ("names", "rows", "said"),
    [
        (("Tesla T4",), None, "1 of 2 GPUs answer"),
        (("NVIDIA A100-SXM4-40GB", "Tesla T4"), None, "A100 was asked for, this machine has Tesla T4"),
        (TWO, (FINE, "40536, 3, No, No"), "GPU 1 has 3 memory errors"),
        (TWO, ("40536, 0, Yes, No", FINE), "GPU 0 has faults that cannot be repaired"),
        (TWO, (FINE, "40536, 0, No, Yes"), "GPU 1 has faults, to be repaired"),
        (TWO, (FINE, "20000, 0, No, No"), "GPU 1 has 20 GiB"),
    ],
)
def test_what_is_bad_is_named(
    tools: Path, names: tuple[str, ...], rows: tuple[str, ...] | None, said: str
) -> None:
    driver(tools, *names, rows=rows)
    found = problem(Wanted(count=2, gpu="A100"))
    assert found.startswith(BAD_HARDWARE)
    assert said in found


def test_a_driver_that_fails_is_quoted(tools: Path) -> None:
    tool(tools, "nvidia-smi", "echo 'Unable to determine the device handle' >&2; exit 15")
    assert "0 of 2 GPUs answer on this machine: Unable to determine" in problem(Wanted(count=2))


@pytest.mark.parametrize("hangs", ["-L", "--query-gpu"])
def test_a_driver_that_hangs_holds_nobody_up(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    """Nor if it cannot be killed, as a process that waits in the kernel: the machine is bad, and says so."""
    monkeypatch.setattr("arylcloud.agent.gpucheck.CHECK_S", 2.0)
    for kill in ("subprocess.Popen.send_signal", "os.killpg"):
        monkeypatch.setattr(kill, lambda *_: None)
    driver(tools, "Tesla T4")
    (tools / "nvidia-smi").rename(tools / "answers")
    pid = tmp_path / "pid"
    tool(
        tools,
        "nvidia-smi",
        f'case $1 in {hangs}*) echo $$ > {pid}; exec sleep 25;; *) exec answers "$@";; esac',
    )
    real = subprocess.Popen.communicate

    def communicate(process: subprocess.Popen[str], **options: float) -> tuple[str, str]:
        wait_for(lambda: process.poll() is not None or _text(pid))  # what does not hang may take its time
        return real(process, **options)  # type: ignore[no-any-return, call-overload]

    monkeypatch.setattr("subprocess.Popen.communicate", communicate)
    said = problem(Wanted(count=1))
    assert said == f"{BAD_HARDWARE}nvidia-smi has not answered for 2 s"
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it lives: nobody has waited for it


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("rows", [("[N/A], [N/A], [N/A], [N/A]",), ("a strange line",), ()])
def test_what_a_driver_does_not_tell_is_not_held_against_it(tools: Path, rows: tuple[str, ...]) -> None:
    driver(tools, "Tesla V100-SXM2-16GB", rows=rows)
    assert check_gpus(Wanted(count=1, gpu="V100"))
    driver(tools, "Tesla V100-SXM2-16GB", rows=("16160, 9, No, No",), query_code=2)
    assert check_gpus(Wanted(count=1, gpu="V100"))


def test_the_kernels_log_tells_of_xids(tools: Path) -> None:
    driver(tools, "NVIDIA A100-SXM4-40GB")
    tool(tools, "dmesg", "echo '[1.0] NVRM: Xid (PCI:0000:00:1e): 13, pid=7, Graphics Exception'")
    assert check_gpus(Wanted(count=1, gpu="A100")), "13 is a program's own fault"
    tool(tools, "dmesg", "echo '[1.0] NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus.'")
    assert "Xid 79: it has fallen off the bus" in problem(Wanted(count=1, gpu="A100"))
    assert check_gpus(Wanted(count=1, gpu="A100", own_host=True)), "a host's log goes back for months"


def test_other_vendors_chips_are_not_looked_at(tools: Path) -> None:
    assert "not looked at" in check_gpus(Wanted(count=8, gpu="MI300X"))


def test_a_machine_that_fails_is_broken_before_setup(job: Job, tools: Path) -> None:
    """By the real agent: nothing of the job is run on it, and its heartbeat says why."""
    driver(tools, "Tesla T4")
    job.submit(spec("echo never", setup="touch ran"))
    machine = job.machine(ARYL_GPUS="1", ARYL_GPU="A100", ARYL_CHECK_GPUS="1", PATH=f"{tools}:/usr/bin:/bin")
    beat = machine.phase("broken")
    assert beat.message == f"{BAD_HARDWARE}A100 was asked for, this machine has Tesla T4"
    assert not (machine.home / "workdir" / "ran").exists()
