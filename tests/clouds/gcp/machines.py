"""Machines of the emulated Compute Engine: from insertion to the end, and what they are checked against."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from clouds.boots import Booting, Boots
from clouds.gcp import operations
from clouds.gcp.project import Doc, Life, Project
from clouds.gcp.server import (
    ROOT,
    Asked,
    Refused,
    Route,
    aggregated,
    operation_fault,
    rfc3339,
    route,
)
from clouds.gcp.things import MODELS

_LABEL = re.compile(r"[-_a-z0-9]{0,63}")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE_BYTES = 262_144


class Machines:
    def __init__(self, lock: threading.RLock, boots: Boots | None) -> None:
        self._lock = lock
        self._boots = boots

    def routes(self) -> list[Route]:
        base = "/zones/{z}/instances"
        return [
            route("POST", base, "instances.insert", "compute.instances.create", self._insert),
            route("GET", f"{base}/{{n}}", "instances.get", "compute.instances.get", self._get),
            route("DELETE", f"{base}/{{n}}", "instances.delete", "compute.instances.delete", self._delete),
            route(
                "POST",
                f"{base}/{{n}}/setIamPolicy",
                "instances.setIamPolicy",
                "compute.instances.setIamPolicy",
                self._set_policy,
            ),
            route("GET", "/aggregated/instances", "instances.list", "compute.instances.list", self._list),
        ]

    # ------------------------------------------------------------ calls

    def _insert(self, asked: Asked) -> Doc:
        project, doc, request = asked.project, asked.body, asked.query.get("requestId", "")
        if request in project.requests:
            return operations.shown(project.operations[project.requests[request]])
        kind = self._checked(asked)
        known = project.lives.get(doc["name"])
        if known is not None and not known.removed and known.zone == asked.zone:
            raise Refused("alreadyExists", f"The resource 'instances/{doc['name']}' already exists", 409)
        now_s = time.time()
        life = self._life(asked, kind, now_s)
        fault = operation_fault(asked)
        error = self._refusal(project, life) if fault is None else None
        if fault is not None:
            error = {"code": fault.code, "message": fault.message, "errorDetails": fault.details}
        operation = operations.begin(
            project,
            "insert",
            f"zones/{asked.zone}/instances/{life.name}",
            life.doc["id"],
            user=asked.user,
            zone=asked.zone,
            request=request,
        )
        if known is not None:
            project.past.append(known)
        project.lives[life.name] = life
        if error is not None:  # it is there while it is tried, and vanishes
            life.ended_s, life.failed = life.launched_s, True
            operation["then"] = lambda: self._undo(project, life, error)
        else:
            self._disk(project, life)
        return operations.shown(operation)

    def _get(self, asked: Asked) -> Doc:
        life = self._known(asked)
        return life.doc

    def _delete(self, asked: Asked) -> Doc:
        project, life = asked.project, self._known(asked)
        if asked.user.endswith(".gserviceaccount.com"):
            bindings = project.policies.get(life.name, {}).get("bindings", [])
            if not any(f"serviceAccount:{asked.user}" in one["members"] for one in bindings):
                raise Refused("forbidden", "Required 'compute.instances.delete' permission", 403)
        operation = operations.begin(
            project,
            "delete",
            f"zones/{life.zone}/instances/{life.name}",
            life.doc["id"],
            user=asked.user,
            zone=life.zone,
            takes_s=project.end_s,
        )
        life.cause = life.cause or "delete"
        life.stopping_s = life.stopping_s or time.time()
        life.doc["status"] = "STOPPING"
        operation["then"] = lambda: self._remove(project, life)
        return operations.shown(operation)

    def _set_policy(self, asked: Asked) -> Doc:
        asked.project.policies[self._known(asked).name] = asked.body["policy"]
        return asked.body["policy"]  # type: ignore[no-any-return]

    def _list(self, asked: Asked) -> Doc:
        now_s, project = time.time(), asked.project
        items = [
            (f"zones/{life.zone}", life.doc)
            for life in project.lives.values()
            if not life.removed and now_s >= life.launched_s + project.lag_s
        ]
        return aggregated(asked, "instance", "instances", items)

    # ------------------------------------------------------------ what comes by itself

    def tick(self, project: Project) -> None:
        now_s = time.time()
        operations.settle(project, now_s)
        for life in list(project.lives.values()):
            if life.removed:
                continue
            if life.live and life.stopping_s is None and now_s >= life.boots_s and not life.started:
                self._run(project, life)
            over = life.max_run_s is not None and now_s >= life.launched_s + life.max_run_s
            if life.live and life.stopping_s is None and over:
                self._taken(project, life, "compute.instances.terminationByMaxRunDuration", 0.0)
            if life.acts_s is not None and now_s >= life.acts_s and life.stopping_s is None:
                self._taken(project, life, "compute.instances.preempted", 0.0)

    def preempt(self, project: Project, life: Life, notice_s: float | None) -> None:
        life.preempted = True
        life.acts_s = time.time() + (project.notice_s if notice_s is None else notice_s)
        if self._boots is not None:
            self._boots.notice(life.name, life.acts_s)
        self.tick(project)

    def switched_off(self, project: Project, life: Life) -> None:
        """By itself: stopped, with its disk."""
        self._stop_processes(life)
        now_s = time.time()
        operation = self._by_system(project, life, "compute.instances.guestTerminate")
        operations.end(operation)
        life.ended_s, life.cause = now_s, life.cause or "compute.instances.guestTerminate"
        life.doc |= {"status": "TERMINATED", "lastStopTimestamp": rfc3339(now_s)}

    def _taken(self, project: Project, life: Life, kind: str, takes_s: float) -> None:
        life.cause, life.stopping_s = kind, time.time()
        life.doc["status"] = "STOPPING"
        operation = self._by_system(project, life, kind)
        operation["due_s"] = time.time() + takes_s
        operation["then"] = lambda: self._remove(project, life)
        operations.settle(project, time.time())

    def _by_system(self, project: Project, life: Life, kind: str) -> Doc:
        target = f"zones/{life.zone}/instances/{life.name}"
        return operations.begin(
            project, kind, target, life.doc["id"], user="system", zone=life.zone, takes_s=60.0
        )

    # ------------------------------------------------------------ parts

    def _known(self, asked: Asked) -> Life:
        life = asked.project.lives.get(asked.name)
        if life is None or life.removed or life.zone != asked.zone:
            raise Refused("notFound", f"The resource 'instances/{asked.name}' was not found", 404)
        return life

    def _checked(self, asked: Asked) -> Doc:
        """The machine type. Compute Engine checks what it can before there is an operation."""
        doc, project = asked.body, asked.project
        name = doc["machineType"].rpartition("/")[2]
        kinds = {(zone, row["name"]): row for zone, row in project.prices.machine_types()}
        if (asked.zone, name) not in kinds:
            raise _invalid("resource.machineType", f"Machine type '{name}' does not exist in {asked.zone}")
        if not _NAME.fullmatch(doc["name"]):
            raise _invalid("resource.name", doc["name"])
        for key, value in doc.get("labels", {}).items():
            if not (_LABEL.fullmatch(key) and _LABEL.fullmatch(value)):
                raise _invalid("resource.labels", f"{key}={value}")
        if any(len(one["value"].encode()) > VALUE_BYTES for one in doc["metadata"]["items"]):
            raise _invalid("resource.metadata", "value too large")
        nic = doc["networkInterfaces"][0]
        if subnetwork := nic.get("subnetwork"):
            found = re.fullmatch(r"(?:projects/[^/]+/)?regions/([^/]+)/subnetworks/([^/]+)", subnetwork)
            if found is None or (found[1], found[2]) not in project.subnetworks:
                raise Refused("notFound", f"The resource '{subnetwork}' was not found", 404)
        for link in doc.get("resourcePolicies", []):
            region, _, policy = link.split("/")[-3:]
            if (region, policy) not in project.resource_policies or region != asked.zone[:-2]:
                raise Refused("notFound", f"The resource '{link}' was not found", 404)
        size, image = self._image(doc)
        if int(doc["disks"][0]["initializeParams"]["diskSizeGb"]) < size:
            raise _invalid("resource.disks[0].initializeParams.diskSizeGb", f"smaller than {image}")
        scheduling = doc["scheduling"]
        if scheduling["onHostMaintenance"] != "TERMINATE":
            raise _invalid(
                "scheduling.onHostMaintenance", "instances with guest accelerators do not support it"
            )
        return kinds[asked.zone, name]

    def _image(self, doc: Doc) -> tuple[int, str]:
        name = doc["disks"][0]["initializeParams"]["sourceImage"].rpartition("/")[2]
        if name.startswith("ours"):
            return 250, name
        if not name.startswith("ubuntu-accelerator-2404"):
            raise Refused("notFound", f"The resource 'images/{name}' was not found", 404)
        return 20, name

    def _life(self, asked: Asked, kind: Doc, now_s: float) -> Life:
        project, body, zone = asked.project, asked.body, asked.zone
        base = f"{ROOT}/projects/{project.id}/zones/{zone}"
        attached = kind.get("accelerators") or [
            {
                "guestAcceleratorType": a["acceleratorType"].rpartition("/")[2],
                "guestAcceleratorCount": a["acceleratorCount"],
            }
            for a in body.get("guestAccelerators", [])
        ]
        spot = body["scheduling"]["provisioningModel"] == "SPOT"
        limit = body["scheduling"].get("maxRunDuration", {}).get("seconds")
        doc = {
            **body,
            "kind": "compute#instance",
            "id": str(secrets.randbits(62)),
            "zone": base,
            "machineType": f"{base}/machineTypes/{kind['name']}",
            "selfLink": f"{base}/instances/{body['name']}",
            "creationTimestamp": rfc3339(now_s),
            "status": "PROVISIONING",
        }
        doc["networkInterfaces"] = [
            {**one, "name": f"nic{n}", "networkIP": f"10.128.0.{2 + len(project.lives) % 250}"}
            for n, one in enumerate(body["networkInterfaces"])
        ]
        doc["disks"] = [{**one, "source": f"{base}/disks/{body['name']}"} for one in body["disks"]]
        return Life(
            doc=doc,
            zone=zone,
            instance_type=kind["name"],
            market="spot" if spot else "on_demand",
            gpus=sum(int(a["guestAcceleratorCount"]) for a in attached),
            model=MODELS.get(attached[0]["guestAcceleratorType"], "") if attached else "",
            launched_s=int(now_s * 1000) / 1000,
            boots_s=now_s + project.boot_s,
            max_run_s=float(limit) if limit else None,
        )

    def _refusal(self, project: Project, life: Life) -> Doc | None:
        """What the operation will end with."""
        metric = f"{'PREEMPTIBLE_' if life.market == 'spot' else ''}NVIDIA_{life.model}_GPUS"
        mine = [one for one in project.live() if one.model == life.model and one.market == life.market]
        used = sum(one.gpus for one in mine if one.region == life.region)
        limit = project.quotas.get((life.region, metric), 64.0)
        if life.model and used + life.gpus > limit:
            return {
                "code": "QUOTA_EXCEEDED",
                "message": f"Quota '{metric}' exceeded.  Limit: {limit} in region {life.region}.",
            }
        if self._full(project, life, life.zone):
            zones = {
                zone for zone, row in project.prices.machine_types() if row["name"] == life.instance_type
            }
            free = sorted(z for z in zones if z[:-2] == life.region and not self._full(project, life, z))
            info = {"reason": "resource_availability", "metadatas": {"zonesAvailable": ",".join(free)}}
            return {
                "code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                "message": f"The zone '{life.zone}' does not have enough resources available.",
                "errorDetails": [{"errorInfo": info}],
            }
        return None

    def _full(self, project: Project, life: Life, zone: str) -> bool:
        room = project.capacity.get((zone, life.instance_type, life.market))
        same = [
            v for v in project.live(zone) if (v.instance_type, v.market) == (life.instance_type, life.market)
        ]
        return room is not None and len([v for v in same if v is not life]) >= room

    def _disk(self, project: Project, life: Life) -> None:
        source = life.doc["disks"][0]["initializeParams"]
        project.disks[life.zone, life.name] = {
            "name": life.name,
            "id": str(secrets.randbits(62)),
            "zone": life.doc["zone"],
            "sizeGb": source["diskSizeGb"],
            "labels": source.get("labels", {}),
            "users": [life.doc["selfLink"]],
        }

    def _undo(self, project: Project, life: Life, error: Any) -> Doc:
        life.removed = True
        life.doc["status"] = "STOPPING"
        found: Doc = error
        return found

    def _remove(self, project: Project, life: Life) -> None:
        self._stop_processes(life)
        life.removed = True
        if life.ended_s is None:
            life.ended_s = int(time.time() * 1000) / 1000
        if life.doc["disks"][0].get("autoDelete"):
            project.disks.pop((life.zone, life.name), None)
        elif (disk := project.disks.get((life.zone, life.name))) is not None:
            disk["users"] = []

    def _run(self, project: Project, life: Life) -> None:
        life.started = True
        life.doc |= {"status": "RUNNING", "lastStartTimestamp": rfc3339(time.time())}
        if self._boots is None:
            return
        items = {one["key"]: one["value"] for one in life.doc["metadata"]["items"]}
        self._boots.start(
            Booting(
                instance_id=life.name,
                # by name it would be found on Google's own network
                user_data="export GCE_METADATA_HOST=${ARYL_METADATA_URL#http://}\n" + items["startup-script"],
                region=life.region,
                zone=life.zone,
                instance_type=life.instance_type,
                market=life.market,
                gpus=life.gpus,
            )
        )

    def _stop_processes(self, life: Life) -> None:
        if self._boots is not None and life.started:
            stop: Callable[[str], None] = self._boots.stop
            # its processes may take a moment, and the server answers others meanwhile
            threading.Thread(target=stop, args=(life.name,), daemon=True).start()


def _invalid(field: str, why: str) -> Refused:
    return Refused("invalid", f"Invalid value for field '{field}': {why}")
