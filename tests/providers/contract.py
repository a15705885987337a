"""What every provider promises (``core.ports.Provider``), as tests: one subclass per provider.

A subclass gives the fixture ``cloud``, which returns a :class:`CloudUnderTest`. Nothing here knows
how a cloud is made; all figures are held against each other, none against the wall clock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import pytest

from arylcloud.core.errors import CapacityError, OtherCloudError, ThrottledError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import (
    EndCause,
    Machine,
    MachineSpec,
    MachineState,
    PricePoint,
    Provider,
)

T = TypeVar("T")


class Everything(set[str]):
    """Every operation, once ``since`` is so."""

    def __init__(self, since: Callable[[], bool]) -> None:
        super().__init__()
        self._since = since

    def __contains__(self, operation: object) -> bool:
        return self._since()


RUNS_FOR_LONG = "exec sleep 600\n"


@dataclass(kw_only=True)
class CloudUnderTest:
    connect: Callable[[], Provider]
    """A fresh adapter, as another process would make it."""
    plenty: Offer
    """Spot, room for at least 8 machines."""
    single: Offer
    """Room for one machine."""
    nowhere: Offer
    """Not sold there."""
    on_demand: Offer
    """At one price, without a past (or reserved, where machines are one's own). Room for at least one."""
    restart: Callable[[], None]
    """Kill whatever serves the API, as hard as can be, where that is ours; machines stay."""
    offers: Callable[[], tuple[Offer, ...]] | None = None
    """What is sold, where the adapter itself says so."""
    cut: Callable[[], None] | None = None
    """The next create is done, and its answer is lost."""
    late: Callable[[], None] | None = None
    """The next create is answered with a failure, and done a moment later."""
    throttle: Callable[[], None] | None = None
    """The next create is throttled, and not done."""
    lag: Callable[[], None] | None = None
    """From now on a new machine is missing in lists for a moment."""
    forbid: Callable[[set[str]], None] | None = None
    """From now on its user may call nothing that the set has."""
    ordered: Callable[[], bool] = lambda: False
    """Whether a machine has been ordered, as the cloud knows it."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def spec(self, offer: Offer | None = None, **changes: object) -> MachineSpec:
        number = next(self.numbers)
        base = MachineSpec(
            token=f"aryl-contract-{number}",
            journal_id="contract-a",
            job_id="job-1",
            lease_id=f"job-1-n0-a{number}",
            offer=offer or self.plenty,
            user_data=RUNS_FOR_LONG,
            until_s=time.time() + 3600,
            max_usd_per_hour=None,
        )
        return replace(base, **changes)  # type: ignore[arg-type]


def wait_for(look: Callable[[], T | None], what: str, patience_s: float = 120.0) -> T:
    """Poll until ``look`` gives something true. The patience only bounds a failing test."""
    give_up_s = time.monotonic() + patience_s
    while time.monotonic() < give_up_s:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {what}")


def of(cloud: Provider, instance_id: str, journal_id: str | None = "contract-a") -> Machine | None:
    found = [m for m in cloud.list_machines(journal_id=journal_id) if m.instance_id == instance_id]
    assert len(found) <= 1
    return found[0] if found else None


def gone(cloud: Provider, machine: Machine) -> Machine:
    def look() -> Machine | None:
        seen = of(cloud, machine.instance_id, None)
        return seen if seen is not None and seen.state is MachineState.GONE else None

    return wait_for(look, f"the end of {machine.instance_id}")


class ProviderContract:
    @pytest.fixture
    def adapter(self, cloud: CloudUnderTest) -> Iterator[Provider]:
        adapter = cloud.connect()
        yield adapter
        for machine in adapter.list_machines(journal_id=None):
            adapter.terminate(machine)

    # ------------------------------------------------------------ create

    def test_create_says_what_it_made(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        spec = cloud.spec(max_usd_per_hour=1000.0)
        before_s = adapter.capabilities().market_clock.market_s(time.time())
        machine = adapter.create(spec)
        after_s = adapter.capabilities().market_clock.market_s(time.time())
        assert machine.token == spec.token
        assert machine.journal_id == spec.journal_id
        assert machine.job_id == spec.job_id
        assert machine.lease_id == spec.lease_id
        assert machine.cloud == adapter.name
        assert (machine.region, machine.zone) == (spec.offer.region, spec.offer.zone)
        assert machine.instance_type == spec.offer.instance_type
        assert machine.market == spec.offer.market.value
        assert machine.state in (MachineState.PENDING, MachineState.RUNNING)
        assert machine.ended_s is None
        assert machine.end_cause is None
        assert machine.until_s == pytest.approx(spec.until_s, abs=1.0)
        assert before_s - 1.0 <= machine.launched_s <= after_s + 1.0
        assert machine.instance_id in {m.instance_id for m in adapter.list_machines(journal_id="contract-a")}

    def test_the_same_token_gives_the_same_machine(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        spec = cloud.spec()
        first = adapter.create(spec)
        again = [adapter.create(spec), cloud.connect().create(spec)]
        assert {m.instance_id for m in again} == {first.instance_id}
        assert {m.launched_s for m in again} == {first.launched_s}
        assert len(adapter.list_machines(journal_id="contract-a")) == 1

    def test_the_same_token_at_the_same_time(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        spec = cloud.spec()
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: cloud.connect().create(spec), range(8)))
        assert len({m.instance_id for m in made}) == 1
        assert len(adapter.list_machines(journal_id="contract-a")) == 1

    def test_the_same_token_after_a_restart(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        spec = cloud.spec()
        first = adapter.create(spec)
        cloud.restart()
        assert adapter.create(spec).instance_id == first.instance_id
        assert [m.instance_id for m in adapter.list_machines(journal_id=None)] == [first.instance_id]

    def test_the_token_of_an_ended_machine_makes_no_second(
        self, cloud: CloudUnderTest, adapter: Provider
    ) -> None:
        spec = cloud.spec()
        first = adapter.create(spec)
        adapter.terminate(first)
        gone(adapter, first)
        assert adapter.create(spec).instance_id == first.instance_id
        assert len(adapter.list_machines(journal_id=None)) == 1

    def test_no_capacity_and_nothing_exists(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        first = adapter.create(cloud.spec(cloud.single))
        with pytest.raises(CapacityError):
            adapter.create(cloud.spec(cloud.single))
        assert [m.instance_id for m in adapter.list_machines(journal_id=None)] == [first.instance_id]
        adapter.terminate(first)
        gone(adapter, first)
        adapter.create(cloud.spec(cloud.single))  # its place is free again

    def test_not_sold_there(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        with pytest.raises(CapacityError):
            adapter.create(cloud.spec(cloud.nowhere))
        with pytest.raises(CapacityError):
            adapter.quote(cloud.nowhere)
        assert adapter.list_machines(journal_id=None) == ()

    def test_a_price_above_the_cap_makes_nothing(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        price = adapter.quote(cloud.plenty).usd_per_hour
        assert price is not None
        with pytest.raises((CapacityError, OtherCloudError)):
            adapter.create(cloud.spec(max_usd_per_hour=price * 0.99))
        assert adapter.list_machines(journal_id=None) == ()
        adapter.create(cloud.spec(max_usd_per_hour=price * 1.5))

    # ------------------------------------------------------------ list

    def test_list_is_by_journal(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        ours = adapter.create(cloud.spec())
        theirs = adapter.create(cloud.spec(journal_id="contract-b"))

        def ids(journal_id: str | None) -> set[str]:
            return {m.instance_id for m in adapter.list_machines(journal_id=journal_id)}

        assert ids("contract-a") == {ours.instance_id}
        assert ids("contract-b") == {theirs.instance_id}
        assert ids("contract-c") == set()
        assert ids(None) == {ours.instance_id, theirs.instance_id}

    def test_every_machine_is_seen_by_whoever_asks(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        made = {adapter.create(cloud.spec()).instance_id for _ in range(3)}
        assert {m.instance_id for m in cloud.connect().list_machines(journal_id="contract-a")} == made
        assert {
            m.instance_id for m in adapter.list_machines(journal_id="contract-a", offers=[cloud.plenty])
        } == made

    def test_it_comes_to_run(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        machine = adapter.create(cloud.spec())

        def runs() -> bool:
            seen = of(adapter, machine.instance_id)
            return seen is not None and seen.state is MachineState.RUNNING

        wait_for(runs, "RUNNING")
        seen = of(adapter, machine.instance_id)
        assert seen is not None
        assert seen.launched_s == machine.launched_s
        assert seen.address

    # ------------------------------------------------------------ end

    def test_the_end_is_listed_with_time_and_cause(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        machine = adapter.create(cloud.spec())
        adapter.terminate(machine)
        end = gone(adapter, machine)
        assert end.end_cause is EndCause.TERMINATED
        assert end.ended_s is not None
        now_s = adapter.capabilities().market_clock.market_s(time.time())
        assert machine.launched_s <= end.ended_s <= now_s
        cloud.restart()
        after = of(adapter, machine.instance_id)
        assert after is not None
        assert (after.state, after.ended_s, after.end_cause) == (end.state, end.ended_s, end.end_cause)

    def test_terminate_again_and_what_is_not_there(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        machine = adapter.create(cloud.spec())
        for _ in range(3):
            adapter.terminate(machine)
        end = gone(adapter, machine)
        adapter.terminate(machine)
        assert of(adapter, machine.instance_id) == end
        adapter.terminate(replace(machine, instance_id="i-0000000000000000"))

    def test_terminate_touches_no_other(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        kept, ended = adapter.create(cloud.spec()), adapter.create(cloud.spec())
        adapter.terminate(ended)
        gone(adapter, ended)
        seen = of(adapter, kept.instance_id)
        assert seen is not None
        assert seen.state in (MachineState.PENDING, MachineState.RUNNING)

    # ------------------------------------------------------------ prices

    def test_offers_have_age_and_source(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        if cloud.offers is None:
            pytest.skip("its prices come with the catalogue")
        offers = cloud.offers()
        assert cloud.plenty.key in {o.key for o in offers}
        assert len({o.key for o in offers}) == len(offers)
        for offer in offers:
            assert offer.cloud == adapter.name
            assert offer.usd_per_hour is None or offer.usd_per_hour > 0
            assert offer.as_of
            assert offer.source

    def test_quote_is_the_offer_at_its_price_now(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        stale = replace(cloud.plenty, usd_per_hour=None, as_of=None)
        quote = adapter.quote(stale)
        assert quote.key == cloud.plenty.key
        assert quote.as_of
        now_s = adapter.capabilities().market_clock.market_s(time.time())
        history = adapter.price_history(cloud.plenty, now_s - 3600.0, now_s)
        assert quote.usd_per_hour in {point.usd_per_hour for point in history}

    def test_history_holds_every_price_that_a_machine_had(
        self, cloud: CloudUnderTest, adapter: Provider
    ) -> None:
        machine = adapter.create(cloud.spec())
        prices = {machine.usd_per_hour}
        for _ in range(5):
            seen = of(adapter, machine.instance_id)
            assert seen is not None
            prices.add(seen.usd_per_hour)
            time.sleep(0.05)
        now_s = adapter.capabilities().market_clock.market_s(time.time())
        history = adapter.price_history(cloud.plenty, machine.launched_s, now_s)
        check_history(history, machine.launched_s, now_s)
        assert history[0].from_s <= machine.launched_s
        assert prices <= {point.usd_per_hour for point in history}
        assert machine.usd_per_hour == history[0].usd_per_hour

    def test_on_demand_has_one_price(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        now_s = adapter.capabilities().market_clock.market_s(time.time())
        (only,) = adapter.price_history(cloud.on_demand, now_s - 3600.0, now_s)
        assert only.usd_per_hour == adapter.quote(cloud.on_demand).usd_per_hour

    def test_on_demand_is_held_to_its_cap(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        price = adapter.quote(cloud.on_demand).usd_per_hour
        assert price is not None
        with pytest.raises((CapacityError, OtherCloudError)):
            adapter.create(cloud.spec(cloud.on_demand, max_usd_per_hour=price * 0.66))
        assert adapter.list_machines(journal_id=None) == ()
        machine = adapter.create(cloud.spec(cloud.on_demand, max_usd_per_hour=price))
        assert machine.market == cloud.on_demand.market.value
        assert machine.usd_per_hour == price

    # ------------------------------------------------------------ bad days

    def test_an_answer_that_is_lost(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        if cloud.cut is None:
            pytest.skip("not scripted for this cloud")
        spec = cloud.spec()
        cloud.cut()
        with pytest.raises((ThrottledError, OtherCloudError)):  # whatever says that there may be a machine
            adapter.create(spec)
        (found,) = wait_for(lambda: adapter.list_machines(journal_id="contract-a"), "the machine")
        assert found.token == spec.token
        assert cloud.connect().create(spec).instance_id == found.instance_id

    def test_a_machine_that_lands_late(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        if cloud.late is None:
            pytest.skip("not scripted for this cloud")
        spec = cloud.spec()
        cloud.late()
        with pytest.raises((ThrottledError, OtherCloudError)):
            adapter.create(spec)
        (found,) = wait_for(lambda: adapter.list_machines(journal_id="contract-a"), "the machine")
        assert found.token == spec.token

    def test_what_is_forbidden_after_the_order(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        """No error of ``create`` may mean that nothing was made, while there is a machine."""
        if cloud.forbid is None:
            pytest.skip("there, creation is one call")
        spec = cloud.spec()
        cloud.forbid(Everything(cloud.ordered))
        with contextlib.suppress(
            ThrottledError, OtherCloudError
        ):  # or a machine, where nothing more is asked
            adapter.create(spec)
        assert cloud.ordered()
        cloud.forbid(set())
        (found,) = adapter.list_machines(journal_id="contract-a")
        assert found.token == spec.token
        assert cloud.connect().create(spec).instance_id == found.instance_id

    def test_a_throttle_is_not_repeated(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        if cloud.throttle is None:
            pytest.skip("not scripted for this cloud")
        spec = cloud.spec()
        cloud.throttle()
        with pytest.raises(ThrottledError):
            adapter.create(spec)
        assert adapter.list_machines(journal_id=None) == ()
        adapter.create(spec)

    def test_a_list_that_lags_makes_no_second(self, cloud: CloudUnderTest, adapter: Provider) -> None:
        if cloud.lag is None:
            pytest.skip("not scripted for this cloud")
        cloud.lag()
        spec = cloud.spec()
        first = adapter.create(spec)
        assert cloud.connect().create(spec).instance_id == first.instance_id
        with contextlib.suppress(OtherCloudError):  # it may say that it does not know, and makes no second
            again = cloud.connect().create(replace(spec, user_data="true\n"))
            assert again.instance_id == first.instance_id
        wait_for(lambda: of(adapter, first.instance_id), "the machine in the list")
        assert len(adapter.list_machines(journal_id=None)) == 1


def check_history(history: tuple[PricePoint, ...], from_s: float, to_s: float) -> None:
    assert history
    times = [point.from_s for point in history]
    assert times == sorted(set(times))
    assert all(from_s < at_s <= to_s for at_s in times[1:])
    assert all(point.usd_per_hour > 0 for point in history)
