"""Secret values are masked, however the output is cut into chunks; all else stays as it was."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from arylcloud.agent.mask import MIN_BYTES, Masker
from arylcloud.core.codec import dumps, loads
from arylcloud.core.protocol import SECRETS_KEY, ExecRequest, ExecResult, exec_key, exec_result_key

from .conftest import Job, spec, wait_for

# two letters and a line's end: values that overlap, repeat and contain one another are the rule
VALUES = st.lists(st.text("ab", min_size=1, max_size=10), max_size=4)
LETTERS = st.text("ab\n", max_size=40)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[list[str], bytes, list[bytes]]:
    values = draw(VALUES)
    pieces = draw(st.lists(st.one_of(LETTERS, st.sampled_from(values or ["-"])), max_size=6))
    data = "".join(pieces).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *cuts, len(data)]
    return values, data, [data[a:b] for a, b in itertools.pairwise(edges)]


def by_definition(values: list[str], data: bytes) -> bytes:
    """Byte by byte: the runs of bytes that are part of a value become ``***``."""
    hidden = [False] * len(data)
    for value in (v.encode() for v in values if len(v) >= MIN_BYTES):
        for at in range(len(data) - len(value) + 1):
            if data[at : at + len(value)] == value:
                hidden[at : at + len(value)] = [True] * len(value)
    found = bytearray()
    for at, byte in enumerate(data):
        if not hidden[at]:
            found.append(byte)
        elif at == 0 or not hidden[at - 1]:
            found += b"***"
    return bytes(found)


@given(outputs())
def test_however_the_bytes_are_cut(case: tuple[list[str], bytes, list[bytes]]) -> None:
    values, data, chunks = case
    masker = Masker(values)
    given_out = b"".join(masker.feed(chunk) for chunk in chunks) + masker.close()
    assert given_out == by_definition(values, data)
    for value in values:
        assert len(value) < MIN_BYTES or value.encode() not in given_out


def test_only_what_may_be_a_value_is_held_back() -> None:
    masker = Masker(["hunter2-hunter2\n", "short"])
    assert masker.feed(b"a prompt without an end: ") == b"a prompt without an end: "
    assert masker.feed(b"short hunter2") == b"short "
    assert masker.feed(b"!") == b"hunter2!"
    assert masker.feed(b"hunter2-hun") == b""
    assert masker.feed(b"ter2\nhunt") == b"***\n"
    assert masker.close() == b"hunt"
    assert masker.close() == b""


def test_no_stored_object_shows_what_a_command_prints_of_its_secrets(job: Job) -> None:
    value = "s3cr3t-\u00e9-value"
    job.submit(
        spec(
            'printf "run %s." "$TOKEN"; printf %.5s "$TOKEN"; sleep 0.2; printf "%s" "${TOKEN#?????}"; '
            "while [ ! -e over ]; do sleep 0.05; done; echo; echo end $TOKEN; exit 3",
            setup="echo setup $TOKEN",
            secret_names=("TOKEN",),
        )
    )
    job.store.put(SECRETS_KEY, dumps({"TOKEN": value}))
    machine = job.machine()
    job.open_epoch("lease-a")
    machine.phase("running")
    request = ExecRequest(
        request_id="x1",
        rank=0,
        argv=("sh", "-c", 'echo "exec $TOKEN $HOME"; touch over'),
        timeout_s=30.0,
        at_s=time.time(),
    )
    job.store.create(exec_key("x1"), dumps(request))
    answer = loads(ExecResult, wait_for(lambda: job.store.get(exec_result_key("x1", 0))))
    assert answer.output == f"exec *** {machine.home}\n"
    machine.phase("exited")
    end = job.end(1)
    assert end is not None
    assert end.tail == job.log("e000001-r00") == "run ***.***\nend ***\n"
    wait_for(lambda: "setup ***\n" in job.log("boot-lease-a"))
    for info in job.store.list(""):
        data = job.store.get(info.key) or b""
        assert info.key == SECRETS_KEY or value.encode() not in data, info.key


def test_a_failed_setup_does_not_say_its_secrets(job: Job) -> None:
    job.submit(spec("true", setup="echo refused: $TOKEN; exit 9", secret_names=("TOKEN",)))
    job.store.put(SECRETS_KEY, dumps({"TOKEN": "s3cr3t-value"}))
    job.machine().phase("broken")
    assert [end.tail for end in job.ends()] == ["refused: ***\n"]
