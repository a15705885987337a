"""What is known of one GPU at other counts and on more machines: exact, fitted, between, or scaled.

A job of one's own that was measured in three placements or more has a step-time model (:mod:`.steptime`);
else the tables of :mod:`.scaling` hold.

One family of figures (:mod:`.conditions`) answers for one machine and for several, wherever it can: two
families differ in code, so a count from one beside a count from the other shows speed-ups that nobody
has seen. What is set aside stays within the band and is named in the note.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from arylcloud.planner import scaling
from arylcloud.planner.conditions import Point, Points

if TYPE_CHECKING:
    from arylcloud.planner import steptime

Rung = Literal["exact", "scaled", "low_rank", "power_law", "flop_model"]
Config = tuple[str, int, int]
"""(canonical GPU, GPUs per node, nodes)."""
_OfGpu = Mapping[tuple[int, int | None], Point]

LEAST_PLACEMENTS: Final = 3
"""Of a job of one's own, from which on it has a step-time model."""
SAME_CODE: Final = math.log(2.0)
"""Figures further apart than this are of different code, not of the same workload."""


class SameGpu:
    """Answers from a GPU's own measurements; each is worked out once."""

    def __init__(self, points: Points, *, unit: str) -> None:
        self.points = points
        self.unit = unit
        self.fixed_batch = unit == "steps/s"
        self._known: dict[str, tuple[_OfGpu, _OfGpu]] = {}
        self._models: dict[tuple[object, ...], steptime.StepTime | None] = {}
        self._answers: dict[Config, tuple[Point, Rung] | None] = {}

    def answer(self, config: Config) -> tuple[Point, Rung] | None:
        """None where this GPU was not measured."""
        if config not in self._answers:
            self._answers[config] = self._measured(config) if config[0] in self.points.first else None
        return self._answers[config]

    def _measured(self, config: Config) -> tuple[Point, Rung]:
        gpu, per_node, nodes = config
        usable, set_aside = self._of(gpu)
        exact = _exactly(usable, per_node * nodes, nodes)
        other = _exactly(set_aside, per_node * nodes, nodes)
        if nodes > 1:
            return self._on_machines(config, usable, exact, other)
        if exact is not None:
            return exact, "exact"
        scaled = self._scaled(config, usable)
        return self._beside(scaled, other) if other is not None else scaled, "scaled"

    def _on_machines(
        self, config: Config, usable: _OfGpu, exact: Point | None, other: Point | None
    ) -> tuple[Point, Rung]:
        """From the family that answers for one machine. A count of another family stands where it is
        possible beside that: no slower than one machine, no faster than all of them."""
        gpu, per_node, nodes = config
        found = self.answer((gpu, per_node, 1))
        assert found is not None
        one = found[0].rate
        if exact is not None:
            if exact.family == found[0].family or one <= exact.rate <= nodes * one:
                return exact, "exact"
            other = exact
        family = {at: p for at, p in usable.items() if p.family == found[0].family}
        scaled = self._scaled(config, family)
        if scaled.rate > nodes * one:
            scaled = scaled._replace(
                rate=nodes * one, log_up=math.log(scaled.rate / nodes / one) + scaled.log_up
            )
        if other is not None:
            return _holding(self._beside(scaled, other), other.rate), "scaled"
        others = {at: p for at, p in usable.items() if p.family != found[0].family}
        return _holding(scaled, self._scaled(config, others).rate) if others else scaled, "scaled"

    def _of(self, gpu: str) -> tuple[_OfGpu, _OfGpu]:
        """(Points that count, those set aside): the first family's, and those of others that agree with
        them within a factor of two, without single submitters' figures that are further than that from
        what more submitters' lead to."""
        if gpu not in self._known:
            first, second = self.points.first[gpu], self.points.second[gpu]
            sound = {at: p for at, p in first.items() if not self._alone(gpu, p, first.values())} or first
            agreeing = {
                at: p
                for at, p in second.items()
                if abs(math.log(p.rate / self._scaled((gpu, *p.shape), sound).rate)) <= SAME_CODE
            }
            usable = {**agreeing, **sound}
            self._known[gpu] = (usable, {at: p for at, p in {**second, **first}.items() if at not in usable})
        return self._known[gpu]

    def _alone(self, gpu: str, point: Point, known: Iterable[Point]) -> bool:
        more = [p for p in known if p.submitters > point.submitters]
        if point.submitters > 1 or point.nodes == 1 or not more:
            return False
        near = min(more, key=lambda p: (abs(math.log(p.gpus / point.gpus)), p.gpus))
        return abs(math.log(point.rate / self._step(near, gpu, point.shape, published=True).rate)) > SAME_CODE

    def _scaled(self, config: Config, usable: _OfGpu) -> Point:
        gpu, per_node, nodes = config
        known = [p for p in usable.values() if p.nodes is not None] or list(usable.values())
        total = per_node * nodes
        # between two counts: in one machine, or of whole machines that are joined as the published ones are
        same: list[Point] = []
        if nodes == 1:
            same = [p for p in known if p.nodes == 1]
        elif scaling.network_of(gpu, per_node) is scaling.Network.FAST:
            same = [p for p in known if p.shape[0] == per_node]
        fitted = self._fitted(config, known)
        if fitted is not None:
            return fitted
        below = max((p for p in same if p.gpus < total), key=_gpus, default=None)
        above = min((p for p in same if p.gpus > total), key=_gpus, default=None)
        if below is not None and above is not None and below.rate <= above.rate:
            return _between(below, above, total, nodes)
        base = min(
            known,
            key=lambda p: (
                abs(math.log2(total / p.gpus)) + 1.25 * abs(math.log2(nodes / p.shape[1])),
                p.gpus,
            ),
        )
        found = self._step(base, gpu, (per_node, nodes))
        note = f"scaled from {_where(base)}" + (f"; {base.note}" if base.note else "")
        return found._replace(gpus=total, nodes=nodes, note=note)

    def _fitted(self, config: Config, known: Sequence[Point]) -> Point | None:
        """By the step-time model, where this very job was measured in three placements or more."""
        gpu, per_node, nodes = config
        own = [p for p in known if p.kind != "published" and p.nodes is not None]
        if len(own) < LEAST_PLACEMENTS:
            return None
        from arylcloud.planner import steptime  # few plans need it

        key = (gpu, *((p.gpus, p.nodes) for p in own))
        if key not in self._models:
            self._models[key] = steptime.fit([self._observation(p, own[0]) for p in own])
        model = self._models[key]
        if model is None:
            return None
        total = per_node * nodes
        units = 1.0 if self.fixed_batch else total
        share = 1 / total if self.fixed_batch else 1.0
        unit_rate = own[0].rate / (1.0 if self.fixed_batch else own[0].gpus)
        down, up = model.band()
        near = min(own, key=lambda p: (abs(math.log(total / p.gpus)), p.gpus))
        return near._replace(
            gpus=total,
            nodes=nodes,
            rate=unit_rate * units / model.step_s(total, nodes, share),
            log_down=math.hypot(near.log_down, down),
            log_up=math.hypot(near.log_up, up),
            sources=tuple(dict.fromkeys(s for p in own for s in p.sources)),
            note=f"step-time model of {len(own)} measured placements",
        )

    def _observation(self, p: Point, first: Point) -> steptime.Observation:
        """In step times of the first one: the same batch per GPU everywhere, or one batch for all GPUs."""
        from arylcloud.planner import steptime

        nodes = p.nodes or 1
        if self.fixed_batch:
            return steptime.Observation(p.gpus, nodes, 1 / p.gpus, first.rate / p.rate)
        step_s = (p.gpus / p.rate) / (first.gpus / first.rate)
        return steptime.Observation(p.gpus, nodes, 1.0, step_s)

    def _step(self, base: Point, gpu: str, shape: tuple[int, int], *, published: bool = False) -> Point:
        """``base`` at another shape. ``published``: the end, too, has a published cluster's network."""
        # published clusters have the network that their makers sell; a user's is as rented
        start = scaling.Network.FAST if base.kind == "published" else None
        s = scaling.step(gpu, base.shape, shape, fixed_batch=self.fixed_batch, start_network=start)
        factor = s.factor
        if published and start is not None:
            factor *= (
                scaling.inter(start, shape[1]).median
                / scaling.inter(scaling.network_of(gpu, shape[0]), shape[1]).median
            )
        return base._replace(
            rate=base.rate * factor,
            log_down=math.hypot(base.log_down, s.log_down),
            log_up=math.hypot(base.log_up, s.log_up),
        )

    def _beside(self, scaled: Point, other: Point) -> Point:
        what = other.framework or "other code"
        return scaled._replace(note=f"{scaled.note}; set aside: {other.rate:.4g} {self.unit} with {what}")


def _holding(point: Point, rate: float) -> Point:
    """``point`` with a band that reaches ``rate``, too."""
    gap = math.log(rate / point.rate)
    return point._replace(log_down=max(point.log_down, -gap), log_up=max(point.log_up, gap))


def _gpus(point: Point) -> int:
    return point.gpus


def _exactly(known: _OfGpu, total: int, nodes: int) -> Point | None:
    return known.get((total, nodes)) or (known.get((total, None)) if nodes > 1 else None)


def _between(below: Point, above: Point, total: int, nodes: int) -> Point:
    """On the line through both in log–log; the wider of the two bands."""
    w = math.log(total / below.gpus) / math.log(above.gpus / below.gpus)
    return below._replace(
        gpus=total,
        nodes=nodes,
        rate=below.rate ** (1 - w) * above.rate**w,
        log_down=max(below.log_down, above.log_down),
        log_up=max(below.log_up, above.log_up),
        sources=tuple(dict.fromkeys(below.sources + above.sources)),
        note=f"between {_where(below)} and {_where(above)}",
    )


def _where(point: Point) -> str:
    if point.nodes is None:
        return f"{point.gpus} GPUs on several nodes"
    machines = "" if point.nodes == 1 else f" on {point.nodes} nodes"
    return f"{point.gpus} GPU{'s' if point.gpus > 1 else ''}{machines}"
