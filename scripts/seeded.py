#!/usr/bin/env python
"""The committed list of seeded bugs (tests/support/seeded_*.py), each against the test that is to find it.

    scripts/seeded.py            all of them; fails if one survives
    scripts/seeded.py NAME…      those whose names contain NAME

One process collects the tests that are named; each runs in a fork, first without a bug (or its failure would
prove nothing), then with each of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import planting  # noqa: E402
from support.forked import failure, in_fork, search_without_shrinking  # noqa: E402
from support.seeded import Seeded, seeded  # noqa: E402

WALL_S, CPU_S = 120.0, 20
NOT_FOUND = ("NameError", "TypeError", "AttributeError", "UnboundLocalError", "ImportError", "SyntaxError")
"""What a bug may not show itself by: it would be a mistake of the list."""


class Run:
    """A pytest plugin: instead of running the tests, runs them against the bugs."""

    def __init__(self, bugs: list[Seeded]) -> None:
        self.bugs = bugs
        self.survived: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        search_without_shrinking()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        sound: dict[str, str | None] = {}
        for bug in self.bugs:
            test = f"tests/{bug.killed_by}"
            begun_s = time.perf_counter()
            item = items.get(test)
            if item is None:
                said, ok = f"there is no {test}", False
            else:
                if test not in sound:
                    sound[test] = self.attack(item, None)
                said, ok = self.judge(sound[test], lambda item=item, bug=bug: self.attack(item, bug))
            if not ok:
                self.survived.append(bug.name)
            took_s = time.perf_counter() - begun_s
            print(f"{'killed  ' if ok else 'SURVIVED'} {took_s:5.2f} s  {bug.module}: {bug.name}: {said}")
        return True

    @staticmethod
    def judge(without: str | None, attack: object) -> tuple[str, bool]:
        if without is not None:
            return f"its test fails without it, too: {without}", False
        found = attack()  # type: ignore[operator]
        if found is None:
            return "its test passes", False
        return " ".join(found.split())[:100], not found.startswith(NOT_FOUND)

    @staticmethod
    def attack(item: pytest.Item, bug: Seeded | None) -> str | None:
        """What the test says; None = it passes."""

        def work() -> tuple[int, str]:
            if bug is not None:
                planting.plant(*bug.planted())
            found = failure(item)
            return (0, "") if found is None else (1, found)

        text, status = in_fork(work, WALL_S, cpu_s=CPU_S)
        if os.WIFSIGNALED(status):
            return f"AssertionError: it ran on and on ({CPU_S} s)"
        if os.WEXITSTATUS(status) > 1:
            raise RuntimeError(f"{bug and bug.name}: it could not be put in")
        return text if os.WEXITSTATUS(status) == 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    bugs = [b for b in seeded() if not names or any(name in b.name for name in names)]
    os.chdir(ROOT)
    files = sorted({f"tests/{bug.killed_by.partition('::')[0]}" for bug in bugs})
    quiet = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-summary"]
    run = Run(bugs)
    code = pytest.main([*quiet, "-o", "tmp_path_retention_policy=none", *files], plugins=[run])
    print(f"{len(bugs) - len(run.survived)} of {len(bugs)} seeded bugs killed")
    return int(bool(run.survived) or code not in (0, pytest.ExitCode.NO_TESTS_COLLECTED))


if __name__ == "__main__":
    sys.exit(main())
