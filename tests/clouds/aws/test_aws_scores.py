"""Spot placement scores in ``check``: what is said of them, and what it takes to ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from clouds.aws.account import Account, Fault
from clouds.aws.offers import offer

from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Finding, Verdict
from arylcloud.providers.aws import checks

TYPE = "g4dn.xlarge"


def of_scores(*offers: Offer, nodes: int = 1) -> list[Finding]:
    made = checks.create(Path("/nonexistent"), {})
    found = made.check(offers, nodes=nodes, until_s=None)
    return [finding for finding in found if finding.subject == "spot"]


@pytest.mark.parametrize(
    ("mine", "other", "verdict", "said", "remedy"),
    [
        (7, 9, Verdict.OK, "spot placement score 7 of 10 in use1-az4 for g4dn.xlarge", None),
        (3, 3, Verdict.OK, "score 3 of 10 in use1-az4 for g4dn.xlarge (AWS scores a single type low)", None),
        (
            2,
            3,
            Verdict.WARNING,
            "score 2 of 10 in use1-az4",
            "use1-az1 has 3: --infra aws/us-east-1/use1-az1",
        ),
        (3, 8, Verdict.WARNING, "score 3 of 10 in use1-az4", "use1-az1 has 8"),
        (1, 1, Verdict.WARNING, "score 1 of 10 in use1-az4", "more regions and GPU types"),
        (0, 5, Verdict.UNKNOWN, "AWS has no spot placement score of g4dn.xlarge in", None),
    ],
)
def test_what_is_said(
    account: Account, mine: int, other: int, verdict: Verdict, said: str, remedy: str | None
) -> None:
    account.scores = {(f"use1-az{n}", TYPE): min(mine, other) for n in range(1, 7)}
    account.scores |= {("use1-az4", TYPE): mine, ("use1-az1", TYPE): other}
    (found,) = of_scores(offer())
    assert (found.verdict, found.region) == (verdict, "us-east-1")
    assert said in found.said
    assert found.remedy is None if remedy is None else remedy in (found.remedy or "")


def test_an_offer_of_a_region_has_its_best_zone(account: Account) -> None:
    account.scores["use1-az2", TYPE] = 6
    (found,) = of_scores(offer(zone=None))
    assert (found.verdict, "score 6 of 10 in use1-az2" in found.said) == (Verdict.OK, True)


def test_one_question_for_all_offers_of_a_type_and_none_on_demand(account: Account) -> None:
    on_demand = offer(market=Market.ON_DEMAND)
    assert len(of_scores(offer(), offer(zone="use1-az1"), on_demand, nodes=2)) == 2
    assert account.called["GetSpotPlacementScores"] == 1
    assert of_scores(on_demand) == []
    assert account.called["GetSpotPlacementScores"] == 1


@pytest.mark.parametrize("code", ["MaxConfigLimitExceeded", "InvalidParameterValue", "RequestLimitExceeded"])
def test_what_aws_does_not_answer_is_unknown_and_asked_once(account: Account, code: str) -> None:
    account.faults.append(Fault(operation="GetSpotPlacementScores", code=code, times=9))
    (found,) = of_scores(offer(), offer(zone="use1-az1"))  # one said for both
    assert found.verdict is Verdict.UNKNOWN
    assert code in found.said
    assert account.called["GetSpotPlacementScores"] == 1


def test_without_the_permission_it_is_named(account: Account) -> None:
    account.denied.add("GetSpotPlacementScores")
    (found,) = of_scores(offer())
    assert (found.verdict, found.remedy) == (Verdict.UNKNOWN, "allow ec2:GetSpotPlacementScores")
