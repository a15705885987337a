"""``Checks`` on Azure: who we are, and the questions of a launch; what cannot be tried dry is read from the
caller's permissions."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from arylcloud.core.errors import ArylError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Finding, Verdict
from arylcloud.providers.azure import permissions
from arylcloud.providers.azure.adapter import KNOWN
from arylcloud.providers.azure.client import Arm, claims
from arylcloud.providers.azure.images import Images
from arylcloud.providers.azure.place import Places
from arylcloud.providers.azure.quota import Quota, Quotas, where_to_ask
from arylcloud.providers.azure.request import NO_IDENTITY
from arylcloud.providers.azure.skus import Skus
from arylcloud.providers.findings import Findings, quota_of
from arylcloud.providers.settings import known_only

FEDERATED: Final = "AZURE_FEDERATED_TOKEN_FILE"
"""A token of somebody else (a CI, a cluster) that is traded for one of Azure's: it ends on its own."""
_VERSION: Final = "2022-12-01"

_OURS = Findings("azure")
_say, _failed, _answer = _OURS.say, _OURS.failed, _OURS.answer


def create(state_dir: Path, settings: Mapping[str, str]) -> AzureChecks:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("azure", settings, KNOWN)
    return AzureChecks(Arm(settings), settings, os.environ)


class AzureChecks:
    def __init__(self, arm: Arm, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._arm = arm
        self._settings = settings
        self._environ = environ
        self._skus = Skus(arm)
        self._quotas = Quotas(arm, self._skus)
        self._images = Images(arm, settings, self._skus)
        self._places = Places(arm, settings)

    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        who = _answer(None, "identity", self._identity)
        if who.verdict is Verdict.FAILED:
            return (who,)  # nothing else could be answered
        found = [who, self._expiry(until_s), self._permissions(), self._ends_itself()]
        for offer in offers:
            found += self._offer(offer, nodes)
        return tuple(dict.fromkeys(found))  # of offers in one region much is the same

    # ------------------------------------------------------------ who

    def _identity(self) -> str:
        who = self._arm.identity()
        scope = self._arm.scope
        named = self._arm.read("the subscription", lambda: self._arm.rest("GET", scope, _VERSION))
        return f"subscription {self._arm.subscription} ({named.get('displayName', '?')}), as {who.name}"

    def _expiry(self, until_s: float | None) -> Finding:
        """Azure's own credentials renew their tokens; one that was lent from elsewhere does not."""
        subject, path = "identity", self._environ.get(FEDERATED)
        if not path:
            return _say(None, subject, Verdict.OK, "credentials that renew their tokens")
        try:
            ends_s = float(claims(Path(path).read_text(encoding="utf-8").strip()).get("exp", 0))
        except (OSError, ValueError):
            ends_s = 0.0
        if not ends_s:
            return _say(None, subject, Verdict.WARNING, f"{FEDERATED} does not say when it ends")
        at = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if ends_s <= time.time():
            remedy = "sign in again: az login"
            return _say(None, subject, Verdict.FAILED, f"the token of {FEDERATED} ended at {at}", remedy)
        if until_s is not None and ends_s < until_s:
            said = f"the token of {FEDERATED} ends at {at}, before the job's planned end"
            remedy = "unless whoever writes it renews it: az login"
            return _say(None, subject, Verdict.WARNING, said, remedy)
        return _say(None, subject, Verdict.OK, f"the token of {FEDERATED} ends at {at}")

    def _permissions(self) -> Finding:
        try:
            missing = permissions.missing(self._arm, self._settings)
        except ArylError as error:
            said = f"the caller's permissions may not be read: {error.message}"
            return _say(None, "permissions", Verdict.UNKNOWN, said, error.hint)
        if not missing:
            return _say(None, "permissions", Verdict.OK, "may start and end machines")
        remedy = "docs/clouds/azure.md has a role to paste"
        if set(missing) <= set(permissions.ROLES):
            remedy = "or [azure] identity: one that your organisation has made (docs/clouds/azure.md)"
        return _say(None, "permissions", Verdict.FAILED, f"may not {', '.join(missing)}", remedy)

    def _ends_itself(self) -> Finding:
        if self._settings.get("identity") == NO_IDENTITY:
            said = "identity = none: a machine without a launcher shuts down, and is paid for all the same"
            remedy = "`arylcloud gc` ends it; or [azure] identity"
            return _say(None, "permissions", Verdict.WARNING, said, remedy)
        return _say(None, "permissions", Verdict.OK, "machines have an identity to end themselves by")

    # ------------------------------------------------------------ one offer

    def _offer(self, offer: Offer, nodes: int) -> list[Finding]:
        sold = self._offered(offer)
        if sold.verdict is Verdict.FAILED:
            return [sold]
        found = [sold, *self._quota(offer, nodes)]
        found.append(_answer(offer.region, "image", lambda: self._images.of(offer)))
        found.append(_answer(offer.region, "network", lambda: self._places.planned(offer.region)))
        return found

    def _offered(self, offer: Offer) -> Finding:
        try:
            barred = self._skus.barred(offer)
        except ArylError as error:
            return _failed(offer.region, "offered", error)
        if barred is None:
            said = f"{offer.instance_type} is offered in {offer.place}"
            return _say(offer.region, "offered", Verdict.OK, said)
        return _OURS.not_offered(offer, barred)

    def _quota(self, offer: Offer, nodes: int) -> list[Finding]:
        try:
            quotas = self._quotas.of(offer)
        except ArylError as error:
            return [_failed(offer.region, "quota", error)]
        return [_compared(offer, quota, nodes) for quota in quotas]


def _compared(offer: Offer, quota: Quota, nodes: int) -> Finding:
    if quota.limit is None:
        said = f"quota {quota.name} may not be read"
        remedy = "allow Microsoft.Compute/locations/usages/read"
        return _say(offer.region, "quota", Verdict.UNKNOWN, said, remedy)
    needed = quota.needs_each * nodes
    said = (
        f"quota {quota.name} ({offer.market.value}) needs {needed:g} vCPUs for {nodes} × "
        f"{offer.instance_type}, has {quota.limit:g}"
    )
    if quota.used:
        said += f", {quota.used:g} of them in use"
    verdict = Verdict.OK
    if needed > quota.limit:
        verdict = Verdict.FAILED
    elif needed > quota.limit - (quota.used or 0.0):
        verdict = Verdict.WARNING
    ask = None if verdict is Verdict.OK else where_to_ask(offer.region, quota.name)
    return _say(offer.region, "quota", verdict, said, ask, about=quota_of(offer))
