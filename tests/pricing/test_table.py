"""The columnar table says exactly what its offers say, whatever is done to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.offers import QUICK, any_offer, offer, offer_lists

from arylcloud.core.offer import Offer
from arylcloud.pricing.codes import key_codes
from arylcloud.pricing.table import (
    OfferTable,
    concat,
    from_offers,
    overlay,
)


@QUICK
@given(offer_lists)
def test_rows_come_back_as_they_went_in(offers: list[Offer]) -> None:
    assert from_offers(offers).offers() == tuple(offers)


@QUICK
@given(offer_lists)
def test_canonical_form_keeps_rows_and_digest(offers: list[Offer]) -> None:
    table = from_offers(offers)
    assert table.canonical().offers() == tuple(offers)
    assert table.canonical().digest == table.digest


@QUICK
@given(offer_lists)
def test_digest_does_not_depend_on_how_the_table_came_about(offers: list[Offer]) -> None:
    table = from_offers(offers)
    backwards = from_offers(offers[::-1]).take(np.arange(len(offers))[::-1])
    half = len(offers) // 2
    joined = concat(from_offers(offers[:half]), from_offers(offers[half:]))
    assert table.digest == backwards.digest == joined.digest


@QUICK
@given(offer_lists.filter(bool), st.data())
def test_digest_changes_with_any_field(offers: list[Offer], data: st.DataObject) -> None:
    changed = list(offers)
    i = data.draw(st.integers(0, len(offers) - 1))
    changed[i] = data.draw(any_offer)
    assert (from_offers(changed).digest == from_offers(offers).digest) == (_said(changed) == _said(offers))


def _said(offers: list[Offer]) -> list[tuple[object, ...]]:
    """Rows as the table can tell them apart: an undated midnight is a date."""
    return [tuple(getattr(o, f) for f in Offer.__dataclass_fields__) for o in from_offers(offers).offers()]


@QUICK
@given(offer_lists, offer_lists)
def test_concat_is_the_rows_of_both(first: list[Offer], second: list[Offer]) -> None:
    assert concat(from_offers(first), from_offers(second)).offers() == (*first, *second)


@QUICK
@given(offer_lists, offer_lists)
def test_overlay_is_a_dictionary_update(base: list[Offer], over: list[Offer]) -> None:
    covered = {o.key for o in over}
    expected = [o for o in base if o.key not in covered] + over
    # Offer.key joins with "/", which names may hold; the table compares the columns themselves
    if all("/" not in o.region + (o.zone or "") for o in base + over):
        assert overlay(from_offers(base), from_offers(over)).offers() == tuple(expected)


@QUICK
@given(offer_lists)
def test_key_codes_are_equal_where_keys_are(offers: list[Offer]) -> None:
    keys = [(o.cloud, o.region, o.zone, o.instance_type, o.market) for o in offers]
    codes = key_codes(from_offers(offers)).tolist()
    for i, key in enumerate(keys):
        assert [code == codes[i] for code in codes] == [other == key for other in keys]


@QUICK
@given(offer_lists)
def test_plannable_rows_have_price_gpu_and_count(offers: list[Offer]) -> None:
    expected = [bool(o.usd_per_hour and o.gpu and o.gpu_count) for o in offers]
    assert from_offers(offers).plannable.tolist() == expected


def test_mask_of_an_unknown_name_is_empty_and_none_is_never_matched() -> None:
    table = from_offers([offer(), offer(gpu=None), offer(gpu="A100")])
    assert table.mask("gpu", ["H100"]).tolist() == [False, False, False]
    assert table.mask("gpu", ["A100", "H100", "V100"]).tolist() == [True, False, True]


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.usd_per_hour.__setitem__(0, 0.0),
        lambda t: t.gpu_count.__setitem__(0, 9),
        lambda t: t.cloud.__setitem__(0, 0),
    ],
)
def test_columns_cannot_be_written(write: Callable[[OfferTable], None]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        write(from_offers([offer()]))


def test_dates_keep_the_time_of_day_where_there_is_one() -> None:
    rows = from_offers(
        [offer(as_of="2026-07-20T01:02:03+02:00"), offer(as_of="2026-07-20"), offer(as_of=None)]
    )
    assert [o.as_of for o in rows.offers()] == ["2026-07-19T23:02:03Z", "2026-07-20", None]
    assert rows.as_of_range == ("2026-07-19T23:02:03Z", "2026-07-20")
