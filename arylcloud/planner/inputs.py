"""From feasible offers to the cost kernel's arrays: throughput, hazard, boot, egress, storage.

Everything that depends on few things (GPU × count × nodes, region, cloud) is looked up once for each and
spread over the candidates by integer codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
Estimator = Callable[..., "list[Estimate | Refusal]"]
"""As :func:`~arylcloud.planner.estimator.estimate_configs`."""
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
    config: NDArray[np.int64]
    """Position in ``estimates``."""
    place: NDArray[np.int64]
    """Code of (cloud, region)."""
    preference: NDArray[np.int16] | None
    """None: the order of alternatives is no matter."""
    estimates: tuple[Estimate | Refusal, ...]
    configs: tuple[Config, ...]
    hazards: Hazards
    """Of the table's rows."""
    group: NDArray[np.int64]
    """Candidates of one configuration, place and source of hazard differ in their price only."""
    group_first: Index
    """One candidate of each group."""
    lookups: Lookups
    save_s: float
    restore_s: float
    interval_s: float | None
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]
    """Assumptions that this job's figures rest on."""

    def __len__(self) -> int:
        return int(self.rows.size)

    def estimate(self, i: int) -> Estimate:
        found = self.estimates[self.config[i]]
        assert isinstance(found, Estimate)
        return found

    def hazard_per_hour(self, at: Index | slice) -> F:
        found: F = self.hazards.per_hour[self.rows[at]]
        return found

    def cost(self, at: Index | slice) -> CostInputs:
        """The kernel's inputs of some candidates."""
        table, look, rows, config, place = (
            self.table, self.lookups, self.rows[at], self.config[at], self.place[at]
        )  # fmt: skip
        cloud = table.cloud[rows]
        nodes = self.nodes[at].astype(np.float64)
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
    configs, config = _configs(table, found.rows)
    span = np.arange(spec.nodes_min, spec.nodes_max + 1)
    flat = tuple((gpu, count, nodes) for gpu, count in configs for nodes in span.tolist())
    estimates = tuple(estimator(spec.profile, flat, library=library, work_unit=spec.work.unit))
    rows, preference = found.rows, found.preference
    places, place = _places(table, rows)
    nodes = np.broadcast_to(span[0], rows.shape)
    if span.size > 1:
        nodes = np.tile(span, rows.size)
        config = np.repeat(config * span.size, span.size) + (nodes - spec.nodes_min)
        rows, place = np.repeat(rows, span.size), np.repeat(place, span.size)
        preference = None if preference is None else np.repeat(preference, span.size)
    moving = [_egress(spec, where, tariffs, assumptions) for where in places]
    known = np.array([isinstance(e, Estimate) for e in estimates], dtype=bool)
    priced = np.array([m.known for m in moving], dtype=bool)
    rejected: list[Rejection] = []
    if not (known.all() and priced.all()):
        keep = known[config]
        _reject_refused(rejected, table, rows, config, estimates, ~keep)
        bad = np.flatnonzero(keep & ~priced[place])
        if bad.size:
            reason, example = "egress tariff of the region unknown", table.row(int(rows[bad[0]])).key
            rejected.append(Rejection(reason=reason, count=int(bad.size), example=example))
            keep &= priced[place]
        rows, nodes, config, place = rows[keep], nodes[keep], config[keep], place[keep]
        preference = None if preference is None else preference[keep]
    hazards = hazard_per_hour(table, advisor=advisor, history=history)
    group, group_first = _groups(config, place, hazards.source[rows])
    rate = np.array([e.throughput if isinstance(e, Estimate) else np.nan for e in estimates])
    low = np.array([e.low if isinstance(e, Estimate) else np.nan for e in estimates])
    boots = [assumptions.boot_s.get(cloud, assumptions.default_boot_s) for cloud in table.cloud_names]
    disk_usd, kept_usd, storage_notes = _storage(spec, table, rows, tariffs, assumptions)
    size_gb = checkpoint_gb(spec)
    return Candidates(
        table=table,
        rows=rows,
        nodes=nodes,
        config=config,
        place=place,
        preference=preference,
        estimates=estimates,
        configs=flat,
        hazards=hazards,
        group=group,
        group_first=group_first,
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
            adverse=_adverse_by_source(table, hazards, rows[group_first], advisor, history),
        ),
        save_s=save_s(size_gb, assumptions),
        restore_s=assumptions.save_s if size_gb is None else size_gb / assumptions.transfer_gb_per_s,
        interval_s=spec.checkpoint.interval_s,
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


def _groups(
    config: NDArray[np.int64], place: NDArray[np.int64], source: NDArray[np.int16]
) -> tuple[NDArray[np.int64], Index]:
    """Group of every candidate, and one candidate of every group."""
    if not config.size:
        return config, np.zeros(0, dtype=np.intp)
    places, sources = int(place.max()) + 1, int(source.max()) + 1
    used, group = _distinct((config * places + place) * sources + source)
    first = np.empty(used.size, dtype=np.intp)
    first[group] = np.arange(group.size)
    return group, first


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
