"""Which offers somebody asks for, and in what order: masks over the table, no loops over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.pricing.codes import key_codes
from arylcloud.pricing.table import MARKETS, UNKNOWN_AS_OF, OfferTable

Order = Literal["price", "price_per_gpu", "age"]
Mask = NDArray[np.bool_]
LOCAL = "local"
ASKED = ("aws", "gcp", "azure")
"""Clouds whose prices can be asked for (``providers/registry.SOURCES``, which pricing does not import)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Every field narrows; an empty one does not. Alternatives within a field are joined by "or"."""

    gpus: tuple[str, ...] = ()
    """``A100``, ``a100-80gb:8``: any name that ``core/gpus`` knows; other forms of it serve, too."""
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    """``us-east-1`` or ``aws/us-east-1``."""
    infra: tuple[str, ...] = ()
    """``aws``, ``aws/us-east-1``, ``aws/us-east-1/use1-az4``; ``*`` stands for any."""
    instance_types: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    max_usd_per_hour: float | None = None
    """Per instance; rows without a price do not meet it."""
    priced_since_s: float | None = None
    """Unix seconds: older prices, and those of unknown age, do not meet it."""


def select(table: OfferTable, query: Query) -> Mask:
    """Rows that ``query`` asks for. UsageError, with the nearest names, for what the table never heard of."""
    mask = np.ones(len(table), dtype=bool)
    if query.gpus:
        mask &= _any([_gpu(table, text) for text in query.gpus])
    if query.clouds:
        mask &= _any([_named(table, "cloud", name) for name in query.clouds])
    if query.regions:
        mask &= _any([_region(table, text) for text in query.regions])
    if query.infra:
        mask &= _any([_infra(table, text) for text in query.infra])
    if query.instance_types:
        mask &= _any([_named(table, "instance_type", name) for name in query.instance_types])
    if query.markets:
        mask &= np.isin(table.market, [MARKETS.index(market) for market in query.markets])
    if query.max_usd_per_hour is not None:
        mask &= table.usd_per_hour <= query.max_usd_per_hour
    if query.priced_since_s is not None:  # an unknown age is the smallest number there is
        mask &= table.as_of >= query.priced_since_s
    return mask


def spotless(table: OfferTable, asked: Mask) -> dict[str, tuple[str, ...]]:
    """Cloud → GPUs among the ``asked`` rows of which that cloud's on-demand prices are known, and no spot
    price at all: whether it sells them so is then not known either."""
    cloud, gpu = table.cloud.astype(np.int64), table.gpu.astype(np.int64)
    pairs = cloud * (len(table.gpu_names) + 1) + gpu
    listed, on_spot = (table.market == MARKETS.index(m) for m in (Market.ON_DEMAND, Market.SPOT))
    found: dict[str, list[str]] = {}
    for pair in sorted(set(pairs[asked & listed].tolist()) - set(pairs[on_spot].tolist())):
        i, j = divmod(pair, len(table.gpu_names) + 1)
        if table.cloud_names[i] in ASKED and j < len(table.gpu_names):  # not those of no known GPU
            found.setdefault(table.cloud_names[i], []).append(table.gpu_names[j])
    return {name: tuple(sorted(gpus)) for name, gpus in sorted(found.items())}


def say_spotless(found: dict[str, tuple[str, ...]]) -> str | None:
    """``no spot price is known of aws L4, T4: …``, with the command that asks for them; None: nothing."""
    if not found:
        return None
    names = "; ".join(f"{cloud} {', '.join(gpus)}" for cloud, gpus in found.items())
    infra = "".join(f" --infra {cloud}" for cloud in found)
    return f"no spot price is known of {names}: `arylcloud prices --refresh{infra}` asks for them"


def order(table: OfferTable, rows: NDArray[Any], by: Order) -> NDArray[np.int64]:
    """``rows`` (positions or a mask) sorted: cheapest, or youngest price, first; unknown last; ties by
    price, then by key, so that the same table always gives the same list."""
    index = np.flatnonzero(rows) if rows.dtype == bool else np.asarray(rows)
    price = table.usd_per_hour[index]
    main: NDArray[Any] = price
    if by == "price_per_gpu":
        main = usd_per_gpu_hour(table)[index]
    elif by == "age":
        as_of = table.as_of[index]
        main = np.where(as_of == UNKNOWN_AS_OF, np.inf, -as_of.astype(float))
    place = key_codes(table.canonical())[index]
    found: NDArray[np.int64] = index[np.lexsort((place, price, main))]  # NaN sorts last
    return found


def usd_per_gpu_hour(table: OfferTable) -> NDArray[np.float64]:
    """Price of one GPU for an hour; NaN where price or count is unknown."""
    count = np.where(table.gpu_count > 0, table.gpu_count, np.nan)
    per_gpu: NDArray[np.float64] = table.usd_per_hour / count
    return per_gpu


def _any(masks: Sequence[Mask]) -> Mask:
    found: Mask = np.logical_or.reduce(masks)
    return found


def _gpu(table: OfferTable, text: str) -> Mask:
    name, count = gpus.split_request(text)
    own = [known for known in table.gpu_names if known.lower() == name.lower() and gpus.find(known) is None]
    mask = table.mask("gpu", own or gpus.serving(name))  # a user's catalogue may know GPUs that we do not
    return mask if count is None else mask & (table.gpu_count == count)


def _named(table: OfferTable, column: str, text: str) -> Mask:
    names = table.vocabulary(column)
    wanted = [name for name in names if name.lower() == text.strip().lower()]
    if not wanted:
        raise _unheard(column.replace("_", " "), text, names)
    return table.mask(column, wanted)


def _region(table: OfferTable, text: str) -> Mask:
    return _infra(table, text if "/" in text else f"*/{text}")


def _infra(table: OfferTable, text: str) -> Mask:
    parts = text.strip().strip("/").split("/")
    if len(parts) > 3 or not all(parts):
        raise UsageError(f"{text!r} is no place", hint="cloud, cloud/region or cloud/region/zone")
    mask = np.ones(len(table), dtype=bool)
    for column, part in zip(("cloud", "region", "zone"), parts, strict=False):
        if part != "*":
            mask &= _named(table, column, part)
    return mask


def _unheard(what: str, text: str, names: Sequence[str]) -> UsageError:
    from difflib import get_close_matches

    close = get_close_matches(text.lower(), names, n=3, cutoff=0.5)
    few = sorted(names) if len(names) <= 6 else []
    hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(few)}" if few else None
    if what == "cloud" and text.strip().lower() == LOCAL:
        hint = (
            "the local cloud has a market of its own, not the catalogue's: `arylcloud plan JOB --infra local`"
            " shows its offers and prices"
        )
    return UsageError(f"no offer in the catalogue has the {what} {text!r}", hint=hint)
