"""``arylcloud report`` from a real journal: exit codes, JSON, text and page."""

from __future__ import annotations

import doctest
import html
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.diary import JOB, Diary, offer, survivor

from arylcloud.cli import plantable, report_chart, report_text
from arylcloud.cli.main import run
from arylcloud.cli.report import account, document
from arylcloud.cli.report_html import page
from arylcloud.cli.report_plan import beside_plan, elapsed, why_beside
from arylcloud.cli.report_text import amounts, show
from arylcloud.cli.settings import folders
from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.offer import Market
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.journal import Journal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    folders().state.mkdir(parents=True)
    return tmp_path


def keep(diary: Diary) -> None:
    with Journal(folders().journal) as journal:
        for record in diary.records:
            journal.append(
                record.job_id,
                record.at_s,
                record.writer,
                record.event,
                record.cause_id,
                mirror=None,
                strict=False,
            )


def with_quotes() -> Diary:
    twin = offer("", market=Market.ON_DEMAND, usd_per_hour=7.2)
    return survivor().write(4001.0, ev.BaselineQuoted(name="on_demand", offer=twin, speed=1.0))


def as_json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert run(["report", *args, "--json"]) == code
    made = json.loads(capsys.readouterr().out)
    assert isinstance(made, dict)
    return made


def test_json_is_one_document_whose_parts_sum(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(with_quotes())
    found = as_json(capsys)
    assert found["schema_version"] == 1
    assert (found["job_id"], found["phase"], found["exit_code"]) == (JOB, "succeeded", 0)
    usd = found["usd"]
    assert usd["total"] == 3.705
    assert round(usd["compute"] + usd["egress"] + usd["storage"], 6) == usd["total"]
    assert round(usd["useful"] + sum(usd["waste"].values()), 6) == usd["compute"]
    assert usd["waste"] == {"boot": 0.3225, "lost_work": 0.3, "idle": 1.095}
    assert (found["interruptions"], found["migrations"], found["epochs"], found["attempts"]) == (2, 1, 6, 4)
    assert found["final_step"] == 328
    names = {b["name"]: b for b in found["baselines"]}
    assert names["on_demand"]["usd"] == 6.845
    assert names["on_demand"]["saving"] == pytest.approx(1 - 3.705 / 6.845)
    assert names["fixed_zone"]["usd"] is None
    assert "not quoted" in names["fixed_zone"]["basis"]


def test_the_bill_can_be_recomputed_from_the_document(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(survivor())
    found = as_json(capsys)
    total = 0.0
    for lease in found["leases"]:
        end = lease["launched_s"] + lease["billed_s"]
        points = [(p["from_s"], p["usd_per_hour"]) for p in lease["prices"]] + [(end, 0.0)]
        total += sum(price * (points[i + 1][0] - at) / 3600 for i, (at, price) in enumerate(points[:-1]))
        assert sum(s["to_s"] - s["from_s"] for s in lease["spans"]) == lease["billed_s"]
    assert total == pytest.approx(found["usd"]["compute"], abs=1e-6)


def test_text_says_the_cost_first_and_adds_up_as_shown(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(with_quotes())
    assert run(["report", "digits"]) == 0
    out = capsys.readouterr().out
    first, second = out.splitlines()[:2]
    assert first.startswith(f"{JOB} · succeeded (exit 0)")
    assert second == "$3.71 = compute $3.65 + egress $0.05 + storage $0.01"
    split = [
        int(d + c) for d, c in re.findall(r"^  (?:useful|boot|lost work|idle) +\$(\d+)\.(\d\d)", out, re.M)
    ]
    assert len(split) == 4
    assert sum(split) == 365
    assert "interrupted without notice" in out
    assert "interrupted, announced" in out
    assert "one fixed zone" in out
    assert "not known" in out
    assert "not included: taxes" in out
    assert "\x1b" not in out


def test_unknown_egress_is_said_in_every_form(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited = JobSpec(name="digits", run="x", constraints=Constraints(budget_usd=10.0))
    diary = Diary(spec=limited).lease("a", 0.0).end("a", 3600.0)
    text = "traffic from the store (whose region is not known) to aws/us-east-1"
    diary.write(3700.0, ev.Charged(what="egress", usd=0.5, gb=5.0, text="", unknown=text))
    keep(diary)
    found = as_json(capsys)
    assert (found["usd"]["total"], found["usd"]["egress"], found["usd"]["compute"]) == (None, None, 3.6)
    assert found["usd"]["known"] == 4.1
    assert found["unknown"] == [f"egress: no price is known of {text}"]
    assert run(["report"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "at least $4.10: compute $3.60 + egress unknown + storage $0.00 (at least 41% of the budget" in out
    assert f"not known: egress: no price is known of {text}" in out
    assert run(["report", "--html", str(home / "page.html")]) == 0
    assert "egress unknown" in (home / "page.html").read_text(encoding="utf-8")


def test_an_unknown_price_is_said_in_every_form(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diary = Diary().lease("a", 0.0, usd_per_hour=None).end("a", 3600.0)
    keep(diary.lease("b", 4000.0).end("b", 7600.0))
    found = as_json(capsys)
    assert (found["usd"]["total"], found["usd"]["compute"], found["usd"]["useful"]) == (None, None, None)
    assert found["usd"]["known"] == 3.6
    assert len(found["unknown"]) == 1
    assert run(["report"]) == 0
    out = capsys.readouterr().out
    assert "cost unknown, at least $3.60" in out
    assert "not known: price of p3.2xlarge" in out
    assert "$0.00" not in out
    html = page(account(diary.records, now_s=9999.0))
    assert "cost unknown, at least $3.60" in html
    assert "Not known: price of p3.2xlarge" in html


def test_a_failure_shows_its_reason(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case 76: the reason is in the default output."""
    from arylcloud.core.phases import JobPhase

    diary = Diary().lease("a", 0.0).end("a", 100.0)
    keep(diary.phase(101.0, JobPhase.FAILED, "user_command", "rank 0 exited 7: no module torch", exit_code=7))
    assert run(["report"]) == 0
    assert "failed (exit 7)" in (out := capsys.readouterr().out)
    assert "rank 0 exited 7: no module torch" in out


def short_lives(price: float | None = 3.6) -> Diary:
    """Two machines of less than the 60 s that are billed: one without a step, one with."""
    diary = Diary().lease("a", 0.0, usd_per_hour=price).end("a", 10.0)
    diary.lease("b", 20.0, usd_per_hour=price).epoch(22.0, "b").train(1, "b", 25.0)
    return diary.halt(1, "b", 45.0, how="drained", last=4, committed=4, saved_s=45.0).end("b", 50.0)


def test_what_is_billed_after_a_machines_end_is_told_apart(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(short_lives())
    found = as_json(capsys)
    least = found["minimum_billing"]
    assert (least["machines"], least["machine_hours"]) == (2, pytest.approx(80 / 3600))
    assert least["usd"] == 0.08
    assert least["usd"] < found["usd"]["waste"]["boot"] + found["usd"]["waste"]["idle"]
    assert run(["report"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of boot and idle, 80 s ($0.0800) were billed after the ends of 2 machines" in said
    assert "the cloud bills at least 60 s of each" in said
    html = page(account(short_lives().records, now_s=200.0))
    assert html.count('class="span after p') == 2
    assert "billed after the ends of 2 machines" in html
    long = Diary().lease("a", 0.0).end("a", 600.0)
    assert "after" not in page(account(long.records, now_s=700.0)).partition("</style>")[2].replace(
        "launched after", ""
    ).replace(">after<", "")


def test_what_is_billed_after_the_end_at_an_unknown_price(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(short_lives(price=None))
    assert as_json(capsys)["minimum_billing"]["usd"] is None
    assert run(["report"]) == 0
    assert "80 s (at an unknown price)" in " ".join(capsys.readouterr().out.split())


def test_the_page_says_which_clock_its_times_are_of() -> None:
    """Wall time has a date; the local cloud's market time has none."""
    origin = 1_796_040_000.0  # 2026-11-30 12:00 UTC
    fast = Diary(scale=600.0, origin_s=origin)
    fast.records[0] = replace(fast.records[0], at_s=origin + 100.0)
    html = page(
        account(fast.lease("a", origin + 70_000.0).end("a", origin + 80_000.0).records, now_s=origin + 200.0)
    )
    assert "submitted 2026-11-30 12:01:40 UTC" in html
    assert "600 times as fast" in html
    assert "of market time" in html
    assert "2 h 47 min" in html, "launched so long after the submission"
    assert html.count("UTC") == 2, "the submission, and up to when it is counted"
    assert "counted up to 2026-11-30 12:03:20 UTC" in html
    slow = page(account(Diary().lease("a", 0.0).end("a", 600.0).records, now_s=700.0))
    assert "market time" not in slow
    assert "Times count from the submission." in slow


def test_compressed_time_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(Diary(scale=60.0).lease("a", 0.0).end("a", 600.0))
    assert as_json(capsys)["compressed_time"] is True
    assert run(["report"]) == 0
    said = capsys.readouterr().out
    assert "nobody spent these dollars" in said
    assert "nobody spends" not in said


@pytest.mark.parametrize(
    ("clouds", "local"), [("local", True), ("local aws", False), ("aws", False), ("", False)]
)
def test_the_local_clouds_dollars_are_told_as_nobodys(
    home: Path, capsys: pytest.CaptureFixture[str], clouds: str, local: bool
) -> None:
    """In plain time, too: the default market's."""
    diary = Diary()
    for i, cloud in enumerate(clouds.split()):
        diary.lease(f"m{i}", 700.0 * i, at=offer(cloud=cloud)).end(f"m{i}", 700.0 * i + 600.0)
    keep(diary)
    assert run(["report"]) == 0
    assert ("local cloud: nobody spends these dollars" in capsys.readouterr().out) is local
    assert (
        "Local cloud: nobody spends these dollars." in page(account(diary.records, now_s=2000.0))
    ) is local


def test_budget_stands_beside_the_cost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = JobSpec(name="x", run="true", constraints=Constraints(budget_usd=2.0))
    keep(Diary(spec=spec).lease("a", 0.0).end("a", 1000.0))
    assert run(["report"]) == 0
    assert "(50% of the budget of $2.00)" in capsys.readouterr().out


def test_no_such_job_is_102_in_both_forms(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report"]) == 102
    assert "no job has been launched" in capsys.readouterr().err
    keep(survivor())
    assert as_json(capsys, "nope", code=102)["error"]["kind"] == "no_such_job"


def test_the_page_needs_nothing_from_anywhere(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(with_quotes())
    path = home / "r.html"
    assert run(["report", "--html", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert str(path) in captured.err
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=|url\((?!#)|@import|https?://|<script", text)
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    spans = [e.get("class") for e in svg.iter("rect")]
    assert sum("lost_work" in str(c) for c in spans) == 1
    assert len(list(svg.iter("circle"))) == 5
    assert [g.get("class") for g in svg.iter("g")] == ["cut", "cut announced"]
    assert "$3.71" in text


def test_a_page_that_cannot_be_written_is_a_usage_error(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(survivor())
    assert run(["report", "--html", str(home / "none" / "r.html")]) == 2
    captured = capsys.readouterr()
    assert "cannot write" in captured.err
    assert captured.out == ""


class Balanced(HTMLParser):
    """Every tag that opens is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return None

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", 'a"b&c', "ünï"])
def test_the_page_escapes_what_a_user_wrote(name: str) -> None:
    diary = Diary(spec=JobSpec(name=name, run="true"), job_id="j-1").lease("a", 0.0).end("a", 100.0)
    diary.write(1.0, ev.LauncherStarted(launcher_id="l", host="h", pid=1))
    text = page(account(diary.records, now_s=200.0))
    assert "<script" not in text
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []


@pytest.mark.parametrize("count", range(1, len(survivor().records) + 1))
def test_every_moment_of_a_job_can_be_reported(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Case 49's other side: a report of a job under way, at any record of its journal."""
    made = account(survivor().records[:count], now_s=5000.0)
    parser = Balanced()
    parser.feed(page(made))
    assert parser.open == []
    assert json.loads(json.dumps(document(made), allow_nan=False))["job_id"] == JOB
    show(made)
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 120


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_shown_amounts_add_up_to_the_shown_sum(micro: list[int]) -> None:
    shown = [round(float(text.strip("$").replace(",", "")) * 10_000) for text in amounts(micro)]
    unit = 100 if sum(micro) >= 1_000_000 or sum(micro) == 0 else 1
    assert abs(sum(shown) * 100 - sum(micro)) <= unit * 50
    for value, text in zip(micro, shown, strict=True):
        assert abs(text * 100 - value) <= unit * 100


def planned(diary: Diary, **figures: float) -> Diary:
    """``diary``, of a job whose plan expected this."""
    first = diary.records[0]
    assert isinstance(first.event, ev.JobSubmitted)
    event = replace(first.event, planned=ev.Planned(**figures))
    return replace(diary, records=[replace(first, event=event), *diary.records[1:]])


@pytest.mark.parametrize(
    ("usd", "hours", "verdicts"),
    [
        ((4.0, 5.0), (2.0, 3.0), ("under p50", "under p50")),
        ((3.0, 3.8), (1.0, 1.3), ("between p50 and p90", "between p50 and p90")),
        ((3.0, 3.7), (1.0, 1.1), ("over p90", "over p90")),
    ],
)
def test_what_was_planned_stands_beside_what_came(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    usd: tuple[float, float],
    hours: tuple[float, float],
    verdicts: tuple[str, str],
) -> None:
    keep(planned(survivor(), usd_p50=usd[0], usd_p90=usd[1], hours_p50=hours[0], hours_p90=hours[1]))
    found = as_json(capsys, "--html", str(home / "page.html"))
    taken = (found["ended_s"] - found["started_s"]) / 3600
    assert found["plan"] == {
        "usd": {"p50": usd[0], "p90": usd[1]},
        "hours": {"p50": hours[0], "p90": hours[1]},
        "hours_taken": pytest.approx(taken),
    }
    assert run(["report", "digits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "the plan at launch" in line)
    cost, time = lines[at + 1 : at + 3]
    assert cost.split()[:4] == ["cost", f"${usd[0]:.2f}", f"${usd[1]:.2f}", "$3.71"]
    assert cost.endswith(verdicts[0])
    assert time.split()[:3] == ["time", "from", "submission"]
    assert time.endswith(verdicts[1])
    assert (home / "page.html").read_text().count(verdicts[0]) >= 1


def test_a_plan_is_judged_when_its_job_is_done(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"usd_p50": 3.0, "usd_p90": 4.0, "hours_p50": 1.0, "hours_p90": 9.0}
    runs = planned(Diary(), **figures).lease("a", 10.0).epoch(20.0, "a").train(1, "a", 30.0)

    def verdicts(diary: Diary, now_s: float) -> list[tuple[str, bool | None]]:
        return [(row.verdict, row.good) for row in beside_plan(account(diary.records, now_s=now_s))]

    assert verdicts(runs, 1000.0) == [("so far", None)] * 2
    assert verdicts(runs, 40_000.0) == [("over p90 already", False)] * 2
    runs.end("a", 1000.0).phase(1000.0, JobPhase.FAILED)
    assert verdicts(runs, 40_000.0) == [("did not finish", None)] * 2
    assert beside_plan(account(Diary().records, now_s=9.0)) == (), "a journal of before has no plan"
    keep(Diary())
    assert as_json(capsys)["plan"] is None


def test_where_the_difference_to_the_plan_came_from(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    keep(planned(survivor(), usd_p50=3.0, usd_p90=4.0, hours_p50=1.0, hours_p90=2.0))
    assert run(["report", "digits", "--html", str(home / "page.html")]) == 0
    out = capsys.readouterr().out
    for line in (
        "time 7 min over the median: useful work 55 min, boot 5 min (4 machines), lost work 5 min"
        " (2 interruptions), idle 2 min, no machine 11 s",
        "cost $0.71 over the median: useful work $1.93, boot + lost work + idle $1.72,"
        " egress + storage $0.06",
    ):
        assert f"  {line}\n" in re.sub(" +\n", "\n", out)
        assert html.escape(line) in (home / "page.html").read_text()


@pytest.mark.parametrize(
    ("usd", "hours", "says"),
    [
        (4.0, 2.0, ["time 53 min under the median: ", "cost $0.30 under the median: "]),
        (3.705, 4001 / 3600, []),
        (1.0, 0.5, ["steps were slower than planned", "hours were dearer than planned, or its steps slower"]),
    ],
)
def test_the_difference_is_said_as_far_as_it_is_known(usd: float, hours: float, says: list[str]) -> None:
    diary = planned(survivor(), usd_p50=usd, usd_p90=9.0, hours_p50=hours, hours_p90=9.0)
    made = account(diary.records, now_s=1e6)
    found = why_beside(made)
    assert len(found) == len(says)
    for text, part in zip(found, says, strict=True):
        assert part in text
    went = elapsed(made.report)
    assert sum(went.values()) == pytest.approx(4001.0), "every second once"
    assert went["useful"] == pytest.approx(made.report.seconds.useful), "of one machine at a time"


def test_a_job_that_did_not_finish_is_not_measured_by_its_plan() -> None:
    figures = {"usd_p50": 3.0, "usd_p90": 4.0, "hours_p50": 1.0, "hours_p90": 9.0}
    runs = planned(Diary(), **figures).lease("a", 10.0).epoch(20.0, "a").train(1, "a", 30.0)
    assert why_beside(account(runs.records, now_s=9000.0)) == ()
    runs.end("a", 1000.0).phase(1000.0, JobPhase.FAILED)
    assert why_beside(account(runs.records, now_s=9000.0)) == ()


@pytest.mark.parametrize(
    ("usd_per_hour", "shown"),
    [(7.2, "46%"), (3.8953, "0.1%"), (3.8925, "<0.1%"), (3.8915, "-<0.1%"), (1.0, "-286%")],
)
def test_what_is_not_the_same_does_not_read_as_the_same(
    home: Path, capsys: pytest.CaptureFixture[str], usd_per_hour: float, shown: str
) -> None:
    twin = offer("", market=Market.ON_DEMAND, usd_per_hour=usd_per_hour)
    keep(survivor().write(4001.0, ev.BaselineQuoted(name="on_demand", offer=twin, speed=1.0)))
    assert run(["report", "digits", "--html", str(home / "page.html")]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "on demand, same type" in line)
    assert row.split("$")[1].split()[1] == shown
    assert html.escape(shown) in (home / "page.html").read_text()


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_no_line_is_wider_than_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """And none is cut off: the chart gives way to what stands beside it."""
    diary = with_quotes()
    checkpoint = max(i for i, r in enumerate(diary.records) if isinstance(r.event, ev.CheckpointCommitted))
    record = diary.records[checkpoint]
    assert isinstance(record.event, ev.CheckpointCommitted)
    diary.records[checkpoint] = replace(record, event=replace(record.event, step=10**15))
    keep(diary)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["report", "digits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(line.endswith("steps, to 1,000,000,000,000,000") for line in lines)


@pytest.mark.parametrize("columns", [80, 104, 108, 160])
def test_names_are_never_folded_within(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    zone = "northamerica-northeast1-a"
    far = offer(zone, cloud="gcp", region=zone[:-2], instance_type="Standard_NC4as_T4_v3")
    keep(Diary().lease("a", 0.0, at=far).epoch(5.0, "a").train(1, "a", 6.0).end("a", 4000.0))
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["report", "digits"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    table = out.partition("mean price")[2].partition("█ useful")[0]
    for name in (zone, "Standard_NC4as_T4_v3", "$3.6000/h"):
        assert name in table


@pytest.mark.parametrize("module", [plantable, report_chart, report_text])
def test_doctests(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
