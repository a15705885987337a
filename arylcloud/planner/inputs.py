"""From feasible offers to the cost kernel's arrays: throughput, hazard, boot, egress, storage.

Everything that depends on few things (GPU × count × nodes, region, cloud) is looked up once for each and
spread over the candidates by integer codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.core.job import DataSet, JobSpec
from arylcloud.core.plan import Rejection
from arylcloud.planner.cost import CostInputs
from arylcloud.planner.estimator import Config, Estimate, Refusal, estimate_configs
from arylcloud.planner.feasible import Feasible
from arylcloud.planner.profiles import Library
from arylcloud.pricing.hazard import Hazards, OwnHistory, SpotAdvisor, hazard_per_hour
from arylcloud.pricing.table import OfferTable
from arylcloud.pricing.tariffs import INTERNET, LOCAL, Tariffs, load_tariffs

F = NDArray[np.float64]
Index = NDArray[np.intp]
HOURS_PER_MONTH = 730.0
BYTES_PER_PARAM = 16.0
"""Of a checkpoint with Adam in mixed precision: weights 2 + master 4 + moments 8, and 2 to be safe."""
_SCHEMES = {"s3": "aws", "gs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure"}
_TWO_REGIONS = {
    "aws": ("aws/us-east-1", "aws/us-west-2"),
    "gcp": ("gcp/us-central1", "gcp/us-east1"),
    "azure": ("azure/eastus", "azure/westus2"),
}
"""Stand for any two regions of a cloud where the data's own is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What nobody has measured yet. Each is named in the plan's reasons where it matters."""

    boot_s: Mapping[str, float] = field(default_factory=lambda: {"local": 2.0})
    """From request to the first step, by cloud."""
    default_boot_s: float = 300.0
    disk_gb: float = 100.0
    save_s: float = 10.0
    """Where the size of a checkpoint is not known."""
    save_fixed_s: float = 2.0
    save_gb_per_s: float = 1.0
    transfer_gb_per_s: float = 1.0
    """Between store and machine: 8.2 Gbit/s across regions (SkyNomad, 2026)."""
    store_place: str | None = None
    """Where checkpoints go, ``cloud/region``; None = a bucket in the machine's own region."""
    market_scale: Mapping[str, float] = field(default_factory=dict)
    """Market seconds per wall second by cloud, where it is not 1: training takes wall seconds, bills and
    deadlines are in market seconds (the local cloud's compressed time)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One entry per (offer, nodes); shapes (n,)."""

    rows: Index
    """Positions in the table."""
    nodes: NDArray[np.int64]
    config: NDArray[np.int64]
    """Position in ``estimates``."""
    preference: NDArray[np.int16]
    estimates: tuple[Estimate | Refusal, ...]
    configs: tuple[Config, ...]
    hazards: Hazards
    """Of the table's rows."""
    throughput: F
    rel_low: F
    """low / estimate of the throughput's band."""
    cost: CostInputs
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    """Assumptions that this job's figures rest on."""

    def estimate(self, i: int) -> Estimate:
        found = self.estimates[self.config[i]]
        assert isinstance(found, Estimate)
        return found


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
) -> Candidates:
    """Every feasible offer × every number of nodes with its throughput and the kernel's inputs. Needs
    ``spec.profile`` and ``spec.work``. Offers without an estimate or an egress tariff are rejected."""
    if spec.profile is None or spec.work is None:
        raise ValueError("candidates need a profile and work")
    configs, config_of_row = _configs(table, found.rows)
    span = range(spec.nodes_min, spec.nodes_max + 1)
    flat = tuple((gpu, count, nodes) for gpu, count in configs for nodes in span)
    estimates = tuple(estimate_configs(spec.profile, flat, library=library, work_unit=spec.work.unit))
    rows = np.repeat(found.rows, len(span))
    preference = np.repeat(found.preference, len(span))
    nodes = np.tile(np.arange(spec.nodes_min, spec.nodes_max + 1), found.rows.size)
    config = np.repeat(config_of_row * len(span), len(span)) + (nodes - spec.nodes_min)
    rejected: list[Rejection] = []

    known = np.array([isinstance(e, Estimate) for e in estimates], dtype=bool)
    keep = known[config]
    _reject_refused(rejected, table, rows, config, estimates, ~keep)
    rate = np.array([e.throughput if isinstance(e, Estimate) else np.nan for e in estimates])
    low = np.array([e.low / e.throughput if isinstance(e, Estimate) else np.nan for e in estimates])

    tariffs = load_tariffs() if tariffs is None else tariffs
    place, place_code = _places(table, rows)
    moving = [_egress(spec, where, tariffs, assumptions) for where in place]
    priced = np.array([m.known for m in moving], dtype=bool)[place_code]
    bad = np.flatnonzero(keep & ~priced)
    if bad.size:
        example = table.row(int(rows[bad[0]])).key
        rejected.append(
            Rejection(reason="egress tariff of the region unknown", count=int(bad.size), example=example)
        )
        keep &= priced
    if not keep.all():
        rows, nodes, config, preference, place_code = (
            a[keep] for a in (rows, nodes, config, preference, place_code)
        )

    history = tuple(history)
    hazards = hazard_per_hour(table, advisor=advisor, history=history)
    adverse = _adverse_by_source(table, hazards, advisor, history)
    throughput = rate[config]
    rel_low = low[config]
    scales = np.array([assumptions.market_scale.get(c, 1.0) for c in table.cloud_names])
    work_s = spec.work.amount / throughput * scales[table.cloud[rows]]
    boots = np.array([assumptions.boot_s.get(c, assumptions.default_boot_s) for c in table.cloud_names])
    n = nodes.astype(np.float64)
    disk_usd, kept_usd, storage_notes = _storage(spec, table, rows, tariffs, assumptions)
    cloud = table.cloud[rows]
    size_gb = checkpoint_gb(spec)
    hazard = hazards.per_hour[rows]
    cost = CostInputs(
        usd_per_hour=table.usd_per_hour[rows],
        nodes=n,
        work_s=work_s,
        work_adverse_s=work_s / rel_low,
        hazard_per_hour=hazard,
        hazard_adverse_per_hour=hazard * adverse[hazards.source[rows]],
        boot_s=boots[cloud],
        data_egress_usd=np.array([m.data_usd for m in moving])[place_code],
        save_egress_usd=np.array([m.save_usd for m in moving])[place_code],
        restore_egress_usd=np.array([m.restore_usd for m in moving])[place_code],
        storage_usd_per_hour=n * disk_usd[cloud] + kept_usd[cloud],
        save_s=save_s(size_gb, assumptions),
        restore_s=assumptions.save_s if size_gb is None else size_gb / assumptions.transfer_gb_per_s,
        interval_s=spec.checkpoint.interval_s,
    )
    return Candidates(
        rows=rows,
        nodes=nodes,
        config=config,
        preference=preference,
        estimates=estimates,
        configs=flat,
        hazards=hazards,
        throughput=throughput,
        rel_low=rel_low,
        cost=cost,
        rejected=tuple(rejected),
        notes=(*_data_notes(spec), *storage_notes),
    )


def checkpoint_gb(spec: JobSpec) -> float | None:
    """As the user says; else from a transformer's parameters; else unknown."""
    if spec.checkpoint.size_gb is not None:
        return spec.checkpoint.size_gb
    if spec.profile is not None and spec.profile.shape is not None:
        return spec.profile.shape.params * BYTES_PER_PARAM / 1e9
    return None


def save_s(size_gb: float | None, assumptions: Assumptions) -> float:
    """What a checkpoint holds up the training."""
    if size_gb is None:
        return assumptions.save_s
    return assumptions.save_fixed_s + size_gb / assumptions.save_gb_per_s


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


def _distinct(code: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``np.unique`` with inverse for small non-negative integers, without sorting."""
    seen = np.zeros(int(code.max(initial=-1)) + 1, dtype=bool)
    seen[code] = True
    used = np.flatnonzero(seen)
    position = np.cumsum(seen) - 1
    return used, position[code]


def _reject_refused(
    rejected: list[Rejection],
    table: OfferTable,
    rows: Index,
    config: NDArray[np.int64],
    estimates: tuple[Estimate | Refusal, ...],
    refused: NDArray[np.bool_],
) -> None:
    if not refused.any():
        return
    counts = np.bincount(config[refused], minlength=len(estimates))
    by_reason: dict[str, tuple[int, int]] = {}
    for i in np.flatnonzero(counts).tolist():
        refusal = estimates[i]
        assert isinstance(refusal, Refusal)
        count, first = by_reason.get(refusal.reason, (0, i))
        by_reason[refusal.reason] = (count + int(counts[i]), first)
    for reason, (count, first) in by_reason.items():
        row = int(rows[np.flatnonzero(config == first)[0]])
        rejected.append(Rejection(reason=f"no estimate: {reason}", count=count, example=table.row(row).key))


def _adverse_by_source(
    table: OfferTable, mean: Hazards, advisor: SpotAdvisor | None, history: Iterable[OwnHistory]
) -> F:
    """p90 hazard / mean hazard for every source of hazard, from one row of each."""
    ratio = np.ones(len(mean.sources))
    first: dict[int, int] = {}
    for code in np.flatnonzero(np.bincount(mean.source, minlength=len(mean.sources))).tolist():
        first[code] = int((mean.source == code).argmax())
    if not first:
        return ratio
    sample = table.take(np.array(list(first.values()), dtype=np.intp))
    p90 = hazard_per_hour(sample, "p90", advisor=advisor, history=history)
    for at, (code, row) in enumerate(first.items()):
        if mean.per_hour[row] > 0:
            ratio[code] = p90.per_hour[at] / mean.per_hour[row]
    return ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moving:
    """Dollars of transfers to and from one region; ``known`` False where a tariff is missing."""

    known: bool = True
    data_usd: float = 0.0
    save_usd: float = 0.0
    restore_usd: float = 0.0


def _egress(spec: JobSpec, place: str, tariffs: Tariffs, assumptions: Assumptions) -> _Moving:
    total, known = 0.0, True
    for data in spec.data:
        usd = data_usd_per_gb(data, place, tariffs)
        known = known and usd is not None
        total += (usd or 0.0) * data.size_gb
    size, store = checkpoint_gb(spec), assumptions.store_place
    if store is None or size is None:
        return _Moving(known=known, data_usd=total)
    out, back = tariffs.egress(place, store).usd, tariffs.egress(store, place).usd
    if out is None or back is None:
        return _Moving(known=False)
    return _Moving(known=known, data_usd=total, save_usd=out * size, restore_usd=back * size)


def data_usd_per_gb(data: DataSet, place: str, tariffs: Tariffs) -> float | None:
    """From where the data lies to ``place``; None = no tariff is known. http(s) and Hugging Face cost
    their owner, not the reader. A bucket whose region is not said is taken to be in another region."""
    scheme = data.uri.partition("://")[0].lower()
    if data.region is not None:
        return tariffs.egress(data.region, place).usd
    if scheme in ("http", "https", "hf"):
        return 0.0
    if scheme == "file" or "://" not in data.uri:
        return tariffs.egress(LOCAL, place).usd
    cloud = _SCHEMES.get(scheme)
    if cloud is None:
        raise UsageError(
            f"data {data.uri}: the scheme {scheme!r} is not known", hint="add region: CLOUD/REGION"
        )
    here, there = _TWO_REGIONS[cloud]
    return tariffs.egress(here, there if place.startswith(f"{cloud}/") else INTERNET).usd


def _data_notes(spec: JobSpec) -> tuple[str, ...]:
    return tuple(
        f"{data.uri}: its region is not said, so reading it is priced as between two regions"
        " (say region: CLOUD/REGION)"
        for data in spec.data
        if data.region is None and data.uri.partition("://")[0].lower() in _SCHEMES
    )


def _storage(
    spec: JobSpec, table: OfferTable, rows: Index, tariffs: Tariffs, assumptions: Assumptions
) -> tuple[F, F, tuple[str, ...]]:
    """$/h by cloud code of one machine's disk and of the kept checkpoints. Where a cloud of the user's
    own has no tariff, the disk is taken to be part of the machine's price, and a note says so."""
    disk_gb = spec.resources.disk_gb if spec.resources.disk_gb is not None else assumptions.disk_gb
    kept_gb = (checkpoint_gb(spec) or 0.0) * spec.checkpoint.keep
    disks, stores, missing = [], [], []
    used = np.bincount(table.cloud[rows], minlength=len(table.cloud_names)) > 0
    for code, cloud in enumerate(table.cloud_names):
        disk, store = tariffs.disk(cloud).usd, tariffs.storage(cloud).usd
        if used[code] and (disk is None or store is None):
            missing.append(cloud)
        disks.append((disk or 0.0) * disk_gb / HOURS_PER_MONTH)
        stores.append((store or 0.0) * kept_gb / HOURS_PER_MONTH)
    notes = (
        (f"{', '.join(missing)}: no tariff for disks and storage; taken as part of the price",)
        if missing
        else ()
    )
    return np.array(disks), np.array(stores), notes
