"""A bucket opened: ``s3://``, ``gs://``, ``az://`` through obstore, with options by the same names for all.

Where ``credential_provider`` is given, it alone is asked; else obstore looks where that cloud's own tools
look: the environment, then the machine's metadata service (a role, a service account, a managed identity).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from arylcloud.core.errors import UsageError
from arylcloud.core.net import is_loopback
from arylcloud.core.stores import Address

_ENDPOINT: Final = {"s3": "endpoint", "gs": "base_url", "az": "endpoint"}
_AMBIENT: Final = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "gs": (), "az": ()}


def client_of(address: Address, options: Mapping[str, Any]) -> Any:
    """An obstore client; its keys are relative to the address's prefix. ``options``: ``endpoint``,
    ``region``, ``credential_provider`` and whatever else obstore knows of that cloud. Raises obstore's
    errors, UsageError."""
    from obstore import store

    settings: dict[str, Any] = dict(options)
    endpoint = str(settings.pop("endpoint", "") or _from_environment(address.scheme))
    client: dict[str, Any] = {"timeout": "60s"}
    if endpoint:
        settings[_ENDPOINT[address.scheme]] = endpoint
        if endpoint.startswith("http://"):
            _only_loopback(endpoint)
            client["allow_http"] = True
    settings["client_options"] = {**client, **settings.get("client_options", {})}
    # the defaults would go on for three minutes: longer than any cloud's notice
    settings.setdefault("retry_config", {"max_retries": 4, "retry_timeout": timedelta(seconds=30)})
    if address.prefix:
        settings["prefix"] = address.prefix
    if address.scheme == "s3":
        # TLS is around it, and chunks have digests: hashing it once more is a third of an upload's CPU
        settings.setdefault("unsigned_payload", True)
        return store.S3Store(address.bucket, **settings)
    if address.scheme == "gs":
        return store.GCSStore(address.bucket, **settings)
    if address.account:
        settings["account_name"] = address.account
    return store.AzureStore(address.bucket, **settings)


def _from_environment(scheme: str) -> str:
    return next((os.environ[name] for name in _AMBIENT[scheme] if os.environ.get(name)), "")


def _only_loopback(endpoint: str) -> None:
    if not is_loopback(urlsplit(endpoint).hostname):
        raise UsageError(
            f"{endpoint}: credentials would go over plain http", hint="https://, or an address of this host"
        )
