#!/usr/bin/env python3
"""Write arylcloud/planner/data/profiles.bin from the study data (``ARYLCLOUD_STUDY_DATA``).

Takes only what may be shipped (NOTICE): Gavel, NVIDIA DeepLearningExamples, llm-foundry, torchtitan,
MLPerf, Megatron-Bridge, timm, MaxText and tpu-recipes; only rows of quality ``ok``; every row keeps its
source and date. Rows whose unit or model cannot be told from the source are left out, with the reason
below. The same data gives the same bytes.

    ARYLCLOUD_STUDY_DATA=…/data python scripts/build_profiles.py [--check]
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from profile_names import (
    ALIASES,
    DLE,
    DROPPED,
    GAVEL_MODELS,
    LLM,
    MLPERF,
    SHAPES,
    TITLES,
    mpt_title,
)

from arylcloud.core import gpus
from arylcloud.planner.profile_files import BUNDLED, COLUMNS, pack, precision_class

SHIPPED = {
    "NVIDIA/DeepLearningExamples",
    "mosaicml/llm-foundry",
    "NVIDIA-NeMo/Megatron-Bridge",
    "huggingface/pytorch-image-models",
    "AI-Hypercomputer/tpu-recipes",
    "pytorch/torchtitan",
    "AI-Hypercomputer/maxtext",
}
GAVEL_SOURCE = ("stanford-futuredata/gavel@c4fa400 (isolated throughputs of the simulation)", "2020")
TARGET = Path(__file__).resolve().parents[1] / "arylcloud" / "planner" / "data" / BUNDLED


def repository(row: dict[str, str]) -> str:
    return re.split("[@:]", row["source"], maxsplit=1)[0]


def shipped(row: dict[str, str]) -> bool:
    repo = repository(row)
    return row["quality"] == "ok" and (repo in SHIPPED or repo.startswith("mlcommons/training_results"))


def placed(row: dict[str, str]) -> tuple[str, str, float] | None:
    """(profile, unit, factor on the rate) of a row; None = left out."""
    model, repo, task = row["model"], repository(row), row["task"]
    path = row["source"].split(":", 1)[1]
    if model in DROPPED or any(part in path for part in DROPPED):
        return None
    if gpus.find(row["gpu_name"]) is None:
        return None
    if repo == "mosaicml/llm-foundry":
        return model, row["unit"], 1.0
    if repo == "huggingface/pytorch-image-models":
        name = "resnet-50" if model == "timm-resnet50" else model.replace("_", "-")
        return name, row["unit"], 1.0
    if model.startswith("mlperf-"):
        name = MLPERF[model]
        if name in ("llama3.1-8b", "llama3.1-405b"):  # packed to the sequence length: samples are that long
            return name, "tokens/s", float(row["seq_len"])
        return name, row["unit"], 1.0
    if model.startswith("dle-"):
        name = dle_name(model, task, row)
        if name is None:
            return None
        factor = 1000.0 if row["unit"] == "mol/ms" else 1.0
        return name, "samples/s" if row["unit"] == "mol/ms" else row["unit"], factor
    name = LLM[model]
    if task.startswith("llm-sft/lora"):
        name += "-lora" if "LoRA" in task else "-sft"
    return name, row["unit"], 1.0


def dle_name(model: str, task: str, row: dict[str, str]) -> str | None:
    stem = model.removeprefix("dle-")
    kind, _, option = task.partition(":")
    path = row["source"].split(":", 1)[1]
    if stem == "BERT":
        return "bert-large-squad" if kind == "finetune" else "bert-large"
    if stem == "BERT/biobert":
        return "biobert-base-ner" if kind == "finetune" else "biobert-base"
    if stem in ("BART", "ELECTRA"):
        return DLE[stem] + ("-finetune" if kind == "finetune" else "")
    if stem == "ConvNets/efficientnet":
        return option.removeprefix("Model=").lower()
    if stem in ("DLRM", "TFT", "nnUNet"):
        value = option.split("=")[1].lower()
        return f"{DLE[stem]}-{value}" + ("d" if stem == "nnUNet" else "")
    if stem in ("SSD", "WideAndDeep", "UNet_Medical", "Efficientdet"):
        return DLE[stem] + ("-tf2" if "TensorFlow2/" in path else "-tf" if "TensorFlow/" in path else "")
    return DLE.get(stem)


def number(text: str) -> float | None:
    return float(text) if text else None


def precision(text: str) -> str:
    if text == "submission-defined":
        return "submission"
    return precision_class(text.split(" ")[0].split(":")[-1])


class Writer:
    def __init__(self) -> None:
        self.sources: dict[tuple[str, str | None], int] = {}
        self.frameworks: dict[str, int] = {}
        self.profiles: dict[str, dict[str, Any]] = {}

    def add(
        self, name: str, unit: str, *, gpu: str, count: int, nodes: int | None, rate: float,
        precision: str, framework: str, batch: float | None, stated: bool, seq: int | None,
        source: tuple[str, str | None],
    ) -> None:  # fmt: skip
        raw = self.profiles.setdefault(
            name,
            {
                "title": TITLES.get(name) or mpt_title(name) or name,
                "unit": unit,
                "aliases": list(ALIASES.get(name, ())),
                "shape": SHAPES.get(name),
                "columns": {k: [] for k in COLUMNS},
            },
        )
        if raw["unit"] != unit:
            raise SystemExit(f"{name}: rows in {raw['unit']} and in {unit}")
        row = (
            gpu, count, nodes, float(f"{rate:.9g}"), precision,
            self.frameworks.setdefault(framework, len(self.frameworks)),
            int(batch) if batch is not None and batch == int(batch) else batch, int(stated), seq,
            self.sources.setdefault(source, len(self.sources)),
        )  # fmt: skip
        for column, value in zip(COLUMNS, row, strict=True):
            raw["columns"][column].append(value)

    def finished(self, raw: dict[str, Any]) -> dict[str, Any]:
        columns = raw["columns"]
        text = json.dumps(columns, separators=(",", ":"), sort_keys=True)
        return {**raw, "gpus": sorted(set(columns["gpu"])), "count": len(columns["gpu"]), "columns": text}

    def document(self) -> dict[str, Any]:
        return {
            "built": "study data of 2026-10",
            "sources": [list(s) for s in self.sources],
            "frameworks": list(self.frameworks),
            "profiles": {name: self.finished(raw) for name, raw in self.profiles.items()},
        }


def published(writer: Writer, path: Path) -> tuple[int, int]:
    kept = left = 0
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not shipped(row):
                continue
            place = placed(row)
            if place is None:
                left += 1
                continue
            name, unit, factor = place
            count, batch = int(row["num_gpus"]), number(row["global_batch"])
            stated = batch is not None
            if batch is None and (per_gpu := number(row["per_gpu_batch"])) is not None:
                batch = per_gpu * count
            if name in ("transformer-big", "transformer-xl-base"):
                batch, stated = None, False  # batches of tokens, not of samples
            nodes, seq = number(row["num_nodes"]), number(row["seq_len"])
            mlperf = repository(row).startswith("mlcommons/")
            writer.add(
                name,
                unit,
                gpu=gpus.resolve(row["gpu_name"]),
                count=count,
                nodes=int(nodes) if nodes is not None else (1 if count <= 8 else None),
                rate=float(row["throughput_total"]) * factor,
                precision=precision(row["precision"]),
                framework="MLPerf " + repository(row)[-4:] if mlperf else row["framework"],
                batch=batch,
                stated=stated,
                seq=int(seq) if seq is not None else None,
                source=(row["source"], row["source_date"] or None),
            )
            kept += 1
    return kept, left


def gavel(writer: Writer, path: Path) -> int:
    """Steps/s per batch size, and samples/s per model (all batch sizes); ResNet-50 also beside the others."""
    kept = 0
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rate, batch = float(row["steps_per_s"]), number(row["batch_size"])
            count = int(row["scale_factor"])
            if rate <= 0 or (count == 1 and row["consolidated"] == "0"):
                continue  # not run; one GPU is one GPU
            common: dict[str, Any] = {
                "gpu": gpus.resolve(row["worker_type"]),
                "count": count,
                "nodes": 1 if row["consolidated"] == "1" else None,
                "precision": "fp32",
                "framework": "PyTorch (Gavel)",
                "batch": batch,
                "stated": batch is not None,
                "seq": None,
                "source": GAVEL_SOURCE,
            }
            model = GAVEL_MODELS[row["model"]]
            name = f"gavel-{model}" if batch is None else f"gavel-{model}-bs{batch:g}"
            writer.add(name, "steps/s", rate=rate, **common)
            if batch is not None:
                writer.add(f"gavel-{model}", "samples/s", rate=rate * batch, **common)
            if model == "resnet-50" and batch is not None:
                writer.add("resnet-50", "images/s", rate=rate * batch, **common)
            kept += 1
    return kept


def build(data: Path) -> tuple[bytes, str]:
    writer = Writer()
    kept, left = published(writer, data / "profiles" / "profiles.csv.gz")
    jobs = gavel(writer, data / "gavel" / "isolated_throughputs_simulation.csv")
    unknown = sorted({*ALIASES, *SHAPES, *TITLES} - set(writer.profiles))
    if unknown:
        raise SystemExit(f"names without rows: {unknown}")
    spellings: dict[str, set[str]] = defaultdict(set)
    document = writer.document()
    for name in document["profiles"]:
        spellings["".join(c for c in name.lower() if c.isalnum())].add(name)
    if clash := [names for names in spellings.values() if len(names) > 1]:
        raise SystemExit(f"names that read the same: {clash}")
    blob = pack(document)
    text = (
        f"{len(document['profiles'])} profiles, {kept} published rows ({left} left out), "
        f"{jobs} Gavel rows, {len(blob):,} bytes"
    )
    return blob, text


def main() -> None:
    root = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if not root:
        raise SystemExit("ARYLCLOUD_STUDY_DATA does not name the study data")
    blob, text = build(Path(root))
    if "--check" in sys.argv[1:]:
        if TARGET.read_bytes() != blob:
            raise SystemExit(f"{TARGET} is not what the data gives ({text})")
    else:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_bytes(blob)
    print(text)


if __name__ == "__main__":
    main()
