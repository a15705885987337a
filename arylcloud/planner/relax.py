"""The answer "no": which requirement binds, and the nearest change that would make it "yes"."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.gpus import BY_NAME, serving
from arylcloud.core.job import Accelerator, Constraints, JobSpec
from arylcloud.core.units import say_limit
from arylcloud.planner.evaluate import FATAL, LOSSY, Evaluation, limited, need, unfinished, within
from arylcloud.planner.feasible import Feasible, feasible
from arylcloud.planner.gate import nearest
from arylcloud.planner.inputs import Candidates
from arylcloud.planner.ladder import Refusal, log_ratios
from arylcloud.planner.memory import MEMORY
from arylcloud.pricing.table import OfferTable


def nothing_offered(spec: JobSpec, table: OfferTable, found: Feasible) -> InfeasibleError:
    """Not one offer satisfies the requirements."""
    if not len(table):
        return InfeasibleError("there are no offers at all", hint="`arylcloud prices` shows what is known")
    binding = found.rejected[-1]
    message = (
        f"no offer satisfies the job: the last {binding.count:,} of {len(table):,} fall to"
        f" {binding.reason!r} (such as {binding.example})"
    )
    ways = list(_single_changes(spec, table))
    return InfeasibleError(message, hint="; or ".join(ways[:3]) or "relax two requirements at once")


def _single_changes(spec: JobSpec, table: OfferTable) -> Iterator[str]:
    """Each requirement that alone stands in the way, with what would do."""
    resources, limits = spec.resources, spec.constraints
    plain = () if not resources.any_of else resources.any_of

    def works(changed: JobSpec) -> Feasible | None:
        offers = feasible(changed, table)
        return offers if offers.rows.size else None

    if limits.max_usd_per_hour is not None:
        offers = works(replace(spec, constraints=replace(limits, max_usd_per_hour=None)))
        if offers is not None:
            row = int(offers.rows[np.argmin(table.usd_per_hour[offers.rows])])
            price = float(table.usd_per_hour[row])
            yield f"raise max_usd_per_hour to ${up(price, 4):g} ({table.row(row).key})"
    if limits.priced_since_s is not None:
        offers = works(replace(spec, constraints=replace(limits, priced_since_s=None)))
        if offers is not None:
            newest = table.take(offers.rows).as_of_range[1]
            what = "a larger --max-age" if newest else "no --max-age"
            known = f"the newest that fits is of {newest}" if newest else "no age of one that fits is known"
            yield f"allow older prices ({what}: {known})"
    if spec.market != "auto" and works(replace(spec, market="auto")) is not None:
        yield f"allow {'on-demand' if spec.market == 'spot' else 'spot'} machines (market: auto)"
    if resources.accelerators:
        counts = works(replace(spec, resources=replace(resources, accelerators=(), any_of=plain)))
        if counts is not None:
            offered = _offered(table, counts, resources.accelerators)
            yield f"choose among the GPUs that are offered so: {offered}"
    for name, what in (
        ("zones", "another zone"),
        ("regions", "another region"),
        ("clouds", "another cloud"),
        ("instance_types", "another instance type"),
    ):
        if getattr(resources, name):
            # a region implies its zones, a cloud its regions: dropping the outer drops the inner
            drop = {
                "zones": ("zones",),
                "regions": ("zones", "regions"),
                "clouds": ("zones", "regions", "clouds"),
            }
            fields: dict[str, Any] = dict.fromkeys(drop.get(name, (name,)), ())
            if (offers := works(replace(spec, resources=replace(resources, **fields)))) is not None:
                yield f"allow {what} ({table.row(int(offers.rows[0])).key})"
    for name, what in (("min_vcpus", "cpus"), ("min_mem_gib", "memory")):
        without: dict[str, Any] = {name: None}
        if getattr(resources, name) is not None and works(
            replace(spec, resources=replace(resources, **without))
        ):
            yield f"ask for less {what}"


def _offered(table: OfferTable, offers: Feasible, wanted: Sequence[Accelerator]) -> str:
    """The same GPUs with other counts first, then those that are most like them."""
    pairs = {(table.gpu_names[table.gpu[i]], int(table.gpu_count[i])) for i in offers.rows}

    def far(pair: tuple[str, int]) -> tuple[float, float, str, int]:
        gpu, count = pair
        best = min(
            (_unlike(a.gpu, gpu), abs(math.log(count / max(a.count, 1))) if a.count else 0.0) for a in wanted
        )
        return (*best, gpu, count)

    names = [f"{gpu}:{count}" for gpu, count in sorted(pairs, key=far)]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _unlike(wanted: str, gpu: str) -> float:
    """How far two GPUs are apart in peak and bandwidth; inf where a figure is not known."""
    if gpu == wanted:
        return 0.0
    if gpu in serving(wanted):
        return 1e-12
    ratios = log_ratios(BY_NAME.get(wanted), BY_NAME.get(gpu), "16bit")
    return math.inf if ratios is None else 1e-9 + abs(ratios[0]) + abs(ratios[1])


def nothing_estimated(cands: Candidates) -> InfeasibleError:
    """Offers there are, but nobody knows what the job would get out of them, or it does not fit."""
    refusals = [e for e in cands.estimates if isinstance(e, Refusal)]
    least = nearest(refusals)
    if least is not None:
        others = {c[0] for c, e in zip(cands.configs, cands.estimates, strict=True)
                  if isinstance(e, Refusal) and e.label != MEMORY}  # fmt: skip
        more = f" (no estimate for {', '.join(sorted(others))})" if others else ""
        return InfeasibleError(
            f"no offer has enough GPU memory; nearest: {least.reason}{more}",
            hint="allow GPUs with more memory, more of them per machine, or more machines (nodes)",
        )
    if refusals:
        return InfeasibleError(f"no offer can be estimated: {refusals[0].reason}", hint=refusals[0].measure)
    reason = cands.rejected[-1].reason if cands.rejected else "no candidate"
    return InfeasibleError(f"no offer is left: {reason}", hint="say where the data lies: data: region")


def no_peak_known(spec: JobSpec) -> InfeasibleError:
    names = ", ".join(a.gpu for a in spec.resources.accelerators) or "these GPUs"
    return InfeasibleError(
        f"no profile, and the peak TFLOPS of {names} are not known",
        hint="say aryl: profile with your own rates",
    )


def limits_missed(
    spec: JobSpec,
    table: OfferTable,
    every: Evaluation,
    evaluated: Callable[[JobSpec, Feasible], Evaluation],
) -> InfeasibleError:
    """Candidates there are, but none that finishes within deadline, budget and max_runtime at p90. The hint
    names changes each of which is enough."""
    outs = list(_other_ways(spec, table, evaluated))
    base = every.finite if every.safe is None else every.finite & every.safe
    if not every.finite.any():
        message, change = _never(table, every)
    elif not base.any():
        message = "recovery is none, and every offer may be taken back"
        change = "market: spot accepts that, where a loss on the way is not likely; or recovery: auto"
    else:
        message, change = _limits(spec, table, every, base)
    return InfeasibleError(message, hint="; or ".join([*outs, change] if not base.any() else [change, *outs]))


def _never(table: OfferTable, every: Evaluation) -> tuple[str, str]:
    why = unfinished(every)
    if FATAL in why:
        worst = every.adverse
        assert worst is not None
        i = int(np.argmax(worst.of_group.survival[worst.group]))
        chance = float(worst.of_group.survival[worst.group[i]])
        return (
            "recovery is none, and a machine is more likely lost on the way than not: no loss before the end"
            f" in {chance:.0%} at best (p90, {_what(table, every, i)})",
            "recovery: auto, which goes on from the last checkpoint",
        )
    if LOSSY in why:
        return (
            "no candidate would ever finish: machines are lost faster than checkpoints are saved",
            "make checkpoints smaller",
        )
    i = int(np.argmin(every.hours))
    return (
        f"no candidate would finish within 11 years: the fastest takes {every.hours[i] / 8766:,.0f} years"
        f" ({_what(table, every, i)})",
        "less work, or faster GPUs",
    )


def _limits(spec: JobSpec, table: OfferTable, every: Evaluation, base: NDArray[np.bool_]) -> tuple[str, str]:
    """What binds, and the nearest limits that would do: one of them where that is enough, else several."""
    adverse, limits = every.adverse, spec.constraints
    assert adverse is not None
    names = limited(limits)
    met = {name: within(adverse, limits, name) & base for name in names}
    values = {"deadline": adverse.hours, "budget": adverse.usd, "max_runtime": adverse.run_hours}
    binding = [name for name in names if not met[name].any()]
    if binding:
        name = binding[0]
        i = _least(values[name], base)
        message = f"{_said(limits, name)}: {_WHICH[name]} {_amount(name, values[name][i])} (p90)"
        message += f" on {_what(table, every, i)}"
        if beyond := [_BEYOND[other] for other in names if other != name and not met[other][i]]:
            message += f", {' and '.join(beyond)}"
        if len(binding) > 1:
            message += f" (and {' and '.join(binding[1:])} cannot be met either)"
    else:
        message = f"{' and '.join(names)} together: each can be met, not all at once"
    changes = []
    for name in names:
        others = np.logical_and.reduce([base, *(met[other] for other in names if other != name)])
        if others.any():
            i = _least(values[name], others)
            which = ""
            if rest := [_said(limits, other) for other in names if other != name]:
                which = f"the {_WITHIN[name]} within {' and '.join(rest)}: "
            changes.append(f"{_relaxed(name, values[name][i])} ({which}{_what(table, every, i)})")
    if not changes:
        excess = np.max([values[name] / need(limits, name) for name in names], axis=0)
        i = _least(excess, base)
        parts = [_relaxed(name, values[name][i]) for name in names if not met[name][i]]
        changes = [f"{' and '.join(parts)}, all at once ({_what(table, every, i)})"]
    return message, ", or ".join(changes)


_WHICH = {
    "deadline": "the fastest of all needs",
    "budget": "the cheapest of all needs",
    "max_runtime": "the shortest run of all needs",
}
_BEYOND = {"deadline": "past the deadline", "budget": "over the budget", "max_runtime": "beyond max_runtime"}
_WITHIN = {"deadline": "fastest", "budget": "cheapest", "max_runtime": "shortest"}


def _said(limits: Constraints, name: str) -> str:
    value = need(limits, name)
    return f"budget ${value:g}" if name == "budget" else f"{name} {say_limit(value * 3600)}"


def _amount(name: str, value: float) -> str:
    """The same rounding wherever a need is named: a little more than it is."""
    return f"${up(value):g}" if name == "budget" else say_limit(up(value) * 3600)


def _relaxed(name: str, value: float) -> str:
    what = "raise the budget" if name == "budget" else f"relax {name}"
    return f"{what} to {_amount(name, value)}"


def _other_ways(
    spec: JobSpec, table: OfferTable, evaluated: Callable[[JobSpec, Feasible], Evaluation]
) -> Iterator[str]:
    """Changes that need no other limits: another market, more machines, any GPU."""
    resources = spec.resources
    changes: list[tuple[str, JobSpec]] = []
    if spec.market != "auto":
        other = "on-demand" if spec.market == "spot" else "spot"
        changes.append((f"allow {other} (market: auto)", replace(spec, market="auto")))
    more = min(2 * spec.nodes_max, 64)
    changes.append(
        (f"allow up to {more} machines (nodes: {spec.nodes_min}..{more})", replace(spec, nodes_max=more))
    )
    if resources.accelerators and not resources.any_of:
        any_gpu = replace(resources, accelerators=(), ordered=False)
        changes.append(("allow any GPU", replace(spec, resources=any_gpu)))
    for text, changed in changes:
        offers = feasible(changed, table)
        if offers.rows.size and evaluated(changed, offers).acceptable.any():
            yield text


def _least(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> int:
    return int(np.argmin(np.where(mask, values, np.inf)))


def _what(table: OfferTable, every: Evaluation, i: int) -> str:
    return f"{int(every.cands.nodes[i])} × {table.row(int(every.cands.rows[i])).key}"


def up(value: float, digits: int = 3) -> float:
    """Rounded up to some digits, so that what is proposed really suffices.

    >>> up(14.21), up(1234.5)
    (14.3, 1240.0)
    """
    places = digits - 1 - int(np.floor(np.log10(value)))
    steps = math.ceil(round(value * 10.0**places, 6))
    while float(f"{steps / 10.0**places:.12g}") < value:  # what rounding has taken away
        steps += 1
    return float(f"{steps / 10.0**places:.12g}")
