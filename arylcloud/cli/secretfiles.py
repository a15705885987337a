"""Which files of a workdir hold secret values: job files with a value below ``secrets:``, or with the
address to notify. They stay at home: the store keeps a workdir for as long as the job's history.

Looked for in every file that is packed, not only in the one that is launched: a plan does not say
which job file it came from, and job files lie side by side.
"""

from __future__ import annotations

import re
from pathlib import Path

from arylcloud.cli.yamltree import Value, parse_yaml
from arylcloud.core.errors import UsageError

MAX_BYTES = 1_000_000
"""No job file is larger."""
_WORTH_A_LOOK = re.compile(rb"""\b(secrets|notify)["']?\s*:""")


def holds_secrets(path: Path) -> bool:
    """Whether ``path`` is a job file (or NAME.aryl.yaml) with secret values in it. Raises OSError."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return False
    data = path.read_bytes()
    if not _WORTH_A_LOOK.search(data):
        return False
    try:
        root = parse_yaml(data.decode("utf-8"), str(path))
        top = {} if root is None else _entries(root)
        aryl = _entries(top["aryl"]) if "aryl" in top else {}
        if "run" in top:
            secrets = _entries(top["secrets"]) if "secrets" in top else {}
            return any(map(_has_value, secrets.values())) or _has_value(aryl.get("notify"))
        return path.name.endswith(".aryl.yaml") and _has_value((aryl or top).get("notify"))
    except (UsageError, UnicodeDecodeError):  # no YAML, so no job file
        return False


def note_of(names: tuple[str, ...]) -> str:
    """What launch says of the files that it left out."""
    sent = "it is" if len(names) == 1 else "they are"
    return (
        f"secret values stand in {', '.join(names)}: {sent} not sent to machines; better: "
        "`secrets: {TOKEN: null}` and the environment"
    )


def _entries(value: Value) -> dict[str, Value]:
    return value.section().entries if value.is_mapping else {}


def _has_value(value: Value | None) -> bool:
    return value is not None and not value.is_null and (value.is_mapping or value.is_list or value.text != "")
