"""The price steps of each lease, from its cloud's history into the journal: what the ledger integrates.

A history may fail, and it may lag behind the price that the cloud names for a machine. Nothing is taken as
complete that was not read to the end: what is missing is asked for again, and said if it never comes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from arylcloud.core import events as ev
from arylcloud.core.clock import Clock
from arylcloud.core.errors import AccessError, CloudError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import PricePoint, Provider
from arylcloud.launcher.state import JobState, Lease

log = logging.getLogger(__name__)
ASK_AGAIN_S = 5.0
"""A history that has just failed, or not shown what it should, is not asked more often."""
CLOCKS_DIFFER_S = 300.0
"""A step that its cloud dates up to so much later may be the one that we have just seen, by our own clock."""


@dataclass(slots=True)
class Prices:
    note: Callable[[JobState, ev.Event], JobState]
    """Journals one event and folds it."""
    providers: Mapping[str, Provider]
    clock: Clock
    """The one that the journal's moments are by."""
    _seen: dict[str, PricePoint] = field(default_factory=dict)
    """By lease: the price that its cloud named last, and since when (market seconds) we saw that one."""
    _later: dict[str, frozenset[float]] = field(default_factory=dict)
    """By lease: prices that its history dates after the moment up to which it was read."""
    _asked_s: dict[str, float] = field(default_factory=dict)
    """Monotonic seconds."""

    def moved(self, state: JobState, lease: Lease, usd_per_hour: float) -> JobState:
        """``usd_per_hour`` is named for the machine now: if the journal has another, the steps are read."""
        now_s = state.market_clock.market_s(self.clock.now_s())
        seen = self._seen.get(lease.lease_id)
        new = seen is None or seen.usd_per_hour != usd_per_hour
        if new:
            self._seen[lease.lease_id] = PricePoint(from_s=now_s, usd_per_hour=usd_per_hour)
        if lease.usd_per_hour == usd_per_hour or not (new or self._may_ask(lease.lease_id)):
            return state
        return self._read(state, lease, now_s)[0]

    def at_the_end(self, state: JobState, released: ev.LeaseReleased) -> JobState:
        """Before ``released`` is journaled: all steps up to it, or that some are missing."""
        lease = state.leases[released.lease_id]
        if lease.launched_s is None:
            return state
        state, problem = self._read(state, lease, released.ended_s)
        if problem is None:
            return self._as_seen(state, released)
        if lease.prices_missing_since_s is not None:
            return state
        text = f"their history cannot be read yet ({problem}); asked again"
        return self.note(state, ev.PricesChecked(lease_id=lease.lease_id, complete=False, text=text))

    def complete(self, state: JobState) -> JobState:
        """Ask again for what was missing when a lease was released."""
        for lease in tuple(state.leases.values()):
            missing = lease.prices_missing_since_s is not None and not lease.open
            if not missing or lease.ended_s is None or not self._may_ask(lease.lease_id):
                continue
            state, problem = self._read(state, lease, lease.ended_s)
            if problem is None:
                done = ev.PricesChecked(lease_id=lease.lease_id, complete=True, text="all known now")
                state = self.note(state, done)
        return state

    def of_the_fixed_zone(self, state: JobState) -> JobState:
        """What the first placement's market has charged meanwhile: the report compares with staying."""
        quote = next((q for q in state.baselines if q.name == "fixed_zone"), None)
        launched = [lease.launched_s for lease in state.leases.values() if lease.launched_s is not None]
        if quote is None or quote.offer.cloud not in self.providers or not launched:
            return state
        now_s = state.market_clock.market_s(self.clock.now_s())
        prices, problem = self._history(quote.offer, min(launched), now_s)
        if problem is not None or prices == quote.prices:  # a launcher that died here has written it down
            return state
        return self.note(state, replace(quote, prices=prices))

    def _as_seen(self, state: JobState, released: ev.LeaseReleased) -> JobState:
        """A history that lags does not show the last price yet: it held from when we saw it."""
        seen, lease = self._seen.get(released.lease_id), state.leases[released.lease_id]
        if seen is None or seen.from_s >= released.ended_s:
            return state
        later = self._later.get(released.lease_id, frozenset())  # it moved once the machine had ended
        if seen.usd_per_hour in {point.usd_per_hour for point in lease.prices} | later:
            return state
        return self.note(state, _step(lease, seen))

    def _may_ask(self, lease_id: str) -> bool:
        asked_s = self._asked_s.get(lease_id)
        return asked_s is None or self.clock.monotonic_s() - asked_s >= ASK_AGAIN_S

    def _read(self, state: JobState, lease: Lease, until_s: float) -> tuple[JobState, str | None]:
        """Journal the steps in force up to ``until_s`` (market seconds) that are not yet. With the reason
        where they could not be read."""
        assert lease.launched_s is not None
        self._asked_s[lease.lease_id] = self.clock.monotonic_s()
        # found long after its end, it was named the price of then: that step is read, too
        found_s = state.market_clock.market_s(lease.created_at_s or self.clock.now_s())
        to_s = max(until_s, lease.launched_s, found_s) + CLOCKS_DIFFER_S
        history, problem = self._history(lease.offer, lease.launched_s, to_s)
        self._later[lease.lease_id] = frozenset(p.usd_per_hour for p in history if p.from_s >= until_s)
        if problem is None and not history and not lease.prices:
            problem = "it is empty"
        for event in new_steps(lease, history, until_s):
            state = self.note(state, event)
        return state, problem

    def _history(self, offer: Offer, from_s: float, to_s: float) -> tuple[tuple[PricePoint, ...], str | None]:
        provider = self.providers.get(offer.cloud)
        if provider is None:
            return (), f"no provider for {offer.cloud} in this launcher"
        try:
            return provider.price_history(offer, from_s, to_s), None
        except (CloudError, AccessError) as error:
            log.warning("no price history of %s: %s", offer.key, error.message)
            return (), error.message


def new_steps(lease: Lease, history: tuple[PricePoint, ...], until_s: float) -> tuple[ev.LeasePriced, ...]:
    """The steps of ``history`` that ``lease`` lacks, by their moments: one that turns up late has its place
    before those that are known. Of those before its launch, the last was in force then: also where its cloud
    named the price of a later step, because the machine was found some time after it had come."""
    assert lease.launched_s is not None
    known = {point.from_s: point.usd_per_hour for point in lease.prices}
    named = known.get(lease.launched_s)
    if any(point.from_s > lease.launched_s and point.usd_per_hour == named for point in history):
        del known[lease.launched_s]
    found: dict[float, PricePoint] = {}
    for point in sorted(history, key=lambda point: point.from_s):
        from_s = max(point.from_s, lease.launched_s)
        if from_s not in known and (from_s < until_s or from_s == lease.launched_s):
            found[from_s] = PricePoint(from_s=from_s, usd_per_hour=point.usd_per_hour)
    return tuple(
        _step(lease, p) for p in found.values() if lease.launched_s < p.from_s or p.usd_per_hour != named
    )


def _step(lease: Lease, point: PricePoint) -> ev.LeasePriced:
    return ev.LeasePriced(lease_id=lease.lease_id, from_s=point.from_s, usd_per_hour=point.usd_per_hour)
