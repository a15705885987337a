"""``plan --problem FILE --policy NAME``: one cluster allocation problem, solved and shown."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Any

from arylcloud.core.errors import IntegrityError, UsageError


def solve_problem(path: Path, name: str | None, *, instance: str | None, seed: int, as_json: bool) -> None:
    """Reads, solves, prints; ``seconds`` is CPU time of the solve alone. UsageError: no such policy, or a
    file that does not hold a problem."""
    import numpy as np

    from arylcloud.cli.output import emit_json, note
    from arylcloud.planner import problem as documents
    from arylcloud.planner.policies.registry import POLICIES, policy

    shares = [entry.name for entry in POLICIES.values() if entry.kind == "shares"]
    if name is None:
        raise UsageError("--problem needs a policy", hint=f"--policy with one of: {', '.join(shares)}")
    chosen = policy(name)
    if chosen.kind != "shares":
        raise UsageError(
            f"{name} chooses among configurations, and a problem file gives each job one size",
            hint=f"--policy with one of: {', '.join(shares)}",
        )
    document = documents.instance(_read(path), instance, where=str(path))
    problem = documents.parse_problem(document, where=str(path))
    if chosen.deadlines and problem.deadline_s is None:
        note(f"{path} gives no deadlines (SLOs_s): {name} has none to keep")
    solve = chosen.solve()
    began = time.process_time()
    allocation = solve(problem, np.random.default_rng(seed))
    seconds = time.process_time() - began
    answer = documents.answer(problem, name, allocation, seconds)
    if as_json:
        emit_json(answer)
    else:
        _show(answer, [str(job.get("job_type", "")) for job in document["jobs"]], problem.gpus.tolist())


def _read(path: Path) -> Any:
    """JSON value of the file, gzipped or not (its first bytes tell)."""
    from arylcloud.core.bounded import read_bounded
    from arylcloud.core.codec import parse

    try:
        return parse(read_bounded(path), what=str(path))
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file", hint="--problem takes a JSON file, gzipped or not"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path}: cannot be read: {reason}", hint="name a JSON file, gzipped or not"
        ) from error
    except IntegrityError as error:
        raise UsageError(error.message, hint="docs/problem-file.md describes the format") from error


def _show(answer: dict[str, Any], kinds: list[str], gpus: list[float]) -> None:
    import sys

    from arylcloud.cli.texttable import table, width

    types = answer["worker_types"]
    single = answer["allocation"]
    rows = answer.get("allocation_rows") or [[[i], *row] for i, row in enumerate(single)]
    named = any(kinds)
    cells = []
    for members, *row in rows:
        name = [" + ".join(kinds[i] for i in members)] if named else []
        rate = f"{answer['throughputs'][members[0]]:.4g}" if len(members) == 1 else ""
        shares = [_percent(x) for x in row]
        cells.append(["+".join(map(str, members)), *name, f"{gpus[members[0]]:g}", *shares, rate])
    headers = ["job", *(["type"] if named else []), "GPUs", *types, "steps/s in all"]
    right = frozenset(range(1 + named, len(headers)))
    print_ = sys.stdout.write
    print_(table(headers, cells, right=right, shrink=(1,) if named else (), columns=width()) + "\n\n")
    print_(f"{answer['policy']}: {_objective(answer['objective'])}, {answer['seconds'] * 1000:.1f} ms\n")
    if answer["bound"] is not None:
        print_(f"certified: the optimum is not better than {answer['bound']:.8g}\n")
    if answer["worker_value"] is not None:
        values = ", ".join(f"{t} {v:.4g}" for t, v in zip(types, answer["worker_value"], strict=True))
        print_(f"one more worker improves the objective by: {values}\n")
    if answer["fallback"]:
        print_("the deadlines cannot all be kept and were dropped\n")
    if answer["unmet"]:
        print_(f"deadlines that cannot be kept: jobs {', '.join(map(str, answer['unmet']))}\n")
    if answer["unplaceable"]:
        lost = ", ".join(map(str, answer["unplaceable"]))
        print_(
            f"more GPUs than any type on which they run has: jobs {lost} (a share of theirs is on paper)\n"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share > 5e-4 else "–"


def _objective(value: float | list[float] | None) -> str:
    if value is None:
        return "no objective"
    if isinstance(value, list):
        return "objective, ascending: " + " ".join(f"{x:.6g}" for x in value)
    return f"objective {value:.8g}"
