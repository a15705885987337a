"""What adds up while a simulation runs: ends, time held, money's base, preemptions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I
from arylcloud.simulation.cluster.roster import Roster


class Book:
    """Shapes (n,) over the jobs known so far, (m,) over worker types."""

    def __init__(self, n: int, m: int) -> None:
        self.finish_s, self.run_s = np.full(n, np.nan), np.zeros(n)
        self.preemptions = np.zeros(n, np.int64)
        self.held_gpu_s, self.charged_gpu_s = np.zeros(m), np.zeros(m)
        self.rounds = self.ended = 0
        """``ended``: of those that the simulation waits for."""

    def grow(self, n: int) -> None:
        more = n - len(self.finish_s)
        if more > 0:
            self.finish_s = np.concatenate((self.finish_s, np.full(more, np.nan)))
            self.run_s = np.concatenate((self.run_s, np.zeros(more)))
            self.preemptions = np.concatenate((self.preemptions, np.zeros(more, np.int64)))

    def preempted(self, roster: Roster, who: I, stays: NDArray[np.bool_]) -> None:
        lost = roster.at >= 0
        lost[who[stays]] = False
        if lost.any():
            self.preemptions[roster.job[lost]] += 1

    def charge(self, job: I, at: I, gpus: I, held_s: F, run_s: F, partner: I | None) -> None:
        self.rounds += 1
        self.run_s[job] += run_s
        gpu_s = held_s * gpus
        m = len(self.held_gpu_s)
        charged = np.bincount(at, gpu_s, m)
        self.charged_gpu_s += charged
        if partner is not None:
            charged = np.bincount(at, np.where(partner >= 0, 0.5 * gpu_s, gpu_s), m)
        self.held_gpu_s += charged
