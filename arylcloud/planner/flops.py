"""Throughput of a dense transformer from its shape alone: FLOPs per token and one MFU per GPU.

tokens/s = GPUs × efficiency × MFU × size × peak FLOP/s ÷ (6N + 12·L·d·s) with N parameters, L layers, width
d and sequence length s (Kaplan et al. 2020, appendix B of PaLM 2022). ``size`` = min(1, (N/8e8)^0.10): small
models keep a GPU less busy (fitted on llm-foundry's 125 M to 760 M). Measured errors, the model left out:
``benchmarks/bench_profiles.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from arylcloud.core import gpus
from arylcloud.core.gpus import GpuSpec


class Mfu(NamedTuple):
    value: float
    """Model FLOPs utilisation on a whole machine (8 GPUs), fraction of the dense peak."""
    calibrated: bool
    source: str


_FOUNDRY: Final = "mosaicml/llm-foundry scripts/train/benchmarking, 2024-04-22"
_BRIDGE: Final = "NVIDIA-NeMo/Megatron-Bridge performance summary, 2025-11 to 2026-08"
_TORCHTITAN: Final = "pytorch/torchtitan benchmarks, 2024-12 to 2025-06"
_TPU: Final = "AI-Hypercomputer/tpu-recipes, 2026"
# medians over the runs of each source, after division by `size_factor`
_MFU: Final[Mapping[tuple[str, str], tuple[float, str]]] = {
    ("A100", "16bit"): (0.522, _FOUNDRY),
    ("A100-80GB", "16bit"): (0.560, _FOUNDRY),
    ("H100", "16bit"): (0.406, _FOUNDRY),
    ("H100", "fp8"): (0.404, _BRIDGE),
    ("H200", "fp8"): (0.335, _TORCHTITAN),
    ("B200", "fp8"): (0.398, _BRIDGE),
    ("GB200", "fp8"): (0.413, _BRIDGE),
    ("GB300", "fp8"): (0.507, _BRIDGE),
    ("TPUv5p", "16bit"): (0.716, _TPU),
    ("TPUv6e", "16bit"): (0.479, _TPU),
    ("TPUv7x", "16bit"): (0.570, _TPU),
    ("TPUv7x", "fp8"): (0.436, _TPU),
}
# where a GPU has no runs of its own: its generation's, else the lowest calibrated one
_LIKE: Final[Mapping[str, str]] = {"A100-80GB-PCIE": "A100-80GB", "H100-PCIE": "H100", "H100-NVL": "H100"}
_BY_ARCH: Final[Mapping[str, float]] = {"Ampere": 0.522, "Hopper": 0.406}
_DEFAULT: Final = 0.40

MFU_MACHINE: Final = 8
"""GPUs of the machine that the MFUs were taken on: their losses between GPUs are already inside."""

CALIBRATED_BAND: Final = (1.35, 1.25)
"""(down, up): the true rate lies in [T/down, T·up]; from other frameworks on the calibrated GPUs."""
UNCALIBRATED_BAND: Final = (1.45, 1.20)
"""As measured with the GPU left out, on data-centre GPUs: nothing is known of others."""
CAUTION: Final = 0.03
"""Log by which a GPU without calibrated MFU is estimated lower: too high costs more than too low."""
SMALL_MODEL: Final = 8e8
SIZE_EXPONENT: Final = 0.10


def flops_per_token(params: float, layers: int, hidden: int, seq_len: int) -> float:
    """Training FLOPs (forward and backward) per token: 6N + 12·L·d·s.

    >>> f"{flops_per_token(124e6, 12, 768, 1024):.4g}"
    '8.572e+08'
    """
    return 6 * params + 12 * layers * hidden * seq_len


def size_factor(params: float) -> float:
    """Share of the usual MFU that a small model reaches.

    >>> round(size_factor(125e6), 3), size_factor(7e9)
    (0.831, 1.0)
    """
    return min(1.0, math.pow(params / SMALL_MODEL, SIZE_EXPONENT))


def peak_tflops(spec: GpuSpec, precision: str) -> float | None:
    """Dense peak that a precision class runs at; a class that the GPU lacks runs at the next one it has.

    >>> peak_tflops(gpus.spec("V100"), "fp32"), peak_tflops(gpus.spec("K80"), "16bit")
    (15.7, 4.37)
    """
    half = spec.fp16_bf16_tflops or spec.fp32_tflops
    if precision == "fp32":
        return spec.fp32_tflops or half
    if precision == "tf32":
        return spec.tf32_tflops or spec.fp32_tflops or half
    if precision in ("fp8", "fp4"):
        return spec.fp8_tflops or half
    return half


def mfu(gpu: str, precision: str) -> Mfu:
    """Utilisation to expect; ``calibrated`` only where runs on this very GPU and precision are behind it.

    >>> mfu("A100", "16bit").value, mfu("H200", "16bit").calibrated
    (0.522, False)
    """
    found = _MFU.get((gpu, precision))
    if found is not None:
        return Mfu(found[0], True, found[1])
    like = _MFU.get((_LIKE.get(gpu, gpu), "16bit"))
    if like is not None:
        return Mfu(like[0], False, like[1])
    spec = gpus.BY_NAME.get(gpu)
    return Mfu(_BY_ARCH.get(spec.arch, _DEFAULT) if spec else _DEFAULT, False, _FOUNDRY)
