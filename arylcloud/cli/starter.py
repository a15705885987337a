"""A small training to start from: ``arylcloud init`` wrote it beside the job file. Put yours in its place.

It needs nothing but Python and ``arylcloud.training``, which every machine of a job has. A network of
32 hidden units learns which points lie in a ring. The lines marked ``arylcloud`` are those that let it
go on elsewhere, from its last checkpoint, when a machine is lost. It uses no GPU.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

from arylcloud import training as aryl

STEPS = 10_000  # about 10 s
BATCH = 64
HIDDEN = 32
RATE, MOMENTUM = 0.2, 0.9

Rows = list[list[float]]


def new_state() -> dict[str, Rows]:
    """Per hidden unit: two weights in, a bias, a weight out; and how fast each of them moves."""
    rng = random.Random("start")
    weights = [[rng.gauss(0, 2), rng.gauss(0, 2), rng.gauss(0, 1), rng.gauss(0, 0.2)] for _ in range(HIDDEN)]
    return {"weights": weights, "speeds": [[0.0] * 4 for _ in range(HIDDEN)]}


def points(name: str, count: int) -> list[tuple[float, float, float]]:
    """(x, y, 1 if in the ring else 0); the same for the same name, so that a resume repeats nothing else."""
    rng = random.Random(name)
    found = []
    for _ in range(count):
        x, y = rng.uniform(-1, 1), rng.uniform(-1, 1)
        found.append((x, y, 1.0 if 0.4 < math.hypot(x, y) < 0.8 else 0.0))
    return found


def forward(weights: Rows, x: float, y: float) -> tuple[list[float], float]:
    """Hidden values, and the probability that (x, y) lies in the ring."""
    hidden = [math.tanh(a * x + b * y + c) for a, b, c, _ in weights]
    score = sum(h * row[3] for h, row in zip(hidden, weights, strict=True))
    return hidden, 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def train_step(state: dict[str, Rows], step: int) -> float:
    """One step of gradient descent with momentum, in place. Returns the mean cross-entropy."""
    weights = state["weights"]
    slopes = [[0.0] * 4 for _ in weights]
    loss = 0.0
    for x, y, inside in points(f"step {step}", BATCH):
        hidden, p = forward(weights, x, y)
        loss -= math.log(max(p if inside else 1 - p, 1e-12)) / BATCH
        error = (p - inside) / BATCH
        for slope, row, h in zip(slopes, weights, hidden, strict=True):
            back = error * row[3] * (1 - h * h)
            slope[0] += back * x
            slope[1] += back * y
            slope[2] += back
            slope[3] += error * h
    for row, speed, slope in zip(weights, state["speeds"], slopes, strict=True):
        for i in range(4):
            speed[i] = MOMENTUM * speed[i] - RATE * slope[i]
            row[i] += speed[i]
    return loss


def accuracy(weights: Rows) -> float:
    unseen = points("unseen", 500)
    return sum((forward(weights, x, y)[1] > 0.5) == bool(inside) for x, y, inside in unseen) / len(unseen)


def save(state: dict[str, Rows], step: int) -> None:
    with aryl.save(step) as folder:  # arylcloud: whole, or not there at all
        (folder / "state.json").write_text(json.dumps({"step": step, **state}), encoding="utf-8")


def load(folder: Path) -> tuple[dict[str, Rows], int]:
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return state, state.pop("step")


def main() -> int:
    aryl.install()  # arylcloud: a signal now means "stop soon"
    state, step = new_state(), 0
    if (resume := aryl.latest()) is not None:  # arylcloud: the newest checkpoint, if there is one
        state, step = load(resume)
    print(f"{STEPS} steps, from step {step}", flush=True)
    while step < STEPS:
        step += 1
        loss = train_step(state, step)
        aryl.progress(step, STEPS)  # arylcloud: for status, ETA and what a loss cost
        if step % 500 == 0:
            print(f"step {step}/{STEPS}  loss {loss:.4f}", flush=True)
        if step < STEPS and aryl.should_stop():  # arylcloud: the machine is taken, or the job moves
            save(state, step)
            print(f"saved step {step}, handing over", flush=True)
            return 0
        if aryl.should_checkpoint(default_s=2.0):  # arylcloud: as often as pays, where that is known
            save(state, step)
    save(state, step)
    aryl.finished()  # arylcloud: an end, not a hand-over
    print(f"done: accuracy on 500 unseen points {accuracy(state['weights']):.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
