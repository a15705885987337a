"""The jobs that have arrived and are not done, as columns that grow and shrink together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I
from arylcloud.simulation.cluster.workload import Workload


@dataclass(slots=True, kw_only=True)
class Roster:
    """n active jobs in order of arrival; ``rate`` (m, n) and everything else (n,).

    ``job`` is the index in the workload, ``at`` the slot held in the last round (−1 = none),
    ``partner`` the index in the workload of the job that it shared GPUs with then (−1 = none).
    """

    round_s: float
    workers: I
    job: I = field(default_factory=lambda: np.zeros(0, np.int64))
    gpus: I = field(default_factory=lambda: np.zeros(0, np.int64))
    left: F = field(default_factory=lambda: np.zeros(0))
    arrival_s: F = field(default_factory=lambda: np.zeros(0))
    deadline_s: F = field(default_factory=lambda: np.zeros(0))
    """Absolute, as policies are told; inf = none."""
    at: I = field(default_factory=lambda: np.zeros(0, np.int64))
    partner: I = field(default_factory=lambda: np.zeros(0, np.int64))
    started: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    rate: F = field(default_factory=lambda: np.zeros((0, 0)))
    fits: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    """(m, n) the job is not larger than the type and makes at least one step in a round there."""
    single: bool = True
    """Every active job has one GPU."""

    def __len__(self) -> int:
        return len(self.job)

    def add(self, workload: Workload, jobs: I, *, late_s: F | float = 0.0) -> None:
        """``late_s``: by how much later than in the workload their deadlines are."""
        rate = workload.rate[workload.job_class[jobs]].T
        gpus = workload.gpus[jobs]
        fits = (np.floor(rate * self.round_s) > 0) & (gpus[None, :] <= self.workers[:, None])
        if not len(self.job):
            self.rate, self.fits = rate[:, :0], fits[:, :0]
        nothing = np.full(len(jobs), -1, np.int64)
        self.job = np.concatenate((self.job, jobs))
        self.gpus = np.concatenate((self.gpus, gpus))
        self.left = np.concatenate((self.left, workload.steps[jobs]))
        self.arrival_s = np.concatenate((self.arrival_s, workload.arrival_s[jobs]))
        self.deadline_s = np.concatenate((self.deadline_s, workload.deadline_s[jobs] + late_s))
        self.at = np.concatenate((self.at, nothing))
        self.partner = np.concatenate((self.partner, nothing))
        self.started = np.concatenate((self.started, np.zeros(len(jobs), np.bool_)))
        self.rate = np.concatenate((self.rate, rate), axis=1)
        self.fits = np.concatenate((self.fits, fits), axis=1)
        self.single = bool((self.gpus == 1).all())

    def keep(self, mask: NDArray[np.bool_]) -> None:
        self.job, self.gpus, self.left = self.job[mask], self.gpus[mask], self.left[mask]
        self.arrival_s, self.deadline_s = self.arrival_s[mask], self.deadline_s[mask]
        self.at, self.partner = self.at[mask], self.partner[mask]
        self.started, self.rate, self.fits = self.started[mask], self.rate[:, mask], self.fits[:, mask]
        self.single = self.single or bool((self.gpus == 1).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Placement:
    """Who runs in the coming round: e entries; jobs are indices in the roster."""

    who: I
    worker_type: I
    rate: F
    """(e,) steps/s there, beside its partner if it has one."""
    gpus: I
    slot: I | None = None
    """(e,) what has to stay as it is for a job not to start anew; None = the worker type."""
    partner: I | None = None
    """(e,) the other entry of the same unit, −1 = none; None = no pairs at all."""
