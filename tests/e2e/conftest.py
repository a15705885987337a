from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.support import Home, Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    found = Warm()
    yield found
    found.close()


@pytest.fixture
def new_home(tmp_path: Path, warm: Warm) -> Iterator[Callable[..., Home]]:
    """``new_home(market)`` or ``new_home(cloud_of=home)``: closed at the test's end, whatever happens."""
    homes: list[Home] = []

    def make(market: dict[str, Any] | None = None, **options: Any) -> Home:
        home = Home(tmp_path / f"h{len(homes)}", market, warm=warm, **options)
        homes.append(home)
        return home

    yield make
    for home in reversed(homes):
        home.close()
