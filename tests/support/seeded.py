"""Seeded bugs: small, plausible mistakes, each of which the suite must find by the test that is named.

One format: the module, its own text and what stands there instead (once, exactly), why that would be bad, and
the test that must fail. ``seeded_*`` hold the list; ``scripts/mutate.py --seeded`` runs all of it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    name: str
    module: str
    """Below ``arylcloud``: ``launcher/fold``."""
    old: str
    new: str
    why: str
    """What it would do to a user."""
    killed_by: str
    """A test, as pytest names it, below ``tests``."""
    world: bool = False
    """The hostile world finds it, too, without being told what to look for (slow)."""

    def planted(self) -> tuple[ModuleType, CodeType]:
        """The living module, and its code with the bug. Raises ValueError where the text has changed."""
        name = f"arylcloud.{self.module.replace('/', '.')}".removesuffix(".__init__")
        module = importlib.import_module(name)
        path = Path(module.__file__ or "")
        source = path.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.module} has its text {source.count(self.old)} times")
        return module, compile(source.replace(self.old, self.new), str(path), "exec")


def seeded() -> tuple[Seeded, ...]:
    from support import seeded_checkpoint, seeded_fence, seeded_reconcile, seeded_state

    lists = (seeded_reconcile, seeded_state, seeded_fence, seeded_checkpoint)
    return tuple(bug for module in lists for bug in module.BUGS)
