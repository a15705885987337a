"""What people report of today's tools, and what happens here instead: leaks, ownership, price truth."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from e2e.market import fault, job, market, quiet, rough, spot
from e2e.support import Home, wait_for
from e2e.truth import machines_accounted, settled

NewHome = Callable[..., Home]


def running(home: Home) -> list[str]:
    """Machines that the cloud still has, by its own log."""
    records = home.cloud_records()
    ended = {r["instance_id"] for r in records if r["kind"] == "end"}
    return [i for r in records if r["kind"] == "launch" and (i := r["instance"]["instance_id"]) not in ended]


# ---------------------------------------------------------------- 28: stop at any moment


def stop_after(home: Home, delay_s: float) -> None:
    """STOPPED is said only when the cloud has nothing of the job any more; what was said stays true."""
    job_id = home.submit(job(steps=400, step_s=0.02, hold=350))
    launcher = home.serve(job_id)
    time.sleep(delay_s)
    home.cli("stop", job_id, "-d", code=0)
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id, phase="stopped")
    said = next(
        r.at_s
        for r in reversed(home.events(job_id))
        if isinstance(r.event, ev.JobPhaseChanged) and r.event.phase.ended
    )
    ends = [r["wall_s"] for r in home.cloud_records() if r["kind"] == "end"]
    assert all(end <= said for end in ends), "it said STOPPED while a machine was still there"
    found = home.cli("gc", "--dryrun", "--json", code=0).json["found"]
    assert found == []


@pytest.mark.parametrize("seed", [1, 2])
def test_28_stop_at_any_moment_leaves_nothing(new_home: NewHome, seed: int) -> None:
    stop_after(new_home(rough()), random.Random(seed).uniform(0.0, 4.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_28_stop_at_any_moment_thoroughly(new_home: NewHome, seed: int) -> None:
    stop_after(new_home(rough()), random.Random(seed).uniform(0.0, 12.0))


def test_28_stop_before_anything_has_begun(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job())
    home.cli("stop", job_id, "-d", code=0, no_launcher=True)
    home.serve_to_the_end(job_id)
    settled(home, job_id, phase="stopped")
    assert home.state(job_id).leases == {}, "a machine was created after the stop"


def test_28_stop_while_a_create_hangs(new_home: NewHome) -> None:
    """The answer is lost, the machine comes: it is found by its tag, and ended, before STOPPED."""
    home = new_home(quiet(faults=(fault("create", "hang_after", seconds=3.0),)))
    job_id = home.submit(job(hold=100))
    launcher = home.serve(job_id)
    wait_for(lambda: running(home), "a machine that nobody has been told of")
    home.cli("stop", job_id, "-d", code=0)
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id, phase="stopped")
    assert running(home) == []


# ---------------------------------------------------------------- 30: dead between create and save


def test_30_gc_finds_what_a_dead_launcher_created(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job())
    assert home.serve(job_id, die_at="after create").wait() == -9
    (lease,) = home.state(job_id).leases.values()
    assert lease.phase is LeasePhase.INTENDED, "the crash came too late"
    (machine,) = running(home)

    listed = home.cli("gc", "--dryrun", "--json", code=0).json
    assert [m["instance_id"] for m in listed["found"]] == [machine]
    assert listed["terminated"] == []
    assert running(home) == [machine], "--dryrun ends nothing"
    said = home.cli("gc", "--dryrun", code=0).err
    assert machine in said
    assert "would be ended" in said

    assert home.cli("gc", "--json", code=0).json["terminated"] == [machine]
    wait_for(lambda: not running(home), "its end")
    assert home.cli("gc", "--dryrun", "--json", code=0).json["found"] == []
    # and the job goes on as if nothing had been
    home.serve_to_the_end(job_id)
    settled(home, job_id)


def test_30_a_launcher_that_comes_back_takes_its_machine(new_home: NewHome) -> None:
    """Without gc: the same token gives the same machine."""
    home = new_home(quiet())
    job_id = home.submit(job())
    assert home.serve(job_id, die_at="after create").wait() == -9
    (machine,) = running(home)
    state = home.serve_to_the_end(job_id)
    settled(home, job_id)
    assert [lease.instance_id for lease in state.leases.values()] == [machine]


def test_30_gc_leaves_alone_what_is_being_worked_on(new_home: NewHome) -> None:
    """A running job; the same job without a launcher; the same job with a launcher elsewhere."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=200, step_s=0.02, hold=150))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).trainings, "training")
    assert home.cli("gc", "--json", code=0).json == {
        "schema_version": 1, "found": [], "terminated": [], "unattended": [], "cut_short": [], "errors": [],
        "resources": [], "unknown": [], "dryrun": False,
    }  # fmt: skip
    launcher.kill()
    assert launcher.wait() != 0
    # its last heartbeat may be that of a launcher elsewhere: nothing is said until that is old
    assert home.cli("gc", "--json", code=0).json["found"] == []

    other = new_home(cloud_of=home)
    uri = home.state(job_id).prefix_uri
    other.cli("adopt", uri, "--force", "-d", code=0, no_launcher=True)
    adopter = other.serve(job_id)
    (first,) = running(home)
    home.kill_machine(first)
    wait_for(lambda: [i for i in running(home) if i != first], "a replacement, by the other launcher")
    # this home has never heard of the new machine, and its journal id is on it all the same
    assert home.cli("gc", "--json", code=0).json["found"] == []
    home.go()
    assert adopter.wait() == 0, adopter.err[-2000:]
    machines_accounted(other, job_id)


def test_30_gc_ends_others_only_when_asked_and_expired(new_home: NewHome) -> None:
    """A machine whose launcher is lost and that cannot end itself: every process of it is frozen."""
    home = new_home(quiet(until_grace_s=3600))
    job_id = home.submit(job(steps=1000, hold=500, unattended="10s"))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).trainings, "training")
    for pid in home.machine_processes():
        os.kill(pid, signal.SIGSTOP)
    launcher.kill()
    owner = home.state(job_id).journal_id
    (machine,) = running(home)
    other = new_home(cloud_of=home)
    gc = ("gc", "--infra", "local", "--json")

    def seen() -> dict[str, Any]:
        (row,) = other.cli(*gc, "--dryrun", code=0).json["found"]
        return row  # type: ignore[no-any-return]

    first = seen()
    assert (first["instance_id"], first["ours"], first["owner"]) == (machine, False, owner)
    assert other.cli(*gc, "--owner", "somebody", code=0).json["terminated"] == []
    wait_for(lambda: seen()["lease_expired"], "the end of its lease")
    assert other.cli(*gc, code=0).json["terminated"] == [], "not ours, and not asked for"
    assert running(home) == [machine]
    assert other.cli(*gc, "--owner", owner, code=0).json["terminated"] == [machine]
    wait_for(lambda: not running(home), "its end")


# ---------------------------------------------------------------- 37: a create that lands all the same


@pytest.mark.parametrize(
    ("kind", "options"), [("hang_after", {"seconds": 4.0}), ("error_after", {})], ids=["timeout", "error"]
)
def test_37_a_create_that_failed_and_landed_is_one_machine(
    new_home: NewHome, kind: str, options: dict[str, Any]
) -> None:
    home = new_home(quiet(faults=(fault("create", kind, times=1, **options),)))
    job_id = home.submit(job(steps=50))
    env: dict[str, str | None] = {"ARYLCLOUD_LOCAL__TIMEOUT_S": "1"}
    launcher = home.start("serve", "--job", job_id, env=env)
    assert launcher.wait() == 0, launcher.err[-2000:]
    state = settled(home, job_id)
    kinds = [type(r.event).__name__ for r in home.events(job_id)]
    assert kinds.count("CreateUncertain") == 1
    assert len(state.leases) == 1, "another attempt was made before the list had told"
    created = next(r for r in home.events(job_id) if isinstance(r.event, ev.LeaseCreated))
    assert created.cause_id == "list of local"


# ---------------------------------------------------------------- 42: the price of what was created


def rises(home: Home, spec: dict[str, Any]) -> tuple[Any, ...]:
    """The price rises between the quote and the create: the events of such a job."""
    job_id = home.submit(spec)
    launcher = home.serve(job_id, stop_at="before create")
    wait_for(lambda: launcher.stopped, "the moment before the create")
    (lease,) = home.state(job_id).leases.values()
    assert (lease.phase, lease.offer.region) == (LeasePhase.INTENDED, "rising")
    home.set_price("rising", 0.50)
    launcher.send(signal.SIGCONT)
    assert launcher.wait() == 0, launcher.err[-3000:]
    settled(home, job_id)
    return tuple(r.event for r in home.events(job_id))


def two() -> dict[str, Any]:
    return market(spot("rising", 0.10), spot("steady", 0.20))


def test_42_a_machine_dearer_than_its_quote_is_ended_and_said(new_home: NewHome) -> None:
    """The created machine's price is what counts."""
    home = new_home(two())
    events = rises(home, job(steps=50))
    ending = next(e for e in events if isinstance(e, ev.LeaseEnding))
    assert ending.code == "over_cap"
    assert "$0.5000/h" in ending.why
    assert "quoted at $0.1000/h" in ending.why
    assert any(isinstance(e, ev.OfferBarred) and e.code == "over_cap" for e in events)
    (job_id,) = home.jobs()
    offers = [lease.offer.region for lease in home.state(job_id).leases.values()]
    assert offers == ["rising", "steady"]


def test_42_a_price_above_the_cap_is_never_paid(new_home: NewHome) -> None:
    home = new_home(two())
    events = rises(home, job(steps=50, max_usd_per_hour="0.30"))
    (job_id,) = home.jobs()
    for lease in home.state(job_id).leases.values():
        assert lease.phase is LeasePhase.REFUSED or all(p.usd_per_hour <= 0.30 for p in lease.prices)
    refused = next(e for e in events if isinstance(e, ev.LeaseRefused))
    assert "the cap is $0.3/h" in refused.message


# ---------------------------------------------------------------- a home that goes away


def test_a_launcher_whose_journal_is_removed_ends_and_the_job_can_be_adopted(new_home: NewHome) -> None:
    """It would write where nobody reads. The machine goes on; another home takes the job over."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=300, step_s=0.02, hold=250))
    uri = home.state(job_id).prefix_uri
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    for path in home.state_dir.glob("journal.db*"):
        path.unlink()
    assert launcher.wait() == 2, launcher.err[-2000:]
    assert "has been removed" in launcher.err
    assert f"arylcloud adopt {uri}" in launcher.err
    assert len(running(home)) == 1
    other = new_home(cloud_of=home)
    home.go()
    other.cli("adopt", uri, "--force", code=0)
    settled(other, job_id)
    assert len(other.state(job_id).leases) == 1
