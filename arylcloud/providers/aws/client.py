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
from arylcloud.providers.bounds import Paging
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
        paging = Paging(f"aws {region}: {operation}")
        while True:
            page = self.read(service, region, operation, **asked, **token)
            found += page.get(key, [])
            if not page.get("NextToken"):
                return found
            token = {"NextToken": paging.turn(page["NextToken"])}

    def endpoint(self, service: str, region: str) -> str:
        """Where its calls go: AWS's own address, or what the user's environment or profile names."""
        return str(self._client(service, region).meta.endpoint_url)

    def credentials(self) -> Any:
        """botocore's frozen credentials, renewed where they are of the kind that ends; None = there are none.
        Raises AccessError where they cannot be renewed."""
        from botocore.exceptions import BotoCoreError

        with self._lock:
            try:
                found = self._opened().get_credentials()
                return None if found is None else found.get_frozen_credentials()
            except BotoCoreError as error:
                raise not_sent(error, "aws") from error

    def signed_get(self, region: str, bucket: str, key: str, for_s: int) -> str:
        """A link to read one object by. No call goes out, unless credentials have to be renewed."""
        from botocore.exceptions import BotoCoreError

        client = self._client("s3", region)
        try:
            return str(
                client.generate_presigned_url(
                    "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=for_s
                )
            )
        except BotoCoreError as error:
            raise not_sent(error, f"aws {region}: sign") from error

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

    def _opened(self) -> Any:
        if self._session is None:
            self._session = session.session(self._profile, "launching on AWS needs boto3")
        return self._session

    def _make(self, service: str, region: str) -> Any:
        more = {"signature_version": "s3v4"} if service == "s3" else {}  # links would be of an older kind
        return session.client(self._opened(), service, region, connect_timeout=10, read_timeout=60, **more)
