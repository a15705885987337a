"""Calls to Google Cloud: Compute Engine by its own SDK, what that lacks by REST.

By the SDK orders are sent once, questions again. By REST orders are sent again, too: all of them name what
they make, write the whole of it or remove it, so that twice is as good as once.

Importing google-cloud-compute costs 3.6 CPU s, so it happens with the first call and not before. Its
``ExtendedOperation`` would poll the public endpoint whatever ours is: operations are asked for by clients of
our own, and their answers read here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from arylcloud.core.errors import ArylError, CloudError, MissingExtraError, ThrottledError, UsageError
from arylcloud.core.live import Meter
from arylcloud.core.net import is_loopback
from arylcloud.providers.bounds import Paging
from arylcloud.providers.gcp.errors import not_sent, of_answer, of_document, of_operation
from arylcloud.providers.patience import Passing, Patience, retry_after_s
from arylcloud.providers.web import endpoint

COMPUTE: Final = "https://compute.googleapis.com"
RESOURCES: Final = "https://cloudresourcemanager.googleapis.com"
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.5
"""At an operation, at first; then more rarely."""
LOOK_AT_MOST_S: Final = 2.0
_PASSING: Final = frozenset(
    [
        "HTTP_500",
        "HTTP_502",
        "HTTP_503",
        "HTTP_504",
        "backendError",
        "internalError",
        "resourceNotReady",
        "ConnectionError",
        "ConnectTimeout",
        "ReadTimeout",
        "ChunkedEncodingError",
        "ParseError",
        "JSONDecodeError",
    ]
)
"""What a question is asked again for. The latter are requests' own, and a proxy's."""


class Calls:
    """One project's Google Cloud. Safe to use from several threads."""

    def __init__(self, settings: Mapping[str, str], patience: Patience | None = None) -> None:
        self._settings = settings
        self._patience = patience or Patience(tries=5, longest_s=20.0)
        self.base = endpoint(settings.get("api_endpoint"), COMPUTE, what="[gcp] api_endpoint")
        self.resources = endpoint(settings.get("resource_manager"), RESOURCES, what="[gcp] resource_manager")
        self._lock = threading.RLock()
        self._clients: dict[str, Any] = {}
        self._who: tuple[Any, str | None] | None = None
        self._http: Any = None

    # ------------------------------------------------------------ who asks

    @property
    def project(self) -> str:
        """``[gcp] project``, else that of the credentials. Raises UsageError where neither names one."""
        named = self._settings.get("project") or self.credentials()[1]
        if not named:
            raise UsageError("gcp: no project is named", hint="[gcp] project, or gcloud config set project …")
        return named

    def credentials(self) -> tuple[Any, str | None]:
        """(the application default credentials, their project). None is needed for an emulator here."""
        with self._lock:
            if self._who is None:
                self._who = self._find()
            return self._who

    @property
    def identity(self) -> str | None:
        """The service account that asks; None = a person, or nobody knows."""
        return getattr(self.credentials()[0], "service_account_email", None)

    def _find(self) -> tuple[Any, str | None]:
        try:
            import google.auth
            from google.auth import exceptions
            from google.auth.credentials import AnonymousCredentials

            class Nobody(AnonymousCredentials):  # type: ignore[misc, unused-ignore]
                def refresh(self, request: Any) -> None:
                    """There is nothing to renew."""
        except ImportError as error:
            raise missing(error) from error
        if _here(self.base):
            anonymous: Any = Nobody
            return anonymous(), None
        try:
            found, project = google.auth.default(scopes=SCOPES)
        except exceptions.GoogleAuthError as error:
            raise not_sent(error, "gcp") from error
        return found, project

    # ------------------------------------------------------------ Compute Engine

    def act(self, service: str, method: str, **asked: Any) -> Any:
        """One request, sent once. Raises what ``errors`` makes of the answer."""
        try:
            return self._call(service, method, asked)
        except _Refused as refused:
            raise refused.error from refused.__cause__

    def read(self, service: str, method: str, **asked: Any) -> Any:
        """A question: asked again where the cloud throttles, or is not well."""
        return self._again(lambda: self._call(service, method, asked))

    def find(self, service: str, method: str, **asked: Any) -> Any | None:
        """``read``; None where there is no such thing."""
        try:
            return self.read(service, method, **asked)
        except ArylError as error:
            if error.code in ("notFound", "HTTP_404"):
                return None
            raise

    def pages(self, service: str, method: str, **asked: Any) -> list[Any]:
        """Every item of every page; of an aggregated list (scope, what is there) pairs."""
        found: list[Any] = []
        token, paging = "", Paging(f"gcp: {service}.{method}")
        while True:
            pager = self.read(service, method, page_token=token, **asked)
            page = next(iter(pager.pages))  # the SDK's pager asks for the next ones without our patience
            found += page.items.items() if hasattr(page.items, "items") else page.items
            token = page.next_page_token
            if not token:
                return found
            paging.turn(token)

    def done(
        self, operation: Any, what: str, *, within_s: float, or_when: Callable[[], bool] = lambda: False
    ) -> Any | None:
        """The operation when it is DONE; None = not yet, or ``or_when``. Raises what its error means."""
        found = self.settled(operation, within_s=within_s, or_when=or_when)
        error = of_operation(found, what) if found is not None else None
        if error is not None:
            raise error
        return found

    def settled(
        self, operation: Any, *, within_s: float, or_when: Callable[[], bool] = lambda: False
    ) -> Any | None:
        """As ``done``, whatever has become of it: raises only what asking meets with."""
        give_up_s, wait_s = time.monotonic() + within_s, LOOK_EVERY_S
        while operation.status != self.type("Operation").Status.DONE:
            if time.monotonic() >= give_up_s or or_when():
                return None
            time.sleep(min(wait_s, max(0.0, give_up_s - time.monotonic())))
            wait_s = min(LOOK_AT_MOST_S, wait_s * 1.3)
            operation = self.operation(operation)
        return operation

    def operation(self, known: Any) -> Any:
        """As it is now; ``known`` says where it is."""
        asked = {"project": self.project, "operation": known.name}
        if known.zone:
            return self.read("ZoneOperations", "get", zone=last(known.zone), **asked)
        if known.region:
            return self.read("RegionOperations", "get", region=last(known.region), **asked)
        return self.read("GlobalOperations", "get", **asked)

    def type(self, name: str) -> Any:
        """A message class of the SDK."""
        return getattr(self._sdk(), name)

    def check_installed(self) -> None:
        """MissingExtraError now, and not when there is a machine to make."""
        try:
            there = find_spec("google.cloud.compute_v1") is not None
        except ImportError as error:
            raise missing(error) from error
        if not there:
            raise missing(ImportError("no module named google.cloud.compute_v1"))

    # ------------------------------------------------------------ REST

    def rest(self, method: str, url: str, body: Any = None) -> Any:
        """JSON in, JSON out, with the same credentials. Repeated as ``read`` is, so only for questions, and
        for orders that may come twice: whoever makes something takes "it is there" for success."""
        return self._again(lambda: self._rest(method, url, body))

    def _rest(self, method: str, url: str, body: Any) -> Any:
        what = f"gcp: {method} {urlsplit(url).path}"
        try:
            import requests
            from google.auth import exceptions
            from google.auth.transport.requests import AuthorizedSession
        except ImportError as error:
            raise missing(error) from error
        with self._lock:
            if self._http is None:
                session: Any = AuthorizedSession
                self._http = session(self.credentials()[0])
        try:
            answer = self._http.request(method, url, json=body, timeout=TIMEOUT_S)
            document = answer.json() if answer.content else {}
        except (exceptions.GoogleAuthError, requests.RequestException) as error:
            raise _Refused(not_sent(error, what)) from error
        if answer.status_code >= 400:
            refused = of_document(answer.status_code, document, what)
            raise _Refused(refused, retry_after_s(answer.headers, time.time()))
        return document

    # ------------------------------------------------------------ parts

    def _again(self, ask: Callable[[], Any]) -> Any:
        def once() -> Any:
            try:
                return ask()
            except _Refused as refused:
                error = refused.error
                passes = isinstance(error, ThrottledError) or error.code in _PASSING
                if passes and isinstance(error, CloudError):
                    raise Passing(error, refused.after_s) from error
                raise error from refused.__cause__

        return self._patience.call(once, Meter())

    def _call(self, service: str, method: str, asked: dict[str, Any]) -> Any:
        client = self._client(service)
        from google.api_core import exceptions as api
        from google.auth import exceptions as auth
        from google.protobuf.json_format import ParseError
        from requests import RequestException

        what = f"gcp: {service}.{method}"
        request = {key: value for key, value in asked.items() if value not in (None, "")}
        try:
            return getattr(client, method)(request=request, retry=None, timeout=TIMEOUT_S)
        except api.GoogleAPICallError as error:
            headers = getattr(error.response, "headers", None) or {}
            raise _Refused(of_answer(error, what), retry_after_s(headers, time.time())) from error
        except (auth.GoogleAuthError, RequestException, ParseError) as error:
            raise _Refused(not_sent(error, what)) from error

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                from google.api_core.client_options import ClientOptions

                self._clients[service] = getattr(self._sdk(), f"{service}Client")(
                    credentials=self.credentials()[0],
                    client_options=ClientOptions(api_endpoint=self.base),
                    transport="rest",
                )
            return self._clients[service]

    def _sdk(self) -> Any:
        try:
            from google.cloud import compute_v1
        except ImportError as error:
            raise missing(error) from error
        return compute_v1


class _Refused(Exception):
    """What was said, and when to ask again."""

    def __init__(self, error: ArylError, after_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after_s = after_s


def missing(error: ImportError) -> MissingExtraError:
    return MissingExtraError(
        f"launching on Google Cloud needs google-cloud-compute: {error}", hint="pip install 'arylcloud[gcp]'"
    )


def last(url: str) -> str:
    """The name at the end of a resource's URL.

    >>> last("https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a")
    'us-central1-a'
    """
    return url.rpartition("/")[2]


def _here(base: str) -> bool:
    """An emulator on this machine: there is nobody to prove anything to."""
    parts = urlsplit(base)
    return parts.scheme == "http" and is_loopback(parts.hostname)
