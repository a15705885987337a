"""Calls to AWS that act: EC2 per region, sent once; and the same clients for what is read while acting.

botocore repeats RunInstances after InsufficientInstanceCapacity (HTTP 500) by itself; failing over is ours,
so nothing that acts is ever repeated here.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from arylcloud.core.errors import OtherCloudError, ThrottledError
from arylcloud.core.live import Meter
from arylcloud.providers.aws import session
from arylcloud.providers.aws.errors import not_sent, translated
from arylcloud.providers.patience import Passing, Patience

_PASSING: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "Unavailable",
        "ServiceUnavailable",
        "RequestTimeout",
        "ConnectionClosedError",
        "ReadTimeoutError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "ResponseParserError",
        "500",
        "502",
        "503",
    }
)
"""What a question is asked again for. The latter are botocore's own, and a proxy's."""


class Calls:
    """One account's AWS. Safe to use from several threads."""

    def __init__(self, profile: str | None, patience: Patience | None = None) -> None:
        self._profile = profile
        self._patience = patience or Patience(tries=5, longest_s=20.0)
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}

    def act(self, service: str, region: str, operation: str, **asked: Any) -> Any:
        """One request, sent once. Raises what ``errors`` makes of the answer."""
        return self._call(self._client(service, region), operation, asked)

    def read(self, service: str, region: str, operation: str, **asked: Any) -> Any:
        """A question: asked again where AWS throttles, or is not well."""
        client = self._client(service, region)

        def ask() -> Any:
            try:
                return self._call(client, operation, asked)
            except ThrottledError as error:
                raise Passing(error) from error
            except OtherCloudError as error:
                if error.code in _PASSING:
                    raise Passing(error) from error
                raise

        return self._patience.call(ask, Meter())

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
        from botocore.parsers import ResponseParserError

        what = f"aws {client.meta.region_name}: {operation}"
        try:
            return getattr(client, operation)(**asked)
        except errors.ClientError as error:
            raise translated(error.response, what) from error
        except (errors.BotoCoreError, ResponseParserError) as error:  # the latter is none of the former
            raise not_sent(error, what) from error

    def _client(self, service: str, region: str) -> Any:
        with self._lock:  # neither a session nor the making of a client is safe for threads
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._make(service, region)
            return self._clients[key]

    def _make(self, service: str, region: str) -> Any:
        if self._session is None:
            self._session = session.session(self._profile, "launching on AWS needs boto3")
        return session.client(self._session, service, region, connect_timeout=10, read_timeout=60)
