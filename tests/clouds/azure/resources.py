"""Resource groups, and what a machine needs beside itself: networks, interfaces, addresses, disks.

What is written is there at once, but for networks, which take a moment (``made_s``) until they are ready.
"""

from __future__ import annotations

import re
import time

from clouds.azure.arm import Arm, Asked, Refused, Reply
from clouds.azure.subscription import Doc, Subscription, fresh_id

GROUP = "/subscriptions/{sub}/resourceGroups/{group}"
KINDS = {
    "virtualNetworks": "Microsoft.Network",
    "networkSecurityGroups": "Microsoft.Network",
    "networkInterfaces": "Microsoft.Network",
    "publicIPAddresses": "Microsoft.Network",
    "disks": "Microsoft.Compute",
}
_TAG = re.compile(r"tagName eq '([^']+)'(?: and tagValue eq '([^']*)')?")


def key(text: str) -> str:
    return text.lower().rstrip("/")


class Resources:
    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.made_s = 0.0
        arm.route("GET", "/subscriptions/{sub}/resourceGroups", "resourceGroups", self.groups)
        arm.route("GET", GROUP, "resourceGroups", self.get)
        arm.route("PUT", GROUP, "resourceGroups", self.put_group)
        arm.route("DELETE", GROUP, "resourceGroups", self.delete_group)
        for kind, space in KINDS.items():
            path = f"{GROUP}/providers/{space}/{kind}"
            arm.route("GET", f"{path}/{{name}}", kind, self.get)
            arm.route("PUT", f"{path}/{{name}}", kind, self.put)
            arm.route("DELETE", f"{path}/{{name}}", kind, self.delete)
            arm.route("GET", path, kind, self.all)
            arm.route("GET", f"/subscriptions/{{sub}}/providers/{space}/{kind}", kind, self.all)

    # ------------------------------------------------------------ groups

    def groups(self, asked: Asked, match: re.Match[str]) -> Reply:
        found = [doc for doc in asked.sub.documents.values() if doc["type"].endswith("/resourceGroups")]
        named = _TAG.fullmatch(asked.query.get("$filter", ""))
        if "$filter" in asked.query and named is None:
            raise Refused("InvalidFilter", asked.query["$filter"])
        if named is not None:
            found = [d for d in found if named[1] in d["tags"] and named[2] in (None, d["tags"][named[1]])]
        return self.arm.paged(asked, found)

    def put_group(self, asked: Asked, match: re.Match[str]) -> Reply:
        sub, where = asked.sub, asked.body["location"]
        if where not in sub.regions:
            raise Refused(
                "LocationNotAvailableForResourceGroup", f"The provided location '{where}' is not available"
            )
        known = sub.documents.get(key(asked.path))
        if known is not None and known["properties"]["provisioningState"] == "Deleting":
            raise Refused("ResourceGroupBeingDeleted", "The resource group is in deprovisioning state", 409)
        if known is not None and known["location"] != where:
            raise Refused("InvalidResourceGroupLocation", "the group is in another location", 409)
        doc = {
            "id": asked.path,
            "name": match["group"],
            "type": "Microsoft.Resources/resourceGroups",
            "location": where,
            "tags": asked.body.get("tags") or {},
            "properties": {"provisioningState": "Succeeded"},
        }
        sub.documents[key(asked.path)] = doc
        return Reply(status=201 if known is None else 200, body=doc)

    def delete_group(self, asked: Asked, match: re.Match[str]) -> Reply:
        doc = self._known(asked.sub, asked.path)
        doc["properties"]["provisioningState"] = "Deleting"
        inside = key(asked.path) + "/"
        for vm in [v for v in asked.sub.there() if key(v.id).startswith(inside)]:
            self.end_vm(asked.sub, vm.id)
        operation = {"done_s": time.time() + asked.sub.end_s, "drop": [key(asked.path)]}
        operation["drop"] += [k for k in asked.sub.documents if k.startswith(inside)]
        return self.arm.begun(asked, doc["location"], 202, None, operation)

    def end_vm(self, sub: Subscription, vm_id: str) -> None:
        """Replaced by whoever makes machines."""

    # ------------------------------------------------------------ the others

    def get(self, asked: Asked, match: re.Match[str]) -> Reply:
        return Reply(body=self._known(asked.sub, asked.path))

    def all(self, asked: Asked, match: re.Match[str]) -> Reply:
        kind = asked.path.rstrip("/").rpartition("/")[2].lower()
        scope = key(asked.path.lower().split("/providers/")[0])
        if "/resourcegroups/" in scope:
            self._known(asked.sub, scope)
        found = [
            doc
            for at, doc in asked.sub.documents.items()
            if at.startswith(scope + "/") and doc["type"].lower().endswith(f"/{kind}")
        ]
        return self.arm.paged(asked, found)

    def put(self, asked: Asked, match: re.Match[str]) -> Reply:
        sub = asked.sub
        group = asked.path.split("/providers/")[0]
        if key(group) not in sub.documents:
            raise Refused(
                "ResourceGroupNotFound", f"Resource group '{match['group']}' could not be found.", 404
            )
        known = sub.documents.get(key(asked.path))
        doc = self.write(sub, asked.path, asked.body)
        if known is None:
            doc["properties"]["provisioningState"] = "Updating" if self.made_s else "Succeeded"
            ready: Doc = {"done_s": time.time() + self.made_s, "ready": key(asked.path)}
            return self.arm.begun(asked, doc["location"], 201, doc, ready)
        return Reply(body=doc)

    def write(self, sub: Subscription, path: str, body: Doc) -> Doc:
        parts = path.strip("/").split("/")
        doc = {
            **body,
            "id": path,
            "name": parts[-1],
            "type": f"{parts[-3]}/{parts[-2]}",
            "etag": f'W/"{fresh_id()}"',
            "tags": body.get("tags") or {},
            "properties": {"provisioningState": "Succeeded", **(body.get("properties") or {})},
        }
        for subnet in doc["properties"].get("subnets") or []:
            subnet["id"] = f"{path}/subnets/{subnet['name']}"
        sub.documents[key(path)] = doc
        return doc

    def delete(self, asked: Asked, match: re.Match[str]) -> Reply:
        sub, at = asked.sub, key(asked.path)
        doc = sub.documents.get(at)
        if doc is None:
            return Reply(status=204)
        self._used(sub, doc)
        operation: Doc = {"done_s": time.time() + min(sub.end_s, 0.1), "drop": [at]}
        return self.arm.begun(asked, doc["location"], 202, None, operation)

    def _used(self, sub: Subscription, doc: Doc) -> None:
        """Raises what Azure says of something that another thing hangs on."""
        kind, properties, at = doc["type"].rpartition("/")[2], doc["properties"], key(doc["id"])
        others = [d for d in sub.documents.values() if d is not doc]
        text = str([d["properties"] for d in others]).lower()
        if kind == "networkInterfaces" and properties.get("virtualMachine"):
            raise Refused("NicInUse", f"Network Interface {doc['id']} is used by existing resource", 400)
        if kind == "publicIPAddresses" and properties.get("ipConfiguration"):
            raise Refused("PublicIPAddressCannotBeDeleted", "it is still allocated to a resource", 400)
        if kind == "disks" and doc.get("managedBy"):
            raise Refused(
                "OperationNotAllowed", f"Disk {doc['name']} is attached to VM {doc['managedBy']}.", 409
            )
        if kind == "networkSecurityGroups" and f"'{at}'" in text:
            raise Refused("InUseNetworkSecurityGroupCannotBeDeleted", "it is in use", 400)
        if (
            kind == "virtualNetworks"
            and f"'{at}/subnets/"
            in str([d["properties"] for d in others if d["type"].endswith("networkInterfaces")]).lower()
        ):
            raise Refused("InUseSubnetCannotBeDeleted", "Subnet machines is in use", 400)

    def _known(self, sub: Subscription, path: str) -> Doc:
        doc = sub.documents.get(key(path))
        if doc is None:
            group = "/resourcegroups/" in path.lower() and "/providers/" not in path.lower()
            code = "ResourceGroupNotFound" if group else "ResourceNotFound"
            raise Refused(code, f"The Resource '{path}' was not found.", 404)
        return doc

    def tick(self, sub: Subscription, now_s: float) -> None:
        """Operations on everything but machines come to their end."""
        for operation in sub.operations.values():
            if operation.get("over") or now_s < operation.get("done_s", now_s):
                continue
            operation["over"] = True
            for at in operation.get("drop", ()):
                sub.documents.pop(at, None)
            ready = sub.documents.get(operation.get("ready", ""))
            if ready is not None:
                ready["properties"]["provisioningState"] = "Succeeded"
