"""Where things lie: ``ARYLCLOUD_HOME`` replaces the config, state and cache folders together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import LocalStateError

APP = "arylcloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    config: Path
    state: Path
    cache: Path

    @property
    def journal(self) -> Path:
        return self.state / "journal.db"

    @property
    def local_store(self) -> Path:
        """Root of the ``file://`` object store that jobs use when no other is named."""
        return self.state / "store"

    @property
    def local_cloud(self) -> Path:
        """State of the local cloud's daemon: its machines, its log, its market."""
        return self.state / "local-cloud"

    @property
    def user_catalogue(self) -> Path:
        return self.config / "offers.csv"

    @property
    def live_prices(self) -> Path:
        """What ``prices --refresh`` brought home: a whole catalogue, and prices as they were."""
        return self.cache / "prices"

    @property
    def lives(self) -> Path:
        """What the journal tells of spot machines' lives, folded; made again where it is not there."""
        return self.cache / "lives.json"

    @property
    def user_profiles(self) -> Path:
        return self.config / "profiles"


def folders(environ: dict[str, str] | None = None) -> Folders:
    env = os.environ if environ is None else environ
    if home := env.get("ARYLCLOUD_HOME"):
        base = Path(home).expanduser().absolute()
        return Folders(config=base / "config", state=base / "state", cache=base / "cache")
    import platformdirs

    return Folders(
        config=platformdirs.user_config_path(APP),
        state=platformdirs.user_state_path(APP),
        cache=platformdirs.user_cache_path(APP),
    )


def ensure(path: Path) -> Path:
    """Make ``path`` (private to the user); a read-only or full disk is one clear line."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LocalStateError(f"cannot make {path}: {error.strerror or error}") from error
    return path
