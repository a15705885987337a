"""What EC2's error codes mean for us: one table. An unknown code is "other", with the code kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)

_CAPACITY: Final = (
    "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity "
    "InsufficientCapacity InsufficientCapacityOnOutpost SpotMaxPriceTooLow MaxSpotFleetRequestCountExceeded "
    "Unsupported UnsupportedOperation InsufficientFreeAddressesInSubnet"
)
_QUOTA: Final = (
    "VcpuLimitExceeded MaxSpotInstanceCountExceeded InstanceLimitExceeded VolumeLimitExceeded "
    "MaxIOPSLimitExceeded SecurityGroupLimitExceeded ResourceLimitExceeded"
)
_THROTTLED: Final = (
    "RequestLimitExceeded Throttling ThrottlingException ThrottledException RequestThrottled "
    "RequestThrottledException TooManyRequestsException SlowDown EC2ThrottledException Unavailable "
    "ServiceUnavailable InternalError InternalFailure RequestTimeout"
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
    "InvalidAMIID.Malformed": "an image is called ami-…: [aws] image",
    "InvalidSubnetID.NotFound": "[aws] subnet, in the account and region of the launch",
    "InvalidSubnet.Range": "[aws] subnet",
    "InvalidVpcID.NotFound": "[aws] vpc",
    "InvalidGroup.NotFound": "[aws] security_group",
    "InvalidGroupId.Malformed": "[aws] security_group",
    "VPCIdNotSpecified": "aws ec2 create-default-vpc, or [aws] subnet",
    "MissingInput": "aws ec2 create-default-vpc, or [aws] subnet",
    "IdempotentParameterMismatch": "the same token was used for another machine: this is a bug, report it",
    "NoSuchEntity": "[aws] instance_profile",
    "InvalidParameterValue": None,
    "InvalidParameterCombination": None,
    "InvalidBlockDeviceMapping": "the disk is smaller than the image: resources.disk_size",
    "TagPolicyViolation": "your organisation asks for tags: [aws] tags",
}
_KINDS: Final[dict[str, type[ArylError]]] = {
    **dict.fromkeys(_CAPACITY.split(), CapacityError),
    **dict.fromkeys(_QUOTA.split(), QuotaError),
    **dict.fromkeys(_THROTTLED.split(), ThrottledError),
    **dict.fromkeys(_ACCESS.split(), AccessError),
    **dict.fromkeys(_ASKED_WRONG, UsageError),
}


def kind_of(code: str) -> type[ArylError]:
    """The class of our tree; :class:`OtherCloudError` where the code is unknown."""
    return _KINDS.get(code, OtherCloudError)


def translated(response: Mapping[str, Any], what: str) -> ArylError:
    """A botocore error response as one of ours: one line, the code kept, and what to do."""
    said = response.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", "")).strip()
    return kind_of(code)(f"{what}: {code}: {message}", code=code, hint=_ASKED_WRONG.get(code))
