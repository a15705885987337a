"""What both halves of the study of dynamic pricing are made of: the page's lines, and worlds of prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arylcloud.pricing.tariffs import load_tariffs
from arylcloud.simulation.dynamic.moving import Moving, free_moves, priced_moves
from arylcloud.simulation.dynamic.replay import Runs, replay
from arylcloud.simulation.dynamic.series import Floats, PriceSeries, Rental
from arylcloud.simulation.dynamic.study import rates_over

DATA_GB = 100.0
HOURS = (1, 6, 24, 72, 168)


class Out:
    """Lines of the page, and what failed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[str] = []

    def say(self, *lines: str) -> None:
        self.lines += lines

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.say("", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)), "")

    def bar(self, name: str, off: float, most: float) -> None:
        if not off <= most:
            self.failures.append(f"{name}: {off:.4f} > {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Prices that a job may use, the ones its baseline may, its starts, and its moves."""

    all: PriceSeries
    base: PriceSeries
    starts_s: Floats
    free: Moving
    priced: Moving
    with_data: Moving

    def runs(self, by_gpu: Mapping[str, float], work: float, **how: object) -> Runs:
        rate = rates_over(self.all.rentals, by_gpu)
        return replay(self.all, rate, work, self.starts_s, **how)  # type: ignore[arg-type]

    def baseline_usd(self, by_gpu: Mapping[str, float], work: float) -> float:
        rate = rates_over(self.base.rentals, by_gpu)
        return float(replay(self.base, rate, work, self.starts_s, every_s=None).usd.sum())


def world(
    series: PriceSeries,
    baseline: Callable[[Rental], bool],
    starts_s: Floats,
    gb: float,
    unknown: float | None = None,
) -> World:
    tariffs = load_tariffs()
    rentals = series.rentals
    return World(
        all=series,
        base=series.only(baseline),
        starts_s=starts_s,
        free=free_moves(len(rentals)),
        priced=priced_moves(rentals, tariffs, gb=gb, unknown_usd_per_gb=unknown),
        with_data=priced_moves(rentals, tariffs, gb=gb + DATA_GB, unknown_usd_per_gb=unknown),
    )
