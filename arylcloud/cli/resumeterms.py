"""What a resumed job goes on with: limits that leave it room, the files of its launch; a question first."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from arylcloud.cli.settings import Folders
    from arylcloud.core.events import LimitsChanged
    from arylcloud.core.job import JobSpec
    from arylcloud.launcher.bundle import Archive
    from arylcloud.launcher.state import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimits:
    """Flags of ``resume``, as typed; None = the limit stays."""

    budget: str | None = None
    deadline: str | None = None
    max_runtime: str | None = None

    def __bool__(self) -> bool:
        return any(text is not None for text in (self.budget, self.deadline, self.max_runtime))


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """``resume --workdir``: what the job runs from here on."""

    workdir: str
    archive: Archive

    @classmethod
    def packed(cls, folder: Path) -> Files:
        """Says which files stay out. Raises UsageError, LocalStateError."""
        from arylcloud.cli.output import hanging, note
        from arylcloud.cli.secretfiles import holds_secrets, note_of
        from arylcloud.launcher.bundle import pack

        archive = pack(folder, holds_secrets)
        if archive.left_out:
            note(hanging(note_of(archive.left_out), 2))
        return cls(workdir=str(folder.resolve()), archive=archive)

    @property
    def text(self) -> str:
        number = self.archive.files
        files = f"{number:,} file{'' if number == 1 else 's'} of {self.workdir}, as they are now"
        return f"it runs {files}; `run` and `setup` stay those of its launch"


def new_limits(state: JobState, typed: NewLimits, now_s: float) -> LimitsChanged | None:
    """The job's limits with those of ``typed`` in their place; None: nothing was typed. Budget and
    ``max_runtime`` are of the whole job, what is used already included; a deadline is from ``now_s`` (wall)
    on. Raises UsageError."""
    from arylcloud.core import units
    from arylcloud.core.events import LimitsChanged

    if not typed:
        return None
    old, clock = state.spec.constraints, state.market_clock
    budget_usd, deadline_s, max_runtime_s = old.budget_usd, old.deadline_s, old.max_runtime_s
    if typed.budget is not None:
        budget_usd = units.parse_usd(typed.budget, what="--budget")
    if typed.deadline is not None:
        since_s = clock.market_s(now_s) - clock.market_s(state.submitted_at_s)
        deadline_s = since_s + units.parse_duration_s(typed.deadline, what="--deadline")
    if typed.max_runtime is not None:
        max_runtime_s = units.parse_duration_s(typed.max_runtime, what="--max-runtime")
    return LimitsChanged(budget_usd=budget_usd, deadline_s=deadline_s, max_runtime_s=max_runtime_s)


def checked_limits(state: JobState, typed: NewLimits, now_s: float) -> LimitsChanged | None:
    """:func:`new_limits`, refused where they are used up. ``state``: caught up with the mailbox, as another
    home may have used more since, and set others. Raises UsageError, OverBudget."""
    limits = new_limits(state, typed, now_s)
    refuse_used_up(state, limits, now_s)
    return limits


def refuse_used_up(state: JobState, limits: LimitsChanged | None, now_s: float) -> None:
    """OverBudget (104) where a limit is used up already: its launcher would end the job again at once."""
    from arylcloud.core.errors import OverBudget
    from arylcloud.core.units import say_duration, say_usd, say_usd_limit
    from arylcloud.launcher.limits import trained_market_s
    from arylcloud.launcher.reconcile.caps import BUDGET_SLACK, RUNTIME_SLACK
    from arylcloud.launcher.spent import spent_for_limits_usd

    old = state.spec.constraints
    budget_usd = old.budget_usd if limits is None else limits.budget_usd
    longest_s = old.max_runtime_s if limits is None else limits.max_runtime_s
    again = f"`arylcloud resume {state.job_id} --"
    spent = spent_for_limits_usd(state, now_s)
    if budget_usd is not None and spent is not None and spent >= budget_usd * (1 - BUDGET_SLACK):
        raise OverBudget(
            f"{state.job_id} has spent {say_usd(spent)} of a budget of {say_usd_limit(budget_usd)}",
            hint=f"{again}budget USD`: of the whole job, what is spent included",
        )
    ran_s = trained_market_s(state, now_s)
    if longest_s is not None and ran_s >= longest_s * (1 - RUNTIME_SLACK):
        raise OverBudget(
            f"{state.job_id} has run for {say_duration(ran_s)}, max_runtime is {say_duration(longest_s)}",
            hint=f"{again}max-runtime TIME`: of the whole job, what it has run included",
        )


def files_text(state: JobState) -> str | None:
    """Which files it runs on, where its workdir is on this machine: those that were sent, whatever has become
    of them here."""
    from pathlib import Path

    from arylcloud.core.errors import ArylError
    from arylcloud.launcher.bundle import newer

    if state.spec.workdir is None:
        return None
    sent_s = state.submitted_at_s if state.files_at_s is None else state.files_at_s
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(sent_s))
    text = f"it runs the files of {'its launch' if state.files_at_s is None else 'a resume'} at {when}"
    try:
        changed = newer(Path(state.spec.workdir), sent_s)
    except (ArylError, OSError):  # moved, or another machine's: it is not needed
        return text
    if not changed:
        failed = state.phase_code == "user_command"
        return f"{text}: the very files on which its command failed" if failed else text
    more = "1 file is" if changed == 1 else f"{changed} files are"
    sends = f"`--workdir {shlex.quote(state.spec.workdir)}`"
    return f"{text}; in {state.spec.workdir} {more} newer ({sends} sends those)"


def ask(state: JobState, spec: JobSpec, places: Folders, yes: bool) -> None:
    """Before machines are paid for again: on a terminal, what it would cost from here on at most, and a
    question. Raises Cancelled."""
    if yes or not sys.stdin.isatty():
        return
    import typer

    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.output import hanging, note, rate
    from arylcloud.core.errors import Cancelled, InfeasibleError

    try:
        best = make_plan(spec, places, limit=1, store_place=state.store_place).chosen
    except InfeasibleError as error:
        note(hanging(f"  no offer keeps all its limits now: {error.message}", 2))
    else:
        price = best.offer.usd_per_hour
        costs = rate(None if price is None else price * best.nodes)
        where = f"{best.nodes} × {best.offer.instance_type} {best.offer.market.replace('_', '-')}"
        note(hanging(f"  now the best: {where} in {best.offer.place}, {costs}", 2))
    if not typer.confirm(f"Resume {state.job_id}?", default=True, err=True):
        raise Cancelled("not resumed")
