"""Two pools of servers and the jobs on them: what a start, an end and a resize do to a job's progress."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from arylcloud.planner.loaning.displace import Running
from arylcloud.planner.loaning.growth import RULES, Elastic, extra_workers, split_evenly, tournament
from arylcloud.planner.loaning.servers import Places, Servers
from arylcloud.planner.loaning.waiting import Need, Waiting
from arylcloud.simulation.loaning.outcome import Tally
from arylcloud.simulation.loaning.progress import Progress
from arylcloud.simulation.loaning.schemes import Scheme
from arylcloud.simulation.loaning.setting import Inference, Workload

OWN, LENT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run assumes."""

    servers: int
    """Training servers; the inference cluster's are in :class:`Inference`."""
    size: int = 8
    lent_gpus_per_gpu: int = 3
    """Borrowed GPUs that do one training GPU's work."""
    restart_s: float = 63.0
    """After a preemption."""
    resize_s: float = 0.0
    """Pause of a job whose flexible workers change; 63 in the realistic setting, 0 in the linear one."""
    checkpoint_s: float = 1800.0
    from_day: float = 1.0
    to_day: float = 14.0
    """Measured: jobs submitted, and GPUs used, in these days."""
    error: float = 0.0
    """σ of the logarithm of estimated over true running time. Every decision that looks at a remaining time
    sees the estimated one: the order, who gives way, flexible workers. A job past its estimate
    has 0 s left."""
    seed: int = 0


class Fleet:
    """State of a run, and what changes it; times and events are the caller's."""

    def __init__(self, jobs: Workload, inference: Inference, scheme: Scheme, settings: Settings) -> None:
        n = len(jobs)
        self.jobs, self.inference, self.scheme, self.settings = jobs, inference, scheme, settings
        self.pools = (
            Servers(settings.servers, size=settings.size),
            Servers(inference.servers, size=settings.size, closed=True),
        )
        self.progress = Progress(jobs.work_s, settings.checkpoint_s)
        self.waiting = Waiting()
        self.pool = [-1] * n
        self.version = [0] * n
        self.queued_at = list(jobs.submit_s)
        self.queue_s = [0.0] * n
        self.jct_s = [0.0] * n
        self.restarts = [False] * n
        self.elastic: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self.changes = [0, 0]
        self.decided: list[tuple[int, int]] = [(-1, -1), (-1, -1)]
        """What phase 2 last saw of each pool: how often its elastic jobs had changed, and the capacity."""
        self.finishes: list[tuple[float, int, int]] = []
        self.running = Running()
        self.now = 0.0
        self.tally = Tally()
        self.rng = np.random.default_rng(settings.seed)
        self.late_s = [0.0] * n
        """By how much each job's estimated running time is more than the true one."""
        if settings.error:
            doubt = np.exp(self.rng.normal(0.0, settings.error, n))
            self.late_s = ((doubt - 1.0) * jobs.work_s).tolist()
        self.pools_in_order = {"none": (OWN,), "last": (OWN, LENT), "first": (LENT, OWN)}[scheme.loans]

    # ------------------------------------------------------------ jobs come and go
    def _key(self, job: int) -> float:
        if self.scheme.order == "fifo":
            return self.jobs.submit_s[job]
        left = self._left_s(job)
        return left * self.jobs.gpus[job] if self.scheme.order == "area" else left

    def _left_s(self, job: int) -> float:
        """Of a waiting job, as estimated."""
        return max(self.progress.left[job] + self.late_s[job], 0.0)

    def _waits_s(self, job: int) -> float:
        """Of a running job, if it waited from now on."""
        self.progress.settle(job, self.now)
        return self._left_s(job)

    def _start(self, job: int, need: Need) -> bool:
        _, fungible = need
        for pool in self.pools_in_order:
            if pool == LENT and not fungible:
                continue
            places = self.pools[pool].find(self._base(job, pool))
            if places is not None:
                self._place(job, pool, places)
                return True
        return False

    def _need(self, job: int) -> Need:
        return self.jobs.gpus[job], self.jobs.fungible[job] and self.scheme.loans != "none"

    def _base(self, job: int, pool: int) -> int:
        gpus = self.jobs.gpus[job]
        return gpus * self.settings.lent_gpus_per_gpu if pool == LENT else gpus

    def _place(self, job: int, pool: int, places: Places) -> None:
        gone = self.pools[pool].put(job, places)
        if gone:
            self._resized({other for other, _ in gone}, forced=True)
        self.pool[job] = pool
        self.queue_s[job] += self.now - self.queued_at[job]
        begin = self.now + (self.settings.restart_s if self.restarts[job] else 0.0)
        self._ends(job, self.progress.start(job, begin, 1.0))
        if self.jobs.elastic[job] and self.jobs.power[job] > 0:
            self.elastic[pool][job] = None
            self.changes[pool] += 1

    def _leave(self, job: int) -> None:
        pool = self.pool[job]
        self.pools[pool].remove(job)
        if job in self.elastic[pool]:
            del self.elastic[pool][job]
            self.changes[pool] += 1
        self.pool[job] = -1
        self.version[job] += 1

    def _end(self, job: int, *, saved: bool) -> None:
        """Preempt: back into the queue, with what it has saved."""
        if saved:
            self.progress.settle(job, self.now)
        else:
            lost = self.progress.unsaved(job, self.now) + self.settings.restart_s
            self.tally.lost_gpu_s += lost * self.jobs.gpus[job]
            self.progress.roll_back(job)
        self._leave(job)
        self.restarts[job] = True
        self.queued_at[job] = self.now
        self.waiting.push(self._key(job), job, self._need(job))

    def _displace(self, job: int, need: Need) -> bool:
        """Take the place of a job with much more left to do, on the training cluster's own servers."""
        other = self.running.victim(
            need[0],
            self._left_s(job),
            self.now,
            lambda j, version: self.version[j] == version,
            self._waits_s,
        )
        if other is None:
            return False
        self._end(other, saved=True)
        self.tally.preempted += 1
        if not self._start(job, need):
            raise AssertionError("the place of a larger job is too small")
        return True

    def _ends(self, job: int, at_s: float) -> None:
        self.version[job] += 1
        if self.scheme.preempt and self.pool[job] == OWN:
            estimated_s = at_s + self.late_s[job] / self.progress.rate[job]
            self.running.add(job, self.jobs.gpus[job], estimated_s, self.version[job])
        heapq.heappush(self.finishes, (at_s, self.version[job], job))

    # ------------------------------------------------------------ flexible workers
    def _resized(self, jobs: set[int], *, forced: bool = False) -> None:
        pause = self.settings.resize_s
        for job in sorted(jobs):
            if self.pool[job] < 0:
                continue
            pool = self.pool[job]
            extra, base = self.pools[pool].flexible.get(job, 0), self._base(job, pool)
            rate = (1.0 + extra / base) ** self.jobs.power[job]
            end = self.progress.pace(job, self.now, rate)
            if pause:
                end = self.progress.start(job, self.now + pause, rate)
            self._ends(job, end)
            self.changes[pool] += forced
        self.tally.resizes += len(jobs)
        if forced:
            self.tally.shrunk += len(jobs)

    def _grow(self, pool: int) -> None:
        running = list(self.elastic[pool])
        if not running:
            return
        servers, growth, progress = self.pools[pool], self.scheme.growth, self.progress
        extra = servers.flexible
        now = [extra.get(job, 0) for job in running]
        capacity = servers.free + sum(now)
        seen = (self.changes[pool], capacity)
        if seen == self.decided[pool] and growth != "even":
            return
        self.decided[pool] = seen
        base = [self._base(job, pool) for job in running]
        if now == base and growth != "even":
            return  # all have all that they can use
        since = np.array([progress.since[job] for job in running])
        done = np.maximum(self.now - since, 0.0) * [progress.rate[job] for job in running]
        left = np.array([progress.left[job] for job in running]) - done
        jobs = Elastic(
            base=np.array(base),
            most=np.array(base),
            now=np.array(now),
            power=np.array([self.jobs.power[job] for job in running]),
            left_s=np.maximum(left + [self.late_s[job] for job in running], 0.0),
            restart_s=self.settings.resize_s,
        )
        if growth == "even":
            wanted = split_evenly(jobs, 0 if len(self.waiting) else capacity)
        elif growth == "afs":
            wanted = tournament(jobs, capacity)
        else:
            wanted = extra_workers(jobs, capacity, RULES[growth])
        change = (wanted - jobs.now).tolist()
        for job, by in zip(running, change, strict=True):
            if by < 0:
                servers.shrink(job, -by)
        for job, by in zip(running, change, strict=True):
            if by > 0:
                servers.grow(job, by)
        self._resized({job for job, by in zip(running, change, strict=True) if by})
