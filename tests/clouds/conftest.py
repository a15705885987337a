from __future__ import annotations

from collections.abc import Iterator

import pytest
from clouds import asking


@pytest.fixture(scope="session", autouse=True)
def _warm_ends() -> Iterator[None]:
    yield
    if asking.warm.cache_info().currsize:
        asking.warm().close()
        asking.warm.cache_clear()
