"""How a cloud's ``check`` says what it has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import Finding, Verdict


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one cloud; ``region`` None: of all of it."""

    cloud: str

    def say(
        self, region: str | None, subject: str, verdict: Verdict, said: str, remedy: str | None = None
    ) -> Finding:
        return Finding(
            cloud=self.cloud, region=region, subject=subject, verdict=verdict, said=said, remedy=remedy
        )

    def failed(self, region: str | None, subject: str, error: ArylError) -> Finding:
        return self.say(region, subject, Verdict.FAILED, error.message, error.hint)

    def answer(self, region: str | None, subject: str, ask: Callable[[], str]) -> Finding:
        """OK with what ``ask`` returns, FAILED with what it raises."""
        try:
            return self.say(region, subject, Verdict.OK, ask())
        except ArylError as error:
            return self.failed(region, subject, error)
