"""Calls to AWS that only read, through botocore: one client per service, every page, patience, our errors.

Making EC2 clients is what botocore costs (0.3 CPU s for the first one, 0.06 for each one more). There is one
here, and each call is sent to, and signed for, the region that it is meant for. The parser would spend 0.2 ms
on each timestamp: they stay text.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core.errors import (
    AccessError,
    CloudError,
    OtherCloudError,
    ThrottledError,
)
from arylcloud.core.live import Meter
from arylcloud.providers.aws import session
from arylcloud.providers.aws.errors import not_sent, translated
from arylcloud.providers.bounds import Paging
from arylcloud.providers.patience import Passing, Patience, retry_after_s

HOME: Final = "us-east-1"
"""Where the price list is served, and the regions are asked for."""
_ALWAYS_ENABLED: Final = (HOME, "eu-west-1", "us-west-2")
_REGIONAL: Final = re.compile(rf"^(https://[a-z0-9-]+\.){HOME}(\.amazonaws\.com|\.api\.aws)(?=[:/]|$)")
"""AWS's own addresses (FIPS and dual-stack ones, too); one of the user's serves every region."""
_PAGE: Final = {"describe_spot_price_history": 1000, "get_products": 100, "list_price_lists": 100}
"""The largest that each takes. DescribeInstanceTypes takes 100, too, but our questions name few."""


class Aws:
    """One account's AWS, for reading. Used by several threads at once."""

    def __init__(self, profile: str | None, patience: Patience) -> None:
        self.clock = patience.clock
        self._profile = profile
        self._patience = patience
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._meant = threading.local()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_s(), UTC)

    def regions(self, meter: Meter) -> set[str]:
        """Regions that this account has enabled; asked of another one where the first does not answer."""
        for last, region in enumerate(_ALWAYS_ENABLED, start=1 - len(_ALWAYS_ENABLED)):
            try:
                page = self.call("ec2", region, "describe_regions", {}, meter)
                return {one["RegionName"] for one in page["Regions"]}
            except CloudError:
                if last == 0:
                    raise
        raise AssertionError("unreachable")

    def public(self) -> bool:
        """Whether we speak with AWS itself, not with an endpoint of the user's own."""
        return _REGIONAL.match(self._client("ec2").meta.endpoint_url) is not None

    def zone_ids(self, region: str, meter: Meter) -> dict[str, str]:
        """This account's names of a region's zones → their ids."""
        page = self.call("ec2", region, "describe_availability_zones", {"AllAvailabilityZones": True}, meter)
        return {one["ZoneName"]: one["ZoneId"] for one in page["AvailabilityZones"]}

    def pages(
        self, service: str, region: str | None, operation: str, asked: Mapping[str, Any], meter: Meter
    ) -> Iterator[Any]:
        """Every page; ``region`` None = where the service has its home."""
        size = {"MaxResults": _PAGE[operation]} if operation in _PAGE else {}
        token: dict[str, str] = {}
        paging = Paging(f"aws {region or HOME}: {operation}")
        while True:
            page = self.call(service, region or HOME, operation, {**asked, **size, **token}, meter)
            yield page
            if not page.get("NextToken"):
                return
            token = {"NextToken": paging.turn(page["NextToken"])}

    def call(self, service: str, region: str, operation: str, asked: Mapping[str, Any], meter: Meter) -> Any:
        client = self._client(service)
        where = f"aws {service} in {region}"
        return self._patience.call(lambda: self._once(client, where, region, operation, asked, meter), meter)

    def _once(
        self, client: Any, where: str, region: str, operation: str, asked: Mapping[str, Any], meter: Meter
    ) -> Any:
        from botocore import exceptions as errors
        from botocore.parsers import ResponseParserError

        self._meant.region = region
        try:
            answer = getattr(client, operation)(**asked)
        except errors.ClientError as error:
            headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            meter.count(calls=1, bytes_in=int(headers.get("content-length") or 0))
            raise self._refusal(error.response, where, operation) from error
        except (errors.HTTPClientError, ResponseParserError) as error:
            meter.count(calls=1)
            raise Passing(OtherCloudError(f"{where} cannot be reached: {error}")) from error
        except errors.BotoCoreError as error:
            raise not_sent(error, where) from error
        meter.count(
            calls=1, bytes_in=int(answer["ResponseMetadata"]["HTTPHeaders"].get("content-length") or 0)
        )
        return answer

    def _refusal(self, response: Mapping[str, Any], where: str, operation: str) -> Exception:
        error = translated(response, f"{where}: {operation}")
        metadata = response.get("ResponseMetadata", {})
        status = int(metadata.get("HTTPStatusCode") or 0)
        after_s = retry_after_s(metadata.get("HTTPHeaders", {}), self.clock.now_s())
        if isinstance(error, ThrottledError) or status == 429:
            return Passing(ThrottledError(error.message, code=error.code), after_s)
        if isinstance(error, AccessError):
            return error
        other = OtherCloudError(error.message, code=error.code)
        return Passing(other, after_s) if status >= 500 else other

    def _client(self, service: str) -> Any:
        with self._lock:  # neither a session nor the making of a client is safe for threads
            found = self._clients.get(service)
            if found is None:
                found = self._clients[service] = self._make(service)
            return found

    def _direct(self, params: dict[str, Any], **_: Any) -> None:
        """Before a call goes out: to the region that it is meant for, unless one address serves all."""
        region = self._meant.region
        params["url"] = _REGIONAL.sub(rf"\g<1>{region}\g<2>", params["url"])
        params["context"].setdefault("signing", {})["region"] = region

    def _make(self, service: str) -> Any:
        if self._session is None:
            self._session = session.session(self._profile, "prices of AWS need boto3")
            factory = self._session.get_component("response_parser_factory")
            factory.set_parser_defaults(timestamp_parser=str)
        made = session.client(self._session, service, HOME)
        made.meta.events.register(f"before-call.{service}", self._direct)
        return made
