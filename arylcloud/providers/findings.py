"""How a cloud's ``check`` says what it has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import ArylError, MissingExtraError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Finding, Verdict


def quota_of(offer: Offer) -> str:
    """What a quota's finding is ``about``: the type and market in the region.

    >>> from arylcloud.core.offer import Market
    >>> quota_of(Offer(cloud="aws", region="us-east-1", zone="use1-az4", instance_type="p4d.24xlarge",
    ...     gpu="A100", gpu_count=8, gpu_mem_gib=40, vcpus=96, mem_gib=1152, market=Market.SPOT,
    ...     usd_per_hour=9.8, as_of=None, source="x"))
    'aws/us-east-1:p4d.24xlarge:spot'
    """
    return f"{offer.cloud}/{offer.region}:{offer.instance_type}:{offer.market.value}"


WANTING: Final = ("no credentials", "no project is named", "no subscription is named")
"""What the clouds' own errors say where nobody has ever signed in here."""


def not_set_up(finding: Finding) -> bool:
    """Whether the cloud does not know who asks because nobody has told it, rather than having refused
    them."""
    return (
        finding.subject == "identity"
        and finding.verdict is Verdict.FAILED
        and any(words in finding.said for words in WANTING)
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one cloud; ``region`` None: of all of it."""

    cloud: str

    def say(
        self,
        region: str | None,
        subject: str,
        verdict: Verdict,
        said: str,
        remedy: str | None = None,
        *,
        about: str | None = None,
    ) -> Finding:
        return Finding(
            cloud=self.cloud,
            region=region,
            subject=subject,
            verdict=verdict,
            said=said,
            remedy=remedy,
            about=about,
        )

    def not_offered(self, offer: Offer, why: str | None = None) -> Finding:
        said = f"{offer.instance_type} is not offered in {offer.place}" + (f": {why}" if why else "")
        remedy = "another zone or type: arylcloud plan"
        return self.say(offer.region, "offered", Verdict.FAILED, said, remedy, about=offer.key)

    def failed(self, region: str | None, subject: str, error: ArylError) -> Finding:
        return self.say(region, subject, Verdict.FAILED, error.message, error.hint)

    def answer(self, region: str | None, subject: str, ask: Callable[[], str]) -> Finding:
        """OK with what ``ask`` returns, FAILED with what it raises. MissingExtraError is raised: that the
        cloud's SDK is not installed is nothing that the cloud has said."""
        try:
            return self.say(region, subject, Verdict.OK, ask())
        except MissingExtraError:
            raise
        except ArylError as error:
            return self.failed(region, subject, error)
