"""Every provider: its name and where its factory is. Nothing is imported until it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from arylcloud.core.errors import UsageError
from arylcloud.core.live import LiveSource
from arylcloud.core.ports import Checks, Infrastructure, PriceSource, Provider
from arylcloud.core.stores import Lending, Storage
from arylcloud.providers.settings import settings_for

if TYPE_CHECKING:
    from arylcloud.providers.patience import Patience

PROVIDERS: Final[dict[str, str]] = {
    "local": "arylcloud.providers.local.adapter:create",
    "aws": "arylcloud.providers.aws.adapter:create",
    "gcp": "arylcloud.providers.gcp.adapter:create",
    "azure": "arylcloud.providers.azure.adapter:create",
    "pool": "arylcloud.providers.pool.adapter:create",
}
"""Name → ``module:factory``; a factory is ``create(state_dir, settings) -> Provider``."""

SOURCES: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.prices:create",
    "gcp": "arylcloud.providers.gcp.prices:create",
    "azure": "arylcloud.providers.azure.prices:create",
}
"""Name → ``module:factory`` of live prices; a factory is ``create(settings, patience) -> LiveSource``."""

INFRASTRUCTURES: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.infrastructure:create",
    "gcp": "arylcloud.providers.gcp.infrastructure:create",
    "azure": "arylcloud.providers.azure.infrastructure:create",
}
"""Name → ``module:factory`` of what a cloud holds for us beside machines; ``create(state_dir, settings)``."""

CHECKS: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.checks:create",
    "gcp": "arylcloud.providers.gcp.checks:create",
    "azure": "arylcloud.providers.azure.checks:create",
}
"""Name → ``module:factory`` of ``check``; ``create(state_dir, settings)``."""

STORAGES: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.bucket:create",
    "gcp": "arylcloud.providers.gcp.bucket:create",
    "azure": "arylcloud.providers.azure.bucket:create",
}
"""Name → ``module:factory`` of a cloud's buckets; ``create(state_dir, settings)``."""

LENDINGS: Final[dict[str, str]] = {
    "aws": "arylcloud.providers.aws.lending:create",
    "gcp": "arylcloud.providers.gcp.lending:create",
    "azure": "arylcloud.providers.azure.lending:create",
}
"""Name → ``module:factory`` of how machines reach a bucket; ``create(state_dir, settings)``."""

PRICES_ONLY: Final[dict[str, frozenset[str]]] = {
    "aws": frozenset(["spot_advisor"]),
    "gcp": frozenset(["api_key", "billing_endpoint"]),
    "azure": frozenset(["retail_prices"]),
}
"""Settings of clouds that somebody may ask for prices, without an account to start machines in."""


class Adapter(Provider, PriceSource, Protocol):
    """What the factories of the local cloud and of the pool return: they are asked for machines and for their
    prices. The others' prices come with the catalogue."""


def load(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Provider:
    """The adapter called ``name``; ``state_dir`` is the launcher's state folder (``Folders.state``),
    ``config_dir`` where ``config.toml`` may lie (``Folders.config``).

    Raises UsageError for an unknown name, MissingExtraError where the cloud's SDK is not installed.
    No call goes out before the adapter is used.
    """
    path = PROVIDERS.get(name)
    if path is None:
        raise UsageError(f"there is no provider called {name!r}", hint=f"known: {', '.join(PROVIDERS)}")
    return cast(Provider, _factory(path)(state_dir, settings_for(name, environ, config_dir)))


def load_infrastructure(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Infrastructure | None:
    """Of the cloud called ``name``; None: it holds nothing for us beside machines. Raises as ``load``."""
    path = INFRASTRUCTURES.get(name)
    if path is None:
        return None
    return cast(Infrastructure, _factory(path)(state_dir, settings_for(name, environ, config_dir)))


def load_storage(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Storage:
    """Of the cloud called ``name``. Raises UsageError where its buckets cannot be used; else as ``load``."""
    return cast(Storage, _of_bucket(STORAGES, name)(state_dir, settings_for(name, environ, config_dir)))


def load_lending(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Lending:
    """As ``load_storage``."""
    return cast(Lending, _of_bucket(LENDINGS, name)(state_dir, settings_for(name, environ, config_dir)))


def _of_bucket(table: Mapping[str, str], name: str) -> Callable[..., object]:
    path = table.get(name)
    if path is None:
        raise UsageError(f"buckets of {name} cannot be used yet", hint=f"known: {', '.join(table)}, file://")
    return _factory(path)


def load_checks(
    name: str, *, state_dir: Path, environ: Mapping[str, str], config_dir: Path | None = None
) -> Checks:
    """Of the cloud called ``name``. Raises UsageError where it has none; else as ``load``."""
    path = CHECKS.get(name)
    if path is None:
        raise UsageError(f"there is nothing to check for {name!r}", hint=f"known: {', '.join(CHECKS)}")
    return cast(Checks, _factory(path)(state_dir, settings_for(name, environ, config_dir)))


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
