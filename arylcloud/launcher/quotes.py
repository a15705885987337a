"""Prices as they are now of the offers that decide, asked of their clouds beside the launcher's own rounds.

A plan is made on the catalogue as it was refreshed last; a job runs for days. What it stands on, and what
it would move to next, is asked for again and again: the first of the ranking and the best of every cloud.
What turns out dearer falls back in the next plan, and the next in line is asked. No job is moved to a price
that its cloud has not named lately. (What takes a lost machine's place is not waited for: it is held to the
price that it was chosen at when it is there, ``reconcile/leases``.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from arylcloud.core.clock import Clock
from arylcloud.core.errors import AccessError, CapacityError, CloudError
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Plan
from arylcloud.core.ports import Provider

log = logging.getLogger(__name__)

FIRST = 12
"""Candidates of the ranking whose price is asked for."""
OF_EACH_CLOUD = 3
KEEP_S = 3600.0
"""A quote this old is no better than the catalogue's price."""

Run = Callable[[Callable[[], None]], None]
"""Carries out what it is given, now or beside."""


def beside(work: Callable[[], None]) -> None:
    """In a thread of its own, which nobody waits for."""
    threading.Thread(target=work, name="quotes", daemon=True).start()


class Quotes:
    """What the clouds said last. Asked and read by one thread, filled by another."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock,
        *,
        every_s: float = 60.0,
        run: Run = beside,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._every_s = every_s
        self._run = run
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Offer]] = {}
        """Offer key → (monotonic seconds, the offer; without a price: not to be had)."""
        self._tried_s: dict[str, float] = {}
        self._busy = False
        self._silent: set[str] = set()
        """Clouds whose last answer was an error that has been said."""
        self.version = 0
        """Another number after every round in which a price has changed."""

    def newest(self) -> tuple[Offer, ...]:
        """To be laid over the catalogue."""
        oldest_s = self._clock.monotonic_s() - KEEP_S
        with self._lock:
            return tuple(offer for at_s, offer in self._known.values() if at_s >= oldest_s)

    def seen(self, offer: Offer) -> bool:
        """Whether its price is one that its cloud has named lately; of a cloud that is not asked, always."""
        oldest_s = self._clock.monotonic_s() - KEEP_S
        with self._lock:
            at_s = self._known.get(offer.key, (float("-inf"), offer))[0]
        return offer.cloud not in self._providers or at_s >= oldest_s

    def ask(self, offers: Iterable[Offer]) -> None:
        """Those that have not been asked for lately; returns before the answers."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            due = [
                offer
                for offer in offers
                if offer.cloud in self._providers
                and now_s - self._tried_s.get(offer.key, -KEEP_S) >= self._every_s
            ]
            if not due or self._busy:
                return
            self._busy = True
            self._tried_s.update({offer.key: now_s for offer in due})
        self._run(lambda: self._round(due))

    def _round(self, due: Sequence[Offer]) -> None:
        changed = False
        try:
            for offer in due:
                found = self._quote(offer)
                if found is None:
                    continue
                with self._lock:
                    before = self._known.get(offer.key, (0.0, offer))[1]
                    self._known[offer.key] = (self._clock.monotonic_s(), found)
                changed |= found.usd_per_hour != before.usd_per_hour
        finally:
            with self._lock:
                self._busy = False
                self.version += changed

    def _quote(self, offer: Offer) -> Offer | None:
        try:
            found = self._providers[offer.cloud].quote(offer)
        except CapacityError:
            return replace(offer, usd_per_hour=None)
        except (AccessError, CloudError) as error:
            if offer.cloud not in self._silent:  # once: it is asked every minute
                log.warning("prices of %s are not to be had now: %s", offer.cloud, error.message)
            self._silent.add(offer.cloud)
            return None
        except Exception:
            log.exception("the price of %s, by a bug of ours", offer.key)
            return None
        self._silent.discard(offer.cloud)
        return replace(found, zone=offer.zone)


def deciding(plan: Plan) -> tuple[Offer, ...]:
    """The offers that the next decision hangs on: the first of the ranking, and the best of every cloud."""
    found: dict[str, Offer] = {}
    seen: dict[str, int] = {}
    for place, candidate in enumerate(plan.candidates):
        offer = candidate.offer
        if offer.key not in found and (place < FIRST or seen.get(offer.cloud, 0) < OF_EACH_CLOUD):
            found[offer.key] = offer
            seen[offer.cloud] = seen.get(offer.cloud, 0) + 1
    return tuple(found.values())
