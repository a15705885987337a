"""From offers to ways to run a job: offer × number of machines, in groups that differ in price only.

Time, throughput and hazard are a group's: the cost kernel runs once for each of some hundred groups, and a
way then costs one multiplication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.feasible import Feasible
from arylcloud.planner.same_gpu import Config
from arylcloud.pricing.codes import group_codes, grouped
from arylcloud.pricing.hazard import Hazards
from arylcloud.pricing.table import OfferTable

Index = NDArray[np.intp]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Groups:
    """Shapes (g,)."""

    row: Index
    """Of the table: one of the group's."""
    nodes: Codes
    config: Codes
    """Position in ``Ways.configs``."""
    place: Codes
    """Position in ``Ways.places``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Ways:
    """One entry per (offer, nodes), those of one offer side by side; shapes (n,)."""

    rows: Index
    """Positions in the table."""
    nodes: Codes
    group: Codes
    preference: NDArray[np.int16] | None
    groups: Groups
    configs: tuple[Config, ...]
    places: tuple[str, ...]
    """``cloud/region``."""

    def keep(self, kept: NDArray[np.bool_]) -> Ways:
        """Without the groups that are not ``kept``, (g,)."""
        at, groups = np.flatnonzero(kept.take(self.group)), self.groups
        same = self.nodes.strides == (0,)
        return Ways(
            rows=self.rows.take(at),
            nodes=np.broadcast_to(self.nodes[0], at.shape) if same else self.nodes.take(at),
            group=(np.cumsum(kept) - 1).take(self.group.take(at)),
            preference=None if self.preference is None else self.preference.take(at),
            groups=Groups(
                row=groups.row[kept],
                nodes=groups.nodes[kept],
                config=groups.config[kept],
                place=groups.place[kept],
            ),
            configs=self.configs,
            places=self.places,
        )


def ways(table: OfferTable, found: Feasible, hazards: Hazards, nodes_min: int, nodes_max: int) -> Ways:
    """Every feasible offer with every number of machines. Groups stand in blocks of ``nodes_max −
    nodes_min + 1``, one block per GPU × count × place × source of hazard."""
    rows, preference = found.rows, found.preference
    code = group_codes(table, "gpu", "gpu_count", "cloud", "region", rows=rows, also=(hazards.source,))
    at, group = grouped(code)
    first = rows[at]
    configs, config = _configs(table, first)
    places, place = _places(table, first)
    span = np.arange(nodes_min, nodes_max + 1)
    nodes: Codes = np.broadcast_to(span[0], rows.shape)
    if span.size > 1:
        step = np.tile(np.arange(span.size), rows.size)
        nodes, group = nodes_min + step, np.repeat(group * span.size, span.size) + step
        rows = np.repeat(rows, span.size)
        preference = None if preference is None else np.repeat(preference, span.size)
    step = np.tile(np.arange(span.size), first.size)
    return Ways(
        rows=rows,
        nodes=nodes,
        group=group,
        preference=preference,
        groups=Groups(
            row=np.repeat(first, span.size),
            nodes=nodes_min + step,
            config=np.repeat(config * span.size, span.size) + step,
            place=np.repeat(place, span.size),
        ),
        configs=tuple((gpu, count, n) for gpu, count in configs for n in span.tolist()),
        places=tuple(places),
    )


def _configs(table: OfferTable, rows: Index) -> tuple[list[tuple[str, int]], Codes]:
    """Distinct (GPU, GPUs per machine) of ``rows``, and which of them each row is."""
    at, position = grouped(group_codes(table, "gpu", "gpu_count", rows=rows))
    sample = rows[at].tolist()
    return [(table.gpu_names[table.gpu[row]], int(table.gpu_count[row])) for row in sample], position


def _places(table: OfferTable, rows: Index) -> tuple[list[str], Codes]:
    at, position = grouped(group_codes(table, "cloud", "region", rows=rows))
    sample = rows[at].tolist()
    names = [f"{table.cloud_names[table.cloud[i]]}/{table.region_names[table.region[i]]}" for i in sample]
    return names, position
