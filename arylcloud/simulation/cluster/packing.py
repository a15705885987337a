"""Rounds in which two jobs may share GPUs: every pair of jobs is a row of its own, beside the jobs' rows.

Gavel holds n(n−1)/2 pair rows. All but a few are alike: a pair that never had a share and never ran has a
deficit of half a round (its time received starts at 0, so its first reset owes it that half round) and stands
in line by arrival. Only *touched* pairs, those that had a share or ran, are kept here; the others are made up
when GPUs are left over, from the jobs that are still free. The rows taken are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import Allocation, F, I
from arylcloud.simulation.cluster.roster import Placement
from arylcloud.simulation.cluster.shares import Shares
from arylcloud.simulation.cluster.workload import Workload


@dataclass(slots=True, kw_only=True)
class _Touched:
    """Pairs (first, second) of roster indices, first < second; (q,) and (m, q)."""

    first: I
    second: I
    share: F
    deficit_s: F
    received_s: F

    def __len__(self) -> int:
        return len(self.first)

    def extend(self, first: I, second: I, deficit_s: float, received_s: float) -> None:
        m, more = len(self.share), len(first)
        self.first = np.concatenate((self.first, first))
        self.second = np.concatenate((self.second, second))
        self.share = np.concatenate((self.share, np.zeros((m, more))), axis=1)
        self.deficit_s = np.concatenate((self.deficit_s, np.full((m, more), deficit_s)), axis=1)
        self.received_s = np.concatenate((self.received_s, np.full((m, more), received_s)), axis=1)

    def keep(self, mask: NDArray[np.bool_], renumber: I) -> None:
        self.first, self.second = renumber[self.first[mask]], renumber[self.second[mask]]
        self.share, self.deficit_s = self.share[:, mask], self.deficit_s[:, mask]
        self.received_s = self.received_s[:, mask]


def _none(m: int) -> _Touched:
    nobody = np.zeros(0, np.int64)
    nothing = np.zeros((m, 0))
    return _Touched(first=nobody, second=nobody, share=nothing, deficit_s=nothing, received_s=nothing)


@dataclass(slots=True, kw_only=True)
class PackedShares(Shares):
    """As :class:`Shares`; a unit is a job or a pair on the same GPUs, and nobody is in two units."""

    pairs: _Touched = field(default_factory=lambda: _none(0))
    job_class: I = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        # slots make a new class: zero-argument super() would look for the old one
        Shares.__post_init__(self)
        self.pairs = _none(len(self.roster.workers))

    def leave(self, mask: NDArray[np.bool_]) -> None:
        Shares.leave(self, mask)
        renumber = np.cumsum(mask) - 1
        self.pairs.keep(mask[self.pairs.first] & mask[self.pairs.second], renumber)

    def select(self, now_s: float, workload: Workload) -> Placement:
        self.job_class = workload.job_class[self.roster.job]
        return Shares.select(self, now_s, workload)

    def account(self, placement: Placement, held_s: F) -> None:
        partner = placement.partner
        assert partner is not None
        alone = partner < 0
        self.received_s[placement.worker_type[alone], placement.who[alone]] += held_s[alone]
        one = np.flatnonzero(partner > np.arange(len(partner)))  # each pair once
        a, b = placement.who[one], placement.who[partner[one]]
        first, second = np.minimum(a, b), np.maximum(a, b)
        row = self._rows(first, second)
        new = row < 0
        if new.any():
            row[new] = len(self.pairs) + np.arange(int(new.sum()))
            self.pairs.extend(first[new], second[new], self.half_round_s, self.half_round_s)
        self.pairs.received_s[placement.worker_type[one], row] += held_s[one]
        np.add.at(self.given_s, placement.worker_type[alone], held_s[alone])
        np.add.at(self.given_s, placement.worker_type[one], held_s[one])

    def _rows(self, first: I, second: I) -> I:
        """(k,) where these pairs stand among the touched, −1 = nowhere."""
        found = np.full(len(first), -1, np.int64)
        if len(self.pairs) and len(first):
            n = len(self.roster)
            codes = self.pairs.first * n + self.pairs.second
            order = np.argsort(codes)
            wanted = first * n + second
            at = np.minimum(np.searchsorted(codes[order], wanted), len(codes) - 1)
            hit = codes[order[at]] == wanted
            found[hit] = order[at[hit]]
        return found

    def _reset(self, now_s: float, workload: Workload) -> None:
        elapsed, pairs = now_s - self.last_s, self.pairs
        pairs.deficit_s = pairs.deficit_s + (pairs.share * elapsed - (pairs.received_s - self.half_round_s))
        pairs.received_s = np.full_like(pairs.received_s, self.half_round_s)
        Shares._reset(self, now_s, workload)
        _, sizes = np.unique(self.roster.gpus, return_counts=True)
        self.given_s = self.given_s + self.half_round_s * float((sizes * (sizes - 1) // 2).sum())

    def _ask(self, now_s: float, workload: Workload) -> Allocation:
        allocation = Shares._ask(self, now_s, workload)
        self.pairs.share = np.zeros_like(self.pairs.share)
        if allocation.pair_shares is not None and len(allocation.pairs):
            some = (allocation.pair_shares > 0.0).any(axis=1)
            first, second = allocation.pairs[some].T
            row = self._rows(first, second)
            new = row < 0
            row[new] = len(self.pairs) + np.arange(int(new.sum()))
            self.pairs.extend(first[new], second[new], self.half_round_s, self.half_round_s)
            self.pairs.share[:, row] = allocation.pair_shares[some].T
        return allocation

    def _pick(self) -> Placement:
        free = np.ones(len(self.roster), np.bool_)
        who: list[int] = []
        at: list[int] = []
        partner: list[int] = []
        rate: list[float] = []
        for j in self._turns():
            left = int(self.roster.workers[j])
            for a, b, known in self._line(j, left, free):
                if not known:
                    continue
                entry = len(who)
                who.append(a)
                if b < 0:
                    rate.append(float(self.roster.rate[j, a]))
                    partner.append(-1)
                    at.append(j)
                else:
                    who.append(b)
                    ca, cb = self.job_class[a], self.job_class[b]
                    assert self.sharing_rate is not None
                    rate += [float(self.sharing_rate[ca, cb, j]), float(self.sharing_rate[cb, ca, j])]
                    partner += [entry + 1, entry]
                    at += [j, j]
        chosen = np.array(who, dtype=np.int64)
        return Placement(
            who=chosen,
            worker_type=np.array(at, dtype=np.int64),
            rate=np.array(rate),
            gpus=self.roster.gpus[chosen],
            partner=np.array(partner, dtype=np.int64),
        )

    def _line(self, j: int, left: int, free: NDArray[np.bool_]) -> list[tuple[int, int, bool]]:
        """Units taken on type j, in order; marks their jobs in ``free``."""
        taken: list[tuple[int, int, bool]] = []
        first, second, need, deficit, share, known = self._wanted(j, free)
        order = np.lexsort((first, second, -share, -deficit, -need))
        left = self._walk(first[order], second[order], known[order], left, free, taken)
        if left and not self.policy.fifo and free.any():
            first, second, deficit, share, known = self._leftover(j, free)
            order = np.lexsort((first, second, -share, -deficit))
            self._walk(first[order], second[order], known[order], left, free, taken)
        return taken

    def _walk(
        self,
        first: I,
        second: I,
        known: NDArray[np.bool_],
        left: int,
        free: NDArray[np.bool_],
        taken: list[tuple[int, int, bool]],
    ) -> int:
        """Take what is free and fits, in order. A single job is (−1, job), so that arrival orders both."""
        gpus = self.roster.gpus
        for a, b, there in zip(first.tolist(), second.tolist(), known.tolist(), strict=True):
            if not left:
                break
            if not free[b] or (a >= 0 and not free[a]) or gpus[b] > left:
                continue
            left -= int(gpus[b])
            free[b] = False
            if a >= 0:
                free[a] = False
            taken.append((b, -1, there) if a < 0 else (a, b, there))
        return left

    def _wanted(self, j: int, free: NDArray[np.bool_]) -> tuple[I, I, F, F, F, NDArray[np.bool_]]:
        """Rows with a share on type j and somebody free, and their priorities."""
        pairs = self.pairs
        one = np.flatnonzero((self.useful[j] > 0.0) & self.roster.fits[j] & free)
        both = free[pairs.first] & free[pairs.second] & (pairs.share[j] > 0.0)
        two = np.flatnonzero(both)
        two = two[self._possible(j, pairs.first[two], pairs.second[two])]
        share = np.concatenate((self.useful[j, one], pairs.share[j, two]))
        received = np.concatenate((self.received_s[j, one], pairs.received_s[j, two]))
        return (
            np.concatenate((np.full(len(one), -1), pairs.first[two])),
            np.concatenate((one, pairs.second[two])),
            share / (received / self.given_s[j]),
            np.concatenate((self.deficit_s[j, one], pairs.deficit_s[j, two])),
            share,
            np.ones(len(share), np.bool_),
        )

    def _leftover(self, j: int, free: NDArray[np.bool_]) -> tuple[I, I, F, F, NDArray[np.bool_]]:
        """Rows without priority on type j: jobs that are free, and every pair of them."""
        pairs = self.pairs
        here = np.flatnonzero(free & self.roster.fits[j])
        idle = np.flatnonzero(free)
        low, high = np.triu_indices(len(idle), 1)
        first, second = idle[low], idle[high]
        possible = self._possible(j, first, second)
        first, second = first[possible], second[possible]
        known = self.known[first] & self.known[second]
        deficit = np.where(known, self.half_round_s, 0.0)
        row = self._rows(first, second)
        touched = row >= 0
        deficit[touched] = pairs.deficit_s[j, row[touched]]
        return (
            np.concatenate((np.full(len(here), -1), first)),
            np.concatenate((here, second)),
            np.concatenate((self.deficit_s[j, here], deficit)),
            np.concatenate((self.share[j, here], np.zeros(len(first)))),
            np.concatenate((self.known[here], known)),
        )

    def _possible(self, j: int, first: I, second: I) -> NDArray[np.bool_]:
        """(k,) pairs of equal size of which either makes a step in a round on type j."""
        assert self.sharing_rate is not None
        ca, cb = self.job_class[first], self.job_class[second]
        least = np.minimum(self.sharing_rate[ca, cb, j], self.sharing_rate[cb, ca, j])
        gpus = self.roster.gpus
        steps: NDArray[np.bool_] = np.floor(least * self.roster.round_s) > 0
        sizes: NDArray[np.bool_] = (gpus[first] == gpus[second]) & (gpus[first] <= self.roster.workers[j])
        return steps & sizes
