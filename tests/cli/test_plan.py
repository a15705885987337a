"""``arylcloud plan`` as a command: its JSON, its table, plan files, exit codes. In process, no cloud."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.charts import Point, scatter
from arylcloud.cli.main import run
from arylcloud.cli.planfile import load_plan, save_plan, write_document
from arylcloud.core.errors import IntegrityError, LocalStateError, UsageError

JOB = """\
name: bert
run: python train.py
resources: {accelerators: [A100:8, V100:8, L4:8]}
aryl: {profile: mpt-125m, work: 40000 steps, deadline: 48h, budget: $900,
       data: [{uri: s3://b/x, size_gb: 10}]}
"""
KEYS = {
    "rank", "cloud", "region", "zone", "instance_type", "gpu", "gpu_count", "nodes", "market", "usd_per_hour",
    "as_of", "throughput", "throughput_unit", "throughput_source", "throughput_rel_error", "hours", "usd",
    "interruptions_per_hour", "meets_deadline", "meets_budget", "pareto", "why",
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def plan_json(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    assert run(["plan", *map(str, args), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_the_json_that_scripts_rely_on(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan_json(capsys, job, "--limit", 7)
    assert next(iter(found)) == "schema_version"
    assert {"job", "objective", "policy", "catalogue", "chosen", "candidates", "rejected"} <= found.keys()
    assert set(found["catalogue"]) == {"digest", "as_of", "offers"}
    assert len(found["candidates"]) == 7
    assert found["chosen"] == found["candidates"][0]
    for c in found["candidates"]:
        assert c.keys() >= KEYS
        usd = c["usd"]
        assert usd.keys() == {"p50", "p90", "mean", "compute", "boot", "egress", "storage", "lost_work"}
        assert sum(usd[k] for k in ("compute", "boot", "egress", "storage", "lost_work")) == pytest.approx(
            usd["mean"]
        )
        assert c["hours"].keys() >= {"p50", "p90"}
        assert c["meets_deadline"] is (c["hours"]["p90"] <= 48)
    assert all(r.keys() == {"reason", "count", "example"} for r in found["rejected"])
    assert [c["usd"]["mean"] for c in found["candidates"]] == sorted(
        c["usd"]["mean"] for c in found["candidates"]
    )


def test_flags_override(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cost = plan_json(capsys, job)
    time = plan_json(
        capsys, job, "--objective", "time", "--infra", "aws", "--market", "on_demand", "--nodes", "2"
    )
    assert (cost["objective"], time["objective"]) == ("cost", "time")
    assert time["chosen"]["hours"]["p50"] < cost["chosen"]["hours"]["p50"]
    assert {(c["cloud"], c["market"], c["nodes"]) for c in time["candidates"]} == {("aws", "on_demand", 2)}


def test_the_table_says_why_and_what_was_not_considered(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    assert run(["plan", str(job)]) == 0
    out = capsys.readouterr().out
    assert "bert · 40000 steps · objective cost · deadline 48 h · budget $900.00" in out
    for text in (
        "machines",
        "$ mean",
        "why",
        "not considered",
        "without this offer",
        "Pareto set",
        "hours (p50)",
    ):
        assert text in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 150


@pytest.mark.parametrize("columns", [80, 130, 220])
def test_places_are_named_as_everywhere_or_it_is_said(
    tmp_path: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``aws/us-east-1/use1-az4``, as ``launch``, ``status`` and ``report`` have it; the zone alone only where
    that spares a second line, and then the legend says so."""
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nresources: {accelerators: 'A100:8', infra: aws}\naryl: {market: spot}\n")
    assert run(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    table, _, rest = out.partition("#: rank")
    short = "where: CLOUD/ZONE" in rest
    assert bool(re.search(r"aws/[a-z]+\d-az\d", table)) is short
    assert bool(re.search(r"aws/[a-z]+-[a-z]+-\d/[a-z]+\d-az\d", table)) is not short


@pytest.mark.parametrize("columns", [80, 100])
def test_the_screen_fits_and_explains_its_columns(
    job: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["plan", str(job), "--objective", "mixed:3", "--market", "spot"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    flat = " ".join(out.split())
    for text in ("#: rank among all places", "+N: N more places", "p90: pessimistic", "score $",
                 "score: $ mean + $3 × hours p50", "P: nothing is faster and cheaper"):  # fmt: skip
        assert text in flat
    assert re.search(r"publ\. -\d+/\+\d+%", out)
    assert "aws/" in out


def test_the_score_that_is_shown_is_the_one_that_ranks(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["plan", str(job), "--objective", "mixed:3", "--limit", "60"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("#  machines"))
    end = lines[head].index("score $") + len("score $")
    scores = []
    for line in lines[head + 1 :]:
        if not re.match(r" *\d+  ", line):
            break
        scores.append(float(line[:end].split()[-1].replace(",", "")))
    assert len(scores) > 3
    assert scores == sorted(scores)


def test_rejections_are_few_lines_and_a_measurement_is_asked_for_in_words_that_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: m\nrun: x\naryl: {profile: mpt-7b, work: 1e9 tokens, nodes: 1..2}\n")
    found = plan_json(capsys, path, "--limit", 100_000)
    assert len(found["rejected"]) < 12
    offers = {
        (c["cloud"], c["region"], c["zone"], c["instance_type"], c["market"]) for c in found["candidates"]
    }
    assert sum(r["count"] for r in found["rejected"]) + len(offers) == found["catalogue"]["offers"]
    assert not any("profile measure" in text for text in found["why"])
    for c in found["candidates"][:50]:
        assert c["throughput_low"] < c["throughput"] < c["throughput_high"]
        wider = max(c["throughput_high"] / c["throughput"] - 1, 1 - c["throughput_low"] / c["throughput"])
        assert c["throughput_rel_error"] == pytest.approx(wider)


def test_a_short_job_is_told_in_seconds_and_fractions_of_a_cent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: tiny\nrun: x\naryl: {profile: {T4:1: 2, V100:1: 4, unit: steps/s}, work: 60 steps}\n"
    )
    assert run(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert "0.0 h" not in out
    assert "0-0 min" not in out
    assert " 0 min" not in out
    assert "$0.00 " not in out
    minutes = re.search(r"minutes \(p50\)|seconds \(p50\)", out)
    assert minutes is not None
    means = [float(m) for m in re.findall(r"(?:min|s)  \$ +([\d.]+)  ", out)]
    assert len(means) > 1
    assert all(mean > 0 for mean in means)


def test_the_winner_says_how_old_its_price_is(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = plan_json(capsys, job, "--market", "spot", "--infra", "aws")
    assert unknown["chosen"]["as_of"] is None
    assert "price is of UNKNOWN AGE" in unknown["why"][0]
    assert "--max-age" in unknown["why"][0]
    bare = job.with_name("bare.yaml")
    bare.write_text("run: x\nresources: {accelerators: A100:8, use_spot: true, cloud: aws}\n")
    assert any("price is of UNKNOWN AGE" in text for text in plan_json(capsys, bare)["why"])
    dated = plan_json(capsys, job, "--max-age", "3000d", "--budget", "$9999")
    assert dated["chosen"]["as_of"] is not None
    assert f"its price is of {dated['chosen']['as_of'][:10]}" in dated["why"][0]


def test_infeasible_is_exit_3_with_the_way_out(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(job), "--deadline", "30m", "--json"]) == 3
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["kind"] == "infeasible"
    assert re.search(r"deadline 30 min: the fastest of all needs \d", error["message"])
    assert "relax deadline to" in error["hint"]
    assert "relax deadline to" in err


@pytest.mark.parametrize(
    "flags",
    [["--budget", "-3"], ["--deadline", "10"], ["--gpus", "Z9:1"], ["--infra", "awz"],
     ["--objective", "fast"], ["--nodes", "0"], ["--market", "x"], ["--limit", "0"], ["--nonsense"],
     ["--instance", "a"]],
)  # fmt: skip
def test_bad_flags_are_exit_2(job: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(job), *flags, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "usage"


def test_a_job_without_profile_shows_no_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sky.yaml"
    path.write_text("run: x\nresources: {accelerators: 'V100:1', use_spot: true}\n")
    found = plan_json(capsys, path)
    assert found["chosen"]["usd"] is None
    assert found["chosen"]["hours"] is None
    assert "no profile" in found["chosen"]["why"]
    assert run(["plan", str(path)]) == 0
    assert "no profile" in capsys.readouterr().out


def test_limits_below_a_cent_are_said_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nresources: {accelerators: 'T4:1'}\naryl: {budget: 0.004, max_usd_per_hour: 9}\n")
    assert run(["plan", str(path)]) == 0
    assert "budget $0.004 · ≤ $9.00/h per machine" in capsys.readouterr().out


def test_a_plan_file_comes_back_and_a_changed_one_does_not(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run(["plan", str(job), "-o", str(path)]) == 0
    plan = load_plan(path)
    assert plan.job.name == "bert"
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    document["plan"]["chosen"]["offer"]["usd_per_hour"] = 0.01
    path.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="changed"):
        load_plan(path)
    path.write_text("{")
    with pytest.raises(IntegrityError, match="JSON"):
        load_plan(path)
    path.write_text("{}")
    with pytest.raises(UsageError, match="no plan"):
        load_plan(path)
    with pytest.raises(UsageError, match="no such file"):
        load_plan(tmp_path / "none.json")
    save_plan(plan, path)
    assert load_plan(path) == plan


def test_a_plan_that_cannot_be_written_is_one_line(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(job), "-o", str(tmp_path / "no" / "folder" / "plan.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_users_own_offers_are_planned_on(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path(os.environ["ARYLCLOUD_HOME"]) / "config"
    config.mkdir(parents=True, exist_ok=True)
    mine = config / "offers.csv"
    mine.write_text(
        "cloud,region,zone,instance_type,gpu,gpu_count,gpu_mem_gib,vcpus,mem_gib,market,usd_per_hour,as_of,source\n"
        "mine,cellar,,box,A100,8,40,64,512,reserved,0.10,2026-09-01,me\n"
    )
    try:
        found = plan_json(capsys, job)
    finally:
        mine.unlink()
    assert (found["chosen"]["cloud"], found["chosen"]["market"]) == ("mine", "reserved")
    assert any("mine: no tariff" in text for text in found["why"])


def test_charts_have_axes_units_and_an_ascii_form() -> None:
    points = [Point(x=1.0, y=100.0), Point(x=10.0, y=20.0, mark="a"), Point(x=100.0, y=1.0)]
    text = scatter(points, x_label="hours", y_label="USD", width=60, height=8)
    assert "USD (log)" in text
    assert "hours (log)" in text
    assert "a" in text
    assert any("\u2800" < c < "\u2900" for c in text)
    plain = scatter(points, x_label="hours", y_label="USD", width=60, height=8, unicode=False)
    assert plain.isascii()
    assert max(map(len, plain.splitlines())) <= 60
    assert scatter([], x_label="x", y_label="y") == ""
    assert scatter([Point(x=float("inf"), y=1)], x_label="x", y_label="y") == ""
    one = scatter([Point(x=2.0, y=3.0)], x_label="x", y_label="y")
    assert sum("\u2800" < c < "\u2900" for c in one) == 1


def test_gpus_that_lack_the_precision_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: m\nrun: x\naryl: {profile: {name: mpt-125m, precision: fp8}, work: 3e9 tokens}\n")
    found = plan_json(capsys, path, "--limit", 100_000)
    assert {"T4", "V100", "A100", "A10G"}.isdisjoint(c["gpu"] for c in found["candidates"])
    reasons = [r for r in found["rejected"] if "no fp8 (Ada or newer has it)" in r["reason"]]
    assert len(reasons) == 1
    assert reasons[0]["count"] > 1000
    for gpu in ("T4", "V100", "A100"):
        assert gpu in reasons[0]["reason"]
    path.write_text("name: m\nrun: x\naryl: {profile: {name: mpt-125m}, work: 4000 steps}\n")
    assert "one step = 640 samples" in plan_json(capsys, path)["why"][1]


def test_a_plan_goes_into_a_pipe_and_leaves_it_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_document({"a": 1}, pipe)
        assert json.loads(os.read(reader, 1000)) == {"a": 1}
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_a_full_disk_is_said_and_the_device_stays(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(LocalStateError, match="No space left"):
        write_document({"a": 1}, link)
    assert link.is_symlink()
