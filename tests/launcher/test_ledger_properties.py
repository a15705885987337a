"""Laws of the ledger, over random histories of leases, price steps, epochs and losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.diary import Diary

from arylcloud.core.ports import Billing, PricePoint
from arylcloud.launcher.fold import replay
from arylcloud.launcher.leasebill import integral_usd
from arylcloud.launcher.ledger import Report, build_report, round_split
from arylcloud.launcher.spent import known_spent_usd, spent_usd
from arylcloud.launcher.state import JobState

prices = st.floats(min_value=0.0001, max_value=120.0, allow_nan=False)
gaps = st.floats(min_value=0.001, max_value=50_000.0, allow_nan=False)
shares = st.floats(min_value=0.0, max_value=1.0)


@dataclass(frozen=True)
class Episode:
    """One machine and the epoch that ran on it; moments as shares of its life."""

    wait: float
    life: float
    usd_per_hour: float | None
    steps: tuple[tuple[float, float], ...]
    first_step: float | None
    last_step: float
    saved: float | None
    how: str
    cause: str
    free_rule: bool


episodes = st.builds(
    Episode,
    wait=gaps,
    life=gaps,
    usd_per_hour=prices,
    steps=st.lists(st.tuples(shares, prices), max_size=4).map(tuple),
    first_step=st.none() | shares,
    last_step=shares,
    saved=st.none() | shares,
    how=st.sampled_from(["drained", "lost"]),
    cause=st.sampled_from(["terminated", "interrupted"]),
    free_rule=st.booleans(),
)
histories = st.lists(episodes, min_size=1, max_size=5)


def write(history: list[Episode], *, scale: float = 1.0) -> Diary:
    """The journal of ``history``. ``scale``: the same market times, with a wall clock that much slower."""

    def wall(market: float) -> float:
        return market / scale

    d = Diary(scale=scale)
    at, resume, step = 0.0, None, 0
    for i, e in enumerate(history):
        name, epoch = f"m{i}", 2 * i + 1
        at += e.wait
        start, end = at, at + e.life
        rule = Billing(first_hour_interruption_free=e.free_rule)
        d.lease(name, start, usd_per_hour=e.usd_per_hour, billing=rule)
        for share, price in e.steps:
            d.price(name, start + share * e.life, price)
        d.epoch(wall(start), name, resume=resume, step=step)
        if e.first_step is not None:
            first = start + min(e.first_step, e.last_step) * e.life
            last = start + max(e.first_step, e.last_step) * e.life
            d.train(epoch, name, wall(first), step)
            saved = None if e.saved is None else first + e.saved * (last - first)
            committed = step
            if saved is not None:
                committed = step + 5
                d.save(epoch, 1, wall(saved), committed)
                resume = (epoch, 1)
            how = "drained" if e.how == "drained" else "lost"
            d.halt(
                epoch,
                name,
                wall(last),
                how=how,  # type: ignore[arg-type]
                last=step + 9,
                committed=committed,
                saved_s=None if saved is None else wall(saved),
            )
            step = committed
        d.epoch(wall(end))
        d.end(name, end, e.cause)
        at = end
    return d


def account(state: JobState) -> Report:
    return build_report(state, now_s=1e9)


@given(histories)
def test_parts_sum_to_the_total_and_none_is_negative(history: list[Episode]) -> None:
    report = account(write(history).state)
    assert report.split_micro is not None
    split = report.split_micro
    assert min(split.useful, split.boot, split.lost_work, split.idle) >= 0
    assert split.useful + split.waste == report.compute_micro
    assert sum(cost.micro.total for cost in report.leases if cost.micro) == report.compute_micro
    assert report.total_micro == report.compute_micro + report.egress_micro + report.storage_micro


@given(histories, gaps)
def test_the_short_way_to_the_sum_is_the_reports(history: list[Episode], now_s: float) -> None:
    """What enforces budgets equals what is reported, on prefixes of the journal too."""
    records = write(history).records
    for count in range(1, len(records) + 1):
        state = replay(records[:count])
        report = build_report(state, now_s=now_s)
        assert spent_usd(state, now_s) == (None if report.total_micro is None else report.total_micro / 1e6)
        assert known_spent_usd(state, now_s) == report.known_micro / 1e6


@given(histories)
def test_spans_tile_the_billed_time(history: list[Episode]) -> None:
    for cost in account(write(history).state).leases:
        assert cost.spans[0].from_s == cost.launched_s
        assert abs(cost.spans[-1].to_s - cost.launched_s - cost.billed_s) < 1e-6
        assert cost.billed_s >= 60.0 - 1e-6
        for before, after in pairwise(cost.spans):
            assert before.to_s == after.from_s
        assert all(span.to_s > span.from_s for span in cost.spans)


@given(histories)
def test_each_lease_is_its_price_integrated_over_its_time(history: list[Episode]) -> None:
    """Recomputed here the slow way: every pair of neighbouring moments at the price in force."""
    for cost in account(write(history).state).leases:
        if cost.free:
            assert cost.micro is not None
            assert cost.micro.total == 0
            continue
        end = max(
            Fraction(cost.ended_s or 0), Fraction(cost.launched_s) + 0, Fraction(cost.launched_s + 60.0)
        )
        moments = sorted(
            {Fraction(cost.launched_s), end}
            | {
                Fraction(p.from_s)
                for p in cost.prices
                if Fraction(cost.launched_s) < Fraction(p.from_s) < end
            }
        )
        usd = Fraction(0)
        for start, stop in pairwise(moments):
            in_force = max((p for p in cost.prices if Fraction(p.from_s) <= start), key=lambda p: p.from_s)
            usd += Fraction(in_force.usd_per_hour) * (stop - start) / 3600
        assert cost.micro is not None
        assert cost.micro.total == round(usd * 1_000_000)


@given(histories, st.integers(0, 4), shares)
def test_splitting_a_price_step_anywhere_changes_nothing(
    history: list[Episode], which: int, share: float
) -> None:
    state = write(history).state
    name = list(state.leases)[which % len(state.leases)]
    lease = state.leases[name]
    assert lease.launched_s is not None
    assert lease.ended_s is not None
    at = lease.launched_s + share * (lease.ended_s - lease.launched_s)
    in_force = max((p for p in lease.prices if p.from_s <= at), key=lambda p: p.from_s)
    points = {p.from_s: p for p in lease.prices} | {
        at: PricePoint(from_s=at, usd_per_hour=in_force.usd_per_hour)
    }
    split = replace(lease, prices=tuple(points[t] for t in sorted(points)))
    again = account(replace(state, leases={**state.leases, name: split}))
    before = account(state)
    assert again.split_micro == before.split_micro
    assert [c.micro for c in again.leases] == [c.micro for c in before.leases]


@given(histories, st.sampled_from([2.0, 64.0, 1024.0]))
def test_a_compressed_clock_changes_no_dollar(history: list[Episode], scale: float) -> None:
    plain, fast = account(write(history).state), account(write(history, scale=scale).state)
    assert fast.compressed
    assert [c.micro and c.micro.total for c in plain.leases] == [
        c.micro and c.micro.total for c in fast.leases
    ]
    assert plain.split_micro is not None
    assert fast.split_micro is not None
    for kind in ("useful", "boot", "lost_work", "idle"):
        assert abs(getattr(plain.split_micro, kind) - getattr(fast.split_micro, kind)) <= len(history)


@given(histories, st.floats(min_value=1.0, max_value=100.0))
def test_a_higher_price_never_costs_less(history: list[Episode], factor: float) -> None:
    state = write(history).state
    dearer = replace(
        state,
        leases={
            name: replace(
                lease,
                prices=tuple(
                    PricePoint(from_s=p.from_s, usd_per_hour=p.usd_per_hour * factor) for p in lease.prices
                ),
            )
            for name, lease in state.leases.items()
        },
    )
    low, high = account(state).compute_micro, account(dearer).compute_micro
    assert low is not None
    assert high is not None
    assert high >= low


@given(histories, gaps, gaps)
def test_money_only_grows_while_a_machine_runs(history: list[Episode], first: float, more: float) -> None:
    d = write(history)
    d.records.pop()  # the last machine is still there
    start = d.state.open_leases[0].launched_s
    assert start is not None
    early = build_report(d.state, now_s=start + first)
    late = build_report(d.state, now_s=start + first + more)
    assert early.compute_micro is not None
    assert late.compute_micro is not None
    assert late.compute_micro >= early.compute_micro


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["useful", "boot", "lost_work", "idle"]),
            st.fractions(min_value=0, max_value=1000, max_denominator=10**9),
        ),
        max_size=12,
    )
)
def test_rounding_adds_up_and_never_moves_a_part_by_more_than_a_millionth(parts: list) -> None:  # type: ignore[type-arg]
    split = round_split(parts)
    assert split.total == round(sum((usd for _k, usd in parts), Fraction(0)) * 1_000_000)
    for kind in ("useful", "boot", "lost_work", "idle"):
        exact = sum((usd for k, usd in parts if k == kind), Fraction(0)) * 1_000_000
        assert abs(getattr(split, kind) - exact) <= 1
        assert exact != 0 or getattr(split, kind) == 0


@given(st.lists(st.tuples(gaps, prices), min_size=1, max_size=6), st.lists(shares, min_size=3, max_size=3))
def test_the_integral_is_additive(steps: list[tuple[float, float]], cuts: list[float]) -> None:
    points, at = [], 0.0
    for gap, price in steps:
        points.append(PricePoint(from_s=at, usd_per_hour=price))
        at += gap
    a, b, c = (share * 2 * at for share in sorted(cuts))
    assert integral_usd(points, a, b) + integral_usd(points, b, c) == integral_usd(points, a, c)
