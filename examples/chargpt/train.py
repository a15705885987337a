"""A small GPT that learns to write like a licence, byte by byte: PyTorch, one process, CPU or one GPU.

Deterministic and resumable: each batch is a function of (seed, step), the whole state (model, optimiser,
step) is in every checkpoint. On a CPU the final weights are the same to the bit however often it was
interrupted; on a GPU, as far as its kernels are deterministic (torch is asked for those that are).

    python train.py --steps 2000
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic cuBLAS; read at its first use

import torch
from model import CharGPT, Shape

from arylcloud import training as aryl

TEXT = Path(__file__).resolve().parent / "apache-2.0.txt"
BATCH = 16
RATE = 1e-3


def batch_of(text: torch.Tensor, step: int, seed: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[BATCH, context] bytes from places that only (seed, step) decide, and the bytes that follow them."""
    chance = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - context - 1, (BATCH,), generator=chance)
    windows = torch.stack([text[at : at + context + 1] for at in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000, help="optimiser steps in all (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=100, metavar="STEPS")
    options = parser.parse_args()

    aryl.install()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # the order of sums depends on their number
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = Shape()
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    model = CharGPT(shape).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)

    step = 0
    if (resume := aryl.latest()) is not None:
        saved = torch.load(resume / "state.pt", map_location=device, weights_only=True)
        if saved["seed"] != options.seed:
            sys.exit(f"{resume} belongs to a run with seed {saved['seed']}, not {options.seed}")
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        step = saved["step"]
    size = sum(p.numel() for p in model.parameters())
    print(f"attempt {aryl.info().attempt}: {size:,} parameters on {device}, from step {step}", flush=True)

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "step": step,
            "seed": options.seed,
        }
        with aryl.save(step) as folder:
            torch.save(state, folder / "state.pt")

    at = step
    aryl.progress(step, options.steps)
    while step < options.steps:
        tokens, targets = batch_of(text, step, options.seed, shape.context)
        loss = model(tokens.to(device), targets.to(device))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        step += 1
        aryl.progress(step, options.steps)
        if step % options.log_every == 0:
            print(f"step {step}/{options.steps}  loss {loss.item():.4f} nats per byte", flush=True)
        if step < options.steps and aryl.should_stop():
            save()
            print(f"asked to stop: saved step {step}, handing over", flush=True)
            return 0
        if aryl.should_checkpoint(default_s=60.0):
            save()
            at = step
    if at < step or resume is None:
        save()
    aryl.finished()
    print(f"done: {step} steps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
