"""Which GPU machines Compute Engine offers a project, and in which zones: its list of machine types.

The billing catalogue knows prices of parts only; this is where unknown types get their shape, and where "in
the region" becomes "in these zones".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from arylcloud.core import gpus
from arylcloud.core.errors import OtherCloudError
from arylcloud.core.live import Meter, Shape
from arylcloud.providers.bounds import Paging
from arylcloud.providers.web import Web

_FAMILIES: Final = 'name eq "(a2|a3|a4|a4x|g2|g4)-.*"'
_PAGE: Final = 500

Places = dict[str, frozenset[tuple[str, str | None]]]


def machine_types(
    web: Web, base: str, project: str, headers: Mapping[str, str], meter: Meter
) -> tuple[dict[str, Shape], Places]:
    """Shapes, and (region, zone) where each type is offered. Raises as ``Web.get_json``; OtherCloudError
    where the list is empty, which no project's is."""
    shapes: dict[str, Shape] = {}
    places: dict[str, set[tuple[str, str | None]]] = {}
    token, paging = "", Paging("gcp: machine types")
    while True:
        query = {"maxResults": _PAGE, "filter": _FAMILIES} | ({"pageToken": token} if token else {})
        path = f"/compute/v1/projects/{quote(project, safe=':')}/aggregated/machineTypes"
        page = web.get_json(f"{base}{path}?{urlencode(query)}", meter, headers)
        for scope, inside in (page.get("items") or {}).items():
            zone = scope.rpartition("/")[2]
            for one in inside.get("machineTypes") or ():
                if one.get("accelerators") and "state" not in one.get("deprecated", {}):
                    shapes[one["name"]] = _shape(one)
                    places.setdefault(one["name"], set()).add((zone.rpartition("-")[0], zone))
        token = page.get("nextPageToken") or ""
        if not token:
            break
        paging.turn(token)
    if not shapes:
        raise OtherCloudError(f"gcp: project {project} is offered no GPU machine anywhere")
    return shapes, {name: frozenset(found) for name, found in places.items()}


def _shape(one: Mapping[str, Any]) -> Shape:
    """A type with accelerators of several kinds has none that we could name."""
    found = one["accelerators"]
    kind = found[0]["guestAcceleratorType"] if len(found) == 1 else None
    name = None if kind is None else gpus.find(kind) or kind
    return Shape(
        gpu=name,
        gpu_count=int(found[0]["guestAcceleratorCount"]) if kind is not None else None,
        gpu_mem_gib=gpus.BY_NAME[name].mem_gib if name in gpus.BY_NAME else None,
        vcpus=float(one["guestCpus"]),
        mem_gib=one["memoryMb"] / 1024,
    )
