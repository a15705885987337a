from __future__ import annotations

from e2e.conftest import new_home, warm

__all__ = ["new_home", "warm"]
