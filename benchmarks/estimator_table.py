"""Every column of the spec's table of estimator errors, from the study's rows, beside the spec's figures.

Completion: each family of models is left out of the fit of the factors and of its own bands. FLOP model:
each model is left out of the MFU of its framework. Scaling: a fifth of the placements is left out in turn.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from study_columns import GAVEL_COUNTS, Rows, gavel, lambda_1gpu, mlperf_8gpu, read, source, training_set

from arylcloud.core import gpus
from arylcloud.planner import flops, scaling, steptime
from arylcloud.planner.conditions import REPEAT_BAND
from arylcloud.planner.factors import Sample
from arylcloud.planner.model_left_out import held_out, score_held
from arylcloud.planner.profiles import Library, library

Pair = tuple[float, float]


class Line(NamedTuple):
    title: str
    figures: int
    median: float
    p95: float
    covered: float
    width: float
    spec: tuple[float, float] | None
    """Median and 95th percentile that it has to reach."""

    @property
    def holds(self) -> bool | None:
        """To the digits that the spec prints; None where it says nothing."""
        if self.spec is None:
            return None
        digits = [3 if s < 0.1 or round(s * 1000) % 10 else 2 for s in self.spec]
        ours = (self.median, self.p95)
        return all(round(o, d) <= s for o, s, d in zip(ours, self.spec, digits, strict=True))


def score(title: str, found: Sequence[tuple[float, bool, float]], spec: tuple[float, float] | None) -> Line:
    """``found``: (log(estimate/truth), inside the band, high/low)."""
    errors = sorted(abs(math.exp(e) - 1) for e, _, _ in found)
    widths = sorted(w for _, _, w in found)
    covered = sum(inside for _, inside, _ in found) / len(found)
    middle, high = (len(errors) - 1) // 2, math.ceil(0.95 * len(errors)) - 1
    return Line(title, len(errors), errors[middle], errors[high], covered, widths[middle], spec)


# ---------------------------------------------------------------- completion


def completion_lines(data: Path, rows: Rows, *, more: bool = True) -> list[Line]:
    """The columns of the spec, and with ``more`` the same rows cut otherwise."""
    learned = training_set(data)
    per_round = mlperf_8gpu(rows, by_round=True, steady=True)
    columns: list[tuple[str, list[Sample], Pair | None, Pair | None]] = [
        ("Lambda, 1 GPU", lambda_1gpu(rows), (0.165, 0.64), (0.07, 0.28)),
        ("MLPerf, 8 GPUs, per round", per_round, (0.16, 0.62), (0.10, 0.36)),
        ("Gavel, 1 GPU", gavel(data), (0.37, 1.75), (0.23, 2.09)),
    ]
    if more:
        untidy = mlperf_8gpu(rows, by_round=True, steady=False)
        columns += [
            ("  MLPerf, with run-time rates", untidy, None, None),
            ("  MLPerf, all rounds as one", mlperf_8gpu(rows, by_round=False, steady=False), None, None),
            ("  Gavel, every placement", gavel(data, counts=GAVEL_COUNTS), None, None),
        ]
    held_by = {title: held_out(samples, learned) for title, samples, _, _ in columns}
    lines: list[Line] = []
    pooled: dict[str, tuple[float, ...]] = defaultdict(tuple)
    for rung, suffix in (("one other GPU", "/1"), ("two and more", "/2")):
        for title, _, one, many in columns:
            held = held_by[title]
            found = score_held([h for h in held if h.found.name.endswith(suffix)], held)
            assert found is not None
            spec = one if suffix == "/1" else many
            shown = (found.figures, found.median, found.p95, found.covered, found.width)
            lines.append(Line(f"{title}, {rung}", *shown, spec))
            if spec is not None:
                pooled[rung] += found.widths
    for rung, widths in pooled.items():
        print(f"{rung}, the columns with a spec together: median high/low {statistics.median(widths):.2f}")
    return lines


# ---------------------------------------------------------------- exact


def exact_line(rows: Rows) -> Line:
    """Spread between submitters: against their median, three and more of one model, GPU and round, 8 GPUs."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for r in rows:
        ours = source(r).startswith("mlcommons/") and r["measurement"].startswith("steady")
        if ours and r["num_gpus"] == "8":
            groups[r["model"], r["gpu_name"], source(r)].append(float(r["throughput_total"]))
    found = []
    for rates in groups.values():
        for rate in rates if len(rates) > 2 else ():
            off = math.log(rate / statistics.median(rates))
            found.append((off, abs(off) <= REPEAT_BAND, math.exp(2 * REPEAT_BAND)))
    return score("MLPerf, 8 GPUs, same model, GPU and round", found, (0.007, 0.068))


# ---------------------------------------------------------------- FLOP model


class Run(NamedTuple):
    model: str
    gpu: str
    params: float
    mfu: float


def foundry(lib: Library) -> list[Run]:
    """llm-foundry, 16 bit, up to 8,192 tokens."""
    found = []
    for entry in lib.entries:
        p = lib.get(entry.name)
        for m in p.measurements if p.shape is not None and p.unit == "tokens/s" else ():
            if m.source.startswith("mosaicml/") and m.precision == "16bit" and (m.seq_len or 1 << 30) <= 8192:
                assert p.shape is not None
                assert m.seq_len is not None
                work = flops.flops_per_token(p.shape.params, p.shape.layers, p.shape.hidden, m.seq_len)
                peak = flops.peak_tflops(gpus.BY_NAME[m.gpu], "16bit")
                assert peak is not None
                found.append(Run(p.name, m.gpu, p.shape.params, m.rate / m.gpus * work / peak / 1e12))
    return found


def _typical(runs: Iterable[Run]) -> float:
    return statistics.median(math.log(r.mfu / flops.size_factor(r.params)) for r in runs)


def _without(
    runs: Sequence[Run], estimate: Callable[[Run, Sequence[Run]], float | None]
) -> list[tuple[str, float]]:
    """(model, log(estimate/truth)) with the model's runs hidden."""
    found = []
    for run in runs:
        value = estimate(run, [r for r in runs if r.model != run.model])
        if value is not None:
            found.append((run.model, value + math.log(flops.size_factor(run.params) / run.mfu)))
    return found


def _conformal(errors: Sequence[tuple[str, float]]) -> list[tuple[float, bool, float]]:
    """The band of each model from the errors of the others."""
    found = []
    for model, error in errors:
        rest = sorted(-e for m, e in errors if m != model)
        low, high = rest[int(0.05 * len(rest))], rest[min(len(rest) - 1, math.ceil(0.95 * len(rest)))]
        found.append((error, low <= -error <= high, math.exp(high - low)))
    return found


def flop_lines(data: Path, lib: Library) -> list[Line]:
    runs = foundry(lib)

    def same(run: Run, rest: Sequence[Run]) -> float | None:
        return _typical(r for r in rest if r.gpu == run.gpu)

    def like(run: Run, rest: Sequence[Run]) -> float:
        """As for a GPU without runs: the lowest of its architecture, else the lowest of all."""
        by_gpu = defaultdict(list)
        for r in rest:
            if r.gpu != run.gpu:
                by_gpu[r.gpu].append(r)
        typical = {g: _typical(v) for g, v in by_gpu.items()}
        arch = gpus.BY_NAME[run.gpu].arch
        near = [v for g, v in typical.items() if gpus.BY_NAME[g].arch == arch]
        return min(near or typical.values()) - flops.CAUTION

    found = _conformal(_without(runs, same))
    lines = [score("llm-foundry, 16 bit, ≤ 8k, same framework", found, (0.065, 0.32))]
    band = [math.log(b) for b in flops.CALIBRATED_BAND]
    found = [(e, -band[0] <= -e <= band[1], math.exp(sum(band))) for e in other_framework(data, lib)]
    lines.append(score("torchtitan and MaxText on H100, another framework", found, (0.18, 0.40)))
    band = [math.log(b) for b in flops.UNCALIBRATED_BAND]
    out = _without(runs, like)
    found = [(e, -band[0] <= -e <= band[1], math.exp(sum(band))) for _, e in out]
    lines.append(score("llm-foundry, the GPU left out, too", found, (0.19, 0.44)))
    return lines


def other_framework(data: Path, lib: Library) -> list[float]:
    """log(estimate/truth) on H100 at 16 bit; the MFU is llm-foundry's, the models are others."""
    use = flops.mfu("H100", "16bit").value
    peak = flops.peak_tflops(gpus.BY_NAME["H100"], "16bit")
    assert peak is not None
    found = []

    def add(count: int, mfu: float) -> None:
        step = scaling.step("H100", (flops.MFU_MACHINE, 1), (8, max(1, count // 8)))
        found.append(math.log(use * step.factor * 8 / max(8, count) / mfu))

    for name in ("llama3.1-8b", "llama3.1-70b"):
        p = lib.get(name)
        assert p.shape is not None
        for m in p.measurements:
            if m.source.startswith("pytorch/torchtitan") and m.precision == "16bit" and m.seq_len:
                work = flops.flops_per_token(p.shape.params, p.shape.layers, p.shape.hidden, m.seq_len)
                add(m.gpus, m.rate / m.gpus * work / peak / 1e12)
    with (data / "profiles" / "mfu_maxtext.csv").open(encoding="utf-8", newline="") as file:
        for r in csv.DictReader(file):
            if r["chip"] == "H100":
                add(8 * int(r["slice"].partition("x")[0]), float(r["tflops_per_chip"]) / peak)
    return found


# ---------------------------------------------------------------- scaling


def scaling_lines(rows: Rows) -> list[Line]:
    runs: dict[tuple[str, str], list[steptime.Observation]] = defaultdict(list)
    for r in rows_of_sia(rows):
        count, nodes, batch = int(r["num_gpus"]), int(r["num_nodes"]), float(r["per_gpu_batch"])
        step_s = count * batch / float(r["throughput_total"])
        runs[r["model"], r["gpu_name"]].append(steptime.Observation(count, nodes, batch, step_s))
    found: list[tuple[float, bool, float]] = []
    linear: list[tuple[float, bool, float]] = []
    for seen in runs.values():
        places = sorted({(o.gpus, o.nodes) for o in seen})
        random.Random(0).shuffle(places)
        for fold in range(5):
            held = set(places[fold::5])
            rest = [o for o in seen if (o.gpus, o.nodes) not in held]
            model = steptime.fit(rest)
            assert model is not None
            down, up = model.band()
            single = {o.batch_per_gpu: o.step_s for o in rest if o.gpus == 1}
            for o in seen:
                if (o.gpus, o.nodes) not in held:
                    continue
                e = math.log(o.step_s / model.step_s(o.gpus, o.nodes, o.batch_per_gpu))
                found.append((e, -down <= -e <= up, math.exp(down + up)))
                if o.batch_per_gpu in single:
                    linear.append((math.log(o.step_s / single[o.batch_per_gpu]), True, 1.0))
    return [
        score("Sia, step-time model, held-out placements", found, (0.064, 0.51)),
        score("  the same, linear from one GPU", linear, None),
    ]


def rows_of_sia(rows: Rows) -> Rows:
    return [r for r in rows if source(r) == "siasosp23/artifacts"]


def table(data: Path) -> list[Line]:
    """Every line; about half a minute of CPU."""
    rows, lib = read(data), library()
    return [
        exact_line(rows),
        *completion_lines(data, rows),
        *flop_lines(data, lib),
        *scaling_lines(rows),
    ]


def print_table(lines: Sequence[Line]) -> None:
    print(f"{'model left out':<58} figures  median     p95   spec          in 90 % band  high/low")
    for x in lines:
        spec = "" if x.spec is None else f"{100 * x.spec[0]:.3g} / {100 * x.spec[1]:.3g} %"
        verdict = {None: "", True: "holds", False: "WORSE"}[x.holds]
        band = f"{x.covered:>6.1%}       {x.width:>6.2f}" if x.width > 1 else ""
        print(f"{x.title:<58} {x.figures:>6}  {x.median:>6.1%}  {x.p95:>6.1%}   {spec:<13} {band}  {verdict}")
