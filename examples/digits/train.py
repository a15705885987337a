"""Handwritten digits, for real and from scratch: a small network, Adam, NumPy alone.

Deterministic and resumable to the bit: the data order and the dropout are functions of (seed, step), the
whole state (weights, moments, step) is in every checkpoint, one thread does the sums. However often it is
interrupted, the files of its last checkpoint are byte for byte those of a run that never was (on the same
kind of CPU: another one may sum in another order).

    python train.py --steps 1000                     # plain: checkpoints go to ./checkpoints
    python train.py --steps 1000--step-s 0.05        # at most 20 steps a second: see --help
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

# before NumPy is imported: with several threads the order of sums, and so the last bit, would vary
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from arylcloud import training as aryl  # noqa: E402

Array = NDArray[np.float32]
State = dict[str, Array]

DATA = Path(__file__).resolve().parent / "optdigits-test.bin.gz"
DATA_SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"
TEST_EVERY = 5  # every fifth image is kept for the test; its writers also wrote some of the others
HIDDEN = 128
BATCH = 32
DROP = np.float32(0.2)
RATE, BETA1, BETA2, EPSILON = np.float32(3e-3), np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Split(NamedTuple):
    x: Array
    """Images [n, 64] in 0..1."""
    y: NDArray[np.int64]
    """Their digits [n]."""


def load_data() -> tuple[Split, Split]:
    """For training, for the test."""
    raw = gzip.decompress(DATA.read_bytes())
    if hashlib.sha256(raw).hexdigest() != DATA_SHA256:
        sys.exit(f"{DATA} is damaged")
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 65)
    x, y = rows[:, :64].astype(np.float32) / np.float32(16), rows[:, 64].astype(np.int64)
    test = np.arange(len(rows)) % TEST_EVERY == 0
    return Split(x[~test], y[~test]), Split(x[test], y[test])


def new_state(seed: int) -> State:
    rng = np.random.default_rng([seed, 0])
    shapes = {"w1": (64, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 10), "b2": (10,)}
    state: State = {}
    for name, shape in shapes.items():
        scale = np.sqrt(2.0 / shape[0]) if len(shape) == 2 else 0.0
        state[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    for name, shape in shapes.items():
        state[f"m.{name}"] = np.zeros(shape, np.float32)
        state[f"v.{name}"] = np.zeros(shape, np.float32)
    return state


def batch_of(step: int, seed: int, count: int) -> NDArray[np.int64]:
    """Rows of step ``step`` (from 0): a pass over all ``count`` in an order of its own, then the next."""
    per_pass = count // BATCH
    number, place = divmod(step, per_pass)
    order = np.random.default_rng([seed, 1, number]).permutation(count)
    return order[place * BATCH : (place + 1) * BATCH]


def kept(step: int, seed: int) -> Array:
    """Dropout: which hidden values step ``step`` keeps, [BATCH, HIDDEN], scaled up to the same mean."""
    keep = np.random.default_rng([seed, 2, step]).random((BATCH, HIDDEN), dtype=np.float32) >= DROP
    return keep.astype(np.float32) / (np.float32(1) - DROP)


def scores(state: State, x: Array, mask: Array | None = None) -> tuple[Array, Array]:
    hidden = np.maximum(x @ state["w1"] + state["b1"], np.float32(0))
    if mask is not None:
        hidden = hidden * mask
    return hidden, hidden @ state["w2"] + state["b2"]


def train_step(state: State, x: Array, y: NDArray[np.int64], mask: Array, step: int) -> float:
    """One step of Adam on the mean cross-entropy, in place; ``step`` counts from 1. Returns the loss."""
    n = len(x)
    hidden, z = scores(state, x, mask)
    z = z - z.max(axis=1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(axis=1, keepdims=True)
    loss = float(-np.log(p[np.arange(n), y]).mean())
    p[np.arange(n), y] -= np.float32(1)
    dz = p / np.float32(n)
    dh = (dz @ state["w2"].T) * mask * (hidden > 0)
    gradients = {"w1": x.T @ dh, "b1": dh.sum(axis=0), "w2": hidden.T @ dz, "b2": dz.sum(axis=0)}
    rate = RATE * np.float32(np.sqrt(1 - float(BETA2) ** step) / (1 - float(BETA1) ** step))
    for name, gradient in gradients.items():
        m, v = state[f"m.{name}"], state[f"v.{name}"]
        m += (np.float32(1) - BETA1) * (gradient - m)
        v += (np.float32(1) - BETA2) * (gradient * gradient - v)
        state[name] -= rate * m / (np.sqrt(v) + EPSILON)
    return loss


def accuracy(state: State, data: Split) -> float:
    return float((scores(state, data.x)[1].argmax(axis=1) == data.y).mean())


def write(folder: Path, state: State, step: int, seed: int) -> None:
    """One ``.npy`` an array: the same values always give the same bytes."""
    for name, array in state.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    (folder / "run.json").write_text(json.dumps({"seed": seed, "step": step}) + "\n", encoding="utf-8")


def read(folder: Path, seed: int) -> tuple[State, int]:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if run["seed"] != seed:
        sys.exit(f"{folder} belongs to a run with seed {run['seed']}, not {seed}")
    return {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in new_state(seed)}, run[
        "step"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="optimiser steps in all (default 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--step-s",
        type=float,
        default=float(os.environ.get("DIGITS_STEP_S") or 0),
        help="least wall seconds for a step: the rest is slept away. A step takes less than a millisecond, "
        "too short to be interrupted; "
        "this paces the demo and changes no result (default: $DIGITS_STEP_S, else 0)",
    )
    parser.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    options = parser.parse_args()

    aryl.install()
    data, unseen = load_data()
    state, step = new_state(options.seed), 0
    if (resume := aryl.latest()) is not None:
        state, step = read(resume, options.seed)
    where = f"from step {step}" if step else "from the beginning"
    print(f"attempt {aryl.info().attempt}: {options.steps} steps, {where}", flush=True)

    def save() -> None:
        with aryl.save(step) as folder:
            write(folder, state, step, options.seed)

    saved = step
    aryl.progress(step, options.steps)
    while step < options.steps:
        begun = time.monotonic()
        rows = batch_of(step, options.seed, len(data.x))
        step += 1
        loss = train_step(state, data.x[rows], data.y[rows], kept(step, options.seed), step)
        aryl.progress(step, options.steps)
        if step % options.log_every == 0:
            print(f"step {step}/{options.steps}  loss {loss:.4f}", flush=True)
        if step < options.steps and aryl.should_stop():
            save()
            left_s = aryl.notice_seconds_left()
            why = "asked to stop" if left_s is None else f"the cloud takes this machine in {left_s:.1f} s"
            print(f"{why}: saved step {step}, handing over", flush=True)
            return 0
        if aryl.should_checkpoint(default_s=5.0):
            save()
            saved = step
        time.sleep(max(0.0, begun + options.step_s - time.monotonic()))
    if saved < step or resume is None:
        save()
    aryl.finished()
    print(
        f"done: {step} steps, accuracy on {len(unseen.x)} unseen images {accuracy(state, unseen):.4f}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
