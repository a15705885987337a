"""Whether moving pays: every rule alone, and that the order of the candidates is no matter."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Candidate, Quantiles, Usd
from arylcloud.planner.migrate import Move, Stay, advise, consider, running_usd
from arylcloud.planner.upkeep import DEAR_USD_PER_GB


def at(
    place: str,
    compute: float,
    *,
    boot: float = 0.1,
    egress: float = 0.0,
    rate: float = 1.0,
    late: bool | None = None,
) -> Candidate:
    cloud, region = place.split("/")
    offer = Offer(
        cloud=cloud, region=region, zone=None, instance_type="t", gpu="V100", gpu_count=1, gpu_mem_gib=16.0,
        vcpus=8.0, mem_gib=61.0, market=Market.SPOT, usd_per_hour=rate, as_of=None, source="s",
    )  # fmt: skip
    mean = compute + boot + egress
    usd = Usd(
        p50=mean, p90=mean, mean=mean, compute=compute, boot=boot, egress=egress, storage=0.0, lost_work=0.0
    )
    return Candidate(
        rank=1, offer=offer, nodes=1, throughput=1.0, throughput_unit="steps/s", throughput_source="user",
        throughput_rel_error=0.0, hours=Quantiles(p50=10.0, p90=12.0), usd=usd, interruptions_per_hour=0.0,
        hazard_source="t", meets_deadline=None if late is None else not late, meets_budget=None,
        pareto=False, why="",
    )  # fmt: skip


HERE = at("aws/us-east-1", 20.0)


def test_a_move_that_saves_much_more_than_it_costs_is_advised() -> None:
    move = advise(HERE, [HERE, at("aws/us-west-2", 10.0)], min_saving=0.05)
    assert move is not None
    assert move.to.region == "us-west-2"
    assert move.saving_usd == pytest.approx(10.0)
    assert move.move_usd == pytest.approx(0.1 + 2 * 120 / 3600)


def test_the_saving_must_be_a_quarter_more_than_the_move() -> None:
    there = at("aws/us-west-2", 15.0, egress=3.9)
    assert isinstance(consider(HERE, [there], min_saving=0.0, handover_s=0.0), Move)
    dearer = at("aws/us-west-2", 15.0, egress=3.901)
    found = consider(HERE, [dearer], min_saving=0.0, handover_s=0.0)
    assert isinstance(found, Stay)
    assert "less than 1.25 times" in found.why


def test_the_saving_must_be_min_saving_of_what_is_left() -> None:
    there = at("aws/us-west-2", 19.0)
    assert advise(HERE, [there], min_saving=0.04) is not None
    found = consider(HERE, [there], min_saving=0.06)
    assert isinstance(found, Stay)
    assert "min_saving 6%" in found.why


def test_less_than_a_cent_is_not_said_to_be_nothing() -> None:
    found = consider(HERE, [at("aws/us-west-2", 19.998, boot=0.0)], min_saving=0.0, handover_s=0.0)
    assert "saves < $0.01 of $20.00, the move costs" in found.why
    found = consider(HERE, [at("aws/us-west-2", 20.002, boot=0.0)], min_saving=0.0, handover_s=0.0)
    assert "us-west-2:t:spot costs < $0.01 more than $20.00, the move costs" in found.why


def test_the_checkpoint_is_priced_by_the_tariff_of_where_it_leaves() -> None:
    across = at("gcp/us-central1", 10.0)
    small, large = (advise(HERE, [across], min_saving=0.0, checkpoint_gb=gb) for gb in (1.0, 80.0))
    assert small is not None
    assert large is not None
    assert large.move_usd - small.move_usd == pytest.approx(79 * 0.09)
    assert advise(HERE, [across], min_saving=0.0, checkpoint_gb=200.0) is None


def test_the_checkpoint_goes_by_way_of_the_store() -> None:
    """Up at the tariff of here, down at the store's: next door to it a move is free, from afar it is not."""
    far, gb = at("gcp/us-central1", 10.0), 10.0
    fee = {}
    for store in (None, "aws/us-east-1", "gcp/us-central1", "aws/us-west-2", "gcp/europe-west4"):
        move = advise(HERE, [far], min_saving=0.0, checkpoint_gb=gb, store_place=store, handover_s=0.0)
        assert move is not None
        fee[store] = move.move_usd - 0.1
    east_west = 0.02
    assert fee[None] == fee["aws/us-east-1"] == fee["gcp/us-central1"] == pytest.approx(0.09 * gb)
    assert fee["aws/us-west-2"] == pytest.approx((east_west + 0.09) * gb)
    assert fee["gcp/europe-west4"] == pytest.approx((0.09 + 0.12) * gb)
    # between two places that are both beside the store's cloud, it costs, though they are neighbours
    near = at("aws/us-east-1", 10.0, rate=0.5)
    other = replace(near, offer=replace(near.offer, instance_type="u"))
    away = advise(
        HERE, [other], min_saving=0.0, checkpoint_gb=gb, store_place="gcp/us-central1", handover_s=0.0
    )
    assert away is not None
    assert away.move_usd - 0.1 == pytest.approx((0.09 + 0.12) * gb)
    asia = advise(HERE, [far], min_saving=0.0, checkpoint_gb=gb, store_place="gcp/asia-east1", handover_s=0.0)
    assert asia is not None, "no tariff is known from there: a dear one stands for it, as in plans"
    assert asia.move_usd - 0.1 == pytest.approx((0.09 + DEAR_USD_PER_GB) * gb)


def test_what_checkpoints_cost_goes_on_and_is_no_part_of_a_move() -> None:
    """Here $9 of the remaining egress is for checkpoints that cross a border; beside the store nothing is."""
    here = replace(at("gcp/us-central1", 20.0, egress=9.0), data_egress_usd=0.0)
    there = replace(at("aws/us-east-1", 20.0, egress=0.0), data_egress_usd=0.0)
    assert running_usd(here) == pytest.approx(29.0)
    move = advise(here, [there], min_saving=0.05, store_place="aws/us-east-1", checkpoint_gb=1.0)
    assert move is not None
    assert move.saving_usd == pytest.approx(9.0)
    assert advise(there, [here], min_saving=0.0, store_place="aws/us-east-1", checkpoint_gb=1.0) is None
    data = replace(here, data_egress_usd=4.0)
    assert running_usd(data) == pytest.approx(25.0), "the data is fetched once"


def test_a_place_that_misses_the_deadline_is_never_advised_and_one_that_meets_it_always() -> None:
    late = at("aws/us-west-2", 1.0, late=True)
    assert isinstance(consider(HERE, [late], min_saving=0.0), Stay)
    staying_is_late = replace(HERE, meets_deadline=False)
    dear = at("aws/us-west-2", 50.0, late=False)
    move = advise(staying_is_late, [late, dear], min_saving=0.05)
    assert move is not None
    assert move.to == dear.offer
    assert "misses the deadline" in move.why


def test_nothing_to_compare_is_said() -> None:
    assert consider(None, [HERE], min_saving=0.0) == Stay(why="what staying costs is not known")
    assert consider(HERE, [HERE], min_saving=0.0) == Stay(why="there is nowhere else to go")
    unprofiled = replace(at("aws/us-west-2", 1.0), usd=None)
    assert isinstance(consider(HERE, [unprofiled], min_saving=0.0), Stay)


@given(
    costs=st.lists(st.floats(1, 40), min_size=1, max_size=5),
    data=st.data(),
    min_saving=st.floats(0, 0.5),
)
def test_advice_pays_and_does_not_depend_on_the_order(
    costs: list[float], data: st.DataObject, min_saving: float
) -> None:
    there = [at(f"aws/r{i}", cost) for i, cost in enumerate(costs)]
    one = advise(HERE, there, min_saving=min_saving)
    assert one == advise(HERE, data.draw(st.permutations(there)), min_saving=min_saving)
    if one is not None:
        assert one.saving_usd >= 1.25 * one.move_usd
        assert one.saving_usd >= min_saving * running_usd(HERE)
        # and having moved, the way back does not pay
        target = next(c for c in there if c.offer == one.to)
        assert advise(target, [HERE], min_saving=min_saving) is None
