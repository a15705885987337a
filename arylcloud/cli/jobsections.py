"""What stands below ``aryl:``, key by key: profile, objective, data, checkpoint, pipeline, migrate."""

from __future__ import annotations

import re
from typing import Any, Final

from arylcloud.cli.yamltree import Section, Value
from arylcloud.core import units
from arylcloud.core.errors import UsageError
from arylcloud.core.gpus import parse_request
from arylcloud.core.job import (
    CheckpointSpec,
    DataSet,
    HungSpec,
    InlineRate,
    MigrateSpec,
    Objective,
    ProfileRef,
    TransformerShape,
)
from arylcloud.core.pipeline import PipelineSpec

MOST_LAYERS: Final = 128
MOST_MICROBATCHES: Final = 65_536
"""They are dealt out one by one whenever an epoch opens."""
LAYER_S: Final = (1e-6, 1e6)
_TIMES: Final = re.compile(r"(\d+(?:\.\d+)?)\s*[xX×]\Z")


def profile_of(value: Value) -> ProfileRef:
    """A name, a transformer's shape, or the user's own rates; batch, seq_len and precision beside them."""
    if not value.is_mapping:
        return ProfileRef(name=value.text)
    section = value.section()
    if "params" in section.entries:
        return ProfileRef(shape=_shape(section, value))
    batch = section.get("batch", units.parse_count)
    conditions: dict[str, Any] = {
        "batch": None if batch is None else float(batch),
        "seq_len": section.get("seq_len", units.parse_count),
        "precision": section.text("precision"),
    }
    if (name := section.text("name")) is not None:
        section.finish()
        return ProfileRef(name=name, **conditions)
    unit = section.take("unit")
    rates = []
    for key in list(section.entries):
        found = section.take(key)
        if found is None:
            raise UsageError(f"{section.value.what}.{key} has no rate", hint=f"{key}: 3.1")
        rates.append(_rate(key, found))
    if not rates:
        raise UsageError(f"{value.what} holds no rate", hint="profile: {V100:1: 3.1, unit: steps/s}")
    if unit is None:
        raise UsageError(f"{value.what} has no unit", hint=f"add unit: one of {', '.join(units.RATE_UNITS)}")
    name = units.parse_rate_unit(unit.text, what=unit.what)
    return ProfileRef(rates=tuple(rates), unit=name, **conditions)


def _rate(key: str, value: Value) -> InlineRate:
    if key in ("layers", "hidden"):
        raise UsageError(f"{value.what}: a transformer's shape needs params, too", hint="params: 124e6")
    try:
        gpu, count = parse_request(key)
    except UsageError as error:
        raise UsageError(f"{value.what}: {error.message}", hint=error.hint) from error
    rate = units.parse_number(value.plain, what=value.what)
    if rate <= 0:
        raise UsageError(f"{value.what}: a rate must be more than zero, not {value.text}")
    return InlineRate(gpu=gpu, count=count or 1, rate=rate)


def _shape(section: Section, value: Value) -> TransformerShape:
    params = section.get("params", _size_of_model)
    layers, hidden, seq_len = (section.get(key, units.parse_count) for key in ("layers", "hidden", "seq_len"))
    if params is None or layers is None or hidden is None or seq_len is None:
        raise UsageError(
            f"{value.what}: a transformer's shape needs params, layers, hidden and seq_len",
            hint="{params: 124e6, layers: 12, hidden: 768, seq_len: 1024}",
        )
    precision = section.choice("precision", ("bf16", "fp16", "tf32", "fp32", "fp8")) or "16bit"
    batch = section.get("batch", units.parse_count)
    section.finish()
    return TransformerShape(
        params=params,
        layers=layers,
        hidden=hidden,
        seq_len=seq_len,
        precision=precision,
        batch=None if batch is None else float(batch),
    )


def _size_of_model(value: object, *, what: str) -> float:
    """``124e6``, ``124M``, ``7B``."""
    factor = 1.0
    if isinstance(value, str) and value and value[-1] in "kKmMbBtT":
        factor = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}[value[-1].lower()]
        value = value[:-1]
    number = units.parse_number(value, what=what) * factor
    if number <= 0:
        raise UsageError(f"{what}: {value} is not more than zero")
    return number


def read_objective(value: Value) -> Objective:
    if not value.is_mapping:
        return objective_of(value.text, what=value.what)
    section = value.section()
    cost = section.get("cost", units.parse_number)
    waiting = section.get("usd_per_hour_of_waiting", units.parse_usd_per_hour)
    section.finish()
    cost = 1.0 if cost is None else cost
    if cost < 0 or (cost == 0 and waiting is None):
        raise UsageError(f"{value.what}: cost must not be negative, nor 0 without usd_per_hour_of_waiting")
    return Objective(cost_weight=cost, usd_per_hour_of_waiting=waiting or 0.0)


def objective_of(text: str, *, what: str) -> Objective:
    """``cost``, ``time``, or ``mixed:20`` (dollars that an hour of waiting is worth)."""
    if text == "cost":
        return Objective()
    if text == "time":
        return Objective(cost_weight=0.0, usd_per_hour_of_waiting=1.0)
    kind, colon, amount = text.partition(":")
    if kind == "mixed" and colon:
        return Objective(usd_per_hour_of_waiting=units.parse_usd_per_hour(amount, what=what))
    raise UsageError(
        f"{what}: {text!r} is no objective",
        hint="cost, time, or mixed: {cost: 1, usd_per_hour_of_waiting: 20} (as a flag mixed:20)",
    )


def dataset_of(section: Section) -> DataSet:
    uri = section.text("uri")
    size = section.get("size_gb", units.parse_size_gb)
    region = section.text("region")
    section.finish()
    if uri is None or size is None:
        raise UsageError(
            f"{section.value.what}: data needs uri and size_gb",
            hint="data: [{uri: s3://bucket/set, size_gb: 500}]",
        )
    if region is not None and "/" not in region:
        raise UsageError(
            f"{section.value.what}: region {region!r} names no cloud", hint=f"region: aws/{region}"
        )
    return DataSet(uri=uri, size_gb=size, region=region)


def checkpoint_of(section: Section) -> CheckpointSpec:
    size = section.get("size_gb", units.parse_size_gb)
    interval = section.take("interval")
    keep = section.get("keep", units.parse_count)
    every = section.get("keep_every", _steps)
    where = section.text("in")
    if where not in (None, "disk", "memory"):
        raise UsageError(f"{section.value.what}: in: {where!r} is not understood", hint="in: disk, or memory")
    section.finish()
    seconds = None
    if interval is not None and interval.plain != "auto":
        seconds = units.parse_duration_s(interval.plain, what=interval.what)
    return CheckpointSpec(
        size_gb=size,
        interval_s=seconds,
        keep=CheckpointSpec().keep if keep is None else keep,
        in_memory=where == "memory",
        keep_every_steps=every,
    )


def _steps(value: object, *, what: str) -> int:
    """``10000 steps``, or the number alone."""
    if isinstance(value, str) and any(letter.isalpha() for letter in value):
        amount, unit = units.parse_work(value, what=what)
        if unit != "steps":
            raise UsageError(f"{what}: {value!r} is not a number of steps", hint=f"{what}: 10000 steps")
        return units.parse_count(amount, what=what)
    return units.parse_count(value, what=what)


def pipeline_of(section: Section) -> PipelineSpec:
    """``{layers, machines, failures, microbatches}``; whether the job's machines do is asked later."""
    layers = section.take("layers")
    machines = section.get("machines", units.parse_count)
    failures = section.get("failures", _or_none)
    microbatches = section.get("microbatches", units.parse_count)
    section.finish()
    if layers is None or machines is None or microbatches is None:
        raise UsageError(
            f"{section.value.what}: pipeline needs layers, machines and microbatches",
            hint="pipeline: {layers: 24, machines: 2, microbatches: 32}",
        )
    if microbatches > MOST_MICROBATCHES:
        raise UsageError(
            f"{section.value.what}: {microbatches} microbatches are more than {MOST_MICROBATCHES}",
            hint="count those of one step",
        )
    return PipelineSpec(
        layer_s=_layer_s(layers),
        least_nodes=machines,
        failures=1 if failures is None else failures,
        microbatches=microbatches,
    )


def _or_none(value: object, *, what: str) -> int:
    return units.parse_count(value, what=what, least=0)


def _layer_s(value: Value) -> tuple[float, ...]:
    """How many (all alike), or the seconds of each."""
    if not value.is_list:
        count = units.parse_count(value.plain, what=value.what)
        found = [1.0] * min(count, MOST_LAYERS + 1)
    else:
        found = [units.parse_number(item.plain, what=item.what) for item in value.items()]
    if not 1 <= len(found) <= MOST_LAYERS:
        raise UsageError(
            f"{value.what}: 1 to {MOST_LAYERS} layers are expected",
            hint="of more, name neighbours together as one layer",
        )
    if min(found) <= 0:
        raise UsageError(f"{value.what}: a layer's seconds must be more than zero")
    least, most = LAYER_S
    if min(found) < least or max(found) > most:
        raise UsageError(
            f"{value.what}: a layer takes {least:g} to {most:g} seconds",
            hint="what counts is their proportion",
        )
    return tuple(found)


def migrate_of(value: Value) -> MigrateSpec:
    if not value.is_mapping:
        if value.plain in (False, "off", "none", "never"):
            return MigrateSpec(auto=False)
        if value.plain in (True, "auto", "on"):
            return MigrateSpec()
        raise UsageError(
            f"{value.what}: {value.text!r} is not understood",
            hint="off, or {min_saving: 5%, at_most_every: 24h}",
        )
    section = value.section()
    changes: dict[str, Any] = {
        "auto": section.flag("auto"),
        "min_saving": section.get("min_saving", units.parse_fraction),
        "at_most_every_s": section.get("at_most_every", units.parse_pause_s),
    }
    section.finish()
    return MigrateSpec(**{key: found for key, found in changes.items() if found is not None})


def hung_of(value: Value) -> HungSpec:
    """``20x``, ``30m``, or ``{after, at_least, silent, do}``."""
    if not value.is_mapping:
        return HungSpec(**_after(value))
    section = value.section()
    changes: dict[str, Any] = {}
    if (after := section.take("after")) is not None:
        changes |= _after(after)
    least = section.take("at_least")
    if least is not None:
        if changes.get("times", 0) is None:
            raise UsageError(f"{least.what}: after is a duration already", hint="after: 20x, at_least: 10m")
        changes["least_s"] = units.parse_duration_s(least.plain, what=least.what)
    changes["silent_s"] = section.get("silent", units.parse_duration_s)
    changes["do"] = section.choice("do", ("report", "restart", "stop"))
    section.finish()
    kept = {key: found for key, found in changes.items() if found is not None or key == "times"}
    return HungSpec(**kept)


def _after(value: Value) -> dict[str, Any]:
    """So many times what is usual, or a duration."""
    if (found := _TIMES.match(value.text.strip())) is not None:
        times = float(found[1])
        if times < 2:
            raise UsageError(
                f"{value.what}: {value.text} would take every hiccup for a hang", hint="after: 20x"
            )
        return {"times": times}
    try:
        return {"times": None, "least_s": units.parse_duration_s(value.plain, what=value.what)}
    except UsageError as error:
        raise UsageError(error.message, hint="after: 20x (the usual step), or a duration: 30m") from error


def policy_of(value: Value) -> str:
    """A deadline policy that a running job can have, or ``off``: the launcher's own rules."""
    from arylcloud.planner.deadline.registry import POLICIES  # numpy: only where the file names one

    if value.plain is False or value.plain == "off":  # YAML's ``off``, and in quotes
        return "off"
    able = [name for name, policy in POLICIES.items() if not policy.free_sight and not policy.one_zone]
    if value.text not in able:
        raise UsageError(
            f"{value.what}: {value.text!r} is no policy for a job with a deadline",
            hint=f"one of {', '.join(able)}; off: none",
        )
    return value.text
