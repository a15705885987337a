"""Where a machine can be, and what it starts from: zones that offer its type, its shape, its image."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from arylcloud.core import gpus
from arylcloud.core.errors import CapacityError, UsageError
from arylcloud.core.live import Shape
from arylcloud.core.offer import Offer
from arylcloud.providers.bounds import Paging
from arylcloud.providers.gcp.client import Calls, last
from arylcloud.providers.gcp.naming import region_of
from arylcloud.providers.zones import beginning_with

OFFERED_S: Final = 600.0
"""For so long it is taken as said where a type is offered."""
_UBUNTU: Final = "ubuntu-os-accelerator-images"
_FAMILIES: Final = tuple(
    (_UBUNTU, f"ubuntu-accelerator-2404-{{arch}}-with-nvidia-{driver}") for driver in (580, 595, 570)
)
"""Ubuntu 24.04 (Python 3.12) with NVIDIA's driver, the first that there is. 22.04's Python is too old."""
_ARM: Final = ("a4x-", "c4a-", "t2a-")
"""Types whose cores are ARM's."""
ATTACHED: Final = "n1-"
"""The one family that GPUs are attached to; with the others they come."""
_ATTACHABLE: Final = {
    "T4": "nvidia-tesla-t4",
    "V100": "nvidia-tesla-v100",
    "P100": "nvidia-tesla-p100",
    "P4": "nvidia-tesla-p4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A machine type, as Compute Engine describes it."""

    name: str
    vcpus: float
    mem_gib: float
    accelerator: str | None
    """``nvidia-l4``; None = none comes with it."""
    gpus: int

    @property
    def shape(self) -> Shape:
        name = None if self.accelerator is None else gpus.find(self.accelerator) or self.accelerator
        return Shape(
            gpu=name,
            gpu_count=self.gpus or None,
            gpu_mem_gib=gpus.BY_NAME[name].mem_gib if name in gpus.BY_NAME else None,
            vcpus=self.vcpus,
            mem_gib=self.mem_gib,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    url: str
    disk_gb: int


class Places:
    """Looked up once, for one adapter. Safe to use from several threads."""

    def __init__(self, calls: Calls, settings: Mapping[str, str]) -> None:
        self._calls = calls
        self._settings = settings
        self._lock = threading.RLock()
        self._kinds: dict[str, tuple[dict[str, Kind], float]] = {}
        self._images: dict[str, Image] = {}

    def zones(self, offer: Offer, token: str) -> list[str]:
        """Where the offer can be made: its zone, or each of its region's that offer the type, beginning with
        one that the token decides. Empty = nowhere there."""
        found = [zone for zone in self.kinds(offer.instance_type) if region_of(zone) == offer.region]
        if offer.zone is not None:
            return [offer.zone] if offer.zone in found else []
        return beginning_with(found, token)

    def kinds(self, instance_type: str) -> dict[str, Kind]:
        """By zone."""
        with self._lock:
            known = self._kinds.get(instance_type)
            if known is None or time.monotonic() - known[1] > OFFERED_S:
                known = (self._ask(instance_type), time.monotonic())
                self._kinds[instance_type] = known
            return known[0]

    def _ask(self, instance_type: str) -> dict[str, Kind]:
        """Without the SDK, whose import takes seconds: somebody waits at a terminal for the quote."""
        self._calls.check_installed()
        query = {"filter": f'name = "{instance_type}"', "maxResults": 500}
        base = f"{self._calls.base}/compute/v1/projects/{quote(self._calls.project)}/aggregated/machineTypes"
        found: dict[str, Kind] = {}
        token, paging = "", Paging("gcp: machine types")
        while True:
            more = {"pageToken": token} if token else {}
            page = self._calls.rest("GET", f"{base}?{urlencode({**query, **more})}")
            for scope, inside in page.get("items", {}).items():
                for one in inside.get("machineTypes", ()):
                    if one.get("deprecated", {}).get("state") not in ("OBSOLETE", "DELETED"):
                        found[last(scope)] = _kind(one)
            token = page.get("nextPageToken", "")
            if not token:
                return found
            paging.turn(token)

    def image(self, instance_type: str, named: str | None = None) -> Image:
        """The image to boot: the job's, or the settings', or Ubuntu's with the driver."""
        named = named or self._settings.get("image")
        key = named or ("arm64" if instance_type.startswith(_ARM) else "amd64")
        with self._lock:
            if key not in self._images:
                self._images[key] = self._named(named) if named else self._newest(key)
            return self._images[key]

    def _newest(self, arch: str) -> Image:
        for project, pattern in _FAMILIES:
            family = pattern.format(arch=arch)
            found = self._calls.find("Images", "get_from_family", project=project, family=family)
            if found is not None:
                return _image(found)
        tried = ", ".join(family.format(arch=arch) for _, family in _FAMILIES)
        raise UsageError(f"gcp: {_UBUNTU} has none of {tried}", hint="name an image: [gcp] image")

    def _named(self, named: str) -> Image:
        """``projects/P/global/images/I``, ``…/images/family/F``, ``P/F`` (a family), ``I`` (ours)."""
        parts = [part for part in named.split("/") if part]
        if "projects" in parts and len(parts) > parts.index("projects") + 2:
            project, family = parts[parts.index("projects") + 1], "family" in parts
        elif len(parts) == 2:
            project, family = parts[0], True
        else:
            project, family = self._calls.project, False
        if family:
            found = self._calls.find("Images", "get_from_family", project=project, family=parts[-1])
        else:
            found = self._calls.find("Images", "get", project=project, image=parts[-1])
        if found is None:
            raise UsageError(
                f"gcp: there is no image {named!r}", hint="projects/P/global/images/family/F: [gcp] image"
            )
        return _image(found)


def attached(offer: Offer, kind: Kind) -> tuple[str, int] | None:
    """(accelerator, how many) to attach to an N1 machine; None = its GPUs come with the type. CapacityError
    where nothing is known that could be attached."""
    if kind.accelerator is not None or not offer.instance_type.startswith(ATTACHED) or not offer.gpu_count:
        return None
    name = _ATTACHABLE.get(offer.gpu or "")
    if name is None:
        raise CapacityError(
            f"gcp: no {offer.gpu} can be attached to {offer.instance_type}", code="NotOffered", scope="region"
        )
    return name, offer.gpu_count


def _kind(one: Mapping[str, Any]) -> Kind:
    """A type with accelerators of several kinds has none that we could name."""
    found = one.get("accelerators", [])
    return Kind(
        name=str(one["name"]),
        vcpus=float(one["guestCpus"]),
        mem_gib=one["memoryMb"] / 1024,
        accelerator=str(found[0]["guestAcceleratorType"]) if len(found) == 1 else None,
        gpus=int(found[0]["guestAcceleratorCount"]) if len(found) == 1 else 0,
    )


def _image(found: Any) -> Image:
    return Image(url=str(found.self_link), disk_gb=int(found.disk_size_gb))
