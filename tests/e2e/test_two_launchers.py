"""Two launchers for one job: never both, and the one that loses goes by itself, before any call."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from arylcloud.core.errors import ConflictError
from arylcloud.core.events import LauncherStarted
from arylcloud.core.protocol import journal_key
from e2e.market import job, quiet
from e2e.support import Done, Home, wait_for
from e2e.truth import attempts, settled

NewHome = Callable[..., Home]
LONG = job(steps=100_000, save_every=50)
CONFLICT = ConflictError.exit_code


def one_clear_line(text: str) -> str:
    """The one error line; at most a hint follows."""
    (error,) = (line for line in text.splitlines() if line.startswith("error: "))
    assert "Traceback" not in text
    return error


def calls(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def only_looked_once_more(after: list[str]) -> None:
    """What a launcher may call after it was displaced: the rest of the look that was under way."""
    assert after.count("list") <= 1
    assert set(after) <= {"list", "offers", "health", "quote", "price_history"}


def asleep(home: Home, job_id: str, path: Path) -> None:
    """Until the launcher has nothing to journal: it only looks, and sleeps."""

    def quiet_for_a_while() -> bool:
        before = len(home.events(job_id))
        time.sleep(0.5)
        return len(home.events(job_id)) == before and bool(calls(path))

    wait_for(quiet_for_a_while, "a launcher at rest")


def test_the_second_in_one_home_exits_before_any_call(new_home: NewHome, tmp_path: Path) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=150, hold=100))
    first = home.serve(job_id)
    wait_for(lambda: home.state(job_id).leases, "a lease")
    before = home.events(job_id)
    second = home.serve(job_id, calls=tmp_path / "calls")
    assert second.wait() == CONFLICT
    assert f"process {first.pid} on " in one_clear_line(second.err)
    assert not calls(tmp_path / "calls")
    assert home.events(job_id)[: len(before)] == before
    home.go()
    assert first.wait() == 0
    assert sum(isinstance(r.event, LauncherStarted) for r in home.events(job_id)) == 1
    settled(home, job_id)


def test_adopt_asks_before_it_takes_a_job_from_a_live_launcher(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=150, hold=100))
    first = home.serve(job_id)
    wait_for(lambda: home.mailbox(job_id).get("launcher.json"), "its heartbeat")
    other = new_home(cloud_of=home)
    done = other.cli("adopt", home.state(job_id).prefix_uri, "--json", no_launcher=True, code=CONFLICT)
    assert done.json["error"]["kind"] == "conflict"
    assert "--force" in done.json["error"]["hint"]
    assert f"pid {first.pid} on " in one_clear_line(done.err)
    assert other.jobs() == ()
    home.go()
    assert first.wait() == 0
    settled(home, job_id)


def test_adopt_by_force_ends_the_first_launcher(new_home: NewHome, tmp_path: Path) -> None:
    """Both ways: the first at rest, and the first stopped in the middle of whatever it did. Then the job
    goes on under the second, on the same machine, and the first home is not let back in."""
    home = new_home(quiet())
    job_id = home.submit(LONG)
    uri = home.state(job_id).prefix_uri
    log = tmp_path / "first"
    first = home.serve(job_id, calls=log)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    first.send(signal.SIGSTOP)  # whatever it is doing: it wakes up in another world
    told = len(calls(log))

    other = new_home(cloud_of=home)
    other.cli("adopt", uri, "--force", "-d", no_launcher=True, code=0)
    second = other.serve(job_id)
    wait_for(lambda: len(other.events(job_id)) > len(home.events(job_id)) + 1, "the second at work")
    first.send(signal.SIGCONT)
    assert first.wait() == CONFLICT
    assert "another launcher holds" in one_clear_line(first.err)
    only_looked_once_more([line.split()[2] for line in calls(log)[told:]])

    back = home.serve(job_id, calls=tmp_path / "back")
    assert back.wait() == CONFLICT
    assert "another home" in one_clear_line(back.err)
    assert not calls(tmp_path / "back")

    stopped: Done = other.cli("stop", job_id, no_launcher=True)
    assert stopped.code == 0
    assert second.wait() == 0
    state = settled(other, job_id, phase="stopped")
    assert len(state.leases) == 1
    assert len(attempts(home)) == 1, "the training was never touched"


def test_a_launcher_at_rest_finds_out_by_itself(new_home: NewHome, tmp_path: Path) -> None:
    """It has nothing to write, so no write of its own fails; still it makes no call any more."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=100_000, save_every=100_000))
    log = tmp_path / "first"
    first = home.serve(job_id, calls=log)
    wait_for(lambda: attempts(home) and attempts(home)[0].steps, "a step")
    asleep(home, job_id, log)
    other = new_home(cloud_of=home)
    other.cli("adopt", home.state(job_id).prefix_uri, "--force", "-d", no_launcher=True, code=0)
    taken = home.prefix(job_id) / journal_key(len(other.events(job_id)))
    assert first.wait() == CONFLICT
    only_looked_once_more(
        [line.split()[2] for line in calls(log) if float(line.split()[0]) > taken.stat().st_mtime]
    )

    second = other.serve(job_id)
    other.cli("stop", job_id, no_launcher=True, code=0)
    assert second.wait() == 0
    settled(other, job_id, phase="stopped")


def test_who_watches_is_told_and_takes_nothing_back(new_home: NewHome) -> None:
    """`launch`, attached, in one home; `adopt --force`, attached, in another: real launchers in the
    background. The first watcher leaves, the second sees the job to its end."""
    home = new_home(quiet())
    path = home.job_file(job(steps=600, save_every=50, hold=500))
    watcher = home.start("launch", str(path), "--infra", "local", "-y")
    wait_for(lambda: home.jobs() and home.state(home.jobs()[0]).checkpoints, "a checkpoint")
    (job_id,) = home.jobs()
    other = new_home(cloud_of=home)
    adopter = other.start("adopt", home.state(job_id).prefix_uri, "--force")
    assert watcher.wait() == CONFLICT, watcher.err[-2000:]
    assert "has taken" in one_clear_line(watcher.err)
    home.go()
    assert adopter.wait() == 0, adopter.err[-2000:]
    settled(other, job_id)
    assert len(attempts(home)) == 1
