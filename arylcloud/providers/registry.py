"""Every provider: its name and where its factory is. Nothing is imported until it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from arylcloud.core.errors import UsageError
from arylcloud.core.live import LiveSource
from arylcloud.core.ports import PriceSource, Provider
from arylcloud.providers.settings import settings_for

if TYPE_CHECKING:
    from arylcloud.providers.patience import Patience

PROVIDERS: Final[dict[str, str]] = {
    "local": "arylcloud.providers.local.adapter:create",
}
"""Name → ``module:factory``; a factory is ``create(state_dir, settings) -> Adapter``."""

SOURCES: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.prices:create",
    "gcp": "arylcloud.providers.gcp.prices:create",
    "azure": "arylcloud.providers.azure.prices:create",
}
"""Name → ``module:factory`` of live prices; a factory is ``create(settings, patience) -> LiveSource``."""


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
    return cast(Adapter, _factory(path)(state_dir, settings_for(name, environ, config_dir)))


def load_source(
    name: str, patience: Patience, *, environ: Mapping[str, str], config_dir: Path | None = None
) -> LiveSource:
    """Live prices of the cloud called ``name``. Raises UsageError where it has none, or for a bad setting;
    no call goes out before the source is used."""
    path = SOURCES.get(name)
    if path is None:
        raise UsageError(f"{name} has no live prices", hint=f"known: {', '.join(SOURCES)}")
    return cast(LiveSource, _factory(path)(settings_for(name, environ, config_dir), patience))


def _factory(path: str) -> Callable[..., object]:
    module, _, factory = path.partition(":")
    return cast("Callable[..., object]", getattr(import_module(module), factory))
