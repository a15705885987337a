"""Machines that work together: in one zone, and near one another where their family can be placed so.

Nearness is a resource policy of the kind "collocated", made once per job and zone, removed by ``gc``. Compute
Engine starts the machines of a gang one by one: one that does not fit next to the others is a refusal like
any other (ZONE_RESOURCE_POOL_EXHAUSTED).
"""

from __future__ import annotations

import hashlib
import threading
from typing import Final

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.gcp.client import Calls
from arylcloud.providers.gcp.naming import THERE, region_of

COMPACT: Final = ("a2-", "a3-", "a4-", "a4x-")
"""Families whose machines have a fast network between them."""
MADE_WITHIN_S: Final = 60.0


class Gangs:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._made: set[str] = set()

    def policy(self, spec: MachineSpec, zone: str) -> str | None:
        """The resource policy for a machine of this gang, made where it is not there yet; None = none is
        needed, or the family takes none."""
        if not spec.in_gang or not placed_near(spec.offer.instance_type):
            return None
        name, region = policy_name(spec, zone), region_of(zone)
        with self._lock:
            if name not in self._made:
                self._make(spec, name, region)
                self._made.add(name)
        return f"projects/{self._calls.project}/regions/{region}/resourcePolicies/{name}"

    def forget(self) -> None:
        """One has been removed under our feet: it is made again."""
        with self._lock:
            self._made.clear()

    def _make(self, spec: MachineSpec, name: str, region: str) -> None:
        asked = {"project": self._calls.project, "region": region}
        if self._calls.find("ResourcePolicies", "get", resource_policy=name, **asked) is not None:
            return
        policy = {
            "name": name,
            "description": f"arylcloud-journal={spec.journal_id} arylcloud-job={spec.job_id}",
            "group_placement_policy": {"collocation": "COLLOCATED"},
        }
        try:
            operation = self._calls.act(
                "ResourcePolicies", "insert_unary", resource_policy_resource=policy, **asked
            )
            self._calls.done(operation, f"gcp: policy {name}", within_s=MADE_WITHIN_S)
        except ArylError as error:
            if error.code not in THERE:  # another launcher of this home was faster
                raise


def placed_near(instance_type: str) -> bool:
    """Whether machines of a gang of that type are under a placement policy.

    >>> placed_near("a3-highgpu-8g"), placed_near("g2-standard-4")
    (True, False)
    """
    return instance_type.startswith(COMPACT)


def policy_name(spec: MachineSpec, zone: str) -> str:
    digest = hashlib.sha256(f"{spec.journal_id}|{spec.job_id}|{zone}".encode()).hexdigest()[:8]
    return f"aryl-{digest}-{spec.job_id}"[:63].rstrip("-")
