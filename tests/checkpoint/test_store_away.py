"""A ``file://`` store whose disk is unmounted while it is in use is away: not empty, and not made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.checkpoint.store import open_store, sub
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectStore

CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "create": lambda store: store.create("journal/2.json", b"x"),
    "put": lambda store: store.put("launcher.json", b"x"),
    "get": lambda store: store.get("journal/1.json"),
    "list": lambda store: list(store.list("journal/")),
    "list all": lambda store: list(store.list("")),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("prefix", ["", "jobs/x"])
def test_a_folder_that_has_gone_is_an_error(tmp_path: Path, name: str, prefix: str) -> None:
    folder = tmp_path / "mnt" / "store"
    store = sub(open_store(folder.as_uri()), prefix)
    store.put("journal/1.json", b"x")
    folder.parent.rename(tmp_path / "unmounted")
    (tmp_path / "mnt").mkdir()
    with pytest.raises(StoreError, match="any more"):
        CALLS[name](store)
    assert list((tmp_path / "mnt").iterdir()) == [], "nothing is written under the mount point"
    (tmp_path / "mnt").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "mnt")
    assert store.get("journal/1.json") == b"x"
