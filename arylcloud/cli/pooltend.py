"""``arylcloud pool tend``: lends what the owner's work does not need, and takes it back when it does."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arylcloud.planner.loaning.tending import Stake, Tending
    from arylcloud.providers.pool.adapter import PoolProvider, State
    from arylcloud.providers.pool.machines import OwnMachine

SIGNAL_S: Final = 30.0
ANSWER_BYTES: Final = 65_536


def tend(
    signal: Annotated[
        str,
        typer.Option(
            help="Where it is told how many machines the owner's work needs now: an http(s) address, or a"
            ' shell command. Either prints a number, or {"machines": NUMBER}.'
        ),
    ],
    headroom: Annotated[str, typer.Option(help="Kept on top of what is needed.")] = "3%",
    within: Annotated[
        str, typer.Option("--within", help="How long a job may go on with a machine that is taken back.")
    ] = "60s",
    every: Annotated[str, typer.Option(help="Between two looks.")] = "60s",
    once: Annotated[bool, typer.Option("--once", help="One look, and what follows from it.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Lend what the owner's own work does not need, until stopped (Ctrl-C); take back what it does.

    Back come idle machines first, then such that a job can give up and go on, then those whose jobs lose
    least. A signal that cannot be read changes nothing."""
    from arylcloud.cli.output import emit_json, note
    from arylcloud.core.errors import CloudError
    from arylcloud.core.units import parse_fraction, parse_pause_s

    within_s = parse_pause_s(within, what="--within")
    every_s = parse_pause_s(every, what="--every")
    share = parse_fraction(headroom, what="--headroom")
    here, rounds = provider(), list[dict[str, Any]]()
    try:
        while True:
            try:
                rounds.append(_round(here, needed(signal), share, within_s))
                note(_said(rounds[-1]))
            except CloudError as error:
                if once:
                    raise
                note(f"nothing is changed: {error.message}")
            if once:
                break
            time.sleep(every_s)
    except KeyboardInterrupt:
        note("nothing is lent or taken back any more; what is lent stays lent")
    if json_:
        emit_json({"rounds": rounds})
    return 0


def needed(signal: str) -> float:
    """Machines that the owner's work needs now. Raises OtherCloudError where that is not told."""
    from arylcloud.core.errors import OtherCloudError

    text = _over_http(signal) if signal.startswith(("http://", "https://")) else _by_command(signal)
    try:
        told = json.loads(text)
        value = float(told["machines"] if isinstance(told, dict) else told)
    except (ValueError, TypeError, LookupError) as error:
        raise OtherCloudError(f"the signal said {text[:80]!r}, which is no number of machines") from error
    if not 0 <= value < 1e6:
        raise OtherCloudError(f"the signal said {value:g} machines")
    return value


def _over_http(address: str) -> str:
    from urllib.request import urlopen

    from arylcloud.core.errors import OtherCloudError

    try:
        with urlopen(address, timeout=SIGNAL_S) as answer:  # noqa: S310 - http(s) only: see ``needed``
            return str(answer.read(ANSWER_BYTES).decode())
    except (OSError, ValueError) as error:
        raise OtherCloudError(f"the signal at {address} cannot be read: {error}") from error


def _by_command(command: str) -> str:
    from arylcloud.core.errors import OtherCloudError

    try:
        done = subprocess.run(  # noqa: S602 - it is the owner's own command
            command, shell=True, capture_output=True, text=True, timeout=SIGNAL_S, check=False
        )
    except (subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise OtherCloudError(f"the signal `{command}` told nothing: {error}") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1][:200]
        raise OtherCloudError(f"the signal `{command}` ended with {done.returncode}: {said}")
    return done.stdout.strip()[:ANSWER_BYTES]


def _round(here: PoolProvider, want: float, headroom: float, within_s: float) -> dict[str, Any]:
    from arylcloud.planner.loaning.tending import tend as decide

    states = here.look()
    found = decide(_tenancies(states), want, _stakes(states), headroom=headroom)
    for machine in chosen(here, found.lend):
        here.lend(machine)
    for machine in chosen(here, found.reclaim):
        here.reclaim(machine, within_s=within_s)
    return {
        "needed": want,
        "lend": list(found.lend),
        "reclaim": list(found.reclaim),
        "shrunk": list(found.shrunk),
        "stopped": list(found.stopped),
        "loss_usd": found.loss_usd,
        "why": found.why,
        "before": usage(states),
        "after": usage(here.look()),
    }


def _said(one: dict[str, Any]) -> str:
    lent, back, after = one["lend"], one["reclaim"], one["after"]
    parts = [f"lent {', '.join(lent)}"] if lent else []
    parts += [f"taking back {', '.join(back)} (about ${one['loss_usd']:.2f} lost)"] if back else []
    parts += [f"{', '.join(one['shrunk'])} shrinks"] if one["shrunk"] else []
    parts += [f"{', '.join(one['stopped'])} must move or wait"] if one["stopped"] else []
    did = "; ".join(parts) or "nothing changes"
    used = f"{after['at_work']} of {after['machines']} at work for jobs, {after['lent']} lent"
    return f"{one['why']}: {did}; {used}"


def usage(states: Sequence[State]) -> dict[str, Any]:
    """How much of the pool is used: ``share`` = machines at work ÷ machines that answer."""
    answering = [s for s in states if s.problem is None]
    busy = sum(s.lease is not None for s in answering)
    return {
        "machines": len(states),
        "answering": len(answering),
        "lent": sum(bool(s.told and s.told["lent"]) for s in answering),
        "at_work": busy,
        "share": busy / len(answering) if answering else None,
    }


def to_return(here: PoolProvider, number: int) -> Tending:
    """So many of what is lent, by least loss; all of it, where fewer are lent."""
    from arylcloud.planner.loaning.tending import tend as decide

    states = here.look()
    pool = _tenancies(states)
    kept = sum(not m.lent for m in pool)
    return decide(pool, kept + number, _stakes(states), headroom=0.0)


def _tenancies(states: Sequence[State]) -> list[Any]:
    """Of machines that answer: of the others nothing can be asked."""
    from arylcloud.planner.loaning.tending import Tenancy

    return [
        Tenancy(name=s.machine.name, lent=s.told["lent"], job=None if s.lease is None else s.lease["job_id"])
        for s in states
        if s.problem is None and s.told is not None
    ]


def _stakes(states: Sequence[State]) -> dict[str, Stake]:
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.settings import folders
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.stakes import UNKNOWN, stake

    jobs = {s.lease["job_id"] for s in states if s.lease is not None}
    journal = open_journal(folders())
    known = set(journal.jobs())
    now_s = time.time()
    return {j: stake(replay(journal.records(j)), now_s) if j in known else UNKNOWN for j in jobs}


def provider() -> PoolProvider:
    import os
    from typing import cast

    from arylcloud.cli.settings import folders
    from arylcloud.providers import registry

    places = folders()
    found = registry.load("pool", state_dir=places.state, environ=os.environ, config_dir=places.config)
    return cast("PoolProvider", found)


def chosen(here: PoolProvider, names: Sequence[str]) -> list[OwnMachine]:
    """In the order of ``names``. Raises UsageError for a name that is none."""
    from arylcloud.core.errors import UsageError

    known = {m.name: m for m in here.machines()}
    for name in names:
        if name not in known:
            raise UsageError(
                f"the pool has no machine called {name!r}",
                hint=f"it has {', '.join(known)}" if known else "`arylcloud pool add` enters one",
            )
    return [known[name] for name in names]
