"""What is launched is what was confirmed: the price as it is now, the number of machines as it was shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e.market import job, market, on_demand, spot
from e2e.support import Home

from arylcloud.cli import submission
from arylcloud.cli.compose import make_plan
from arylcloud.cli.jobfile import load_job
from arylcloud.cli.requote import as_confirmed, settle, unmet
from arylcloud.cli.settings import folders
from arylcloud.core.errors import CapacityError, InfeasibleError, IntegrityError
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Plan
from arylcloud.launcher.desire import quotes
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers, overlay, parse_as_of

NewHome = Callable[..., Home]
NOW_S = float(parse_as_of("2026-11-30T12:00:00Z"))


def planned(tmp_path: Path, **aryl: Any) -> Plan:
    path = tmp_path / "job.yaml"
    aryl = {"profile": {"T4:1": 1.0, "unit": "steps/s"}, "work": "36000 steps", **aryl}
    path.write_text(json.dumps({"run": "true", "resources": {"accelerators": "T4:1"}, "aryl": aryl}))
    return make_plan(load_job(path)[0], folders(), limit=50)


class Desk:
    """A cloud that answers quotes from a table of its own, and a planner on what it has said."""

    def __init__(self, plan: Plan, prices: dict[str, float | None]) -> None:
        self.first = plan
        self.prices = prices
        self.asked: list[Plan] = []
        self.said: list[str] = []
        self.quoted: list[str] = []
        self.as_of: str | None = "2026-11-30T11:00:00Z"
        self.allow_stale = False
        self.handed: tuple[Offer, ...] = ()

    def quote(self, offer: Offer) -> Offer:
        self.quoted.append(offer.key)
        price = self.prices.get(offer.key, offer.usd_per_hour)
        if price is None:
            raise CapacityError("sold out")
        return replace(offer, usd_per_hour=price, as_of=self.as_of)

    def replan(self, quoted: Sequence[Offer]) -> Plan:
        offers = from_offers([c.offer for c in self.first.candidates])
        return plan_job(self.first.job, overlay(offers, from_offers(quoted)), limit=50)

    def settle(self) -> Plan:
        found, self.handed = settle(
            self.first,
            quote=self.quote,
            replan=self.replan,
            ask=self.asked.append,
            say=self.said.append,
            now_s=NOW_S,
            allow_stale=self.allow_stale,
        )
        return found


def test_a_price_that_holds_asks_nothing(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    price = plan.chosen.offer.usd_per_hour or 0.0
    desk = Desk(plan, {plan.chosen.offer.key: price * 1.09})
    assert desk.settle() is plan
    said = f"asked {plan.chosen.offer.cloud} 1.0 h ago: ${price * 1.09:,.4f}/h (9.0% more)"
    assert (desk.asked, desk.said) == ([], [said])
    assert desk.handed == (plan.chosen.offer,)


def test_who_named_the_price_and_when(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    chosen = plan.chosen.offer
    desk = Desk(plan, {})
    desk.as_of = "2026-11-30T11:59:30Z"
    desk.settle()
    assert desk.said == [f"asked {chosen.cloud} just now: ${chosen.usd_per_hour:,.4f}/h (as planned)"]
    desk.first = replace(plan, chosen=replace(plan.chosen, offer=replace(chosen, as_of=desk.as_of)))
    desk.said.clear()
    desk.settle()  # answered with what was known: the cloud does not say
    assert desk.said == [f"{chosen.cloud} names no price just now: the one of 2026-11-30T11:59:30Z stands"]


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_a_price_that_moved_is_said_and_asked_again(tmp_path: Path, factor: float) -> None:
    plan = planned(tmp_path)
    key, price = plan.chosen.offer.key, plan.chosen.offer.usd_per_hour or 0.0
    desk = Desk(plan, {key: price * factor})
    found = desk.settle()
    assert len(desk.asked) == 1
    assert "as planned" in desk.said[0]
    if factor < 1:
        assert found.chosen.offer.key == key
        assert found.chosen.offer.usd_per_hour == price * factor
    assert found.chosen.usd is not None


def test_what_is_sold_out_is_not_launched(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    gone = [c.offer.key for c in plan.candidates[:3]]
    desk = Desk(plan, dict.fromkeys(gone))
    found = desk.settle()
    assert found.chosen.offer.key not in gone
    assert desk.quoted == [*gone, found.chosen.offer.key]
    assert len(desk.asked) == 3
    # the launcher begins with what was found out: its first choice is the one that was confirmed
    assert desk.handed == (
        *(replace(c.offer, usd_per_hour=None, as_of=c.offer.as_of) for c in plan.candidates[:3]),
        found.chosen.offer,
    )
    assert desk.replan(desk.handed).chosen == found.chosen


def test_nothing_left_is_capacity(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    plan = replace(plan, candidates=plan.candidates[:4])
    desk = Desk(plan, dict.fromkeys(c.offer.key for c in plan.candidates))
    with pytest.raises(CapacityError, match="is to be had now"):
        desk.settle()
    assert len(desk.said) == 4


def test_a_price_beyond_the_limit_is_infeasible(tmp_path: Path) -> None:
    """Nothing is sold out: it costs too much, and the error is the planner's, with its way out."""
    plan = planned(tmp_path, budget="$20")
    plan = replace(plan, candidates=plan.candidates[:1])
    desk = Desk(plan, {plan.chosen.offer.key: 500.0})
    with pytest.raises(InfeasibleError):
        desk.settle()


def test_a_price_a_little_over_the_users_cap_is_no_launch(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    price = plan.chosen.offer.usd_per_hour or 0.0
    capped = replace(plan.job, constraints=replace(plan.job.constraints, max_usd_per_hour=price * 1.01))
    desk = Desk(replace(plan, job=capped), {plan.chosen.offer.key: price * 1.05})
    found = desk.settle()
    assert found.chosen.offer.key != plan.chosen.offer.key


def test_a_market_that_never_holds_still_ends(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    desk = Desk(plan, {})
    price = [1.0]

    def quote(offer: Offer) -> Offer:
        price[0] *= 1.2
        return replace(offer, usd_per_hour=price[0], as_of=desk.as_of)

    desk.quote = quote  # type: ignore[method-assign]
    with pytest.raises(CapacityError, match="none held"):
        desk.settle()


def test_the_report_compares_with_the_cheapest_of_all(tmp_path: Path) -> None:
    """Not of the best few that were ranked: a slow machine is cheap by the hour, and far down."""
    plan = planned(tmp_path)
    every = submission._everything(replace(plan, candidates=plan.candidates[:1]), folders(), ())
    assert len(every.candidates) > len(plan.candidates) == 50
    assert every.chosen == plan.chosen
    (quote,) = (q for q in quotes(every, None) if q.name == "cheapest_per_hour")
    assert quote.offer.usd_per_hour == min(c.offer.usd_per_hour or 0.0 for c in every.candidates)


# ---------------------------------------------------------------- the size


def test_a_range_of_sizes_is_submitted_as_it_is(tmp_path: Path) -> None:
    plan = planned(tmp_path, nodes="1..4")
    spec = as_confirmed(plan, ("local",))
    assert (spec.nodes_min, spec.nodes_max, spec.on_node_loss) == (1, 4, "shrink")
    assert spec.resources.clouds == ("local",)
    (said,) = unmet(plan)
    assert "1..4" in said
    assert f"starts on {plan.chosen.nodes}," in said
    assert unmet(planned(tmp_path)) == ()
    (said,) = unmet(planned(tmp_path, nodes="2", on_node_loss="shrink"))
    assert "acts as replace" in said


def test_that_a_deadline_policy_may_begin_elsewhere_is_said(tmp_path: Path) -> None:
    """What is confirmed is on demand, and the launcher would try spot before it: who says yes knows it."""

    def on_demand(**aryl: Any) -> Plan:
        plan = planned(tmp_path, deadline="30h", **aryl)
        fixed = next(c for c in plan.candidates if c.offer.market != "spot")
        cheaper = next(c for c in plan.candidates if c.offer.market == "spot")
        assert (cheaper.offer.usd_per_hour or 0.0) < (fixed.offer.usd_per_hour or 0.0)
        return replace(plan, chosen=fixed)

    plan = on_demand()
    assert plan.chosen.offer.market != "spot"
    (said,) = unmet(plan)
    assert "the default policy may begin on cheaper spot" in said
    assert unmet(on_demand(policy="off")) == ()
    assert unmet(replace(plan, candidates=(plan.chosen,))) == (), "there is no spot"
    assert unmet(planned(tmp_path, deadline="30h")) == (), "spot was chosen"


# ---------------------------------------------------------------- with a cloud


def test_a_range_buys_what_was_shown(new_home: NewHome) -> None:
    home = new_home(market(spot("calm", 0.10)))
    spec = job(steps=10, nodes="1..4", on_node_loss="shrink")
    done = home.launch(spec, code=0)
    (job_id,) = home.jobs()
    state = home.state(job_id)
    assert (state.spec.nodes_min, state.spec.nodes_max) == (1, 4)
    assert state.size is not None
    assert len([r for r in home.cloud_records() if r["kind"] == "launch"]) == state.size
    assert f"it starts on {state.size}," in " ".join(done.err.split())


def test_what_the_local_cloud_does_not_do_is_said(new_home: NewHome) -> None:
    home = new_home(market(spot("calm", 0.10)))
    spec = {**job(steps=10), "resources": {"image_id": "ami-7", "disk_size": "300GB"}}
    notes = home.launch(spec, "--dryrun", "--json", code=0).json["notes"]
    image, disk = notes
    assert "image_id ami-7 is not used" in image
    assert "disk_size 300 GB is not set aside" in disk
    said = " ".join(home.launch(spec, "--dryrun", code=0).err.split())
    assert all(note in said for note in notes)


def test_the_next_best_is_launched_where_the_best_is_sold_out(new_home: NewHome) -> None:
    home = new_home(market(spot("full", 0.05, capacity=0), spot("free", 0.10)))
    job_id = home.submit(job(steps=10))
    quoted = home.state(job_id).baselines
    assert next(q for q in quoted if q.name == "fixed_zone").offer.region == "free"


def test_nothing_to_be_had_is_exit_5(new_home: NewHome) -> None:
    home = new_home(market(spot("full", 0.05, capacity=0), on_demand("fuller", 0.10, capacity=0)))
    path = str(home.job_file(job(steps=10)))
    done = home.cli("launch", path, "--infra", "local", "-y", "--json", code=5)
    assert done.json["error"]["kind"] == "capacity"
    assert home.jobs() == ()
    assert home.cli("launch", path, "--infra", "local", "--dryrun", code=5).out == ""


@pytest.mark.parametrize(("as_of", "words"), [(None, "of unknown age"), ("2026-11-29", "1.5 days old")])
def test_a_stale_price_is_launched_at_only_where_the_user_says_so(
    tmp_path: Path, as_of: str | None, words: str
) -> None:
    plan = planned(tmp_path)
    desk = Desk(plan, {})
    desk.as_of = as_of
    with pytest.raises(IntegrityError, match=words) as refused:
        desk.settle()
    assert "--allow-stale" in (refused.value.hint or "")
    assert desk.said == []
    desk.allow_stale = True
    assert desk.settle() is plan
    assert len(desk.said) == 1
    assert words in desk.said[0]


def test_a_price_of_yesterday_at_this_hour_is_fresh(tmp_path: Path) -> None:
    desk = Desk(planned(tmp_path), {})
    desk.as_of = "2026-11-29T12:00:00Z"
    assert desk.settle() is desk.first
    desk.as_of = "2026-11-29T11:59:59Z"
    with pytest.raises(IntegrityError):
        desk.settle()
