#!/usr/bin/env python3
"""Build the bundled figures of ``arylcloud/pricing/data`` from the study's price files.

    scripts/build_catalogue.py STUDY/prices [--out arylcloud/pricing/data]

Deterministic: the same input gives the same bytes. What is done to the rows, and why, stands in
``clean_offers``; nothing is dropped without a line in ``quarantine.csv``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from arylcloud.core import gpus
from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.binary import save_file
from arylcloud.pricing.table import from_offers, parse_as_of

CLOUDS = ("aws", "azure", "gcp")
MARKETS = {"on-demand": Market.ON_DEMAND, "spot": Market.SPOT}
OFFER_FIELDS = tuple(Offer.__dataclass_fields__)
PAIRS_SOURCE = "AWS S3 inter-region transfer, as in the SkyNomad artifact (Apache-2.0)"
ADVISOR_SOURCE = "AWS Spot Advisor"
ADVISOR_DATE = "2025-06-28"


def read_offers(path: Path) -> list[Offer]:
    """Rows of the three clouds as they stand in the file; only units and names are ours."""
    offers = []
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["cloud"] not in CLOUDS:
                continue
            offers.append(
                Offer(
                    cloud=row["cloud"],
                    region=row["region"],
                    zone=row["zone"] or None,
                    instance_type=row["instance_type"],
                    gpu=canonical_gpu(row),
                    gpu_count=whole(row["gpu_count"]),
                    gpu_mem_gib=number(row["gpu_mem_gib"]),
                    vcpus=number(row["vcpus"]),
                    mem_gib=number(row["mem_gib"]),
                    market=MARKETS[row["market"]],
                    usd_per_hour=number(row["price_usd_hour"]),
                    as_of=row["as_of"] or None,
                    source=row["source"],
                )
            )
    return offers


def canonical_gpu(row: dict[str, str]) -> str:
    """Azure's tables say H100 and A100-80GB for the NVL and PCIe cards of the NC sizes, too."""
    name = gpus.resolve(row["gpu_name"])
    if row["cloud"] == "azure" and row["instance_type"].startswith("Standard_NC"):
        return {"H100": "H100-NVL", "A100-80GB": "A100-80GB-PCIE"}.get(name, name)
    return name


def number(text: str) -> float | None:
    return float(text) if text else None


def whole(text: str) -> int | None:
    """A fraction of a GPU (0.166667, or AWS's 0) and an empty field are None: listed, not plannable."""
    value = float(text) if text else 0.0
    return int(value) if value >= 1 and value.is_integer() else None


def identity(offer: Offer) -> tuple[str, str, str, str, str]:
    return (offer.cloud, offer.region, offer.zone or "", offer.instance_type, offer.market.value)


def clean_offers(rows: list[Offer]) -> tuple[list[Offer], list[tuple[Offer, str]]]:
    """Offers, and what was taken out with the reason.

    1. Spot rows whose price equals the on-demand price: the publisher's fallback, not a price.
    2. Of rows with the same key the newest dated one stays; an undated one is older than any.
    3. Memory that only some rows of an instance type know is a fact of the type: filled in where all
       known values agree (Azure's regional price lists leave it out).
    """
    newest_first = sorted(rows, key=lambda o: (parse_as_of(o.as_of), o.source), reverse=True)
    on_demand: dict[tuple[str, str, str], float | None] = {}
    for offer in newest_first:
        if offer.market is Market.ON_DEMAND and offer.zone is None:
            on_demand.setdefault((offer.cloud, offer.region, offer.instance_type), offer.usd_per_hour)
    kept: dict[tuple[str, ...], Offer] = {}
    taken: list[tuple[Offer, str]] = []
    for offer in newest_first:
        listed = on_demand.get((offer.cloud, offer.region, offer.instance_type))
        if offer.market is Market.SPOT and listed is not None and offer.usd_per_hour == listed:
            taken.append((offer, "spot equals on-demand: a fallback, not a price"))
        elif (winner := kept.get(identity(offer))) is not None:
            taken.append((offer, f"duplicate: {winner.source} of {winner.as_of or 'unknown date'} is newer"))
        else:
            kept[identity(offer)] = offer
    return sorted(fill_memory(list(kept.values())), key=identity), sorted(taken, key=lambda t: identity(t[0]))


def fill_memory(offers: list[Offer]) -> list[Offer]:
    known: dict[tuple[str, str], set[float]] = defaultdict(set)
    for offer in offers:
        if offer.mem_gib is not None:
            known[offer.cloud, offer.instance_type].add(offer.mem_gib)
    return [
        replace(offer, mem_gib=next(iter(values)))
        if offer.mem_gib is None and len(values := known[offer.cloud, offer.instance_type]) == 1
        else offer
        for offer in offers
    ]


def quarantine_csv(taken: list[tuple[Offer, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*OFFER_FIELDS, "reason"])
    for offer, reason in taken:
        values = (getattr(offer, name) for name in OFFER_FIELDS)
        writer.writerow([*("" if v is None else v for v in values), reason])
    return out.getvalue()


def tariffs(prices: Path) -> dict[str, Any]:
    """Egress, storage and disks: the facts as they are, AWS's pairs grouped by price."""
    kinds = ("egress_internet", "egress_inter_region", "object_storage", "boot_disk")
    with (prices / "facts.csv").open(newline="", encoding="utf-8") as file:
        facts = [
            {
                "cloud": row["cloud"],
                "kind": row["kind"],
                "item": row["item"],
                "region": row["region"],
                "usd": float(row["value_usd"]),
                "as_of": row["as_of"] or None,
                "source": row["source"],
            }
            for row in csv.DictReader(file)
            if row["cloud"] in CLOUDS and row["kind"] in kinds
        ]
    pairs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    with (prices / "aws_inter_region_egress.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            pairs[row["from_region"]][repr(float(row["price_usd_per_gb"]))].append(row["to_region"])
    grouped = {
        source: {price: sorted(to) for price, to in sorted(by_price.items())}
        for source, by_price in sorted(pairs.items())
    }
    return {
        "schema_version": 1,
        "facts": facts,
        "aws_pairs": {"source": PAIRS_SOURCE, "as_of": None, "usd_per_gb": grouped},
    }


def spot_advisor(prices: Path) -> dict[str, Any]:
    bands: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    with (prices / "interruption.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            bands[row["interruption_band"]][row["region"]].append(row["instance_type"])
    return {
        "schema_version": 1,
        "cloud": "aws",
        "source": ADVISOR_SOURCE,
        "as_of": ADVISOR_DATE,
        "bands": {
            band: {region: sorted(types) for region, types in sorted(by_region.items())}
            for band, by_region in sorted(bands.items())
        },
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def build(prices: Path, out: Path) -> Counter[str]:
    """Write the four files; returns counts for people to look at."""
    out.mkdir(parents=True, exist_ok=True)
    rows = read_offers(prices / "offers.csv.gz")
    offers, taken = clean_offers(rows)
    save_file(from_offers(offers), out / "offers.bin")
    (out / "quarantine.csv").write_text(quarantine_csv(taken), encoding="utf-8")
    write_json(out / "tariffs.json", tariffs(prices))
    write_json(out / "spot_advisor.json", spot_advisor(prices))
    counts = Counter(reason.split(":")[0] for _, reason in taken)
    counts.update(rows=len(rows), offers=len(offers), countless=sum(o.gpu_count is None for o in offers))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prices", type=Path, help="folder with offers.csv.gz, facts.csv, interruption.csv …")
    default = Path(__file__).parents[1] / "arylcloud/pricing/data"
    parser.add_argument("--out", type=Path, default=default)
    arguments = parser.parse_args()
    for name, count in sorted(build(arguments.prices, arguments.out).items()):
        sys.stdout.write(f"{name:40} {count}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
