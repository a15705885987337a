"""Collected tests, each in a fork of its own: what is changed there is changed nowhere else."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable

import pytest
from _pytest.runner import runtestprotocol


def failure(item: pytest.Item) -> str | None:
    """Run one test, set up and torn down as always; what it failed with, None = it passed."""
    for report in runtestprotocol(item, log=False, nextitem=None):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            return str(crash.message) if crash is not None else report.longreprtext[-200:]
    return None


def search_without_shrinking() -> None:
    """From ``pytest_configure``: searches look at the same examples each time; the first failure will do."""
    from hypothesis import HealthCheck, Phase, settings  # pytest wants to be there first

    settings.register_profile(
        "without shrinking",
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("without shrinking")


def in_fork(work: Callable[[], tuple[int, str]], wall_s: float, *, cpu_s: int) -> tuple[str, int]:
    """Run ``work`` () → (exit code, text) in a fork; returns the text and the wait status. After ``cpu_s`` of
    its own processor time, or ``wall_s``, it is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.close(reader)
            status, text = work()
            with os.fdopen(writer, "w") as file:
                file.write(text)
        finally:
            os._exit(status)
    os.close(writer)
    parts, until_s = [], time.monotonic() + wall_s
    while select.select([reader], [], [], max(0.0, until_s - time.monotonic()))[0]:
        data = os.read(reader, 1 << 16)
        if not data:
            break
        parts.append(data)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test may have started
    return b"".join(parts).decode(), status
