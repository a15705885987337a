"""Spot placement scores: AWS's own guess of how likely a spot request is to succeed in a zone, from 1 to 10.

AWS scores one type alone low, whatever there is of it (it wants three types or more to choose from), so a
low score says something only beside another zone's, or where it is the lowest there is. How many different
questions there may be in a day is limited, and so is the capacity that may be asked about: an error is no
finding about the place.
"""

from __future__ import annotations

from typing import Final

from arylcloud.core.errors import AccessError, ArylError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Finding, Verdict
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.findings import Findings

SUBJECT: Final = "spot"
LOW: Final = 3
"""A score up to this is a warning where a zone of the region has a higher one."""
LOWEST: Final = 1
"""This one is a warning in any case."""
_ONE_TYPE: Final = "AWS scores a single type low"
_say = Findings("aws").say


class Scores:
    """Asked once per type, region and number of machines, for the life of one ``check``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[tuple[str, str, int], dict[str, int] | ArylError] = {}

    def finding(self, offer: Offer, nodes: int) -> Finding:
        """Of a spot offer; of one without a zone: of the region's best zone."""
        key = (offer.region, offer.instance_type, nodes)
        if key not in self._known:
            try:
                self._known[key] = self._ask(*key)
            except ArylError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, ArylError):
            allow = "allow ec2:GetSpotPlacementScores"
            said = f"no spot placement score: {found.message}"
            return _say(
                offer.region,
                SUBJECT,
                Verdict.UNKNOWN,
                said,
                allow if isinstance(found, AccessError) else found.hint,
            )
        return _judged(offer, found)

    def _ask(self, region: str, instance_type: str, nodes: int) -> dict[str, int]:
        """Zone id → score. Sent once: a hint is not worth waiting for."""
        answer = self._calls.act(
            "ec2",
            region,
            "get_spot_placement_scores",
            InstanceTypes=[instance_type],
            TargetCapacity=nodes,
            SingleAvailabilityZone=True,
            RegionNames=[region],
        )
        return {
            str(one["AvailabilityZoneId"]): int(one["Score"])
            for one in answer.get("SpotPlacementScores", [])
            if one.get("Region", region) == region and "AvailabilityZoneId" in one
        }


def _judged(offer: Offer, scores: dict[str, int]) -> Finding:
    best = max(scores, key=lambda zone: (scores[zone], zone), default=None)
    zone = offer.zone or best
    score = None if zone is None else scores.get(zone)
    if best is None or score is None:
        said = f"AWS has no spot placement score of {offer.instance_type} in {offer.place}"
        return _say(offer.region, SUBJECT, Verdict.UNKNOWN, said)
    said = f"spot placement score {score} of 10 in {zone} for {offer.instance_type}"
    if score > LOW:
        return _say(offer.region, SUBJECT, Verdict.OK, said)
    said = f"{said} ({_ONE_TYPE})"
    if scores[best] > score:
        remedy = f"{best} has {scores[best]}: --infra aws/{offer.region}/{best}; or on demand"
        return _say(offer.region, SUBJECT, Verdict.WARNING, said, remedy)
    if score <= LOWEST:
        return _say(
            offer.region,
            SUBJECT,
            Verdict.WARNING,
            said,
            "more regions and GPU types in the job, or on demand",
        )
    return _say(offer.region, SUBJECT, Verdict.OK, said)
