"""A job's journal written by hand: each method appends the record that the launcher would write.

Wall seconds everywhere but ``launched_s``, ``ended_s`` and ``from_s`` (market seconds), as in events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from arylcloud.core import events as ev
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import Billing
from arylcloud.core.protocol import Member, manifest_key
from arylcloud.launcher.fold import replay
from arylcloud.launcher.state import JobState

JOB = "digits-0a1b2c3d"


def offer(
    zone: str = "use1-az1",
    *,
    market: Market = Market.SPOT,
    usd_per_hour: float | None = 3.6,
    instance_type: str = "p3.2xlarge",
    cloud: str = "aws",
    region: str = "us-east-1",
) -> Offer:
    return Offer(
        cloud=cloud,
        region=region,
        zone=zone or None,
        instance_type=instance_type,
        gpu="V100",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=8.0,
        mem_gib=61.0,
        market=market,
        usd_per_hour=usd_per_hour,
        as_of="2026-09-01",
        source="test",
    )


@dataclass
class Diary:
    job_id: str = JOB
    origin_s: float = 0.0
    scale: float = 1.0
    spec: JobSpec = field(default_factory=lambda: JobSpec(name="digits", run="python train.py"))
    records: list[ev.Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.records:
            self.write(
                0.0,
                ev.JobSubmitted(
                    spec=self.spec,
                    prefix_uri="file:///store/jobs/x",
                    journal_id="j1",
                    market_origin_s=self.origin_s,
                    market_scale=self.scale,
                ),
            )

    def write(self, at_s: float, event: ev.Event) -> Diary:
        self.records.append(
            ev.Record(
                job_id=self.job_id,
                seq=len(self.records) + 1,
                at_s=at_s,
                writer="l-1",
                cause_id=None,
                event=event,
            )
        )
        return self

    @property
    def state(self) -> JobState:
        return replay(self.records)

    def lease(
        self,
        name: str,
        launched_s: float,
        *,
        usd_per_hour: float | None = 3.6,
        at: Offer | None = None,
        index: int = 0,
        billing: Billing | None = None,
        purpose: ev.Purpose = "start",
    ) -> Diary:
        wall = self.origin_s + (launched_s - self.origin_s) / self.scale
        attempt = sum(isinstance(r.event, ev.LeaseIntended) for r in self.records) + 1
        self.write(
            wall,
            ev.LeaseIntended(
                lease_id=name,
                token=f"t-{name}",
                offer=at or offer(usd_per_hour=usd_per_hour),
                index=index,
                attempt=attempt,
                purpose=purpose,
                until_s=1e9,
                why="test",
            ),
        )
        return self.write(
            wall,
            ev.LeaseCreated(
                lease_id=name,
                instance_id=f"i-{name}",
                launched_s=launched_s,
                usd_per_hour=usd_per_hour,
                address="127.0.0.2",
                billing=billing or Billing(),
            ),
        )

    def price(self, name: str, from_s: float, usd_per_hour: float) -> Diary:
        return self.write(from_s, ev.LeasePriced(lease_id=name, from_s=from_s, usd_per_hour=usd_per_hour))

    def notice(self, name: str, at_s: float, *, lead_s: float = 120.0) -> Diary:
        return self.write(at_s, ev.NoticeSeen(lease_id=name, action="terminate", acts_at_s=at_s + lead_s))

    def end(self, name: str, ended_s: float, cause: str = "terminated") -> Diary:
        wall = self.origin_s + (ended_s - self.origin_s) / self.scale
        if cause == "terminated":
            self.write(wall, ev.LeaseEnding(lease_id=name, code="done", why="test"))
        return self.write(wall, ev.LeaseReleased(lease_id=name, ended_s=ended_s, cause=cause))

    def epoch(
        self,
        at_s: float,
        *names: str,
        resume: tuple[int, int] | None = None,
        step: int = 0,
        reason: str = "start",
    ) -> Diary:
        """``resume``: (epoch, number) of the manifest. No names: a drain."""
        number = sum(isinstance(r.event, ev.EpochOpened) for r in self.records) + 1
        attempt = sum(isinstance(r.event, ev.EpochOpened) and bool(r.event.members) for r in self.records)
        return self.write(
            at_s,
            ev.EpochOpened(
                number=number,
                attempt=attempt + (1 if names else 0),
                members=tuple(Member(lease_id=n, rank=i, address="127.0.0.2") for i, n in enumerate(names)),
                resume_from=None if resume is None else manifest_key(*resume),
                resume_step=step,
                reason=reason,
            ),
        )

    def train(self, epoch: int, name: str, at_s: float, step: int = 0) -> Diary:
        return self.write(at_s, ev.TrainingStarted(epoch=epoch, lease_id=name, at_s=at_s, step=step))

    def save(self, epoch: int, number: int, at_s: float, step: int, *, size: int = 1000) -> Diary:
        return self.write(
            at_s,
            ev.CheckpointCommitted(
                manifest=manifest_key(epoch, number),
                epoch=epoch,
                step=step,
                saved_at_s=at_s,
                total_bytes=size,
            ),
        )

    def halt(
        self,
        epoch: int,
        name: str,
        at_s: float,
        *,
        how: Literal["drained", "exited", "lost"],
        last: int,
        committed: int,
        saved_s: float | None,
        told: bool = True,
    ) -> Diary:
        return self.write(
            at_s,
            ev.TrainingStopped(
                epoch=epoch,
                lease_id=name,
                at_s=at_s,
                last_step=last,
                committed_step=committed,
                committed_saved_at_s=saved_s,
                how=how,
                told=told,
            ),
        )

    def phase(self, at_s: float, phase: JobPhase, code: str = "x", text: str = "x", **more: Any) -> Diary:
        return self.write(at_s, ev.JobPhaseChanged(phase=phase, code=code, text=text, **more))


def survivor() -> Diary:
    """One machine lost without notice, one with, one migration, success. Prices in whole cents.

    a: [0, 1000) at 3.6 $/h; steps [100, 1000), saved at 700; lost without notice at 1000
    b: [1010, 2010) at 3.6, from 1510 on at 7.2; steps [1110, 1600), noticed at 1550, saved 1600
    c: [1560, 3000) at 1.8; steps [1700, 2500), drained for a migration at 2500
    d: [2300, 4000) at 0.9; steps [2510, 3900), exits 0
    """
    d = Diary()
    d.lease("a", 0.0).phase(0.0, JobPhase.PROVISIONING).epoch(50.0, "a").train(1, "a", 100.0)
    d.save(1, 1, 400.0, 30).save(1, 2, 700.0, 60)
    d.halt(1, "a", 1000.0, how="lost", last=89, committed=60, saved_s=700.0).end("a", 1000.0, "interrupted")
    d.lease("b", 1010.0, at=offer("use1-az2"), purpose="replace").price("b", 1510.0, 7.2)
    d.epoch(1100.0, "b", resume=(1, 2), step=60, reason="replaced").train(2, "b", 1110.0, 60)
    d.notice("b", 1550.0).lease("c", 1560.0, usd_per_hour=1.8, at=offer("usw2-az1", region="us-west-2"))
    d.epoch(1590.0).save(2, 1, 1600.0, 109)
    d.halt(2, "b", 1600.0, how="drained", last=109, committed=109, saved_s=1600.0)
    d.end("b", 2010.0, "interrupted")
    d.epoch(1650.0, "c", resume=(2, 1), step=109, reason="notice").train(4, "c", 1700.0, 109)
    target = offer("usw2-az3", region="us-west-2", usd_per_hour=0.9)
    d.write(
        2250.0,
        ev.MigrationStarted(
            to=target, from_offer=offer("usw2-az1").key, expected_saving_usd=0.2, forced=False, why="cheaper"
        ),
    )
    d.lease("d", 2300.0, usd_per_hour=0.9, at=target, purpose="migrate").epoch(2450.0)
    d.save(4, 1, 2500.0, 189).halt(4, "c", 2500.0, how="drained", last=189, committed=189, saved_s=2500.0)
    d.epoch(2502.0, "d", resume=(4, 1), step=189, reason="migration").train(6, "d", 2510.0, 189)
    d.write(2511.0, ev.MigrationEnded(done=True, text="moved")).end("c", 3000.0)
    d.save(6, 1, 3890.0, 320)
    d.halt(6, "d", 3900.0, how="exited", last=328, committed=320, saved_s=3890.0)
    d.write(3900.0, ev.CommandEnded(epoch=6, rank=0, exit_code=0, in_setup=False, tail=""))
    d.write(3901.0, ev.Charged(what="egress", usd=0.05, gb=2.5, text="checkpoint to us-west-2"))
    d.write(3901.0, ev.Charged(what="storage", usd=0.01, gb=1.0, text="checkpoints"))
    d.end("d", 4000.0)
    return d.phase(4001.0, JobPhase.SUCCEEDED, "finished", "the command exited 0", exit_code=0)
