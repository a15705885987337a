"""From feasible offers to the cost kernel's arrays: throughput, hazard, boot, egress, storage.

Everything that depends on few things (GPU × count × nodes, region, cloud) is looked up once for each and
spread over the candidates by integer codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec
from arylcloud.core.plan import Rejection
from arylcloud.planner.cost import CostInputs
from arylcloud.planner.estimator import Config, Estimate, Refusal, estimate_configs
from arylcloud.planner.feasible import Feasible
from arylcloud.planner.gate import rejections, within_memory
from arylcloud.planner.grouping import Groups, ways
from arylcloud.planner.profiles import Library
from arylcloud.planner.profiles import library as load_library
from arylcloud.planner.upkeep import (
    Assumptions,
    checkpoint_gb,
    data_notes,
    egress,
    save_s,
    storage,
    store_notes,
)
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
    recovers: bool
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
        return self.hazards.of(self.rows[at])

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
        hazard = self.hazards.of(rows)
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
            recovers=self.recovers,
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
    if library is None and spec.profile.name is not None:
        library = load_library()  # once: throughput and memory are looked up in the same one
    tariffs = load_tariffs() if tariffs is None else tariffs
    hazards = hazard_per_hour(table, advisor=advisor, history=history)
    every = ways(table, found, hazards, spec.nodes_min, spec.nodes_max)
    estimates = within_memory(
        spec.profile,
        every.configs,
        estimator(spec.profile, every.configs, library=library, work_unit=spec.work.unit),
        library,
    )
    moving = [egress(spec, where, tariffs, assumptions) for where in every.places]
    known = np.array([isinstance(e, Estimate) for e in estimates], dtype=bool)[every.groups.config]
    priced = np.array([m.known for m in moving], dtype=bool)[every.groups.place]
    rejected = rejections(table, every, spec.nodes_max - spec.nodes_min + 1, estimates, priced)
    if not (known & priced).all():
        every = every.keep(known & priced)
    groups = every.groups
    rate = np.array([e.throughput if isinstance(e, Estimate) else np.nan for e in estimates])
    low = np.array([e.low if isinstance(e, Estimate) else np.nan for e in estimates])
    boots = [assumptions.boot_s.get(cloud, assumptions.default_boot_s) for cloud in table.cloud_names]
    disk_usd, kept_usd, storage_notes = storage(spec, table, groups.row, tariffs, assumptions)
    size_gb = checkpoint_gb(spec)
    used = {int(place) for place in groups.place.tolist()}
    assumed = any(moving[place].assumed for place in used)
    store = store_notes(spec, assumptions, [every.places[place] for place in used], assumed=assumed)
    return Candidates(
        table=table,
        rows=every.rows,
        nodes=every.nodes,
        group=every.group,
        groups=groups,
        preference=every.preference,
        estimates=estimates,
        configs=every.configs,
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
            adverse=hazards.adverse,
        ),
        save_s=save_s(size_gb, assumptions),
        restore_s=assumptions.save_s if size_gb is None else size_gb / assumptions.transfer_gb_per_s,
        interval_s=spec.checkpoint.interval_s,
        recovers=spec.recovery != "none",
        rejected=rejected,
        notes=(*data_notes(spec), *store, *storage_notes),
    )
