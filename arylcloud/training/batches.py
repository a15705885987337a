"""The same training on any number of processes: who takes which samples, and what they weigh.

    order = aryl.Order(len(data), seed=0)
    for step in aryl.Steps(order, global_batch=256, micro_batch=8, seen=saved_seen, until=total_samples):
        for micro in step.micro:
            loss = mean_loss(model, data, micro.indices) * micro.weight
            loss.backward()                          # gradients add up over micro-batches …
        add_up_gradients_over_all_processes(model)   # … and over processes (a sum, not a mean)
        optimiser.step()
        seen = step.seen                             # into the checkpoint: all that a resume needs

**The global batch stays** when machines come and go: fewer processes take more micro-batches each (gradient
accumulation). Weights make the sum the mean over the global batch, also where it does not divide evenly. So
the loss as a function of samples seen is that of a fixed number of machines, up to the order of
floating-point sums.

**Or it scales** with the processes (``global_batch=32 * world``), and the learning rate with it by a stated
rule: ``scaled_rate``. That is another training than before; what it does to the loss is for its user to
judge.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from arylcloud.training.environment import info
from arylcloud.training.sampling import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """What one process puts through its model at once."""

    indices: tuple[int, ...]
    weight: float
    """Times the *mean* loss over ``indices``: its share of the global batch's mean, where gradients are
    summed over processes. Where they are averaged (DistributedDataParallel): times the number of
    processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimiser step, as one process sees it."""

    number: int
    """From 0, counted from the first sample: ``seen`` before it, in global batches."""
    micro: tuple[Micro, ...]
    size: int
    """Of the global batch; the last one may be smaller."""
    seen: int
    """Samples seen by all processes, once this step is done."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from ``seen`` to ``until`` (samples), for process ``rank`` of ``world``.

    Without ``rank`` and ``world``: torchrun's ``RANK`` and ``WORLD_SIZE``, else this node's place among the
    nodes (one process each). Raises ValueError for what cannot be dealt out.
    """

    order: Order
    global_batch: int
    micro_batch: int | None = None
    """Most samples at once; None = a process's whole share."""
    seen: int = 0
    until: int | None = None
    """None = for ever."""
    rank: int | None = None
    world: int | None = None

    def __iter__(self) -> Iterator[Step]:
        rank, world = place(self.rank, self.world)
        if self.global_batch < world:
            raise ValueError(
                f"a global batch of {self.global_batch} for {world} processes: some would get none"
            )
        if self.micro_batch is not None and self.micro_batch < 1:
            raise ValueError(f"micro-batches of {self.micro_batch} samples")
        seen = self.seen
        while self.until is None or seen < self.until:
            size = self.global_batch if self.until is None else min(self.global_batch, self.until - seen)
            begin, end = share(size, rank, world)
            mine = self.order.take(seen + begin, end - begin)
            number = seen // self.global_batch
            seen += size
            yield Step(number=number, micro=_micro(mine, size, self.micro_batch), size=size, seen=seen)


def place(rank: int | None, world: int | None) -> tuple[int, int]:
    """(rank, number) of this process. Raises ValueError for a rank outside of the world."""
    if (rank is None) != (world is None):
        raise ValueError("rank and world: both or neither")
    if rank is None or world is None:
        here, env = info(), os.environ
        if env.get("RANK", "").isdigit() and env.get("WORLD_SIZE", "").isdigit():
            rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        else:
            rank, world = here.rank, here.world
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world} processes")
    return rank, world


def share(size: int, rank: int, world: int) -> tuple[int, int]:
    """Of ``size`` samples in order, those from the first to before the second number are ``rank``'s: whole,
    without overlap, in order of rank, and no two shares differ by more than one.

    >>> [share(10, rank, 4) for rank in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    each, more = divmod(size, world)
    begin = rank * each + min(rank, more)
    return begin, begin + each + (rank < more)


def _micro(mine: list[int], size: int, most: int | None) -> tuple[Micro, ...]:
    """Cut as evenly as can be: the same number of samples, or one less, in each."""
    if not mine:  # of a last, smaller batch
        return ()
    count = 1 if most is None else -(-len(mine) // most)
    cuts = (share(len(mine), n, count) for n in range(count))
    return tuple(Micro(indices=tuple(mine[a:b]), weight=(b - a) / size) for a, b in cuts)


def scaled_rate(
    rate: float, *, batch: int, base_batch: int, rule: Literal["linear", "sqrt"] = "linear"
) -> float:
    """The learning rate for a global batch of ``batch`` that corresponds to ``rate`` at ``base_batch``.

    ``linear`` for SGD (Goyal et al. 2017, arXiv:1706.02677; with a warm-up of the user's own at a large
    jump); ``sqrt`` for Adam and its kin (Malladi et al. 2022, arXiv:2205.10287).

    >>> scaled_rate(0.1, batch=512, base_batch=256), scaled_rate(0.1, batch=1024, base_batch=256, rule="sqrt")
    (0.2, 0.2)
    """
    if batch < 1 or base_batch < 1:
        raise ValueError(f"batches of {batch} and {base_batch} samples")
    ratio = batch / base_batch
    match rule:
        case "linear":
            return rate * ratio
        case "sqrt":
            return rate * math.sqrt(ratio)
    raise ValueError(f"no rule {rule!r}: linear or sqrt")
