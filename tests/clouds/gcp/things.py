"""What is there beside machines: types, images, quotas, networks, disks, permissions, operations."""

from __future__ import annotations

import secrets
from typing import Any

from clouds.gcp import operations
from clouds.gcp.project import Doc, Project
from clouds.gcp.server import ROOT, Asked, Refused, Route, aggregated, listed, rfc3339, route

FAMILIES = {"ubuntu-accelerator-2404-amd64-with-nvidia-580": 20}
"""Of ``ubuntu-os-accelerator-images``: GB."""
MODELS = {
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100",
    "nvidia-a100-80gb": "A100_80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-tesla-t4": "T4",
}


def routes() -> list[Route]:
    return [
        route("GET", "", "projects.get", "compute.projects.get", _project),
        route("GET", "/regions/{r}", "regions.get", "compute.regions.get", _region),
        route("GET", "/aggregated/machineTypes", "machineTypes.list", "compute.machineTypes.list", _types),
        route(
            "GET",
            "/images/([^/]+)/global/images/family/{n}",
            "images.family",
            "",
            _family,
        ),
        route("GET", "/images/([^/]+)/global/images/{n}", "images.get", "compute.images.get", _image),
        route("GET", "/global/images/{n}", "images.get", "compute.images.get", _image),
        route(
            "GET", "/zones/{z}/operations", "zoneOperations.list", "compute.zoneOperations.list", _operations
        ),
        route(
            "GET", "/zones/{z}/operations/{n}", "zoneOperations.get", "compute.zoneOperations.get", _operation
        ),
        route(
            "GET",
            "/regions/{r}/operations/{n}",
            "regionOperations.get",
            "compute.regionOperations.get",
            _operation,
        ),
        route(
            "GET",
            "/global/operations/{n}",
            "globalOperations.get",
            "compute.globalOperations.get",
            _operation,
        ),
        route("GET", "/global/networks", "networks.list", "compute.networks.list", _networks),
        route("GET", "/global/networks/{n}", "networks.get", "compute.networks.get", _network),
        route("POST", "/global/networks", "networks.insert", "compute.networks.create", _make_network),
        route("DELETE", "/global/networks/{n}", "networks.delete", "compute.networks.delete", _drop_network),
        route("GET", "/global/firewalls", "firewalls.list", "compute.firewalls.list", _firewalls),
        route("GET", "/global/firewalls/{n}", "firewalls.get", "compute.firewalls.get", _firewall),
        route("POST", "/global/firewalls", "firewalls.insert", "compute.firewalls.create", _make_firewall),
        route(
            "DELETE", "/global/firewalls/{n}", "firewalls.delete", "compute.firewalls.delete", _drop_firewall
        ),
        route("GET", "/aggregated/subnetworks", "subnetworks.list", "compute.subnetworks.list", _subnetworks),
        route(
            "GET", "/regions/{r}/subnetworks/{n}", "subnetworks.get", "compute.subnetworks.get", _subnetwork
        ),
        route(
            "POST",
            "/regions/{r}/subnetworks",
            "subnetworks.insert",
            "compute.subnetworks.create",
            _make_subnetwork,
        ),
        route(
            "DELETE",
            "/regions/{r}/subnetworks/{n}",
            "subnetworks.delete",
            "compute.subnetworks.delete",
            _drop_subnetwork,
        ),
        route(
            "GET",
            "/aggregated/resourcePolicies",
            "resourcePolicies.list",
            "compute.resourcePolicies.list",
            _policies,
        ),
        route(
            "GET",
            "/regions/{r}/resourcePolicies/{n}",
            "resourcePolicies.get",
            "compute.resourcePolicies.get",
            _policy,
        ),
        route(
            "POST",
            "/regions/{r}/resourcePolicies",
            "resourcePolicies.insert",
            "compute.resourcePolicies.create",
            _make_policy,
        ),
        route(
            "DELETE",
            "/regions/{r}/resourcePolicies/{n}",
            "resourcePolicies.delete",
            "compute.resourcePolicies.delete",
            _drop_policy,
        ),
        route("GET", "/aggregated/disks", "disks.list", "compute.disks.list", _disks),
        route("DELETE", "/zones/{z}/disks/{n}", "disks.delete", "compute.disks.delete", _drop_disk),
        route("GET", "/serviceAccounts", "serviceAccounts.list", "iam.serviceAccounts.list", _accounts),
        route(
            "POST", "/serviceAccounts", "serviceAccounts.create", "iam.serviceAccounts.create", _make_account
        ),
        route(
            "DELETE",
            "/serviceAccounts/{n}",
            "serviceAccounts.delete",
            "iam.serviceAccounts.delete",
            _drop_account,
        ),
        route("POST", ":testIamPermissions", "projects.testIamPermissions", "", _permissions),
    ]


# ------------------------------------------------------------ what is offered


def _project(asked: Asked) -> Doc:
    return {"name": asked.project.id, "quotas": [_quota(asked.project, "", "GPUS_ALL_REGIONS")]}


def _region(asked: Asked) -> Doc:
    names = [f"{kind}NVIDIA_{model}_GPUS" for kind in ("", "PREEMPTIBLE_") for model in MODELS.values()]
    quotas = [_quota(asked.project, asked.region, name) for name in ("CPUS", *names)]
    return {"name": asked.region, "status": "UP", "quotas": quotas}


def _quota(project: Project, region: str, metric: str) -> Doc:
    return {"metric": metric, "limit": project.quotas.get((region, metric), 64.0), "usage": 0.0}


def _types(asked: Asked) -> Doc:
    items = [(f"zones/{zone}", row) for zone, row in asked.project.prices.machine_types()]
    return aggregated(asked, "machineType", "machineTypes", items)


def _family(asked: Asked) -> Doc:
    if asked.name not in FAMILIES:
        raise Refused("notFound", f"The resource 'global/images/family/{asked.name}' was not found", 404)
    return _of_image(f"{asked.name}-v20261101", FAMILIES[asked.name])


def _image(asked: Asked) -> Doc:
    if not asked.name.startswith("ours"):
        raise Refused("notFound", f"The resource 'global/images/{asked.name}' was not found", 404)
    return _of_image(asked.name, 250)


def _of_image(name: str, gb: int) -> Doc:
    return {
        "name": name,
        "selfLink": f"{ROOT}/projects/ubuntu-os-accelerator-images/global/images/{name}",
        "diskSizeGb": str(gb),
        "status": "READY",
    }


# ------------------------------------------------------------ operations


def _operations(asked: Asked) -> Doc:
    zone = f"{ROOT}/projects/{asked.project.id}/zones/{asked.zone}"
    found = [operations.shown(o) for o in asked.project.operations.values() if o.get("zone") == zone]
    if not asked.project.tells:
        found = [one for one in found if one["operationType"] == "insert"]
    return listed(asked, "operation", found)


def _operation(asked: Asked) -> Doc:
    return operations.shown(_found(asked.project.operations, asked.name, "operations"))


# ------------------------------------------------------------ networks


def _networks(asked: Asked) -> Doc:
    return listed(asked, "network", list(asked.project.networks.values()))


def _network(asked: Asked) -> Doc:
    return _found(asked.project.networks, asked.name, "networks")


def _make_network(asked: Asked) -> Doc:
    return _make(asked, asked.project.networks, asked.body["name"], "networks")


def _drop_network(asked: Asked) -> Doc:
    project = asked.project
    for one in (*project.subnetworks.values(), *project.firewalls.values()):
        if one["network"].endswith(f"/{asked.name}"):
            raise _in_use("networks", asked.name, one["name"])
    return _drop(asked, project.networks, asked.name, "networks")


def _firewalls(asked: Asked) -> Doc:
    return listed(asked, "firewall", list(asked.project.firewalls.values()))


def _firewall(asked: Asked) -> Doc:
    return _found(asked.project.firewalls, asked.name, "firewalls")


def _make_firewall(asked: Asked) -> Doc:
    _needs_network(asked)
    return _make(asked, asked.project.firewalls, asked.body["name"], "firewalls")


def _drop_firewall(asked: Asked) -> Doc:
    return _drop(asked, asked.project.firewalls, asked.name, "firewalls")


def _subnetworks(asked: Asked) -> Doc:
    items = [(f"regions/{region}", one) for (region, _), one in asked.project.subnetworks.items()]
    return aggregated(asked, "subnetwork", "subnetworks", items)


def _subnetwork(asked: Asked) -> Doc:
    return _found(asked.project.subnetworks, (asked.region, asked.name), "subnetworks")


def _make_subnetwork(asked: Asked) -> Doc:
    _needs_network(asked)
    same = [one for one in asked.project.subnetworks.values() if one["network"] == asked.body["network"]]
    if any(one["ipCidrRange"] == asked.body["ipCidrRange"] for one in same):
        raise Refused("invalid", "Invalid IPCidrRange: it conflicts with an existing subnetwork.")
    key = (asked.region, asked.body["name"])
    return _make(asked, asked.project.subnetworks, key, "subnetworks")


def _drop_subnetwork(asked: Asked) -> Doc:
    for life in asked.project.lives.values():
        link = life.doc["networkInterfaces"][0].get("subnetwork", "")
        if not life.removed and link.endswith(f"regions/{asked.region}/subnetworks/{asked.name}"):
            raise _in_use("subnetworks", asked.name, life.name)
    return _drop(asked, asked.project.subnetworks, (asked.region, asked.name), "subnetworks")


def _needs_network(asked: Asked) -> None:
    name = asked.body["network"].rpartition("/")[2]
    if name not in asked.project.networks:
        raise Refused("notFound", f"The resource 'global/networks/{name}' was not found", 404)


def _policies(asked: Asked) -> Doc:
    items = [(f"regions/{region}", one) for (region, _), one in asked.project.resource_policies.items()]
    return aggregated(asked, "resourcePolicy", "resourcePolicies", items)


def _policy(asked: Asked) -> Doc:
    return _found(asked.project.resource_policies, (asked.region, asked.name), "resourcePolicies")


def _make_policy(asked: Asked) -> Doc:
    key = (asked.region, asked.body["name"])
    return _make(asked, asked.project.resource_policies, key, "resourcePolicies")


def _drop_policy(asked: Asked) -> Doc:
    for life in asked.project.lives.values():
        if not life.removed and any(
            p.endswith(f"/{asked.name}") for p in life.doc.get("resourcePolicies", [])
        ):
            raise _in_use("resourcePolicies", asked.name, life.name)
    return _drop(asked, asked.project.resource_policies, (asked.region, asked.name), "resourcePolicies")


# ------------------------------------------------------------ disks


def _disks(asked: Asked) -> Doc:
    return aggregated(
        asked, "disk", "disks", [(f"zones/{z}", one) for (z, _), one in asked.project.disks.items()]
    )


def _drop_disk(asked: Asked) -> Doc:
    disk = _found(asked.project.disks, (asked.zone, asked.name), "disks")
    if disk.get("users"):
        raise _in_use("disks", asked.name, disk["users"][0])
    return _drop(asked, asked.project.disks, (asked.zone, asked.name), "disks")


# ------------------------------------------------------------ who may what


def _permissions(asked: Asked) -> Doc:
    wanted = asked.body.get("permissions", [])
    return {"permissions": [one for one in wanted if one not in asked.project.denied]}


def _accounts(asked: Asked) -> Doc:
    return {"accounts": list(asked.project.identities.values())}


def _make_account(asked: Asked) -> Doc:
    email = f"{asked.body['accountId']}@{asked.project.id}.iam.gserviceaccount.com"
    if email in asked.project.identities:
        raise Refused("alreadyExists", f"Service account {email} already exists", 409)
    asked.project.identities[email] = {**asked.body.get("serviceAccount", {}), "email": email}
    return asked.project.identities[email]


def _drop_account(asked: Asked) -> Doc:
    _found(asked.project.identities, asked.name, "serviceAccounts")
    del asked.project.identities[asked.name]
    return {}


# ------------------------------------------------------------ parts


def _found(there: dict[Any, Doc], key: Any, what: str) -> Doc:
    if key not in there:
        raise Refused("notFound", f"The resource '{what}/{key}' was not found", 404)
    return there[key]


def _in_use(what: str, name: str, by: str) -> Refused:
    return Refused(
        "resourceInUseByAnotherResource", f"The {what} resource '{name}' is already being used by '{by}'"
    )


def _make(asked: Asked, there: dict[Any, Doc], key: Any, what: str) -> Doc:
    if key in there:
        raise Refused("alreadyExists", f"The resource '{what}/{key}' already exists", 409)
    doc = {**asked.body, "id": str(secrets.randbits(62)), "creationTimestamp": rfc3339(0)}
    if "network" in doc and not doc["network"].startswith("https://"):
        doc["network"] = f"{ROOT}/{doc['network']}"
    there[key] = doc
    operation = operations.begin(
        asked.project, "insert", f"{what}/{doc['name']}", doc["id"], user=asked.user, region=asked.region
    )
    return operations.shown(operation)


def _drop(asked: Asked, there: dict[Any, Doc], key: Any, what: str) -> Doc:
    doc = _found(there, key, what)
    del there[key]
    operation = operations.begin(
        asked.project,
        "delete",
        f"{what}/{doc['name']}",
        str(doc.get("id", "0")),
        user=asked.user,
        region=asked.region,
        zone=asked.zone,
    )
    return operations.shown(operation)
