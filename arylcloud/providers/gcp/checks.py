"""``Checks`` on Compute Engine: who we are, what we may, and what a launch would look up. Nothing is made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from arylcloud.core.errors import ArylError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Finding, Verdict
from arylcloud.providers.findings import Findings, quota_of
from arylcloud.providers.gcp import permissions
from arylcloud.providers.gcp.adapter import KNOWN
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.gang import placed_near
from arylcloud.providers.gcp.network import Networks
from arylcloud.providers.gcp.place import Kind, Places
from arylcloud.providers.gcp.quota import Quotas, gpus_of, where_to_ask
from arylcloud.providers.settings import known_only

_OURS = Findings("gcp")
_say, _failed, _answer = _OURS.say, _OURS.failed, _OURS.answer


def create(state_dir: Path, settings: Mapping[str, str]) -> GcpChecks:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("gcp", settings, KNOWN)
    return GcpChecks(Calls(settings), settings)


class GcpChecks:
    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._places = Places(calls, settings)
        self._networks = Networks(calls, settings)
        self._quotas = Quotas(calls)

    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        who = self._identity()
        if who.verdict is Verdict.FAILED:
            return (who,)  # nothing else could be answered
        gang = nodes > 1 and any(placed_near(offer.instance_type) for offer in offers)
        found = [who, self._expiry(until_s), self._permissions(gang=gang)]
        for offer in offers:
            found += self._offer(offer, nodes)
        return tuple(dict.fromkeys(found))  # of offers in one region much is the same

    # ------------------------------------------------------------ who

    def _identity(self) -> Finding:
        def ask() -> str:
            project = self._calls.read("Projects", "get", project=self._calls.project)
            return f"project {project.name}, {self._calls.identity or 'a person’s credentials'}"

        return _answer(None, "identity", ask)

    def _expiry(self, until_s: float | None) -> Finding:
        """Of an access token that cannot be renewed; all other credentials renew themselves."""
        subject, credentials = "identity", self._calls.credentials()[0]
        ends = getattr(credentials, "expiry", None)
        if ends is None or getattr(credentials, "refresh_token", "") is not None:
            return _say(None, subject, Verdict.OK, "credentials that do not end, or renew themselves")
        ends_s = ends.replace(tzinfo=UTC).timestamp()
        at = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        remedy = "gcloud auth application-default login, or a service account"
        if ends_s <= time.time():
            return _say(None, subject, Verdict.FAILED, f"the access token ended at {at}", remedy)
        if until_s is not None and ends_s < until_s:
            said = f"the access token ends at {at}, before the job's planned end"
            return _say(None, subject, Verdict.WARNING, said, remedy)
        return _say(None, subject, Verdict.OK, f"the access token ends at {at}")

    def _permissions(self, *, gang: bool) -> Finding:
        needed = [*permissions.LOOK, *permissions.ACT]
        if not (self._settings.get("network") or self._settings.get("subnetwork")):
            needed += permissions.NETWORK
        if self._settings.get("external_ip", "ephemeral") != "none":
            needed += permissions.OUTSIDE
        if self._settings.get("service_account"):
            needed += permissions.ACCOUNT
        if gang:
            needed += permissions.GANG
        url = f"{self._calls.resources}/v1/projects/{quote(self._calls.project)}:testIamPermissions"
        try:
            answer = self._calls.rest("POST", url, {"permissions": needed})
        except ArylError as error:
            remedy = "gcloud services enable cloudresourcemanager.googleapis.com"
            return _say(None, "permissions", Verdict.UNKNOWN, error.message, remedy)
        missing = sorted(set(needed) - set(answer.get("permissions", ())))
        if missing:
            said = f"missing: {', '.join(missing)}"
            return _say(None, "permissions", Verdict.FAILED, said, "the role of docs/clouds/gcp.md has them")
        return _say(None, "permissions", Verdict.OK, f"may start machines, and all {len(needed)} others")

    # ------------------------------------------------------------ one offer

    def _offer(self, offer: Offer, nodes: int) -> list[Finding]:
        try:
            zones = self._places.zones(offer, "")
        except ArylError as error:
            return [_failed(offer.region, "offered", error)]
        if not zones:
            return [_OURS.not_offered(offer)]
        said = f"{offer.instance_type} is offered in {', '.join(sorted(zones))}"
        kind = self._places.kinds(offer.instance_type)[zones[0]]
        image = _answer(offer.region, "image", lambda: self._places.image(offer.instance_type).url)
        network = _answer(offer.region, "network", lambda: self._network(offer.region))
        offered = _say(offer.region, "offered", Verdict.OK, said)
        return [offered, *self._quota(offer, kind, nodes), image, network]

    def _quota(self, offer: Offer, kind: Kind, nodes: int) -> list[Finding]:
        try:
            quotas = self._quotas.of(offer, kind)
        except ArylError as error:
            return [_failed(offer.region, "quota", error)]
        if not quotas:
            said = f"no quota is known for {offer.instance_type} ({offer.market.value})"
            return [_say(offer.region, "quota", Verdict.UNKNOWN, said)]
        found = []
        for quota in quotas:
            if quota.gpus is None:
                said = f"quota {quota.name} may not be read, or is not told of"
                found.append(_say(quota.region, "quota", Verdict.UNKNOWN, said, "compute.regions.get"))
                continue
            needs = gpus_of(offer, kind) * nodes
            said = (
                f"quota {quota.name} needs {needs:g} GPUs for {nodes} × {offer.instance_type}, "
                f"has {quota.gpus:g}"
            )
            short = needs > quota.gpus
            remedy = where_to_ask(quota, self._calls.project) if short else None
            verdict = Verdict.FAILED if short else Verdict.OK
            found.append(_say(quota.region, "quota", verdict, said, remedy, about=quota_of(offer)))
        return found

    def _network(self, region: str) -> str:
        at = self._networks.named(region)
        if at is None:
            return "a network of our own is made with the first machine"
        if at.subnetwork is None:
            return f"network {at.network}"
        parts = at.subnetwork.split("/")
        project = parts[1] if parts[0] == "projects" else self._calls.project
        asked = {"project": project, "region": region, "subnetwork": parts[-1]}
        return f"subnetwork {self._calls.read('Subnetworks', 'get', **asked).name}"
