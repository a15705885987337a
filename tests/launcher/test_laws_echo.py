"""When a failure is the user's, when it is the echo of a machine that was gone or cut off; at the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import TIMING, spec
from support.situation import NOW_S, beat, draft, epoch, failure, lease, saved

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase, Notice
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.reconcile.echo import AROUND_S, SIGNAL_PROOF_S, echoed, outlived

A, B = lease(0), lease(1)
HALF_S = TIMING.silent_s / 2
SEEN_S = 30.0
"""How long ago the failure was seen."""
FAILED = failure(A, at_s=NOW_S - SEEN_S)


def story(
    *leases: Any,
    heard_s: float = 1.0,
    end: Any = FAILED,
    seen_s: float | None = SEEN_S,
    pauses: dict[str, tuple[float, float]] | None = None,
    said: Any = None,
    job: Any = None,
    epochs: Any = None,
    wrote: dict[tuple[int, int, str], float] | None = None,
    **state: Any,
) -> Draft:
    """Rank 0 on A has failed; B was heard so long ago."""
    gang = leases or (A, B)
    return draft(
        *gang,
        job=job or spec(len(gang)),
        epochs=epochs,
        beats=said or [beat(A, AgentPhase.EXITED), beat(B)][: len(gang)],
        state=state,
        observed={
            "ends": (end,),
            "heard_s_ago": {A.lease_id: 1.0, B.lease_id: heard_s},
            "end_seen_s_ago": {} if seen_s is None else {(end.epoch, end.rank): seen_s},
            "pauses": pauses or {},
            "wrote_after_s": wrote or {},
        },
    )


def users(d: Draft) -> bool:
    (end,) = d.observed.ends
    return outlived(d, d.state.epochs[-1], end)


# ---------------------------------------------------------------- the user's failure


def test_a_failure_on_machines_that_are_well_is_the_users() -> None:
    assert users(story())
    assert users(story(A)), "alone"


@pytest.mark.parametrize("who", [A, B])
def test_not_where_a_machine_has_notice_or_is_not_heard(who: Any) -> None:
    doomed = replace(who, phase=LeasePhase.DOOMED)
    gang = [doomed if x is who else x for x in (A, B)]
    assert not users(story(*gang))
    notice = Notice(action="terminate", at_s=NOW_S + 100.0, seen_s=NOW_S)
    words = [beat(x, notice=notice if x is who else None) for x in (A, B)]
    assert not users(story(said=words))
    assert not users(story(said=[b for b in (beat(A), beat(B)) if b.lease_id != who.lease_id]))


def test_its_own_machine_has_to_be_heard_after_it() -> None:
    for at_s, well in ((FAILED.at_s, True), (FAILED.at_s - 0.1, False)):
        assert users(story(said=[beat(A, at_s=at_s), beat(B)])) is well
        assert users(story(A, said=[beat(A, at_s=at_s)])) is well


@pytest.mark.parametrize(
    ("code", "proof_s"), [(1, 0.0), (128, 0.0), (129, SIGNAL_PROOF_S), (137, SIGNAL_PROOF_S)]
)
def test_of_a_signal_for_some_seconds(code: int, proof_s: float) -> None:
    end = replace(FAILED, exit_code=code)
    for more_s, well in ((proof_s, True), (proof_s - 0.1, False)):
        words = [beat(A, at_s=end.at_s + more_s), beat(B)]
        assert users(story(end=end, said=words)) is well, "its own machine"
    for heard_s in (SEEN_S - 0.1, SEEN_S - proof_s, SEEN_S - proof_s + 0.1):
        well = heard_s < SEEN_S and SEEN_S - heard_s >= proof_s
        assert users(story(end=end, heard_s=heard_s)) is well, "its peer"


def test_a_peer_has_to_be_heard_after_it_was_seen() -> None:
    assert not users(story(heard_s=SEEN_S))
    assert users(story(heard_s=SEEN_S - 0.1))
    assert not users(story(seen_s=None)), "never seen by us"


def test_or_to_have_written_after_it_by_the_stores_clock() -> None:
    key = (FAILED.epoch, FAILED.rank, B.lease_id)
    assert users(story(heard_s=SEEN_S, wrote={key: 0.1}))
    assert not users(story(heard_s=SEEN_S, wrote={key: 0.0}))
    assert not users(story(heard_s=SEEN_S, wrote={(FAILED.epoch, 1, B.lease_id): 5.0})), "of another end"
    signal = replace(FAILED, exit_code=137, at_s=NOW_S - 100.0)
    assert not users(story(end=signal, heard_s=SEEN_S, wrote={key: SIGNAL_PROOF_S}))
    assert users(story(end=signal, heard_s=SEEN_S, wrote={key: SIGNAL_PROOF_S + 0.1}))


def test_a_failure_that_comes_right_after_a_pause_is_an_echo() -> None:
    for lasted_s, ago_s, echo in (
        (HALF_S, SEEN_S + AROUND_S, True),
        (HALF_S - 0.1, SEEN_S, False),
        (HALF_S, SEEN_S + AROUND_S + 0.1, False),
        (HALF_S, 0.0, True),
        (1e6, 1e6, False),
    ):
        assert users(story(pauses={B.lease_id: (lasted_s, ago_s)})) is not echo, (lasted_s, ago_s)


PAUSE = {B.lease_id: (HALF_S, SEEN_S)}


def test_of_one_machine_alone_there_is_no_echo() -> None:
    assert users(story(A, pauses={A.lease_id: (HALF_S, SEEN_S)}))


@pytest.mark.parametrize("rule", [{"recovery": "none"}, {"on_node_loss": "fail"}])
def test_where_nothing_is_run_twice_there_is_none(rule: dict[str, Any]) -> None:
    assert users(story(pauses=PAUSE, job=spec(2, **rule)))


def test_not_twice_from_the_same_checkpoint() -> None:
    """Once the gang begins again. If it fails likewise and has saved nothing since, that is the user's."""
    end = replace(FAILED, epoch=3)
    words = [beat(A, AgentPhase.EXITED, 3), beat(B, epoch=3)]
    again = [epoch(1, A, B, resume_from="m"), epoch(2), epoch(3, A, B, resume_from="m")]
    elsewhere = [epoch(1, A, B), epoch(2), epoch(3, A, B, resume_from="m")]
    for epochs, saves, echo in (
        (again, (), False),
        (again, (saved("n", 3),), True),
        (again, (saved("m", 1),), False),
        (elsewhere, (), True),
    ):
        d = story(end=end, said=words, pauses=PAUSE, epochs=epochs, checkpoints=saves)
        assert users(d) is not echo, (epochs, saves)


# ---------------------------------------------------------------- all start again


def reason(d: Draft) -> str | None:
    return echoed(d, d.state.epochs[-1])


LATE_S = TIMING.silent_s + AROUND_S


def echo(seen_s: float = LATE_S + 0.1, **more: Any) -> Draft:
    return story(seen_s=seen_s, pauses={B.lease_id: (HALF_S, seen_s)}, **more)


def test_the_gang_starts_again_once_it_is_no_loss() -> None:
    found = reason(echo())
    assert found is not None
    assert found.startswith("rank 0 failed with exit code 1")
    assert reason(echo(LATE_S)) is None, "it may turn out to be one"
    assert reason(story(seen_s=LATE_S + 0.1)) is None, "nobody was cut off: the user's"


def test_only_of_a_failure_of_this_epoch_that_is_not_counted_yet() -> None:
    told = ev.CommandEnded(epoch=1, rank=0, exit_code=1, in_setup=False, tail="")
    assert reason(echo(commands_ended=(told,))) is None
    assert reason(echo(commands_ended=(replace(told, rank=1),))) is not None
    for other in (
        replace(FAILED, signalled=True),
        replace(FAILED, exit_code=0, finished=True),
        replace(FAILED, epoch=2),
    ):
        assert reason(echo(end=other)) is None


def test_only_once_all_are_heard() -> None:
    assert reason(echo(heard_s=TIMING.silent_s)) is not None
    assert reason(echo(heard_s=TIMING.silent_s + 0.1)) is None
    for phase in (LeasePhase.SUSPECT, LeasePhase.DOOMED, LeasePhase.ENDING):
        found = story(A, replace(B, phase=phase), seen_s=LATE_S + 0.1, pauses={B.lease_id: (HALF_S, LATE_S)})
        assert reason(found) is None
    d = echo()
    d.observed = replace(d.observed, heard_s_ago={A.lease_id: 1.0})
    assert reason(d) is None


def test_who_is_cut_off_as_it_happens() -> None:
    """B was not heard for half the time that makes it SUSPECT when the end was seen."""
    for before_s, cut in ((HALF_S, True), (HALF_S - 0.1, False)):
        assert users(story(heard_s=SEEN_S + before_s, wrote={(1, 0, B.lease_id): 9.0})) is not cut
