"""One pass of ``reconcile``: what is known, what has been decided so far, and their sum.

Every decision is folded into ``state`` as the journal will fold it, so that later rules of the same
pass see earlier ones. Mutable, but never leaves :func:`~arylcloud.launcher.reconcile.reconcile`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from arylcloud.core import events as ev
from arylcloud.core import tokens
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.pipeline import Pipelines
from arylcloud.core.ports import Machine, MachineState
from arylcloud.core.protocol import AgentPhase, Heartbeat, Member
from arylcloud.launcher import actions as act
from arylcloud.launcher.fold import apply
from arylcloud.launcher.state import Epoch, JobState, Lease

HOLDING = frozenset({LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.READY, LeasePhase.SUSPECT})
"""Phases in which a lease fills its slot: neither on its way out nor out."""
_NEARNESS = {
    LeasePhase.READY: 0,
    LeasePhase.SUSPECT: 1,
    LeasePhase.PENDING: 2,
    LeasePhase.INTENDED: 3,
}
"""How near a lease that holds a slot is to be a member."""
HEARD = frozenset({LeasePhase.READY, LeasePhase.SUSPECT, LeasePhase.DOOMED})
"""Phases in which an agent may be running the job's command."""


@dataclass(slots=True)
class Draft:
    state: JobState
    observed: act.Observed
    desired: act.Desired
    now_s: float
    actions: list[act.Action] = field(default_factory=list)
    waiting: tuple[str, str] | None = None
    """(code, text), once a slot was found for which no offer can be had, or shall be."""
    waiting_until_s: float | None = None
    """Wall seconds up to which it waits at most, where it waits by choice."""
    _held: tuple[JobState, Mapping[int, Lease]] | None = None
    """Whose holders were asked for last, and what they are."""

    # ------------------------------------------------------------ what is known

    @property
    def timing(self) -> act.Timing:
        return self.desired.timing

    @property
    def now_market_s(self) -> float:
        return self.state.market_clock.market_s(self.now_s)

    @property
    def elastic(self) -> bool:
        """Its number of machines may change while it runs."""
        return self.state.spec.nodes_min < self.state.spec.nodes_max

    @property
    def size(self) -> int:
        """How many machines it should have."""
        return self.state.wanted

    @property
    def stopping(self) -> bool:
        return self.state.phase is JobPhase.STOPPING

    def listed(self, lease: Lease) -> bool:
        return lease.offer.cloud in self.observed.listed

    def machine(self, lease: Lease) -> Machine | None:
        """The cloud's row for this lease: by its instance id once that is known, else by our tag."""
        rows = [m for m in self.observed.machines if m.lease_id == lease.lease_id]
        if lease.instance_id is not None:
            return next((m for m in rows if m.instance_id == lease.instance_id), None)
        return min(rows, key=lambda m: (m.state is MachineState.GONE, m.launched_s), default=None)

    def beat(self, lease: Lease) -> Heartbeat | None:
        return self.observed.beats.get(lease.lease_id)

    def silent_s(self, lease: Lease) -> float:
        """Seconds of our own time since the last sign of life."""
        heard_s = self.observed.heard_s_ago.get(lease.lease_id)
        if heard_s is None:
            return self.now_s - lease.since_s
        if math.isinf(heard_s):  # not since it became SUSPECT, which took so long
            return self.now_s - lease.since_s + self.timing.silent_s
        return heard_s

    @property
    def member_epoch(self) -> Epoch | None:
        """The newest epoch with members since the last resume: the one whose ends count."""
        for epoch in reversed(self.state.epochs):
            if epoch.number <= self.state.history_epoch:
                return None
            if epoch.members:
                return epoch
        return None

    @property
    def draining(self) -> bool:
        newest = self.state.epoch
        return newest is not None and newest.drain

    def members(self, epoch: Epoch) -> tuple[Lease, ...]:
        return tuple(self.state.leases[m.lease_id] for m in epoch.members)

    def settled(self, lease: Lease, epoch: Epoch) -> bool:
        """Runs nothing of ``epoch`` any more, and all that it committed can be seen."""
        beat = self.beat(lease)
        if beat is None or lease.phase not in HEARD:
            return lease.phase not in HEARD
        if beat.phase is AgentPhase.BROKEN:
            return True
        if beat.drained_epoch < epoch.number:
            return False
        return beat.committed is None or beat.committed in self._visible()

    def _visible(self) -> set[str]:
        seen = {c.key for c in self.observed.checkpoints} | set(self.observed.damaged)
        return seen | {c.manifest for c in self.state.checkpoints} | self.state.rejected

    def at_work(self, epoch: Epoch) -> tuple[Lease, ...]:
        """Members whose command may still run, or has not yet committed what it saved."""
        return tuple(lease for lease in self.members(epoch) if not self.settled(lease, epoch))

    def targets(self) -> tuple[Lease, ...]:
        """Machines that the migration under way is bringing up, by slot."""
        started_s = self.state.migration_at_s
        if self.state.migration is None or started_s is None:
            return ()
        return tuple(
            lease
            for lease in self.state.leases.values()
            if lease.purpose == "migrate" and lease.intended_at_s >= started_s and lease.phase in HOLDING
        )

    def holders(self) -> Mapping[int, Lease]:
        """Slot → the lease that fills it: no more than ``size``, and all of one offer, since an epoch lives
        in one zone on one type.

        Of several in a slot, the member of the open epoch, else the newest; of several offers, the one that
        fills most slots; of more than ``size``, the members by rank, then who is nearest to be one."""
        if self._held is None or self._held[0] is not self.state:  # every rule asks; few decide anything
            self._held = (self.state, self._holders())
        return self._held[1]

    def _holders(self) -> dict[int, Lease]:
        epoch = self.member_epoch
        ranks = {m.lease_id: m.rank for m in epoch.members} if epoch else {}
        aside = {lease.lease_id for lease in self.targets()}
        by_offer: dict[str, dict[int, Lease]] = {}
        for lease in self.state.leases.values():
            if lease.phase not in HOLDING or lease.lease_id in aside:
                continue
            slots = by_offer.setdefault(lease.offer.key, {})
            best = slots.get(lease.index)
            rank = (lease.lease_id in ranks, lease.attempt)
            if best is None or rank > (best.lease_id in ranks, best.attempt):
                slots[lease.index] = lease
        if not by_offer:
            return {}

        def weight(slots: dict[int, Lease]) -> tuple[int, int, int]:
            known = sum(lease.lease_id in ranks for lease in slots.values())
            return min(len(slots), self.size), known, max(lease.attempt for lease in slots.values())

        slots = max(by_offer.values(), key=weight)
        order = sorted(
            slots.values(),
            key=lambda x: (ranks.get(x.lease_id, len(ranks)), _NEARNESS[x.phase], x.index),
        )
        return {lease.index: lease for lease in sorted(order[: self.size], key=lambda x: x.index)}

    def asked(self) -> frozenset[str]:
        """Leases that this pass creates or ends already."""
        return frozenset(a.lease_id for a in self.actions if isinstance(a, (act.CreateLease, act.EndLease)))

    # ------------------------------------------------------------ what is decided

    def note(self, event: ev.Event, cause_id: str | None = None) -> None:
        self.actions.append(act.Note(event=event, cause_id=cause_id))
        self._fold(event)

    def phase(
        self,
        phase: JobPhase,
        code: str,
        text: str,
        exit_code: int | None = None,
        until_s: float | None = None,
    ) -> None:
        if (self.state.phase, self.state.phase_code) != (phase, code):
            event = ev.JobPhaseChanged(
                phase=phase, code=code, text=text, exit_code=exit_code, until_s=until_s
            )
            self.note(event)

    def create(self, offer: Offer, index: int, purpose: ev.Purpose, until_s: float, why: str) -> None:
        attempt = self.state.attempts + 1
        lease_id = tokens.lease_id(self.state.job_id, index, attempt)
        action = act.CreateLease(
            lease_id=lease_id,
            token=tokens.client_token(self.state.journal_id, lease_id),
            offer=offer,
            index=index,
            attempt=attempt,
            purpose=purpose,
            until_s=until_s,
            why=why,
        )
        self.actions.append(action)
        self._fold(
            ev.LeaseIntended(
                lease_id=lease_id,
                token=action.token,
                offer=offer,
                index=index,
                attempt=attempt,
                purpose=purpose,
                until_s=until_s,
                why=why,
            )
        )

    def repeat_create(self, lease: Lease) -> None:
        """The same token: whatever the first call did, there is one machine."""
        self.actions.append(
            act.CreateLease(
                lease_id=lease.lease_id,
                token=lease.token,
                offer=lease.offer,
                index=lease.index,
                attempt=lease.attempt,
                purpose=lease.purpose,
                until_s=lease.until_s,
                why=lease.why,
            )
        )

    def end(self, lease: Lease, code: str, why: str) -> None:
        """Ask for a lease's end; asked again of one that is ENDING, the call is repeated."""
        machine = self.machine(lease) or self._presumed(lease)
        self.actions.append(act.EndLease(lease_id=lease.lease_id, machine=machine, code=code, why=why))
        if lease.phase is not LeasePhase.ENDING:
            self._fold(ev.LeaseEnding(lease_id=lease.lease_id, code=code, why=why))

    def sweep(self, machine: Machine, why: str) -> None:
        self.actions.append(act.SweepMachine(machine=machine, why=why))

    def _presumed(self, lease: Lease) -> Machine | None:
        """A machine that create has answered and lists do not show (yet): enough to terminate it."""
        if lease.instance_id is None or lease.launched_s is None:
            return None
        return Machine(
            instance_id=lease.instance_id,
            token=lease.token,
            journal_id=self.state.journal_id,
            job_id=self.state.job_id,
            lease_id=lease.lease_id,
            cloud=lease.offer.cloud,
            region=lease.offer.region,
            zone=lease.offer.zone,
            instance_type=lease.offer.instance_type,
            market=lease.offer.market.value,
            state=MachineState.PENDING,
            usd_per_hour=lease.usd_per_hour,
            launched_s=lease.launched_s,
            address=lease.address,
            until_s=lease.until_s,
        )

    def open_epoch(
        self,
        members: tuple[Member, ...],
        reason: str,
        grace_s: float | None = None,
        pipelines: Pipelines | None = None,
    ) -> None:
        """The next epoch. With members it resumes from the lineage; without, it is a drain."""
        newest = self.state.epoch
        lineage = self.state.lineage
        action = act.OpenEpoch(
            number=(newest.number if newest else 0) + 1,
            attempt=self.state.attempt + (1 if members else 0),
            members=members,
            resume_from=lineage.manifest if lineage and members else None,
            resume_step=lineage.step if lineage and members else 0,
            reason=reason,
            grace_s=grace_s,
            pipelines=pipelines,
        )
        self.actions.append(action)
        self._fold(
            ev.EpochOpened(
                number=action.number,
                attempt=action.attempt,
                members=members,
                resume_from=action.resume_from,
                resume_step=action.resume_step,
                reason=reason,
                grace_s=grace_s,
                pipelines=pipelines,
            )
        )

    def notify(self, topic: str, text: str) -> None:
        """Once per topic, and only where the user wants to be told."""
        if self.state.spec.notify is not None and topic not in self.state.notified:
            self.actions.append(act.Notify(topic=topic, text=text))
            self._fold(ev.Notified(topic=topic, ok=True, text=text))

    def _fold(self, event: ev.Event) -> None:
        record = ev.Record(
            job_id=self.state.job_id,
            seq=self.state.seq + 1,
            at_s=self.now_s,
            writer="",
            cause_id=None,
            event=event,
        )
        self.state = apply(self.state, record)
