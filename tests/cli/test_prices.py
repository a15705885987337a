"""``arylcloud prices`` as a person and as a script see it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.offers import offer

from arylcloud.cli.main import run
from arylcloud.core.offer import Market
from arylcloud.pricing.binary import save_file
from arylcloud.pricing.select import ASKED
from arylcloud.pricing.table import from_offers
from arylcloud.providers.registry import SOURCES

FIELDS = [
    *("cloud", "region", "zone", "instance_type", "gpu", "gpu_count", "gpu_mem_gib", "vcpus", "mem_gib"),
    *("market", "usd_per_hour", "as_of", "source"),
]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("ARYLCLOUD_CATALOGUE", raising=False)


def ask(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    assert run(["prices", *args]) == code
    found = capsys.readouterr()
    return found.out, found.err


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(capsys, *args, "--json", code=code)[0])
    assert found["schema_version"] == 1
    return found


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five offers in place of the bundled ones, one of them priced 41 days ago."""
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 41 * 86400 - 3600))
    rows = [
        offer(as_of=then, source="price list"),
        offer(as_of=None, zone="use1-az4", market=Market.SPOT, usd_per_hour=0.918, source="spot list"),
        offer(as_of=then, source="price list", instance_type="p3.8xlarge", gpu_count=4, usd_per_hour=12.24),
        offer(
            cloud="azure",
            region="swedencentral",
            instance_type="Standard_NC128lds_xl_RTXPRO6000BSE_v6",
            gpu="RTXPRO6000",
            gpu_count=None,
            as_of=then,
            usd_per_hour=7.87,
            source="price list",
        ),
        offer(
            region="ap-northeast-1",
            zone="apne1-az4",
            instance_type="p4d.24xlarge",
            gpu="A100",
            gpu_count=8,
            usd_per_hour=None,
            as_of=then,
            source="price list",
        ),
    ]
    save_file(from_offers(rows), tmp_path / "small.bin")
    monkeypatch.setenv("ARYLCLOUD_CATALOGUE", str(tmp_path / "small.bin"))


SCREEN = """\
GPU            Place                   Instance type       Market         $/h  $/GPU-h      Age  Src
────────────────────────────────────────────────────────────────────────────────────────────────────
V100 ×1        aws/us-east-1/use1-az4  p3.2xlarge          spot        0.9180   0.9180  unknown  a
V100 ×1        aws/us-east-1           p3.2xlarge          on-demand     3.06     3.06     41 d  b
RTXPRO6000 ×?  azure/swedencentral     Standard_NC128lds_  on-demand     7.87  unknown     41 d  b
                                       xl_RTXPRO6000BSE_v
                                       6
V100 ×4        aws/us-east-1           p3.8xlarge          on-demand    12.24     3.06     41 d  b
A100 ×8        aws/ap-northeast-1/     p4d.24xlarge        on-demand  unknown  unknown     41 d  b
               apne1-az4
"""
NOTES = (
    "sources: a = spot list · b = price list\n"
    "$/h of a whole machine · 5 of 5 matching offers shown, 5 in the catalogue · prices 41 d old"
    " · 1 of unknown age\n"
    "1 of these without a known whole number of GPUs: listed, not used in plans\n"
    "not in the catalogue: no GCP N1 machines (T4, V100, P100, P4 are sold there as add-ons to "
    "N1); no P100 offers\n"
)


@pytest.mark.usefixtures("small")
def test_the_screen_at_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = ask(capsys)
    assert "\n".join(line.rstrip() for line in out.splitlines()) == SCREEN.strip()
    assert err == NOTES


@pytest.mark.usefixtures("small")
def test_the_age_is_seen_at_eighty_columns_and_no_line_is_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = ask(capsys)[0].splitlines()
    assert max(len(line) for line in lines) <= 80
    assert sum("41 d" in line for line in lines) == 4
    assert sum("unknown" in line for line in lines) == 2
    types = "".join(line[36:46].strip() for line in lines)
    assert "Standard_NC128lds_xl_RTXPRO6000BSE_v6" in types  # folded, not cut


def test_json_has_the_names_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--gpu", "a100:8", "--market", "spot", "--max-price", "12")
    assert found["matched"] == len(found["offers"]) > 10
    for row in found["offers"]:
        assert list(row) == FIELDS
        assert (row["gpu"], row["gpu_count"], row["market"]) == ("A100", 8, "spot")
        assert 0 < row["usd_per_hour"] <= 12
    prices = [row["usd_per_hour"] for row in found["offers"]]
    assert prices == sorted(prices)
    assert found["catalogue"]["offers"] == 4248
    assert len(found["catalogue"]["digest"]) == 64


def test_every_offer_comes_out_and_limits_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(document(capsys)["offers"]) == 4248
    assert len(document(capsys, "--limit", "0")["offers"]) == 4248
    limited = document(capsys, "--limit", "3", "--sort", "price_per_gpu", "--cloud", "gcp")
    assert len(limited["offers"]) == 3
    assert limited["matched"] == 1002
    per_gpu = [row["usd_per_hour"] / row["gpu_count"] for row in limited["offers"]]
    assert per_gpu == sorted(per_gpu)


def test_newest_prices_first_and_unknown_ages_last(capsys: pytest.CaptureFixture[str]) -> None:
    dates = [row["as_of"] for row in document(capsys, "--sort", "age", "--cloud", "azure")["offers"]]
    known = [date for date in dates if date is not None]
    assert known == sorted(known, reverse=True)
    assert dates[: len(known)] == known
    assert len(known) < len(dates)


def test_an_age_can_be_asked_for(capsys: pytest.CaptureFixture[str], small: None) -> None:
    every = document(capsys)["offers"]
    some = document(capsys, "--max-age", "42d")["offers"]
    assert some == [o for o in every if o["as_of"] is not None]
    assert 0 < len(some) < len(every)
    assert len(document(capsys, "--max-age", "40d")["offers"]) < len(some)
    assert "has no unit" in document(capsys, "--max-age", "42", code=2)["error"]["message"]


def test_the_local_cloud_is_no_part_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (("--cloud", "local"), ("--infra", "local")):
        assert "plan JOB --infra local" in document(capsys, *args, code=2)["error"]["hint"]


def test_csv_can_be_laid_over_the_catalogue_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = ask(capsys, "--infra", "gcp/us-central1", "--gpu", "L4", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == FIELDS
    halved = out
    for row in rows:
        halved = halved.replace(f",{row['usd_per_hour']},", f",{float(row['usd_per_hour']) / 2},")
    (tmp_path / "mine.csv").write_text(halved)
    same = ("--infra", "gcp/us-central1", "--gpu", "L4")
    again = document(capsys, *same, "--catalogue", str(tmp_path / "mine.csv"))
    assert [row["usd_per_hour"] for row in again["offers"]] == [float(r["usd_per_hour"]) / 2 for r in rows]
    assert again["catalogue"]["offers"] == 4248


def test_the_users_own_offers_are_found_in_the_config_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "offers.csv").write_text(
        "cloud,region,instance_type,gpu,gpu_count,market,usd_per_hour\nlab,attic,box,Z9,2,reserved,0.25\n"
    )
    found = document(capsys, "--gpu", "z9:2")["offers"]
    assert [(row["cloud"], row["usd_per_hour"], row["as_of"]) for row in found] == [("lab", 0.25, None)]
    assert document(capsys, "--market", "reserved")["matched"] == 1


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--gpu", "A101"], "no GPU is known by the name 'A101'", "A100"),
        (["--gpu", "A100:none"], "whole number", "A100:8"),
        (["--cloud", "awz"], "cloud 'awz'", "aws"),
        (["--region", "aws/us-esat-1"], "region 'us-esat-1'", "us-east-1"),
        (["--market", "sport"], "'sport'", "on_demand, spot, reserved"),
        (["--max-price", "-3"], "must be above 0", "12.5"),
        (["--max-price", "nan"], "must be above 0", None),
        (["--sort", "beauty"], "'beauty' is none of", None),
        (["--catalogue", "/nowhere/offers.csv"], "cannot read /nowhere/offers.csv", None),
        (["--csv", "--json"], "exclude each other", None),
        (["--limit", "-1"], "--limit", None),
    ],
)
def test_bad_questions_are_usage_errors_with_a_hint(
    capsys: pytest.CaptureFixture[str], args: list[str], message: str, hint: str | None
) -> None:
    out, err = ask(capsys, *args, code=2)
    assert message in err
    assert hint is None or ("hint: " in err and hint in err)
    if "--json" in args:
        assert json.loads(out)["error"]["kind"] == "usage"
    else:
        assert out == ""


def test_no_match_is_an_empty_list_and_says_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "--gpu", "P100")["offers"] == []
    out, err = ask(capsys, "--gpu", "P100")
    assert out == ""
    assert "0 of 0 matching offers" in err
    assert "no P100 offers" in err
    assert "not in the catalogue" not in ask(capsys, "--gpu", "H100")[1]


def test_doctor_passes_the_bundled_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "doctor")
    assert (found["errors"], found["offers"]) == (0, 4248)
    codes = {f["code"] for f in found["findings"]}
    assert codes >= {"age_unknown", "gpu_count_unknown", "no_gcp_n1", "no_p100"}
    out, err = ask(capsys, "doctor")
    assert "warning" in out
    assert "error" not in out
    assert "4,248 offers examined" in err


def test_doctor_finds_what_is_wrong_in_a_users_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "offers.csv"
    path.write_text(
        "cloud,region,instance_type,gpu,gpu_count,vcpus,market,usd_per_hour,as_of\n"
        "aws,us-east-1,p3.2xlarge,V100,1,8,spot,99,2026-07-01\n"  # dearer than the bundled on-demand row
        "aws,us-east-1,p3.16xlarge,V100,8,64,on_demand,2.5,2026-07-01\n"  # less than bundled p3.2xlarge
        "lab,attic,a,A100,1,8,on_demand,0,2026-07-01\n"
        "lab,attic,b,A100,1,8,on_demand,nan,2026-07-01\n"
        "lab,attic,c,A100,1,8,on_demand,1,2026-07-01\n"
        "lab,attic,c,A100,1,8,on_demand,2,\n"
    )
    found = document(capsys, "doctor", "--csv", str(path), code=7)
    errors = {f["code"]: f["count"] for f in found["findings"] if f["level"] == "error"}
    assert errors == {
        "spot_above_on_demand": 1,
        "more_gpus_for_less": 1,
        "price_not_positive": 1,
        "price_missing": 1,
        "duplicate": 2,
    }
    assert found["error"]["kind"] == "integrity"
    assert found["offers"] == 6
    out, err = ask(capsys, "doctor", "--csv", str(path), code=7)
    assert "spot costs more than on-demand" in out
    assert "error: 5 kinds of wrong figures" in err


def test_doctor_examines_the_users_own_offers_even_where_a_plan_would_refuse_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    header = "cloud,region,instance_type,gpu,gpu_count,market,usd_per_hour\n"
    (config / "offers.csv").write_text(header + "lab,attic,box,A100,2,on_demand,-1\n")
    out, err = ask(capsys, code=2)
    assert (out, "line 2, column usd_per_hour" in err) == ("", True)
    found = document(capsys, "doctor", code=7)
    assert found["offers"] == 4249
    assert [f["code"] for f in found["findings"] if f["level"] == "error"] == ["price_not_positive"]


def test_neither_help_nor_import_costs_numpy() -> None:
    code = "import arylcloud.cli.prices, sys; sys.exit('numpy' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prices_never_imports_pandas_or_an_sdk() -> None:
    code = (
        "import sys; from arylcloud.cli.main import run; assert run(['prices', '--json']) == 0;"
        "sys.exit(any(m in sys.modules for m in ('pandas', 'boto3', 'google.cloud', 'azure', 'scipy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--gpu", "H100:3"), "H100 is sold 1, 2, 4 or 8 to a machine"),
        (("--gpu", "H100", "--max-age", "1s"), "the newest price of these is "),
        (("--gpu", "H100", "--max-price", "0.01"), "the cheapest of these costs $1.28/h a machine"),
        (
            ("--gpu", "T4", "--infra", "aws", "--use-spot"),
            "no spot price is known of aws T4: `arylcloud prices --refresh --infra aws` asks for them",
        ),
    ],
)
def test_where_nothing_matches_it_says_what_there_is(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert run(["prices", *flags]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert any(line.startswith(said) for line in err.splitlines()), err


def test_no_spot_price_is_said_where_it_bears_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(ASKED) == set(SOURCES)
    for flags, there in (
        (["--gpu", "T4"], True),
        (["--gpu", "T4", "--market", "on_demand"], False),
        (["--gpu", "H100", "--infra", "aws"], False),
        (["--infra", "aws"], False),
    ):
        assert run(["prices", *flags]) == 0
        assert ("no spot price is known" in capsys.readouterr().err) is there, flags
