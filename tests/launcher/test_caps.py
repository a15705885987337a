"""A budget at run time: told in time, kept with the last save in it, and with everything that costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from arylcloud.core import events as ev
from arylcloud.core.job import CheckpointSpec, Constraints, DataSet, Resources
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.charges import Charges
from arylcloud.launcher.limits import RESERVE_SHARE, reserve_usd
from arylcloud.launcher.spent import spent_for_limits_usd, spent_usd
from arylcloud.launcher.state import Epoch, JobState
from arylcloud.pricing.tariffs import load_tariffs
from tests.support.harness import Harness, spec

NOTIFY = "https://example.com/…"


@dataclass
class Spending(Harness):
    """As the real ``desire`` does: what has been spent is looked up at every pass."""

    def _desire(self, state: JobState, observed: act.Observed, now_s: float) -> act.Desired:
        return replace(super()._desire(state, observed, now_s), spent_usd=spent_for_limits_usd(state, now_s))


def spending(folder: Path, budget_usd: float, nodes: int = 2) -> Spending:
    h = Spending(folder, spec=spec(nodes, constraints=Constraints(budget_usd=budget_usd), notify=NOTIFY))
    h.agents.total_steps = 100_000
    return h


def test_told_once_then_saved_and_stopped_within_the_budget(tmp_path: Path) -> None:
    """Two machines at $1/h each: ten cents last three minutes."""
    h = spending(tmp_path, 0.10)
    h.until(JobPhase.FAILED, within=300)
    h.check_ended()
    assert h.state.phase_code == "over_budget"
    (near,) = (e for e in h.events if isinstance(e, ev.LimitNear))
    assert near.limit == "budget"
    assert "of $0.10 is spent" in near.text
    told = [e.topic for e in h.events if isinstance(e, ev.Notified)]
    assert told.count("near:budget") == 1
    spent = spent_usd(h.state, h.clock.at_s)
    assert spent is not None
    assert 0.08 < spent <= 0.10
    # the last checkpoint is the one that it saved when it was asked to stop
    assert h.state.lineage is not None
    assert h.state.lineage.step == max(t.last_step or 0 for t in h.state.trainings)


def test_nothing_is_bought_for_the_last_crumbs(tmp_path: Path) -> None:
    """Its machines end themselves a moment before us: no new one is asked for with what is left."""
    h = spending(tmp_path, 0.10)
    h.until(JobPhase.RUNNING)
    while (spent_for_limits_usd(h.state, h.clock.at_s) or 0.0) < 0.0935:
        h.tick()
    assert h.state.phase is JobPhase.RUNNING
    born = len(h.world.born)
    for machine in h.running:
        h.world.power_off(machine.instance_id)
    h.tick(40)
    assert len(h.world.born) == born + 2, "there is enough for a while"
    h.until(JobPhase.FAILED)
    assert h.state.phase_code == "over_budget"


def test_what_is_kept_for_the_end(tmp_path: Path) -> None:
    h = spending(tmp_path, 100.0)
    assert reserve_usd(h.state, 60.0) == pytest.approx(1.0)
    assert reserve_usd(h.state, 60.0, save_s=570.0) == RESERVE_SHARE * 100.0
    assert reserve_usd(h.state, None) == 0.0
    free = replace(h.state, spec=spec())
    assert reserve_usd(free, 60.0) == 0.0


def test_disks_and_kept_checkpoints_are_charged_by_the_cent_and_once(tmp_path: Path) -> None:
    """1,000 GB at AWS's tariff of a disk: 11 cents an hour; no launcher charges anything again."""
    tariffs = load_tariffs()
    per_month = tariffs.disk("aws").usd
    assert per_month is not None
    h = Spending(tmp_path, spec=spec(resources=Resources(disk_gb=1000.0)))
    h.agents.total_steps = 100_000
    h.launcher.charges = Charges(tariffs=tariffs)
    h.until(JobPhase.RUNNING)
    for _ in range(3):
        h.tick(3)
        h.clock.at_s += 1200.0
        h.restart()
        h.launcher.charges = Charges(tariffs=tariffs)
    h.tick(3)
    charges = [e for e in h.events if isinstance(e, ev.Charged)]
    assert {c.what for c in charges} == {"storage"}
    assert all(c.usd >= 0.01 for c in charges)
    (lease,) = h.state.leases.values()
    assert lease.launched_s is not None
    expected = 1000.0 * per_month / 730.0 * (h.clock.at_s - lease.launched_s) / 3600.0
    assert sum(c.usd for c in charges) == pytest.approx(expected, abs=0.0101)
    assert spent_for_limits_usd(h.state, h.clock.at_s) == pytest.approx(
        sum(c.usd for c in charges) + (h.clock.at_s - lease.launched_s) / 3600.0, abs=0.01
    )


def test_checkpoints_are_charged_for_as_long_as_they_are_kept(tmp_path: Path) -> None:
    """One an hour: each until two newer ones are there; for good, where its step or an epoch holds it."""
    tariffs = load_tariffs()
    per_month = tariffs.storage("aws").usd
    assert per_month is not None
    state = Harness(tmp_path, spec=spec(checkpoint=CheckpointSpec(keep=2, keep_every_steps=100))).state
    saved = tuple(
        ev.CheckpointCommitted(
            manifest=f"m{i}", epoch=1, step=50 * i, saved_at_s=3600.0 * i, total_bytes=1_000_000_000_000
        )
        for i in range(1, 6)
    )
    state = replace(state, prefix_uri="s3://arylcloud-123456789012-us-east-1/jobs/x", checkpoints=saved)
    owed = Charges(tariffs=tariffs).storage(state, 11 * 3600.0)
    hours = {50: 2.0, 100: 9.0, 150: 2.0, 200: 7.0, 250: 6.0}
    assert owed.gb == pytest.approx(3000.0), "of steps 100, 200 and 250"
    assert owed.usd == pytest.approx(1000.0 * per_month / 730.0 * sum(hours.values()))
    epoch = Epoch(
        number=2, attempt=2, members=(), resume_from="m3", resume_step=150, opened_at_s=0.0, reason=""
    )
    held = replace(state, epochs=(epoch,))
    more = Charges(tariffs=tariffs).storage(held, 11 * 3600.0)
    assert more.gb == pytest.approx(4000.0)
    assert more.usd == pytest.approx(1000.0 * per_month / 730.0 * (sum(hours.values()) + 6.0))
    later = (replace(epoch, number=number, resume_from=None, opened_at_s=8 * 3600.0) for number in (3, 4, 5))
    let_go = Charges(tariffs=tariffs).storage(replace(state, epochs=(epoch, *later)), 11 * 3600.0)
    assert let_go.gb == pytest.approx(3000.0)
    assert let_go.usd == pytest.approx(1000.0 * per_month / 730.0 * (sum(hours.values()) + 3.0))


def test_what_crosses_a_border_is_charged_and_counts(tmp_path: Path) -> None:
    """The store in us-east-1, the machine in eu-west-1, the data in us-west-2: each way at its tariff."""
    tariffs = load_tariffs()
    data = DataSet(uri="s3://set", size_gb=100.0, region="aws/us-west-2")
    h = Harness(tmp_path, spec=spec(data=(data,), checkpoint=CheckpointSpec(keep=2)))
    h.ranking = (h.ranking[3],)
    h.agents.total_steps = 100_000
    h.until(JobPhase.RUNNING)
    h.tick(25)
    charges = Charges(tariffs=tariffs)
    read = tariffs.egress("aws/us-west-2", "aws/eu-west-1").usd
    assert read is not None
    in_a_folder = charges.egress(h.state)
    assert in_a_folder.usd == pytest.approx(100.0 * read)
    assert in_a_folder.unknown == frozenset()
    sized = tuple(replace(c, total_bytes=10_000_000_000) for c in h.state.checkpoints)
    assert len(sized) == 2
    bucket = "s3://mine/jobs/x"
    home = replace(h.state, prefix_uri=bucket, store_place="aws/us-east-1", checkpoints=sized)
    out = tariffs.egress("aws/eu-west-1", "aws/us-east-1").usd
    assert out is not None
    assert charges.egress(home).usd == pytest.approx(100.0 * read + 2 * 10.0 * out)
    near = replace(home, store_place="aws/eu-west-1")
    assert charges.egress(near).usd == pytest.approx(100.0 * read)
    # another machine, after a loss, restores ten gigabytes and reads the data again
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING, JobPhase.PROVISIONING)
    h.until(JobPhase.RUNNING)
    h.tick(10)
    sized = tuple(replace(c, total_bytes=10_000_000_000) for c in h.state.checkpoints)
    again = replace(h.state, prefix_uri=bucket, store_place="aws/us-east-1", checkpoints=sized)
    back = tariffs.egress("aws/us-east-1", "aws/eu-west-1").usd
    assert back is not None
    expected = 200.0 * read + len(sized) * 10.0 * out + 10.0 * back
    assert charges.egress(again).usd == pytest.approx(expected)
