"""No test ever sees the home of the person who runs it; timing on a busy machine fails no property."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

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
