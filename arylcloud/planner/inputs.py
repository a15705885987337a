"""From feasible offers to the cost kernel's arrays: throughput, hazard, boot, egress, storage.

Everything that depends on few things (GPU × count × nodes, region, cloud) is looked up once for each and
spread over the candidates by integer codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec, ProfileRef
from arylcloud.core.plan import Rejection
from arylcloud.planner.cost import CostInputs
from arylcloud.planner.estimator import Config, Estimate, Refusal, estimate_configs
from arylcloud.planner.feasible import Feasible
from arylcloud.planner.memory import MEMORY, fits
from arylcloud.planner.profiles import Library
from arylcloud.planner.upkeep import Assumptions, checkpoint_gb, data_notes, egress, save_s, storage
from arylcloud.pricing.hazard import Hazards, OwnHistory, SpotAdvisor, hazard_per_hour
from arylcloud.pricing.table import OfferTable
from arylcloud.pricing.tariffs import Tariffs, load_tariffs

F = NDArray[np.float64]
Index = NDArray[np.intp]
Estimator = Callable[..., "list[Estimate | Refusal]"]
"""As :func:`~arylcloud.planner.estimator.estimate_configs`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Lookups:
    """Small tables; a candidate's entry is found by one of its codes."""

    work_s: F
    """By configuration; NaN where there is no estimate."""
    rel_low: F
    """By configuration: low / estimate of the throughput's band."""
    boot_s: F
    """By cloud, as the next three."""
    disk_usd_per_hour: F
    kept_usd_per_hour: F
    market_scale: F
    data_usd: F
    """By place, as the next two."""
    save_usd: F
    restore_usd: F
    adverse: F
    """p90 hazard / mean hazard, by source of hazard."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Groups:
    """Shapes (g,)."""

    row: Index
    """Of the table: one of the group's."""
    nodes: NDArray[np.int64]
    config: NDArray[np.int64]
    """Position in ``estimates``."""
    place: NDArray[np.int64]
    """Code of (cloud, region)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Candidates:
    """One entry per (offer, nodes); shapes (n,)."""

    table: OfferTable
    rows: Index
    """Positions in the table."""
    nodes: NDArray[np.int64]
    group: NDArray[np.int64]
    """Candidates of one configuration, place and source of hazard differ in their price only."""
    groups: Groups
    preference: NDArray[np.int16] | None
    """None: the order of alternatives is no matter."""
    estimates: tuple[Estimate | Refusal, ...]
    configs: tuple[Config, ...]
    hazards: Hazards
    """Of the table's rows."""
    lookups: Lookups
    save_s: float
    restore_s: float
    interval_s: float | None
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    """Assumptions that this job's figures rest on."""

    def __len__(self) -> int:
        return int(self.rows.size)

    def config(self, i: int) -> int:
        """Position of a candidate's configuration in ``configs`` and ``estimates``."""
        return int(self.groups.config[self.group[i]])

    def estimate(self, i: int) -> Estimate:
        found = self.estimates[self.config(i)]
        assert isinstance(found, Estimate)
        return found

    def hazard_per_hour(self, at: Index | slice) -> F:
        found: F = self.hazards.per_hour[self.rows[at]]
        return found

    def cost(self, at: Index) -> CostInputs:
        """The kernel's inputs of some candidates."""
        group = self.group[at]
        return self._inputs(
            self.rows[at], self.nodes[at], self.groups.config[group], self.groups.place[group]
        )

    def cost_of_groups(self) -> CostInputs:
        """The kernel's inputs of every group; its price is one of many."""
        groups = self.groups
        return self._inputs(groups.row, groups.nodes, groups.config, groups.place)

    def _inputs(
        self, rows: Index, machines: NDArray[np.int64], config: NDArray[np.int64], place: NDArray[np.int64]
    ) -> CostInputs:
        table, look = self.table, self.lookups
        cloud = table.cloud[rows]
        nodes = machines.astype(np.float64)
        scale = look.market_scale[cloud]
        work_s = look.work_s[config] * scale
        hazard = self.hazards.per_hour[rows]
        return CostInputs(
            usd_per_hour=table.usd_per_hour[rows],
            nodes=nodes,
            work_s=work_s,
            work_adverse_s=work_s / look.rel_low[config],
            hazard_per_hour=hazard,
            hazard_adverse_per_hour=hazard * look.adverse[self.hazards.source[rows]],
            boot_s=look.boot_s[cloud],
            data_egress_usd=look.data_usd[place],
            save_egress_usd=look.save_usd[place],
            restore_egress_usd=look.restore_usd[place],
            storage_usd_per_hour=nodes * look.disk_usd_per_hour[cloud] + look.kept_usd_per_hour[cloud],
            save_s=self.save_s,
            restore_s=self.restore_s,
            interval_s=None if self.interval_s is None else self.interval_s * scale,
        )


def candidates(
    spec: JobSpec,
    table: OfferTable,
    found: Feasible,
    *,
    assumptions: Assumptions,
    library: Library | None = None,
    advisor: SpotAdvisor | None = None,
    history: Iterable[OwnHistory] = (),
    tariffs: Tariffs | None = None,
    estimator: Estimator = estimate_configs,
) -> Candidates:
    """Every feasible offer × every number of nodes with its throughput and the kernel's inputs. Needs
    ``spec.profile`` and ``spec.work``. Offers without an estimate or an egress tariff are rejected."""
    if spec.profile is None or spec.work is None:
        raise ValueError("candidates need a profile and work")
    tariffs = load_tariffs() if tariffs is None else tariffs
    history = tuple(history)
    hazards = hazard_per_hour(table, advisor=advisor, history=history)
    rows, preference = found.rows, found.preference
    group_row, group = _row_groups(table, rows, hazards)
    configs, config = _configs(table, group_row)
    places, place = _places(table, group_row)
    span = np.arange(spec.nodes_min, spec.nodes_max + 1)
    flat = tuple((gpu, count, nodes) for gpu, count in configs for nodes in span.tolist())
    estimates = _within_memory(
        spec.profile, flat, estimator(spec.profile, flat, library=library, work_unit=spec.work.unit), library
    )
    nodes = np.broadcast_to(span[0], rows.shape)
    if span.size > 1:
        step = np.tile(np.arange(span.size), rows.size)
        nodes, group = spec.nodes_min + step, np.repeat(group * span.size, span.size) + step
        rows = np.repeat(rows, span.size)
        preference = None if preference is None else np.repeat(preference, span.size)
    of_group = np.tile(np.arange(span.size), group_row.size)
    groups = Groups(
        row=np.repeat(group_row, span.size),
        nodes=spec.nodes_min + of_group,
        config=np.repeat(config * span.size, span.size) + of_group,
        place=np.repeat(place, span.size),
    )
    moving = [egress(spec, where, tariffs, assumptions) for where in places]
    known = np.array([isinstance(e, Estimate) for e in estimates], dtype=bool)[groups.config]
    priced = np.array([m.known for m in moving], dtype=bool)[groups.place]
    rejected = _rejected(table, groups, np.bincount(group, minlength=known.size), known, priced, estimates)
    if rejected:
        kept = known & priced
        keep = kept[group]
        rows, nodes, group = rows[keep], nodes[keep], (np.cumsum(kept) - 1)[group[keep]]
        preference = None if preference is None else preference[keep]
        groups = Groups(
            row=groups.row[kept],
            nodes=groups.nodes[kept],
            config=groups.config[kept],
            place=groups.place[kept],
        )
    rate = np.array([e.throughput if isinstance(e, Estimate) else np.nan for e in estimates])
    low = np.array([e.low if isinstance(e, Estimate) else np.nan for e in estimates])
    boots = [assumptions.boot_s.get(cloud, assumptions.default_boot_s) for cloud in table.cloud_names]
    disk_usd, kept_usd, storage_notes = storage(spec, table, groups.row, tariffs, assumptions)
    size_gb = checkpoint_gb(spec)
    return Candidates(
        table=table,
        rows=rows,
        nodes=nodes,
        group=group,
        groups=groups,
        preference=preference,
        estimates=estimates,
        configs=flat,
        hazards=hazards,
        lookups=Lookups(
            work_s=spec.work.amount / rate,
            rel_low=low / rate,
            boot_s=np.array(boots),
            disk_usd_per_hour=disk_usd,
            kept_usd_per_hour=kept_usd,
            market_scale=np.array([assumptions.market_scale.get(c, 1.0) for c in table.cloud_names]),
            data_usd=np.array([m.data_usd for m in moving]),
            save_usd=np.array([m.save_usd for m in moving]),
            restore_usd=np.array([m.restore_usd for m in moving]),
            adverse=_adverse_by_source(table, hazards, groups.row, advisor, history),
        ),
        save_s=save_s(size_gb, assumptions),
        restore_s=assumptions.save_s if size_gb is None else size_gb / assumptions.transfer_gb_per_s,
        interval_s=spec.checkpoint.interval_s,
        rejected=rejected,
        notes=(*data_notes(spec), *storage_notes),
    )


def _configs(table: OfferTable, rows: Index) -> tuple[list[tuple[str, int]], NDArray[np.int64]]:
    """Distinct (GPU, GPUs per machine) of ``rows``, and which of them each row is."""
    width = int(table.gpu_count.max(initial=0)) + 1
    code = table.gpu[rows].astype(np.int64) * width + table.gpu_count[rows]
    used, position = _distinct(code)
    return [(table.gpu_names[c // width], int(c % width)) for c in used.tolist()], position


def _places(table: OfferTable, rows: Index) -> tuple[list[str], NDArray[np.int64]]:
    width = len(table.region_names)
    code = table.cloud[rows].astype(np.int64) * width + table.region[rows]
    used, position = _distinct(code)
    names = [f"{table.cloud_names[c // width]}/{table.region_names[c % width]}" for c in used.tolist()]
    return names, position


_MOST_CODES = 50_000_000


def _distinct(code: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``np.unique`` with inverse for non-negative integers, without sorting where they are small."""
    most = int(code.max(initial=-1)) + 1
    if most > _MOST_CODES:
        used, position = np.unique(code, return_inverse=True)
        return used, position.astype(np.int64)
    seen = np.zeros(most, dtype=bool)
    seen[code] = True
    used = np.flatnonzero(seen)
    place = np.empty(most, dtype=np.int32)  # only what is used is read again
    place[used] = np.arange(used.size)
    return used, place[code].astype(np.int64)


def _row_groups(table: OfferTable, rows: Index, hazards: Hazards) -> tuple[Index, NDArray[np.int64]]:
    """One row of every group, and the group of every row: GPU × count × region × source of hazard."""
    if not rows.size:
        return rows, np.zeros(0, dtype=np.int64)
    counts, regions = int(table.gpu_count.max()) + 1, len(table.region_names)
    clouds, sources = len(table.cloud_names), len(hazards.sources)
    code = table.gpu[rows].astype(np.int64)
    for size, column in (
        (counts, table.gpu_count), (clouds, table.cloud), (regions, table.region), (sources, hazards.source)
    ):  # fmt: skip
        code *= size
        code += column[rows]
    used, group = _distinct(code)
    first = np.empty(used.size, dtype=np.intp)
    # of many writes to one place numpy keeps the last: backwards, so that it is the first row
    first[group[::-1]] = rows[::-1]
    return first, group


def _within_memory(
    profile: ProfileRef,
    configs: Sequence[Config],
    estimates: Sequence[Estimate | Refusal],
    library: Library | None,
) -> tuple[Estimate | Refusal, ...]:
    """A speed is of no use where the training does not fit. Memory that is not known leaves nothing out."""
    found: list[Estimate | Refusal] = []
    for config, estimate, fit in zip(
        configs, estimates, fits(profile, configs, library=library), strict=True
    ):
        if fit.fits is False and isinstance(estimate, Estimate):
            measure = f"run it on {config[1]} × {config[0]}"
            short_gib = fit.short_gib
            found.append(Refusal(reason=fit.method, measure=measure, label=MEMORY, short_gib=short_gib))
        else:
            found.append(estimate)
    return tuple(found)


def _rejected(
    table: OfferTable,
    groups: Groups,
    sizes: NDArray[np.int64],
    known: NDArray[np.bool_],
    priced: NDArray[np.bool_],
    estimates: tuple[Estimate | Refusal, ...],
) -> tuple[Rejection, ...]:
    """Candidates in groups (``sizes``) that have no estimate, by reason, or no egress tariff."""
    by_reason: dict[str, tuple[int, int]] = {}
    by_config = np.bincount(groups.config, weights=sizes, minlength=len(estimates))
    unknown, firsts = np.unique(groups.config[~known], return_index=True)
    positions = np.flatnonzero(~known)[firsts]
    for config, g in zip(unknown.tolist(), positions.tolist(), strict=True):
        refusal = estimates[config]
        assert isinstance(refusal, Refusal)
        reason = f"{refusal.label}: {refusal.reason}"
        count, first = by_reason.get(reason, (0, g))
        by_reason[reason] = (count + int(by_config[config]), first)
    unpriced = np.flatnonzero(known & ~priced)
    if unpriced.size:
        by_reason["egress tariff of the region unknown"] = (int(sizes[unpriced].sum()), int(unpriced[0]))
    return tuple(
        Rejection(reason=reason, count=count, example=table.row(int(groups.row[g])).key)
        for reason, (count, g) in by_reason.items()
    )


def _adverse_by_source(
    table: OfferTable,
    mean: Hazards,
    rows: Index,
    advisor: SpotAdvisor | None,
    history: Iterable[OwnHistory],
) -> F:
    """p90 hazard / mean hazard for every source of hazard that ``rows`` know, from one row of each."""
    ratio = np.ones(len(mean.sources))
    codes, first = np.unique(mean.source[rows], return_index=True)
    sample = rows[first]
    p90 = hazard_per_hour(table.take(sample), "p90", advisor=advisor, history=history).per_hour
    lossy = mean.per_hour[sample] > 0
    ratio[codes[lossy]] = p90[lossy] / mean.per_hour[sample[lossy]]
    return ratio
