"""The linear program of classes: what all members of a class do together, alone and in pairs.

A *part* ``a`` is a set of jobs of one class; n_a members, R_a, ``need_a``, ``slope_a`` sums over them::

    max   t   or   Σ worth_j·(steps/s on type j)                                          duals
    s.t.  Σ_j rate_aj·x_aj + Σ_b,j rate_abj·y_abj ≥ need_a·u + slope_a·t    per part      β_a ≥ 0    u = 1
          Σ_j x_aj + Σ_b,j y_abj (twice where b = a) ≤ n_a                  per part      α_a ≥ 0
          Σ_a gpus_a·x_aj + Σ_a≤b gpus_a·y_abj ≤ capacity_j                 per type      λ_j ≥ 0

x_aj units of time (job × fraction) alone on type j, y_abj beside part b: a pair holds its GPUs once.

Pairs are columns made on demand (:func:`~.classparts.price`). When a part is cut, the program is not solved
afresh: the pieces inherit the part's prices through a basis (:mod:`~.classbasis`), and the dual simplex
method repairs what is left (a few dozen steps).

Needs that cannot be met with the columns at hand are a program of their own first, max u ≤ 1, with the same
search for pairs. HiGHS solves; its status is checked, and :attr:`ClassLP.bound` is computed from repaired
duals, not believed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arylcloud.core.errors import ArylError, InfeasibleError
from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels import highs
from arylcloud.planner.kernels.classbasis import Basis, inherited
from arylcloud.planner.kernels.classparts import Kinds, Pairs, Parts, price

NEAR = 1e-7
"""Pairs whose reduced cost is within this of 0 are kept when a part is cut."""
MOST_NEW = 400
"""Pairs that are added at a time."""


class ClassLP:
    """One program; :meth:`solve` it, read it, :meth:`cut` it."""

    def __init__(
        self,
        kinds: Kinds,
        parts: Parts,
        pairs: Pairs,
        *,
        reach: float,
        basis: Basis | None = None,
    ) -> None:
        """``reach``: about as large as t can be, its unit. ``basis``: where to start."""
        self.kinds, self.parts, self.pairs = kinds, parts, pairs
        self._kind = kinds.kind[parts.of] if len(kinds.beside) else parts.of
        self._rate = kinds.rate[parts.of]
        self._gpus = kinds.gpus[parts.of]
        self._worth = None if kinds.worth is None else kinds.worth[parts.of]
        self._with_t = kinds.worth is None
        self._meeting = False
        self._row = np.maximum(kinds.scale[parts.of] * parts.size, parts.slope * reach)
        self._unit = 1.0 / reach if self._with_t else self._largest_gain() or 1.0
        self._types = np.where(kinds.capacity > 0, kinds.capacity, 1.0)
        self._open(parts.slope / self._row, basis)

    def _largest_gain(self) -> float:
        assert self._worth is not None
        return float((self._rate * self._worth * self.parts.size[:, None]).max(initial=0.0))

    def _open(self, asked: F, basis: Basis | None) -> None:
        import highspy
        from highspy._core import _Highs

        s, m = self._rate.shape
        parts, pairs = self.parts, self.pairs
        part, kind = np.repeat(np.arange(s), m), np.tile(np.arange(m), s)
        size = parts.size
        rows = np.stack([part, s + part, 2 * s + kind], axis=1)
        values = np.stack(
            [
                self._rate.ravel() / self._row[part] * size[part],
                np.ones(s * m),
                self._gpus[part] * size[part] / self._types[kind],
            ],
            axis=1,
        )
        counts, pair_rows, pair_values, pair_cost = self._columns(pairs)
        cost = np.zeros(s * m)
        if self._worth is not None:
            cost = (self._rate * self._worth * size[:, None]).ravel() / self._unit
        upper = np.where(self._rate.ravel() > 0, np.inf, 0.0)
        width = 2 + s * m + len(pairs)
        self._cost = np.concatenate([[0.0, float(self._with_t)], cost, pair_cost])
        self._solver: Any = _Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            self._solver.setOptionValue(option, value)
        starts = np.cumsum(np.concatenate([[0, s, s], np.full(s * m, 3), counts]))
        accepted = self._solver.passModel(
            width,
            2 * s + m,
            int(starts[-1]),
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMaximize),
            0.0,
            self._cost,
            np.append(1.0, np.zeros(width - 1)),
            np.concatenate([[1.0, np.inf], upper, np.full(len(pairs), np.inf)]),
            np.concatenate([np.zeros(s), np.full(s + m, -np.inf)]),
            np.concatenate([np.full(s, np.inf), np.ones(s), np.where(self.kinds.capacity > 0, 1.0, 0.0)]),
            starts.astype(np.int32),
            np.concatenate([np.arange(s), np.arange(s), rows.ravel(), pair_rows]).astype(np.int32),
            np.concatenate([-parts.need / self._row, -asked / self._unit, values.ravel(), pair_values]),
            np.zeros(width, dtype=np.int32),
        )
        if accepted == highspy.HighsStatus.kError:
            raise ArylError("the solver refuses the program of classes")
        if basis is not None:
            status = highspy.HighsBasisStatus
            start = highspy.HighsBasis()
            start.col_status = [status.kBasic if b else status.kLower for b in basis.columns.tolist()]
            start.row_status = [
                status.kBasic if b else (status.kLower if i < s else status.kUpper)
                for i, b in enumerate(basis.rows.tolist())
            ]
            start.valid, start.alien = True, False
            self._solver.setBasis(start)

    def _beside(self, pairs: Pairs) -> tuple[F, F]:
        """(the first's rate, the second's) of every pair."""
        a, b = self._kind[pairs.first], self._kind[pairs.second]
        return self.kinds.beside[a, b, pairs.type], self.kinds.beside[b, a, pairs.type]

    def _key(self, pairs: Pairs) -> I:
        s, m = self._rate.shape
        key: I = (pairs.first * s + pairs.second) * m + pairs.type
        return key

    def _unit_of(self, pairs: Pairs) -> F:
        """Columns are in units of the smaller part, so that their entries are near 1."""
        unit: F = np.minimum(self.parts.size[pairs.first], self.parts.size[pairs.second])
        return unit

    def _columns(self, pairs: Pairs) -> tuple[I, I, F, F]:
        """(entries per column, rows, values, cost)."""
        s = len(self.parts.size)
        if not len(pairs):
            none = np.zeros(0, dtype=np.int64)
            return none, none, np.zeros(0), np.zeros(0)
        a, b, kind = pairs.first, pairs.second, pairs.type
        one, two = self._beside(pairs)
        unit = self._unit_of(pairs)
        own = a == b
        rows = np.stack([a, b, s + a, s + b, 2 * s + kind], axis=1)
        values = np.stack(
            [
                one / self._row[a] * unit * (1 + own),
                two / self._row[b] * unit,
                unit / self.parts.size[a] * (1 + own),
                unit / self.parts.size[b],
                self._gpus[a] * unit / self._types[kind],
            ],
            axis=1,
        )
        kept = np.ones(rows.shape, dtype=bool)
        kept[own, 1] = kept[own, 3] = False
        cost = np.zeros(len(pairs))
        if self._worth is not None and not self._meeting:
            cost = (one * self._worth[a, kind] + two * self._worth[b, kind]) * unit / self._unit
        return kept.sum(axis=1), rows[kept], values[kept], cost

    def solve(self, what: str, *, price: bool = True) -> None:
        """To optimality over all pairs there are; without ``price``, over those at hand.
        InfeasibleError where the needs cannot be met."""
        if (self._priced if price else self._run)(what):
            return
        self._meet(what)
        if not self._priced(what):
            raise ArylError(f"{what}: needs that can be met were not")

    def _meet(self, what: str) -> None:
        """Pairs until every need is met."""
        self._objective(meeting=True)
        self._priced(what)
        if self._part < 1 - 1e-9:
            part = f"{100 * self._part:.6g} %"
            raise InfeasibleError(
                f"{what}: at most {part} of the rates that are asked for can be had together"
            )
        self._objective(meeting=False)

    def _objective(self, *, meeting: bool) -> None:
        """max u, u ≤ 1 and t = 0; or the program's own, u = 1."""
        self._meeting = meeting
        width = self._rate.size + 2 + len(self.pairs)
        cost = np.zeros(width)
        cost[0] = float(meeting)
        if not meeting:
            cost[: 2 + self._rate.size] = self._cost[: 2 + self._rate.size]
            cost[2 + self._rate.size :] = self._columns(self.pairs)[3]
        which = np.arange(width, dtype=np.int32)
        self._solver.changeColsCost(width, which, cost)
        self._solver.changeColBounds(0, 0.0 if meeting else 1.0, 1.0)
        self._solver.changeColBounds(1, 0.0, 0.0 if meeting else np.inf)

    def _priced(self, what: str) -> bool:
        """The present objective, over all pairs; False where the columns at hand do not meet the needs."""
        for _ in range(1000):
            if not self._run(what):
                return False
            worth: F | float = 0.0
            if self._worth is not None and not self._meeting:
                worth = self._worth / self._unit
            wanted, value, self._over = price(
                self.kinds,
                self._kind,
                self._gpus,
                self.parts.size,
                self._beta[:, None] + worth * np.ones(len(self._types)),
                self._alpha,
                self._lam,
            )
            # in the columns' own units, where the tolerance of the solver holds
            wrong = value * self._unit_of(wanted) > 1e-9
            wrong &= ~np.isin(self._key(wanted), self._key(self.pairs))  # what is there is rounding
            if not wrong.any():
                return True
            wanted, value = wanted.at(wrong), value[wrong]
            if len(wanted) > MOST_NEW:
                wanted = wanted.at(np.argpartition(-value, MOST_NEW)[:MOST_NEW])
            counts, rows, values, cost = self._columns(wanted)
            q = len(wanted)
            starts = np.append(0, np.cumsum(counts)[:-1]).astype(np.int32)
            self._solver.addCols(
                q, cost, np.zeros(q), np.full(q, np.inf), len(rows), starts, rows.astype(np.int32), values
            )
            self.pairs = Pairs(
                first=np.append(self.pairs.first, wanted.first),
                second=np.append(self.pairs.second, wanted.second),
                type=np.append(self.pairs.type, wanted.type),
            )
        raise ArylError(f"{what}: pairs that improve the program did not come to an end")

    def _run(self, what: str) -> bool:
        from highspy import HighsModelStatus as Status

        highs.run(self._solver)
        status = self._solver.getModelStatus()
        if status in (Status.kInfeasible, Status.kUnboundedOrInfeasible):
            return False
        if status != Status.kOptimal:
            raise ArylError(f"{what}: not solved ({self._solver.modelStatusToString(status)})")
        found = self._solver.getSolution()
        s, m = self._rate.shape
        values, duals = np.array(found.col_value), np.array(found.row_dual)
        self._reduced = np.array(found.col_dual)
        self._part, self.t = float(values[0]), float(values[1]) / self._unit
        self.alone: F = np.maximum(values[2 : 2 + s * m], 0.0).reshape(s, m) * self.parts.size[:, None]
        self.together: F = np.maximum(values[2 + s * m :], 0.0) * self._unit_of(self.pairs)
        # duals in the solver's objective; turned to the program's own below
        self._beta: F = np.maximum(-duals[:s], 0.0) / self._row
        self._lam: F = np.maximum(duals[2 * s :], 0.0) / self._types
        gain = self._beta[:, None] * self._rate - self._gpus[:, None] * self._lam
        if self._worth is not None and not self._meeting:
            gain += self._rate * self._worth / self._unit
        gain[:, self.kinds.capacity <= 0] = 0.0
        self._alpha: F = np.maximum(gain.max(axis=1), np.maximum(duals[s : 2 * s], 0.0) / self.parts.size)
        return True

    @property
    def bound(self) -> float:
        """No solution is better: the value of the duals, made feasible for every column there could be."""
        beta, lam = self._beta, self._lam + self._over
        value = float(lam @ self.kinds.capacity + self._alpha @ self.parts.size - beta @ self.parts.need)
        if self._with_t:
            return value / float(beta @ self.parts.slope)
        return value * self._unit

    @property
    def duals(self) -> tuple[F, F, F]:
        """(β per part, α per part, λ per type), objective per unit of each right-hand side."""
        size = 1.0 / float(self._beta @ self.parts.slope) if self._with_t else self._unit
        return self._beta * size, self._alpha * size, self._lam * size

    def columns(self) -> tuple[I, F, F, I]:
        """(part, rate, time, label) of all time that is not idle, each pair once for each side; labels:
        ``type`` alone, ``m + 2·column`` and ``m + 2·column + 1`` for the two sides of a pair."""
        m = self._rate.shape[1]
        part, kind = np.nonzero(self.alone > 1e-12)
        on = np.flatnonzero(self.together > 1e-12)
        used = self.pairs.at(on)
        one, two = self._beside(used) if len(on) else (np.zeros(0), np.zeros(0))
        time = self.together[on]
        return (
            np.concatenate([part, used.first, used.second]),
            np.concatenate([self._rate[part, kind], one, two]),
            np.concatenate([self.alone[part, kind], time, time]),
            np.concatenate([kind, m + 2 * on, m + 2 * on + 1]),
        )

    def cut(self, parts: Parts, parent: I, *, reach: float) -> ClassLP:
        """The program of ``parts``, pieces of this one's: piece p comes of part ``parent[p]`` (sorted)."""
        s, m = self._rate.shape
        found = self._solver.getBasis()
        columns = np.array([int(b) for b in found.col_status], dtype=np.int64) == 1
        rows = np.array([int(b) for b in found.row_status], dtype=np.int64) == 1
        kept = np.flatnonzero(columns[2 + s * m :] | (self._reduced[2 + s * m :] > -NEAR))
        old = self.pairs.at(kept)
        one, two = self._beside(old) if len(old) else (np.zeros(0), np.zeros(0))
        scale = self.kinds.scale[self.parts.of]
        basis = Basis(
            own=columns[:2],
            alone=columns[2 : 2 + s * m].reshape(s, m),
            pairs=columns[2 + s * m :][kept],
            rate=rows[:s],
            time=rows[s : 2 * s],
            types=rows[2 * s :],
        )
        pairs, start = inherited(
            basis,
            old,
            alone=self._rate / scale[:, None],
            beside=(one / scale[old.first], two / scale[old.second]),
            parent=parent,
            size=parts.size,
        )
        return ClassLP(self.kinds, parts, pairs, reach=reach, basis=start)
