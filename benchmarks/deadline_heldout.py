"""Deadlines on spot, held out: zones, GPUs and years that no rule or number of any policy was made on.

    git clone https://github.com/andylizf/skynomad-artifact          # figures: at 62b9aaa1942e
    git clone https://github.com/skypilot-org/spot-traces            # figures: at 221da1ab9bdf
    python benchmarks/deadline_heldout.py --skynomad skynomad-artifact --spot-traces spot-traces --write

Prints Markdown; ``--write`` puts it between the held-out marks of docs/results/deadlines.md; ``--cache FILE``
keeps optima; ``--only NAME`` one setting. Rules, costs and policies as in deadline_results.py. Exits 1 where
a deadline is missed, not where a bar is.

Fixed before the first run: 5 GB at $0.02 per GB between any two regions; one H100 100 h (and 48 h), gangs
48 h (and 24 h), all others 48 h. AWS 2022 has no prices: on-demand list prices, spot at 30 % of them, in both
zones. Its files say a look every 600 s, the page beside them 13 days, which would be 300 s: both are run.
Added after the first figures were seen: gangs of 100 h, the length of the study's table of this GPU; the bars
do not name one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deadline_results import FEW, PAGE, RATIOS, Cache, Setting, table
from heldout_probes import read_probes

from arylcloud.planner.deadline.registry import POLICIES
from arylcloud.simulation.deadline.sweep import flat_egress, market_of
from arylcloud.simulation.spottraces import SpotTrace, grid
from arylcloud.simulation.zonetraces import Usd, read_zone_files, zone_files

ONE = (1.035, 1.035, 1.035, 1.035, 1.05)
GANG_4 = (1.05, 1.05, 1.05, 1.05, 1.07)
GANG_16 = (1.20, 1.16, 1.15, 1.38, 2.0)
SHOWN = ("on_demand", "uniform_progress", *FEW)
GB = 5.0
USD_PER_GB = 0.02
ON_DEMAND_2022 = {"k80_1": 0.90, "k80_8": 7.20, "v100_1": 3.06, "v100_8": 24.48}
SPOT_SHARE = 0.3
MARKS = ("<!-- held out -->\n", "<!-- /held out -->")


def setting(
    name: str,
    title: str,
    trace: SpotTrace,
    work_h: float,
    bars: tuple[float, ...],
    starts: int,
    machines: int = 1,
) -> Setting:
    world = grid(trace, machines=machines)
    days = trace.span_s / 86_400
    windows = [trace.span_s / 3600 * ratio / work_h for ratio in (RATIOS[0], RATIOS[-1])]
    up = world.up.mean(axis=0)
    return Setting(
        name=name,
        title=f"{title}: {len(trace.places)} zones (up {up.min():.0%} to {up.max():.0%}), {days:.1f} days, "
        f"{work_h:g} h, {windows[0]:.1f} to {windows[1]:.1f} independent windows",
        grid=world,
        market=market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), USD_PER_GB * GB)),
        work_h=work_h,
        bars=bars,
        starts=starts,
        policies=SHOWN,
    )


def of_skynomad(folder: Path, starts: int) -> list[Setting]:
    data = folder / "data"
    probes = read_probes(data)
    h100 = probes.trace
    print(f"H100: {probes.rounds} rounds, of which {probes.missing} are missing", file=sys.stderr)
    dear = read_probes(data, gpus_paid=8).trace
    return [
        setting("h100-100", "H100, one machine", h100, 100.0, ONE, starts),
        setting("h100-48", "H100, one machine", h100, 48.0, ONE, starts),
        setting("h100x8-100", "The same at the price of 8 GPUs", dear, 100.0, ONE, starts),
        setting("h100-gang4-48", "Gang of 4 H100", h100, 48.0, GANG_4, starts, 4),
        setting("h100-gang4-24", "Gang of 4 H100", h100, 24.0, GANG_4, starts, 4),
        setting("h100-gang16-48", "Gang of 16 H100", h100, 48.0, GANG_16, starts, 16),
        setting("h100-gang16-24", "Gang of 16 H100", h100, 24.0, GANG_16, starts, 16),
        setting("h100-gang4-100", "Gang of 4 H100", h100, 100.0, GANG_4, starts, 4),
        setting("h100-gang16-100", "Gang of 16 H100", h100, 100.0, GANG_16, starts, 16),
    ]


def of_spot_traces(folder: Path, starts: int) -> list[Setting]:
    found = []
    kinds = zone_files(folder / "availability" / "1-node" / "aws-10-26-2022")
    for gap_s in (600.0, 300.0):
        for kind, listed in ON_DEMAND_2022.items():
            usd = Usd(spot=SPOT_SHARE * listed, on_demand=listed)
            trace = read_zone_files(kinds[kind], ones="up", usd=usd, gap_s=gap_s)
            gpu, count = kind.upper().split("_")
            title = f"{gpu} × {count}, AWS 2022, read at {gap_s:g} s"
            found.append(setting(f"aws22-{kind}-{gap_s:g}", title, trace, 48.0, ONE, starts))
    april = folder / "preemption" / "1-node"
    for name, title, usd in (
        ("aws-04-22-2023", "V100, AWS, April 2023", Usd(spot=0.918, on_demand=3.06)),
        ("aws-04-19-2023", "64 cores (r5.16xlarge), AWS, April 2023", Usd(spot=1.21, on_demand=4.032)),
    ):
        ((kind, files),) = zone_files(april / name).items()
        trace = read_zone_files(files, ones="up", usd=usd)
        found.append(setting(f"{name}-{kind}", title, trace, 48.0, ONE, starts))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--skynomad", type=Path)
    parser.add_argument("--spot-traces", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.skynomad is None and given.spot_traces is None:
        parser.error("name a checkout: --skynomad FOLDER, --spot-traces FOLDER")
    if given.write and (given.only or given.skynomad is None or given.spot_traces is None):
        parser.error("--write is for all settings: it wants both folders, and no --only")
    settings = of_skynomad(given.skynomad, given.starts) if given.skynomad is not None else []
    if given.spot_traces is not None:
        settings += of_spot_traces(given.spot_traces, given.starts)
    cache = Cache(given.cache)
    lines: list[str] = []
    late = 0
    for one in settings:
        if given.only in (None, one.name):
            part, missed = table(one, cache, {name: POLICIES[name] for name in one.policies})
            print("\n".join(part), flush=True)
            lines, late = lines + part, late + missed
    if given.write:
        before, mark, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        _, end, after = rest.partition(MARKS[1])
        if not mark or not end:
            parser.error(f"{PAGE} has not both marks of the held-out figures")
        PAGE.write_text(before + mark + "\n".join(lines) + end + after, encoding="utf-8")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
