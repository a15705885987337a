"""Elastic data parallelism in PyTorch: machines come and go, the loss over samples seen stays the same.

    python train.py --samples 96000

One process per machine (``job.yaml``), or torchrun's processes on each (``torchrun.yaml``): the script is the
same. The global batch is constant, fewer processes take more micro-batches; what has been seen is in the
checkpoint, so no sample is left out or seen twice when the world changes.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from arylcloud import training as aryl
from arylcloud.training import pytorch as aryl_torch

GLOBAL_BATCH, MICRO_BATCH, RATE = 96, 16, 1e-2
SILENT_S = 60
"""A peer that says nothing for this long fails the process; the launcher is usually faster."""


class Waves(torch.utils.data.Dataset):
    """4,096 points of a function that a small network can learn; each follows from its index alone."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.sin(torch.arange(1, 17) * (0.37 * (index + 1)))
        return x, torch.stack([x[:8].prod(), (x[8:] ** 2).mean()])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=96_000, help="samples to be seen in all")
    parser.add_argument(
        "--step-s", type=float, default=0.0, help="make every step take this long, to watch it"
    )
    parser.add_argument("--log-every", type=int, default=100, metavar="STEPS")
    options = parser.parse_args()

    aryl.install()
    os.environ.setdefault("RANK", str(aryl.info().rank))  # torchrun has set both
    os.environ.setdefault("WORLD_SIZE", str(aryl.info().world))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else "cpu"
    )
    if device == "cpu":
        torch.set_num_threads(1)  # the order of sums depends on their number
    if world > 1:
        backend = "gloo" if device == "cpu" else "nccl"
        dist.init_process_group(backend, timeout=timedelta(seconds=SILENT_S))

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)).double()
    model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    seen = 0
    if (resume := aryl.latest()) is not None:
        saved = torch.load(resume / "state.pt", map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        seen = saved["seen"]
    print(f"attempt {aryl.info().attempt}: rank {rank} of {world}, {seen} samples seen", flush=True)

    def save() -> None:
        if rank == 0:  # all processes have the same weights
            with aryl.save(seen // GLOBAL_BATCH) as folder:
                state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "seen": seen}
                torch.save(state, folder / "state.pt")

    data = Waves()
    steps = aryl.Steps(
        aryl.Order(len(data), seed=1),
        global_batch=GLOBAL_BATCH,
        micro_batch=MICRO_BATCH,
        seen=seen,
        until=options.samples,
    )
    for step, loaded in aryl_torch.batches(data, steps):
        optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for micro, (x, y) in zip(step.micro, loaded, strict=True):
            loss = (
                torch.nn.functional.mse_loss(model(x.double().to(device)), y.double().to(device))
                * micro.weight
            )
            loss.backward()
            total += loss.detach()
        aryl_torch.sum_gradients(model.parameters())
        optimiser.step()
        seen = step.seen
        if (step.number + 1) % options.log_every == 0 and world > 1:
            dist.all_reduce(total)
        if (step.number + 1) % options.log_every == 0 and rank == 0:
            print(f"seen {seen} loss {total.item():.12f} world {world}", flush=True)
        aryl.progress(step.number + 1, -(-options.samples // GLOBAL_BATCH))
        if aryl_torch.together(aryl.should_stop(), device) and seen < options.samples:
            save()  # asked to stop, and all agree at which step: handed over
            return 0
        if aryl_torch.together(aryl.should_checkpoint(default_s=5.0), device):
            save()
        if options.step_s:
            time.sleep(options.step_s)
    save()
    aryl.finished()
    if world > 1:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
