"""decode(encode(x)) = x for every value that is written down; and nothing else is let in."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core import codec, plan, protocol
from arylcloud.core import events as ev
from arylcloud.core.errors import IntegrityError
from arylcloud.core.job import JobSpec

DOCUMENTS = [
    protocol.JobDoc,
    protocol.LauncherBeat,
    protocol.EpochDoc,
    protocol.Heartbeat,
    protocol.EndDoc,
    protocol.RequestDoc,
    protocol.ExecRequest,
    protocol.ExecResult,
    protocol.Manifest,
    plan.Plan,
    JobSpec,
    *ev.EVENT_TYPES.values(),
]

SMALL = [cls for cls in ev.EVENT_TYPES.values() if cls is not ev.JobSubmitted]

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=6),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}


def values(hint: Any, within: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Any value of a type that the codec knows, from the type alone. ``within``: the classes around it
    (one that may hold itself is built two deep)."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is type(None):
        return st.none()
    if hint is Any:
        return st.none() | st.booleans() | st.text(max_size=4) | st.lists(st.integers(0, 9), max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(arg, within) for arg in args])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        if within.count(args[0]) >= 2:
            return st.just(())
        return st.lists(values(args[0], within), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=4), values(args[1], within), max_size=2)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    assert dataclasses.is_dataclass(hint), hint
    return documents(typing.cast(type, hint), within)


@cache
def documents(cls: type, within: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {f.name: values(hints[f.name], (*within, cls)) for f in dataclasses.fields(cls)}
    return st.fixed_dictionaries(fields).map(lambda found: cls(**found))


@pytest.mark.parametrize("cls", DOCUMENTS, ids=lambda cls: cls.__name__)
def test_there_and_back(cls: type) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True, database=None)
    @given(documents(cls))
    def holds(value: Any) -> None:
        data = codec.dumps(value)
        assert codec.loads(cls, data) == value
        assert codec.dumps(codec.loads(cls, data)) == data, "canonical: one value, one spelling"

    holds()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 10**6), st.none() | st.text(max_size=4))
def test_records(data: st.DataObject, seq: int, cause_id: str | None) -> None:
    event = data.draw(documents(data.draw(st.sampled_from(SMALL))))
    record = ev.Record(job_id="j-1", seq=seq, at_s=1.5, writer="l-1", cause_id=cause_id, event=event)
    assert ev.Record.from_bytes(record.to_bytes()) == record


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_a_damaged_record_is_an_integrity_error_or_another_valid_one(data: st.DataObject) -> None:
    """A cut or a flipped byte never gets out as anything but IntegrityError."""
    event = data.draw(documents(ev.LeaseCreated))
    raw = ev.Record(job_id="j-1", seq=3, at_s=1.0, writer="l", cause_id="2", event=event).to_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] if data.draw(st.booleans()) else raw[:at] + bytes([raw[at] ^ 0x15]) + raw[at + 1 :]
    try:
        found = ev.Record.from_bytes(damaged)
    except IntegrityError:
        return
    assert isinstance(found, ev.Record)
    assert len(damaged) == len(raw)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_json_is_not_written(bad: float) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        codec.dumps({"x": bad})
    with pytest.raises(TypeError):
        codec.dumps({"x": object()})


MEMBER = {"lease_id": "a", "rank": 0, "address": "127.0.0.1"}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"rank": "0"}, "rank"),
        ({"rank": True}, "rank"),
        ({"rank": 0.0}, "rank"),
        ({"rank": None}, "rank"),
        ({"address": 7}, "address"),
    ],
)
def test_a_wrong_type_names_the_place(change: dict[str, Any], where: str) -> None:
    with pytest.raises(IntegrityError, match=where) as caught:
        codec.decode(protocol.Member, {**MEMBER, **change}, where="epoch.members[0]")
    assert caught.value.exit_code == 7
    assert "epoch.members[0]" in caught.value.message


def test_a_place_far_inside_is_named_and_so_is_its_cause() -> None:
    document: dict[str, Any] = {
        "job_id": "j",
        "number": 1,
        "attempt": 1,
        "opened_s": 1.0,
        "reason": "x",
        "resume_from": None,
    }
    document["members"] = [MEMBER, {**MEMBER, "rank": None}]
    with pytest.raises(IntegrityError, match=r"^epoch 1\.members\[1\]\.rank: an integer was expected") as one:
        codec.decode(protocol.EpochDoc, document, where="epoch 1")
    assert one.value.__cause__ is None
    with pytest.raises(IntegrityError, match=r"^beat\.phase: 'asleep' is no AgentPhase$") as other:
        codec.decode(
            protocol.Heartbeat, {"lease_id": "a", "seq": 1, "at_s": 1, "phase": "asleep"}, where="beat"
        )
    assert isinstance(other.value.__cause__, ValueError)


def test_a_number_beyond_all_floats_is_an_integrity_error() -> None:
    beat = {"launcher_id": "l", "host": "h", "pid": 1, "at_s": 10**400}
    with pytest.raises(IntegrityError, match="at_s: a finite number was expected"):
        codec.loads(protocol.LauncherBeat, json.dumps(beat).encode())


def test_missing_and_unknown_keys() -> None:
    with pytest.raises(IntegrityError, match="address is missing"):
        codec.decode(protocol.Member, {"lease_id": "a", "rank": 0})
    assert codec.decode(protocol.Member, {**MEMBER, "of_a_newer_writer": 1}).rank == 0


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"a":NaN}', b"[" * 100_000])
def test_what_is_no_document(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        codec.loads(protocol.Member, data)


def test_versions_and_kinds() -> None:
    event = ev.Notified(topic="t", ok=True, text="x")
    raw = json.loads(
        ev.Record(job_id="j", seq=1, at_s=0.0, writer="w", cause_id=None, event=event).to_bytes()
    )
    with pytest.raises(IntegrityError, match="schema_version 2"):
        ev.Record.from_bytes(json.dumps({**raw, "schema_version": 2}).encode())
    with pytest.raises(IntegrityError, match="unknown event kind"):
        ev.Record.from_bytes(json.dumps({**raw, "kind": "Surprise"}).encode())
    with pytest.raises(IntegrityError, match="object"):
        ev.Record.from_bytes(b"[]")


def test_numbers_in_a_float_place_may_be_whole() -> None:
    beat = codec.decode(protocol.LauncherBeat, {"launcher_id": "l", "host": "h", "pid": 1, "at_s": 3})
    assert isinstance(beat.at_s, float)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """Equal types that decode otherwise: the first that fits."""

    exact: int | float
    measured: float | int
    several: tuple[float | int, ...]
    some: tuple[int | float, ...]


def test_the_order_of_a_union_counts() -> None:
    found = codec.decode(Either, {"exact": 3, "measured": 3, "several": [3], "some": [3]})
    kinds = [type(value) for value in (found.exact, found.measured, *found.several, *found.some)]
    assert kinds == [int, float, float, int]
