"""Every provider: its name and where its factory is. Nothing is imported until it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from arylcloud.core.errors import UsageError
from arylcloud.core.ports import PriceSource, Provider
from arylcloud.providers.settings import settings_for

PROVIDERS: Final[dict[str, str]] = {
    "local": "arylcloud.providers.local.adapter:create",
}
"""Name → ``module:factory``; a factory is ``create(state_dir, settings) -> Adapter``."""


class Adapter(Provider, PriceSource, Protocol):
    """What a factory returns: a cloud that can be asked for machines and for its prices."""


def load(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Adapter:
    """The adapter called ``name``; ``state_dir`` is the launcher's state folder (``Folders.state``),
    ``config_dir`` where ``config.toml`` may lie (``Folders.config``).

    Raises UsageError for an unknown name, MissingExtraError where the cloud's SDK is not installed.
    No call goes out before the adapter is used.
    """
    path = PROVIDERS.get(name)
    if path is None:
        raise UsageError(f"there is no provider called {name!r}", hint=f"known: {', '.join(PROVIDERS)}")
    module, _, factory = path.partition(":")
    create = getattr(import_module(module), factory)
    return cast(Adapter, create(state_dir, settings_for(name, environ, config_dir)))
