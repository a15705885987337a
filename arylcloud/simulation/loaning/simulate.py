"""The run: submissions, finishes and ticks in order of time, over one training and one inference cluster.

Decisions are the planner's (:mod:`arylcloud.planner.loaning`); what they do to the jobs is in :mod:`.fleet`.
The event heap holds plain tuples with a version per job instead of :mod:`..engine`'s events: a run sees a
hundred thousand of them.
"""

from __future__ import annotations

import heapq

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.loaning.reclaim import Return, cheapest, fewest_jobs, in_order
from arylcloud.planner.loaning.servers import bits
from arylcloud.planner.loaning.waiting import Need
from arylcloud.simulation.loaning.fleet import LENT, Fleet, Settings
from arylcloud.simulation.loaning.outcome import Outcome
from arylcloud.simulation.loaning.schemes import Scheme
from arylcloud.simulation.loaning.setting import DAY_S, MOST_DAYS, Inference, Workload

_NEVER = float("inf")


def simulate(jobs: Workload, inference: Inference, scheme: Scheme, settings: Settings) -> Outcome:
    """Run until the last job has finished. UsageError for a job that never fits, and for jobs that take more
    than ``MOST_DAYS``."""
    return _Run(jobs, inference, scheme, settings).run()


class _Run(Fleet):
    def __init__(self, jobs: Workload, inference: Inference, scheme: Scheme, settings: Settings) -> None:
        super().__init__(jobs, inference, scheme, settings)
        self.from_s, self.to_s = settings.from_day * DAY_S, settings.to_day * DAY_S
        self.own_gpus = settings.servers * settings.size
        self.lent_gpus = inference.servers * settings.size
        self.serving = 0.0
        self.step = 0
        self.offered = 0
        self.unfinished = len(jobs)
        self.ended = [False] * len(jobs)
        self.marks = [(self.to_s, -1), (self.from_s, 1)]
        """Times at which the work left is still to be counted, the next one last."""

    # ------------------------------------------------------------ the loop
    def run(self) -> Outcome:
        submit, arrived, n = self.jobs.submit_s, 0, len(self.jobs)
        most = max(self.jobs.gpus, default=0)
        if most > self.own_gpus:
            raise UsageError(
                f"a job of {most} GPUs never fits on {self.own_gpus}",
                hint="more training servers, or leave the job out",
            )
        self._ends_some_day()
        finishes, version = self.finishes, self.version
        while self.unfinished:
            while finishes and version[finishes[0][2]] != finishes[0][1]:
                heapq.heappop(finishes)
            finish = finishes[0][0] if finishes else _NEVER
            tick = self.step * self.inference.step_s
            arrival = submit[arrived] if arrived < n else _NEVER
            self._count(min(finish, tick, arrival))
            if finish <= tick and finish <= arrival:
                self._finish(heapq.heappop(finishes)[2])
            elif tick <= arrival:
                self._tick()
            else:
                self._arrive(arrived)
                arrived += 1
        submitted, tally = np.array(submit), self.tally
        tally.own_total_gpu_s = self.own_gpus * tally.measured_s
        tally.total_gpu_s = tally.own_total_gpu_s + self.lent_gpus * tally.measured_s
        return Outcome(
            queue_s=np.array(self.queue_s),
            jct_s=np.array(self.jct_s),
            submit_s=submitted,
            measured=(submitted >= self.from_s) & (submitted < self.to_s),
            tally=tally,
            end_s=self.now,
        )

    def _count(self, until: float) -> None:
        """Add up the GPUs in use from now until then, and let that time pass. Nothing changes in between, so
        the measured days may begin and end anywhere in it."""
        while self.marks and self.marks[-1][0] <= until:
            at_s, sign = self.marks.pop()
            self.tally.work_gpu_s += sign * self._work_left(at_s)
        span = (until if until < self.to_s else self.to_s) - (
            self.now if self.now > self.from_s else self.from_s
        )
        if span > 0:
            own, lent = self.pools
            tally = self.tally
            tally.measured_s += span
            tally.own_gpu_s += (self.own_gpus - own.free) * span
            tally.lent_gpu_s += (lent.gpus - lent.free) * span
            tally.inference_gpu_s += self.serving * span
        self.now = until

    def _ends_some_day(self) -> None:
        """Each tick is looked at: a time in the wrong unit would keep the run busy for hours."""
        gpu_s = sum(w * g for w, g in zip(self.jobs.work_s, self.jobs.gpus, strict=True))
        longest_s = max(self.jobs.work_s, default=0.0)
        last_s = max(self.jobs.submit_s, default=0.0)
        days = (last_s + max(longest_s, gpu_s / max(self.own_gpus, 1))) / DAY_S
        if days > MOST_DAYS:
            raise UsageError(
                f"the jobs take {days:,.0f} days on {self.own_gpus:,} GPUs, more than {MOST_DAYS:,}",
                hint="submit_s counts seconds from the beginning of the trace, duration_s is in seconds",
            )

    def _work_left(self, at_s: float) -> float:
        """GPU-seconds still to do then, of all jobs, if nothing changes until then."""
        progress = self.progress
        since, rate = np.array(progress.since), np.array(progress.rate)
        runs = np.array(self.pool) >= 0
        left = np.array(progress.left) - np.where(runs, np.maximum(at_s - since, 0.0) * rate, 0.0)
        left[np.array(self.ended)] = 0.0
        return float(left @ np.array(self.jobs.gpus))

    # ------------------------------------------------------------ events
    def _arrive(self, job: int) -> None:
        need = self._need(job)
        if (self.scheme.strict and len(self.waiting)) or not self._start(job, need):
            if self.scheme.preempt and self._displace(job, need):
                self._admit()  # the one that gave way may have had more GPUs
            else:
                self.waiting.push(self._key(job), job, need)

    def _finish(self, job: int) -> None:
        self._leave(job)
        self.ended[job] = True
        self.jct_s[job] = self.now - self.jobs.submit_s[job]
        self.unfinished -= 1
        self._admit()

    def _tick(self) -> None:
        self.serving = self.inference.used(self.step) * self.lent_gpus
        if self.scheme.loans != "none":
            self._loans()
        self._admit()
        if self.scheme.preempt and len(self.waiting):
            self._exchange()
            self._admit()
        if self.scheme.growth != "none":
            for pool in self.pools_in_order:
                self._grow(pool)
        self.step += 1

    def _admit(self) -> None:
        if len(self.waiting):
            self.waiting.admit(self._start, strict=self.scheme.strict)

    def _exchange(self) -> None:
        """Waiting jobs take places until the first of no class finds one."""
        shut: set[Need] = set()
        while True:
            need = next((need for _, _, need in self.waiting.heads() if need not in shut), None)
            if need is None:
                return
            job = self.waiting.pop(need)
            if not self._displace(job, need):
                self.waiting.push(self._key(job), job, need)
                shut.add(need)

    # ------------------------------------------------------------ loans
    def _loans(self) -> None:
        """Returns are due at once; a loan is given a tick after it became possible."""
        offered = self.inference.loanable(self.step)
        lent = self.pools[LENT]
        have = lent.open.bit_count()
        if offered < have:
            self._give_back(have - offered)
        elif min(offered, self.offered) > have:
            fresh = bits(lent.shut(), min(offered, self.offered) - have)
            lent.add(fresh)
            self.tally.loans += len(fresh)
        self.offered = offered

    def _give_back(self, count: int) -> None:
        lent, tally = self.pools[LENT], self.tally
        tally.returns += count
        idle = bits(lent.idle(), count)
        lent.close(idle)
        count -= len(idle)
        if not count:
            return
        flexible = bits(lent.without_base())
        flexible.sort(key=lambda s: (lent.size - lent.free_on[s], s))
        shrunk: set[int] = set()
        for s in flexible[:count]:
            shrunk.update(job for job, _ in lent.clear(s))
            lent.close([s])
        count -= len(flexible[:count])
        if count:
            found = self._choose(count)
            tally.reclaims += 1
            tally.ended += len(found.ended)
            tally.vacated_gpus += sum(self._base(job, LENT) for job in found.ended)
            tally.reclaimed_gpus += count * lent.size
            for job in found.ended:
                self._end(job, saved=False)
            for s in found.servers:
                shrunk.update(job for job, _ in lent.clear(s))
            lent.close(found.servers)
        self._resized(shrunk, forced=True)

    def _choose(self, count: int) -> Return:
        lent, how = self.pools[LENT], self.scheme.reclaim
        hosts = {s: lent.base_on[s] for s in bits(lent.open) if lent.base_on[s]}
        jobs = {job for there in hosts.values() for job in there}
        ones = dict.fromkeys(jobs, 1.0)
        if how == "random":
            return in_order(hosts, count, self.rng.permutation(sorted(hosts)).tolist(), ones)
        if how == "fewest":
            return fewest_jobs(hosts, count, ones)
        if how == "servers":
            return cheapest(hosts, count, ones, swaps=False)
        loss = {
            job: (self.progress.unsaved(job, self.now) + self.settings.restart_s) * self.jobs.gpus[job]
            for job in jobs
        }
        return cheapest(hosts, count, loss)
