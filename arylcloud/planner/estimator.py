"""What a job gets out of a number of GPUs: the ladder from measured to estimated to refused.

1. *exact*: this workload was measured on this very allocation;
2. *scaled*: measured on this GPU at another count; efficiency by fabric and network (:mod:`.scaling`);
3. *low-rank completion*: measured on two or more other GPUs (:mod:`.completion`);
4. *power law*: measured on one other GPU, T₂ = T₁·(peak ratio)^0.36·(bandwidth ratio)^0.50 as the library
   corrects it (the same module);
5. *FLOP model*: the shape of a transformer and one MFU per GPU (:mod:`.flops`);
6. a :class:`Refusal` that says what to measure.

Every estimate carries a band, meant to hold nine truths of ten; it becomes the plan's p90. Measured
errors and coverage of each rung: ``benchmarks/bench_profiles.py``, docs/results/estimator.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError
from arylcloud.core.job import ProfileRef, TransformerShape
from arylcloud.core.units import RATE_UNITS
from arylcloud.planner.conditions import Conditions, reference_batch, reference_seq_len
from arylcloud.planner.ladder import Estimate, Ladder, Refusal
from arylcloud.planner.profile_files import precision_class
from arylcloud.planner.profiles import Library, Measurement, Profile, Shape
from arylcloud.planner.profiles import library as load_library
from arylcloud.planner.same_gpu import Config, Rung

__all__ = ["Config", "Estimate", "Refusal", "Rung", "estimate_configs", "estimate_profile", "step_note"]


def estimate_configs(
    profile: ProfileRef,
    configs: Sequence[Config],
    *,
    library: Library | None = None,
    work_unit: str | None = None,
    precision: str | None = None,
    batch: float | None = None,
    seq_len: int | None = None,
) -> list[Estimate | Refusal]:
    """One answer per configuration, in order; meant to be called once with all distinct ones.

    ``library``: where names are looked up (None: the bundled one). ``work_unit``: the job's (``steps``…;
    None: the profile's own). ``precision``, ``batch`` (global) and ``seq_len`` override the reference's.
    UsageError: unknown or ambiguous name, unit that cannot be converted, precision that is none.
    """
    text = precision or profile.precision or (profile.shape.precision if profile.shape else None)
    batch = batch or profile.batch or (profile.shape.batch if profile.shape else None)
    seq_len = seq_len or profile.seq_len or (profile.shape.seq_len if profile.shape else None)
    if profile.shape is not None:
        found = _of_shape(profile.shape)
    elif profile.rates:
        found = _inline(profile)
    elif profile.name is not None:
        found = (library if library is not None else load_library()).get(profile.name)
    else:
        raise UsageError("the job has no profile", hint="`arylcloud profile list` shows the bundled ones")
    return estimate_profile(found, configs, work_unit=work_unit, precision=text, batch=batch, seq_len=seq_len)


def estimate_profile(
    profile: Profile,
    configs: Sequence[Config],
    *,
    work_unit: str | None = None,
    precision: str | None = None,
    batch: float | None = None,
    seq_len: int | None = None,
) -> list[Estimate | Refusal]:
    """As :func:`estimate_configs`, for a profile in hand."""
    ladder = Ladder(
        profile,
        Conditions(
            precision=None if precision is None else precision_class(precision), batch=batch, seq_len=seq_len
        ),
    )
    factor, note = ladder.unit_factor(work_unit)
    unit = ladder.unit if work_unit is None else f"{work_unit}/s"
    own = {m.gpu for m in profile.measurements if m.kind != "published"}

    def answer(config: Config) -> Estimate | Refusal:
        # who has measured it there knows better
        missing = None if precision is None or config[0] in own else gpus.lacks(config[0], precision)
        if missing is None:
            return ladder.answer(config, factor, unit, note)
        return Refusal(
            reason=f"{profile.name} in {precision}: {config[0]} has {missing}",
            measure="choose another GPU, or another precision (fp16 runs on all of them)",
            label=f"the GPU has {missing}",
        )

    return [answer(config) for config in configs]


def step_note(profile: ProfileRef, work_unit: str, *, library: Library | None = None) -> str | None:
    """What one step of the job is, where its work is counted in steps and somebody else's profile says how
    many there are in a second; None where there is nothing to say."""
    if work_unit != "steps" or profile.name is None:
        return None
    found = (library if library is not None else load_library()).get(profile.name)
    wanted = Conditions(precision=None, batch=profile.batch, seq_len=profile.seq_len)
    seq_len = wanted.seq_len or reference_seq_len(found)
    batch = wanted.batch or reference_batch(found, seq_len)
    if found.unit == "steps/s":
        batch = reference_batch(found, seq_len)  # a rate in steps holds for its own batch only
    if batch is None:
        return f"a step is one of the profile {found.name}'s, whose batch its source does not say"
    tokens = f" of {seq_len:,} tokens" if seq_len else ""
    whose = "as you say" if profile.batch else f"as in the profile {found.name}"
    if found.unit == "steps/s":
        tail = "; a job of another batch needs rates of its own"
        whose = f"as in the profile {found.name}"
    else:
        tail = "" if profile.batch else "; say profile: {name: …, batch: N} if yours has another batch"
    return f"one step = {batch:,g} samples{tokens} over all GPUs, {whose}{tail}"


def _inline(ref: ProfileRef) -> Profile:
    if ref.unit not in RATE_UNITS:
        raise UsageError(
            "the job's own rates have no unit" if ref.unit is None else f"{ref.unit!r} is no unit of rates",
            hint=f"add `unit:` with one of {', '.join(RATE_UNITS)}",
        )
    return Profile(
        name="the job's own rates",
        title="",
        unit=ref.unit,
        aliases=(),
        shape=None,
        measurements=tuple(
            Measurement(
                gpu=gpus.resolve(r.gpu),
                gpus=r.count,
                nodes=1,
                rate=r.rate,
                precision="16bit",
                framework="",
                global_batch=ref.batch,
                batch_stated=True,
                seq_len=ref.seq_len,
                source="the job file",
                as_of=None,
                kind="user",
            )
            for r in ref.rates
        ),
    )


def _of_shape(shape: TransformerShape) -> Profile:
    return Profile(
        name="this shape",
        title="",
        unit="tokens/s",
        aliases=(),
        shape=Shape(params=shape.params, layers=shape.layers, hidden=shape.hidden),
        measurements=(),
    )
