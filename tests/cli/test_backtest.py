"""``arylcloud backtest`` as a person and as a script use it."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arylcloud.cli.backtestview import strips
from arylcloud.cli.main import run
from arylcloud.cli.settings import folders
from arylcloud.core import events as ev
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.launcher.journal import Journal
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.sweep import Backtest
from arylcloud.simulation.spottraces import write_spot_trace

KEYS = {
    "cost_mean",
    "cost_p90",
    "cost_over_on_demand",
    "cost_over_optimum",
    "misses",
    "interruptions",
    "moves",
}
SMALL = ("--work-h", "6", "--deadline-h", "9", "--starts", "3")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "t.csv.gz"
    write_spot_trace(invented(5, zones=3, days=3, machines=4), path)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["backtest", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_document(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    names = "on_demand,greedy,uniform_progress,uniform_progress_any_zone,skynomad,default,optimum"
    args = ("--trace", trace, "--policy", names, *SMALL, "--json")
    code, out, _ = call(capsys, *args)
    found = json.loads(out)
    assert code == 0
    assert next(iter(found)) == "schema_version"
    assert set(found["policies"]) == set(names.split(","))
    for figures in found["policies"].values():
        assert figures.keys() >= KEYS
        assert figures["misses"] == 0
        assert figures["cost_over_optimum"] >= 1 - 1e-9
    assert found["policies"]["on_demand"]["cost_mean"] == pytest.approx(4.0 * 6.2)
    assert found["policies"]["uniform_progress"]["runs"] == 9
    assert call(capsys, *args)[1] == out


def test_two_processes_give_the_same_bytes(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    args = ("--trace", trace, "--policy", "greedy,default", *SMALL, "--json")
    assert call(capsys, *args, "--engine", "processes:2")[1] == call(capsys, *args)[1]


def test_a_dask_cluster_gives_the_same_bytes(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    args = ("--trace", trace, "--policy", "greedy,default", *SMALL, "--json")
    expected = call(capsys, *args)[1]
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        assert call(capsys, *args, "--engine", f"dask://{address}")[1] == expected


def test_dask_that_is_not_there_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, err = call(capsys, "--invent", "1", *SMALL, "--engine", "dask://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert "pip install distributed" in err


def test_gangs_pay_for_all_their_machines(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    one, four = (
        json.loads(
            call(capsys, "--trace", trace, "--machines", n, "--policy", "default", *SMALL, "--json")[1]
        )
        for n in ("1", "4")
    )
    assert four["policies"]["default"]["cost_mean"] == pytest.approx(
        4 * one["policies"]["default"]["cost_mean"]
    )
    five = json.loads(
        call(capsys, "--trace", trace, "--machines", "5", "--policy", "default", *SMALL, "--json")[1]
    )
    assert five["policies"]["default"]["cost_over_on_demand"] == pytest.approx(1.0)


def test_an_elastic_gang(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    args = ("--trace", trace, "--policy", "greedy,uniform_progress", *SMALL)
    _, out, _ = call(capsys, *args, "--gang", "2..4", "--scaling", "1", "--json")
    elastic = json.loads(out)
    rigid = json.loads(call(capsys, *args, "--machines", "4", "--json")[1])
    assert (elastic["machines_min"], elastic["machines"]) == (2, 4)
    assert (rigid["machines_min"], rigid["machines"]) == (4, 4)
    for figures in elastic["policies"].values():
        assert figures["misses"] == 0
    bound = elastic["policies"]["optimum"]["cost_mean"]
    assert 0 < bound <= rigid["policies"]["optimum"]["cost_mean"] + 1e-9
    assert elastic["policies"]["uniform_progress"]["runs"] == 9
    assert elastic["on_demand_usd"] == pytest.approx(rigid["on_demand_usd"])
    assert call(capsys, *args, "--gang", "2..4", "--scaling", "1", "--json")[1] == out
    code, _, told = call(capsys, *args, "--gang", "2..4")
    assert (code, "2 to 4 machines" in told) == (0, True)


def test_a_job_that_shrinks_is_an_elastic_gang_at_the_planners_speeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "p3.csv"
    write_spot_trace(
        dataclasses.replace(invented(5, zones=3, days=3, machines=3), instance_type="p3.2xlarge"), path
    )
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: j\nrun: x\naryl: {work: 36000 steps, deadline: 9h, nodes: 1..3,"
        " profile: {unit: steps/s, 'V100:1': 1.0}}\n"
    )
    code, out, err = call(
        capsys, str(job), "--trace", str(path), "--policy", "greedy", "--starts", "3", "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert (found["machines_min"], found["machines"], found["policies"]["greedy"]["misses"]) == (1, 3, 0)
    # three machines do it faster than one alone, by less than three times
    assert 36000 / 3600 / 3 < found["work_h"] < 36000 / 3600
    _, out, _ = call(
        capsys,
        str(job),
        "--trace",
        str(path),
        "--machines",
        "3",
        "--policy",
        "greedy",
        "--starts",
        "3",
        "--json",
    )
    assert json.loads(out)["machines_min"] == 3


def test_the_screen_and_the_page(capsys: pytest.CaptureFixture[str], trace: str, tmp_path: Path) -> None:
    page = tmp_path / "b.html"
    code, out, err = call(capsys, "--trace", trace, "--policy", "greedy,default", *SMALL, "--html", str(page))
    assert code == 0
    assert "greedy" in out
    assert "optimum" in out
    assert "3 zones; 3 starts" in err
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<circle") == 3


@pytest.mark.parametrize("columns", ["80", "120"])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, trace: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    names = ["greedy", "uniform_progress_any_zone", "skynomad"]
    code, out, _err = call(capsys, "--trace", trace, "--policy", ",".join(names), *SMALL)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    figures = [line.split()[0] for line in lines if "/" in line and line.split()[1].startswith("$")]
    assert figures == [*names, "optimum"], "a name is whole, beside its figures"
    assert ("od h: hours on demand" in out) is (columns == "80"), "what is short is said at length"


def test_strips_leave_room_for_long_names() -> None:
    name = "a_policy_whose_name_says_everything"
    costs = np.array([12345.0, 23456.0, 34567.0])
    made = Backtest(figures={}, usd={name: costs}, on_demand_usd=45678.0, starts=np.arange(3))
    for columns in (80, 70, 120):
        lines = strips(made, columns).splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[0].startswith(f"{name} ")
        assert lines[1].endswith("$45,678.00")


def test_policies_that_differ_by_less_than_a_cent_do_not_look_alike() -> None:
    made = Backtest(
        figures={}, usd={"a": np.array([0.0123]), "b": np.array([0.0131])}, on_demand_usd=0.05,
        starts=np.arange(1),
    )  # fmt: skip
    assert strips(made).splitlines()[2].endswith("$0.0500")


def test_on_an_invented_trace_the_work_takes_the_hours_of_the_best_offer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its type is nobody's: no rate can be known of it."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: j\nrun: x\nresources: {accelerators: V100:1}\n"
        "aryl: {work: 36000 steps, deadline: 30h, profile: {unit: steps/s, 'V100:1': 1.0}}\n"
    )
    code, out, err = call(capsys, str(job), "--invent", "1", "--policy", "greedy", "--starts", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["work_h"] == pytest.approx(10.0)
    assert "invented.1x is no type of the catalogue" in err


def test_work_and_deadline_come_from_a_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "v100.csv"
    head = "cloud,region,zone,instance_type,offset_s,duration_s,available,spot_usd_per_hour,"
    head += "on_demand_usd_per_hour\n"
    path.write_text(head + "aws,us-east-1,us-east-1a,p3.2xlarge,0,864000,1,0.918,3.06\n")
    job = tmp_path / "job.yaml"
    job.write_text(
        "run: 'true'\naryl: {profile: {'V100:1': 2.0, unit: steps/s}, work: 72000 steps, deadline: 20h,"
        " checkpoint: {size_gb: 3}}\n"
    )
    code, out, err = call(
        capsys, str(job), "--trace", str(path), "--starts", "2", "--policy", "default", "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["work_h"] == pytest.approx(10.0)
    assert (found["deadline_h"], found["checkpoint_gb"]) == (20.0, 3.0)
    assert found["policies"]["default"]["cost_mean"] == pytest.approx(0.918 * 10.2)

    assert run(["plan", str(job), "--past", str(path), "--json"]) == 0
    past = json.loads(capsys.readouterr().out)["backtest"]
    assert (past["work_h"], past["starts"]) == (pytest.approx(10.0), 60)
    assert past["policies"]["default"]["cost_mean"] == pytest.approx(0.918 * 10.2)
    assert past["policies"]["on_demand"]["cost_mean"] == pytest.approx(3.06 * 10.2)
    assert run(["plan", str(job), "--past", str(path)]) == 0
    said = capsys.readouterr().err
    assert (
        "1 × p3.2xlarge would have cost $9.36 (p90 $9.36) by the deadline policy default, none late" in said
    )
    assert "on demand $31.21" in said
    # a home that has seen nothing yet gets its plan all the same
    assert run(["plan", str(job), "--past", "own", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chosen"] is not None
    assert told["backtest"] is None
    assert run(["plan", str(job), "--past", "own"]) == 0
    assert "on own: nothing can be replayed: this home has seen no spot" in capsys.readouterr().err


def plan_past(capsys: pytest.CaptureFixture[str], job: Path, path: str) -> tuple[dict[str, Any] | None, str]:
    """As a document, and as the screen has it."""
    assert run(["plan", str(job), "--past", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["backtest"]
    assert run(["plan", str(job), "--past", path]) == 0
    return found, capsys.readouterr().err


@pytest.fixture
def flaky(tmp_path: Path) -> str:
    """V100s in two zones that come and go, where policies differ."""
    path = tmp_path / "flaky.csv"
    made = dataclasses.replace(
        invented(5, zones=2, days=6, machines=4), instance_type="p3.2xlarge", gpu="V100", gpu_count=1
    )
    write_spot_trace(made, path)
    return str(path)


DUE = "run: x\n{more}aryl: {{profile: {{'V100:1': 2.0, unit: steps/s}}, work: {work}, deadline: 20h{aryl}}}\n"


@pytest.mark.parametrize(
    ("policy", "more", "size"),
    [
        ("default", "", "1 × p3.2xlarge"),
        ("uniform_progress_any_zone", "", "1 × p3.2xlarge"),
        ("on_demand", "", "1 × p3.2xlarge"),
        ("default", "num_nodes: 2\n", "2 × p3.2xlarge"),
        ("default", "", "2 to 4 × p3.2xlarge"),
    ],
)
def test_a_plans_line_is_the_backtest_of_the_jobs_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flaky: str, policy: str, more: str, size: str
) -> None:
    job = tmp_path / "job.yaml"
    nodes = ", nodes: 2..4" if "to" in size else ""
    job.write_text(DUE.format(more=more, work="72000 steps", aryl=f", policy: {policy}{nodes}"))
    past, said = plan_past(capsys, job, flaky)
    assert past is not None
    assert past["policy"] == policy
    assert size in said
    assert f"by the deadline policy {policy}, " in said
    names = ("--policy", f"{policy},on_demand", "--no-optimum")
    code, out, err = call(capsys, str(job), "--trace", flaky, *names, "--json")
    assert code == 0, err
    assert {k: v for k, v in past.items() if k != "policy"} == {
        k: v for k, v in json.loads(out).items() if k != "schema_version"
    }


@pytest.mark.parametrize(
    ("aryl", "work", "why"),
    [
        (", policy: off", "72000 steps", "`policy: off` leaves the job to the launcher's own rules"),
        (", nodes: 2..4, budget: $900", "72000 steps", "and no budget"),
    ],
)
def test_what_the_launcher_would_not_do_is_not_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flaky: str, aryl: str, work: str, why: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(DUE.format(more="", work=work, aryl=aryl))
    past, said = plan_past(capsys, job, flaky)
    assert past is None
    assert "not replayed: " in said
    assert why in " ".join(said.split())
    assert "would have cost" not in said


HINT = "--past own adds what the job's deadline policy would have cost"


def test_own_history_tells_of_its_zones_and_a_plan_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    job = tmp_path / "job.yaml"
    job.write_text(DUE.format(more="", work="72000 steps", aryl=""))
    assert run(["plan", str(job)]) == 0
    assert HINT not in capsys.readouterr().err, "there is nothing to replay"

    now_s = time.time()
    here = Offer(
        cloud="aws", region="us-east-1", zone="use1-az1", instance_type="p3.2xlarge", gpu="V100", gpu_count=1,
        gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=Market.SPOT, usd_per_hour=0.918, as_of=None,
        source="x",
    )  # fmt: skip
    far = dataclasses.replace(here, region="xx-nowhere-1", zone="xx-az1")
    dark = dataclasses.replace(here, zone="use1-az9")
    from_s = now_s - 90 * 3600
    submitted = ev.JobSubmitted(
        spec=JobSpec(name="j", run="x"),
        prefix_uri="",
        journal_id="",
        market_origin_s=from_s,
        market_scale=1.0,
    )
    told: list[tuple[float, ev.Event]] = [(from_s, submitted)]
    for at, (lease, offer) in enumerate({"a": here, "b": far, "c": dark}.items()):
        intended = ev.LeaseIntended(
            lease_id=lease, token="t", offer=offer, index=0, attempt=1, purpose="start", until_s=1e12, why=""
        )
        created = ev.LeaseCreated(
            lease_id=lease, instance_id=lease, launched_s=from_s + at, usd_per_hour=0.918, address=None
        )
        told += [(from_s + at, event) for event in (intended, created)[: 1 if lease == "c" else 2]]
    folders().state.mkdir(parents=True, exist_ok=True)
    with Journal(folders().journal) as journal:
        for at_s, event in told:
            journal.append("j-00000001", at_s, "w", event, None, mirror=None, strict=False)

    few = ("--policy", "default", "--starts", "2", "--no-optimum")
    code, out, err = call(capsys, str(job), "--trace", "own", *few, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["zones"] == ["aws/us-east-1/use1-az1", "aws/xx-nowhere-1/xx-az1"]
    dark_said, far_said = found["notes"]
    assert dark_said.startswith("aws/us-east-1/use1-az9 is left out: no spot capacity")
    assert far_said.startswith("aws/xx-nowhere-1/xx-az1: no on-demand price")
    assert far_said.endswith("the highest known in other regions")
    code, _, err = call(capsys, str(job), "--trace", "own", *few)
    said = " ".join(err.split())
    assert code == 0
    assert dark_said in said
    assert far_said in said

    assert run(["plan", str(job)]) == 0
    assert HINT in " ".join(capsys.readouterr().err.split())
    assert run(["plan", str(job), "--past", "own"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "on own (2 zones, 60 starts): 1 × p3.2xlarge would have cost" in said
    assert far_said in said
    assert HINT not in said
    job.write_text(DUE.format(more="num_nodes: 2\n", work="72000 steps", aryl=""))
    past, said = plan_past(capsys, job, "own")
    assert past is None, "one machine is no room for two: every start would be on demand"
    assert "counts one machine per zone" in " ".join(said.split())
    for aryl in (", policy: off", ", recovery: none"):
        job.write_text(DUE.format(more="", work="72000 steps", aryl=aryl))
        assert run(["plan", str(job)]) == 0
        assert HINT not in " ".join(capsys.readouterr().err.split()), "not where it would be refused"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "capacity comes from --trace"),
        (("--invent", "1"), 2, "how much work"),
        (("--invent", "1", *SMALL, "--policy", "nosuch"), 2, "no deadline policy 'nosuch'"),
        (("--invent", "1", "--work-h", "5", "--deadline-h", "5"), 3, "do not fit into 5 h"),
        (("--invent", "1", "--work-h", "600", "--deadline-h", "900"), 2, "before a deadline of 900 h"),
        (("--invent", "1", *SMALL, "--home-region", "mars"), 2, "no zone of 'mars'"),
        (("--invent", "1", *SMALL, "--checkpoint-gb", "5"), 2, "no tariff from invented/region-1"),
        (("--invent", "1", *SMALL, "--policy", "optimum", "--no-optimum"), 2, "exclude each other"),
        (("--invent", "1", *SMALL, "--engine", "abacus"), 2, "no engine 'abacus'"),
        (("--invent", "1", *SMALL, "--gang", "4..2"), 2, "the smaller first"),
        (("--invent", "1", *SMALL, "--gang", "2..4", "--machines", "4"), 2, "exclude each other"),
        (("--invent", "1", *SMALL, "--gang", "2..4", "--scaling", "2"), 2, "--scaling is 2"),
        (("--invent", "1", *SMALL, "--gang", "1..2", "--tick-s", "900"), 2, "ticks no longer"),
        (("--trace", "nosuch.csv", *SMALL), 2, "cannot read nosuch.csv"),
        (("--trace", "own", *SMALL), 2, "no spot capacity yet"),
    ],
)
def test_faults(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, said: str) -> None:
    found, out, err = call(capsys, *args)
    assert (found, out) == (code, "")
    assert said in err
