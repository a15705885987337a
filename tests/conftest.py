"""No test ever sees the home of the person who runs it; timing on a busy machine fails no property."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a shared machine may stop for a second anywhere: what counts is the answer, not the clock
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

_STRANGE = ("ARYLCLOUD_STORE", "ARYLCLOUD_CRASH_AT", "ARYLCLOUD_LOCAL__MARKET", "FORCE_COLOR")

_ACCOUNT = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NOWHERE = {
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}
"""No test may ever reach the account of the person who runs it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("arylcloud")
    group.addoption(
        "--shuffle", type=int, metavar="SEED", help="modules, and tests in each, in another order"
    )
    group.addoption(
        "--costs",
        metavar="FILE",
        help="append a line of JSON for each test: its name, its seconds, its CPU seconds (with those of "
        "processes that it waited for)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    rng = random.Random(seed)
    groups = list(modules.values())
    rng.shuffle(groups)
    for group in groups:
        rng.shuffle(group)
    items[:] = [item for group in groups for item in group]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    path = item.config.getoption("--costs")
    begun_s, cpu_s = time.perf_counter(), _cpu_s()
    done = yield
    if path is not None:
        line = [item.nodeid, round(time.perf_counter() - begun_s, 3), round(_cpu_s() - cpu_s, 3)]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return done


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.fixture(autouse=True, scope="session")
def _own_home() -> Iterator[None]:
    for name in _STRANGE:
        os.environ.pop(name, None)
    for name in _ACCOUNT:
        os.environ.pop(name, None)
    os.environ.update(_NOWHERE)
    folder = tempfile.mkdtemp(prefix="arylcloud-test-")
    os.environ["ARYLCLOUD_HOME"] = folder
    os.environ["NO_COLOR"] = "1"
    os.environ["COLUMNS"] = "120"  # a test worker has a terminal of its own idea
    yield
    shutil.rmtree(folder, ignore_errors=True)
