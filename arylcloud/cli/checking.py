"""What ``check`` asks, down the list of offers until one is sold; and who waits for a quota that does now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arylcloud.core.ports import Checks, Finding, Verdict

if TYPE_CHECKING:
    from arylcloud.core.offer import Offer
    from arylcloud.launcher.journal import Journal

MOST = 12
"""Offers of one ladder that are asked for."""
PASSED_OVER = "a launch passes it over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Offers of one cloud, the best first, of which ``want`` are to be looked at that the cloud sells."""

    offers: tuple[Offer, ...]
    want: int


def walked(checks: Checks, ladders: Iterable[Ladder], *, nodes: int, until_s: float | None) -> list[Finding]:
    """The findings; of offers that are not sold only a warning, as long as their ladder has one that is."""
    found: dict[Finding, None] = {}
    for ladder in ladders:
        mine: list[Finding] = []
        sold, n, batch = 0, 0, ladder.offers[: ladder.want]
        while batch:
            seen = checks.check(batch, nodes=nodes, until_s=until_s)
            mine += seen
            unsold = {f.about for f in seen if f.subject == "offered" and f.verdict is Verdict.FAILED}
            missing = sum(offer.key in unsold for offer in batch)
            sold, n = sold + len(batch) - missing, n + len(batch)
            batch = ladder.offers[n : min(n + missing, MOST)]
            if any(f.subject == "identity" and f.verdict is Verdict.FAILED for f in seen):
                batch = ()
        found |= dict.fromkeys(_milder(f) if sold else f for f in mine)
    return list(found)


def _milder(finding: Finding) -> Finding:
    if finding.subject != "offered" or finding.verdict is not Verdict.FAILED or finding.about is None:
        return finding
    return replace(finding, verdict=Verdict.WARNING, remedy=PASSED_OVER)


def lifted(
    journal: Journal, findings: Sequence[Finding], offers: Sequence[Offer], *, nodes: int
) -> Iterator[tuple[str, str]]:
    """(job, scope) of the bars for want of quota that hold no more: the jobs' launchers are told. One that
    cannot be told goes on waiting, and that is said."""
    from arylcloud.cli.assemble import open_prefix
    from arylcloud.cli.output import hanging, note
    from arylcloud.cli.request import write_request
    from arylcloud.core.errors import ArylError
    from arylcloud.launcher.fold import replay

    does = tuple(_does(findings, offers))
    for job_id in journal.jobs() if does else ():
        state = replay(journal.records(job_id))
        scopes = [] if state.phase.ended or state.spec.nodes_max > nodes else list(_scopes(state.bars, does))
        if not scopes:
            continue
        try:
            write_request(open_prefix(state.prefix_uri), "check", {"scopes": scopes})
        except ArylError as error:
            note(hanging(f"{job_id} could not be told that its quota does now: {error.message}", 2))
            continue
        yield from ((job_id, scope) for scope in scopes)


def _does(findings: Sequence[Finding], offers: Sequence[Offer]) -> Iterator[Offer]:
    """Offers whose quotas have been read, and are large enough."""
    from arylcloud.providers.findings import quota_of

    for offer in offers:
        said = [f.verdict for f in findings if f.subject == "quota" and f.about == quota_of(offer)]
        if said and all(verdict is Verdict.OK for verdict in said):
            yield offer


def _scopes(bars: Iterable[object], does: Sequence[Offer]) -> Iterator[str]:
    from arylcloud.core.events import OfferBarred
    from arylcloud.launcher.offers import holds

    for bar in bars:
        assert isinstance(bar, OfferBarred)
        if bar.code == "quota" and any(holds(bar, offer) for offer in does):
            yield bar.scope
