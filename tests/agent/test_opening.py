"""How a machine opens its prefix: with what it was lent, renewed through the mailbox."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from arylcloud.agent.config import LENT_FILE, from_environment
from arylcloud.agent.opening import STORE_WAIT_S, Lent, open_prefix
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.store import file_uri
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import IntegrityError, StoreError, UsageError
from arylcloud.core.protocol import LENT_KEY, LentDoc

NEEDED = {"ARYL_JOB_ID": "digits-1", "ARYL_LEASE_ID": "l1"}


def doc(token: str, for_s: float) -> LentDoc:
    return LentDoc(secret={"token": token}, expires_s=time.time() + for_s)


def test_newer_ones_are_taken_and_older_ones_are_not() -> None:
    store = MemoryStore()
    lent = Lent(doc("first", 100.0), log=lambda text: None)
    lent._store = store
    assert not lent.look()
    store.put(LENT_KEY, dumps(doc("older", 50.0)))
    assert not lent.look()
    assert lent()["token"] == "first"
    store.put(LENT_KEY, dumps(doc("newer", 200.0)))
    assert lent.look()
    assert lent()["token"] == "newer"
    assert lent()["expires_at"].timestamp() == pytest.approx(lent.expires_s)


def test_a_mailbox_that_does_not_answer_keeps_what_there_is() -> None:
    said: list[str] = []
    store = MemoryStore()
    lent = Lent(doc("first", 40.0), log=said.append)
    store.put(LENT_KEY, b"{")
    lent.renew_from(store)
    deadline_s = time.monotonic() + 60.0
    while not said and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert said
    assert lent()["token"] == "first"
    store.put(LENT_KEY, dumps(doc("second", 1000.0)))
    while lent()["token"] != "second" and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert lent()["token"] == "second"
    lent.stop()


@pytest.mark.parametrize(("lasts_s", "early_s"), [(6.0, 1.2), (60.0, 12.0), (36000.0, 600.0)])
def test_a_loan_that_nobody_renews_ends_the_machine_while_it_can_still_upload(
    monkeypatch: pytest.MonkeyPatch, lasts_s: float, early_s: float
) -> None:
    clock = ManualClock(time.time())
    told: list[float] = []
    monkeypatch.setattr("arylcloud.agent.opening.time", SimpleNamespace(time=clock.now_s))
    lent = Lent(LentDoc(secret={}, expires_s=clock.at_s + lasts_s), log=lambda text: None)
    monkeypatch.setattr(lent, "_halt", SimpleNamespace(wait=clock.sleep))
    lent.on_end = lambda why: told.append(clock.now_s())
    lent._store = MemoryStore()
    lent.run()
    assert told == [pytest.approx(lent.expires_s - early_s, abs=0.01)]


def test_a_newer_loan_that_lies_there_at_the_end_is_taken() -> None:
    store = MemoryStore()
    told: list[str] = []
    lent = Lent(doc("first", -1.0), log=lambda text: None)  # over before the first look
    lent.on_end = told.append
    store.put(LENT_KEY, dumps(doc("second", 1000.0)))
    lent.renew_from(store)
    deadline_s = time.monotonic() + 60.0
    while lent()["token"] != "second" and lent.is_alive() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    lent.stop()
    lent.join(60.0)
    assert lent()["token"] == "second"
    assert told == []


def test_the_first_loan_does_not_stay_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / LENT_FILE).write_bytes(dumps(doc("first", 100.0)))
    config = from_environment(
        {**NEEDED, "ARYL_PREFIX_URI": "gs://b/jobs/digits-1", "ARYL_STORE_OPTIONS": "{}"}, tmp_path
    )
    store, lent = open_prefix(config)
    assert lent is not None
    assert lent()["token"] == "first"
    assert store.uri == "gs://b/jobs/digits-1"
    assert not (tmp_path / LENT_FILE).exists()


def test_what_is_no_loan_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / LENT_FILE).write_text("{}")
    config = from_environment({**NEEDED, "ARYL_PREFIX_URI": "gs://b/jobs/digits-1"}, tmp_path)
    with pytest.raises(IntegrityError, match=LENT_FILE):
        open_prefix(config)


@pytest.mark.parametrize("text", ["{", "[]", '{"region": 1}'])
def test_options_that_are_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ARYL_STORE_OPTIONS"):
        from_environment({**NEEDED, "ARYL_PREFIX_URI": "s3://b/p", "ARYL_STORE_OPTIONS": text}, tmp_path)


def test_commands_do_not_see_how_the_store_is_opened() -> None:
    from arylcloud.agent.config import PRIVATE

    assert {"ARYL_STORE_OPTIONS", "ARYL_BOOT_URL", "ARYL_RUNTIME_URL"} <= PRIVATE


class Mounting(ManualClock):
    """Some seconds after the machine has booted, the disk is there."""

    def __init__(self, folder: Path, after_s: float) -> None:
        super().__init__(1000.0)
        self.folder, self.there_s = folder, 1000.0 + after_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        ManualClock.sleep(self, seconds)
        if self.at_s >= self.there_s:
            self.folder.mkdir(parents=True, exist_ok=True)


def test_a_disk_that_is_mounted_late_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mnt" / "jobs" / "digits-1"
    clock = Mounting(folder, 60.0)
    config = from_environment({**NEEDED, "ARYL_PREFIX_URI": file_uri(folder)}, tmp_path)
    store, lent = open_prefix(config, clock=clock)
    assert (store.uri, lent) == (file_uri(folder), None)
    assert clock.at_s <= 1000.0 + 60.0 + 10.0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"arylcloud: waiting for the store: there is no object store at {store.uri}"


@pytest.mark.parametrize(("until", "waited_s"), [("", STORE_WAIT_S), ("1020", 20.0), ("900", 0.0)])
def test_a_disk_that_is_never_mounted_ends_the_machine_and_says_so(
    until: str, waited_s: float, tmp_path: Path
) -> None:
    """Within bounds, and within the lease."""
    clock = ManualClock(1000.0)
    uri = file_uri(tmp_path / "mnt")
    config = from_environment({**NEEDED, "ARYL_PREFIX_URI": uri, "ARYL_UNTIL_S": until}, tmp_path)
    with pytest.raises(StoreError, match=f"no object store at {uri}: .* has waited {waited_s:.0f} s for it"):
        open_prefix(config, clock=clock)
    assert clock.at_s == 1000.0 + waited_s
    assert not (tmp_path / "mnt").exists()
