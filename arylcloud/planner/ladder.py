"""One profile under one set of conditions, rung by rung (:mod:`.estimator` says which)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError
from arylcloud.core.gpus import GpuSpec
from arylcloud.core.plan import ThroughputSource
from arylcloud.planner import completion, flops, scaling
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

UNKNOWN_GPU: Final = "no estimate, figures of the GPU not known"
NO_WAY: Final = "no estimate, nothing leads from the measured GPUs there"
"""Labels of refusals."""


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
        self._others: dict[tuple[int, int], list[tuple[completion.Known, Point]]] = {}
        self._given: dict[tuple[object, ...], completion.Given] = {}
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
        target = completion.node_of(gpu, self._precision)
        known = self._known_at(per_node, nodes, gpu)
        if target is None or not known:
            return None
        factors = completion.bundled()
        if target not in factors.index:
            return None
        chosen = completion.nearest(factors, [k for k, _ in known], target)
        key = (per_node, nodes, *(k.node for k in chosen))
        if key not in self._given:
            self._given[key] = completion.Given(factors, chosen)
        found = self._given[key].complete(target)
        assert found is not None
        at = {k.node[0]: base for k, base in known}
        bases = [at[k.node[0]] for k in chosen]
        log_rate, log_down, log_up = completion.banded(factors, found)
        rung: Rung = "power_law" if len(chosen) == 1 else "low_rank"
        how = "power law" if len(chosen) == 1 else "low-rank completion"
        names = ", ".join(k.node[0] for k in chosen)
        return (
            bases[0]._replace(
                gpus=per_node * nodes,
                nodes=nodes,
                rate=math.exp(log_rate) * self._efficiency_at(config),
                log_down=log_down,
                log_up=log_up,
                precision=self._precision,
                kind="estimated",
                sources=tuple(dict.fromkeys(s for b in bases for s in b.sources)),
                note=f"not measured on {gpu}: {how} from {names}",
            ),
            rung,
        )

    @cached_property
    def _precision(self) -> str:
        """Class that an estimate from other GPUs is for: the one asked for, else what most figures are in."""
        if self.wanted.precision is not None:
            return self.wanted.precision
        classes = [next(iter(known.values())).precision for known in self.points.first.values()]
        return max(sorted(set(classes)), key=lambda c: (c not in ("fp8", "fp4"), classes.count(c)))

    def _known_at(self, per_node: int, nodes: int, target: str) -> list[tuple[completion.Known, Point]]:
        """The measured GPUs' rates on such an allocation, without what scaling costs them; where there are
        figures of the usual precisions, those of fp8 and fp4 are left out."""
        at = (per_node, nodes)
        if at not in self._others:
            factors, found = completion.bundled(), []
            for other in self.points.first:
                answer = self.same.answer((other, per_node, nodes))
                assert answer is not None
                base = answer[0]
                node = completion.node_of(other, base.precision)
                if node is None or node not in factors.index:
                    continue
                rate = math.log(base.rate / self._efficiency_at((other, per_node, nodes)))
                spread = (base.log_down + base.log_up) / (2 * completion.Z90)
                found.append((completion.Known(node, rate, spread**2, base.precision), base))
            usual = [f for f in found if f[1].precision not in ("fp8", "fp4")]
            low = self.wanted.precision in ("fp8", "fp4")
            self._others[at] = found if low or not usual else usual
        return [f for f in self._others[at] if f[0].node[0] != target]

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
        caution = 0.0 if use.calibrated else flops.CAUTION
        share = use.value * flops.size_factor(shape.params) * math.exp(-caution)
        whole_machine = flops.MFU_MACHINE * share * peak * 1e12 / work
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
            note=f"FLOP model: MFU {share:.2f} of {peak:g} TFLOPS ({precision}){how}",
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
