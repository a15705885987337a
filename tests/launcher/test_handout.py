"""What machines are given: links, identities, loans; renewed in time, gone when they have been read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.harness import Harness, offer

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.store import sub
from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import AccessError
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import BOOT_PREFIX, LENT_KEY, BootDoc, LentDoc, boot_key
from arylcloud.core.stores import Address, Grant, JobPrefix, address_of
from arylcloud.launcher.actions import CreateLease
from arylcloud.launcher.executor import Boot
from arylcloud.launcher.handout import RETRY_S, Handout
from arylcloud.launcher.state import JobState, Lease

JOB = JobPrefix(address=address_of("s3://b/jobs/digits-0a1b2c3d"), journal_id="j", job_id="digits-0a1b2c3d")
RUNTIME = "runtime/0.zip"


@dataclass
class Cloud:
    """Storage and Lending of a cloud that counts."""

    clock: ManualClock
    lasts_s: float = 3600.0
    longest_s: float = 43200.0
    signs_as_job: bool = False
    refuses: bool = False
    loans: int = 0
    signed: list[str] = field(default_factory=list)
    identities: set[str] = field(default_factory=set)

    def options(self, address: Address) -> Mapping[str, Any]:
        return {}

    def for_machines(self, address: Address, identity: str | None) -> Mapping[str, str]:
        return {"region": "r", **({"identity": identity} if identity else {})}

    def usual(self, region: str) -> str:
        return "s3://b"

    def missing(self, address: Address) -> bool:
        return False

    def place(self, address: Address) -> str | None:
        return None

    apart = False

    def make(self, address: Address, region: str, journal_id: str) -> None:
        raise AssertionError

    def sign(self, address: Address, key: str, for_s: float, identity: str | None) -> str:
        assert for_s <= 3600
        assert (identity is not None) == self.signs_as_job
        self.signed.append(address.key(key))
        return f"https://b/{address.key(key)}?sig={len(self.signed)}"

    def identity(self, job: JobPrefix) -> str | None:
        self.identities.add(job.job_id)
        return f"role-of-{job.job_id}"

    def lend(self, job: JobPrefix, for_s: float) -> Grant:
        if self.refuses:
            raise AccessError("not today")
        self.loans += 1
        return Grant(secret={"token": f"loan-{self.loans}"}, expires_s=self.clock.now_s() + self.lasts_s)

    def revoke(self, job: JobPrefix) -> None:
        self.identities.discard(job.job_id)


class Scene:
    def __init__(self, **cloud: Any) -> None:
        self.clock = ManualClock(1000.0)
        self.cloud = Cloud(self.clock, **cloud)
        self.root = MemoryStore("memory://b", clock=self.clock)
        self.root.put(RUNTIME, b"zip")
        self.store = sub(self.root, JOB.address.prefix)
        self.handout = self.new()

    def new(self) -> Handout:
        return Handout(
            job=JOB,
            root=address_of("s3://b"),
            runtime_key=RUNTIME,
            store=self.store,
            shared=self.root,
            storage=self.cloud,
            lending=self.cloud,
            clock=self.clock,
            for_s=43200.0,
        )

    def lent(self) -> LentDoc:
        return loads(LentDoc, self.store.get(LENT_KEY) or b"")

    def boots(self) -> list[str]:
        return [info.key for info in self.store.list(BOOT_PREFIX)]


def state(phase: LeasePhase, cloud: str = "gcp", lease_id: str = "l1") -> JobState:
    lease = Lease(
        lease_id=lease_id,
        token="t",
        offer=replace(offer(), cloud=cloud),
        index=0,
        attempt=1,
        purpose="start",
        phase=phase,
        since_s=0.0,
        intended_at_s=0.0,
        until_s=0.0,
        why="",
    )
    return JobState(
        job_id=JOB.job_id,
        spec=JobSpec(name="digits", run="true"),
        prefix_uri=JOB.address.uri,
        journal_id="j",
        market_clock=MarketClock(),
        submitted_at_s=0.0,
        leases={lease_id: lease},
    )


def test_in_the_buckets_own_cloud_nothing_is_lent() -> None:
    scene = Scene()
    given = scene.handout.given("aws", "l1")
    assert given.identity == f"role-of-{JOB.job_id}"
    assert given.boot_url is None
    assert scene.cloud.signed == [RUNTIME]
    assert json.loads(given.env["ARYL_STORE_OPTIONS"]) == {"region": "r", "identity": given.identity}
    scene.handout.tidy(state(LeasePhase.READY, "aws"))
    assert (scene.cloud.loans, scene.boots(), scene.store.get(LENT_KEY)) == (0, [], None)


def test_elsewhere_the_first_loan_comes_by_the_link_and_goes_when_it_has_been_read() -> None:
    scene = Scene()
    given = scene.handout.given("gcp", "l1")
    assert given.identity is None
    assert given.boot_url is not None
    assert given.boot_url.partition("?")[0].endswith(boot_key("l1"))
    assert "loan-1" not in repr(given)
    boot = loads(BootDoc, scene.store.get(boot_key("l1")) or b"")
    assert boot.lent == scene.lent()
    assert boot.lent.secret == {"token": "loan-1"}
    assert "loan-1" not in repr(boot)
    assert boot.runtime_url.startswith(f"https://b/{RUNTIME}?")
    scene.handout.tidy(state(LeasePhase.PENDING))
    assert scene.boots() == [boot_key("l1")]
    scene.handout.tidy(state(LeasePhase.READY))
    assert scene.boots() == []
    assert scene.lent().secret == {"token": "loan-1"}


def test_machines_share_a_loan_and_links_stay_for_a_while() -> None:
    scene = Scene()
    first, second = scene.handout.given("gcp", "l1"), scene.handout.given("local", "l2")
    assert scene.cloud.loans == 1
    assert first.runtime_url == second.runtime_url
    assert scene.handout.given("gcp", "l1") == first
    scene.clock.step(1000.0)
    assert scene.handout.given("gcp", "l1").boot_url != first.boot_url


def test_a_loan_is_renewed_when_half_of_it_is_over() -> None:
    scene = Scene()
    scene.handout.given("gcp", "l1")
    running = state(LeasePhase.READY)
    scene.clock.step(1790.0)
    scene.handout.tidy(running)
    assert scene.cloud.loans == 1
    scene.clock.step(20.0)
    scene.handout.tidy(running)
    assert scene.lent().secret == {"token": "loan-2"}
    scene.handout.tidy(running)
    assert scene.cloud.loans == 2


def test_a_clock_that_is_set_back_delays_no_renewal() -> None:
    scene = Scene()
    scene.handout.given("gcp", "l1")
    scene.clock.sleep(900.0)
    scene.clock.step(-3600.0)
    scene.clock.sleep(910.0)
    scene.handout.tidy(state(LeasePhase.READY))
    assert scene.cloud.loans == 2


def test_a_refusal_is_asked_again_at_a_pace_and_ends_nothing() -> None:
    scene = Scene()
    scene.handout.given("gcp", "l1")
    running = state(LeasePhase.READY)
    scene.clock.sleep(2000.0)
    scene.cloud.refuses = True
    for _ in range(10):
        scene.handout.tidy(running)
        scene.clock.sleep(1.0)
    scene.cloud.refuses = False
    scene.handout.tidy(running)
    assert scene.cloud.loans == 1
    scene.clock.sleep(RETRY_S)
    scene.handout.tidy(running)
    assert scene.cloud.loans == 2


def test_a_new_launcher_takes_over_what_the_last_one_left() -> None:
    scene = Scene()
    scene.handout.given("gcp", "l1")
    after = scene.new()
    after.tidy(state(LeasePhase.READY))
    assert scene.boots() == []
    assert scene.lent().secret == {"token": "loan-2"}


def test_at_the_end_nothing_is_left() -> None:
    scene = Scene()
    scene.handout.given("gcp", "l1")
    scene.handout.given("aws", "l2")
    scene.new().end()
    assert scene.boots() == []
    assert scene.store.get(LENT_KEY) is None
    assert scene.cloud.identities == set()
    scene.new().end()  # again


def test_who_signs_as_the_job_has_a_copy_of_the_runtime() -> None:
    scene = Scene(signs_as_job=True)
    scene.handout.given("aws", "l1")
    assert scene.cloud.signed == [f"{JOB.address.prefix}/{RUNTIME}"]
    assert scene.store.get(RUNTIME) == b"zip"


def test_what_the_cloud_refuses_is_said_before_a_machine_is_made() -> None:
    scene = Scene(refuses=True)
    with pytest.raises(AccessError, match="not today"):
        scene.handout.given("gcp", "l1")
    assert scene.boots() == []


def test_a_store_that_lets_no_machine_in_is_a_refusal(tmp_path: Path) -> None:
    """Journaled, and so told to the user: the launcher must not try for ever in silence."""
    h = Harness(tmp_path)

    def boot(action: CreateLease) -> Boot:
        raise AccessError("machines cannot be let into the job's prefix", hint="a role")

    h.launcher.executor.boot = boot
    h.tick(3)
    assert not h.world.born
    refused = [lease for lease in h.state.leases.values() if lease.phase is LeasePhase.REFUSED]
    assert refused
    assert h.state.phase.ended
    assert h.state.phase_code == "access"
