"""Which addresses are this host's own: plain http is taken for these alone."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """
    >>> [is_loopback(h) for h in ("localhost", "127.3.2.1", "::1", "[::1]")]
    [True, True, True, True]
    >>> [is_loopback(h) for h in ("localhost.example.com", "127.example.com", "10.0.0.1", "", None)]
    [False, False, False, False, False]
    """
    name = (host or "").removeprefix("[").removesuffix("]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
