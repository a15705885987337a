"""Pollux's step-time model: one fit for batch sizes, GPUs and machines of one workload on one GPU type.

    T_grad(m)     = α_c + β_c·m                                     m: samples per GPU and micro-step
    T_sync(K, N)  = 0 (K = 1) | α_r + β_r·max(K−2, 0) (one machine) | α_n + β_n·max(K−2, 0) (several)
    T_step        = s·T_grad + (T_grad^γ + T_sync^γ)^(1/γ)          s accumulated micro-steps, γ ∈ [1, 10]

K GPUs on N machines. Qiao et al., OSDI 2021, section 4; constants of the priors as in its published fit
(γ towards 1, β small beside α), here on the logarithms of the step times, with the losses of far-off
points damped. What the measurements do not touch is taken from the prior: several machines cost at
least 1.1 times what one costs; with a single batch size α_c is half of the step.

Held-out placements on 30 model × GPU pairs: median 6.4 %, 95th percentile 51 % in the study;
``benchmarks/bench_profiles.py`` prints this fit's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_POINTS: Final = 3
_ROUNDS: Final = 25
_HUBER: Final = 0.35
"""Log residuals beyond this count linearly: a placement that stalled once is not what all are like."""
_REMOTE: Final = 1.1
_FLOOR: Final = 1e-6
_GAMMA_MAX: Final = 10.0
_TIE: Final = 0.1
"""Pull of several machines towards what one costs, and of γ towards 1: so weak that a placement undoes it."""


BAND_OFFSET: Final = 0.05
BAND: Final = (1.84, 1.53)
"""(down, up) of the log rate in units of hypot(residual, BAND_OFFSET): 90 % of placements held out."""
FEW_POINTS: Final = 4
FEW_BAND: Final = (0.12, 0.80)
"""For a fit to no more points than that (one GPU, a full machine, two): its residual says nothing."""


class Observation(NamedTuple):
    """One measured step."""

    gpus: int
    nodes: int
    batch_per_gpu: float
    """Samples per GPU and micro-step."""
    step_s: float
    accumulated: int = 0
    """Micro-steps before the one that synchronises."""


class StepTime(NamedTuple):
    """Seconds; the parameters of the module's formula."""

    alpha_grad: float
    beta_grad: float
    alpha_local: float
    beta_local: float
    alpha_remote: float
    beta_remote: float
    gamma: float
    residual: float
    """Root of the mean squared log residual of the fit."""
    points: int = 0
    """Measurements behind it."""

    def band(self) -> tuple[float, float]:
        """(down, up): logarithms of the rate's 90 % band at a placement that was not measured."""
        if self.points <= FEW_POINTS:
            return FEW_BAND
        size = math.hypot(self.residual, BAND_OFFSET)
        return BAND[0] * size, BAND[1] * size

    def step_s(self, gpus: int, nodes: int, batch_per_gpu: float, accumulated: int = 0) -> float:
        """Seconds of one step.

        >>> m = StepTime(0.1, 0.01, 0.05, 0.001, 0.2, 0.002, 1.0, 0.0)
        >>> m.step_s(1, 1, 10), round(m.step_s(8, 1, 10), 3), round(m.step_s(16, 2, 10), 3)
        (0.2, 0.256, 0.428)
        """
        grad = self.alpha_grad + self.beta_grad * batch_per_gpu
        extra = max(gpus - 2, 0)
        if gpus == 1:
            sync = 0.0
        elif nodes == 1:
            sync = self.alpha_local + self.beta_local * extra
        else:
            sync = self.alpha_remote + self.beta_remote * extra
        top = max(grad, sync)
        powers = math.pow(grad / top, self.gamma) + math.pow(sync / top, self.gamma)
        overlapped = top * math.pow(powers, 1 / self.gamma)
        return accumulated * grad + overlapped

    def rate(self, gpus: int, nodes: int, batch_per_gpu: float, accumulated: int = 0) -> float:
        """Samples per second of all GPUs together."""
        samples = gpus * batch_per_gpu * (accumulated + 1)
        return samples / self.step_s(gpus, nodes, batch_per_gpu, accumulated)


def fit(observations: Sequence[Observation]) -> StepTime | None:
    """The model that the measurements lead to; None with fewer than three of them, or on one count only.

    Levenberg–Marquardt on the logarithms of the seven parameters from a few starts; deterministic.
    """
    import numpy as np

    if len(observations) < MIN_POINTS or len({(o.gpus, o.nodes) for o in observations}) < 2:
        return None
    data = _Data(
        gpus=np.array([o.gpus for o in observations], dtype=np.float64),
        nodes=np.array([o.nodes for o in observations]),
        batch=np.array([o.batch_per_gpu for o in observations], dtype=np.float64),
        accumulated=np.array([o.accumulated for o in observations], dtype=np.float64),
        log_step=np.log([o.step_s for o in observations]),
    )
    best: tuple[float, Floats] | None = None
    for start in _starts(data):
        cost, theta = _descend(data, start)
        if best is None or cost < best[0]:
            best = (cost, theta)
    assert best is not None
    a_c, b_c, a_r, b_r, a_n, b_n, gamma = _parameters(best[1])
    misses = _log_steps(data, best[1]) - data.log_step
    residual = float(np.sqrt(np.mean(misses**2)))
    return StepTime(a_c, b_c, a_r, b_r, a_n, b_n, gamma, residual, len(observations))


class _Data(NamedTuple):
    gpus: Floats
    nodes: NDArray[np.int64]
    batch: Floats
    accumulated: Floats
    log_step: Floats


def _parameters(theta: Floats) -> tuple[float, ...]:
    """θ are logarithms; γ = 1 + 9·sigmoid."""
    values = [math.exp(t) for t in theta[:6]]
    return (*values, 1.0 + (_GAMMA_MAX - 1.0) / (1.0 + math.exp(-theta[6])))


def _log_steps(data: _Data, theta: Floats) -> Floats:
    import numpy as np

    a_c, b_c, a_r, b_r, a_n, b_n, gamma = _parameters(theta)
    grad = a_c + b_c * data.batch
    extra = np.maximum(data.gpus - 2, 0)
    sync = np.where(data.nodes == 1, a_r + b_r * extra, a_n + b_n * extra)
    sync = np.where(data.gpus == 1, 0.0, sync)
    top = np.maximum(grad, sync)
    overlapped = top * ((grad / top) ** gamma + (sync / top) ** gamma) ** (1 / gamma)
    found: Floats = np.log(data.accumulated * grad + overlapped)
    return found


def _starts(data: _Data) -> list[Floats]:
    import numpy as np

    step = np.exp(data.log_step)
    small = float(np.min(step[data.gpus == data.gpus.min()]))
    batch = float(np.median(data.batch))
    per_gpu = small / 2
    sync = max(float(np.median(step)) - small, 0.2 * small)
    starts = []
    for share in (0.1, 0.5):
        for gamma in (-2.0, 0.0):
            shared = [sync, 0.05 * sync, 2 * sync, 0.05 * sync]
            values = [2 * per_gpu * share, 2 * per_gpu * (1 - share) / batch, *shared]
            starts.append(np.array([*(math.log(max(v, _FLOOR)) for v in values), gamma]))
    return starts


def _residuals(data: _Data, theta: Floats, centre: Floats) -> Floats:
    """Of the data, damped, then of the priors: weak, so that they speak where the data do not."""
    import numpy as np

    raw = _log_steps(data, theta) - data.log_step
    size = np.abs(raw)
    damped = np.sign(raw) * np.sqrt(np.where(size <= _HUBER, size**2, 2 * _HUBER * size - _HUBER**2))
    a_r, b_r, a_n, b_n = theta[2:6]
    prior = np.array(
        [
            0.01 * (theta[6] + 2.0),
            0.02 * max(0.0, b_r - a_r + 1.0),
            0.02 * max(0.0, b_n - a_n + 1.0),
            0.30 * max(0.0, a_r + math.log(_REMOTE) - a_n),
            _TIE * (a_n - a_r - 0.7),
            _TIE * (b_n - b_r),
            *(0.01 * (theta[:6] - centre[:6])),
        ]
    )
    found: Floats = np.concatenate([damped, prior])
    return found


def _descend(data: _Data, start: Floats) -> tuple[float, Floats]:
    import numpy as np

    low = np.array([math.log(_FLOOR)] * 6 + [-8.0])
    high = np.array([math.log(1e5)] * 6 + [8.0])
    theta = np.clip(start, low, high)
    now = _residuals(data, theta, start)
    cost, damping = float(now @ now), 1e-2
    for _ in range(_ROUNDS):
        jacobian = np.empty((len(now), 7))
        for j in range(7):
            moved = theta.copy()
            moved[j] += 1e-5
            jacobian[:, j] = (_residuals(data, moved, start) - now) / 1e-5
        normal, slope = jacobian.T @ jacobian, jacobian.T @ now
        improved = False
        for _ in range(8):
            step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(7)), slope)
            tried = np.clip(theta - np.clip(step, -2, 2), low, high)
            after = _residuals(data, tried, start)
            if float(after @ after) < cost:
                improved = True
                break
            damping *= 4
        if not improved:
            break
        gain = cost - float(after @ after)
        theta, now, cost, damping = tried, after, float(after @ after), damping / 3
        if gain < 1e-7 * cost:
            break
    return cost, theta
