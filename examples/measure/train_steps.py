"""Training steps of GPT-2 124M, BERT-large and ResNet-50 in plain PyTorch, for ``arylcloud profile measure``.

Synthetic data, real models and optimiser: forward, backward, AdamW (SGD for ResNet-50), mixed precision on a
GPU. It reports each step by ``arylcloud.training`` and, for whoever runs it without, prints ``step N``.

    python train_steps.py gpt2                       # until it is stopped
    python train_steps.py bert-large --batch 32 --steps 200
    python train_steps.py resnet-50 --tiny --device cpu --steps 20     # the code path, in seconds
    arylcloud profile measure gpt2.yaml --for 120s --batch 16
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    sys.exit("PyTorch is needed: pip install torch")

from arylcloud import training as aryl


class Size(NamedTuple):
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int
    batch: int


GPT2 = Size(12, 768, 12, 50257, 1024, 16)
BERT_LARGE = Size(24, 1024, 16, 30522, 512, 16)
TINY = Size(2, 64, 4, 512, 32, 4)


class Block(nn.Module):
    """Pre-norm attention and MLP; causal for GPT-2."""

    def __init__(self, size: Size, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = size.heads, causal
        self.first, self.second = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.out = nn.Linear(size.hidden, size.hidden)
        self.up, self.down = nn.Linear(size.hidden, 4 * size.hidden), nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Token and position embeddings, blocks, tied output: next tokens (GPT-2) or all tokens (BERT)."""

    def __init__(self, size: Size, *, causal: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.positions = nn.Embedding(size.length, size.hidden)
        self.blocks = nn.ModuleList(Block(size, causal) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(depths: tuple[int, ...], width: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inside = width
    for i, depth in enumerate(depths):
        for j in range(depth):
            layers.append(Bottleneck(inside, width << i, 2 if i and not j else 1))
            inside = 4 * (width << i)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def build(name: str, *, tiny: bool, batch: int | None, device: str) -> tuple[nn.Module, Any, Any, int]:
    """(model, inputs, targets, samples per step)."""
    if name == "resnet-50":
        model = resnet((1, 1), 8, 10) if tiny else resnet((3, 4, 6, 3), 64, 1000)
        count, side, classes = batch or (4 if tiny else 128), 32 if tiny else 224, 10 if tiny else 1000
        x = torch.randn(count, 3, side, side, device=device)
        return model.to(device), x, torch.randint(classes, (count,), device=device), count
    size = TINY if tiny else GPT2 if name == "gpt2" else BERT_LARGE
    count = batch or size.batch
    ids = torch.randint(size.vocabulary, (count, size.length + 1), device=device)
    model = Transformer(size, causal=name == "gpt2").to(device)
    return model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), count


def stepper(model: nn.Module, x: Any, y: Any, name: str, device: str) -> Callable[[], float]:
    """One optimiser step; returns the loss when the device has done it."""
    if name == "resnet-50":
        optimiser: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    else:
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    cuda = device.startswith("cuda")
    half = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float16
    scaler = torch.amp.GradScaler("cuda", enabled=cuda and half is torch.float16)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=half, enabled=cuda):
            scores = model(x)
            loss = functional.cross_entropy(scores.reshape(-1, scores.shape[-1]).float(), y.reshape(-1))
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return float(loss.detach())  # waits for the device: the step is over

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=("gpt2", "bert-large", "resnet-50"))
    parser.add_argument("--batch", type=int, help="samples per step")
    parser.add_argument("--steps", type=int, help="stop after so many (default: until it is stopped)")
    parser.add_argument("--tiny", action="store_true", help="a toy of the same make, for a test")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    aryl.install()
    torch.manual_seed(0)
    model, x, y, samples = build(options.model, tiny=options.tiny, batch=options.batch, device=options.device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{options.model}: {count / 1e6:.1f} M parameters, {samples} samples per step on {options.device}")
    step = stepper(model, x, y, options.model, options.device)
    begun = time.monotonic()
    for done in itertools.count(1):
        loss = step()
        aryl.progress(done, options.steps)
        print(f"step {done} loss {loss:.4f}", flush=True)
        if aryl.should_stop() or done == options.steps:
            break
    print(f"{done / (time.monotonic() - begun):.3f} steps/s, warm-up included")
    return 0


if __name__ == "__main__":
    sys.exit(main())
