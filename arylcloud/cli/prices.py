"""``arylcloud prices``: what every GPU offer costs, where, and how old the price is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arylcloud.pricing.table import OfferTable

SCREEN_ROWS = 20
ORDERS = ("price", "price_per_gpu", "age")

app = typer.Typer(
    help="What every GPU offer costs, where, and how old the price is.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.callback(invoke_without_command=True)
def prices(
    ctx: typer.Context,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            "--gpus",
            help="GPU, with a count per machine if it matters: A100, a100-80gb:8. May be repeated.",
        ),
    ] = None,
    cloud: Annotated[list[str] | None, typer.Option(help="aws, azure, gcp. May be repeated.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="us-east-1 or aws/us-east-1.")] = None,
    infra: Annotated[
        list[str] | None, typer.Option(help="aws, aws/us-east-1 or aws/us-east-1/use1-az4.")
    ] = None,
    instance_type: Annotated[list[str] | None, typer.Option(help="p4d.24xlarge")] = None,
    market: Annotated[list[str] | None, typer.Option(help="spot, on_demand or reserved.")] = None,
    use_spot: Annotated[bool, typer.Option("--use-spot", help="The same as --market spot.")] = False,
    max_price: Annotated[
        float | None, typer.Option(metavar="USD", help="At most this much per machine-hour.")
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="At most so old, such as 24h or 30d; unknown ages are left out."),
    ] = None,
    sort: Annotated[str, typer.Option(help=f"{', '.join(ORDERS)}.")] = "price",
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Show so many (screen: {SCREEN_ROWS}; --json, --csv: all). 0 = all."),
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(help="Your own offers (CSV) laid over the bundled ones.")
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh", help="First ask the clouds (those of --infra, --cloud, --region; else all)."
        ),
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="OFFER",
            help="How its price was: aws/us-east-1:p4d.24xlarge, .../use1-az4:p4d.24xlarge:spot.",
        ),
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on stdout, readable by --catalogue.")] = False,
) -> None:
    """What every GPU offer costs, where, and how old the price is.

    Prices are per machine, in US dollars, as the catalogue knows them: each says its age and its source.
    `--refresh` asks the clouds first; plans then use what they said.
    """
    if ctx.invoked_subcommand is not None:
        return
    from arylcloud.cli.output import emit_json
    from arylcloud.core.errors import UsageError
    from arylcloud.pricing.select import Query, order, select

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    if sort not in ORDERS:
        raise UsageError(f"--sort {sort!r} is none of {', '.join(ORDERS)}")
    asked: dict[str, Any] = {}
    if refresh:
        from arylcloud.cli.refresh import refresh_prices

        asked = {"refresh": refresh_prices(_split(infra), _split(cloud), _split(region), quiet=as_json)}
    if history is not None:
        from arylcloud.cli.history import show_history

        show_history(history, as_json=as_json, more=asked)
        return
    table = load_catalogue(catalogue)
    query = Query(
        gpus=_split(gpu),
        clouds=_split(cloud),
        regions=_split(region),
        infra=_split(infra),
        instance_types=_split(instance_type),
        markets=_markets([*_split(market), *(["spot"] if use_spot else [])]),
        max_usd_per_hour=_max_price(max_price),
        priced_since_s=_since_s(max_age),
    )
    rows = order(table, select(table, query), sort)  # type: ignore[arg-type]  # checked above
    shown = rows[: limit or None] if limit is not None or as_json or as_csv else rows[:SCREEN_ROWS]
    offers = [table.row(int(i)) for i in shown]
    if as_json:
        newest = table.as_of_range[1]
        stamp = {"digest": table.digest, "as_of": newest, "offers": len(table)}
        emit_json({"catalogue": stamp, "matched": len(rows), "offers": offers, **asked})
    elif as_csv:
        from arylcloud.pricing.usercsv import write_csv

        sys.stdout.write(write_csv(offers))
    else:
        from arylcloud.cli.prices_screen import show_offers, show_stale
        from arylcloud.cli.settings import folders
        from arylcloud.core.clock import SystemClock
        from arylcloud.pricing.livefile import read_state

        show_offers(table, query, table.take(rows), offers, per_gpu=sort == "price_per_gpu")
        if not refresh:
            show_stale(read_state(folders().live_prices), SystemClock().now_s())


@app.command()
def doctor(
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Examine these offers (against the bundled ones).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for prices that cannot be true, duplicates, unknown ages. Exit code 7 on errors."""
    import numpy as np

    from arylcloud.cli.output import emit_json, error_document
    from arylcloud.cli.settings import folders
    from arylcloud.core.clock import SystemClock
    from arylcloud.core.errors import IntegrityError
    from arylcloud.pricing.catalogue import load, user_rows
    from arylcloud.pricing.codes import key_codes
    from arylcloud.pricing.doctor import counts, examine, left_out
    from arylcloud.pricing.table import concat

    own_csv = csv if csv is not None else user_catalogue()
    table = load(refreshed=folders().live_prices)
    focus = None
    if own_csv is not None:  # read leniently: the doctor speaks of what a plan would refuse
        own = user_rows(own_csv, table, strict=False)
        both = concat(table, own)
        mine = np.arange(len(both)) >= len(table)
        keys = key_codes(both)
        kept = mine | ~np.isin(keys, keys[mine])
        table, focus = both.take(kept), mine[kept] if csv is not None else None
    examined = len(table) if focus is None else int(focus.sum())
    findings = examine(table, focus=focus, now_s=SystemClock().now_s())
    if csv is None:
        findings = (*findings, *left_out())
    levels = counts(findings)
    error = None
    if wrong := levels["error"]:
        error = IntegrityError(f"{wrong} kind{'s' * (wrong > 1)} of wrong figures in the catalogue")
    if not as_json:
        from arylcloud.cli.prices_screen import show_findings

        show_findings(findings, examined)
        if error is not None:
            raise error
        return
    document = {"offers": examined, **{f"{level}s": n for level, n in levels.items()}, "findings": findings}
    emit_json(document | (error_document(error) if error else {}))
    if error is not None:
        raise typer.Exit(error.exit_code)  # stdout holds its one document already


def load_catalogue(user_csv: Path | None) -> OfferTable:
    """The catalogue in force for this user, as refreshed last; over it ``--catalogue``, else ``offers.csv``
    of the config folder."""
    from arylcloud.cli.settings import folders
    from arylcloud.pricing.catalogue import load

    own = user_csv if user_csv is not None else user_catalogue()
    return load(own, refreshed=folders().live_prices)


def user_catalogue() -> Path | None:
    """The user's own offers in the config folder, if there are any."""
    from arylcloud.cli.settings import folders

    path = folders().user_catalogue
    return path if path.exists() else None


def _split(values: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def _markets(names: list[str]) -> tuple[Any, ...]:
    from arylcloud.core.errors import UsageError
    from arylcloud.core.offer import Market

    try:
        return tuple(Market(name.lower().replace("-", "_")) for name in names)
    except ValueError as error:
        raise UsageError(f"{error}", hint="markets: on_demand, spot, reserved") from error


def _max_price(value: float | None) -> float | None:
    from arylcloud.core.errors import UsageError

    if value is not None and not value > 0:
        raise UsageError("--max-price must be above 0", hint="US dollars per machine-hour: --max-price 12.5")
    return value


def _since_s(max_age: str | None) -> float | None:
    if max_age is None:
        return None
    from arylcloud.core.clock import SystemClock
    from arylcloud.core.units import parse_duration_s

    return SystemClock().now_s() - parse_duration_s(max_age, what="--max-age")
