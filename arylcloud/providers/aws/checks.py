"""``Checks`` on EC2: who we are, and every call of a launch, dry."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Finding, MachineSpec, Verdict
from arylcloud.providers.aws.adapter import KNOWN
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import HOME, Places
from arylcloud.providers.aws.quota import Quotas, where_to_ask
from arylcloud.providers.aws.request import request
from arylcloud.providers.aws.score import Scores
from arylcloud.providers.findings import Findings, quota_of
from arylcloud.providers.settings import known_only

MAY: Final = "DryRunOperation"
"""EC2's word for: you may."""
ENDS: Final = "AWS_CREDENTIAL_EXPIRATION"
"""Where AWS's own tools write when credentials of the environment end."""
_DRY: Final = "dry-run"

_OURS = Findings("aws")
_say, _failed, _answer = _OURS.say, _OURS.failed, _OURS.answer


def create(state_dir: Path, settings: Mapping[str, str]) -> AwsChecks:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("aws", settings, KNOWN)
    return AwsChecks(Calls(settings.get("profile")), settings, os.environ)


class AwsChecks:
    def __init__(self, calls: Calls, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._environ = environ
        self._places = Places(calls, settings)
        self._quotas = Quotas(calls)

    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        who = self._identity()
        if who.verdict is Verdict.FAILED:
            return (who,)  # nothing else could be answered
        found = [who, self._expiry(until_s)]
        scores = Scores(self._calls)  # they change from one hour to the next
        for offer in offers:
            found += self._offer(offer, nodes, scores)
        return tuple(dict.fromkeys(found))  # of offers in one region much is the same

    # ------------------------------------------------------------ who

    def _identity(self) -> Finding:
        def ask() -> str:
            caller = self._calls.read("sts", HOME, "get_caller_identity")
            return f"account {caller['Account']}, {caller['Arn']}"

        return _answer(None, "identity", ask)

    def _expiry(self, until_s: float | None) -> Finding:
        """Of credentials in the environment; those of a profile or a role renew themselves."""
        subject = "identity"
        if not self._environ.get("AWS_SESSION_TOKEN"):
            return _say(None, subject, Verdict.OK, "credentials that do not end, or renew themselves")
        text = self._environ.get(ENDS, "")
        try:
            ends_s = datetime.fromisoformat(text).timestamp()
        except ValueError:
            said = f"temporary credentials, and {ENDS} does not say when they end"
            return _say(None, subject, Verdict.WARNING, said, "use a profile that renews itself: AWS_PROFILE")
        at = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        remedy = "a new sign-in, or a profile that renews itself: AWS_PROFILE"
        if ends_s <= time.time():
            return _say(None, subject, Verdict.FAILED, f"the credentials ended at {at}", remedy)
        if until_s is not None and ends_s < until_s:
            return _say(
                None,
                subject,
                Verdict.WARNING,
                f"the credentials end at {at}, before the job's planned end",
                remedy,
            )
        return _say(None, subject, Verdict.OK, f"the credentials end at {at}")

    # ------------------------------------------------------------ one offer

    def _offer(self, offer: Offer, nodes: int, scores: Scores) -> list[Finding]:
        sold = self._offered(offer)
        found = [sold]
        if sold.verdict is Verdict.FAILED:
            return found
        found.append(self._quota(offer, nodes))
        if offer.market is Market.SPOT:
            found.append(scores.finding(offer, nodes))
        image = _answer(offer.region, "image", lambda: self._places.image(offer.region, offer.instance_type))
        network = _answer(
            offer.region, "network", lambda: f"subnet {self._places.subnet(offer)[0]} for {offer.place}"
        )
        found += [image, network]
        if Verdict.FAILED not in (image.verdict, network.verdict):
            found.append(self._launch(offer, image.said))
        return found

    def _offered(self, offer: Offer) -> Finding:
        try:
            sold = self._places.sold(offer)
        except ArylError as error:
            return _failed(offer.region, "offered", error)
        if sold:
            said = f"{offer.instance_type} is offered in {offer.place}"
            return _say(offer.region, "offered", Verdict.OK, said)
        return _OURS.not_offered(offer)

    def _quota(self, offer: Offer, nodes: int) -> Finding:
        try:
            quota = self._quotas.of(offer)
        except ArylError as error:
            return _failed(offer.region, "quota", error)
        if quota is None:
            said = f"no quota is known for {offer.instance_type} ({offer.market.value})"
            return _say(offer.region, "quota", Verdict.UNKNOWN, said)
        if quota.vcpus is None:
            said = f"quota {quota.code} may not be read"
            return _say(offer.region, "quota", Verdict.UNKNOWN, said, "allow servicequotas:GetServiceQuota")
        needs = "an unknown number of" if offer.vcpus is None else f"{offer.vcpus * nodes:g}"
        said = (
            f"quota {quota.code} ({offer.market.value}) needs {needs} vCPUs for {nodes} × "
            f"{offer.instance_type}, has {quota.vcpus:g}"
        )
        short = (offer.vcpus or 1) * nodes > quota.vcpus
        remedy = where_to_ask(offer.region, quota.code) if short else None
        verdict = Verdict.FAILED if short else Verdict.OK
        return _say(offer.region, "quota", verdict, said, remedy, about=quota_of(offer))

    def _launch(self, offer: Offer, image: str) -> Finding:
        """RunInstances with everything that a launch asks for, and DryRun."""
        spec = MachineSpec(
            token=f"aryl-{_DRY}",
            journal_id=_DRY,
            job_id=_DRY,
            lease_id=_DRY,
            offer=offer,
            user_data="#!/bin/sh\n",
            until_s=time.time(),
            max_usd_per_hour=None,
        )
        asked: dict[str, Any] = request(spec, self._settings)
        del asked["ClientToken"]
        subnet, vpc = self._places.subnet(offer)
        group = self._settings.get("security_group")
        found = [self._dry(offer.region, "create_security_group", **_group(vpc))] if group is None else []
        if group is not None:
            asked["SecurityGroupIds"] = [group]
        found.append(self._dry(offer.region, "run_instances", ImageId=image, SubnetId=subnet, **asked))
        refused = [error for error in found if error is not None]
        if refused:
            return _failed(offer.region, "permissions", refused[0])
        market = offer.market.value.replace("_", " ")
        return _say(offer.region, "permissions", Verdict.OK, f"may start {offer.instance_type} ({market})")

    def _dry(self, region: str, operation: str, **asked: Any) -> ArylError | None:
        try:
            self._calls.act("ec2", region, operation, DryRun=True, **asked)
        except ArylError as error:
            return None if error.code == MAY else error
        return None


def _group(vpc: str) -> dict[str, str]:
    return {"GroupName": f"arylcloud-{_DRY}", "Description": "arylcloud", "VpcId": vpc}
