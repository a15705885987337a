"""Where a home may lie: the mailbox's address is percent-encoded, its folder is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.market import job, quiet
from e2e.support import Home, Warm

from arylcloud.checkpoint.store import file_path
from arylcloud.cli.assemble import open_prefix, open_root, prefix_uri, store_root_uri
from arylcloud.cli.settings import folders
from arylcloud.core.errors import StoreError

NAMES = ["ho me", "jörg", "100%", "a#b", "q?x", "日本"]


@pytest.mark.parametrize("name", NAMES)
def test_the_store_is_made_where_it_is_said_to_be(tmp_path: Path, name: str) -> None:
    place = folders({"ARYLCLOUD_HOME": str(tmp_path / name)})
    uri = prefix_uri(store_root_uri(place), "gpt-0a1b2c3d")
    with pytest.raises(StoreError, match="no object store"):
        open_prefix(uri)
    store = open_root(uri)
    store.put("k", b"v")
    assert [path.name for path in tmp_path.iterdir()] == [name], "no stray folder"
    assert (place.local_store / "jobs" / "gpt-0a1b2c3d" / "k").read_bytes() == b"v"
    assert file_path(store.uri) == place.local_store / "jobs" / "gpt-0a1b2c3d"
    assert open_prefix(store.uri).get("k") == b"v"


def test_a_job_runs_in_a_home_with_a_blank_and_an_umlaut(tmp_path: Path, warm: Warm) -> None:
    with Home(tmp_path / "jörg's ho me", quiet(), warm=warm) as home:
        job_id = home.submit(job(steps=10))
        assert home.serve_to_the_end(job_id).phase == "succeeded"
        assert file_path(home.state(job_id).prefix_uri).is_dir()
        assert [path.name for path in tmp_path.iterdir()] == ["jörg's ho me"]


def test_what_the_launcher_writes_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes nothing from the mailbox that the journal is sure of: both are synced."""
    synced: list[str] = []
    monkeypatch.setattr(
        "os.fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    )
    uri = (tmp_path / "s").as_uri()
    for opened in (open_root, open_prefix):
        synced.clear()
        opened(uri).create(f"journal/{opened.__name__}.json", b"{}")
        assert synced == [
            str(tmp_path / "s/journal" / f"{opened.__name__}.json"),
            str(tmp_path / "s/journal"),
        ]
