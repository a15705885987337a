"""From the journal to a job's state: ``state = fold(apply, records)``. No I/O, no clock.

``replay(records)`` equals ``apply`` one by one equals ``replay(first half)`` then the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import IntegrityError
from arylcloud.core.offer import Offer
from arylcloud.core.phases import LEASE_TRANSITIONS, JobPhase, LeasePhase
from arylcloud.core.ports import PricePoint
from arylcloud.core.stores import usual_place
from arylcloud.launcher.state import BY_QUEUE, Epoch, JobState, Lease, Training, Turn

LIMIT_TOPICS: Final = ("near:", "limit:")
"""How topics of notifications begin that speak of a job's limits."""


def replay(records: Iterable[ev.Record], state: JobState | None = None) -> JobState:
    """Fold ``records`` onto ``state`` (None: the first record must be JobSubmitted)."""
    for record in records:
        state = apply(state, record)
    if state is None:
        raise IntegrityError("the journal has no records of this job")
    return state


def apply(state: JobState | None, record: ev.Record) -> JobState:
    event = record.event
    if state is None:
        if not isinstance(event, ev.JobSubmitted) or record.seq != 1:
            raise IntegrityError(f"journal of {record.job_id} does not begin with its submission")
        return JobState(
            job_id=record.job_id,
            spec=event.spec,
            prefix_uri=event.prefix_uri,
            journal_id=event.journal_id,
            market_clock=MarketClock(origin_s=event.market_origin_s, scale=event.market_scale),
            submitted_at_s=record.at_s,
            phase_since_s=record.at_s,
            baselines=event.quotes,
            queued=event.queued,
            store_place=_place(event),
            planned=event.planned,
            quoted=event.quoted,
            size=event.nodes,
            seq=1,
        )
    if record.seq != state.seq + 1 or record.job_id != state.job_id:
        raise IntegrityError(f"journal of {state.job_id}: record {record.seq} follows {state.seq}")
    return replace(_apply(state, event, record.at_s), seq=record.seq)


def _apply(state: JobState, event: ev.Event, at_s: float) -> JobState:
    match event:
        case ev.JobPhaseChanged():
            if event.phase.ended:
                state = replace(state, turns=_over(state.turns, at_s))
            if event.phase is JobPhase.PENDING:
                # a resume starts with a clean slate: what ended the job before does not end it again
                state = replace(
                    state,
                    commands_ended=(),
                    stop=None,
                    migrate_request=None,
                    scale_request=None,
                    migration=None,
                    exit_code=None,
                    placed=None,
                    history_epoch=state.epochs[-1].number if state.epochs else 0,
                    history_attempt=state.attempts,
                )
            return replace(
                state,
                phase=event.phase,
                phase_code=event.code,
                phase_text=event.text,
                phase_since_s=at_s,
                phase_until_s=event.until_s,
                exit_code=event.exit_code if event.exit_code is not None else state.exit_code,
            )
        case ev.LeaseIntended():
            lease = Lease(
                lease_id=event.lease_id,
                token=event.token,
                offer=event.offer,
                index=event.index,
                attempt=event.attempt,
                purpose=event.purpose,
                phase=LeasePhase.INTENDED,
                since_s=at_s,
                intended_at_s=at_s,
                until_s=event.until_s,
                why=event.why,
            )
            if event.lease_id in state.leases:
                raise IntegrityError(f"lease {event.lease_id} is intended twice")
            return replace(
                state,
                leases={**state.leases, lease.lease_id: lease},
                attempts=max(state.attempts, event.attempt),
            )
        case ev.LeaseCreated():
            prices = (
                ()
                if event.usd_per_hour is None
                else (PricePoint(from_s=event.launched_s, usd_per_hour=event.usd_per_hour),)
            )
            known = state.leases.get(event.lease_id)
            ended_s = known.ended_s if known is not None else None
            return _lease(
                state,
                event.lease_id,
                at_s,
                # one that is being ended, or was given up, and has landed after all: its phase stays,
                # but from now on the ledger knows it
                LeasePhase.PENDING if known is None or known.phase is LeasePhase.INTENDED else None,
                created_at_s=at_s,
                ended_s=None if ended_s is None else max(ended_s, event.launched_s),
                instance_id=event.instance_id,
                launched_s=event.launched_s,
                address=event.address,
                prices=prices,
                billing=event.billing,
                uncertain=False,
            )
        case ev.LeaseRefused():
            refused = {"ended_at_s": at_s, "cause": event.kind, "refusal": event}
            return _lease(state, event.lease_id, at_s, LeasePhase.REFUSED, **refused)
        case ev.CreateUncertain():
            return _lease(
                state,
                event.lease_id,
                at_s,
                None,
                uncertain=True,
                uncertain_at_s=at_s,
                uncertain_kind=event.kind,
            )
        case ev.LeasePhaseChanged():
            return _lease(state, event.lease_id, at_s, event.phase)
        case ev.LeasePriced():
            return _priced(state, event)
        case ev.PricesChecked():
            since_s = None if event.complete else at_s
            return _lease(state, event.lease_id, at_s, None, prices_missing_since_s=since_s)
        case ev.LimitUnknown():
            return replace(state, limits_unknown=state.limits_unknown | {event.limit})
        case ev.LimitNear():
            return replace(state, limits_near=state.limits_near | {event.limit})
        case ev.FilesChanged():
            spec = replace(state.spec, workdir=event.workdir)
            return replace(state, spec=spec, files_sha256=event.sha256, files_at_s=at_s)
        case ev.LimitsChanged():
            limits = replace(
                state.spec.constraints,
                budget_usd=event.budget_usd,
                deadline_s=event.deadline_s,
                max_runtime_s=event.max_runtime_s,
            )
            spec = replace(state.spec, constraints=limits)
            # of the new limits all is to be said again
            notified = frozenset(t for t in state.notified if not t.startswith(LIMIT_TOPICS))
            return replace(
                state, spec=spec, limits_near=frozenset(), limits_unknown=frozenset(), notified=notified
            )
        case ev.QueueDecided():
            turn = Turn(gpu=event.gpu, begin_s=at_s)
            return replace(state, placed=event, turns=(*_over(state.turns, at_s), turn))
        case ev.StallSeen():
            return replace(state, stalls=(*state.stalls, event))
        case ev.LeaseEnding():
            if event.code == "lost" and event.lease_id in state.leases:  # whatever its cloud will say of it
                state = _cool(state, state.leases[event.lease_id].offer, at_s)
            return _lease(state, event.lease_id, at_s, LeasePhase.ENDING, ending_code=event.code)
        case ev.LeaseReleased():
            state = _lease(
                state,
                event.lease_id,
                at_s,
                LeasePhase.RELEASED,
                ended_s=event.ended_s,
                cause=event.cause,
                ended_at_s=at_s,
                end_text=event.text,
                **({} if event.code is None else {"ending_code": event.code}),
            )
            lease = state.leases[event.lease_id]
            if event.cause in ("interrupted", "unknown"):
                state = _cool(state, lease.offer, at_s)
            announced = lease.notice_acts_at_s is not None  # counted when the notice came
            return state if event.cause != "interrupted" or announced else _interrupted(state, lease, at_s)
        case ev.NoticeSeen():
            state = _cool(state, state.leases[event.lease_id].offer, at_s)
            state = _interrupted(state, state.leases[event.lease_id], at_s)
            return _lease(state, event.lease_id, at_s, LeasePhase.DOOMED, notice_acts_at_s=event.acts_at_s)
        case ev.RiskSeen():
            state = _lease(state, event.lease_id, at_s, None, at_risk=True)
            return _cool(state, state.leases[event.lease_id].offer, at_s)
        case ev.EpochOpened():
            epoch = Epoch(
                number=event.number,
                attempt=event.attempt,
                members=event.members,
                resume_from=event.resume_from,
                resume_step=event.resume_step,
                opened_at_s=at_s,
                reason=event.reason,
                grace_s=event.grace_s,
                pipelines=event.pipelines,
            )
            if state.epochs and event.number != state.epochs[-1].number + 1:
                raise IntegrityError(f"epoch {event.number} follows {state.epochs[-1].number}")
            return replace(state, epochs=(*state.epochs, epoch))
        case ev.TrainingStarted():
            training = Training(
                epoch=event.epoch,
                lease_id=event.lease_id,
                started_at_s=event.at_s,
                began_at_s=at_s - event.ran_s,
                first_step=event.step,
            )
            return replace(state, trainings=_began(state.trainings, training))
        case ev.TrainingStopped():
            return replace(
                state,
                trainings=tuple(
                    replace(
                        t,
                        stopped_at_s=event.at_s,
                        last_step=event.last_step,
                        committed_step=event.committed_step,
                        committed_saved_at_s=event.committed_saved_at_s,
                        how=event.how,
                        told=event.told,
                    )
                    if (t.epoch, t.lease_id) == (event.epoch, event.lease_id) and t.stopped_at_s is None
                    else t
                    for t in state.trainings
                ),
            )
        case ev.CommandEnded():
            return replace(state, commands_ended=(*state.commands_ended, event))
        case ev.CheckpointCommitted():
            return replace(state, checkpoints=(*state.checkpoints, event))
        case ev.CheckpointRejected():
            return replace(state, rejected=state.rejected | {event.manifest})
        case ev.RequestSeen():
            state = replace(state, requests_seen=max(state.requests_seen, event.number))
            if event.args.get("stale"):  # asked before the last resume: seen, and overtaken by it
                return state
            if event.verb == "stop":
                users = state.stop is not None and BY_QUEUE not in state.stop.args
                if users and BY_QUEUE in event.args:
                    return state  # whom a user has stopped the queue does not start again
                return replace(state, stop=event)
            if event.verb == "migrate":
                return replace(state, migrate_request=event)
            if event.verb == "check":
                return replace(state, bars=tuple(b for b in state.bars if not _does_now(b, event)))
            if event.verb == "scale":
                if state.turn_nodes is not None:
                    return state  # its size is the queue's; `scale` has said so, unless the turn came since
                return replace(state, scale_request=event)
            return state
        case ev.SizeChosen():
            # the planner is asked only while no request is open: whatever is said answers it
            pinned = event.code == "scale"
            return replace(state, size=event.nodes, size_pinned=pinned, size_at_s=at_s, scale_request=None)
        case ev.ScaleRefused():
            return replace(state, scale_request=None)
        case ev.MigrationStarted():
            return replace(state, migration=event, migration_at_s=at_s, migrate_request=None)
        case ev.MigrationEnded():
            done = state.migrations_done + (1 if event.done else 0)
            moved = state.migration
            if event.done and moved is not None and moved.nodes is not None:
                state = replace(state, size=moved.nodes)
            return replace(state, migration=None, migrate_request=None, migrations_done=done)
        case ev.OfferBarred():
            return replace(state, bars=(*(b for b in state.bars if b.scope != event.scope), event))
        case ev.Charged():
            return replace(state, charges=(*state.charges, event))
        case ev.BaselineQuoted():
            others = (b for b in state.baselines if (b.name, b.offer.key) != (event.name, event.offer.key))
            return replace(state, baselines=(*others, event))
        case ev.Notified():
            return replace(state, notified=state.notified | {event.topic})
        case ev.LauncherStarted():
            return replace(state, launcher=event)
        case ev.JobSubmitted():
            return state


def _place(submitted: ev.JobSubmitted) -> str | None:
    """Journals of before name no place, but the bucket's own name may."""
    said = submitted.store_place
    return usual_place(submitted.prefix_uri) if said is None else said or None


def _began(trainings: tuple[Training, ...], said: Training) -> tuple[Training, ...]:
    """One more; a second word on one that is open says better when that began."""

    def same(t: Training) -> bool:
        return (t.epoch, t.lease_id, t.stopped_at_s) == (said.epoch, said.lease_id, None)

    if not any(same(t) for t in trainings):
        return (*trainings, said)
    return tuple(
        replace(t, started_at_s=said.started_at_s, began_at_s=said.began_at_s) if same(t) else t
        for t in trainings
    )


def _over(turns: tuple[Turn, ...], at_s: float) -> tuple[Turn, ...]:
    """The last one ends, if it has not."""
    if not turns or turns[-1].end_s is not None:
        return turns
    return (*turns[:-1], replace(turns[-1], end_s=at_s))


def _does_now(bar: ev.OfferBarred, seen: ev.RequestSeen) -> bool:
    """Whether `check` has found the quota large enough that a refusal had barred the offers for."""
    return bar.code == "quota" and bar.scope in seen.args.get("scopes", ())


def _lease(state: JobState, lease_id: str, at_s: float, phase: LeasePhase | None, **changes: Any) -> JobState:
    lease = state.leases.get(lease_id)
    if lease is None:
        raise IntegrityError(f"journal of {state.job_id} speaks of the unknown lease {lease_id}")
    if phase is not None and phase is not lease.phase:
        if phase not in LEASE_TRANSITIONS[lease.phase]:
            raise IntegrityError(f"lease {lease_id} cannot go from {lease.phase} to {phase}")
        changes = {"phase": phase, "since_s": at_s, **changes}
    return replace(state, leases={**state.leases, lease_id: replace(lease, **changes)})


def _interrupted(state: JobState, lease: Lease, at_s: float) -> JobState:
    """A loss to the cloud: with notice, though we end the machine before the cloud does, or without."""
    loss = (state.market_clock.market_s(at_s), lease.offer.key)
    return replace(state, interruptions=state.interruptions + 1, losses=(*state.losses, loss))


def _cool(state: JobState, offer: Offer, at_s: float) -> JobState:
    region = f"{offer.cloud}/{offer.region}"
    others = (c for c in state.cooling if c[1] != region)
    return replace(state, cooling=(*others, (state.market_clock.market_s(at_s), region)))


def _priced(state: JobState, event: ev.LeasePriced) -> JobState:
    """A later report of the same moment replaces the earlier one; points stay in order of time."""
    lease = state.leases.get(event.lease_id)
    if lease is None:
        raise IntegrityError(f"a price is reported for the unknown lease {event.lease_id}")
    points = {p.from_s: p for p in lease.prices}
    points[event.from_s] = PricePoint(from_s=event.from_s, usd_per_hour=event.usd_per_hour)
    prices = tuple(points[at] for at in sorted(points))
    return replace(state, leases={**state.leases, event.lease_id: replace(lease, prices=prices)})
