"""``backtest --trace FOLDER``: published traces, one JSON file per zone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arylcloud.cli.main import run

SMALL = ("--work-h", "6", "--deadline-h", "9", "--starts", "2", "--policy", "default", "--no-optimum")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name, data in (
        ("us-west-2a_k80_1", [1] * 96),
        ("us-west-2b_k80_1", [0] * 96),
        ("us-west-2a_v100_1", [2] * 96),
    ):
        text = json.dumps({"metadata": {"gap_seconds": 600}, "data": data})
        (tmp_path / f"{name}.json").write_text(text)
    return str(tmp_path)


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["backtest", *args, *SMALL])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize(("ones", "place"), [("up", "us-west-2a"), ("down", "us-west-2b")])
def test_a_one_is_what_is_said(
    capsys: pytest.CaptureFixture[str], folder: str, ones: str, place: str
) -> None:
    code, out, _ = call(capsys, "--trace", f"{folder}#k80_1", "--ones", ones, "--usd", "0.27,0.9", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["zones"] == ["aws/us-west-2/us-west-2a", "aws/us-west-2/us-west-2b"]
    told = found["policies"]["default"]
    # the one zone that has machines has them to the end: bought there, whichever it is
    assert told["cost_mean"] == pytest.approx(0.27 * 6.2)
    assert (told["misses"], told["on_demand_h"]) == (0, 0)
    (Path(folder) / f"{place}_k80_1.json").unlink()
    code, out, _ = call(capsys, "--trace", f"{folder}#k80_1", "--ones", ones, "--usd", "0.27,0.9", "--json")
    assert json.loads(out)["policies"]["default"]["spot_h"] == 0


def test_counts_need_no_word(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    code, out, _ = call(capsys, "--trace", f"{folder}#v100_1", "--usd", "1,3", "--machines", "2", "--json")
    assert code == 0
    assert json.loads(out)["policies"]["default"]["cost_mean"] == pytest.approx(2 * 6.2)


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("", (), "holds 2 traces: k80_1, v100_1"),
        ("#a100", (), "no 'a100' in it"),
        ("#k80_1", ("--usd", "1,3"), "nothing tells which"),
        ("#k80_1", ("--ones", "maybe"), "up or down"),
        ("#v100_1", (), "it has no prices"),
        ("#v100_1", ("--usd", "1"), "--usd: on demand is ''"),
        ("#v100_1", ("--usd", "nan,3"), "--usd: spot is 'nan'"),
        ("#v100_1", ("--usd", "0,3"), "price is '0.0'"),
    ],
)
def test_faults(
    capsys: pytest.CaptureFixture[str], folder: str, kind: str, more: tuple[str, ...], said: str
) -> None:
    code, out, err = call(capsys, "--trace", folder + kind, *more)
    assert (code, out) == (2, "")
    assert said in err


def test_of_folders_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--invent", "1", "--ones", "up")
    assert code == 2
    assert "--ones and --usd are for --trace FOLDER" in err


def test_capacity_has_one_source_and_hints_name_their_flags(
    capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    code, _, err = call(capsys, "--trace", f"{folder}#v100_1", "--usd", "1,3", "--invent", "3")
    assert code == 2
    assert "--trace FILE, or from --invent SEED: give one of them" in err
    assert "--ones up" in call(capsys, "--trace", f"{folder}#k80_1", "--usd", "1,3")[2]
    assert "--usd SPOT,ON_DEMAND" in call(capsys, "--trace", f"{folder}#v100_1")[2]
