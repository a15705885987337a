"""What Google Cloud's error codes mean for us: the one table. An unknown code is "other", with the code kept.

Compute Engine says no in two ways: an HTTP error with a ``reason`` (``quotaExceeded``), and a 200 whose
operation later is DONE with ``error.errors[0].code`` (``ZONE_RESOURCE_POOL_EXHAUSTED``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    OtherCloudError,
    QuotaError,
    Scope,
)
from arylcloud.providers.codes import hints_of, kinds_of

_CAPACITY: Final = (
    "ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS UNSUPPORTED_OPERATION "
    "IP_SPACE_EXHAUSTED IP_SPACE_EXHAUSTED_WITH_DETAILS"
)
"""UNSUPPORTED_OPERATION: the machine was taken back while it was being made."""
_QUOTA: Final = "QUOTA_EXCEEDED quotaExceeded LIMIT_EXCEEDED limitExceeded"
_THROTTLED: Final = (
    "rateLimitExceeded userRateLimitExceeded RATE_LIMIT_EXCEEDED RESOURCE_OPERATION_RATE_EXCEEDED "
    "concurrentLimitExceeded resourceInUseByAnotherResource_RETRY HTTP_429"
)
_ACCESS: Final = (
    "forbidden insufficientPermissions required authError accessNotConfigured SERVICE_DISABLED "
    "IAM_PERMISSION_DENIED PERMISSIONS_ERROR accountDisabled billingNotEnabled HTTP_401 HTTP_403"
)
_ASKED_WRONG: Final = {
    "invalid": None,
    "badRequest": None,
    "invalidParameter": None,
    "INVALID_FIELD_VALUE": None,
    "INVALID_USAGE": None,
    "HTTP_400": None,
    "notFound": "an image, a network or a service account that is not there: [gcp]",
    "RESOURCE_NOT_FOUND": "an image, a network or a service account that is not there: [gcp]",
    "imageNotFound": "[gcp] image",
    # an organisation's policy
    "conditionNotMet": "an organisation's policy; without external addresses: [gcp] external_ip = none",
    "CONDITION_NOT_MET": "an organisation's policy; without external addresses: [gcp] external_ip = none",
}
_KINDS: Final = kinds_of(
    capacity=_CAPACITY, quota=_QUOTA, throttled=_THROTTLED, access=_ACCESS, wrong=_ASKED_WRONG
)
_HINTS: Final[dict[str, str | None]] = {
    **hints_of("gcp", _ACCESS, _ASKED_WRONG),
}
ALL_REGIONS: Final = "GPUS_ALL_REGIONS"
_METRIC: Final = re.compile(r"Quota '([A-Z0-9_]+)' exceeded")
_LIMIT: Final = re.compile(r"Quota '([A-Z0-9_]+)' exceeded\.?\s+Limit: ([0-9]+(?:\.[0-9]+)?)")
_MARKET_WIDE: Final = re.compile(
    r"(PREEMPTIBLE_)?(CPUS|IN_USE_ADDRESSES|DISKS_TOTAL_GB|SSD_TOTAL_GB|INSTANCES)"
)


def kind_of(code: str) -> type[ArylError]:
    """The class of our tree; :class:`OtherCloudError` where the code is unknown.

    >>> kind_of("QUOTA_EXCEEDED").kind, kind_of("NEW_CODE_OF_TOMORROW").kind
    ('quota', 'other')
    """
    return _KINDS.get(code, OtherCloudError)


def refusal(code: str, message: str, what: str, elsewhere: tuple[str, ...] = ()) -> ArylError:
    """One line, the code kept, and what to do."""
    kind = kind_of(code)
    said = " ".join(message.split())[:400]
    metric = _METRIC.search(said)
    hint = _HINTS.get(code)
    if kind is QuotaError and metric is not None:
        hint = f"ask for more of {metric[1]}: https://console.cloud.google.com/iam-admin/quotas"
    scope = _scope(metric[1] if metric is not None else "") if kind is QuotaError else None
    return kind(f"{what}: {code}: {said}", code=code, hint=hint, scope=scope, elsewhere=elsewhere)


def _scope(metric: str) -> Scope | None:
    if metric in (ALL_REGIONS, "CPUS_ALL_REGIONS"):
        return "account"
    return "market" if _MARKET_WIDE.fullmatch(metric) else None


def limit_of(error: ArylError) -> tuple[str, float] | None:
    """(metric, limit) that a refusal for a quota quotes; None where it quotes none.

    >>> limit_of(QuotaError("insert: Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1."))
    ('NVIDIA_L4_GPUS', 1.0)
    """
    found = _LIMIT.search(error.message)
    return None if found is None else (found[1], float(found[2]))


def of_operation(operation: Any, what: str) -> ArylError | None:
    """Of a ``compute_v1.Operation`` that is DONE; None = it went well."""
    found = list(operation.error.errors)
    if not found:
        if not operation.http_error_status_code:
            return None
        return refusal(f"HTTP_{operation.http_error_status_code}", operation.http_error_message, what)
    known = [one for one in found if one.code in _KINDS]
    first = (known or found)[0]
    return refusal(str(first.code), str(first.message), what, tuple(_elsewhere(found)))


def _elsewhere(found: Iterable[Any]) -> Iterable[str]:
    """Zones that have what was asked for: ``errorInfo.metadatas.zonesAvailable``, with commas."""
    for one in found:
        for detail in one.error_details:
            listed = str(dict(detail.error_info.metadatas).get("zonesAvailable", ""))
            yield from (zone.strip() for zone in listed.split(",") if zone.strip())


def of_answer(error: Any, what: str) -> ArylError:
    """A ``google.api_core.exceptions.GoogleAPICallError``: an HTTP answer that is no 2xx."""
    code = reason_of(getattr(error, "errors", ()) or (), getattr(error, "details", ()) or ())
    return refusal(code or f"HTTP_{int(error.code or 0)}", str(error.message), what)


def of_document(status: int, document: Any, what: str) -> ArylError:
    """The same of a JSON error that no SDK has read."""
    said = document.get("error") if isinstance(document, Mapping) else None
    said = said if isinstance(said, Mapping) else {}
    code = reason_of(said.get("errors") or (), said.get("details") or ())
    return refusal(code or f"HTTP_{status}", str(said.get("message", "no reason given")), what)


def reason_of(errors: Iterable[Any], details: Iterable[Any]) -> str | None:
    """``errors[].reason`` (Compute Engine), else ``details[].reason`` (the newer APIs)."""
    for one in [*errors, *details]:
        if isinstance(one, Mapping) and one.get("reason"):
            return str(one["reason"])
    return None


def not_sent(error: Exception, what: str) -> ArylError:
    """No answer at all: the connection, or the credentials."""
    from google.auth import exceptions as auth

    said = re.sub(r"\?\S+", "?…", " ".join(str(error).split()))[:300]  # a query may hold a token
    if isinstance(error, auth.RefreshError | auth.DefaultCredentialsError):
        return AccessError(f"{what}: no credentials: {said}", hint="gcloud auth application-default login")
    return OtherCloudError(f"{what}: {said}", code=type(error).__name__)
