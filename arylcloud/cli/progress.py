"""Progress of a running job, from its heartbeat; and the bar that shows it on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arylcloud.cli.saves import read_saves
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import IntegrityError, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.state import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    done: int | None
    total: float | None
    unit: str
    """``steps``: the only thing that a checkpoint or a progress file can tell."""
    eta_s: float | None
    """Wall seconds to the end at the rate of this epoch; None = not known."""
    agent_phase: str | None
    at_s: float | None
    """When the newest heartbeat was written."""
    saves: dict[str, Any] | None = None
    """How often it saves, and why (``cli/saves``); None = its agent says nothing of it."""


def read_progress(store: ObjectStore | None, state: JobState, *, with_saves: bool = False) -> Reading:
    """From rank 0's heartbeat; a missing or damaged one, or a mailbox that is away (None), is "not
    known", never 0. ``with_saves``: ``Reading.saves``, too, for one more read."""
    beat = None
    epoch = next((e for e in reversed(state.epochs) if not e.drain), None)
    if epoch is not None and store is not None:
        beat = read_beat(store, epoch.members[0].lease_id)
    saves = None
    ours = beat is not None and epoch is not None and beat.epoch == epoch.number
    if with_saves and store is not None and beat is not None and ours:
        saves = read_saves(store, beat)
    newest = state.lineage
    done = newest.step if newest is not None else None
    if beat is not None and beat.step is not None:
        done = max(done or 0, beat.step)
    total: float | None = None
    if state.spec.work is not None and state.spec.work.unit == "steps":
        total = state.spec.work.amount
    if beat is not None and beat.total_steps is not None:
        total = beat.total_steps
    return Reading(
        done=done,
        total=total,
        unit="steps",
        eta_s=_eta_s(state, beat, done, total),
        agent_phase=str(beat.phase) if beat is not None else None,
        at_s=beat.at_s if beat is not None else None,
        saves=saves,
    )


def read_beat(store: ObjectStore, lease_id: str) -> mail.Heartbeat | None:
    try:
        data = store.get(mail.beat_key(lease_id))
        return None if data is None else loads(mail.Heartbeat, data, what=mail.beat_key(lease_id))
    except (IntegrityError, StoreError):
        return None  # shown as "not known": a screen never stops a job


def _eta_s(
    state: JobState, beat: mail.Heartbeat | None, done: int | None, total: float | None
) -> float | None:
    """At the rate since this epoch's command was started: of a training that shows its steps only by its
    checkpoints, the first sign comes late and says nothing of the time before it."""
    epoch = next((e for e in reversed(state.epochs) if e.members), None)
    if epoch is None or beat is None or beat.epoch != epoch.number:
        return None
    if beat.step is None or beat.command_started_s is None or done is None or total is None:
        return None
    ran_s = beat.at_s - beat.command_started_s
    steps = beat.step - epoch.resume_step
    return max(0.0, total - done) * ran_s / steps if steps > 0 and ran_s > 0 else None


class Progress:
    """One line at the bottom of the terminal: phase, bar, ETA, dollars so far."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def show(self, state: JobState, reading: Reading) -> None:
        self._live.update(self._row(state, reading))

    def close(self) -> None:
        self._live.stop()

    def _row(self, state: JobState, reading: Reading) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        from arylcloud.cli.money import spent
        from arylcloud.cli.output import seconds, usd

        row = Table.grid(padding=(0, 2))
        done = "–" if reading.done is None else f"{reading.done:,}"
        total = "?" if reading.total is None else f"{reading.total:,.0f}"
        bar = ProgressBar(total=reading.total or 1.0, completed=reading.done or 0, width=30)
        eta = "ETA not known" if reading.eta_s is None else f"ETA {seconds(reading.eta_s)}"
        row.add_row(
            str(state.phase), bar, f"{done}/{total} {reading.unit}", eta, f"{usd(spent(state))} so far"
        )
        return row
