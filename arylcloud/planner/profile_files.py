"""Where profiles lie: the bundled file (compact, digest-checked) and a user's own YAML or JSON files.

Bundled format: one line ``arylcloud-profiles 1 <sha256 of the rest>``, then zlib'd JSON
``{built, sources: [[text, date]…], frameworks: […], profiles: {name: {title, unit, aliases, shape, gpus,
count, columns}}}``; ``columns`` is JSON in a string, so that only the profile that is asked for is
decoded: lists of equal length (``scripts/build_profiles.py`` writes them). A user's file is one profile
or a list of them::

    name: my-gpt
    unit: tokens/s                     # required: a profile without a unit is refused
    aliases: [gpt]
    shape: {params: 124e6, layers: 12, hidden: 768}
    measurements:
      - {gpu: A100, gpus: 8, rate: 941000, precision: bf16, batch: 256, seq_len: 1024}
      - {gpu: H100, gpus: 16, nodes: 2, rate: 3.1e6, source: measured here, as_of: 2026-09-30}
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arylcloud.core import gpus
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.units import RATE_UNITS
from arylcloud.planner.profiles import Entry, Library, Measurement, Profile, Shape

MAGIC: Final = b"arylcloud-profiles 1 "
BUNDLED: Final = "profiles.bin"
COLUMNS: Final = (
    "gpu", "gpus", "nodes", "rate", "precision", "framework", "batch", "stated", "seq", "source",
)  # fmt: skip
"""Of a profile's rows; framework and source are indices into the document's lists."""

_PRECISIONS: Final[Mapping[str, str]] = {
    "fp32": "fp32", "float32": "fp32", "tf32": "tf32",
    "fp16": "16bit", "bf16": "16bit", "16bit": "16bit", "float16": "16bit", "bfloat16": "16bit",
    "amp": "16bit", "mixed": "16bit",
    "fp8": "fp8", "mxfp8": "fp8", "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "submission": "submission",
}  # fmt: skip


def precision_class(text: str, *, what: str = "precision") -> str:
    """``bf16``, ``AMP-FP16``, ``MXFP8``… to the class that figures are kept by; UsageError otherwise.

    >>> precision_class("BF16"), precision_class("amp-fp16"), precision_class("fp8-rowwise")
    ('16bit', '16bit', 'fp8')
    """
    name = text.strip().lower()
    for part in (name, name.split("-")[0], name.split("_")[0]):
        if part in _PRECISIONS:
            return _PRECISIONS[part]
    raise UsageError(f"{what}: {text!r} is no precision", hint="one of fp32, tf32, bf16, fp16, fp8, fp4")


def pack(document: Mapping[str, Any]) -> bytes:
    """The bundled file's bytes; the same document always gives the same bytes."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False)
    body = zlib.compress(text.encode(), 9)
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unpack(data: bytes, *, what: str) -> dict[str, Any]:
    head, _, body = data.partition(b"\n")
    if not head.startswith(MAGIC) or hashlib.sha256(body).hexdigest().encode() != head[len(MAGIC) :]:
        raise IntegrityError(f"{what} is damaged: its digest does not hold", hint="reinstall arylcloud")
    document: dict[str, Any] = json.loads(zlib.decompress(body))
    return document


def load_library(user_dir: Path | None) -> Library:
    data = (Path(__file__).parent / "data" / BUNDLED).read_bytes()
    document = unpack(data, what=f"the bundled file {BUNDLED}")
    table: dict[str, Any] = document["profiles"]
    own = {p.name: (p, path) for path in _user_files(user_dir) for p in read_user_file(path)}
    entries = [
        Entry(
            name=name,
            title=raw["title"],
            unit=raw["unit"],
            measurements=raw["count"],
            gpus=tuple(raw["gpus"]),
            origin="bundled",
        )
        for name, raw in table.items()
        if name not in own
    ]
    entries += [
        Entry(
            name=p.name,
            title=p.title,
            unit=p.unit,
            measurements=len(p.measurements),
            gpus=p.gpus,
            origin=str(path),
        )
        for p, path in own.values()
    ]
    aliases = {name: tuple(raw["aliases"]) for name, raw in table.items() if name not in own}
    aliases |= {name: p.aliases for name, (p, _) in own.items()}

    def load(name: str) -> Profile:
        return own[name][0] if name in own else _bundled(document, name)

    head = data.partition(b"\n")[0]
    return Library(entries, aliases, load, head[len(MAGIC) :].decode())


def _bundled(document: dict[str, Any], name: str) -> Profile:
    raw = document["profiles"][name]
    sources, frameworks = document["sources"], document["frameworks"]
    columns = json.loads(raw["columns"])
    rows = zip(*(columns[name] for name in COLUMNS), strict=True)
    return Profile(
        name=name,
        title=raw["title"],
        unit=raw["unit"],
        aliases=tuple(raw["aliases"]),
        shape=Shape(**raw["shape"]) if raw["shape"] else None,
        measurements=tuple(
            Measurement(
                gpu=gpu,
                gpus=count,
                nodes=nodes,
                rate=rate,
                precision=precision,
                framework=frameworks[framework],
                global_batch=batch,
                batch_stated=bool(stated),
                seq_len=seq,
                source=sources[source][0],
                as_of=sources[source][1],
                kind="published",
            )
            for gpu, count, nodes, rate, precision, framework, batch, stated, seq, source in rows
        ),
    )


# ---------------------------------------------------------------- a user's own


def _user_files(user_dir: Path | None) -> list[Path]:
    if user_dir is None or not user_dir.is_dir():
        return []
    return sorted(
        p for p in user_dir.iterdir() if p.suffix in (".yaml", ".yml", ".json") and not p.name.startswith(".")
    )


def read_user_file(path: Path) -> list[Profile]:
    """Profiles of one file; UsageError with the file, the profile and the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        if path.suffix == ".json":
            document = json.loads(text)
        else:
            import yaml

            document = yaml.safe_load(text)
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    items = document if isinstance(document, list) else [document]
    return [_user_profile(item, path) for item in items]


_KEYS: Final = frozenset({"name", "title", "unit", "aliases", "shape", "measurements"})
_ROW_KEYS: Final = frozenset(
    {"gpu", "gpus", "nodes", "rate", "precision", "framework", "batch", "seq_len", "source", "as_of", "kind"}
)


def _user_profile(raw: Any, path: Path) -> Profile:
    if not isinstance(raw, dict):
        raise UsageError(f"{path}: a profile is a mapping with name, unit and measurements")
    where = f"{path}: profile {raw.get('name', '(without a name)')!s}"
    _known(raw, _KEYS, where)
    name = raw.get("name")
    if not isinstance(name, str) or not key_ok(name):
        raise UsageError(f"{path}: a profile needs a name")
    unit = raw.get("unit")
    if unit is None:
        raise UsageError(f"{where} has no unit", hint=f"add `unit:` with one of {', '.join(RATE_UNITS)}")
    if unit not in RATE_UNITS:
        raise UsageError(
            f"{where}: {unit!r} is no unit of throughput", hint=f"one of {', '.join(RATE_UNITS)}"
        )
    rows = raw.get("measurements")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{where} has no measurements")
    shape = raw.get("shape")
    if shape is not None:
        if not isinstance(shape, dict) or set(shape) != {"params", "layers", "hidden"}:
            raise UsageError(f"{where}: shape needs exactly params, layers and hidden")
        shape = Shape(
            params=_positive(shape["params"], f"{where}: shape.params"),
            layers=_whole(shape["layers"], f"{where}: shape.layers"),
            hidden=_whole(shape["hidden"], f"{where}: shape.hidden"),
        )
    aliases = raw.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(a, str) for a in aliases):
        raise UsageError(f"{where}: aliases is a list of names")
    return Profile(
        name=name,
        title=str(raw.get("title", name)),
        unit=unit,
        aliases=tuple(aliases),
        shape=shape,
        measurements=tuple(
            _user_row(row, f"{where}, measurement {i + 1}", path) for i, row in enumerate(rows)
        ),
    )


def key_ok(name: str) -> bool:
    return any(c.isalnum() for c in name)


def _user_row(raw: Any, where: str, path: Path) -> Measurement:
    if not isinstance(raw, dict):
        raise UsageError(f"{where} is not a mapping")
    _known(raw, _ROW_KEYS, where)
    for needed in ("gpu", "gpus", "rate"):
        if needed not in raw:
            raise UsageError(f"{where}: {needed} is missing")
    count = _whole(raw["gpus"], f"{where}: gpus")
    # null, spelled out: several machines, how many is not stated
    several = "nodes" in raw and raw["nodes"] is None
    nodes = None if several else _whole(raw.get("nodes", 1), f"{where}: nodes")
    if nodes is not None and count % nodes:
        raise UsageError(f"{where}: {count} GPUs cannot be spread evenly over {nodes} nodes")
    kind = raw.get("kind", "user")
    if kind not in ("user", "measured", "published"):
        raise UsageError(f"{where}: kind is one of user, measured, published")
    return Measurement(
        gpu=gpus.resolve(str(raw["gpu"])),
        gpus=count,
        nodes=nodes,
        rate=_positive(raw["rate"], f"{where}: rate"),
        precision=precision_class(str(raw.get("precision", "16bit")), what=f"{where}: precision"),
        framework=str(raw.get("framework", "")),
        global_batch=None if raw.get("batch") is None else _positive(raw["batch"], f"{where}: batch"),
        batch_stated=True,
        seq_len=None if raw.get("seq_len") is None else _whole(raw["seq_len"], f"{where}: seq_len"),
        source=str(raw.get("source", path)),
        as_of=None if raw.get("as_of") is None else str(raw["as_of"]),
        kind=kind,
    )


def _known(raw: dict[Any, Any], keys: frozenset[str], where: str) -> None:
    unknown = sorted(str(k) for k in raw if k not in keys)
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]!r}", hint=f"known: {', '.join(sorted(keys))}")


def _positive(value: Any, what: str) -> float:
    """YAML 1.1 reads ``124e6`` as text: numbers in quotes are numbers here."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not (number > 0 and math.isfinite(number)):
        raise UsageError(f"{what}: {value!r} is not a number > 0")
    return number


def _whole(value: Any, what: str) -> int:
    number = _positive(value, what)
    if number != int(number):
        raise UsageError(f"{what}: {value!r} is not a whole number")
    return int(number)
