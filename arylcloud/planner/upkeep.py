"""What moving and keeping bytes costs a job, and what nobody has measured yet: the assumptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.core.job import DataSet, JobSpec
from arylcloud.pricing.table import OfferTable
from arylcloud.pricing.tariffs import INTERNET, LOCAL, Tariffs

F = NDArray[np.float64]
HOURS_PER_MONTH = 730.0
BYTES_PER_PARAM = 16.0
"""Of a checkpoint with Adam in mixed precision: weights 2 + master 4 + moments 8, and 2 to be safe."""
DEAR_USD_PER_GB = 0.12
"""Traffic with a job's store for which no tariff is known, in estimates; each plan that uses it says so. (A
bill says "unknown".)"""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """Dollars of transfers to and from one region; ``known`` False where a tariff of the data is missing."""

    known: bool = True
    assumed: bool = False
    """For checkpoints, a tariff is missing and DEAR_USD_PER_GB stands for it: whither a running job may
    escape is no place to leave out."""
    data_usd: float = 0.0
    save_usd: float = 0.0
    restore_usd: float = 0.0


def egress(spec: JobSpec, place: str, tariffs: Tariffs, assumptions: Assumptions) -> Moving:
    total, known = 0.0, True
    for data in spec.data:
        usd = data_usd_per_gb(data, place, tariffs)
        known = known and usd is not None
        total += (usd or 0.0) * data.size_gb
    size, store = checkpoint_gb(spec), assumptions.store_place
    if store is None or size is None:
        return Moving(known=known, data_usd=total)
    out, back = tariffs.egress(place, store).usd, tariffs.egress(store, place).usd
    return Moving(
        known=known,
        assumed=out is None or back is None,
        data_usd=total,
        save_usd=(DEAR_USD_PER_GB if out is None else out) * size,
        restore_usd=(DEAR_USD_PER_GB if back is None else back) * size,
    )


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


def data_notes(spec: JobSpec) -> tuple[str, ...]:
    return tuple(
        f"{data.uri}: its region is not said, so reading it is priced as between two regions"
        " (say region: CLOUD/REGION)"
        for data in spec.data
        if data.region is None and data.uri.partition("://")[0].lower() in _SCHEMES
    )


def store_notes(
    spec: JobSpec, assumptions: Assumptions, places: Collection[str], *, assumed: bool
) -> tuple[str, ...]:
    """What the figures have of checkpoints' traffic, where it costs anything; ``places``: of candidates."""
    store = assumptions.store_place
    if store is None or all(place == store or place.startswith(f"{store}/") for place in places):
        return ()
    if checkpoint_gb(spec) is None:
        text = (
            f"checkpoints go to {store}, whatever that costs: their size is not known (checkpoint: size_gb)"
        )
        return (text,)
    dear = f"; where no tariff is known, at ${DEAR_USD_PER_GB:.2f}/GB" if assumed else ""
    return (
        f"egress has each checkpoint's way to {store}, as a whole: what has not changed is sent once{dear}",
    )


def storage(
    spec: JobSpec, table: OfferTable, rows: NDArray[np.intp], tariffs: Tariffs, assumptions: Assumptions
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
