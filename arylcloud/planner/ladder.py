"""One profile under one set of conditions, rung by rung (:mod:`.estimator` says which)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError
from arylcloud.core.gpus import GpuSpec
from arylcloud.core.plan import ThroughputSource
from arylcloud.planner import flops, scaling
from arylcloud.planner.conditions import (
    Conditions,
    Point,
    Points,
    points,
    reference_batch,
    reference_seq_len,
)
from arylcloud.planner.profiles import Profile
from arylcloud.planner.same_gpu import Config, Rung, SameGpu
from arylcloud.planner.work_units import conversion

PEAK_EXPONENT: Final = 0.36
BANDWIDTH_EXPONENT: Final = 0.50
UNKNOWN_GPU: Final = "no estimate, figures of the GPU not known"
NO_WAY: Final = "no estimate, nothing leads from the measured GPUs there"
"""Labels of refusals."""
POWER_LAW_BAND: Final = (math.log(1.5), math.log(2.0))
"""(down, up) logarithms: [T/1.5, 2T]."""
_NEIGHBOURS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    throughput: float
    """Work units per second of the whole allocation."""
    unit: str
    low: float
    high: float
    method: ThroughputSource
    rung: Rung
    precision: str
    """Class of the figures behind it: ``16bit``, ``fp8``, ``fp32``…, or ``submission`` (MLPerf)."""
    sources: tuple[str, ...]
    note: str

    @property
    def rel_error(self) -> float:
        """The wider side of the band relative to the estimate: of high/estimate − 1 and 1 − low/estimate."""
        return max(self.high / self.throughput - 1, 1 - self.low / self.throughput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: str
    measure: str
    """What to measure so that it can be estimated."""
    label: str
    """What kind of no it is."""
    short_gib: float | None = None
    """Of GPU memory: what the nearest answer lacks."""


class Ladder:
    """One profile under one set of conditions; everything that configurations share is kept."""

    def __init__(self, profile: Profile, wanted: Conditions) -> None:
        self.profile = profile
        self.unit = profile.unit
        self.wanted = wanted
        self.points: Points = points(profile, wanted)
        self.same = SameGpu(self.points, unit=self.unit)
        self._near: dict[str, list[tuple[str, float, float]]] = {}
        self._efficiency: dict[Config, float] = {}

    def unit_factor(self, work_unit: str | None) -> tuple[float, str]:
        if work_unit is None:
            return 1.0, ""
        seq_len = self.wanted.seq_len or reference_seq_len(self.profile)
        batch, note = self.wanted.batch, ""
        steps = {work_unit, self.unit.removesuffix("/s")} & {"steps"}
        if steps and work_unit + "/s" != self.unit and batch is None:
            batch = reference_batch(self.profile, seq_len)
            if batch is not None:
                note = f"one step = {batch:g} samples" + (f" of {seq_len} tokens" if seq_len else "")
                note += ", as in the profile; say batch if yours differs"
        factor = conversion(self.unit, work_unit, batch=batch, seq_len=seq_len, what=self.profile.name)
        return factor, note

    def answer(self, config: Config, factor: float, unit: str, note: str) -> Estimate | Refusal:
        gpu, per_node, nodes = config
        if per_node < 1 or nodes < 1:
            raise UsageError(f"{per_node} GPUs on {nodes} nodes: both must be at least 1")
        found = self.same.answer(config) or self._from_other_gpus(config) or self._from_shape(config)
        if found is None:
            return self._refuse(gpu, per_node)
        point, rung = found
        rate = point.rate * factor
        return Estimate(
            throughput=rate,
            unit=unit,
            low=rate * math.exp(-point.log_down),
            high=rate * math.exp(point.log_up),
            method=point.kind if rung == "exact" else "estimated",
            rung=rung,
            precision=point.precision,
            sources=point.sources,
            note="; ".join(part for part in (point.note, note) if part),
        )

    def _from_other_gpus(self, config: Config) -> tuple[Point, Rung] | None:
        gpu, per_node, nodes = config
        near = self._neighbours(gpu)
        if not near:
            return None
        here = self._efficiency_at(config)
        log_rate = weight_sum = 0.0
        bases: list[Point] = []
        for other, log_ratio, weight in near:
            there = (other, per_node, nodes)
            found = self.same.answer(there)
            assert found is not None
            base = found[0]
            bases.append(base)
            log_rate += weight * (math.log(base.rate * here / self._efficiency_at(there)) + log_ratio)
            weight_sum += weight
        best = bases[0]
        return (
            best._replace(
                rate=math.exp(log_rate / weight_sum),
                log_down=math.hypot(POWER_LAW_BAND[0], best.log_down),
                log_up=math.hypot(POWER_LAW_BAND[1], best.log_up),
                kind="estimated",
                sources=tuple(dict.fromkeys(s for b in bases for s in b.sources)),
                note=f"not measured on {gpu}: power law from " + ", ".join(n[0] for n in near),
            ),
            "power_law",
        )

    def _neighbours(self, gpu: str) -> list[tuple[str, float, float]]:
        """(measured GPU, log of the rate's ratio to it, weight), nearest first; of the same vendor and
        of the usual precision wherever there are any."""
        if gpu in self._near:
            return self._near[gpu]
        target = gpus.BY_NAME.get(gpu)
        ranked: list[tuple[bool, bool, float, str, float]] = []
        for other, known in self.points.first.items():
            precision, source = next(iter(known.values())).precision, gpus.BY_NAME.get(other)
            ratio = log_ratios(target, source, precision)
            if ratio is not None and other != gpu:
                peak, bandwidth = ratio
                log_ratio = PEAK_EXPONENT * peak + BANDWIDTH_EXPONENT * bandwidth
                foreign = source is not None and target is not None and source.vendor != target.vendor
                low = precision in ("fp8", "fp4") and self.wanted.precision != precision
                ranked.append((foreign, low, abs(peak) + abs(bandwidth), other, log_ratio))
        ranked.sort()
        near = [(o, r, (d + 0.15) ** -2) for f, w, d, o, r in ranked if (f, w) == ranked[0][:2]][:_NEIGHBOURS]
        self._near[gpu] = near
        return near

    def _efficiency_at(self, config: Config) -> float:
        if config not in self._efficiency:
            gpu, per_node, nodes = config
            self._efficiency[config] = scaling.efficiency(gpu, per_node, nodes).median
        return self._efficiency[config]

    def _from_shape(self, config: Config) -> tuple[Point, Rung] | None:
        gpu, per_node, nodes = config
        shape, spec = self.profile.shape, gpus.BY_NAME.get(gpu)
        if shape is None or spec is None or self.unit != "tokens/s":
            return None
        precision = self.wanted.precision or "16bit"
        peak = flops.peak_tflops(spec, precision)
        seq_len = self.wanted.seq_len or reference_seq_len(self.profile)
        if peak is None or seq_len is None:
            return None
        use = flops.mfu(gpu, precision)
        s = scaling.step(gpu, (flops.MFU_MACHINE, 1), (per_node, nodes))
        work = flops.flops_per_token(shape.params, shape.layers, shape.hidden, seq_len)
        whole_machine = flops.MFU_MACHINE * use.value * peak * 1e12 / work
        down, up = flops.CALIBRATED_BAND if use.calibrated else flops.UNCALIBRATED_BAND
        how = "" if use.calibrated else f", not calibrated on {gpu}"
        point = Point(
            gpus=per_node * nodes,
            nodes=nodes,
            rate=whole_machine * s.factor,
            log_down=math.hypot(math.log(down), s.log_down),
            log_up=math.hypot(math.log(up), s.log_up),
            precision=precision,
            framework="",
            kind="estimated",
            sources=(f"MFU: {use.source}",),
            note=f"FLOP model: MFU {use.value:.2f} of {peak:g} TFLOPS ({precision}){how}",
        )
        return point, "flop_model"

    def _refuse(self, gpu: str, per_node: int) -> Refusal:
        name = self.profile.name
        measured = ", ".join(sorted(self.points.first)) or "no GPU"
        spec = gpus.BY_NAME.get(gpu)
        if spec is None or flops.peak_tflops(spec, "16bit") is None or spec.mem_bw_gbps is None:
            label = UNKNOWN_GPU
            reason = f"{name}: not measured on {gpu}, whose peak or bandwidth is not known"
        else:
            label = NO_WAY
            reason = f"{name}: measured on {measured} only, and nothing leads from there to {gpu}"
        full = "" if per_node == 1 else f" and on one full node of {per_node}"
        return Refusal(
            reason=reason,
            measure=f"run some hundred steps on 1 × {gpu}{full}, and put the rate into the job file: "
            f"profile: {{{gpu}:1: RATE, unit: {self.unit}}}",
            label=label,
        )


def log_ratios(target: GpuSpec | None, known: GpuSpec | None, precision: str) -> tuple[float, float] | None:
    """(log peak ratio, log bandwidth ratio), or None where a figure is missing."""
    if target is None or known is None or target.mem_bw_gbps is None or known.mem_bw_gbps is None:
        return None
    new, old = flops.peak_tflops(target, precision), flops.peak_tflops(known, precision)
    if new is None or old is None:
        return None
    return math.log(new / old), math.log(target.mem_bw_gbps / known.mem_bw_gbps)
