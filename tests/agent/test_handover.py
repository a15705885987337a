"""Drain, notice, restore: what a command saved is committed, and it goes on from there."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from arylcloud.agent.mailbox import Mailbox
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.protocol import LAUNCHER_KEY, LauncherBeat, chunk_key

from .conftest import WAIT_S, Job, Near, spec, wait_for

NewMachine = Callable[..., Near]
LONG = "python3 train.py 100000 10 0.01"


def test_drain_saves_commits_and_says_so(job: Job) -> None:
    job.submit(spec(LONG))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    job.open_epoch()
    beat = machine.until(lambda b: b.drained_epoch == 2, "drained")
    assert beat.phase == "drained"
    end = job.end(1)
    assert end is not None
    assert (end.signalled, end.finished, end.exit_code) == (True, False, 0)
    stopped_at = int(job.log("e000001-r00").split("asked to stop at")[1])
    assert beat.committed_step == stopped_at == end.step
    assert job.manifests()[-1].step == stopped_at


def test_restore_goes_on_at_the_saved_step_elsewhere(job: Job) -> None:
    steps = '[ "$ARYL_ATTEMPT" = 1 ] && n=100000 || n=+50'
    job.submit(spec(f"{steps}; python3 train.py $n 10 0.01; exit 3"))
    first = job.machine("lease-a")
    job.open_epoch("lease-a")
    first.until(lambda b: b.committed_step)
    job.open_epoch()
    saved = first.until(lambda b: b.drained_epoch == 2)
    second = job.machine("lease-b")
    # brought near beforehand
    second.until(lambda b: b.phase == "ready" and b.prefetched == saved.committed, "prefetched")
    job.open_epoch("lease-b", resume_from=saved.committed)
    second.phase("exited")
    assert job.log("e000003-r00").startswith(f"begin at {saved.committed_step}\n")
    assert saved.committed_step is not None
    assert saved.committed_step > 0
    assert job.manifests()[-1].epoch == 3
    assert job.manifests()[-1].step == (saved.committed_step + 50) // 10 * 10


def test_the_same_machine_goes_on_and_forgets_what_the_epoch_does_not_resume_from(job: Job) -> None:
    job.submit(spec("python3 train.py 100000 1000000 0.01"))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.phase("running")
    wait_for(lambda: "begin at" in job.log("e000001-r00"))
    job.open_epoch()
    first = machine.until(lambda b: b.drained_epoch == 2)
    job.open_epoch("lease-a", resume_from=first.committed)
    wait_for(lambda: f"begin at {first.committed_step}\n" in job.log("e000003-r00"))
    job.open_epoch()
    second = machine.until(lambda b: b.drained_epoch == 4)
    assert (second.committed_step or 0) > (first.committed_step or 0)
    # back to the first: the second is not of this lineage
    job.open_epoch("lease-a", resume_from=first.committed)
    wait_for(lambda: f"begin at {first.committed_step}\n" in job.log("e000005-r00"))
    assert not (machine.checkpoints / f"step-{second.committed_step}").exists()


def test_a_newer_epoch_with_the_same_member_restarts_the_command(job: Job) -> None:
    job.submit(spec("echo $ARYL_JOB_ID $ARYL_ATTEMPT; " + LONG))
    machine = job.machine()
    job.open_epoch("lease-a")
    beat = machine.until(lambda b: b.committed_step)
    job.open_epoch("lease-a", resume_from=beat.committed)
    wait_for(lambda: "begin at" in job.log("e000002-r00"))
    assert job.log("e000001-r00").startswith("job-1 1\n")
    assert job.log("e000002-r00").startswith("job-1 2\n")  # field case 14
    assert f"begin at {beat.committed_step}\n" in job.log("e000002-r00")
    end = job.end(1)
    assert end is not None
    assert end.signalled


def test_a_damaged_checkpoint_is_refused_and_the_one_before_accepted(job: Job) -> None:
    job.submit(spec(LONG))
    first = job.machine("lease-a")
    job.open_epoch("lease-a")
    first.until(lambda b: b.committed_step is not None and b.committed_step >= 20)
    job.open_epoch()
    first.until(lambda b: b.drained_epoch == 2)
    good, bad = job.manifests()[0], job.manifests()[-1]
    key = chunk_key(bad.files[0].chunks[0].sha256)
    data = bytearray(job.store.get(key) or b"")
    data[0] ^= 1
    job.store.put(key, bytes(data))
    second = job.machine("lease-b")
    job.open_epoch("lease-b", resume_from=bad.key)
    beat = second.phase("broken")
    assert bad.key in (beat.message or "")
    assert beat.epoch == 3
    assert job.log("e000003-r00") == ""
    job.open_epoch("lease-b", resume_from=good.key)
    wait_for(lambda: f"begin at {good.step}\n" in job.log("e000004-r00"))
    assert second.phase("running").message is None


def test_a_command_that_will_not_stop_is_killed_after_its_grace(job: Job) -> None:
    job.submit(spec("trap '' TERM; echo deaf; while :; do sleep 0.05; done", grace_s=0.5))
    machine = job.machine()
    job.open_epoch("lease-a")
    wait_for(lambda: "deaf" in job.log("e000001-r00"))
    job.open_epoch()
    machine.until(lambda b: b.drained_epoch == 2)
    end = job.end(1)
    assert end is not None
    assert (end.exit_code, end.signalled) == (137, True)


def test_every_process_of_the_command_is_asked_and_waited_for(job: Job) -> None:
    """Field case 23: a shell dies of SIGTERM at once; the training under it is still saving."""
    files = {
        "slow.py": (
            "import signal, time, os\n"
            "from pathlib import Path\n"
            "def stop(*_):\n"
            "    time.sleep(0.7)\n"
            "    folder = Path(os.environ['ARYL_CHECKPOINT_DIR'])\n"
            "    (folder / 'step-5').mkdir()\n"
            "    (folder / 'step-5' / 'w').write_text('5')\n"
            "    (folder / 'step-5' / '_COMPLETE').touch()\n"
            "    raise SystemExit(0)\n"
            "signal.signal(signal.SIGUSR1, stop)\n"
            "print('up', flush=True)\n"
            "while True: time.sleep(1)\n"
        )
    }
    job.submit(spec("python3 slow.py & wait; echo over", stop_signal="SIGUSR1"), files)
    machine = job.machine()
    job.open_epoch("lease-a")
    wait_for(lambda: "up" in job.log("e000001-r00"))
    job.open_epoch()
    beat = machine.until(lambda b: b.drained_epoch == 2)
    assert beat.committed_step == 5


# ---------------------------------------------------------------- notices


class Metadata(ThreadingHTTPServer):
    """EC2's IMDSv2, as far as spot notices go."""

    daemon_threads = True
    at_s: float | None = None
    tokens = 0
    until_s: float | None = None
    """As the machine has renewed it."""


class _Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        if self.path == "/latest/api/token" and ttl is not None and 1 <= int(ttl) <= 21600:
            self.server.tokens += 1
            self._say(200, b"token-%d" % self.server.tokens)
        elif self.path == "/latest/arylcloud/until":
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers.get("X-aws-ec2-metadata-token") == f"token-{self.server.tokens}"
            self.server.until_s = float(body)
            self._say(200, b"")
        else:
            self._say(400, b"")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != f"token-{self.server.tokens}":
            self._say(401, b"")
        elif self.path != "/latest/meta-data/spot/instance-action" or self.server.at_s is None:
            self._say(404, b"")
        else:
            at = datetime.fromtimestamp(self.server.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._say(200, json.dumps({"action": "terminate", "time": at}).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    server = Metadata(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _env(metadata: Metadata) -> dict[str, str]:
    return {
        "ARYL_METADATA": "ec2",
        "ARYL_METADATA_URL": f"http://127.0.0.1:{metadata.server_port}",
        "ARYL_METADATA_POLL_S": "0.1",
        "http_proxy": "http://127.0.0.1:9",  # metadata never goes through a proxy
    }


def test_notice_saves_uploads_and_hands_over_in_time(job: Job, metadata: Metadata) -> None:
    job.submit(spec(LONG))
    machine = job.machine(**_env(metadata))
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    metadata.tokens += 1  # the agent's token is void from now on
    metadata.at_s = float(int(time.time()) + 90)
    beat = machine.until(lambda b: b.phase == "drained")
    assert beat.at_s < metadata.at_s
    assert beat.notice is not None
    assert (beat.notice.action, beat.notice.at_s) == ("terminate", metadata.at_s)
    assert beat.drained_epoch == 1
    stopped_at = int(job.log("e000001-r00").split("asked to stop at")[1])
    assert beat.committed_step == stopped_at
    end = job.end(1)
    assert end is not None
    assert (end.signalled, end.finished) == (True, False)
    told = json.loads((machine.home / "agent" / "notice.json").read_text())
    assert (told["action"], told["at_s"]) == ("terminate", metadata.at_s)
    # a machine with a notice takes no further work
    job.open_epoch("lease-a", resume_from=beat.committed)
    machine.until(lambda b: b.epoch == 2 and b.drained_epoch == 2)
    assert job.end(2) is None


TRAINING = """
import sys, time
from arylcloud import training as aryl
aryl.install()
step, total = 0, int(sys.argv[1])
if aryl.latest():
    step = int((aryl.latest() / "w").read_text())
print("begin at", step, flush=True)
while step < total and not aryl.should_stop():
    step += 1
    aryl.progress(step, total)
    time.sleep(0.01)
with aryl.save(step) as folder:
    (folder / "w").write_text(str(step))
if step == total:
    while "late" in sys.argv and not aryl.should_stop():
        time.sleep(0.01)
    aryl.finished()
"""


def test_the_training_library_hands_over_on_notice_and_goes_on(job: Job, metadata: Metadata) -> None:
    """It looks for the notice itself, and may leave before the signal comes: still a hand-over."""
    job.submit(spec("python3 lib.py 100000"), {"lib.py": TRAINING})
    machine = job.machine(**_env(metadata))
    job.open_epoch("lease-a")
    begun = machine.until(lambda b: b.first_step_s)
    assert begun.command_started_s is not None
    assert begun.first_step_s is not None
    assert begun.command_started_s <= begun.first_step_s <= begun.at_s
    metadata.at_s = float(int(time.time()) + 90)
    beat = machine.until(lambda b: b.phase == "drained")
    end = job.end(1)
    assert end is not None
    assert (end.exit_code, end.signalled, end.finished) == (0, True, False)
    assert beat.total_steps == 100000
    assert beat.committed_step == beat.step == end.step
    assert beat.save_s is not None
    second = job.machine("lease-b")
    job.open_epoch("lease-b", resume_from=beat.committed)
    wait_for(lambda: f"begin at {beat.committed_step}\n" in job.log("e000002-r00"))
    second.until(lambda b: b.first_step_s is not None and (b.step or 0) > (beat.step or 0))


def test_exit_0_after_the_signal_is_the_end_if_the_training_says_so(job: Job) -> None:
    job.submit(spec("python3 lib.py 3 late"), {"lib.py": TRAINING})
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.until(lambda b: b.step == 3)
    job.open_epoch()
    machine.until(lambda b: b.drained_epoch == 2)
    end = job.end(1)
    assert end is not None
    assert (end.exit_code, end.signalled, end.finished, end.step) == (0, True, True, 3)


def test_a_notice_leaves_time_for_the_upload_of_what_there_is(
    job: Job, near: NewMachine, metadata: Metadata
) -> None:
    """The grace is longer than what the cloud leaves: the command is killed early enough."""
    job.submit(spec(f"trap '' TERM; {LONG.replace('train.py', 'deaf.py')}", grace_s=3000.0), _deaf())
    machine = near(lasts_s=3600.0, metadata_url=_env(metadata)["ARYL_METADATA_URL"])
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    metadata.at_s = float(int(time.time()) + 600)
    machine.until(lambda b: b.phase == "saving")
    run = machine.agent.state.run
    assert run is not None
    assert run.kill_at_s is not None
    assert run.kill_at_s < metadata.at_s - 3.0, "so much is left for the upload"
    assert job.end(1) is None
    machine.clock.ahead_s += run.kill_at_s - machine.clock.now_s()
    beat = machine.until(lambda b: b.phase == "drained")
    end = job.end(1)
    assert end is not None
    assert end.exit_code == 137
    assert beat.committed_step == max(int(p.name[5:]) for p in machine.checkpoints.glob("step-*"))


def _deaf() -> dict[str, str]:
    from .conftest import TRAIN

    return {"deaf.py": TRAIN.replace("lambda *_: stop.append(1)", "signal.SIG_IGN")}


# ---------------------------------------------------------------- without a launcher


def heard(machine: Near, hard_left_s: float | None = None) -> None:
    """A launcher says that it is there."""
    at_s = machine.clock.now_s()
    beat = LauncherBeat(launcher_id="x", host="h", pid=1, at_s=at_s, hard_left_s=hard_left_s)
    machine.job.store.put(LAUNCHER_KEY, dumps(beat))
    seen = machine.agent.mailbox
    wait_for(lambda: (seen.seen.launcher_heard_s or 0.0) > at_s - 1.0, why="the agent hears of it")


def goes_on(machine: Near) -> None:
    """Beyond the end of its lease. (The first heartbeat from there may be older than what it says.)"""
    first = machine.until(lambda b: b.at_s > machine.until_s + 1.0)
    machine.until(lambda b: b.seq > first.seq + 1 and b.phase == "running")


def saved_and_ended(job: Job, machine: Near, why: str) -> None:
    assert machine.ends()
    stopped_at = int(job.log("e000001-r00").split("asked to stop at")[1])
    assert job.manifests()[-1].step == stopped_at > 0
    assert why in job.log("boot-lease-a")


def test_the_end_of_the_lease_checkpoints_and_ends_the_machine(job: Job, near: NewMachine) -> None:
    job.submit(spec(LONG))
    machine = near(lasts_s=600.0)
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    machine.clock.ahead_s += 600.0
    saved_and_ended(job, machine, "lease has run out: nobody has renewed it")


def test_a_launcher_renews_the_lease(job: Job, near: NewMachine) -> None:
    job.submit(spec("sleep 600", unattended_s=3600.0))
    machine = near(lasts_s=600.0)
    job.open_epoch("lease-a")
    machine.until(lambda b: b.phase == "running")
    heard(machine)
    machine.clock.ahead_s += 610.0
    goes_on(machine)
    machine.clock.ahead_s += 3600.0
    assert machine.ends()


def test_its_cloud_hears_of_every_renewal_and_of_the_time_that_saving_takes(
    job: Job, near: NewMachine, metadata: Metadata
) -> None:
    job.submit(
        spec("trap '' TERM; echo deaf; while :; do sleep 0.05; done", unattended_s=6000.0, grace_s=400)
    )
    machine = near(lasts_s=600.0, metadata_url=_env(metadata)["ARYL_METADATA_URL"])
    begun_s = machine.clock.now_s() - 0.1  # the store's times are those of its files, which are coarse
    job.open_epoch("lease-a")
    heard(machine)
    wait_for(lambda: (metadata.until_s or 0.0) >= begun_s + 6000.0)
    wait_for(lambda: "deaf" in job.log("e000001-r00"))
    end_s = machine.clock.now_s() + 500.0 - 0.1
    heard(machine, 500.0)  # nearer again
    wait_for(lambda: end_s <= (metadata.until_s or 0.0) < begun_s + 6000.0)
    end_s = metadata.until_s or 0.0
    # at the end it saves, for longer than the lease: not to be cut off there
    machine.clock.ahead_s += end_s + 1.0 - machine.clock.now_s()
    machine.until(lambda b: b.phase == "saving")
    wait_for(lambda: (metadata.until_s or 0.0) > end_s + 400.0 + 300.0)
    machine.clock.ahead_s += 400.0
    assert machine.ends()


def test_no_renewal_goes_beyond_the_budget(job: Job, near: NewMachine) -> None:
    """The launcher is heard, ``unattended`` is an hour: the hard limit that it named counts."""
    job.submit(spec(LONG, unattended_s=3600.0))
    machine = near(lasts_s=3600.0)
    heard(machine, 600.0)
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    machine.clock.ahead_s += 601.0
    saved_and_ended(job, machine, "budget or max_runtime is used up")


def test_each_beat_of_a_launcher_brings_the_hard_limit_up_to_date(job: Job, near: NewMachine) -> None:
    """The price has fallen, a machine has gone: the budget lasts longer."""
    job.submit(spec(LONG, unattended_s=3600.0))
    machine = near(lasts_s=600.0)
    heard(machine, 600.0)
    job.open_epoch("lease-a")
    machine.until(lambda b: b.phase == "running")
    heard(machine, 3600.0)
    wait_for(lambda: (machine.agent.mailbox.seen.hard_until_s or 0.0) > machine.until_s + 1000.0)
    machine.clock.ahead_s += 610.0
    goes_on(machine)


def test_a_beat_that_does_not_know_the_hard_limit_takes_nothing_back() -> None:
    clock = ManualClock(1000.0)
    store = MemoryStore(clock=clock)
    mailbox = Mailbox(store, job_id="job-1", clock=clock, log=print)
    for left_s, expected_s in ((None, None), (5000.0, 6020.0), (None, 6020.0), (4000.0, 5040.0)):
        clock.at_s += 10.0
        beat = LauncherBeat(launcher_id="x", host="h", pid=1, at_s=clock.at_s, hard_left_s=left_s)
        store.put(LAUNCHER_KEY, dumps(beat))
        mailbox.poll()
        assert mailbox.seen.hard_until_s == expected_s
        assert mailbox.seen.launcher_heard_s == clock.at_s


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
def test_a_launcher_whose_clock_differs_renews_as_any_other(ahead_s: float) -> None:
    """Nor does it end a machine early, or late: what it says is a span, from when it was heard."""
    clock = ManualClock(10_000.0)
    store = MemoryStore(clock=ManualClock(5.0))  # neither does the store's
    mailbox = Mailbox(store, job_id="job-1", clock=clock, log=print)

    def say() -> None:
        beat = LauncherBeat(launcher_id="x", host="h", pid=1, at_s=clock.at_s + ahead_s, hard_left_s=600.0)
        store.put(LAUNCHER_KEY, dumps(beat))

    say()
    store._clock.sleep(100.0)  # it has lain there for so long
    mailbox.poll()
    assert mailbox.seen.launcher_heard_s == pytest.approx(clock.at_s - 100.0)
    assert mailbox.seen.hard_until_s == pytest.approx(clock.at_s + 500.0)
    clock.at_s += 50.0
    say()
    mailbox.poll()
    assert mailbox.seen.launcher_heard_s == clock.at_s
    assert mailbox.seen.hard_until_s == clock.at_s + 600.0


def test_done_and_no_launcher_it_ends_itself(job: Job) -> None:
    job.submit(spec("exit 0"))
    machine = job.machine(ARYL_LINGER_S="1")
    job.open_epoch("lease-a")
    assert machine.process is not None
    assert machine.process.wait(WAIT_S) == 0
    end = job.end(1)
    assert end is not None
    assert end.finished


def test_a_shutdown_from_outside_hands_over(job: Job) -> None:
    job.submit(spec(LONG))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    assert machine.process is not None
    machine.process.terminate()
    assert machine.process.wait(WAIT_S) == 0
    stopped_at = int(job.log("e000001-r00").split("asked to stop at")[1])
    assert job.manifests()[-1].step == stopped_at
