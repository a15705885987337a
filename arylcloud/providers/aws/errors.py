"""What AWS's error codes mean for us: the one table. An unknown code is "other", with the code kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    OtherCloudError,
    Scope,
    UsageError,
)
from arylcloud.providers.codes import hints_of, kinds_of

_CAPACITY: Final = (
    "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity "
    "InsufficientCapacity InsufficientCapacityOnOutpost SpotMaxPriceTooLow Unsupported "
    "InsufficientFreeAddressesInSubnet"
)
_QUOTA: Final = (
    "VcpuLimitExceeded MaxSpotInstanceCountExceeded MaxSpotFleetRequestCountExceeded InstanceLimitExceeded "
    "VolumeLimitExceeded MaxIOPSLimitExceeded SecurityGroupLimitExceeded ResourceLimitExceeded "
    "PlacementGroupLimitExceeded"
)
_THROTTLED: Final = (
    "RequestLimitExceeded Throttling ThrottlingException ThrottledException RequestThrottled "
    "RequestThrottledException TooManyRequestsException SlowDown EC2ThrottledException"
)
_ACCESS: Final = (
    "AuthFailure UnauthorizedOperation AccessDenied AccessDeniedException ExpiredToken ExpiredTokenException "
    "InvalidClientTokenId UnrecognizedClientException OptInRequired InvalidSignatureException "
    "SignatureDoesNotMatch RequestExpired MissingAuthenticationToken PendingVerification Blocked "
    "NotAuthorized"
)
_ASKED_WRONG: Final = {
    "InvalidAMIID.NotFound": "name an image of this region: [aws] image",
    "InvalidAMIID.Unavailable": "name another image: [aws] image",
    "InvalidAMIID.Malformed": "an image is called ami-…: [aws] image, or resources.image_id of the job",
    "InvalidSubnetID.NotFound": "[aws] subnet, in the account and region of the launch",
    "InvalidSubnet.Range": "[aws] subnet",
    "InvalidVpcID.NotFound": "[aws] vpc",
    "InvalidGroup.NotFound": "[aws] security_group",
    "InvalidGroupId.Malformed": "[aws] security_group",
    "VPCIdNotSpecified": "aws ec2 create-default-vpc, or [aws] subnet",
    "MissingInput": "aws ec2 create-default-vpc, or [aws] subnet",
    "NoSuchEntity": "[aws] instance_profile",
    "InvalidParameterValue": None,
    "InvalidParameterCombination": None,
    "InvalidParameterDependency": "a disk of kind io1 or io2 needs more than [aws] disk_type says",
    "MissingParameter": "a disk of kind io1 or io2 needs more than [aws] disk_type says",
    "InvalidBlockDeviceMapping": "the disk is smaller than the image: resources.disk_size",
    "TagPolicyViolation": "your organisation asks for tags: [aws] tags",
}
_KINDS: Final = kinds_of(
    capacity=_CAPACITY, quota=_QUOTA, throttled=_THROTTLED, access=_ACCESS, wrong=_ASKED_WRONG
)
_HINTS: Final[dict[str, str | None]] = {
    **hints_of("aws", _ACCESS, _ASKED_WRONG),
    "PlacementGroupLimitExceeded": "arylcloud gc removes those of jobs that have ended",
    # a machine with this token may exist: never a plain "no"
    "IdempotentParameterMismatch": None,
}
_SCOPES: Final[dict[str, Scope]] = {
    # one number for all spot machines of the family; EC2 has no code that speaks of a whole region's capacity
    "MaxSpotInstanceCountExceeded": "family",
    "VcpuLimitExceeded": "family",
    # of disks and groups: nothing can be started there at all
    "VolumeLimitExceeded": "market",
    "MaxIOPSLimitExceeded": "market",
    "SecurityGroupLimitExceeded": "market",
    "PlacementGroupLimitExceeded": "market",
    "InstanceLimitExceeded": "market",
}
_IN_USE: Final = frozenset(["VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"])
"""That the quota would do for one machine is known before any is asked for (``quota``)."""


def kind_of(code: str) -> type[ArylError]:
    """The class of our tree; :class:`OtherCloudError` where the code is unknown.

    >>> kind_of("VcpuLimitExceeded").kind, kind_of("NewCodeOfTomorrow").kind
    ('quota', 'other')
    """
    return _KINDS.get(code, OtherCloudError)


def translated(response: Mapping[str, Any], what: str) -> ArylError:
    """A botocore error response as one of ours: one line, the code kept, and what to do."""
    said = response.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", "")).strip()
    return kind_of(code)(
        f"{what}: {code}: {message}",
        code=code,
        hint=_HINTS.get(code),
        scope=_SCOPES.get(code),
        in_use=code in _IN_USE,
    )


def not_sent(error: Exception, what: str) -> ArylError:
    """A ``BotoCoreError``: no answer of AWS at all."""
    from botocore import exceptions as errors

    if isinstance(
        error, errors.NoCredentialsError | errors.PartialCredentialsError | errors.TokenRetrievalError
    ):
        return AccessError(
            f"{what}: no credentials: {error}", hint="aws configure, or AWS_PROFILE, or aws sso login"
        )
    if isinstance(error, errors.ParamValidationError):
        return UsageError(f"{what}: {' '.join(str(error).split())}")
    return OtherCloudError(f"{what}: {error}", code=type(error).__name__)
