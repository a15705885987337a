"""Calls to AWS that act: EC2 per region, sent once; and the same clients for what is read while acting.

botocore repeats RunInstances after InsufficientInstanceCapacity (HTTP 500) by itself; failing over is ours,
so nothing that acts is ever repeated here.
"""

from __future__ import annotations

import threading
from typing import Any

from arylcloud.core.errors import AccessError, MissingExtraError, OtherCloudError, UsageError
from arylcloud.providers.aws.errors import translated


class Calls:
    """One account's AWS. Safe to use from several threads."""

    def __init__(self, profile: str | None) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}

    def act(self, service: str, region: str, operation: str, **asked: Any) -> Any:
        """One request, sent once. Raises what ``errors`` makes of the answer."""
        return self._call(self._client(service, region, once=True), operation, asked)

    def read(self, service: str, region: str, operation: str, **asked: Any) -> Any:
        """A question: botocore asks again, with backoff, where that may help."""
        return self._call(self._client(service, region, once=False), operation, asked)

    def pages(self, service: str, region: str, operation: str, key: str, **asked: Any) -> list[Any]:
        """Every item of every page."""
        found: list[Any] = []
        token: dict[str, str] = {}
        while True:
            page = self.read(service, region, operation, **asked, **token)
            found += page.get(key, [])
            if not page.get("NextToken"):
                return found
            token = {"NextToken": page["NextToken"]}

    def _call(self, client: Any, operation: str, asked: dict[str, Any]) -> Any:
        from botocore import exceptions as errors

        what = f"aws {client.meta.region_name}: {operation}"
        try:
            return getattr(client, operation)(**asked)
        except errors.ClientError as error:
            raise translated(error.response, what) from error
        except (
            errors.NoCredentialsError,
            errors.PartialCredentialsError,
            errors.TokenRetrievalError,
        ) as error:
            raise AccessError(
                f"{what}: no credentials: {error}", hint="aws configure, or AWS_PROFILE, or aws sso login"
            ) from error
        except errors.ParamValidationError as error:
            raise UsageError(f"{what}: {error}") from error
        except errors.BotoCoreError as error:
            raise OtherCloudError(f"{what}: {error}", code=type(error).__name__) from error

    def _client(self, service: str, region: str, *, once: bool) -> Any:
        with self._lock:  # neither a session nor the making of a client is safe for threads
            key = (service, region, once)
            if key not in self._clients:
                self._clients[key] = self._make(service, region, once=once)
            return self._clients[key]

    def _make(self, service: str, region: str, *, once: bool) -> Any:
        try:
            import botocore.exceptions
            import botocore.session
            from botocore.config import Config
        except ImportError as error:
            raise MissingExtraError(
                "launching on AWS needs boto3", hint="pip install 'arylcloud[aws]'"
            ) from error
        attempts = {"total_max_attempts": 1} if once else {"mode": "standard", "total_max_attempts": 5}
        try:
            if self._session is None:
                self._session = botocore.session.Session(profile=self._profile)
            config = Config(retries=attempts, connect_timeout=10, read_timeout=60)
            return self._session.create_client(service, region_name=region, config=config)
        except botocore.exceptions.ProfileNotFound as error:
            raise UsageError(f"aws: {error}", hint="[aws] profile, or AWS_PROFILE") from error
        except botocore.exceptions.BotoCoreError as error:
            raise OtherCloudError(f"aws {service} in {region}: {error}") from error
