"""How far each job is: lazily, from its rate, what was saved when, and the pause after a restart."""

from __future__ import annotations

import math


class Progress:
    """(n,) lists; ``left[j]`` is as of ``since[j]``, which may lie ahead while a job restarts."""

    def __init__(self, work_s: list[float], checkpoint_s: float) -> None:
        self.left = list(work_s)
        """Seconds of work at rate 1."""
        self.saved = list(work_s)
        """What was left at the last checkpoint."""
        self.since = [0.0] * len(work_s)
        self.rate = [0.0] * len(work_s)
        self.marked = [0.0] * len(work_s)
        """When the last checkpoint was."""
        self._every_s = checkpoint_s

    def start(self, job: int, now_s: float, rate: float) -> float:
        """From ``now_s`` on at that rate; returns when it ends."""
        self.since[job] = self.marked[job] = now_s
        self.rate[job] = rate
        self.saved[job] = self.left[job]
        return now_s + self.left[job] / rate

    def settle(self, job: int, now_s: float) -> None:
        """Bring ``left`` and ``saved`` up to now."""
        since, rate, every = self.since[job], self.rate[job], self._every_s
        if now_s <= since:
            return
        if every <= 0:
            self.left[job] -= (now_s - since) * rate
            self.saved[job] = self.left[job]
        else:
            passed = math.floor((now_s - self.marked[job]) / every)
            if passed > 0:
                self.marked[job] += passed * every
                self.saved[job] = self.left[job] - max(0.0, self.marked[job] - since) * rate
            self.left[job] -= (now_s - since) * rate
        self.since[job] = now_s

    def pace(self, job: int, now_s: float, rate: float) -> float:
        """Another rate, without a break; returns when it ends."""
        self.settle(job, now_s)
        self.rate[job] = rate
        return self.since[job] + self.left[job] / rate

    def unsaved(self, job: int, now_s: float) -> float:
        """Seconds of work that would be lost now."""
        self.settle(job, now_s)
        return self.saved[job] - self.left[job]

    def roll_back(self, job: int) -> None:
        self.left[job] = self.saved[job]
