"""What a job owes beside its machines: traffic between places, disks, kept checkpoints. Pure.

By the bundled list prices (``pricing/tariffs``) and what the journal tells; journaled cent by cent, as what
is owed in all less what has been journaled before: neither a crash nor another launcher charges anything
twice. Where a tariff, or the place of the store, is not known, the charge names what is unknown, and so does
every total that it enters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from arylcloud.core.events import Charged
from arylcloud.core.stores import cloud_of
from arylcloud.launcher.housekeeping import kept_until
from arylcloud.launcher.state import Epoch, JobState, Lease
from arylcloud.planner.upkeep import HOURS_PER_MONTH, Assumptions, data_usd_per_gb
from arylcloud.pricing.tariffs import INTERNET, Tariffs

CENT_USD: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    usd: float = 0.0
    gb: float = 0.0
    unknown: frozenset[str] = frozenset()
    """What is not in ``usd``, since nobody knows its price."""

    def plus(self, usd_per_gb: float | None, gb: float, what: str) -> Owed:
        """With so much more; ``what``: its name, where nobody knows the tariff."""
        if gb <= 0.0 or (usd_per_gb is not None and usd_per_gb <= 0.0):
            return self
        if usd_per_gb is None:
            return replace(self, unknown=self.unknown | {what})
        return replace(self, usd=self.usd + usd_per_gb * gb, gb=self.gb + gb)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    tariffs: Tariffs
    disk_gb: float = field(default_factory=lambda: Assumptions().disk_gb)
    """Of a machine whose job does not say."""

    def due(self, state: JobState, now_s: float) -> tuple[Charged, ...]:
        """To be journaled now (``now_s``: wall seconds); less than a cent waits for more, at the end less
        than half a cent for ever."""
        least_usd = CENT_USD if state.open_leases else CENT_USD / 2
        found: tuple[tuple[Literal["egress", "storage"], Owed, str], ...] = (
            ("egress", self.egress(state), "checkpoints and data that crossed a region's border, at most"),
            ("storage", self.storage(state, now_s), "disks of machines, checkpoints that are kept, at most"),
        )
        return tuple(
            charge
            for what, owed, text in found
            if (charge := _more(state, what, owed, text, least_usd)) is not None
        )

    def egress(self, state: JobState) -> Owed:
        """Of all so far. A checkpoint counts as a whole (an upper bound: unchanged parts are sent once);
        every machine reads its part of the data once."""
        owed = Owed()
        trained = {t.lease_id for t in state.trainings}
        for lease in state.leases.values():
            if lease.lease_id in trained:
                for data in state.spec.data:
                    usd = data_usd_per_gb(data, _region(lease), self.tariffs)
                    what = f"traffic from {data.uri} to {_region(lease)}"
                    owed = owed.plus(usd, _part(state, lease, data.size_gb), what)
        if cloud_of(state.prefix_uri) is None:
            return owed
        sizes = {c.manifest: c.total_bytes / 1e9 for c in state.checkpoints}
        by_number = {e.number: e for e in state.epochs}
        for saved in state.checkpoints:
            writer = _first(state, by_number.get(saved.epoch))
            if writer is not None:
                usd, what = self._upload(state, _region(writer))
                owed = owed.plus(usd, sizes[saved.manifest], what)
        had: set[str] = set()
        for epoch in state.epochs:
            members = {m.lease_id for m in epoch.members}
            for lease_id in members - had:  # who was there has it on its disk
                if epoch.resume_from is not None:
                    usd, what = self._download(state, _region(state.leases[lease_id]))
                    owed = owed.plus(usd, sizes.get(epoch.resume_from, 0.0), what)
            had |= members
        return owed

    def _upload(self, state: JobState, place: str) -> tuple[float | None, str]:
        """$/GB to the job's store, and a name for it. What leaves a cloud costs the same wherever it goes."""
        store, cloud = state.store_place, cloud_of(state.prefix_uri)
        if store is None and place.startswith(f"{cloud}/"):
            return None, f"traffic from {place} to the store (whose region is not known)"
        to = INTERNET if store is None else store
        return self.tariffs.egress(place, to).usd, f"traffic from {place} to {store or 'the store'}"

    def _download(self, state: JobState, place: str) -> tuple[float | None, str]:
        store = state.store_place
        if store is None:
            return None, f"traffic from the store (whose region is not known) to {place}"
        return self.tariffs.egress(store, place).usd, f"traffic from {store} to {place}"

    def storage(self, state: JobState, now_s: float) -> Owed:
        """GB-months so far: a disk from a machine's launch to its end; each checkpoint from when it was saved
        for as long as it is kept (``gb``: of those that are). A checkpoint counts as a whole (an upper bound:
        parts that are the same in several are stored once)."""
        as_of_s = state.market_clock.market_s(now_s)
        owed = Owed()
        disk_gb = state.spec.resources.disk_gb or self.disk_gb
        for lease in state.leases.values():
            if lease.launched_s is None:
                continue
            hours = max(0.0, (as_of_s if lease.ended_s is None else lease.ended_s) - lease.launched_s) / 3600
            usd = self.tariffs.disk(lease.offer.cloud).usd
            usd = None if usd is None else usd * hours / HOURS_PER_MONTH
            owed = owed.plus(usd, disk_gb, f"disks of {lease.offer.cloud}")
        cloud = cloud_of(state.prefix_uri)
        if cloud is None or not state.checkpoints:
            return owed
        usd = self.tariffs.storage(cloud).usd
        gb = gb_hours = 0.0
        for saved, until_s in kept_until(state, now_s):
            from_s, to_s = (state.market_clock.market_s(s) for s in (saved.saved_at_s, until_s))
            gb_hours += saved.total_bytes / 1e9 * max(0.0, to_s - from_s) / 3600
            gb += saved.total_bytes / 1e9 if until_s >= now_s else 0.0
        if usd is None:
            return replace(owed, unknown=owed.unknown | {f"storage of {cloud}"})
        return replace(owed, usd=owed.usd + usd * gb_hours / HOURS_PER_MONTH, gb=owed.gb + gb)


def _more(
    state: JobState, what: Literal["egress", "storage"], owed: Owed, text: str, least_usd: float
) -> Charged | None:
    """None: there is neither as much to charge, nor anything new that is unknown."""
    before = [c for c in state.charges if c.what == what]
    more_usd = max(0.0, owed.usd - sum(c.usd for c in before))
    unknown = "; ".join(sorted(owed.unknown))
    if more_usd < least_usd and unknown == (before[-1].unknown if before else ""):
        return None
    more_gb = max(0.0, owed.gb - sum(c.gb for c in before))
    gb = more_gb if what == "egress" else owed.gb
    return Charged(what=what, usd=more_usd, gb=gb, text=text, unknown=unknown)


def _region(lease: Lease) -> str:
    return f"{lease.offer.cloud}/{lease.offer.region}"


def _first(state: JobState, epoch: Epoch | None) -> Lease | None:
    return state.leases[epoch.members[0].lease_id] if epoch is not None and epoch.members else None


def _part(state: JobState, lease: Lease, size_gb: float) -> float:
    """Of the data: what one of its gang reads."""
    gangs = [len(e.members) for e in state.epochs if any(m.lease_id == lease.lease_id for m in e.members)]
    return size_gb / max(gangs, default=1)
