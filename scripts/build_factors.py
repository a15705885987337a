#!/usr/bin/env python3
"""Write arylcloud/planner/data/factors.bin: what GPUs share, learned from the bundled library.

Rows: the bundled profiles (``build_profiles.py``), Gavel's measurements on its physical cluster (MIT), and
Lambda's on one GPU, of which only these aggregates are shipped (ADR-0004). The bands come from residuals
with each family of models left out in turn.

    ARYLCLOUD_STUDY_DATA=…/data python scripts/build_factors.py [--check]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from study_columns import training_set  # noqa: E402

from arylcloud.planner.completion import FILE, Factors  # noqa: E402
from arylcloud.planner.factors import fit  # noqa: E402
from arylcloud.planner.model_left_out import bands, held_out  # noqa: E402
from arylcloud.planner.profile_files import pack, unpack  # noqa: E402

TARGET = ROOT / "arylcloud" / "planner" / "data" / FILE


def build(data: Path) -> Factors:
    samples = training_set(data)
    found = fit(samples)
    residuals = held_out(samples, samples)
    found.bands = bands(residuals)
    return found


def main() -> None:
    root = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if not root:
        raise SystemExit("ARYLCLOUD_STUDY_DATA does not name the study data")
    blob = pack(build(Path(root)).document())
    if "--check" in sys.argv[1:]:
        if unpack(TARGET.read_bytes(), what=FILE) != unpack(blob, what=FILE):
            raise SystemExit(f"{TARGET} is not what the data gives")
    else:
        TARGET.write_bytes(blob)
    print(f"{len(blob):,} bytes")


if __name__ == "__main__":
    main()
