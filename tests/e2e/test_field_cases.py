"""What people report of today's tools, and what happens here instead: recovery and classification.

Numbers are those of docs/field-cases.md, which names the test of each.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from support.away import away

from arylcloud.core import events as ev
from arylcloud.core.codec import loads
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import Heartbeat, beat_key
from arylcloud.launcher.state import Lease
from e2e.market import fault, job, market, quiet, spot
from e2e.support import Home, wait_for
from e2e.truth import attempts, machines_accounted, settled, steps_kept

NewHome = Callable[..., Home]


def launches(home: Home) -> list[dict[str, Any]]:
    """Machines that the cloud has ever started, by its own log."""
    return [r["instance"] for r in home.cloud_records() if r["kind"] == "launch"]


def of_kind(home: Home, job_id: str, kind: type) -> list[Any]:
    return [r.event for r in home.events(job_id) if isinstance(r.event, kind)]


def newest_step(home: Home) -> int:
    """The last step that the training itself has written down."""
    said = home.steps_log.read_text().split("\n") if home.steps_log.exists() else []
    return max((int(line.split()[3]) for line in said if line and line.split()[3].isdigit()), default=0)


def beat(home: Home, lease: Lease) -> Heartbeat | None:
    data = home.mailbox(lease.lease_id.rpartition("-n")[0]).get(beat_key(lease.lease_id))
    return None if data is None else loads(Heartbeat, data)


# ---------------------------------------------------------------- 2: silence is no loss


def test_02_a_mailbox_that_is_away_relaunches_nothing(new_home: NewHome) -> None:
    """Nobody hears anybody for longer than the time after which silence is suspect; the machine runs."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=700, step_s=0.02, save_every=50, hold=60))
    launcher = home.serve(job_id)
    wait_for(lambda: newest_step(home) > 20, "training")
    with away(home.prefix(job_id)):
        home.go(650)
        wait_for(lambda: newest_step(home) == 650, "twelve seconds of training without a mailbox")
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    state = settled(home, job_id)
    assert len(launches(home)) == 1
    assert len(state.leases) == 1
    (attempt,) = attempts(home)
    assert attempt.steps == tuple(range(1, 701)), "no step was repeated"


def test_02_a_silent_agent_is_suspect_and_kept(new_home: NewHome) -> None:
    """The mailbox answers, the cloud says RUNNING, the agent says nothing: SUSPECT, neither ended nor
    replaced, and READY again when it is heard."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=100, step_s=0.02, hold=90))
    launcher = home.serve(job_id)
    wait_for(lambda: newest_step(home) > 5, "training")
    agents = home.machine_processes("arylcloud.agent")
    assert agents
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    (lease,) = home.state(job_id).leases.values()
    wait_for(lambda: home.state(job_id).leases[lease.lease_id].phase is LeasePhase.SUSPECT, "suspicion")
    for pid in agents:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: home.state(job_id).leases[lease.lease_id].phase is LeasePhase.READY, "READY again")
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    phases = [e.phase for e in of_kind(home, job_id, ev.LeasePhaseChanged)]
    assert phases == [LeasePhase.READY, LeasePhase.SUSPECT, LeasePhase.READY]
    assert len(launches(home)) == 1
    assert [e.number for e in of_kind(home, job_id, ev.EpochOpened)] == [1]


# ---------------------------------------------------------------- 6: every end has a cause


def _tampered_workdir(home: Home, job_id: str) -> None:
    (path,) = home.prefix(job_id).glob("workdir-*.tar.gz")
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("world", "asked", "tamper", "code", "words"),
    [
        (quiet(faults=(fault("create", "access"),)), {}, None, "access", "refused"),
        (quiet(), {"run": "echo no such file: data.bin; exit 3"}, None, "user_command", "data.bin"),
        (
            quiet(),
            {"steps": 2000, "work": "100 steps", "max_runtime": "45m"},
            None,
            "max_runtime",
            "it has run for",
        ),
        (
            market(spot("calm", 60.0)),
            {"steps": 2000, "work": "100 steps", "budget": "$60"},
            None,
            "over_budget",
            "budget of $60.00",
        ),
        (
            market(*(spot(f"r{n}", 0.1 + n / 100) for n in range(6))),
            {},
            _tampered_workdir,
            "bad_starts",
            "never got to work",
        ),
    ],
    ids=["access", "user_command", "max_runtime", "over_budget", "bad_starts"],
)
def test_06_every_end_has_its_cause_and_says_it(
    new_home: NewHome,
    world: dict[str, Any],
    asked: dict[str, Any],
    tamper: Callable[[Home, str], None] | None,
    code: str,
    words: str,
) -> None:
    home = new_home(world)
    job_id = home.submit(job(**asked))
    if tamper is not None:
        tamper(home, job_id)
    state = home.serve_to_the_end(job_id)
    assert (state.phase, state.phase_code) == ("failed", code)
    assert words in state.phase_text
    settled(home, job_id, phase="failed")
    for event in of_kind(home, job_id, ev.JobPhaseChanged):
        assert event.code
        assert event.text
    for screen in ("status", "report"):
        assert words in " ".join(home.cli(screen, job_id, code=0).out.split())
    assert home.cli("status", job_id, "--json", code=0).json["jobs"][0]["code"] == code


# ---------------------------------------------------------------- 8, 9: gangs


def _gang(home: Home, job_id: str) -> dict[int, str]:
    """Rank → instance id of the newest epoch with members."""
    state = home.state(job_id)
    epoch = next(e for e in reversed(state.epochs) if e.members)
    return {m.rank: state.leases[m.lease_id].instance_id or "" for m in epoch.members}


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_08_09_a_lost_rank_is_noticed_and_alone_replaced(new_home: NewHome, victim: int) -> None:
    """Rank 0 lives, so nobody else can tell: every machine has its own heartbeat, and the cloud is
    asked for each. The survivor keeps its machine; all go on from the last checkpoint."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=300, step_s=0.02, hold=250, nodes=2, on_node_loss="replace"))
    launcher = home.serve(job_id)
    wait_for(lambda: any(r for r in of_kind(home, job_id, ev.CheckpointCommitted)), "a checkpoint")
    before = _gang(home, job_id)
    home.kill_machine(before[victim])
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    after = _gang(home, job_id)
    assert after[1 - victim] == before[1 - victim], "the survivor was not kept"
    assert after[victim] != before[victim]
    assert len(launches(home)) == 3, "one machine in place of one"
    starts = [a.start for a in attempts(home)]
    assert len(starts) == 2
    assert starts[1] > 0
    steps_kept(home, job_id)


def test_08_a_gang_ends_when_all_its_ranks_have(new_home: NewHome) -> None:
    """Exit 0 of one rank is not the end; a failure of one rank is the job's."""
    home = new_home(quiet())
    run = 'if [ "$ARYL_NODE_RANK" = 1 ]; then sleep 1; echo rank one fails; exit 5; fi; exec python3 train.py'
    job_id = home.submit(job(steps=2000, step_s=0.02, nodes=2, run=run))
    state = home.serve_to_the_end(job_id)
    settled(home, job_id, phase="failed")
    assert (state.phase_code, state.exit_code) == ("user_command", 5)
    assert "on rank 1: rank one fails" in state.phase_text


# ---------------------------------------------------------------- 14, 73: what an attempt knows


def test_14_73_an_attempt_knows_its_job_and_its_checkpoint(new_home: NewHome) -> None:
    """The job's id never changes, the attempt counts up, and the checkpoint of the one before lies
    there when the command starts."""
    home = new_home(quiet())
    said = home.path / "said"
    run = f'echo "$ARYL_JOB_ID $ARYL_ATTEMPT" >> {said}; exec python3 train.py'
    job_id = home.submit(job(steps=300, step_s=0.02, hold=100, run=run))
    launcher = home.serve(job_id)
    for attempt in (1, 2):
        wait_for(lambda attempt=attempt: _committed(home, job_id, attempt), "a checkpoint")
        home.kill_machine(launches(home)[-1]["instance_id"])
        home.go(100 + attempt * 100)
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    lines = [line.split() for line in said.read_text().splitlines()]
    assert {found for found, _ in lines} == {job_id}
    assert [int(attempt) for _, attempt in lines] == list(range(1, len(lines) + 1))
    assert len(lines) == 3
    starts = [a.start for a in attempts(home)]
    assert starts[0] == 0
    assert all(start > 0 for start in starts[1:]), f"a restart began at zero: {starts}"
    steps_kept(home, job_id)


def _committed(home: Home, job_id: str, attempt: int) -> bool:
    """The ``attempt``-th run of the command has committed something of its own."""
    state = home.state(job_id)
    epochs = {e.number for e in state.epochs if e.members and e.attempt == attempt}
    return any(c.epoch in epochs for c in state.checkpoints)


# ---------------------------------------------------------------- 15: never again


def _never_again(home: Home, job_id: str) -> None:
    state = settled(home, job_id, phase="failed")
    assert state.phase_code == "node_lost"
    assert "was lost" in state.phase_text
    assert "recovery: none" in state.phase_text
    assert len(launches(home)) == 1
    assert len(attempts(home)) == 1
    assert state.checkpoints, "what was saved is kept: `resume` is the user's own word"


def test_15_recovery_none_creates_nothing_after_a_loss(new_home: NewHome) -> None:
    home = new_home(market(spot("a", 0.10), spot("b", 0.11)))
    job_id = home.submit(job(steps=2000, hold=100, work="100 steps", recovery="none", market="spot"))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    home.kill_machine(launches(home)[0]["instance_id"])
    assert launcher.wait() == 0, launcher.err[-2000:]
    _never_again(home, job_id)


def test_15_recovery_none_creates_nothing_after_a_notice(new_home: NewHome) -> None:
    home = new_home(market(spot("a", 0.10), spot("b", 0.11)))
    job_id = home.submit(job(steps=2000, hold=100, work="100 steps", recovery="none", market="spot"))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    home.give_notice(launches(home)[0]["instance_id"])
    assert launcher.wait() == 0, launcher.err[-2000:]
    _never_again(home, job_id)


# ---------------------------------------------------------------- 16: what cannot get better


@pytest.mark.parametrize(
    "change",
    [
        {"top": {"resorces": {}}},
        {"top": {"workdir": "nosuch"}},
        {"profile": {"T4:1": 3.0}},
        {"budget": "-5"},
        {"top": {"resources": {"accelerators": "A1000:8"}}},
    ],
    ids=["key", "workdir", "units", "budget", "gpu"],
)
def test_16_a_bad_file_makes_no_call_to_any_cloud(new_home: NewHome, change: dict[str, Any]) -> None:
    home = new_home(quiet())
    calls = home.path / "calls"
    path = home.job_file(job(**change))
    child = home.start("launch", str(path), "--infra", "local", "-y", calls=calls)
    assert child.wait() == 2, child.err
    assert not calls.exists(), calls.read_text()
    assert home.jobs() == ()


def test_16_a_refusal_that_stays_is_not_tried_again(new_home: NewHome) -> None:
    home = new_home(quiet(faults=(fault("create", "access"),)))
    calls = home.path / "calls"
    job_id = home.submit(job())
    assert home.serve(job_id, calls=calls).wait() == 0
    assert home.state(job_id).phase_code == "access"
    assert [line.split()[2] for line in calls.read_text().splitlines()].count("create") == 1


def test_16_a_job_that_failed_for_want_of_access_exits_4(new_home: NewHome) -> None:
    home = new_home(quiet(faults=(fault("create", "access"),)))
    assert "refused" in home.launch(job(), code=4).err


# ---------------------------------------------------------------- 20: our own errors


def test_20_rubbish_in_the_mailbox_ends_no_workload(new_home: NewHome) -> None:
    """Documents that nobody can read: each is passed over, and said in the log."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=150, step_s=0.02))
    prefix = home.prefix(job_id)
    rubbish = [
        "requests/000001.json", "requests/nosuch", "ends/e000001-r00-x.json", "ends/nosuch.json",
        "ckpt/manifests/e000001-000999.json", "beats/nosuch.json", "exec/nosuch.json", "epochs/nosuch.json",
    ]  # fmt: skip
    for name in rubbish:
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"schema_version": 1, "half a docu')
    home.serve_to_the_end(job_id)
    state = home.state(job_id)
    assert state.phase == "succeeded"
    machines_accounted(home, job_id)
    assert len(attempts(home)) == 1


def test_20_a_cloud_that_answers_badly_ends_no_workload(new_home: NewHome) -> None:
    """Every list, price and quote fails for a while, in every way: the training does not notice."""
    faults = tuple(
        fault(op, kind, skip=skip, times=5)
        for op in ("list", "price_history", "offers")
        for skip, kind in ((12, "other"), (17, "throttle"), (22, "error_after"))
    )
    home = new_home(quiet(faults=faults))
    job_id = home.submit(job(steps=300, step_s=0.02))
    home.serve_to_the_end(job_id)
    settled(home, job_id)
    assert len(launches(home)) == 1
    assert len(attempts(home)) == 1


def test_20_a_launcher_that_dies_again_and_again_ends_no_workload(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=400, step_s=0.02, hold=50))
    launcher = home.serve(job_id)
    wait_for(lambda: newest_step(home) > 5, "training")
    for turn in range(1, 5):
        launcher.kill()
        step = newest_step(home)
        home.go(50 + turn * 50)
        wait_for(lambda step=step: newest_step(home) > step, "training without a launcher")
        launcher = home.serve(job_id)
        wait_for(lambda: home.state(job_id).seq, "a journal that can be read")
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    (attempt,) = attempts(home)
    assert attempt.steps == tuple(range(1, 401))


def test_20_a_planner_that_cannot_plan_any_more_ends_no_workload(new_home: NewHome) -> None:
    """A user's own catalogue and profiles break while the job runs."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=300, step_s=0.02, hold=250))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    (home.path / "config" / "profiles").mkdir(parents=True)
    (home.path / "config" / "profiles" / "broken.yaml").write_text("{")
    (home.path / "config" / "profiles" / "broken.json").write_text("{")
    (home.path / "config" / "offers.csv").write_text("not,a,catalogue\n1,2\n")
    home.kill_machine(launches(home)[0]["instance_id"])  # and now a replacement has to be chosen
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    assert json.loads(home.cli("events", job_id, "--json", code=0).out)["job_id"] == job_id
