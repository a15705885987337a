"""What an elastic training in PyTorch needs as well: agreeing, adding up gradients, loading batches.

    from arylcloud.training import pytorch as aryl_torch

Imports torch; nothing else of the library does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]

from arylcloud.training.batches import Step, Steps


def together(flag: bool, device: str | torch.device | None = None) -> bool:
    """Whether any process says so. Signals and notices reach processes at different steps; who stops, or
    saves, alone leaves the others waiting in their next collective. Call it in every process, at the same
    step. ``device``: where the question travels; None = where the process group's backend can take it from
    (NCCL: the current GPU, others: the CPU)."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return flag
    if device is None:
        nccl = dist.get_backend() == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
    found = torch.tensor([int(flag)], device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return bool(found.item())


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Gradients of all processes, added up in place, in one message (per type and device): the other half of
    ``Micro.weight``. A process whose share is empty adds nothing. (Where DistributedDataParallel averages,
    use its weight.)"""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    alike: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for p in parameters:  # in one order on all processes, and so the messages are
        if p.requires_grad:
            alike.setdefault((p.dtype, p.device), []).append(p)
    for trained in alike.values():
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in trained])
        dist.all_reduce(flat)
        for p, summed in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
            p.grad = summed.view_as(p).clone()


def batches(
    data: torch.utils.data.Dataset[Any], steps: Steps, **options: Any
) -> Iterator[tuple[Step, list[Any]]]:
    """(step, the loaded batch of each of its micro-batches), through a DataLoader; ``options`` are its own
    (``num_workers``, ``pin_memory``, …). What it reads ahead is not seen before its step is."""
    loaded = iter(torch.utils.data.DataLoader(data, batch_sampler=_Indices(steps), **options))
    for step in steps:
        yield step, [next(loaded) for _ in step.micro]


class _Indices:
    """A batch sampler without a length: a training may have no end."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[list[int]]:
        return (list(micro.indices) for step in self._steps for micro in step.micro)
