"""``Provider`` over the machines of the pool."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import Clock, MarketClock, SystemClock
from arylcloud.core.errors import AccessError, ArylError, CapacityError, OtherCloudError, UsageError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import (
    Billing,
    Capabilities,
    EndCause,
    Machine,
    MachineSpec,
    MachineState,
    PricePoint,
)
from arylcloud.providers.pool.machines import POOL, OwnMachine, offers, read
from arylcloud.providers.pool.reach import call
from arylcloud.providers.pool.seen import Seen
from arylcloud.providers.settings import known_only

KNOWN: Final = frozenset({"timeout_s", "gone_after_s"})
BOOT_S: Final = 5.0
LIST_EVERY_S: Final = 2.0
NOTICE_FILE: Final = "../notice.json"
"""Seen from where the stub runs (``hostside``)."""
SIDE_BY_SIDE: Final = 16
SILENT_S: Final = 30.0


def create(state_dir: Path, settings: Mapping[str, str]) -> PoolProvider:
    """The factory that the registry names. ``settings``: ``timeout_s`` of one call to one machine (8);
    ``gone_after_s``: a machine that cannot be reached for this long is given up (600)."""
    known_only(POOL, settings, KNOWN)
    return PoolProvider(
        folder=state_dir / POOL,
        timeout_s=_seconds(settings, "timeout_s", 8.0),
        gone_after_s=_seconds(settings, "gone_after_s", 600.0),
        clock=SystemClock(),
    )


def _seconds(settings: Mapping[str, str], key: str, usual: float) -> float:
    try:
        value = float(settings.get(key) or usual)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(f"[pool] {key} must be a number of seconds, not {settings[key]!r}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Of one machine, as it says itself."""

    machine: OwnMachine
    told: dict[str, Any] | None
    """None: it cannot be reached, and nothing is known of it."""
    problem: ArylError | None = None
    """Why it could not be reached just now; ``told`` is then what it said last."""

    @property
    def lease(self) -> dict[str, Any] | None:
        """Who has it now."""
        lease = None if self.told is None else self.told["lease"]
        return lease if lease is not None and lease.get("ended_s") is None else None

    @property
    def free(self) -> bool:
        return self.told is not None and self.problem is None and self.told["lent"] and self.lease is None


class PoolProvider:
    """See ``core.ports`` for what each method promises. Safe to use from several threads and processes."""

    def __init__(self, *, folder: Path, timeout_s: float, gone_after_s: float, clock: Clock) -> None:
        self.folder = folder
        self._timeout_s = timeout_s
        self._clock = clock
        self._silent: dict[str, tuple[float, ArylError]] = {}
        """When a machine did not answer, and how."""
        self._seen = Seen(folder=folder / "seen", gone_after_s=gone_after_s, clock=clock)

    @property
    def name(self) -> str:
        return POOL

    @property
    def file(self) -> Path:
        return self.folder / "pool.json"

    def machines(self) -> tuple[OwnMachine, ...]:
        return read(self.file)

    def offers(self) -> tuple[Offer, ...]:
        """Raises UsageError where there is no machine."""
        found = offers(self.machines())
        if not found:
            raise UsageError(
                "the pool has no machines",
                hint="`arylcloud pool add lab1 --host me@lab1 --gpu A100 --gpus 8 --usd-per-hour 2`",
            )
        return found

    def capabilities(self) -> Capabilities:
        return Capabilities(
            notice_s=3600.0,  # as long as ``reclaim --within`` says
            billing=Billing(minimum_s=0.0),
            market_clock=MarketClock(),
            boot_s=BOOT_S,
            list_every_s=LIST_EVERY_S,
            metadata={"protocol": "file", "url": NOTICE_FILE, "poll_s": "0.5"},
        )

    def quote(self, offer: Offer) -> Offer:
        states = self.look(self._of(offer))
        if not any(state.free for state in states):
            raise CapacityError(f"no {offer.instance_type} of {offer.region} is free: {_why_none(states)}")
        now = datetime.fromtimestamp(self._clock.now_s(), UTC).isoformat(timespec="seconds")
        return replace(self._current(offer), as_of=now)

    def create(self, spec: MachineSpec) -> Machine:
        """A lease goes to one machine: its name is written down before it is asked, so that the same token
        asks the same one."""
        able = self._of(spec.offer)
        if not able:
            raise CapacityError(f"the pool has no {spec.offer.instance_type} in {spec.offer.region}")
        states = self.look(able)  # all at once, and while nobody waits for us
        free = {state.machine.name for state in states if state.free}
        with self._alone():
            claim = self.folder / "claims" / hashlib.sha256(spec.token.encode()).hexdigest()[:32]
            named = claim.read_text(encoding="utf-8") if claim.exists() else None
            for machine in sorted(able, key=lambda m: (m.name != named, m.usd_per_hour, m.name)):
                if spec.max_usd_per_hour is not None and machine.usd_per_hour > spec.max_usd_per_hour:
                    continue
                if machine.name != named and machine.name not in free:
                    continue
                claim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                claim.write_text(machine.name, encoding="utf-8")
                told = self._call(
                    machine, {"verb": "claim", "spec": _claim(spec, machine), "boot": spec.user_data}
                )
                if "error" not in told:
                    return self._made(machine, told, spec.token)
                claim.unlink()
                if told["error"]["kind"] not in ("busy", "not_lent"):
                    raise OtherCloudError(f"{machine.name}: {told['error']['message']}", code="Refused")
            raise CapacityError(
                f"no {spec.offer.instance_type} of {spec.offer.region} is free: {_why_none(states)}"
            )

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        """A machine that cannot be reached is listed as it was last, until it is given up."""
        groups = {offer.region for offer in offers}
        asked = [m for m in self.machines() if not groups or m.group in groups]
        found = []
        for state in self.look(asked):
            if state.told is None:
                continue
            leases = [state.told["lease"], *state.told["past"]]
            found += [
                _machine(state.machine, lease)
                for lease in leases
                if lease is not None and journal_id in (None, lease["journal_id"])
            ]
        return tuple(found)

    def terminate(self, machine: Machine) -> None:
        name = machine.instance_id.partition("/")[0]
        for one in self.machines():
            if one.name == name:
                self._call(one, {"verb": "end", "lease_id": machine.lease_id, "cause": "terminated"})

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """What its owner says: one price, without a past."""
        del to_s
        price = self._current(offer).usd_per_hour
        assert price is not None
        return (PricePoint(from_s=from_s, usd_per_hour=price),)

    # ------------------------------------------------------------ lending

    def look(self, machines: Sequence[OwnMachine] | None = None) -> tuple[State, ...]:
        """All at once; none holds up the others for longer than ``timeout_s``."""
        asked = self.machines() if machines is None else machines
        if not asked:
            return ()
        with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(asked))) as side_by_side:
            return tuple(side_by_side.map(self._asked, asked))

    def lend(self, machine: OwnMachine) -> None:
        self._call(machine, {"verb": "lend"})

    def reclaim(self, machine: OwnMachine, *, within_s: float) -> None:
        """Nobody new gets it; who has it is given notice, and ended after ``within_s``."""
        self._call(machine, {"verb": "reclaim", "within_s": within_s})

    # ------------------------------------------------------------ one machine

    def _asked(self, machine: OwnMachine) -> State:
        """One that did not answer is left alone for a while: it would hold up every look at the others."""
        silent = self._silent.get(machine.name)
        if silent is not None and self._clock.monotonic_s() < silent[0] + SILENT_S:
            return State(machine=machine, told=self._seen.last(machine.name), problem=silent[1])
        try:
            told = self._call(machine, {"verb": "look"})
        except (AccessError, OtherCloudError) as error:
            self._silent[machine.name] = (self._clock.monotonic_s(), error)
            return State(machine=machine, told=self._seen.last(machine.name), problem=error)
        if "error" in told:
            problem = OtherCloudError(f"{machine.name}: {told['error']['message']}", code="Refused")
            return State(machine=machine, told=self._seen.last(machine.name), problem=problem)
        return State(machine=machine, told=told)

    def _call(self, machine: OwnMachine, request: dict[str, Any]) -> dict[str, Any]:
        told = call(machine, request, timeout_s=self._timeout_s)
        if "error" not in told:
            self._seen.note(machine.name, told)
        return told

    def _made(self, machine: OwnMachine, told: dict[str, Any], token: str) -> Machine:
        leases = [told["lease"], *told["past"]]
        return next(_machine(machine, lease) for lease in leases if lease and lease["token"] == token)

    def _of(self, offer: Offer) -> tuple[OwnMachine, ...]:
        return tuple(m for m in self.machines() if m.offer.key == offer.key)

    def _current(self, offer: Offer) -> Offer:
        for known in offers(self.machines()):
            if known.key == offer.key:
                return known
        raise CapacityError(f"the pool has no {offer.instance_type} in {offer.region}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _claim(spec: MachineSpec, machine: OwnMachine) -> dict[str, Any]:
    return {
        "token": spec.token,
        "journal_id": spec.journal_id,
        "job_id": spec.job_id,
        "lease_id": spec.lease_id,
        "until_s": spec.until_s,
        "usd_per_hour": machine.usd_per_hour,
    }


def _machine(machine: OwnMachine, lease: dict[str, Any]) -> Machine:
    ended_s = lease.get("ended_s")
    state = MachineState.RUNNING if lease.get("begun") else MachineState.PENDING
    return Machine(
        instance_id=f"{machine.name}/{lease['lease_id']}",
        token=lease["token"],
        journal_id=lease["journal_id"],
        job_id=lease["job_id"],
        lease_id=lease["lease_id"],
        cloud=POOL,
        region=machine.group,
        zone=None,
        instance_type=machine.instance_type,
        market=machine.offer.market.value,
        state=state if ended_s is None else MachineState.GONE,
        usd_per_hour=lease["usd_per_hour"],
        launched_s=lease["launched_s"],
        ended_s=ended_s,
        end_cause=None if ended_s is None else EndCause(lease.get("cause", "unknown")),
        address=machine.reached_at,
        until_s=lease["until_s"],
    )


def _why_none(states: Sequence[State]) -> str:
    """``2 at work, 1 not lent, 1 not reached (ssh: …)``."""
    away = [state for state in states if state.problem is not None]
    busy = sum(state.problem is None and state.lease is not None for state in states)
    kept = len(states) - len(away) - busy
    parts = [f"{busy} at work"] if busy else []
    parts += [f"{kept} not lent, or dearer than asked for"] if kept else []
    parts += [f"{len(away)} not reached ({away[0].problem.message})"] if away and away[0].problem else []
    return ", ".join(parts) or "there is none"
