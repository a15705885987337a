"""Which machines of a pool are lent, and which come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arylcloud.planner.loaning.tending import Stake, Tenancy, keep, tend

CHEAP = Stake(spare=0, shrink_usd=0.1, stop_usd=1.0)
DEAR = Stake(spare=0, shrink_usd=0.1, stop_usd=9.0)


def of(*jobs: str | None, lent: bool = True) -> list[Tenancy]:
    return [Tenancy(name=f"m{i}", lent=lent, job=job) for i, job in enumerate(jobs)]


def test_what_is_not_needed_is_lent() -> None:
    found = tend(of(None, None, None, None, lent=False), 1.0, {}, headroom=0.0)
    assert found.lend == ("m0", "m1", "m2")
    assert not found.reclaim


def test_idle_ones_come_back_first() -> None:
    found = tend(of("a", None, "a"), 1.0, {"a": CHEAP}, headroom=0.0)
    assert (found.reclaim, found.stopped, found.loss_usd) == (("m1",), (), 0.0)


def test_a_job_shrinks_before_another_is_stopped() -> None:
    elastic = Stake(spare=2, shrink_usd=0.2, stop_usd=20.0)
    found = tend(of("a", "a", "a", "b"), 2.0, {"a": elastic, "b": CHEAP}, headroom=0.0)
    assert found.reclaim == ("m2", "m1")
    assert (found.shrunk, found.stopped, found.loss_usd) == (("a",), (), 0.2)


def test_the_cheapest_job_is_stopped() -> None:
    found = tend(of("a", "b", "b"), 1.0, {"a": DEAR, "b": CHEAP}, headroom=0.0)
    assert found.stopped == ("b",)
    assert found.reclaim[0] in ("m1", "m2")


def test_what_is_stopped_all_the_same_is_not_said_to_shrink() -> None:
    small = Stake(spare=1, shrink_usd=0.2, stop_usd=1.0)
    found = tend(of("a", "a"), 2.0, {"a": small}, headroom=0.0)
    assert (found.shrunk, found.stopped, found.loss_usd) == ((), ("a",), 1.0)


jobs = st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=8)


@given(
    jobs=jobs,
    flags=st.lists(st.booleans(), min_size=8, max_size=8),
    needed=st.floats(0, 10),
    spare=st.integers(0, 3),
)
def test_the_owner_gets_what_it_needs_and_no_more(
    jobs: list[str | None], flags: list[bool], needed: float, spare: int
) -> None:
    pool = [Tenancy(name=f"m{i}", lent=flags[i], job=job) for i, job in enumerate(jobs)]
    stakes = {job: Stake(spare=spare, shrink_usd=0.1, stop_usd=1.0) for job in jobs if job}
    found = tend(pool, needed, stakes, headroom=0.0)
    lent = {m.name for m in pool if m.lent}
    assert len(set(found.reclaim)) == len(found.reclaim)
    assert set(found.reclaim) <= lent
    assert set(found.lend).isdisjoint(lent)
    after = (lent - set(found.reclaim)) | set(found.lend)
    assert len(pool) - len(after) == keep(needed, 0.0, len(pool))
    again = [Tenancy(name=m.name, lent=m.name in after, job=m.job) for m in pool]
    rest = tend(again, needed, stakes, headroom=0.0)
    assert not rest.lend
    assert not rest.reclaim
