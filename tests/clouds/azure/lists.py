"""What can be looked up in the emulated Azure: sizes, quotas, images, roles, permissions, activity log."""

from __future__ import annotations

import re
import time

from clouds.azure.arm import Arm, Asked, Refused, Reply
from clouds.azure.machines import Machines
from clouds.azure.subscription import Doc, Subscription

COMPUTE = "/subscriptions/{sub}/providers/Microsoft.Compute"


class Lists:
    def __init__(self, arm: Arm, machines: Machines) -> None:
        self.arm = arm
        self.machines = machines
        versions = "publishers/{publisher}/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
        here = f"{COMPUTE}/locations/{{region}}"
        arm.route("GET", "/subscriptions/{sub}", "subscriptions", self.subscription)
        arm.route("GET", f"{COMPUTE}/skus", "skus", self.skus)
        arm.route("GET", f"{here}/usages", "usages", self.usages)
        arm.route("GET", f"{here}/{versions}", "versions", self.versions)
        arm.route("GET", f"{here}/operations/{{number}}", "operations", self.operation)
        role = r"(?P<scope>/.+)/providers/Microsoft\.Authorization/roleAssignments/{name}"
        arm.route("PUT", role, "roleAssignments", self.give)
        arm.route("DELETE", role, "roleAssignments", self.take)
        arm.route(
            "GET", r"(?P<scope>/.+)/providers/Microsoft\.Authorization/permissions", "permissions", self.may
        )
        log = r"/subscriptions/{sub}/providers/Microsoft\.Insights/eventtypes/management/values"
        arm.route("GET", log, "activity log", self.log)
        arm.route("POST", r"/providers/Microsoft\.ResourceGraph/resources", "graph", self.graph)

    def subscription(self, asked: Asked, match: re.Match[str]) -> Reply:
        body = {"subscriptionId": asked.sub.id, "displayName": "emulated", "state": "Enabled"}
        return Reply(body={"id": f"/subscriptions/{asked.sub.id}", **body})

    def skus(self, asked: Asked, match: re.Match[str]) -> Reply:
        named = re.fullmatch(r"location eq '([^']+)'", asked.query.get("$filter", ""))
        if named is None:
            raise Refused("InvalidFilter", asked.query.get("$filter", ""))
        region = named[1]
        found = (
            []
            if region not in asked.sub.regions
            else [
                *(_sku(name, asked.sub, region) for name in asked.sub.sizes),
                {"resourceType": "disks", "name": "StandardSSD_LRS", "locations": [region]},
            ]
        )
        return self.arm.paged(asked, found)

    def usages(self, asked: Asked, match: re.Match[str]) -> Reply:
        sub, region = asked.sub, match["region"]
        names = {
            "cores",
            "lowPriorityCores",
            "virtualMachines",
            *(size.family for size in sub.sizes.values()),
        }
        found = [
            {
                "unit": "Count",
                "currentValue": int(self.machines.used(sub, region, name)),
                "limit": int(sub.quotas.get((region, name), 1000.0)),
                # usages spell families with other capitals than SKUs do
                "name": {
                    "value": name[0].swapcase() + name[1:] if "Family" in name else name,
                    "localizedValue": name,
                },
            }
            for name in sorted(names)
        ]
        return self.arm.paged(asked, found)

    def versions(self, asked: Asked, match: re.Match[str]) -> Reply:
        if match["publisher"] != "microsoft-dsvm" or match["sku"] not in asked.sub.images:
            raise Refused("NotFound", f"Artifact: VMImage was not found: {match['sku']}", 404)
        names = ("24.04.2026010900", "24.04.2026052501", "24.04.2025120100")
        return Reply(body=[{"id": asked.path, "name": name, "location": match["region"]} for name in names])

    def operation(self, asked: Asked, match: re.Match[str]) -> Reply:
        operation = asked.sub.operations.get(match["number"])
        if operation is None:
            raise Refused("ResourceNotFound", match["number"], 404)
        vm = operation.get("vm")
        if vm is None:
            return Reply(body={"status": "Succeeded" if operation.get("over") else "InProgress"})
        if operation.get("deleted"):
            return Reply(body={"status": "Succeeded" if vm.gone else "InProgress"})
        if vm.state == "Failed":
            return Reply(body={"status": "Failed", "error": {"code": vm.fails[0], "message": vm.fails[1]}})
        return Reply(body={"status": "InProgress" if vm.state == "Creating" else "Succeeded"})

    # ------------------------------------------------------------ roles

    def give(self, asked: Asked, match: re.Match[str]) -> Reply:
        given, wanted = asked.sub.roles.get(asked.path.lower()), asked.body["properties"]
        principal = wanted["principalId"]
        if given is not None and given[1] != principal:
            raise Refused(
                "RoleAssignmentUpdateNotPermitted", "Tenant ID, principal ID … cannot be updated.", 409
            )
        if principal not in {vm.principal for vm in asked.sub.vms.values()}:
            raise Refused("PrincipalNotFound", f"Principal {principal} does not exist in the directory")
        asked.sub.roles[asked.path.lower()] = (match["scope"], principal)
        return Reply(status=201, body={"id": asked.path, "properties": wanted})

    def take(self, asked: Asked, match: re.Match[str]) -> Reply:
        found = asked.sub.roles.pop(asked.path.lower(), None)
        return Reply(status=204 if found is None else 200, body=None if found is None else {})

    def may(self, asked: Asked, match: re.Match[str]) -> Reply:
        not_actions = sorted(filter(None, map(action, asked.sub.denied)))
        return Reply(body={"value": [{"actions": ["*"], "notActions": not_actions}]})

    def log(self, asked: Asked, match: re.Match[str]) -> Reply:
        named = re.search(r"resourceUri eq '([^']+)'", asked.query.get("$filter", ""))
        since = re.search(r"eventTimestamp ge '([^']+)'", asked.query.get("$filter", ""))
        if named is None or since is None:
            raise Refused("BadRequest", "The filter needs eventTimestamp and resourceUri")
        known_by = time.time() - asked.sub.log_lag_s
        found = [
            event
            for event in asked.sub.log
            if event["resourceId"].lower() == named[1].lower()
            and _seconds(event["eventTimestamp"]) <= known_by
        ]
        return self.arm.paged(asked, found)

    def graph(self, asked: Asked, match: re.Match[str]) -> Reply:
        """Spot resources, by the little of Kusto that we speak. Without an id in its rows an answer has one
        page, and is cut off there."""
        table, *steps = (step.strip() for step in asked.body["query"].split("|"))
        if table != "SpotResources":
            raise Refused("BadRequest", f"'{table}' is not supported")
        rows = [
            {
                "id": f"/subscriptions/{asked.sub.id}/providers/{_EVICTION}/{region}/{size.lower()}",
                "type": _EVICTION,
                "sku.name": size.lower(),
                "location": region,
                "properties.evictionRate": rate,
            }
            for (region, size), rate in asked.sub.evictions.items()
        ]
        for step in steps:
            rows = _kusto(step, rows)
        options = asked.body["options"]
        start, size = int(options.get("$skipToken") or 0), min(options["$top"], asked.sub.page or 1000)
        page, more = rows[start : start + size], start + size < len(rows)
        paged = all("id" in row for row in rows)
        body = {
            "totalRecords": len(rows),
            "count": len(page),
            "data": page,
            "facets": [],
            "resultTruncated": "true" if more and not paged else "false",
        }
        return Reply(body={**body, "$skipToken": str(start + size)} if more and paged else body)


_EVICTION = "microsoft.compute/skuspotevictionrate/location"
_WHERE = re.compile(r"where (?:tostring\()?([\w.]+)\)? (=~|startswith) '([^']*)'")
_COLUMN = re.compile(r"(?:(\w+) = )?(?:tostring\(([\w.]+)\)|(\w+))")


def _kusto(step: str, rows: list[Doc]) -> list[Doc]:
    if where := _WHERE.fullmatch(step):
        name, how, text = where.groups()
        text = text.lower()
        return [
            r for r in rows if (v := str(r[name]).lower()) == text or (how != "=~" and v.startswith(text))
        ]
    if step.startswith("project "):
        columns = [_COLUMN.fullmatch(part.strip()) for part in step.removeprefix("project ").split(",")]
        if None not in columns:
            named = [(c[1] or c[3], c[2] or c[3], c[2] is not None) for c in columns if c]
            return [{new: (r[old] or "") if text else r[old] for new, old, text in named} for r in rows]
    if order := re.fullmatch(r"order by (\w+) asc", step):
        return sorted(rows, key=lambda row: row[order[1]])
    raise Refused("BadRequest", f"Query is invalid: {step}")


_VERBS = {"GET": "read", "PUT": "write", "DELETE": "delete", "POST": "read"}
_SPACES = {
    "virtualMachines": "Microsoft.Compute/virtualMachines",
    "disks": "Microsoft.Compute/disks",
    "skus": "Microsoft.Compute/skus",
    "usages": "Microsoft.Compute/locations/usages",
    "versions": "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions",
    "virtualNetworks": "Microsoft.Network/virtualNetworks",
    "networkSecurityGroups": "Microsoft.Network/networkSecurityGroups",
    "networkInterfaces": "Microsoft.Network/networkInterfaces",
    "publicIPAddresses": "Microsoft.Network/publicIPAddresses",
    "resourceGroups": "Microsoft.Resources/subscriptions/resourceGroups",
    "roleAssignments": "Microsoft.Authorization/roleAssignments",
    "activity log": "Microsoft.Insights/eventtypes/values",
    "graph": "Microsoft.ResourceGraph/resources",
}
_FREE = {"GET prices", "GET permissions", "GET subscriptions", "GET operations"}
"""What everybody may do who has a role at all."""


def action(operation: str) -> str | None:
    """What Azure calls the permission for ``PUT virtualMachines`` and the like; None = none is needed."""
    verb, _, kind = operation.partition(" ")
    return None if operation in _FREE else f"{_SPACES[kind]}/{_VERBS[verb]}"


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def _sku(name: str, sub: Subscription, region: str) -> Doc:
    size = sub.sizes[name]
    limits = []
    if size.barred:
        limits.append(
            {
                "type": "Location",
                "values": [region],
                "reasonCode": size.barred,
                "restrictionInfo": {"locations": [region]},
            }
        )
    if len(size.zones) < 3:
        missing = sorted({"1", "2", "3"} - set(size.zones))
        info = {"locations": [region], "zones": missing}
        limits.append(
            {
                "type": "Zone",
                "values": [region],
                "reasonCode": "NotAvailableForSubscription",
                "restrictionInfo": info,
            }
        )
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "family": size.family,
        "locations": [region],
        "locationInfo": [{"location": region, "zones": ["1", "2", "3"]}],
        "capabilities": [
            {"name": "vCPUs", "value": str(size.vcpus)},
            {"name": "GPUs", "value": str(size.gpus)},
            {"name": "HyperVGenerations", "value": "V1,V2"},
            {"name": "CpuArchitectureType", "value": "x64"},
        ],
        "restrictions": limits,
    }
