"""How often the mailbox is looked into: every look at a bucket is paid for, and a job may wait for hours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arylcloud.agent.mailbox import Mailbox
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.protocol import EpochDoc, Member, epoch_key

HOUR_S = 3600.0


class Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def get(self, key: str) -> bytes | None:
        self.looks += key.startswith("epochs/")
        return super().get(key)

    def open(self, number: int, *leases: str) -> None:
        members = tuple(Member(rank=n, lease_id=name, address="::1") for n, name in enumerate(leases))
        document = EpochDoc(
            job_id="j", number=number, attempt=1, opened_s=0.0, reason="", members=members, resume_from=None
        )
        self.create(epoch_key(number), dumps(document))


class Halt:
    """A machine that is wanted until ``until_s``; its waits pass on the test's clock."""

    def __init__(self, clock: ManualClock, until_s: float, at_wait: Callable[[], None]) -> None:
        self.clock, self.until_s, self.at_wait = clock, until_s, at_wait
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return self.clock.at_s >= self.until_s

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.sleep(seconds)
        self.at_wait()


def lives(
    monkeypatch: pytest.MonkeyPatch, store: Counting, until_s: float, at_wait: Callable[[Mailbox], None]
) -> Halt:
    clock = ManualClock(0.0)
    mailbox = Mailbox(store, job_id="j", clock=clock, log=print, pace=3.0)
    halt = Halt(clock, until_s, lambda: at_wait(mailbox))
    monkeypatch.setattr(mailbox, "_halt", halt)
    mailbox.run()
    return halt


def test_a_long_drain_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counting()
    store.open(1)
    halt = lives(monkeypatch, store, HOUR_S, lambda _: None)
    assert halt.waits[0] == pytest.approx(0.3), "the whole job waits for the next epoch"
    assert halt.waits[-1] == max(halt.waits)
    late = store.looks - sum(1 for wait_s in halt.waits if wait_s < 0.5)
    assert late / (HOUR_S - 360.0) < 0.6, "by its end, one request in about two seconds"


def test_and_still_soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch after hours of waiting is seen within two seconds; the next drain is hasty again."""
    store = Counting()
    store.open(1)
    clock_s: list[float] = []

    def look(mailbox: Mailbox) -> None:
        now_s = mailbox._clock.now_s()
        if mailbox.seen.drain == 1 and now_s >= 2 * HOUR_S and not clock_s:
            clock_s.append(now_s)
            store.open(2, "a")
        if mailbox.seen.drain is None and mailbox.seen.epoch is not None and len(clock_s) == 1:
            clock_s.append(now_s)
            store.open(3)

    halt = lives(monkeypatch, store, 2 * HOUR_S + 10.0, look)
    opened_s, seen_s = clock_s
    assert seen_s - opened_s <= 2.0
    assert max(halt.waits) <= 2.0
    assert halt.waits[-1] == pytest.approx(0.3)
