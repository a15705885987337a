"""What the log says of each machine: ``machines = fold(apply, records)``. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from arylcloud.core.codec import decode
from arylcloud.core.ports import EndCause, Machine, MachineState
from arylcloud.providers.local.log import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine. ``…_wall_s`` are wall seconds, other seconds are the market's."""

    instance_id: str
    token: str
    journal_id: str
    job_id: str
    lease_id: str
    offer_key: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    launched_s: float
    launched_wall_s: float
    launch_usd_per_hour: float
    """The price in force at launch; later ones are ``price`` records of the offer."""
    max_usd_per_hour: float | None
    until_s: float
    """Wall seconds; as the machine itself renewed it last."""
    address: str
    metadata_port: int
    python: str
    """The interpreter that the machine finds as ``python3``."""
    pid: int | None = None
    """Of the first process, which leads the machine's session; None = not booted."""
    identity: str | None = None
    """Start time of ``pid``: a number that comes again later is not this process."""
    notice_acts_wall_s: float | None = None
    ending: EndCause | None = None
    """It is being ended, and why."""
    ended_s: float | None = None
    ended_wall_s: float | None = None
    end_cause: EndCause | None = None

    @property
    def live(self) -> bool:
        """It counts against capacity, and it is billed."""
        return self.ended_s is None

    @property
    def state(self) -> MachineState:
        if self.ended_s is not None:
            return MachineState.GONE
        if self.ending is not None:
            return MachineState.STOPPING
        return MachineState.PENDING if self.pid is None else MachineState.RUNNING

    def machine(self, usd_per_hour: float) -> Machine:
        """As the port shows it, at the price in force (of a machine that has ended: its last one)."""
        return Machine(
            instance_id=self.instance_id,
            token=self.token,
            journal_id=self.journal_id,
            job_id=self.job_id,
            lease_id=self.lease_id,
            cloud="local",
            region=self.region,
            zone=self.zone,
            instance_type=self.instance_type,
            market=self.market,
            state=self.state,
            usd_per_hour=usd_per_hour,
            launched_s=self.launched_s,
            ended_s=self.ended_s,
            end_cause=self.end_cause,
            address=self.address,
            until_s=self.until_s,
        )


@dataclass(slots=True)
class Machines:
    """The fold's state. Only ``apply`` changes it."""

    by_id: dict[str, Instance] = field(default_factory=dict)
    by_token: dict[str, str] = field(default_factory=dict)
    live_ids: set[str] = field(default_factory=set)
    origin_s: float = 0.0
    priced_to_t_s: dict[str, float] = field(default_factory=dict)
    """Per offer key: price steps up to here (seconds of the market's) are in the log."""
    struck: set[str] = field(default_factory=set)
    """Scripted interruptions that have been carried out, or came to nothing."""

    @classmethod
    def replay(cls, records: Iterable[Record]) -> Machines:
        machines = cls()
        for record in records:
            machines.apply(record)
        return machines

    def apply(self, record: Record) -> None:
        match record["kind"]:
            case "opened":
                self.origin_s = record["origin_s"]
            case "launch":
                instance = decode(Instance, record["instance"], where="launch")
                self.live_ids.add(instance.instance_id)
                self.by_id[instance.instance_id] = instance
                self.by_token[instance.token] = instance.instance_id
                self._priced(instance.offer_key, instance.launched_s - self.origin_s)
            case "boot":
                self._change(record, pid=record["pid"], identity=record["identity"])
            case "price":
                self._priced(record["offer"], record["t_s"])
            case "renewed":
                self._change(record, until_s=record["until_s"])
            case "notice":
                self._change(record, notice_acts_wall_s=record["acts_at_s"])
            case "ending":
                self._change(record, ending=EndCause(record["cause"]))
            case "end":
                self.live_ids.discard(record["instance_id"])
                self._change(
                    record,
                    ended_s=record["ended_s"],
                    ended_wall_s=record["wall_s"],
                    end_cause=EndCause(record["cause"]),
                )
            case "struck":
                self.struck.add(record["script"])

    def _change(self, record: Record, **changes: object) -> None:
        instance = self.by_id[record["instance_id"]]
        self.by_id[instance.instance_id] = replace(instance, **changes)  # type: ignore[arg-type]

    def _priced(self, offer_key: str, to_t_s: float) -> None:
        self.priced_to_t_s[offer_key] = max(to_t_s, self.priced_to_t_s.get(offer_key, to_t_s))

    def live(self, offer_key: str | None = None) -> list[Instance]:
        """Machines that exist, oldest first."""
        found = [self.by_id[i] for i in self.live_ids]
        if offer_key is not None:
            found = [i for i in found if i.offer_key == offer_key]
        return sorted(found, key=lambda i: (i.launched_wall_s, i.instance_id))
