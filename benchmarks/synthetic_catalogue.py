"""A catalogue of any size, made of the bundled one: what 200,000 offers would look like.

python benchmarks/synthetic_catalogue.py 200000 /tmp/offers.bin [--seed 0]
ARYLCLOUD_CATALOGUE=/tmp/offers.bin arylcloud prices
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from arylcloud.pricing.catalogue import load_bundled, save_file
from arylcloud.pricing.codes import group_codes, key_codes
from arylcloud.pricing.table import SPOT, OfferTable


def synthetic_catalogue(n: int, seed: int) -> OfferTable:
    """``n`` plannable offers with distinct keys: copies of the bundled ones in invented zones.

    All offers of a region in one copy share a price factor (lognormal, σ = 0.2); spot prices are moved
    further down by up to a half, so that spot stays below on-demand.
    """
    generator = np.random.default_rng(seed)
    bundled = load_bundled()
    base = bundled.take(bundled.plannable)
    index = np.arange(n) % len(base)
    copy = np.arange(n) // len(base)
    copies = int(copy.max(initial=0)) + 1
    table = base.take(index)
    places, place = np.unique(group_codes(table, "cloud", "region", "zone"), return_inverse=True)
    first = {int(code): i for i, code in reversed(list(enumerate(place.tolist())))}
    names = [table.row(first[i]) for i in range(len(places))]
    region_factor = np.exp(generator.normal(0.0, 0.2, size=(copies, len(base.region_names))))
    factor = region_factor[copy, table.region]
    factor *= np.where(table.market == SPOT, generator.uniform(0.5, 1.0, size=n), 1.0)
    made = replace(
        table,
        zone_names=tuple(f"{o.zone or o.region}-{c}" for c in range(copies) for o in names),
        zone=(copy * len(names) + place).astype("<i4"),
        usd_per_hour=table.usd_per_hour * factor,
    ).canonical()
    return made.take(np.argsort(key_codes(made), kind="stable"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("offers", type=int)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    save_file(synthetic_catalogue(arguments.offers, arguments.seed), arguments.path)


if __name__ == "__main__":
    main()
