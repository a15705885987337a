"""``simulate --aryl`` and ``backtest`` on files and flags that nobody means: one line, a hint, code 2."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.cli.main import run

Call = Callable[..., tuple[int, str, str]]
SERIES = "servegen:language/m-small"
JOBS = "job_id,submit_s,duration_s,num_gpus\n"
LOAD = "trace,timestamp_s,requests_per_s\n"
CURVES = "gpu_type,model,global_batch_size,num_gpus,iterations_per_s\n"
SPOT = (
    "cloud,region,zone,instance_type,offset_s,duration_s,available,spot_usd_per_hour,on_demand_usd_per_hour\n"
)


def jobs(*rows: tuple[object, ...]) -> str:
    return JOBS + "".join(f"j{i},{','.join(map(str, row))}\n" for i, row in enumerate(rows))


def load(*rows: tuple[object, object]) -> str:
    return LOAD + "".join(f"{SERIES},{at},{rate}\n" for at, rate in rows)


def spot(*rows: tuple[object, ...]) -> str:
    return SPOT + "".join(f"aws,us-east-1,a,p3,{','.join(map(str, row))}\n" for row in rows)


USUAL = {
    "jobs.csv": jobs(*[(i * 400, 3000 + 37 * i, (1, 2, 4, 8)[i % 4]) for i in range(40)]),
    "load.csv": load(*[(i * 600, 200 if 40 < i % 144 < 110 else 20) for i in range(288)]),
    "curves.csv": CURVES + "".join(f"A100,m,64,{n},{n**0.7}\n" for n in (1, 2, 4, 8, 16)),
    "spot.csv": spot((0, 36_000, 1, 1, 3), (36_000, 223_200, 0, 1, 3)),
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    for name, text in USUAL.items():
        Path(name).write_text(text)

    def made(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*args])
        out, err = capsys.readouterr()
        return code, out, err

    return made


def aryl(*more: str) -> tuple[str, ...]:
    files = ("--trace", "jobs.csv", "--inference", "load.csv", "--scaling", "curves.csv")
    named = () if "--policy" in more else ("--policy", "fifo,default")
    return ("simulate", "--aryl", "2:4", *files, *named, "--elastic", "0.5", *more)


def backtest(*more: str) -> tuple[str, ...]:
    base = ("--trace", "spot.csv", "--work-h", "3", "--deadline-h", "5", "--starts", "2")
    named = () if "--policy" in more else ("--policy", "greedy")
    return ("backtest", *base, *named, "--no-optimum", *more)


def refused(call: Call, args: tuple[str, ...], words: str) -> None:
    code, out, err = call(*args)
    lines = err.splitlines()
    assert code == 2, err
    assert out == ""
    assert [line.partition(":")[0] for line in lines[-2:]] == ["error", "hint"], err
    assert words in lines[-2]
    assert len(lines[-2]) < 250
    assert "bug" not in err
    code, out, _ = call(*args, "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (2, "usage")


def test_the_usual_files_are_fine(call: Call) -> None:
    assert call(*aryl())[0] == call(*backtest())[0] == 0


BROKEN: tuple[tuple[str, bytes, str], ...] = (
    ("empty", b"", "no column"),
    ("other columns", b"a,b\n1,2\n", "no column"),
    ("binary", bytes(range(256)) * 20, "is not a CSV file"),
    ("UTF-16", "a,b\n".encode("utf-16"), "is not a CSV file"),
    ("a torn gzip", gzip.compress(b"a,b\n" * 999)[:-12], "cannot read"),
)


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize(("kind", "content", "words"), BROKEN, ids=[kind for kind, *_ in BROKEN])
def test_broken_files(call: Call, name: str, kind: str, content: bytes, words: str) -> None:
    Path(name).write_bytes(content)
    refused(call, backtest() if name == "spot.csv" else aryl(), words)
    Path(name).write_text(USUAL[name].partition("\n")[0] + "\n")  # a header alone
    refused(call, backtest() if name == "spot.csv" else aryl(), f"{name}: no ")


@pytest.mark.parametrize("name", USUAL)
def test_more_rows_than_anybody_means(call: Call, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arylcloud.simulation.cluster.throughputs.MOST_ROWS", 1)
    refused(call, backtest() if name == "spot.csv" else aryl(), "more than 1 rows")


@pytest.mark.parametrize("name", USUAL)
def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_column(call: Call, name: str) -> None:
    Path(name).write_text("\ufeff" + USUAL[name], encoding="utf-8")
    assert call(*(backtest() if name == "spot.csv" else aryl()))[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        *(("jobs.csv", jobs((v, 100, 1)), "submit_s is") for v in ("nan", "-1", "1e300", "")),
        *(("jobs.csv", jobs((0, v, 1)), "duration_s is") for v in ("nan", "-1", "0", "inf")),
        *(("jobs.csv", jobs((0, 9, v)), "num_gpus is") for v in ("nan", "0", "1.5")),
        ("jobs.csv", jobs((0, 9, 10**9)), "a job of 1000000000 GPUs never fits on 16"),
        ("jobs.csv", jobs((1.7e9, 100, 1)), "the jobs take 19,676 days on 16 GPUs"),
        ("jobs.csv", jobs((0, 1e12, 1)), "more than 3,660"),
        ("jobs.csv", jobs(*[(0, 3e7, 8)] * 99), "more than 3,660"),
        *(("load.csv", load((0, 5), (v, 6)), "timestamp_s is") for v in ("nan", "-1", "1e300", "")),
        *(("load.csv", load((0, 5), (600, v)), "requests_per_s is") for v in ("nan", "-1", "1e300", "")),
        ("load.csv", load((0, 5)), "no requests of"),
        ("load.csv", load((0, 0), (600, 0)), "no requests of"),
        ("load.csv", USUAL["load.csv"].replace(SERIES, "mine"), f"no requests of '{SERIES}'"),
        ("load.csv", load((0, 5), (0, 6)), "0 s after the row before, not 1 or more"),
        ("load.csv", load((0, 5), (300, 6), (300, 7)), "0 s after the row before, not 300"),
        ("load.csv", load((600, 5), (0, 6)), "-600 s after the row before"),
        ("load.csv", load((0, 5), (300, 6), (1000, 7)), "700 s after the row before, not 300"),
        ("load.csv", load((0, 5), (1e-6, 6)), "not 1 or more"),
        ("load.csv", load((0, 5), (1e11, 6)), "more than 3,660 days"),
        ("load.csv", load(*[(i * 300, 0.1) for i in range(288)]), "do not change"),
        ("load.csv", load(*[(i * 300, 5 + i) for i in range(3)]), "do not change"),
        ("curves.csv", CURVES + "A100,m,64,1,3\n", "no curve with rates at n and 2n"),
        ("curves.csv", CURVES + "A100,m,64,1,1e-320\nA100,m,64,2,4\n", "4 on twice as many"),
        ("curves.csv", CURVES + "A100,m,64,1,nan\n", "iterations_per_s is"),
    ],
)
def test_values_of_aryl(call: Call, name: str, text: str, words: str) -> None:
    Path(name).write_text(text)
    refused(call, aryl(), words)


@pytest.mark.parametrize("text", [load(*[(i * h * 3600, 5 + i % 24) for i in range(48)]) for h in (1, 3)])
def test_requests_by_the_hour_and_rarer(call: Call, text: str) -> None:
    Path("load.csv").write_text(text)
    code, out, _ = call(*aryl("--json"))
    assert code == 0
    for row in json.loads(out)["policies"].values():
        assert 0 < row["usage"] <= 1


def test_no_time_measured_is_no_share(call: Call) -> None:
    """A job too short for the clock to move."""
    Path("jobs.csv").write_text(jobs((86_400, 1e-300, 1)))
    code, out, _ = call(*aryl("--days", "1:2", "--json"))
    assert code == 0
    assert {row["usage"] for row in json.loads(out)["policies"].values()} == {None}
    code, out, _ = call(*aryl("--days", "1:2"))
    assert code == 0
    assert "nan" not in out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--elastic", "nan"), "--elastic is nan"),
        (("--fungible", "nan"), "--fungible is nan"),
        (("--aryl", "9" * 5000 + ":4"), "more than 100,000"),
        (("--aryl", "4:0"), "the second number is 0"),
        (("--aryl", "0:4"), "never fits on 0"),
        (("--days", "0:" + "9" * 5000), "more than 100,000"),
        (("--policy", "nope"), "no scheduler 'nope'"),
    ],
)
def test_flags_of_aryl(call: Call, flags: tuple[str, str], words: str) -> None:
    refused(call, aryl(*flags), words)


def test_days_on_which_nothing_is_submitted(call: Call) -> None:
    Path("jobs.csv").write_text(jobs((0, 100, 1), (10 * 86_400, 100, 1)))
    refused(call, aryl("--days", "3:5"), "no job is submitted in the measured days")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((spot((v, 9e5, 1, 1, 3)), "offset_s is") for v in ("nan", "-1", "1e300", "")),
        *((spot((0, v, 1, 1, 3)), "duration_s is") for v in ("nan", "-1", "0")),
        *((spot((0, 9e5, v, 1, 3)), "available is") for v in ("nan", "-1", "0.5")),
        *((spot((0, 9e5, 1, v, 3)), "spot_usd_per_hour is") for v in ("nan", "0", "-1")),
        *((spot((0, 9e5, 1, 1, v)), "on_demand_usd_per_hour is") for v in ("nan", "0", "inf")),
        (spot((0, 1e12, 1, 1, 3)), "more than 50,000,000 looks"),
        (spot((0, 60, 1, 1, 3)), "shorter than one tick"),
        (spot((0, 3600, 1, 1, 3)), "the trace ends after 1 h"),
        (spot((3600, 3600, 1, 1, 3), (0, 3600, 1, 1, 3)), "begins at 3600 s, not at 0 s"),
        (spot((0, 3600, 1, 1, 3), (0, 3600, 1, 1, 3)), "begins at 0 s, not at 3600 s"),
        (SPOT + "x\n", "cloud, region or zone is empty"),
    ],
)
def test_values_of_a_spot_trace(call: Call, text: str, words: str) -> None:
    Path("spot.csv").write_text(text)
    refused(call, backtest(), words)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--work-h", "nan"), "--work-h and --deadline-h are hours"),
        (("--deadline-h", "-1"), "--work-h and --deadline-h are hours"),
        (("--overhead-s", "nan"), "--overhead-s is nan"),
        (("--tick-s", "1e300"), "--tick-s is 1e+300"),
        (("--try-s", "nan"), "--try-s more than 0"),
        (("--checkpoint-gb", "nan"), "--checkpoint-gb is a number"),
        (("--egress-usd-per-gb", "-1"), "--egress-usd-per-gb one from 0 to 100"),
        (("--machines", "1" + "0" * 30), "--machines"),
        (("--starts", "1" + "0" * 30), "--starts"),
        (("--policy", ","), "--policy names none"),
        (("--policy", "optimum"), "exclude each other"),
    ],
)
def test_flags_of_backtest(call: Call, flags: tuple[str, str], words: str) -> None:
    refused(call, backtest(*flags), words)
