"""The checker sees what it is there for: each law is broken by hand, in a story that is true otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.simulation.chaos import STEP_S, Chaos
from arylcloud.simulation.checker import LAWS, came_too_late, check
from arylcloud.simulation.story import Call, Commit, Kept, MachineTruth, Story


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, ...]:
    chaos = Chaos(tmp_path_factory.mktemp("chaos"), 21, 4, 0.15)
    logging.disable(logging.ERROR)
    try:
        chaos.run()
        return tuple(job.story(2 * STEP_S) for job in chaos.all)
    finally:
        logging.disable(logging.NOTSET)
        chaos.close()


@pytest.fixture
def story(stories: tuple[Story, ...]) -> Story:
    """One with more than one launcher and more than one epoch with members."""
    for one in stories:
        launchers = [r for r in one.records if isinstance(r.event, ev.LauncherStarted)]
        epochs = [d for d in one.documents.values() if d.members]
        if len(launchers) > 1 and len(epochs) > 1 and one.commits:
            return one
    raise AssertionError("no story is rich enough: take another seed")


def test_true_stories_break_no_law(stories: tuple[Story, ...]) -> None:
    assert all(one.kept for one in stories), "what machines had on their disks is told"
    assert [str(v) for one in stories for v in check(one)] == []


def change(story: Story, kind: type, **values: Any) -> Story:
    """The last record of ``kind`` says something else, in both copies."""
    last = max(r.seq for r in story.records if isinstance(r.event, kind))
    records = tuple(
        replace(r, event=replace(r.event, **values)) if r.seq == last else r for r in story.records
    )
    return replace(story, records=records, local=records)


def written_by(story: Story, seq: int, writer: str) -> Story:
    records = tuple(replace(r, writer=writer) if r.seq == seq else r for r in story.records)
    return replace(story, records=records, local=records)


def launchers(story: Story) -> list[ev.Record]:
    return [r for r in story.records if isinstance(r.event, ev.LauncherStarted)]


def first_launcher(story: Story) -> str:
    return launchers(story)[0].writer


def missing_record(story: Story) -> Story:
    return replace(story, records=story.records[:5] + story.records[6:])


def other_home(story: Story) -> Story:
    return replace(story, local=story.local[:-1])


def no_submission(story: Story) -> Story:
    records = (replace(story.records[0], event=story.records[1].event), *story.records[1:])
    return replace(story, records=records, local=records)


def late_writer(story: Story) -> Story:
    return written_by(story, len(story.records), first_launcher(story))


def early_author(story: Story) -> Story:
    last = max(story.documents)
    return replace(story, authors={**story.authors, last: first_launcher(story)})


def other_document(story: Story) -> Story:
    last = max(n for n, d in story.documents.items() if d.members)
    return replace(story, documents={**story.documents, last: replace(story.documents[last], members=())})


def unknown_epoch(story: Story) -> Story:
    last = max(story.documents)
    return replace(story, documents={**story.documents, last + 1: story.documents[last]})


def call(story: Story, caller: str, lease_id: str) -> Story:
    head = len(story.records)
    one = Call(at_s=0.0, caller=caller, verb="create", token="t", lease_id=lease_id, head=head)
    return replace(story, calls=(*story.calls, one))


def loser_calls(story: Story) -> Story:
    return call(story, first_launcher(story), "of-nobody")


def stranger_calls(story: Story) -> Story:
    return call(story, "l-never", "of-nobody")


def early_call(story: Story) -> Story:
    first = next(c for c in story.calls if c.verb == "create")
    return replace(story, calls=(replace(first, head=1), *story.calls))


def unknown_machine(story: Story) -> Story:
    return replace(story, machines=(*story.machines, replace(story.machines[0], token="other")))


def leak(story: Story) -> Story:
    gone = replace(story.machines[0], ended_s=None, bill_micro=None)
    return replace(story, machines=(gone, *story.machines[1:]))


def outlives(story: Story) -> Story:
    lease = story.machines[0].lease_id
    end_s = max(story.written_s.values()) + 50.0
    return replace(
        story,
        machines=tuple(replace(m, ended_s=end_s) if m.lease_id == lease else m for m in story.machines),
    )


def bill(story: Story) -> Story:
    first = story.machines[0]
    wrong = replace(first, bill_micro=(first.bill_micro or 0) + 1)
    return replace(story, machines=(wrong, *story.machines[1:]))


def never_was(story: Story) -> Story:
    return replace(story, machines=story.machines[1:])


def twice_at_once(story: Story) -> Story:
    epochs = sorted(n for n, d in story.documents.items() if d.members)
    older = next(r for r in story.runs if r.epoch == epochs[0])
    newer = next(r for r in story.runs if r.epoch == epochs[-1])
    lease = replace(newer, epoch=older.epoch, first_step=older.first_step)
    return replace(story, runs=(*story.runs, lease))


def from_the_future(story: Story) -> Story:
    resumed = max((d for d in story.documents.values() if d.resume_from), key=lambda d: d.number)
    at_s = max(story.written_s.values())
    return replace(
        story,
        commits=tuple(
            replace(c, at_s=at_s) if c.manifest == resumed.resume_from else c for c in story.commits
        ),
    )


def passed_over(story: Story) -> Story:
    epochs = sorted(n for n, d in story.documents.items() if d.members)
    better = Commit(manifest="ckpt/manifests/better", epoch=epochs[-2], step=10_000, at_s=0.0)
    return replace(story, commits=(*story.commits, better))


def other_step(story: Story) -> Story:
    return replace(story, commits=tuple(replace(c, step=c.step + 1) for c in story.commits))


def begins_elsewhere(story: Story) -> Story:
    last = max(r.epoch for r in story.runs)
    runs = tuple(replace(r, first_step=r.first_step + 1) if r.epoch == last else r for r in story.runs)
    return replace(story, runs=runs)


def never_sent(story: Story) -> Story:
    """A checkpoint that lay whole on the machine of the newest epoch, with nothing in its way."""
    last = max((d for d in story.documents.values() if d.members), key=lambda d: d.number)
    lease_id = last.members[0].lease_id
    kept = Kept(epoch=last.number, step=10_000, leases=(lease_id,), saved_s=0.0, until_s=1e9, closed=())
    return replace(story, kept=(*story.kept, kept))


def no_cause(story: Story) -> Story:
    return change(story, ev.JobPhaseChanged, text=" ")


def not_ended(story: Story) -> Story:
    return replace(story, may_end=frozenset({JobPhase.FAILED}))


def half_done(story: Story) -> Story:
    return replace(story, total_steps=story.total_steps + 1)


def a_bug(story: Story) -> Story:
    return replace(story, bugs=("KeyError: 'x'",))


BROKEN: dict[Callable[[Story], Story], str] = {
    missing_record: "one_history",
    other_home: "one_history",
    no_submission: "one_history",
    late_writer: "one_writer",
    early_author: "one_author",
    other_document: "one_author",
    unknown_epoch: "one_author",
    loser_calls: "losers_call_nothing",
    stranger_calls: "losers_call_nothing",
    early_call: "intent_first",
    unknown_machine: "intent_first",
    leak: "nothing_leaks",
    outlives: "nothing_leaks",
    bill: "money_adds_up",
    never_was: "money_adds_up",
    twice_at_once: "no_double_run",
    from_the_future: "no_double_run",
    passed_over: "nothing_committed_is_lost",
    other_step: "nothing_committed_is_lost",
    begins_elsewhere: "nothing_committed_is_lost",
    never_sent: "what_could_be_sent_is",
    no_cause: "every_end_has_a_cause",
    not_ended: "every_end_has_a_cause",
    half_done: "every_end_has_a_cause",
    a_bug: "every_end_has_a_cause",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_law_is_seen(story: Story, broken: Callable[[Story], Story]) -> None:
    found = check(broken(story))
    assert BROKEN[broken] in {v.law for v in found}, [str(v) for v in found]
    assert all(v.job_id == story.job_id and v.text for v in found)


def test_a_release_that_is_not_true_is_seen(story: Story) -> None:
    assert "releases_are_true" in {v.law for v in check(outlives(story))}


def test_one_that_was_denied_and_listed_too_late_ends_itself(story: Story) -> None:
    end_s = max(story.written_s.values())
    late = replace(
        story.machines[0],
        instance_id="i-late",
        lease_id="refused",
        landed_s=end_s - 20.0,
        listed_s=end_s + 20.0,
        ended_s=end_s + 600.0,
        bill_micro=1,
        denied=True,
    )

    def found(machine: MachineTruth) -> set[str]:
        return {v.law for v in check(replace(story, machines=(*story.machines, machine)))}

    assert not found(late)
    assert came_too_late(late, end_s)
    assert not any(came_too_late(machine, end_s) for machine in story.machines)
    for change in ({"denied": False}, {"listed_s": end_s - 1.0}, {"ended_s": end_s + 700.0}):
        assert {"nothing_leaks", "money_adds_up"} <= found(replace(late, **change))


def test_every_law_is_broken_here() -> None:
    assert {law.__name__ for law in LAWS} | {"one_history"} == {*BROKEN.values(), "releases_are_true"}
