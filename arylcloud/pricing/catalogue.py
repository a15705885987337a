"""Which offers there are: the bundled catalogue, live prices over it, the user's own over both."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from arylcloud.core.offer import Offer
from arylcloud.pricing.binary import load_file, save_file
from arylcloud.pricing.table import OfferTable, from_offers, overlay

__all__ = ["CATALOGUE_VARIABLE", "base_file", "data_file", "load", "load_bundled", "load_file"]
__all__ += ["refreshed_file", "save_file", "user_rows"]

CATALOGUE_VARIABLE: Final = "ARYLCLOUD_CATALOGUE"
"""Path of a catalogue file (``pricing/binary``) to use in place of the bundled one."""
_SHAPE: Final = ("gpu", "gpu_count", "gpu_mem_gib", "vcpus", "mem_gib")


def data_file(name: str) -> Path:
    """A file of figures that comes with the package."""
    return Path(__file__).parent / "data" / name


def load_bundled() -> OfferTable:
    """Every AWS, GCP and Azure GPU offer that comes with the package, in order of key."""
    return load_file(data_file("offers.bin"))


def base_file(environ: Mapping[str, str] | None = None) -> Path:
    """The catalogue that all else is laid over: bundled, or ``$ARYLCLOUD_CATALOGUE``."""
    chosen = (os.environ if environ is None else environ).get(CATALOGUE_VARIABLE)
    return Path(chosen).expanduser() if chosen else data_file("offers.bin")


def refreshed_file(folder: Path, base: Path, *, must_exist: bool = True) -> Path | None:
    """Where ``prices --refresh`` keeps the catalogue that it made of ``base``; None where there is none."""
    try:
        with base.open("rb") as file:
            digest = file.read(40)[8:24]
    except OSError:
        return None
    path = folder / f"offers-{digest.hex()}.bin"
    return path if path.is_file() or not must_exist else None


def load(
    user_csv: Path | None = None,
    live: Sequence[Offer] | OfferTable = (),
    *,
    refreshed: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> OfferTable:
    """The catalogue in force: bundled (or ``$ARYLCLOUD_CATALOGUE``), as refreshed in the folder
    ``refreshed``, ``live`` rows laid over it, then the user's. A row laid over replaces the row of the same
    key (place, type, market); that a zoned row hides its region's is for the planner: here both stand.

    UsageError where a named file cannot be read or a row of the CSV does not hold (line and column are
    named); IntegrityError where a catalogue file is damaged.
    """
    base = base_file(environ)
    table = load_file((refreshed_file(refreshed, base) if refreshed is not None else None) or base)
    table = overlay(table, live if isinstance(live, OfferTable) else from_offers(live))
    return table if user_csv is None else overlay(table, user_rows(user_csv, table))


def user_rows(path: Path, base: OfferTable, *, strict: bool = True) -> OfferTable:
    """Rows of the CSV at ``path``; a shape that it leaves out (GPU, count, memory, vCPUs) is that of
    ``base``'s rows of the same cloud and instance type, where those agree."""
    from arylcloud.pricing.usercsv import read_csv  # not needed, nor paid for, without a user's file

    offers = read_csv(path, strict=strict)
    return from_offers([_with_shape(offer, base) for offer in offers])


def _with_shape(offer: Offer, base: OfferTable) -> Offer:
    """Only a row that says nothing of its GPU is completed: half a shape is the user's own."""
    if offer.gpu is not None or offer.gpu_count is not None:
        return offer
    same = base.mask("cloud", [offer.cloud]) & base.mask("instance_type", [offer.instance_type])
    rows = [base.row(int(i)) for i in np.flatnonzero(same)]
    if not rows or len({(row.gpu, row.gpu_count) for row in rows}) > 1:
        return offer
    known = {
        name: value
        for name in _SHAPE
        if getattr(offer, name) is None and len(values := {getattr(row, name) for row in rows}) == 1
        for value in values
    }
    return replace(offer, **known)
