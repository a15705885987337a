"""A provider's own settings: its table (``[aws]``, ``[gcp]``…) of ``config.toml``, and the environment.

``ARYLCLOUD_GCP__API_ENDPOINT=…`` is ``api_endpoint`` of ``[gcp]``; the environment wins. What keys there are,
and what they mean, is each adapter's: an unknown one is an error that names those there are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from arylcloud.core.errors import LocalStateError, UsageError

FILE = "config.toml"


def settings_for(name: str, environ: Mapping[str, str], config: Path | None = None) -> dict[str, str]:
    """``{key: value}`` of one provider; ``config``: the folder in which ``config.toml`` may lie.

    Raises UsageError for a file that is no TOML, or whose table holds anything but text and numbers.

    >>> settings_for("local", {"ARYLCLOUD_LOCAL__MARKET": "demo", "HOME": "/root"})
    {'market': 'demo'}
    """
    prefix = f"ARYLCLOUD_{name.upper()}__"
    given = {key[len(prefix) :].lower(): value for key, value in environ.items() if key.startswith(prefix)}
    return {**_table(name, config), **given} if config is not None else given


def known_only(name: str, settings: Mapping[str, str], known: Collection[str]) -> None:
    """UsageError for a key that the provider does not have."""
    for key in settings:
        if key not in known:
            raise UsageError(
                f"[{name}] has no setting called {key!r}",
                hint=f"known: {', '.join(sorted(known))} (in {FILE}, or ARYLCLOUD_{name.upper()}__KEY)",
            )


def _table(name: str, config: Path) -> dict[str, str]:
    path = config / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise LocalStateError(f"{path} cannot be read: {error}") from error
    try:
        table = tomllib.loads(text).get(name, {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} is no table", hint=f"write [{name}] and its keys below")
    for key, value in table.items():
        if not isinstance(value, str | int | float | bool):
            raise UsageError(f"{path}: [{name}] {key} is neither text, nor a number, nor true or false")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()
    }
