"""From a profile's unit to the job's: steps, samples, images and tokens, by batch and sequence length."""

from __future__ import annotations

from arylcloud.core.errors import UsageError
from arylcloud.core.units import RATE_UNITS, WORK_UNITS

_SAMPLES = ("samples", "images")


def conversion(
    rate_unit: str, work_unit: str, *, batch: float | None, seq_len: float | None, what: str
) -> float:
    """Factor from a rate in ``rate_unit`` to one in ``work_unit`` + ``/s``.

    A step is ``batch`` samples (all GPUs together), a sample ``seq_len`` tokens; an image is a sample.
    UsageError names what is not known. ``what`` names the profile in messages.

    >>> conversion("tokens/s", "steps", batch=512, seq_len=2048, what="mpt-125m") * 512 * 2048
    1.0
    >>> conversion("images/s", "samples", batch=None, seq_len=None, what="resnet-50")
    1.0
    """
    if rate_unit not in RATE_UNITS:
        raise UsageError(f"{what}: {rate_unit!r} is no unit of throughput", hint=" ".join(RATE_UNITS))
    if work_unit not in WORK_UNITS:
        raise UsageError(f"{work_unit!r} is no unit of work", hint=f"one of {', '.join(WORK_UNITS)}")
    start = rate_unit.removesuffix("/s")
    if start == work_unit or (start in _SAMPLES and work_unit in _SAMPLES):
        return 1.0
    if {start, work_unit} & {"steps"} and batch is None:
        raise UsageError(
            f"{what} is known in {rate_unit} and the work is in {work_unit}: the global batch is needed",
            hint=f"say the batch (samples per step, all GPUs together), or give the work in {start}",
        )
    if "tokens" in (start, work_unit) and seq_len is None:
        raise UsageError(
            f"{what} is known in {rate_unit} and the work is in {work_unit}: the sequence length is needed",
            hint=f"say seq_len (tokens per sample), or give the work in {start}",
        )
    return _samples(start, batch, seq_len) / _samples(work_unit, batch, seq_len)


def _samples(unit: str, batch: float | None, seq_len: float | None) -> float:
    """Samples in one ``unit``."""
    if unit == "steps":
        assert batch is not None
        return batch
    if unit == "tokens":
        assert seq_len is not None
        return 1.0 / seq_len
    return 1.0
