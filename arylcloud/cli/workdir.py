"""A job's folder, looked at before anything is paid for: whether it can be sent, and holds what is run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec


def check_files(spec: JobSpec) -> str | None:
    """UsageError where the workdir cannot be sent as it is. Else what ``run`` seems to lack, in a line."""
    from arylcloud.launcher.bundle import check

    folder = Path(spec.workdir) if spec.workdir is not None else None
    if folder is not None:
        check(folder)
    script = None if spec.setup is not None else _script(spec.run)  # a setup may bring it
    if script is None or (folder is not None and (folder / script).exists()):
        return None
    if folder is None:
        return f"run names {script}, and the job file has no workdir: nothing is sent (`workdir: .` does)"
    return f"run names {script}, and there is none in {folder}: the command will not find it"


def _script(run: str) -> str | None:
    """The script that the first line plainly runs, by a relative name; None where it is not that plain."""
    line = next(
        (one.strip() for one in run.splitlines() if one.strip() and not one.strip().startswith("#")), ""
    )
    if any(sign in line for sign in "$`*?~|&;<>(){}"):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if len(words) > 1 and words[0] in ("python", "python3", "bash", "sh"):
        words = words[1:]
        if words[0].startswith("-"):
            return None
    elif not words or not words[0].startswith("./"):
        return None
    name = words[0]
    return name if name.endswith((".py", ".sh")) and not name.startswith(("/", "..")) else None
