"""Asking the sources side by side: what they bring, and which of their parts need no asking."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from arylcloud.core.clock import Clock
from arylcloud.core.errors import ArylError, OtherCloudError
from arylcloud.core.live import NO_MEMORY, Answer, Known, LiveSource, Meter, NotAsked, Part
from arylcloud.pricing.live import Heard
from arylcloud.pricing.livefile import LiveState

SIDE_BY_SIDE: Final = 4
"""Parts of one cloud that are asked at once: prices are not worth a throttle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """For a progress bar."""

    done: int
    parts: int
    bytes_in: int
    raw_rows: int
    now: str
    """The part that has just been dealt with."""


class Asking:
    """The threads that ask, and what they bring."""

    def __init__(
        self,
        sources: Sequence[LiveSource],
        known: Mapping[str, Known],
        state: LiveState,
        regions: Mapping[str, Sequence[str]],
        clock: Clock,
        watch: Callable[[Progress], None] | None,
    ) -> None:
        self._sources = sources
        self._known = known
        self._state = state
        self._regions = regions
        self._now_s = clock.now_s()
        self._watch = watch
        self._results: queue.SimpleQueue[tuple[str, Part | None, object]] = queue.SimpleQueue()
        self.meters = {source.cloud: Meter() for source in sources}
        self.parts: list[tuple[str, Part]] = []
        self.recent: set[str] = set()
        self.unchanged: set[str] = set()
        self.notes: list[tuple[str, str]] = []
        """(cloud, why one of its parts was not asked)."""

    def run(self) -> tuple[list[Heard], dict[str, ArylError]]:
        """What was heard, and by cloud or part why something was not."""
        heard: list[Heard] = []
        errors: dict[str, ArylError] = {}
        for source in self._sources:
            _thread(self._survey, source)
        open_surveys, open_parts, done = len(self._sources), 0, 0
        while open_surveys or open_parts:
            cloud, part, result = self._results.get()
            if part is not None and isinstance(result, NotAsked):
                open_parts -= 1
                self.parts.remove((cloud, part))
                self.notes.append((cloud, str(result)))
                continue
            if isinstance(result, BaseException) and not isinstance(result, ArylError):
                raise result
            if part is not None:
                open_parts -= 1
                done += 1
                name = f"{cloud}/{part.name}"
                if isinstance(result, ArylError):
                    errors[name] = result
                elif result is not None or name not in self.recent:
                    assert result is None or isinstance(result, Answer)
                    heard.append(Heard(cloud=cloud, part=part, answer=result))
                self._tell(done, name)
                continue
            open_surveys -= 1
            if isinstance(result, ArylError):
                errors[cloud] = result
            else:
                assert isinstance(result, list)
                self.parts += [(cloud, one) for one in result]
                open_parts += len(result)
        self.parts.sort(key=lambda one: (one[0], one[1].name))
        heard.sort(key=lambda one: one.name)
        return heard, errors

    def _tell(self, done: int, name: str) -> None:
        if self._watch is not None:
            meters = self.meters.values()
            self._watch(
                Progress(
                    done=done,
                    parts=len(self.parts),
                    bytes_in=sum(meter.bytes_in for meter in meters),
                    raw_rows=sum(meter.raw_rows for meter in meters),
                    now=name,
                )
            )

    def _survey(self, source: LiveSource) -> None:
        cloud = source.cloud
        regions = self._regions.get(cloud, ())
        try:
            found = list(source.parts(self._known[cloud], regions, self.meters[cloud]))
        except Exception as error:  # noqa: BLE001 – handed to the thread that waits
            self._results.put((cloud, None, _readable(cloud, error)))
            return
        due: list[Part] = []
        settled: list[Part] = []
        for part in found:
            (settled if self._settled(f"{cloud}/{part.name}", part) else due).append(part)
        self._results.put((cloud, None, found))
        for part in settled:
            self._results.put((cloud, part, None))
        todo: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
        for part in due:
            todo.put(part)
        for _ in range(min(SIDE_BY_SIDE, len(due))):
            todo.put(None)
            _thread(self._work, source, todo)

    def _settled(self, name: str, part: Part) -> bool:
        """Nothing needs to be asked: the version is known, or the last answer still holds."""
        before = self._state.parts.get(name)
        if before is None or before.answered_s is None:
            return False
        if part.version is not None:
            if part.version == before.version:
                self.unchanged.add(name)
            return part.version == before.version
        if part.max_age_s is not None and self._now_s - before.answered_s < part.max_age_s:
            self.recent.add(name)
            return True
        return False

    def _work(self, source: LiveSource, todo: queue.SimpleQueue[Part | None]) -> None:
        while (part := todo.get()) is not None:
            before = self._state.parts.get(f"{source.cloud}/{part.name}")
            memory = NO_MEMORY if before is None else before.memory
            result: object
            try:
                result = source.ask(part, memory, self._known[source.cloud], self.meters[source.cloud])
            except Exception as error:  # noqa: BLE001 – handed to the thread that waits
                result = _readable(f"{source.cloud}/{part.name}", error)
            self._results.put((source.cloud, part, result))


def _thread(target: Callable[..., None], *args: object) -> None:
    """A daemon: Ctrl-C does not wait for a cloud."""
    threading.Thread(target=target, args=args, daemon=True).start()


def _readable(name: str, error: Exception) -> Exception:
    """An answer whose form we do not understand is the cloud's, not a bug: the others go on."""
    if isinstance(error, KeyError | IndexError | TypeError | ValueError | AttributeError):
        kind = type(error).__name__
        return OtherCloudError(
            f"{name}: answered in a form that this version does not know ({kind}: {error})"
        )
    return error
