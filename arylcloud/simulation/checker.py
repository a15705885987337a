"""What must hold of a job that has been through everything: laws over its event log and the world's own log.

Pure, and apart from the code it judges: nothing of ``reconcile`` or the executor is asked. Each law yields
one sentence for each way in which the story breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.fold import apply, replay
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.state import JobState
from arylcloud.simulation.story import MachineTruth, Story

CUT_OFF: Final = frozenset({LeasePhase.SUSPECT, LeasePhase.ENDING, LeasePhase.DOOMED})
"""A machine in one of these may go on with an epoch that is over: nobody can tell it, and nobody reads it."""
LINGER_S: Final = 700.0
"""A machine that nobody knows of ends itself by its own timer: ten minutes, and its boot."""
SEND_S: Final = 20.0
"""With its way to the store open for so long, a machine has sent what it has (four steps of the chaos)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    law: str
    job_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.job_id}: {self.law}: {self.text}"


def check(story: Story) -> tuple[Violation, ...]:
    """Every broken law. Without records that can be read one after another, that alone."""
    found = [*_said("one_history", story, one_history(story))]
    if not found:
        for law in LAWS:
            found += _said(law.__name__, story, law(story))
    return tuple(found)


def _said(name: str, story: Story, texts: Iterator[str]) -> list[Violation]:
    return [Violation(law=name, job_id=story.job_id, text=text) for text in texts]


# ---------------------------------------------------------------- histories


def one_history(story: Story) -> Iterator[str]:
    """The mailbox and the last home tell the same, without a gap, from the submission on."""
    numbers = [record.seq for record in story.records]
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        yield f"records {numbers[:3]}…{numbers[-3:]} are not 1 … {len(numbers)}"
    elif not isinstance(story.records[0].event, ev.JobSubmitted):
        yield "it does not begin with its submission"
    elif story.local != story.records:
        differ = next((a.seq for a, b in zip(story.local, story.records, strict=False) if a != b), None)
        at_home, there = len(story.local), len(story.records)
        yield f"{at_home} records at home, {there} in the mailbox; the first that differs: {differ}"


def one_writer(story: Story) -> Iterator[str]:
    """From a launcher's first record to the next launcher's, nobody else writes: the fence."""
    holder: str | None = None
    for record in story.records:
        if isinstance(record.event, ev.LauncherStarted):
            holder = record.event.launcher_id
            if record.writer != holder:
                yield f"record {record.seq} says {holder} began, and was written by {record.writer}"
        elif record.writer != holder and not _users(record):
            kind = type(record.event).__name__
            yield f"record {record.seq} ({kind}) is of {record.writer}, while {holder} holds the job"


def one_author(story: Story) -> Iterator[str]:
    """Each epoch is opened once, by the launcher that holds the job; its document says the same and was
    written by that launcher or one after it."""
    opened: dict[int, ev.Record] = {}
    for record in story.records:
        if not isinstance(record.event, ev.EpochOpened):
            continue
        number = record.event.number
        if number in opened:
            yield f"epoch {number} is opened by records {opened[number].seq} and {record.seq}"
        opened[number] = record
    began = _began(story)
    for number, document in story.documents.items():
        if number not in opened:
            yield f"epoch {number} has a document and no record"
            continue
        record = opened[number]
        event = record.event
        assert isinstance(event, ev.EpochOpened)
        if (document.members, document.resume_from) != (event.members, event.resume_from):
            yield f"epoch {number}: its document says something else than its record"
        author = story.authors.get(number, record.writer)
        if began.get(author, -1) < began.get(record.writer, 0):
            yield f"epoch {number} of {record.writer} was written by {author}, who held the job before it"


def losers_call_nothing(story: Story) -> Iterator[str]:
    """Who does not hold the job asks no cloud for anything that was not decided while it did."""
    began = _began(story)
    holders = sorted((seq, who) for who, seq in began.items())
    decided = _decided(story)
    for call in story.calls:
        if call.caller not in began:
            yield f"{call.caller} never held the job, and called {call.verb} for {call.lease_id}"
            continue
        holder = next((who for seq, who in reversed(holders) if seq <= call.head), None)
        if holder != call.caller and decided.get((call.verb, call.lease_id), call.head + 1) > call.head:
            yield f"{call.caller} called {call.verb} for {call.lease_id} while {holder} held the job"


def intent_first(story: Story) -> Iterator[str]:
    """Whatever a cloud is asked for lies in the mailbox before, and every machine is one of these."""
    intents = {r.event.token: r.seq for r in story.records if isinstance(r.event, ev.LeaseIntended)}
    for call in story.calls:
        if call.verb == "create" and intents.get(call.token, call.head + 1) > call.head:
            yield f"{call.lease_id} was asked for before the mailbox had it"
    for machine in story.machines:
        if machine.token not in intents:
            yield f"{machine.instance_id} is no lease's machine"


# ---------------------------------------------------------------- machines and money


def nothing_leaks(story: Story) -> Iterator[str]:
    """No machine outlives its job; all that landed in time were ended before the job was. (One that its
    cloud had denied, and that was listed after that end, ends itself.)"""
    end = _last_end(story)
    for machine in story.machines:
        if machine.ended_s is None:
            yield f"{machine.instance_id} ({machine.lease_id}) is still paid for"
        elif came_too_late(machine, end):
            continue
        elif end is not None and machine.in_time and machine.landed_s < end < machine.ended_s:
            yield f"{machine.instance_id} ended at {machine.ended_s:.0f} s, after its job at {end:.0f} s"


def releases_are_true(story: Story) -> Iterator[str]:
    """RELEASED means that nothing is paid for any more."""
    by_lease: dict[str, list[MachineTruth]] = {}
    for machine in story.machines:
        by_lease.setdefault(machine.lease_id, []).append(machine)
    for record in story.records:
        said_s = story.written_s.get(record.seq)
        if not isinstance(record.event, ev.LeaseReleased) or said_s is None:
            continue
        for machine in by_lease.get(record.event.lease_id, ()):
            if machine.landed_s > said_s and not machine.in_time:
                continue
            if machine.ended_s is None or machine.ended_s > said_s + story.resolution_s:
                yield f"{machine.instance_id} was said to be released at {said_s:.0f} s, and ran on"


def money_adds_up(story: Story) -> Iterator[str]:
    """The report's bill of each machine is the world's own, to the micro-dollar; so is the sum."""
    state = replay(story.records)
    report = build_report(state, now_s=state.phase_since_s)
    said = {(cost.lease_id, cost.instance_id): cost for cost in report.leases}
    for machine in story.machines:
        cost = said.pop((machine.lease_id, machine.instance_id), None)
        if machine.bill_micro is None or came_too_late(machine, story.written_s.get(len(story.records))):
            continue  # see ``nothing_leaks``
        known = None if cost is None or cost.micro is None else cost.micro.total
        if known != machine.bill_micro:
            says = "does not know it" if cost is None else f"says {known} µ$"
            what = f"{machine.instance_id} ({machine.lease_id}) costs {machine.bill_micro} µ$"
            yield f"{what}; the report {says}"
    for lease_id, instance_id in said:
        yield f"the report bills {instance_id} ({lease_id}), which never was"


# ---------------------------------------------------------------- work


def no_double_run(story: Story) -> Iterator[str]:
    """Two epochs' commands never run at once, but on a machine that is cut off; and what such a one commits
    after the next epoch was opened is nobody's past."""
    opened = {r.event.number: r for r in story.records if isinstance(r.event, ev.EpochOpened)}
    runs = sorted((run for run in story.runs), key=lambda run: run.from_s)
    for older in runs:
        for newer in runs:
            overlap_s = min(older.to_s, newer.to_s) - max(older.from_s, newer.from_s)
            if older.epoch >= newer.epoch or overlap_s <= story.resolution_s:
                continue
            if newer.epoch not in opened:
                yield f"epoch {newer.epoch} ran on {newer.lease_id}, and was never opened"
                continue
            after = next(n for n in sorted(opened) if n > older.epoch and opened[n].event.members)  # type: ignore[union-attr]
            if not _cut_off(story, older.lease_id, opened[after].seq, CUT_OFF):
                both = f"{older.epoch} ({older.lease_id}) and {newer.epoch} ({newer.lease_id})"
                yield f"epochs {both} ran at once for {overlap_s:.0f} s"
    at_s = {commit.manifest: commit for commit in story.commits}
    for record in opened.values():
        event = record.event
        assert isinstance(event, ev.EpochOpened)
        commit = at_s.get(event.resume_from or "")
        if commit is not None and commit.at_s > story.written_s.get(record.seq, commit.at_s):
            yield f"epoch {event.number} resumes from {commit.manifest}, committed after it was opened"


def nothing_committed_is_lost(story: Story) -> Iterator[str]:
    """Each epoch goes on from the newest commit of the one before it, as far as that was in the mailbox then
    and is not damaged; it resumes at that commit's step, and its commands begin there."""
    truth = {commit.manifest: commit for commit in story.commits}
    rejected: set[str] = set()
    before: int | None = None
    resumes: dict[int, int] = {}
    for record in story.records:
        event = record.event
        if isinstance(event, ev.CheckpointRejected):
            rejected.add(event.manifest)
        if isinstance(event, ev.CheckpointCommitted):
            commit = truth.get(event.manifest)
            if commit is None or (commit.epoch, commit.step) != (event.epoch, event.step):
                yield f"record {record.seq}: {event.manifest} was never committed so"
        if not isinstance(event, ev.EpochOpened) or not event.members:
            continue
        resumed = truth.get(event.resume_from or "")
        if event.resume_from is not None and (resumed is None or resumed.step != event.resume_step):
            yield f"epoch {event.number}: {event.resume_from} is not of step {event.resume_step}"
        opened_s = story.written_s.get(record.seq, 0.0) - 3 * story.resolution_s
        there = [
            c.step
            for c in story.commits
            if c.epoch == before and c.at_s < opened_s and c.manifest not in rejected
        ]
        if max(there, default=0) > event.resume_step:
            yield f"epoch {event.number} resumes at {event.resume_step}; {max(there)} was committed before"
        before = event.number
        resumes[event.number] = event.resume_step
    for run in story.runs:
        if run.epoch in resumes and run.first_step != resumes[run.epoch]:
            yield f"{run.lease_id} began epoch {run.epoch} at {run.first_step}, not {resumes[run.epoch]}"


def what_could_be_sent_is(story: Story) -> Iterator[str]:
    """A whole checkpoint on a machine's disk comes into the mailbox, if the way there was open for ``SEND_S``
    before the cloud took the machine, or would have: whatever was wrong with the store before, and whoever
    ended the machine. (But for a machine that the journal had given up, or waited for long enough.)"""
    for kept in story.kept:
        if any(c.epoch == kept.epoch and c.step >= kept.step for c in story.commits):
            continue
        from_s = kept.saved_s
        for closed_s, open_s in sorted(kept.closed):
            if closed_s < from_s + SEND_S and open_s > from_s:
                from_s = open_s
        if from_s + SEND_S > kept.until_s:
            continue
        if not any(_given_up(story, lease_id, kept.epoch) for lease_id in kept.leases):
            whole = f"step {kept.step} of epoch {kept.epoch} was whole on {', '.join(kept.leases)}"
            yield f"{whole}, and was never sent (saved at {kept.saved_s:.0f} s; said: {kept.said})"


def every_end_has_a_cause(story: Story) -> Iterator[str]:
    """The job has ended, as it may, with a code and words; one that succeeded has done all its work."""
    state = replay(story.records)
    if state.phase not in story.may_end:
        yield f"it is {state.phase} ({state.phase_code}: {state.phase_text})"
    ends = [r.event for r in story.records if isinstance(r.event, ev.JobPhaseChanged)]
    for event in ends:
        if event.phase.ended and not (event.code.strip() and event.text.strip()):
            yield f"{event.phase} has no cause"
    if state.phase.ended and state.open_leases:
        yield f"it has ended, and {state.open_leases[0].lease_id} has not"
    if state.phase is JobPhase.SUCCEEDED and state.epochs:
        last = max(e.number for e in state.epochs if e.members)
        done = max((run.last_step for run in story.runs if run.epoch == last), default=0)
        if done < story.total_steps:
            yield f"it has succeeded after step {done} of {story.total_steps}"
    for bug in story.bugs:
        yield f"a bug: {bug}"


LAWS: Final[tuple[Callable[[Story], Iterator[str]], ...]] = (
    one_writer,
    one_author,
    losers_call_nothing,
    intent_first,
    nothing_leaks,
    releases_are_true,
    money_adds_up,
    no_double_run,
    nothing_committed_is_lost,
    what_could_be_sent_is,
    every_end_has_a_cause,
)


# ---------------------------------------------------------------- parts


def _users(record: ev.Record) -> bool:
    """A submission, and a resume with what it overtakes, are a user's, not a launcher's."""
    event = record.event
    resumed = isinstance(event, ev.JobPhaseChanged) and event.code == "resumed"
    stale = isinstance(event, ev.RequestSeen) and bool(event.args.get("stale"))
    return isinstance(event, ev.JobSubmitted) or resumed or stale


def _began(story: Story) -> dict[str, int]:
    """Launcher → its first record."""
    began: dict[str, int] = {}
    for record in story.records:
        if isinstance(record.event, ev.LauncherStarted):
            began.setdefault(record.event.launcher_id, record.seq)
    return began


def _decided(story: Story) -> dict[tuple[str, str], int]:
    """(verb, lease) → the record that says it."""
    found: dict[tuple[str, str], int] = {}
    for record in story.records:
        if isinstance(record.event, ev.LeaseIntended):
            found["create", record.event.lease_id] = record.seq
        if isinstance(record.event, ev.LeaseEnding):
            found["terminate", record.event.lease_id] = record.seq
    return found


def came_too_late(machine: MachineTruth, end: float | None) -> bool:
    """Its cloud said that it had none, made it all the same, and listed it when the job was over: nobody
    could know of it, and it ended itself. It is in no report."""
    if not machine.denied or end is None or machine.ended_s is None or machine.listed_s < end:
        return False
    return machine.ended_s <= machine.landed_s + LINGER_S


def _last_end(story: Story) -> float | None:
    """When the record was written that ended the job for good."""
    if not replay(story.records).phase.ended:
        return None
    ends = [r.seq for r in story.records if isinstance(r.event, ev.JobPhaseChanged) and r.event.phase.ended]
    return story.written_s.get(ends[-1]) if ends else None


def _given_up(story: Story, lease_id: str, epoch: int) -> bool:
    """Before the journal let a machine go, asked for what it had of ``epoch``, or went on without."""
    given_up = frozenset({LeasePhase.SUSPECT, LeasePhase.RELEASED})
    asked = False
    for record in story.records:
        event = record.event
        last = isinstance(event, ev.LeaseEnding) and event.lease_id == lease_id
        if isinstance(event, ev.EpochOpened) and event.number > epoch:
            last = bool(event.members)
            if not last and asked:
                continue
            asked = True
        elif not last:
            continue
        if _cut_off(story, lease_id, record.seq, given_up):
            return True
        if last:
            return False
    return False


def _cut_off(story: Story, lease_id: str, seq: int, phases: frozenset[LeasePhase]) -> bool:
    """Whether the journal had the machine in one of ``phases``, or waited for it long enough, when it wrote
    record ``seq``."""
    state: JobState | None = None
    drained_s: float | None = None
    for record in story.records[: seq - 1]:
        state = apply(state, record)
        if isinstance(record.event, ev.EpochOpened):
            drained_s = None if record.event.members else story.written_s.get(record.seq)
    assert state is not None
    lease = state.leases.get(lease_id)
    waited_s = None if drained_s is None else story.written_s.get(seq, drained_s) - drained_s
    overdue = waited_s is not None and waited_s >= 0.9 * story.drain_timeout_s
    return lease is None or lease.phase in phases or overdue
