"""A job at one moment, made by hand: what a rule of reconcile looks at, and what it then asks for.

No journal, no world: each rule alone, at its very bounds. (Stories of whole worlds: ``support.harness``.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineState, PricePoint
from arylcloud.core.protocol import AgentPhase, EndDoc, Heartbeat, Member
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Epoch, JobState, Lease, Training
from support.harness import JOB, OFFERS, TIMING, spec

NOW_S = 100_000.0
BEGUN_S = NOW_S - 5_000.0
"""When its machines were heard first, and its epoch was opened."""
CLOCK = MarketClock(origin_s=0.0, scale=2.0)
"""A market hour is half an hour on the wall."""


def lease(index: int = 0, attempt: int | None = None, **changes: Any) -> Lease:
    """READY since BEGUN_S, at $1/h."""
    number = index + 1 if attempt is None else attempt
    lease_id = f"{JOB}-n{index}-a{number}"
    base = Lease(
        lease_id=lease_id,
        token=f"t-{lease_id}",
        offer=OFFERS[0],
        index=index,
        attempt=number,
        purpose="start",
        phase=LeasePhase.READY,
        since_s=BEGUN_S,
        intended_at_s=BEGUN_S - 100.0,
        until_s=NOW_S + 40_000.0,
        why="first choice",
        instance_id=f"i-{index}-{number}",
        address=f"10.0.{number}.{index}",
        launched_s=CLOCK.market_s(BEGUN_S - 50.0),
        prices=(PricePoint(from_s=CLOCK.market_s(BEGUN_S - 50.0), usd_per_hour=1.0),),
        created_at_s=BEGUN_S - 50.0,
    )
    return replace(base, **changes)


def member(rank: int, of: Lease) -> Member:
    return Member(lease_id=of.lease_id, rank=rank, address=of.address or "10.0.0.1")


def epoch(number: int, *of: Lease, **changes: Any) -> Epoch:
    """Of these leases, by rank; of none: a drain."""
    base = Epoch(
        number=number,
        attempt=number,
        members=tuple(member(rank, x) for rank, x in enumerate(of)),
        resume_from=None,
        resume_step=0,
        opened_at_s=BEGUN_S,
        reason="ready",
    )
    return replace(base, **changes)


def saved(manifest: str, epoch: int = 1, step: int = 10) -> ev.CheckpointCommitted:
    return ev.CheckpointCommitted(
        manifest=manifest, epoch=epoch, step=step, saved_at_s=BEGUN_S + step, total_bytes=1
    )


def training(of: Lease, epoch: int = 1, **changes: Any) -> Training:
    base = Training(
        epoch=epoch,
        lease_id=of.lease_id,
        started_at_s=BEGUN_S + 5.0,
        began_at_s=BEGUN_S + 5.0,
        first_step=0,
    )
    return replace(base, **changes)


def beat(of: Lease, phase: AgentPhase = AgentPhase.RUNNING, epoch: int = 1, **changes: Any) -> Heartbeat:
    return replace(Heartbeat(lease_id=of.lease_id, seq=7, at_s=NOW_S, phase=phase, epoch=epoch), **changes)


def machine(of: Lease, **changes: Any) -> Machine:
    base = Machine(
        instance_id=of.instance_id or f"i-{of.index}-{of.attempt}",
        token=of.token,
        journal_id="home",
        job_id=JOB,
        lease_id=of.lease_id,
        cloud="aws",
        region=of.offer.region,
        zone=of.offer.zone,
        instance_type=of.offer.instance_type,
        market="spot",
        state=MachineState.RUNNING,
        usd_per_hour=1.0,
        launched_s=of.launched_s or CLOCK.market_s(BEGUN_S),
        address=of.address,
    )
    return replace(base, **changes)


def failure(of: Lease, rank: int = 0, epoch: int = 1, **changes: Any) -> EndDoc:
    """Of its command, with exit code 1."""
    base = EndDoc(
        epoch=epoch,
        rank=rank,
        lease_id=of.lease_id,
        exit_code=1,
        signalled=False,
        finished=False,
        step=12,
        at_s=NOW_S - 100.0,
    )
    return replace(base, **changes)


def elastic(least: int = 1, most: int = 3, **changes: Any) -> JobSpec:
    return replace(spec(most, on_node_loss="shrink"), nodes_min=least, **changes)


def draft(
    *leases: Lease,
    job: JobSpec | None = None,
    epochs: Sequence[Epoch] | None = None,
    beats: Sequence[Heartbeat] | None = None,
    machines: Sequence[Machine] | None = None,
    state: dict[str, Any] | None = None,
    observed: dict[str, Any] | None = None,
    desired: dict[str, Any] | None = None,
    now_s: float = NOW_S,
) -> Draft:
    """By default all is well: one epoch of all leases, all heard a second ago and running."""
    spec_ = spec(max(1, len(leases))) if job is None else job
    found = (epoch(1, *leases),) if epochs is None and leases else tuple(epochs or ())
    said = [beat(x) for x in leases] if beats is None else beats
    shown = [machine(x) for x in leases] if machines is None else machines
    made = JobState(
        job_id=JOB,
        spec=spec_,
        prefix_uri="memory://x",
        journal_id="home",
        market_clock=CLOCK,
        submitted_at_s=BEGUN_S - 200.0,
        phase=JobPhase.RUNNING,
        phase_code="running",
        phase_since_s=BEGUN_S,
        seq=50,
        leases={x.lease_id: x for x in leases},
        epochs=found,
        attempts=len(leases),
    )
    seen = act.Observed(
        machines=tuple(shown),
        listed=frozenset({"aws"}),
        beats={b.lease_id: b for b in said},
        ends=(),
        checkpoints=(),
        damaged={},
        requests=(),
        published_epoch=max((e.number for e in found), default=0),
        heard_s_ago={b.lease_id: 1.0 for b in said},
    )
    wanted = act.Desired(
        ranking=OFFERS,
        move=None,
        capabilities={"aws": capabilities()},
        timing=TIMING,
        spent_usd=0.0,
    )
    return Draft(
        state=replace(made, **(state or {})),
        observed=replace(seen, **(observed or {})),
        desired=replace(wanted, **(desired or {})),
        now_s=now_s,
    )


def capabilities(notice_s: float = 120.0) -> Capabilities:
    return Capabilities(notice_s=notice_s, billing=Billing(), market_clock=CLOCK, boot_s=30.0)


def offer_like(offer: Offer, **changes: Any) -> Offer:
    return replace(offer, **changes)


def events(d: Draft, kind: type) -> list[Any]:
    """Events of a kind that have been noted."""
    return [a.event for a in d.actions if isinstance(a, act.Note) and isinstance(a.event, kind)]


def actions(d: Draft, kind: type) -> list[Any]:
    return [a for a in d.actions if isinstance(a, kind)]


def ended(d: Draft) -> dict[str, str]:
    """Lease → code, of those that are ended."""
    return {a.lease_id: a.code for a in actions(d, act.EndLease)}
