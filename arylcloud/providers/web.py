"""Plain HTTPS of JSON, to read, for APIs that need no SDK: gzip, patience, errors of our tree, bytes counted.

Standard library only, so proxies of the environment hold. Redirects are not followed: what we send may
carry credentials.
"""

from __future__ import annotations

import gzip
import http.client
import json
import ssl
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from arylcloud import __version__
from arylcloud.core.errors import AccessError, OtherCloudError, ThrottledError, UsageError
from arylcloud.core.live import Meter
from arylcloud.core.net import is_loopback
from arylcloud.providers.patience import Passing, Patience, retry_after_s

_PASSING: Final = (408, 429, 500, 502, 503, 504)
_THROTTLES: Final = (b"rateLimitExceeded", b"RATE_LIMIT_EXCEEDED", b"userRateLimitExceeded")
_TIMEOUT_S: Final = 60.0


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class Web:
    """One cloud's web. Used by several threads at once."""

    def __init__(self, cloud: str, patience: Patience) -> None:
        self._cloud = cloud
        self._patience = patience

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # one context for all: reading the certificates takes longer than many a call
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        return urllib.request.build_opener(secure, NoRedirect)

    def get_json(self, url: str, meter: Meter, headers: Mapping[str, str] | None = None) -> Any:
        """The document at ``url``. Raises ThrottledError and OtherCloudError after patience, AccessError."""
        return self._patience.call(lambda: self._once(url, meter, headers or {}), meter)

    def ask_json(self, url: str, question: Any, meter: Meter, headers: Mapping[str, str]) -> Any:
        """As ``get_json``, of a question that is a document itself: it is posted, and may be repeated."""
        body = json.dumps(question).encode()
        headers = {"Content-Type": "application/json", **headers}
        return self._patience.call(lambda: self._once(url, meter, headers, body), meter)

    def _once(self, url: str, meter: Meter, headers: Mapping[str, str], posted: bytes | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 – endpoint() has seen to the scheme
            url,
            data=posted,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "gzip",
                "User-Agent": f"arylcloud/{__version__}",
                **headers,
            },
        )
        host = urlsplit(url).netloc
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                body = answer.read()
                packed = answer.headers.get("Content-Encoding", "") == "gzip"
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
            meter.count(calls=1, bytes_in=len(body))
            raise self._refusal(error, body, host) from error
        except (OSError, http.client.HTTPException) as error:
            meter.count(calls=1)
            reason = getattr(error, "reason", None) or error
            raise Passing(OtherCloudError(f"{self._cloud}: {host} cannot be reached: {reason}")) from error
        meter.count(calls=1, bytes_in=len(body))
        try:
            return json.loads(gzip.decompress(body) if packed else body)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise Passing(OtherCloudError(f"{self._cloud}: {host} answered with no JSON: {error}")) from error

    def _refusal(self, error: urllib.error.HTTPError, body: bytes, host: str) -> Exception:
        said = _message(body) or error.reason or "no reason given"
        text = f"{self._cloud}: {host} answered {error.code}: {said}"
        code = str(error.code)
        throttled = error.code == 429 or (error.code == 403 and any(word in body for word in _THROTTLES))
        if throttled or error.code in _PASSING:
            kind = ThrottledError if throttled else OtherCloudError
            after_s = retry_after_s(dict(error.headers.items()), self._patience.clock.now_s())
            return Passing(kind(text, code=code), after_s)
        if error.code in (401, 403):
            return AccessError(text, code=code)
        return OtherCloudError(text, code=code)


def _message(body: bytes) -> str | None:
    """What a Google or Microsoft error document says, in one line."""
    try:
        error = json.loads(body)
        error = error.get("error", error.get("Error", error))
        said = error.get("message", error.get("Message"))
    except (ValueError, AttributeError):
        return None
    return " ".join(str(said).split())[:300] if said else None


def endpoint(setting: str | None, default: str, *, what: str) -> str:
    """The base URL in force, without a slash at its end; plain http only on this machine.

    >>> endpoint(None, "https://prices.azure.com/", what="[azure] retail_prices")
    'https://prices.azure.com'
    """
    url = (setting or default).rstrip("/")
    parts = urlsplit(url)
    local = is_loopback(parts.hostname)
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise UsageError(f"{what}: {url!r} is no https address", hint="plain http is for this machine only")
    return url
