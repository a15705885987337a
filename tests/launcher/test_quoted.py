"""What was asked before somebody agreed is what the launcher begins with: the machine that was confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from support.diary import Diary, offer

from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Plan
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.desire import Desires
from arylcloud.launcher.quotes import KEEP_S, Quotes

SOLD_OUT = replace(offer("use1-az1"), usd_per_hour=None)
CONFIRMED = offer("use1-az2", usd_per_hour=2.0)


class Planned:
    def __init__(self) -> None:
        self.quoted: list[dict[str, float | None]] = []

    def __call__(self, spec: JobSpec, *, quoted: Sequence[Offer], also: Sequence[Offer]) -> Plan:
        self.quoted.append({one.key: one.usd_per_hour for one in quoted})
        return cast("Plan", None)


def test_it_holds_for_an_hour_and_the_clouds_newest_word_goes_before_it() -> None:
    diary = Diary()
    submitted = diary.records[0].event
    assert isinstance(submitted, ev.JobSubmitted)
    diary.records[0] = replace(
        diary.records[0], event=replace(submitted, quoted=(SOLD_OUT, CONFIRMED)), at_s=1000.0
    )
    state, plan = diary.state, Planned()
    assert state.quoted == (SOLD_OUT, CONFIRMED)
    quotes = Quotes({}, ManualClock())
    desires = Desires(providers={}, plan=plan, timing=Timing(), quotes=quotes)
    desires._make_plan(state, 1000.0)
    assert plan.quoted[-1] == {SOLD_OUT.key: None, CONFIRMED.key: 2.0}
    quotes._known[CONFIRMED.key] = (0.0, replace(CONFIRMED, usd_per_hour=3.0))
    desires._make_plan(state, 1000.0 + KEEP_S / 2)
    assert plan.quoted[-1] == {SOLD_OUT.key: None, CONFIRMED.key: 3.0}
    desires._make_plan(state, 1000.0 + KEEP_S)
    assert plan.quoted[-1] == {CONFIRMED.key: 3.0}


def test_it_is_written_down_with_the_submission() -> None:
    """What an older version has written is read all the same."""
    from arylcloud.core.codec import decode, encode

    event = Diary().records[0].event
    document = encode(event)
    del document["quoted"]
    assert decode(ev.JobSubmitted, document, where="x").quoted == ()
