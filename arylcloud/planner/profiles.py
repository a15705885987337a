"""Throughput profiles: what a workload gets out of a number of GPUs, as somebody measured it.

A *profile* is one workload (``resnet-50``, ``bert-large-squad``, ``gavel-lm-bs20``) with one unit of
work; a *measurement* is the rate of one whole allocation. The bundled library carries published figures
with their source and date (NOTICE); a user's own files lie over it (:mod:`.profile_files`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import UsageError
from arylcloud.core.plan import ThroughputSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense transformer's size; what the FLOP model and the memory rule need."""

    params: float
    layers: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The rate of one allocation under stated conditions; unstated ones are None."""

    gpu: str
    """Canonical name."""
    gpus: int
    """Of the whole allocation."""
    nodes: int | None
    """None = several machines, how many is not stated."""
    rate: float
    """Work units (of the profile) per second, all GPUs together."""
    precision: str
    """``fp32 tf32 16bit fp8 fp4``, or ``submission`` (MLPerf: the submitter's mixture)."""
    framework: str
    global_batch: float | None
    batch_stated: bool
    """False: computed from a batch per GPU."""
    seq_len: int | None
    source: str
    as_of: str | None
    """ISO date, month or year of publication."""
    kind: ThroughputSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    title: str
    unit: str
    """Of every rate: ``steps/s``, ``samples/s``, ``images/s`` or ``tokens/s``."""
    aliases: tuple[str, ...]
    shape: Shape | None
    measurements: tuple[Measurement, ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(sorted({m.gpu for m in self.measurements}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A profile's line in the list, known without decoding its measurements."""

    name: str
    title: str
    unit: str
    measurements: int
    gpus: tuple[str, ...]
    origin: str
    """``bundled``, or the user's file."""


_NOT_ALNUM = re.compile(r"[\W_]+")


def key(name: str) -> str:
    """What names are compared by: letters and digits alone, in lower case.

    >>> key("ResNet-50 (batch size 64)")
    'resnet50batchsize64'
    """
    return _NOT_ALNUM.sub("", name.lower())


class Library:
    """Profiles by name. Decodes only the profile that is asked for."""

    def __init__(
        self,
        entries: Iterable[Entry],
        aliases: Mapping[str, tuple[str, ...]],
        load: Callable[[str], Profile],
        digest: str,
    ) -> None:
        """``aliases``: canonical name → other spellings; ``load``: canonical name → profile."""
        self.entries = tuple(sorted(entries, key=lambda e: e.name))
        self.digest = digest
        self._load = load
        self._loaded: dict[str, Profile] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        for entry in self.entries:
            for spelling in aliases.get(entry.name, ()):
                known = self._names.setdefault(key(spelling), ())
                if entry.name not in known:
                    self._names[key(spelling)] = (*known, entry.name)
        # a canonical name is never ambiguous: it wins over whoever else is called so
        self._names.update({key(entry.name): (entry.name,) for entry in self.entries})

    def resolve(self, name: str) -> str:
        """Canonical name; UsageError that names the nearest where ``name`` is unknown or ambiguous."""
        found = self._names.get(key(name), ())
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"{name!r} may be any of {', '.join(found)}", hint="say which; `arylcloud profile list`"
            )
        close = self.nearest(name)
        raise UsageError(
            f"no profile is called {name!r}",
            hint=f"nearest: {', '.join(close)}" if close else "`arylcloud profile list` shows them all",
        )

    def nearest(self, name: str, limit: int = 4) -> tuple[str, ...]:
        from difflib import get_close_matches  # only on the way to an error message

        wanted = key(name)
        inside = sorted((k for k in self._names if len(wanted) >= 3 and wanted in k), key=len)
        close = [*inside[:limit], *get_close_matches(wanted, list(self._names), n=2 * limit, cutoff=0.5)]
        return tuple(dict.fromkeys(n for k in close for n in self._names[k]))[:limit]

    def get(self, name: str) -> Profile:
        """The profile called ``name`` (any spelling, alias or canonical); UsageError as ``resolve``."""
        canonical = self.resolve(name)
        profile = self._loaded.get(canonical)
        if profile is None:
            profile = self._loaded[canonical] = self._load(canonical)
        return profile


def library(user_dir: Path | None = None) -> Library:
    """The bundled profiles, with the files of ``user_dir`` (None or absent: none) laid over them.

    Raises IntegrityError where the bundled file is damaged, UsageError for a user's bad file.
    """
    from arylcloud.planner.profile_files import load_library

    return load_library(user_dir)
