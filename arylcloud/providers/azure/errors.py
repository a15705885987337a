"""What Azure's error codes mean for us: the one table. An unknown code is "other", with the code kept.

The same codes come at once (HTTP 4xx), inside an operation that has failed (HTTP 200, ``status: Failed``),
and in an instance view (``ProvisioningState/failed/AllocationFailed``). The class of an SDK exception
says little (a quota is a ``ResourceExistsError``): only code, status and text are looked at.
"""

from __future__ import annotations

import re
from typing import Any, Final

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    OtherCloudError,
    QuotaError,
    Scope,
    ThrottledError,
)
from arylcloud.providers.codes import hints_of, kinds_of

NO_ANSWER: Final = "NoAnswer"
_CAPACITY: Final = (
    "SkuNotAvailable AllocationFailed ZonalAllocationFailed OverconstrainedAllocationRequest "
    "OverconstrainedZonalAllocationRequest OverconstrainedRequest CapacityNotAvailable InsufficientCapacity "
    "AvailabilityZoneNotSupported AvailabilityZoneNotAvailable NotAvailableForSubscription SubnetIsFull "
    "SpotMaxPriceTooLow LocationNotAvailableForResourceType"
)
_QUOTA: Final = (
    "QuotaExceeded ResourceQuotaExceeded CoresQuotaExceeded PublicIPCountLimitReached "
    "PublicIPAddressCountLimitReached StandardSkuPublicIPCountLimitReached NetworkInterfaceCountLimitReached "
    "DiskCountLimitReached RoleAssignmentLimitExceeded ResourceGroupQuotaExceeded"
)
_THROTTLED: Final = (
    "TooManyRequests SubscriptionRequestsThrottled ResourceRequestsThrottled RateLimitExceeded "
    "OperationRateLimitExceeded 429"
)
_ACCESS: Final = (
    "AuthorizationFailed LinkedAuthorizationFailed AuthenticationFailed InvalidAuthenticationToken "
    "InvalidAuthenticationTokenTenant ExpiredAuthenticationToken InvalidSubscriptionId SubscriptionNotFound "
    "ReadOnlyDisabledSubscription SubscriptionNotRegistered MissingSubscriptionRegistration "
    "DisallowedProvider NoRegisteredProviderFound 401 403"
)
_ASKED_WRONG: Final = {
    "PlatformImageNotFound": "name an image of this region: [azure] image",
    "ImageNotFound": "name another image: [azure] image",
    "GalleryImageNotFound": "name another image: [azure] image",
    "MarketplacePurchaseEligibilityFailed": "az vm image terms accept, or another image: [azure] image",
    "VMMarketplaceInvalidInput": "an image without a plan: [azure] image",
    "RequestDisallowedByPolicy": "your organisation's policy: [azure] tags, subnet, resource_group",
    "RequestDisallowedByAzure": "another region: this subscription may not use it",
    "ScopeLocked": "a lock on the resource group or subscription: az lock list",
    "InvalidResourceReference": "[azure] subnet, vnet or identity",
    "SubnetNotFound": "[azure] subnet",
    "FailedIdentityOperation": "[azure] identity",
    "ResourceGroupNotFound": "[azure] resource_group",
    "InvalidParameter": None,
    "InvalidRequestFormat": None,
    "InvalidRequestContent": None,
    "InvalidTagNameCharacters": "[azure] tags",
    "OSDiskSizeTooSmall": "the disk is smaller than the image: resources.disk_size",
}
_KINDS: Final = kinds_of(
    capacity=_CAPACITY, quota=_QUOTA, throttled=_THROTTLED, access=_ACCESS, wrong=_ASKED_WRONG
)
_HINTS: Final[dict[str, str | None]] = {
    **hints_of("azure", _ACCESS, _ASKED_WRONG),
}
_REGIONAL: Final = (
    "SkuNotAvailable AllocationFailed OverconstrainedAllocationRequest NotAvailableForSubscription "
    "LocationNotAvailableForResourceType OverconstrainedRequest"
)
_SCOPES: Final[dict[str, Scope]] = {
    **dict.fromkeys(_REGIONAL.split(), "region"),
    # of addresses, interfaces, disks and groups: nothing can be started there at all
    **dict.fromkeys(_QUOTA.split(), "market"),
}
_SHARED: Final = ("lowprioritycores", "total regional")
"""Quotas that all sizes of a market share."""
_QUOTA_TEXT: Final = re.compile(r"\bquota\b", re.IGNORECASE)
_QUOTA_NAME: Final = re.compile(
    r"approved\s+(?:Total\s+)?(?:Regional\s+)?([\w-]+(?:\s+Family)?)\s+(?:Cores\s+)?quota", re.I
)


def kind_of(code: str, message: str = "") -> type[ArylError]:
    """The class of our tree; :class:`OtherCloudError` where the code is unknown. ``OperationNotAllowed`` is a
    quota only where its text says so: a machine that is being deleted answers with it, too.

    >>> kind_of("OperationNotAllowed", "exceeding approved LowPriorityCores quota").kind
    'quota'
    >>> kind_of("OperationNotAllowed", "marked for deletion").kind, kind_of("CodeOfTomorrow").kind
    ('other', 'other')
    """
    if code == "OperationNotAllowed":
        return QuotaError if _QUOTA_TEXT.search(message) else OtherCloudError
    return _KINDS.get(code, OtherCloudError)


def of_code(code: str, message: str, what: str) -> ArylError:
    """One line, the code kept, and what to do."""
    text = " ".join(message.split())[:600]
    kind = kind_of(code, text)
    hint, scope = _HINTS.get(code), _SCOPES.get(code)
    if kind is QuotaError:
        named = _QUOTA_NAME.search(text)
        hint = f"ask for more of {named[1] if named else 'this quota'}: {WHERE_TO_ASK}"
        if any(word in text.lower() for word in _SHARED):
            scope = "market"
    numbers = _NUMBERS.search(text) if kind is QuotaError else None
    in_use = numbers is not None and int(numbers[1]) >= int(numbers[2])
    return kind(f"{what}: {code}: {text}", code=code, hint=hint, scope=scope, in_use=in_use)


_NUMBERS: Final = re.compile(r"Current Limit: (\d+).*?Additional Required: (\d+)")
_TRIED: Final = re.compile(r"\s+\w+Credential: ")
_ABSENT: Final = re.compile(
    r"unavailable|not found|could not be found|not installed|not fully configured", re.I
)
WHERE_TO_ASK: Final = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"


def translated(error: Exception, what: str) -> ArylError:
    """An ``AzureError`` as one of ours."""
    from azure.core import exceptions as sdk
    from azure.identity import CredentialUnavailableError

    unavailable = isinstance(error, CredentialUnavailableError)
    if unavailable or (isinstance(error, sdk.ClientAuthenticationError) and error.response is None):
        refused = refusals(str(error))
        return AccessError(
            f"{what}: {'; '.join(refused)[:300] or 'no credentials'}",
            code="AuthenticationFailed" if refused else "NoCredentials",
            hint="az login, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        )
    if isinstance(error, sdk.HttpResponseError):
        code, message = said(error)
        status = error.status_code or 0
        if not code:
            code = str(status)
        found = of_code(code, message, what)
        if isinstance(found, OtherCloudError) and status == 429:
            return ThrottledError(found.message, code=code)
        if isinstance(found, OtherCloudError) and status in (401, 403):
            return AccessError(found.message, code=code, hint=_HINTS["AuthorizationFailed"])
        return found
    return OtherCloudError(f"{what}: {_first_line(error)}", code=NO_ANSWER)


def refusals(text: str) -> list[str]:
    """Of credentials that there are, what was said to them; of those that there are not nothing need be said.

    >>> refusals("Attempted credentials:\\n\\tEnvironmentCredential: Authentication failed: AADSTS7: no.\\n"
    ...          "\\tAzureCliCredential: Azure CLI not found on path")
    ['EnvironmentCredential: Authentication failed: AADSTS7: no.']
    """
    tried = [line.strip() for line in text.splitlines() if _TRIED.match(line)]
    return [line for line in tried if not _ABSENT.search(line)] if tried else [text.splitlines()[0][:300]]


def said(error: Any) -> tuple[str, str]:
    """(code, message) of an ``HttpResponseError``; a wrapper's code gives way to the one inside."""
    document = getattr(error, "error", None)
    code, message = str(getattr(document, "code", "") or ""), str(getattr(document, "message", "") or "")
    details = getattr(document, "details", None)
    if details and code in ("DeploymentFailed", "ResourceDeploymentFailure"):
        inner = details[0]
        code, message = str(inner.code or code), str(inner.message or message)
    return code, message or _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
