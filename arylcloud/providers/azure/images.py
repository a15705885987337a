"""What a machine starts from: Microsoft's Ubuntu for GPUs, with driver, newest version; or what is named."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Offer
from arylcloud.providers.azure.client import Arm
from arylcloud.providers.azure.skus import Skus

PUBLISHER: Final = "microsoft-dsvm"
OFFER: Final = "ubuntu-hpc"
LEAST_GB: Final = 64
"""Of its disk."""
_USUAL: Final = ("2404",)
_SPECIAL: Final = {
    "V100": ("2404-v100",),  # the open kernel modules of the usual image do not know it
    "MI300X": ("2404-rocm",),
}
_ARM64: Final = ("2404-arm", "2404-gb200")


class Images:
    """Looked up once for each region and kind of GPU. Safe to use from several threads."""

    def __init__(self, arm: Arm, settings: Mapping[str, str], skus: Skus) -> None:
        self._arm = arm
        self._settings = settings
        self._skus = skus
        self._lock = threading.Lock()
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def of(self, offer: Offer, named: str | None = None) -> str:
        """A URN ``publisher:offer:sku:version`` or a resource's id. UsageError where there is none."""
        if chosen := named or self._settings.get("image"):
            reference(chosen)
            return chosen
        wanted = self._wanted(offer)
        with self._lock:
            if (offer.region, wanted) not in self._known:
                self._known[offer.region, wanted] = self._newest(offer.region, wanted)
            return self._known[offer.region, wanted]

    def _wanted(self, offer: Offer) -> tuple[str, ...]:
        sku = self._skus.of(offer.region, offer.instance_type)
        if sku is not None and sku.arm64:
            return _ARM64
        special = next((skus for gpu, skus in _SPECIAL.items() if (offer.gpu or "").startswith(gpu)), ())
        return (*special, *_USUAL)

    def _newest(self, region: str, skus: tuple[str, ...]) -> str:
        for sku in skus:
            found = self._versions(region, sku)
            if found:
                newest = max((str(one.name) for one in found), key=_version)
                return f"{PUBLISHER}:{OFFER}:{sku}:{newest}"
        raise UsageError(
            f"azure {region} has no image {PUBLISHER}:{OFFER}, sku {' or '.join(skus)}",
            hint="name one with Python 3.11 and the driver: [azure] image = publisher:offer:sku:version",
        )

    def _versions(self, region: str, sku: str) -> Any:
        images = self._arm.compute.virtual_machine_images
        what = f"image {PUBLISHER}:{OFFER}:{sku} in {region}"
        return self._arm.find(what, lambda: images.list(region, PUBLISHER, OFFER, sku))


def reference(image: str) -> Any:
    """As the SDK wants it. UsageError for what is neither a URN nor a resource's id."""
    if image.startswith("/subscriptions/"):
        return {"id": image}
    if image.startswith("/CommunityGalleries/"):
        return {"community_gallery_image_id": image}
    parts = image.split(":")
    if len(parts) != 4 or not all(parts):
        raise UsageError(
            f"{image!r} is no image of Azure",
            hint="publisher:offer:sku:version, or the id of an image: /subscriptions/…",
        )
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in name.split("."))
