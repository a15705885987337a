"""Clouds, regions, zones and GPUs as people name them, into the names that offers carry."""

from __future__ import annotations

import re

from arylcloud.core.errors import UsageError
from arylcloud.core.gpus import parse_request
from arylcloud.core.job import Accelerator

_UNSUPPORTED = {
    "k8s": "Kubernetes",
    "kubernetes": "Kubernetes",
    "slurm": "Slurm",
    "ssh": "SkyPilot's pool of SSH machines",
    "vsphere": "vSphere",
}
_AWS_REGION = re.compile(r"[a-z]{2}(-gov|-iso[a-z]?)?-[a-z]+-\d+")
_AWS_ZONE_ID = re.compile(r"([a-z]{3,5}\d+)-az\d+|[a-z]{3,5}\d+-[a-z0-9]+-az\d+")
_AWS_ZONE_NAME = re.compile(r"[a-z]{2}(-gov|-iso[a-z]?)?-[a-z]+-\d+[a-z]")
_GCP_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
_AZURE_REGION = re.compile(r"[a-z]+\d*")


def parse_infra(text: str, *, what: str) -> tuple[str | None, str | None, str | None]:
    """(cloud, region, zone) of ``aws``, ``aws/us-east-1``, ``*/us-east1``, ``local``; region and zone
    cloud-qualified (``aws/us-east-1``), ``None`` where not named."""
    parts = [part.strip() for part in text.strip().split("/")]
    if not parts[0] or len(parts) > 3 or "" in parts:
        raise UsageError(
            f"{what}: {text!r} is not CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE", hint="aws/us-east-1"
        )
    cloud, region, zone = [None if part == "*" else part for part in (*parts, "*", "*")[:3]]
    return place(cloud, region, zone, what=what)


def place(
    cloud: str | None, region: str | None, zone: str | None, *, what: str
) -> tuple[str | None, str | None, str | None]:
    """Qualified names; the cloud of a region is told by the region's form where it is not named."""
    if cloud is not None:
        cloud = cloud.lower()
        if cloud in _UNSUPPORTED:
            raise UsageError(
                f"{what}: {_UNSUPPORTED[cloud]} is not supported",
                hint="aws, gcp, azure, local, pool (machines entered with `arylcloud pool add`), or a cloud"
                " of your own offers.csv",
            )
    if zone is None and region is not None:  # `aws/use1-az4`, as AWS and GCP call a zone alone
        region, zone = _apart(region)
    if zone is not None and region is None:
        region = _region_of_zone(zone, what=what)
    if region is not None and cloud is None:
        cloud = _cloud_of_region(region)
        if cloud is None:
            raise UsageError(
                f"{what}: the cloud of region {region!r} is not named", hint=f"write CLOUD/{region}"
            )
    if zone is not None and cloud == "aws" and _AWS_ZONE_NAME.fullmatch(zone):
        raise UsageError(
            f"{what}: {zone} means another zone in every AWS account: name the zone's id",
            hint="zone ids look like use1-az4; `arylcloud prices --cloud aws` shows them",
        )
    return (
        cloud,
        f"{cloud}/{region}" if region is not None else None,
        f"{cloud}/{region}/{zone}" if zone is not None else None,
    )


_ZONE_ID = re.compile(r"([a-z]{2})(g?)(ne|nw|se|sw|n|e|s|w|c)(\d+)-(?:[a-z]+\d+-)?az\d+")
_WAYS = {"n": "north", "e": "east", "s": "south", "w": "west", "c": "central"}
_GCP_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")


def _apart(text: str) -> tuple[str, str | None]:
    """(region, zone) where a zone stands in a region's place and its name tells the region.

    >>> _apart("use1-az4"), _apart("us-central1-a"), _apart("us-east-1")
    (('us-east-1', 'use1-az4'), ('us-central1', 'us-central1-a'), ('us-east-1', None))
    """
    if (found := _ZONE_ID.fullmatch(text)) is not None:
        way = "".join(_WAYS[letter] for letter in found[3])
        return f"{found[1]}-{'gov-' if found[2] else ''}{way}-{found[4]}", text
    if (found := _GCP_ZONE.fullmatch(text)) is not None:
        return found[1], text
    return text, None


def full_place(text: str) -> str:
    """An offer, or the beginning of one, with its place in full: ``aws/use1-az4:p3.2xlarge`` means
    ``aws/us-east-1/use1-az4:p3.2xlarge``. Anything else stays as it is."""
    where, colon, rest = text.strip().partition(":")
    parts = where.split("/")
    if len(parts) != 2:
        return text.strip()
    region, zone = _apart(parts[1])
    return text.strip() if zone is None else f"{parts[0]}/{region}/{zone}{colon}{rest}"


def _cloud_of_region(region: str) -> str | None:
    if _AWS_REGION.fullmatch(region):
        return "aws"
    if _GCP_REGION.fullmatch(region):
        return "gcp"
    return "azure" if _AZURE_REGION.fullmatch(region) else None


def _region_of_zone(zone: str, *, what: str) -> str:
    """GCP's zones carry their region; AWS zone names too (they are refused later, with the reason)."""
    if _AWS_ZONE_NAME.fullmatch(zone):
        return zone[:-1]
    head, dash, letter = zone.rpartition("-")
    if dash and len(letter) == 1 and _GCP_REGION.fullmatch(head):
        return head
    kind = "AWS zone id" if _AWS_ZONE_ID.fullmatch(zone) else "zone"
    raise UsageError(f"{what}: the region of {kind} {zone!r} is not named", hint=f"write CLOUD/REGION/{zone}")


def parse_accelerator(text: str, *, what: str) -> Accelerator:
    """``A100``, ``A100:8``; one GPU where no number is named."""
    try:
        gpu, count = parse_request(text)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from error
    return Accelerator(gpu=gpu, count=count or 1)
