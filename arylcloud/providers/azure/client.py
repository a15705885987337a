"""Azure Resource Manager through Microsoft's SDK: clients made when asked for, orders sent once, questions
asked again; what the SDK packages lack by REST through the same pipeline. (One order is asked again as
questions are: ``selfend`` gives a role under a name of ours, and twice is as good as once.)

Importing the three packages costs 1.6 CPU s: only whoever acts pays it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from arylcloud import __version__
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import AccessError, ArylError, MissingExtraError, OtherCloudError, ThrottledError
from arylcloud.core.live import Meter
from arylcloud.providers.azure.errors import NO_ANSWER, translated
from arylcloud.providers.bounds import Paging
from arylcloud.providers.patience import Passing, Patience, retry_after_s
from arylcloud.providers.web import endpoint

T = TypeVar("T")
PUBLIC: Final = "https://management.azure.com"
SUBSCRIPTION: Final = "AZURE_SUBSCRIPTION_ID"
_PASSING_STATUS: Final = (408, 500, 502, 503, 504)
_MICROSOFTS: Final = (".microsoftonline.com", ".microsoftonline.us", ".chinacloudapi.cn", ".windows.net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who we are, as the token says, and until when (wall seconds)."""

    name: str
    object_id: str
    tenant: str
    expires_s: float


class Arm:
    """One subscription. Safe to use from several threads."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        environ: Mapping[str, str] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._subscription = settings.get("subscription") or self._environ.get(SUBSCRIPTION)
        self.base = endpoint(settings.get("resource_manager"), PUBLIC, what="[azure] resource_manager")
        self._patience = patience or Patience(tries=5, longest_s=20.0)
        self._lock = threading.RLock()
        self._credential: Any = None
        self._clients: dict[str, Any] = {}

    @property
    def subscription(self) -> str:
        if not self._subscription:
            raise AccessError(
                "azure: no subscription is named",
                code="NoSubscription",
                hint=f"[azure] subscription, or {SUBSCRIPTION}; `az account show --query id` tells it",
            )
        return self._subscription

    @property
    def scope(self) -> str:
        return f"/subscriptions/{self.subscription}"

    def vm_id(self, group: str, name: str) -> str:
        return f"{self.scope}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"

    # ------------------------------------------------------------ clients

    @property
    def compute(self) -> Any:
        return self._client("compute", "azure.mgmt.compute", "ComputeManagementClient")

    @property
    def network(self) -> Any:
        return self._client("network", "azure.mgmt.network", "NetworkManagementClient")

    @property
    def groups(self) -> Any:
        """Resource groups."""
        return self._client(
            "resources", "azure.mgmt.resource.resources", "ResourceManagementClient"
        ).resource_groups

    def _client(self, name: str, module: str, cls: str) -> Any:
        with self._lock:
            if name not in self._clients:
                self._clients[name] = self._make(module, cls)
            return self._clients[name]

    def _make(self, module: str, cls: str) -> Any:
        subscription = self.subscription
        try:
            from importlib import import_module

            kind = getattr(import_module(module), cls)
        except ImportError as error:
            raise _missing() from error
        policies = [_here(self.base)]
        if self.base.startswith("http://"):  # on this machine only: ``endpoint`` has seen to it
            policies.append(_plain())
        return kind(
            self.credential(),
            subscription,
            base_url=self.base,
            credential_scopes=[self._token_scope],
            retry_total=0,  # patience is ours, and orders are sent once
            connection_timeout=10,
            read_timeout=60,
            user_agent=f"arylcloud/{__version__}",
            per_call_policies=policies,
        )

    @property
    def _token_scope(self) -> str:
        """A proxy or an emulator in front of Azure takes Azure's own tokens."""
        return f"{PUBLIC}/.default"

    def credential(self) -> Any:
        """As Microsoft's own tools find it: environment, workload or managed identity, ``az login``."""
        with self._lock:
            if self._credential is None:
                try:
                    from azure.identity import DefaultAzureCredential
                except ImportError as error:
                    raise _missing() from error
                # where nobody has set up logging, it would write what our errors say over our own lines
                logging.getLogger("azure").addHandler(logging.NullHandler())
                authority = urlsplit(self._environ.get("AZURE_AUTHORITY_HOST", "")).hostname or ""
                own = bool(authority) and not authority.endswith(_MICROSOFTS)
                self._credential = DefaultAzureCredential(
                    disable_instance_discovery=own,  # Microsoft does not know an authority of one's own
                    exclude_visual_studio_code_credential=True,
                    exclude_broker_credential=True,
                )
            return self._credential

    def token(self) -> Any:
        """azure-core's AccessToken. Raises AccessError where there is none, MissingExtraError."""
        return self.act("a token", lambda: self.credential().get_token(self._token_scope))

    def identity(self) -> Identity:
        """Raises AccessError where there is none."""
        token = self.token()
        told = claims(token.token)
        name = told.get("upn") or told.get("unique_name") or told.get("appid") or told.get("oid") or "?"
        return Identity(
            name=str(name),
            object_id=str(told.get("oid", "")),
            tenant=str(told.get("tid", "?")),
            expires_s=float(token.expires_on),
        )

    # ------------------------------------------------------------ calls

    def act(self, what: str, order: Callable[[], T]) -> T:
        """One order, sent once. Raises what ``errors`` makes of the answer."""
        try:
            return order()
        except ArylError:
            raise
        except Exception as error:
            raise _ours(error, what) from error

    def read(self, what: str, question: Callable[[], T]) -> T:
        """A question: asked again where Azure throttles, or is not well."""

        def ask() -> T:
            try:
                return question()
            except ArylError:
                raise
            except Exception as error:
                ours = _ours(error, what)
                response = getattr(error, "response", None)
                headers = getattr(response, "headers", None) or {}
                after_s = retry_after_s(headers, SystemClock().now_s())
                if isinstance(ours, ThrottledError):
                    raise Passing(ours, after_s) from error
                status = getattr(error, "status_code", None)
                if isinstance(ours, OtherCloudError) and (
                    ours.code == NO_ANSWER or status in _PASSING_STATUS
                ):
                    raise Passing(ours, after_s) from error
                raise ours from error

        return self._patience.call(ask, Meter())

    def find(self, what: str, question: Callable[[], T]) -> T | None:
        """As ``read``; None for what is not there."""
        sdk = _exceptions()

        def ask() -> T | None:
            try:
                return question()
            except sdk.ResourceNotFoundError:
                return None

        return self.read(what, ask)

    def drop(self, what: str, order: Callable[[], object]) -> None:
        """An order to delete: the missing is success."""
        sdk = _exceptions()

        def send() -> None:
            try:
                order()
            except sdk.ResourceNotFoundError:
                return

        self.act(what, send)

    def rest(
        self,
        method: str,
        path: str,
        version: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """One request to what the SDK packages lack; to be given to ``act``, ``read``, ``find`` or ``drop``.
        ``path``: a resource's id, or a following page's whole address."""
        sdk = _exceptions()
        from azure.core.rest import HttpRequest

        if path.startswith("/"):
            asked = {"api-version": version, **(query or {})}
            request = HttpRequest(method, f"{self.base}{path}", json=body, params=asked)
        else:
            request = HttpRequest(method, path, json=body)
        response = self.compute.send_request(request)
        if response.status_code >= 400:
            known = {401: sdk.ClientAuthenticationError, 404: sdk.ResourceNotFoundError}
            sdk.map_error(status_code=response.status_code, response=response, error_map=known)
            raise sdk.HttpResponseError(response=response, error_format=_arm_format())
        return response.json() if response.content else None


def items(
    arm: Arm, what: str, path: str, version: str, query: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Every item of every page of a list that the SDK packages lack. Raises as ``Arm.read``."""
    following: str | None = path
    paging = Paging(f"azure: {what}")
    while following:
        page = arm.read(what, partial(arm.rest, "GET", following, version, query=query))
        yield from page.get("value", [])
        following, query = page.get("nextLink"), None
        if following:
            paging.turn(following)


def all_of(what: str, listing: Any) -> list[Any]:
    """Every item of every page of the SDK's own pager, which would turn pages for ever. Raises as the SDK
    does, and OtherCloudError where the pages have no end."""
    found: list[Any] = []
    paging, pages = Paging(f"azure: {what}"), listing.by_page()
    for page in pages:
        found += page
        if pages.continuation_token:
            paging.turn(pages.continuation_token)
    return found


def _here(base: str) -> Any:
    """Asks for a following page at the address that we were told to ask, whatever host its link names: it
    gets our token, and a proxy's answers name Microsoft's."""
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    def keep(_: Any, request: Any) -> None:
        asked = request.http_request
        if not asked.url.startswith(f"{base}/"):
            parts = urlsplit(asked.url)
            asked.url = f"{base}{parts.path}" + (f"?{parts.query}" if parts.query else "")

    return type("Here", (SansIOHTTPPolicy,), {"on_request": keep})()


def _plain() -> Any:
    """Lets a token go over plain http: the SDK has no setting for it, but an option of each request."""
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    def allow(_: Any, request: Any) -> None:
        request.context.options["enforce_https"] = False

    return type("Plain", (SansIOHTTPPolicy,), {"on_request": allow})()


def no_wait() -> Any:
    """A polling method that does not poll: an operation is begun, its answer's headers are kept, and how it
    goes on is ours to ask, so that a launcher may die in between."""
    from azure.core import polling

    made: Any = polling
    return made.NoPolling()


def _arm_format() -> Any:
    from azure.mgmt.core.exceptions import ARMErrorFormat

    return ARMErrorFormat


def _ours(error: Exception, what: str) -> ArylError:
    """Of the SDK's errors only: a bug of ours stays what it is."""
    if not isinstance(error, _exceptions().AzureError):
        raise error
    return translated(error, f"azure: {what}")


def _exceptions() -> Any:
    """The SDK's. Raises MissingExtraError."""
    try:
        from azure.core import exceptions
    except ImportError as error:
        raise _missing() from error
    return exceptions


def _missing() -> MissingExtraError:
    return MissingExtraError(
        "launching on Azure needs Microsoft's SDK", hint="pip install 'arylcloud[azure]'"
    )


def claims(token: str) -> dict[str, Any]:
    """What a token says of itself. Only its issuer could verify it; nothing is decided by it."""
    import base64
    import json

    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
