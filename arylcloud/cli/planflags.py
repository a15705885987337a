"""The flags that say how a job is planned, defined once: ``plan`` and ``launch`` take the same.

A command that wears ``@plan_flags`` has one parameter ``flags``; on the command line stand all of these in
its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from arylcloud.cli.jobfile import Overrides

R = TypeVar("R")


def _several(flag: str, metavar: str, help_: str) -> tuple[Any, Any]:
    return Annotated[list[str] | None, typer.Option(flag, metavar=metavar, help=help_)], None


def _text(flag: str, metavar: str, help_: str, *short: str) -> tuple[Any, Any]:
    return Annotated[str | None, typer.Option(flag, *short, metavar=metavar, help=help_)], None


FLAGS: Final[dict[str, tuple[Any, Any]]] = {
    "objective": _text("--objective", "AIM", "cost, time, or mixed:USD_PER_HOUR."),
    "deadline": _text("--deadline", "TIME", "Such as 36h, from now."),
    "budget": _text("--budget", "USD", "Such as $500, all machines."),
    "max_usd_per_hour": _text("--max-usd-per-hour", "USD", "Price cap per machine."),
    "max_age": _text(
        "--max-age",
        "TIME",
        "Only prices at most so old, such as 24h or 30d; those of unknown age are left out.",
    ),
    "market": _text("--market", "MARKET", "auto, spot or on_demand."),
    "use_spot": (Annotated[bool, typer.Option("--use-spot", help="Spot only.")], False),
    "nodes": _text("--nodes", "N", "Machines: 2, or 1..4."),
    "gpus": _text("--gpus", "GPUS", "N or NAME:N per machine.", "--gpu"),
    "infra": _several(
        "--infra", "PLACE", "CLOUD, CLOUD/REGION or …/ZONE; `local` = this machine. Repeatable."
    ),
    "name": _text("--name", "NAME", "Name of the job.", "-n"),
    "env": _several("--env", "K=V", "For the command; repeatable."),
}
"""Field of :class:`~arylcloud.cli.jobfile.Overrides` → (type with its option, default)."""


def plan_flags(command: Callable[..., R]) -> Callable[..., R]:
    """``command(…, flags: Overrides, …)`` with an option for every field of it."""
    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True, localns={"Overrides": object})
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in FLAGS.items()
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in own.values():
        if parameter.name == "flags":
            parameters += options
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=keyword, annotation=hints[parameter.name]))

    @wraps(command)
    def with_flags(**given: Any) -> R:
        from arylcloud.cli.jobfile import Overrides

        typed = {name: given.pop(name) for name in FLAGS}
        typed["env"] = tuple(typed["env"] or ())
        typed["infra"] = tuple(place.strip() for one in typed["infra"] or () for place in one.split(","))
        return command(**given, flags=Overrides(**typed))

    del with_flags.__wrapped__  # typer would look there for the parameters
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_flags


def given(flags: Overrides) -> tuple[str, ...]:
    """Flags that were typed, as they are typed."""
    return tuple(f"--{name.replace('_', '-')}" for name in FLAGS if getattr(flags, name))
