#!/usr/bin/env python
"""Mutation testing of the parts that must not be wrong: which small mistakes would no test notice?

    scripts/mutate.py [MODULE…]           every mutant of scripts/mutators.py against the tests that reach it
    scripts/mutate.py --tests test_laws_  against those of single rules alone: soon done
    scripts/mutate.py --again             what is alive after that, against all of them
    scripts/mutate.py --report [MODULE…]  what has been found so far, and every survivor

One process collects the tests. What each test reaches, line by line, is measured once; then each mutant is
planted in a fork of that process, which runs the tests that reach its line (those that killed a neighbour
first, then the shortest) until one fails. Results are kept in --results by function, so that a run may be
cut off and goes on, and a changed function is done again. Mutants come in a random order (--seed): a run
that is cut off is a random sample. A mutant that takes ten times the time of its tests is killed, too.

Neither mutmut 3 (skips decorated functions, and all that runs at import) nor cosmic-ray (rewrites the file
that everybody else is reading; one interpreter per mutant) does that.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import hashlib
import importlib
import json
import math
import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

import mutators  # noqa: E402
from support import planting  # noqa: E402
from support.forked import failure, in_fork, search_without_shrinking  # noqa: E402

MODULES = (
    *("core/cadence", "core/phases", "checkpoint/retention"),
    *("launcher/fence", "launcher/claims", "launcher/holder", "launcher/fold", "launcher/state"),
    *("launcher/offers", "launcher/limits"),
)
"""And all of ``launcher/reconcile``."""
TESTS = (
    "tests/core/test_small.py",
    "tests/core/test_cadence.py",
    "tests/core/test_laws_cadence.py",
    "tests/checkpoint",
    "tests/launcher",
)
NOT_THESE = (
    *("ledger", "test_mutants", "quotes", "pricecap", "test_history", "test_handout", "test_submit"),
    *("store_contract", "store_away", "roundtrip", "test_pending", "test_prices", "test_world_stateful"),
    *("test_wheels", "test_queue", "test_move_accounts", "test_quoted"),
)
"""Of them: of other modules."""
SHORT_S = 1.5
"""A test that takes more processor time is not asked."""
ENOUGH_S = 4.0
"""So much processor time of tests is spent on one mutant; what has survived then counts as a survivor.
(Of what runs at import three times as much: nobody knows which tests it reaches.)"""
WALL_S = 300.0


def modules() -> list[str]:
    folder = ROOT / "arylcloud/launcher/reconcile"
    return [*MODULES, *(f"launcher/reconcile/{p.stem}" for p in sorted(folder.glob("*.py")))]


def path_of(module: str) -> Path:
    return ROOT / "arylcloud" / f"{module}.py"


class Session:
    """A pytest plugin: instead of running the tests, runs them against mutants."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.results: Path = args.results
        self.wanted = args.modules or modules()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        search_without_shrinking()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        reach = self.measured()
        begun_s = time.monotonic()
        gc.collect()
        gc.freeze()  # what is here now is shared with all forks: none of them has to look through it
        for module in self.wanted:
            self.run_module(module, reach, begun_s + self.args.seconds)
        return True

    # ------------------------------------------------------------ which test reaches what

    def measured(self) -> dict[str, Any]:
        """By test: processor seconds and the lines of each module that it reaches. Measured where unknown."""
        kept = self.results / "reach.jsonl"
        known = load(kept)
        sources = {str(path_of(m)): m for m in modules()}
        stamps = {m: hashlib.sha256(path_of(m).read_bytes()).hexdigest()[:12] for m in modules()}
        for nodeid, item in self.items.items():
            stamp = hashlib.sha256(item.path.read_bytes()).hexdigest()[:12]
            found = known.get(nodeid)
            same = found and (self.args.known or found["stamp"] == stamp)
            if same and (self.args.known or found["cpu_s"] > SHORT_S or self._current(found, stamps)):
                continue
            answer = in_fork(lambda item=item: trace(item, sources), WALL_S, cpu_s=math.ceil(2 * SHORT_S))
            said = json.loads(answer[0] or "null") or {"cpu_s": math.inf, "reach": {}, "ok": False}
            if not said["ok"]:
                print(f"does not pass by itself: {nodeid}", file=sys.stderr)
            of = {m: stamps[m] for m in said["reach"]}
            known[nodeid] = {**said, "key": nodeid, "stamp": stamp, "modules": of}
            append(kept, known[nodeid])
        for found in known.values():  # of a module that has changed since, lines say nothing
            found["reach"] = {
                m: r if found["modules"].get(m) == stamps.get(m) else None for m, r in found["reach"].items()
            }
        return {k: v for k, v in known.items() if k in self.items and v["ok"] and v["cpu_s"] <= SHORT_S}

    @staticmethod
    def _current(found: dict[str, Any], stamps: dict[str, str]) -> bool:
        return all(stamps.get(m) == stamp for m, stamp in found["modules"].items())

    # ------------------------------------------------------------ mutants

    def run_module(self, module: str, reach: dict[str, Any], until_s: float) -> None:
        source = path_of(module).read_text()
        tree = ast.parse(source)
        todo = mutators.mutants(tree)
        kept = self.results / f"{module.replace('/', '.')}.jsonl"
        done = load(kept)
        order = list(range(len(todo)))
        random.Random(self.args.seed).shuffle(order)
        order = order[: self.args.sample]
        killers: dict[str, list[str]] = defaultdict(list)
        for at in order:
            mutant = todo[at]
            key = key_of(mutant, source)
            last = done.get(key)
            if last is not None and not (self.args.again and last["result"] == "survived"):
                continue
            if time.monotonic() > until_s:
                print(f"{module}: cut off", file=sys.stderr)
                return
            tests = self.tests_for(module, mutant, reach, killers[mutant.where])
            usual_s = sum(reach[t]["cpu_s"] for t in tests)
            text, status = in_fork(
                lambda mutant=mutant, tests=tests: self.attack(module, tree, mutant, tests),
                WALL_S,
                cpu_s=math.ceil(10 * usual_s) + 2,
            )
            result, by = "survived", None
            if os.WIFSIGNALED(status):
                result, by = "killed", "it ran on and on"
            elif os.WEXITSTATUS(status) == 1:
                result, by = "killed", text
                if text in killers[mutant.where]:
                    killers[mutant.where].remove(text)
                killers[mutant.where].insert(0, text)
            elif os.WEXITSTATUS(status) != 0:
                result, by = "not possible", text
            row = {"key": key, "name": mutant.name, "line": mutant.line, "result": result, "by": by}
            append(kept, {**row, "tests": len(tests)})
            mark = {"killed": ".", "survived": "S", "not possible": "?"}[result]
            note = "" if result == "killed" else f" {module}:{mutant.line} {mutant.name}\n"
            print(mark + note, end="", file=sys.stderr, flush=True)
        print(f"\n{summary(self.results, module)[0]}", file=sys.stderr)

    def tests_for(
        self, module: str, mutant: mutators.Mutant, reach: dict[str, Any], first: list[str]
    ) -> list[str]:
        lines = set(range(mutant.line, mutant.end_line + 1))
        found = [t for t, r in reach.items() if module in r["reach"]]
        if mutant.where:
            found = [t for t in found if lines & set(reach[t]["reach"][module] or lines)]
        else:  # a table or a default: who uses it need not enter the module
            found = list(reach)

        def order(test: str) -> tuple[int, bool, bool, float]:
            known = first.index(test) if test in first[:3] else 3
            others = not Path(test.partition("::")[0]).stem.endswith(f"_{Path(module).name}")
            return known, others, module not in reach[test]["reach"], reach[test]["cpu_s"]

        found.sort(key=order)
        total_s, enough = 0.0, []
        for test in found:
            total_s += reach[test]["cpu_s"]
            if total_s > (ENOUGH_S if mutant.where else 3 * ENOUGH_S) and enough:
                break
            enough.append(test)
        return enough

    def attack(
        self, module: str, tree: ast.Module, mutant: mutators.Mutant, tests: list[str]
    ) -> tuple[int, str]:
        """In a fork: ``tree`` is its own."""
        mutant.plant()
        try:
            code = compile(ast.fix_missing_locations(tree), str(path_of(module)), "exec")
            name = f"arylcloud.{module.replace('/', '.')}".removesuffix(".__init__")
            planting.plant(importlib.import_module(name), code)
        except Exception as error:  # noqa: BLE001 - whatever a changed module says when it is made
            return 2, f"{type(error).__name__}: {error}"
        for test in tests:
            if failure(self.items[test]) is not None:
                return 1, test
        return 0, ""


def trace(item: pytest.Item, sources: dict[str, str]) -> tuple[int, str]:
    reached: dict[str, set[int]] = defaultdict(set)

    def local(frame: FrameType, _event: str, _arg: object) -> Any:
        reached[sources[frame.f_code.co_filename]].add(frame.f_lineno)
        return local

    def called(frame: FrameType, _event: str, _arg: object) -> Any:
        return local(frame, "", None) if frame.f_code.co_filename in sources else None

    begun_s = time.process_time()
    sys.settrace(called)
    ok = failure(item) is None
    sys.settrace(None)
    cpu_s = time.process_time() - begun_s  # twice what it takes otherwise
    lines = {module: sorted(found) for module, found in reached.items()}
    return 0, json.dumps({"cpu_s": round(cpu_s, 3), "reach": lines, "ok": ok})


def key_of(mutant: mutators.Mutant, source: str) -> str:
    """By the text of the outermost function or class that it is in."""
    text = next((text for first, last, text in _parts(source) if first <= mutant.line <= last), "pass")
    return hashlib.sha256(f"{text}\0{mutant.name}".encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=2)
def _parts(source: str) -> list[tuple[int, int, str]]:
    """First line, last line, text, of whatever stands outermost."""
    return [(n.lineno, n.end_lineno or 0, ast.unparse(n)) for n in ast.parse(source).body]


def append(kept: Path, row: dict[str, Any]) -> None:
    with kept.open("a") as file:
        file.write(json.dumps(row) + "\n")


def load(kept: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, kept.read_text().splitlines()) if kept.exists() else ()
    return {row["key"]: row for row in rows}


def summary(results: Path, module: str) -> tuple[str, int, int, list[dict[str, Any]]]:
    """A line, how many were killed, of how many that were tried, and who is alive; as the sources are now."""
    source = path_of(module).read_text()
    now = [(key_of(m, source), m) for m in mutators.mutants(ast.parse(source))]
    done = load(results / f"{module.replace('/', '.')}.jsonl")
    rows = [{**done[key], "line": m.line} for key, m in now if key in done]
    tried = [row for row in rows if row["result"] != "not possible"]
    alive = [row for row in tried if row["result"] == "survived"]
    killed, n = len(tried) - len(alive), len(tried)
    low, high = wilson(killed, n)
    sure = "" if len(rows) == len(now) else f"; a sample: {low:.1%}–{high:.1%} at 95 %"
    rate = f"{killed / n:.1%}" if n else "–"
    line = f"{module:32} {len(now):4} mutants, {n:4} tried, {killed:4} killed = {rate}{sure}"
    return line, killed, n, alive


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not n:
        return 0.0, 1.0
    share, width = hits / n, z * z / n
    half = z * math.sqrt(share * (1 - share) / n + width / (4 * n))
    return (share + width / 2 - half) / (1 + width), (share + width / 2 + half) / (1 + width)


def report(args: argparse.Namespace) -> int:
    killed = tried = 0
    for module in args.modules or modules():
        line, hits, n, alive = summary(args.results, module)
        killed, tried = killed + hits, tried + n
        print(line)
        for row in sorted(alive, key=lambda r: int(r["line"])):
            print(f"    {row['line']:4} {row['name']}")
    print(f"all: {killed} of {tried} killed = {killed / max(tried, 1):.1%}")
    return 0


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("modules", nargs="*", help="launcher/fold … (all of them)")
    parser.add_argument("--report", action="store_true", help="only say what has been found so far")
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutation", help="build/mutation")
    parser.add_argument("--tests", default="", metavar="TEXT", help="only files with this in their path")
    parser.add_argument("--sample", type=int, help="so many of each module, at random")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no mutant after so long")
    parser.add_argument("--again", action="store_true", help="survivors again: there are new tests")
    parser.add_argument("--known", action="store_true", help="measure no test again")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    if args.report:
        return report(args)
    folders = [ROOT / t for t in TESTS]
    files = [str(p) for f in folders for p in (sorted(f.glob("test_*.py")) if f.is_dir() else [f])]
    files = [f for f in files if not any(no in f for no in NOT_THESE)]
    files = [f for f in files if args.tests in f]
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    return pytest.main([*quiet, "-o", "tmp_path_retention_policy=none", *files], plugins=[Session(args)])


if __name__ == "__main__":
    sys.exit(main())
