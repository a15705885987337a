"""Small runs by hand, laws on random ones, and the published setting on a slice of the study data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.planner.loaning.waiting import Need
from arylcloud.simulation.cluster.traces import read_trace
from arylcloud.simulation.loaning.fleet import Fleet, Settings
from arylcloud.simulation.loaning.outcome import figures
from arylcloud.simulation.loaning.progress import Progress
from arylcloud.simulation.loaning.schemes import SCHEMES, Scheme
from arylcloud.simulation.loaning.setting import Inference, Workload, read_curves, read_inference, workload
from arylcloud.simulation.loaning.simulate import simulate


def _jobs(
    *rows: tuple[float, float, int], elastic: tuple[int, ...] = (), fungible: tuple[int, ...] = ()
) -> Workload:
    count = range(len(rows))
    return Workload(
        submit_s=[r[0] for r in rows],
        work_s=[r[1] for r in rows],
        gpus=[r[2] for r in rows],
        elastic=[i in elastic for i in count],
        fungible=[i in fungible for i in count],
        power=[1.0] * len(rows),
    )


def _idle(servers: int = 1) -> Inference:
    return Inference(share=np.ones(1), step_s=300.0, servers=servers)


def _settings(servers: int, **more: float) -> Settings:
    return Settings(servers=servers, from_day=0.0, to_day=1000.0, **more)  # type: ignore[arg-type]


def test_fifo_with_backfill_by_hand() -> None:
    """8 GPUs: 6 run to 1000; 8 wait for all; 2 slip past; strict order does not let them."""
    jobs = _jobs((0.0, 1000.0, 6), (10.0, 100.0, 8), (20.0, 500.0, 2))
    found = simulate(jobs, _idle(), SCHEMES["fifo"], _settings(1))
    assert found.jct_s.tolist() == [1000.0, 1090.0, 500.0]
    assert found.queue_s.tolist() == [0.0, 990.0, 0.0]
    strict = simulate(jobs, _idle(), SCHEMES["fifo_strict"], _settings(1))
    assert strict.jct_s.tolist() == [1000.0, 1090.0, 1580.0]


def test_sjf_lets_the_shorter_go_first() -> None:
    jobs = _jobs((0.0, 1000.0, 8), (10.0, 900.0, 8), (20.0, 100.0, 8))
    fifo = simulate(jobs, _idle(), SCHEMES["fifo"], _settings(1))
    sjf = simulate(jobs, _idle(), SCHEMES["sjf"], _settings(1))
    assert fifo.queue_s.tolist() == [0.0, 990.0, 1880.0]
    assert sjf.queue_s.tolist() == [0.0, 1090.0, 980.0]


def test_an_elastic_job_grows_at_a_tick_and_shrinks_at_once() -> None:
    """4 of 8 GPUs at rate 1 from 10 s; at 300 s it doubles; at 600 s four GPUs go to another, at once."""
    jobs = _jobs((10.0, 2000.0, 4), (601.0, 100.0, 4), elastic=(0,))
    found = simulate(jobs, _idle(), SCHEMES["elastic_only"], _settings(1))
    # 290 + 2·301 = 892 by 601 s; 100 s alone until 701 and on until the tick at 900: 1191; then doubled
    assert found.queue_s.tolist() == [0.0, 0.0]
    assert found.jct_s[1] == 100.0
    assert found.jct_s[0] == pytest.approx(900 + (2000 - 892 - 299) / 2 - 10)
    slow = simulate(jobs, _idle(), SCHEMES["elastic_only"], _settings(1, resize_s=63.0))
    assert found.jct_s[0] + 2 * 63 <= slow.jct_s[0] <= found.jct_s[0] + 3 * 63 + 64
    assert slow.tally.shrunk == 1


def test_a_reclaim_costs_the_work_since_the_checkpoint_and_a_restart() -> None:
    """A borrowed server from 300 s (possible since 0) to 4,500 s: 1,200 s after the second checkpoint."""
    share = np.array([0.0] * 15 + [1.0] * 100)
    inference = Inference(share=share, step_s=300.0, servers=1, headroom=0.0)
    jobs = _jobs((0.0, 10_000.0, 8), (1.0, 6000.0, 2), fungible=(1,))
    found = simulate(jobs, inference, SCHEMES["loaning_only"], _settings(1))
    assert found.tally.ended == 1
    # started at 300 on 6 borrowed GPUs; checkpoints at 2,100 and 3,900; 600 s lost at 4,500; back at 10,000
    assert found.queue_s[1] == pytest.approx(299 + 5500)
    assert found.jct_s[1] == pytest.approx(10_000 + 63 + 6000 - 3600 - 1)
    assert found.tally.lost_gpu_s == pytest.approx((600 + 63) * 2)
    assert (found.tally.vacated_gpus, found.tally.reclaimed_gpus) == (6, 8)


def test_flexible_workers_on_borrowed_servers_go_before_any_job_ends() -> None:
    """Base on one borrowed server, flexible workers on another: one goes back, nobody is ended."""
    share = np.array([0.0] * 10 + [0.5] * 200)
    inference = Inference(share=share, step_s=300.0, servers=2, headroom=0.0)
    jobs = _jobs((0.0, 50_000.0, 8), (1.0, 20_000.0, 2), elastic=(1,), fungible=(1,))
    found = simulate(jobs, inference, SCHEMES["aryl"], _settings(1))
    assert found.tally.ended == 0
    assert found.tally.shrunk == 1
    assert found.tally.returns == 1


def test_displacing_saves_first() -> None:
    jobs = _jobs((0.0, 50_000.0, 8), (100.0, 60.0, 8))
    found = simulate(jobs, _idle(), Scheme(order="sjf", preempt=True), _settings(1))
    assert found.queue_s.tolist() == [60.0, 0.0]
    assert found.jct_s.tolist() == [50_000.0 + 60.0 + 63.0, 60.0]


def _count_exchanges(monkeypatch: pytest.MonkeyPatch, most: int) -> dict[float, int]:
    """Exchanges by instant; a run with more than ``most`` in one stops."""
    counted: dict[float, int] = {}
    displace = Fleet._displace

    def counting(fleet: Fleet, job: int, need: Need) -> bool:
        done = displace(fleet, job, need)
        counted[fleet.now] = counted.get(fleet.now, 0) + done
        assert counted[fleet.now] <= most, f"{most} exchanges at {fleet.now:g} s"
        return done

    monkeypatch.setattr(Fleet, "_displace", counting)
    return counted


def test_jobs_thought_short_do_not_displace_each_other_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both take 10,000 s and are thought to take less than a fifth of it: by true ends each would give way to
    the other's estimate. By estimates the first keeps its place."""
    doubt = np.exp(np.random.default_rng(8).normal(0.0, 2.0, 2))
    assert doubt.max() < 0.2
    _count_exchanges(monkeypatch, 2)
    jobs = _jobs((0.0, 10_000.0, 8), (100.0, 10_000.0, 8))
    for scheme in ("default", "default_sjf"):
        found = simulate(jobs, _idle(), SCHEMES[scheme], _settings(1, error=2.0, seed=8))
        assert found.jct_s.tolist() == [10_000.0, 19_900.0]


def test_who_is_thought_to_take_long_gives_way() -> None:
    """9,900 s to go are less than twice 6,000 s, but are thought to be more."""
    doubt = np.exp(np.random.default_rng(1).normal(0.0, 1.0, 2))
    assert doubt[0] > 1.3
    short_s = 6000.0 / float(doubt[1])
    jobs = _jobs((0.0, 10_000.0, 8), (100.0, short_s, 8))
    found = simulate(jobs, _idle(), SCHEMES["default"], _settings(1, error=1.0, seed=1))
    assert found.queue_s == pytest.approx([short_s, 0.0])


@pytest.mark.parametrize("error", [0.5, 2.0])
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_ends_with_estimates_in_error(
    scheme: str, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    n = 80
    counted = _count_exchanges(monkeypatch, n * n)
    jobs = Workload(
        submit_s=np.sort(rng.uniform(0, 20_000, n)).tolist(),
        work_s=rng.exponential(8000, n).tolist(),
        gpus=rng.choice([1, 1, 2, 4, 8, 16], n).tolist(),
        elastic=(rng.random(n) < 0.4).tolist(),
        fungible=(rng.random(n) < 0.4).tolist(),
        power=rng.uniform(0.1, 1.0, n).tolist(),
    )
    inference = Inference(share=rng.uniform(0.2, 1.0, 50), step_s=300.0, servers=4)
    found = simulate(jobs, inference, SCHEMES[scheme], _settings(3, resize_s=63.0, error=error))
    assert (found.jct_s > 0).all()
    assert bool(sum(counted.values())) == SCHEMES[scheme].preempt
    blind = simulate(jobs, inference, SCHEMES[scheme], _settings(3, resize_s=63.0))
    looks = SCHEMES[scheme].order != "fifo" or SCHEMES[scheme].growth == "saved_s"
    assert (blind.jct_s.tobytes() != found.jct_s.tobytes()) == looks


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("seed", range(3))
def test_laws_of_every_scheme(scheme: str, seed: int) -> None:
    """Every job ends; nobody ends before its work at the best rate allows; busy GPUs are within the servers;
    time waiting and time running make up its life; the same call gives the same bytes."""
    rng = np.random.default_rng(seed)
    n = 150
    gpus = rng.choice([1, 1, 1, 2, 4, 8, 12, 16], n).tolist()
    jobs = Workload(
        submit_s=np.sort(rng.uniform(0, 40_000, n)).tolist(),
        work_s=rng.exponential(4000, n).tolist(),
        gpus=gpus,
        elastic=(rng.random(n) < 0.4).tolist(),
        fungible=(rng.random(n) < 0.4).tolist(),
        power=rng.uniform(0.1, 1.0, n).tolist(),
    )
    inference = Inference(share=rng.uniform(0.2, 1.0, 50), step_s=300.0, servers=6)
    settings = _settings(5, resize_s=63.0, seed=seed)
    found = simulate(jobs, inference, SCHEMES[scheme], settings)
    work = np.array(jobs.work_s)
    fastest = np.where(jobs.elastic, 2.0 ** np.array(jobs.power), 1.0)
    assert (found.jct_s > 0).all()
    assert (found.queue_s >= -1e-6).all()
    assert (found.jct_s - found.queue_s >= work / fastest - 1e-6).all()
    t = found.tally
    assert 0 < t.own_gpu_s <= t.own_total_gpu_s
    assert t.own_gpu_s + t.lent_gpu_s + t.inference_gpu_s <= t.total_gpu_s
    if SCHEMES[scheme].loans == "none":
        assert t.lent_gpu_s == t.loans == 0
    else:
        assert t.loans > 0
        assert t.returns > 0
    if not SCHEMES[scheme].preempt and SCHEMES[scheme].loans == "none" and SCHEMES[scheme].growth == "none":
        assert found.jct_s - found.queue_s == pytest.approx(work)
        assert t.own_gpu_s == pytest.approx(float(work @ np.array(gpus)))
    again = simulate(jobs, inference, SCHEMES[scheme], settings)
    assert again.jct_s.tobytes() == found.jct_s.tobytes()


@pytest.mark.parametrize("step_s", [300.0, 420.0, 1000.0, 7000.0])
def test_work_is_counted_over_the_measured_days_whatever_the_ticks(step_s: float) -> None:
    """A job on 4 GPUs from before the day until after it, and one that ends on it after 1,000 s."""
    jobs = _jobs((50_000.0, 200_000.0, 4), (85_900.0, 1500.0, 2))
    inference = Inference(share=np.ones(1), step_s=step_s, servers=1)
    found = simulate(jobs, inference, SCHEMES["fifo"], Settings(servers=1, from_day=1.0, to_day=2.0))
    assert found.tally.work_gpu_s == pytest.approx(4 * 86_400 + 2 * 1000)
    assert found.tally.own_gpu_s == pytest.approx(found.tally.work_gpu_s)


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="a job of 16 GPUs never fits on 8"):
        simulate(_jobs((0.0, 1.0, 16)), _idle(), SCHEMES["fifo"], _settings(1))


def test_progress_saves_on_time_and_not_while_it_restarts() -> None:
    p = Progress([10_000.0], 1800.0)
    p.start(0, 100.0, 1.0)
    assert p.unsaved(0, 1899.0) == pytest.approx(1799.0)
    assert p.unsaved(0, 1950.0) == pytest.approx(50.0)
    p.pace(0, 2000.0, 2.0)
    assert p.unsaved(0, 2100.0) == pytest.approx(100 + 200)
    p.roll_back(0)
    assert p.left[0] == pytest.approx(8200.0)
    p.start(0, 5000.0, 1.0)
    p.settle(0, 4000.0)  # still restarting
    assert p.left[0] == pytest.approx(8200.0)


_DATA = os.environ.get("ARYLCLOUD_STUDY_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="no study data (ARYLCLOUD_STUDY_DATA)")


@_needs_data
def test_the_setting_is_the_published_one() -> None:
    folder = Path(str(_DATA)) / "traces"
    jobs = read_trace(folder / "derived_aryl_like_50k_15d.csv.gz")
    load = workload(jobs, curves=read_curves(folder / "profiles_elasticflow_throughput.csv.gz"))
    work, gpus, elastic = np.array(load.work_s), np.array(load.gpus), np.array(load.elastic)
    assert elastic.sum() == 2500
    assert gpus[elastic].min() >= 2
    assert (work * gpus)[elastic].sum() / (work * gpus).sum() == pytest.approx(0.396, abs=0.001)
    assert np.mean(load.fungible) == pytest.approx(0.21, abs=0.01)
    more = np.array(workload(jobs, elastic_share=0.21).elastic)
    assert more.sum() == 10_500
    assert more[elastic].all()
    assert workload(jobs, seed=1).elastic != load.elastic
    inference = read_inference(folder / "inference_servegen_10min.csv.gz", 296)
    assert inference.share.mean() == pytest.approx(0.64, abs=0.01)
    assert inference.share.min() > 0.38
    assert inference.share.max() <= 1.0
    assert inference.loanable(0) == inference.loanable(14 * 288)


@_needs_data
def test_the_baseline_queues_as_published_and_aryl_does_not() -> None:
    """The whole of trace A: mean queue 2,904 s and JCT 17,540 s published, 2.8 / 1.12 for loaning alone."""
    folder = Path(str(_DATA)) / "traces"
    load = workload(read_trace(folder / "derived_aryl_like_50k_15d.csv.gz"))
    inference = read_inference(folder / "inference_servegen_10min.csv.gz", 296)
    settings = Settings(servers=252)
    fifo = figures(simulate(load, inference, SCHEMES["fifo"], settings))
    assert fifo.queue_mean_s == pytest.approx(2904, rel=0.06)
    assert fifo.jct_mean_s == pytest.approx(17_540, rel=0.01)
    assert fifo.queue_late_share > 0.85
    loaning = figures(simulate(load, inference, SCHEMES["loaning_only"], settings))
    assert fifo.queue_mean_s / loaning.queue_mean_s >= 2.3
    assert fifo.jct_mean_s / loaning.jct_mean_s == pytest.approx(1.12, abs=0.03)
    assert loaning.usage > fifo.usage


@pytest.mark.parametrize("scheme", ["fifo", "aryl", "default"])
def test_work_done_is_the_work_there_was(scheme: str) -> None:
    """However often it was lost and done again, and on however slow GPUs."""
    rng = np.random.default_rng(5)
    n = 80
    jobs = Workload(
        submit_s=np.sort(rng.uniform(0, 40_000, n)).tolist(),
        work_s=rng.exponential(4000, n).tolist(),
        gpus=rng.choice([1, 2, 4, 8], n).tolist(),
        elastic=(rng.random(n) < 0.4).tolist(),
        fungible=(rng.random(n) < 0.6).tolist(),
        power=rng.uniform(0.1, 1.0, n).tolist(),
    )
    inference = Inference(share=rng.uniform(0.2, 1.0, 50), step_s=300.0, servers=4)
    settings = Settings(servers=3, resize_s=63.0, from_day=0.0, to_day=3.0)
    found = simulate(jobs, inference, SCHEMES[scheme], settings)
    assert found.end_s < 3 * 86_400
    assert found.tally.work_gpu_s == pytest.approx(float(np.dot(jobs.work_s, jobs.gpus)))
    half = simulate(
        jobs, inference, SCHEMES[scheme], Settings(servers=3, resize_s=63.0, to_day=3.0, from_day=0.25)
    )
    assert 0 < half.tally.work_gpu_s < found.tally.work_gpu_s
