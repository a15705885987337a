"""Every accelerator by its canonical name: aliases, memory, peak figures.

A literal table, so that the pricing and planning rooms (and the job-file reader) mean the same thing by
``A100``. Figures: per accelerator as a cloud sells it (one K80 = half a board), dense peaks without
sparsity; ``None`` = not confirmed by a source. Collected in 2026-10 from stas00/ml-engineering,
Lightning-AI/pytorch-lightning, pytorch/torchtitan, mosaicml/composer, winston-zhang-orz/gpu-specs,
aws/karpenter-provider-aws, dstackai/gpuhunt and the vendors' pages; ``flags`` says where they disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One accelerator as a cloud sells it; ``None`` = no source confirms a figure."""

    name: str
    """Canonical: what offers, profiles and job files are compared by."""
    vendor: str
    arch: str
    year: int
    mem_gib: float | None
    mem_bw_gbps: float | None
    """GB/s, gigabytes."""
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp16_bf16_tflops: float | None
    """Dense tensor peak (fp16 on parts without bf16)."""
    fp8_tflops: float | None
    nvlink_gbps: float | None
    """GB/s to its peers in the machine, both directions together; 0 = PCIe only."""
    bf16_supported: bool | None
    variant_of: str | None
    """The same silicon in another form: whoever asks for that one is served by this one, too."""
    aliases: tuple[str, ...]
    flags: str
    """Where sources disagree, or what a figure leaves out."""


def _spec(
    name: str,
    vendor: str,
    arch: str,
    year: int,
    mem_gib: float | None,
    mem_bw_gbps: float | None,
    fp32: float | None,
    tf32: float | None,
    fp16: float | None,
    fp8: float | None,
    nvlink: float | None,
    bf16: bool | None,
    aliases: tuple[str, ...] = (),
    flags: str = "",
    variant_of: str | None = None,
) -> GpuSpec:
    return GpuSpec(
        name=name,
        vendor=vendor,
        arch=arch,
        year=year,
        mem_gib=mem_gib,
        mem_bw_gbps=mem_bw_gbps,
        fp32_tflops=fp32,
        tf32_tflops=tf32,
        fp16_bf16_tflops=fp16,
        fp8_tflops=fp8,
        nvlink_gbps=nvlink,
        bf16_supported=bf16,
        variant_of=variant_of,
        aliases=aliases,
        flags=flags,
    )


# fmt: off
# Aliases need no vendor words (nvidia, tesla, geforce, quadro, amd, instinct…): `_key` drops them.
# name, vendor, arch, year, GiB, GB/s, fp32, tf32, fp16/bf16, fp8, nvlink GB/s, bf16, aliases, flags, variant
SPECS: Final[tuple[GpuSpec, ...]] = (
    _spec("K80", "NVIDIA", "Kepler", 2014, 12, 240, 4.37, None, None, None, 0, False, (),
          "one cloud K80 = half a board (8.73 TFLOPS per board)"),
    _spec("P100", "NVIDIA", "Pascal", 2016, 16, 732, 9.3, None, 18.7, None, 160, False, ("P100-16GB",),
          "18.7 = non-tensor fp16 of the PCIe part; NVLink only on SXM2"),
    _spec("V100", "NVIDIA", "Volta", 2017, 16, 900, 15.7, None, 125, None, 300, False,
          ("V100-16GB", "V100-SXM2", "V100-SXM2-16GB", "V100-PCIE-16GB"),
          "no bf16; Azure's NCv3 is the PCIe part (14 fp32, 112 fp16)"),
    _spec("V100-32GB", "NVIDIA", "Volta", 2018, 32, 900, 15.7, None, 125, None, 300, False,
          ("V100-SXM2-32GB", "V100-SXM3-32GB")),
    _spec("T4", "NVIDIA", "Turing", 2018, 16, 320, 8.1, None, 65, None, 0, False, ("T4-16GB",),
          "bandwidth 320 (Google) or 300 (other tables)"),
    _spec("A10", "NVIDIA", "Ampere", 2021, 24, 600, 31.2, 62.5, 125, None, 0, True, ("A10-24GB",)),
    _spec("A10G", "NVIDIA", "Ampere", 2021, 24, 600, 31.2, 62.5, 125, None, 0, True, ("A10G-24GB",),
          "125 is A10's datasheet value; A10G's real tensor peak is lower: an upper bound"),
    _spec("A40", "NVIDIA", "Ampere", 2020, 48, 696, 37.4, 74.8, 149.7, None, None, True, ("A40-48GB",)),
    _spec("RTXA6000", "NVIDIA", "Ampere", 2020, 48, 768, 38.7, 77.4, 154.85, None, None, True,
          ("A6000", "RTX A6000"), "154.85 dense tensor (torchtitan); others list 38.7, non-tensor"),
    _spec("A100", "NVIDIA", "Ampere", 2020, 40, 1555, 19.5, 156, 312, None, 600, True,
          ("A100-40GB", "A100-SXM4", "A100-SXM4-40GB", "A100-SXM-40GB", "A100-PCIE-40GB")),
    _spec("A100-80GB", "NVIDIA", "Ampere", 2020, 80, 2039, 19.5, 156, 312, None, 600, True,
          ("A100-80G", "A100-SXM4-80GB", "A100-SXM-80GB", "A100-80GB-SXM", "A100-80GB-SXM4")),
    _spec("A100-80GB-PCIE", "NVIDIA", "Ampere", 2021, 80, 1935, 19.5, 156, 312, None, 600, True,
          ("A100-PCIE-80GB", "A100-PCIE"), "NVLink only by a bridge between pairs", "A100-80GB"),
    _spec("L4", "NVIDIA", "Ada", 2023, 24, 300, 30.3, 60, 121, 242, 0, True, ("L4-24GB",)),
    _spec("L40", "NVIDIA", "Ada", 2022, 48, None, 90.5, 90.5, 181, None, 0, True, ("L40-48GB",)),
    _spec("L40S", "NVIDIA", "Ada", 2023, 48, 864, 91.6, 183, 362, 733, 0, True, ("L40S-48GB",)),
    _spec("RTX3090", "NVIDIA", "Ampere", 2020, 24, 936.2, 35.6, 35.6, 142, None, None, True, ("3090",),
          "142 = fp16 accumulation; half of it with fp32 accumulation (75.6 measured)"),
    _spec("RTX4090", "NVIDIA", "Ada", 2022, 24, 1008, 82.6, 82.6, 165.2, None, 0, True, ("4090",),
          "165.2 = fp32 accumulation; non-tensor 82.6"),
    _spec("RTX6000-Ada", "NVIDIA", "Ada", 2022, 48, 960, None, None, None, None, 0, True,
          ("RTX 6000 Ada Generation", "A6000-Ada"), "tensor peak not confirmed"),
    _spec("RTX6000", "NVIDIA", "Turing", 2018, 24, 672, 16.3, None, 130.5, None, 100, False, (),
          "the passive server card is lower (14.9 fp32, 119.4 tensor, 624 GB/s)"),
    _spec("RTX2080Ti", "NVIDIA", "Turing", 2018, 11, 616, 14.2, None, None, None, None, False, ("2080Ti",),
          "tensor peak not confirmed"),
    _spec("H100", "NVIDIA", "Hopper", 2022, 80, 3350, 67, 494.5, 989, 1979, 900, True,
          ("H100-SXM", "H100-SXM5", "H100-80GB", "H100-80GB-SXM", "H100-80GB-SXM5", "H100-80GB-HBM3",
           "H100-MEGA", "H100-MEGA-80GB")),
    _spec("H100-PCIE", "NVIDIA", "Hopper", 2022, 80, 2000, 51, 378, 756, 1513, None, True,
          ("H100-80GB-PCIE", "H100-PCIE-80GB"), "", "H100"),
    _spec("H100-NVL", "NVIDIA", "Hopper", 2023, 94, None, 60, 417.5, 835, 1670.5, None, True,
          ("H100-94GB", "H100-NVL-94GB"), "bandwidth not confirmed; some tables call NC40ads 80 GB", "H100"),
    _spec("H200", "NVIDIA", "Hopper", 2024, 141, 4800, 67, 494.5, 989, 1979, 900, True,
          ("H200-SXM", "H200-SXM5", "H200-141GB", "H200-SXM-141GB")),
    _spec("GH200", "NVIDIA", "Hopper", 2023, 96, 4000, 67, 494.5, 989, 1979, 900, True,
          ("GH200-96GB", "GH200-480GB")),
    _spec("B200", "NVIDIA", "Blackwell", 2025, 180, 8000, 80, 1125, 2250, 4500, 1800, True,
          ("B200-SXM", "B200-180GB", "B200-192GB")),
    _spec("GB200", "NVIDIA", "Blackwell", 2025, 186, 8000, 80, 1250, 2500, 5000, 1800, True,
          ("GB200-NVL72", "GB200-186GB")),
    _spec("B300", "NVIDIA", "Blackwell Ultra", 2025, 270, 8000, 80, 1125, 2250, 4500, 1800, True,
          ("B300-SXM",), "memory 270 (AWS) or 288 (ml-engineering)"),
    _spec("GB300", "NVIDIA", "Blackwell Ultra", 2025, 288, 8000, 80, 1250, 2500, 5000, 1800, True,
          ("GB300-NVL72",), "bandwidth is B300's"),
    _spec("RTXPRO6000", "NVIDIA", "Blackwell", 2025, 96, None, None, None, None, None, 0, True,
          ("RTX-PRO-6000-Blackwell", "RTXPRO6000BSE", "RTX PRO 6000 Blackwell Server Edition"),
          "peaks not confirmed"),
    _spec("MI250X", "AMD", "CDNA2", 2021, 128, 3280, 47.9, None, 383, None, 700, True, (),
          "2 dies per board, 64 GiB each; link = XGMI"),
    _spec("MI300X", "AMD", "CDNA3", 2023, 192, 5300, 163.4, 653.7, 1300, 2610, 896, True, (),
          "measured matrix products reach 51 % of peak (torch 2.5)"),
    _spec("MI325X", "AMD", "CDNA3", 2024, 256, 6000, 163.4, 653.7, 1300, 2610, 896, True, (),
          "gpuhunt says 288 GB"),
    _spec("MI355X", "AMD", "CDNA4", 2025, 288, 8000, 157.3, None, 2500, 5000, 1071, True),
    _spec("TPUv4", "Google", "TPU", 2021, 32, 1200, None, None, 275, None, None, True, ("v4",),
          "v4-N counts cores: chips = N/2"),
    _spec("TPUv5e", "Google", "TPU", 2023, 16, 820, None, None, 197, None, None, True, ("v5e", "v5litepod"),
          "bandwidth 820 (an older table said 1600)"),
    _spec("TPUv5p", "Google", "TPU", 2023, 95, 2765, None, None, 459, None, None, True, ("v5p",),
          "v5p-N counts cores: chips = N/2"),
    _spec("TPUv6e", "Google", "TPU", 2024, 32, 1638, None, None, 918, 918, None, True, ("v6e", "Trillium")),
    _spec("TPUv7x", "Google", "TPU", 2025, 192, None, None, None, 2307, 4614, None, True,
          ("v7x", "Ironwood")),
    _spec("Trainium", "AWS", "NeuronCore-v2", 2021, 32, 820, 47.5, 47.5, 190, None, None, True,
          ("trn1", "Trainium1"), "2 cores per chip, 95 each here (90 in torchtitan)"),
    _spec("Trainium2", "AWS", "NeuronCore-v3", 2024, 96, 2900, 181, 667, 667, 1299, 1280, True, ("trn2",)),
    _spec("Gaudi", "Intel", "Gaudi", 2019, 32, None, None, None, None, None, None, True,
          ("HL-205", "Gaudi1")),
    _spec("Gaudi2", "Intel", "Gaudi2", 2022, 96, 2460, None, None, 432, 865, 600, True, ("HL-225",)),
    _spec("Gaudi3", "Intel", "Gaudi3", 2024, 128, 3700, 229, 459, 1677, 1677, 1200, True, (),
          "1677 is bf16; fp16 459"),
    # known by name and memory only: listed, never estimated from peaks
    _spec("A30", "NVIDIA", "Ampere", 2021, 24, None, None, None, None, None, None, True, ("A30-24GB",)),
    _spec("RTX8000", "NVIDIA", "Turing", 2018, 48, None, None, None, None, None, None, False),
    _spec("MI350X", "AMD", "CDNA4", 2025, 288, None, None, None, None, None, None, True),
    _spec("T4g", "NVIDIA", "Turing", 2021, 16, None, None, None, None, None, 0, False),
    _spec("M60", "NVIDIA", "Maxwell", 2015, 8, None, None, None, None, None, 0, False),
    _spec("K520", "NVIDIA", "Kepler", 2013, None, None, None, None, None, None, 0, False, ("GRID K520",)),
    _spec("RTXPRO4500", "NVIDIA", "Blackwell", 2025, 32, None, None, None, None, None, 0, True),
    _spec("RadeonProV520", "AMD", "RDNA1", 2020, 8, None, None, None, None, None, None, None, ("V520",)),
    _spec("RadeonProV620", "AMD", "RDNA2", 2021, 32, None, None, None, None, None, None, None, ("V620",)),
    _spec("RadeonProV710", "AMD", "RDNA3", 2024, 28, None, None, None, None, None, None, None, ("V710",)),
    _spec("RadeonMI25", "AMD", "GCN5", 2017, 16, None, None, None, None, None, None, None, ("MI25",)),
)
# fmt: on

_VENDOR_WORDS: Final = ("nvidia", "google", "intel", "amd", "aws", "instinct", "tesla", "geforce", "quadro")


def _key(name: str) -> str:
    """Letters and digits, lower case, without the vendor's words in front.

    >>> _key("NVIDIA Tesla V100-SXM2-16GB")
    'v100sxm216gb'
    """
    key = "".join(c for c in name.lower() if c.isalnum())
    again = True
    while again:
        again = False
        for word in _VENDOR_WORDS:
            if key.startswith(word) and len(key) > len(word):
                key, again = key[len(word) :], True
    return key


BY_NAME: Final[dict[str, GpuSpec]] = {spec.name: spec for spec in SPECS}
_BY_KEY: Final[dict[str, str]] = {
    _key(name): spec.name for spec in SPECS for name in (spec.name, *spec.aliases)
}


def find(name: str) -> str | None:
    """Canonical name, or None where no GPU is known by ``name`` (case and punctuation do not matter).

    >>> find("nvidia-tesla-a100"), find("a100 80gb"), find("H100-80GB-HBM3"), find("Z9")
    ('A100', 'A100-80GB', 'H100', None)
    """
    return _BY_KEY.get(_key(name))


def resolve(name: str) -> str:
    """Canonical name; UsageError with the nearest names where there is none."""
    found = find(name)
    if found is None:
        close = nearest(name)
        raise UsageError(
            f"no GPU is known by the name {name!r}",
            hint=f"did you mean {', '.join(close)}?" if close else "`arylcloud prices` lists every GPU",
        )
    return found


def nearest(name: str, limit: int = 3) -> tuple[str, ...]:
    """Canonical names that look most like ``name``, best first; may be empty.

    >>> nearest("A1000")
    ('A100', 'A100-80GB', 'RTXA6000')
    """
    from difflib import get_close_matches  # only on the way to an error message

    close = get_close_matches(_key(name), list(_BY_KEY), n=4 * limit, cutoff=0.5)
    return tuple(dict.fromkeys(_BY_KEY[key] for key in close))[:limit]


def spec(name: str) -> GpuSpec:
    """Figures of a GPU by any of its names; UsageError where it is unknown."""
    return BY_NAME[resolve(name)]


def serving(name: str) -> tuple[str, ...]:
    """Canonical names that satisfy a request for ``name``: itself, then its other forms.

    >>> serving("h100")
    ('H100', 'H100-PCIE', 'H100-NVL')
    """
    wanted = resolve(name)
    return (wanted, *(s.name for s in SPECS if s.variant_of == wanted))


def same_chip(name: str, shown: str) -> bool:
    """Whether a driver that shows ``shown`` may well speak of a ``name``: by the chip, not by its form or
    memory, which drivers spell in many ways.

    >>> same_chip("A100-80GB", "NVIDIA A100-SXM4-80GB"), same_chip("RTXA6000", "NVIDIA RTX A6000")
    (True, True)
    >>> same_chip("A100", "Tesla V100-SXM2-16GB")
    False
    """
    return _key(name.partition("-")[0]) in _key(shown)


_FP8_ARCHS: Final = ("Ada", "Hopper", "Blackwell", "Blackwell Ultra", "CDNA3", "CDNA4")
_FP4_ARCHS: Final = ("Blackwell", "Blackwell Ultra", "CDNA4")
_OF_VENDOR: Final = {"NVIDIA": ("Ampere", "Ada", "Blackwell"), "AMD": ("CDNA2", "CDNA3", "CDNA4")}
"""The first generation that has bf16, fp8, fp4."""


def lacks(name: str, precision: str) -> str | None:
    """Why a GPU cannot compute in ``precision``; None where it can, or nobody has said that it cannot.
    (fp32, tf32 and fp16 run everywhere, if at the speed of the next one that there is.)

    >>> lacks("T4", "fp8"), lacks("V100", "bf16"), lacks("L40S", "fp8")
    ('no fp8 (Ada or newer has it)', 'no bf16 (Ampere or newer has it)', None)
    """
    spec, text = BY_NAME.get(name), precision.strip().lower()
    if spec is None:
        return None
    for number, (kind, spellings) in enumerate(
        (("bf16", ("bf16", "bfloat16")), ("fp8", ("fp8", "mxfp8")), ("fp4", ("fp4", "nvfp4", "mxfp4")))
    ):
        if not any(text == known or text.startswith((f"{known}-", f"{known}_")) for known in spellings):
            continue
        if kind == "bf16":
            missing = spec.bf16_supported is False
        else:
            archs = _FP8_ARCHS if kind == "fp8" else _FP4_ARCHS
            missing = spec.vendor in _OF_VENDOR and spec.arch not in archs
        if missing:
            newer = (
                f" ({_OF_VENDOR[spec.vendor][number]} or newer has it)" if spec.vendor in _OF_VENDOR else ""
            )
            return f"no {kind}{newer}"
    return None


_TIMES: Final = re.compile(
    r"(?:(?P<first>[1-9][0-9]?)\s*[xX×]\s*)?(?P<name>.+?)(?:\s*[xX×]\s*(?P<last>[1-9][0-9]?))?"
)


def split_request(text: str) -> tuple[str, int | None]:
    """``NAME``, ``NAME:COUNT``, ``8xNAME`` or ``NAMEx8`` in its parts, the name as it stands; UsageError for
    a bad count.

    >>> split_request("8xH100"), split_request("h100 x 8"), split_request("RTXA6000")
    (('H100', 8), ('h100', 8), ('RTXA6000', None))
    """
    name, colon, count = text.strip().partition(":")
    if not colon:
        times = None if find(name) else _TIMES.fullmatch(name)
        counts = [] if times is None else [n for n in (times["first"], times["last"]) if n]
        if times is not None and len(counts) == 1 and (times["first"] or find(times["name"])):
            return times["name"], int(counts[0])
        return name, None
    if not count.strip().isdecimal() or int(count) < 1:
        raise UsageError(f"{text!r}: a whole number of GPUs ≥ 1 is expected after the colon", hint="A100:8")
    return name.strip(), int(count)


def parse_request(text: str) -> tuple[str, int | None]:
    """``A100`` or ``A100:8`` as people write it: canonical name, and GPUs per machine if named.

    >>> parse_request("a100-80gb:4")
    ('A100-80GB', 4)
    """
    name, count = split_request(text)
    return resolve(name), count
