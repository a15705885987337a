"""Virtual machines: made with their interface, address and disk, which may fail late; evicted, switched off,
deleted; and what they cost.
"""

from __future__ import annotations

import base64
import re
import time
from datetime import UTC, datetime

from clouds.azure.arm import Arm, Asked, Refused, Reply
from clouds.azure.resources import GROUP, Resources, key
from clouds.azure.subscription import Doc, Subscription, Vm, fresh_id
from clouds.boots import Booting, Boots

NO_ROOM = (
    "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read "
    "more about improving likelihood of allocation success at https://aka.ms/allocation-guidance"
)
PATH = f"{GROUP}/providers/Microsoft.Compute/virtualMachines"


class Machines:
    def __init__(self, arm: Arm, resources: Resources, boots: Boots | None) -> None:
        self.arm = arm
        self.resources = resources
        self.boots = boots
        self.environ: dict[str, str] = {}
        resources.end_vm = self.end_by_id
        arm.route("GET", PATH, "virtualMachines", self.all)
        arm.route("GET", f"{PATH}/{{name}}", "virtualMachines", self.get)
        arm.route("PUT", f"{PATH}/{{name}}", "virtualMachines", self.put)
        arm.route("DELETE", f"{PATH}/{{name}}", "virtualMachines", self.delete)

    # ------------------------------------------------------------ what is asked

    def all(self, asked: Asked, match: re.Match[str]) -> Reply:
        group = key(asked.path.split("/providers/")[0])
        if group not in asked.sub.documents:
            raise Refused(
                "ResourceGroupNotFound", f"Resource group '{match['group']}' could not be found.", 404
            )
        now_s = time.time()
        found = [
            self.shown(vm, view=False)
            for vm in asked.sub.there()
            if key(vm.id).startswith(group + "/") and now_s >= vm.created_s + asked.sub.lag_s
        ]
        return self.arm.paged(asked, found)

    def get(self, asked: Asked, match: re.Match[str]) -> Reply:
        vm = self._there(asked.sub, asked.path)
        if vm is None:
            raise Refused("ResourceNotFound", f"The Resource '{asked.path}' was not found.", 404)
        return Reply(body=self.shown(vm, view=asked.query.get("$expand") == "instanceView"))

    def shown(self, vm: Vm, *, view: bool) -> Doc:
        properties = {k: v for k, v in vm.doc["properties"].items() if k != "osProfile"}
        profile = {k: v for k, v in vm.doc["properties"].get("osProfile", {}).items() if k != "customData"}
        name = vm.name
        properties |= {
            "osProfile": profile,  # without what it was told: Azure never shows that again
            "provisioningState": vm.state,
            "timeCreated": _iso(vm.created_s),
            "vmId": fresh_id(),
        }
        nic = f"{vm.id.split('/providers/')[0]}/providers/Microsoft.Network/networkInterfaces/{name}-nic"
        properties["networkProfile"] = {
            "networkInterfaces": [{"id": nic, "properties": {"deleteOption": "Delete"}}]
        }
        if view:
            properties["instanceView"] = {"statuses": _statuses(vm)}
        doc = {**vm.doc, "id": vm.id, "name": name, "type": "Microsoft.Compute/virtualMachines"}
        doc["properties"] = properties
        doc["etag"] = '"1"'
        if vm.principal is not None:
            doc["identity"] = {**doc["identity"], "principalId": vm.principal, "tenantId": "t"}
        return doc

    # ------------------------------------------------------------ made

    def put(self, asked: Asked, match: re.Match[str]) -> Reply:
        sub, doc = asked.sub, asked.body
        group = asked.path.split("/providers/")[0]
        if key(group) not in sub.documents:
            raise Refused(
                "ResourceGroupNotFound", f"Resource group '{match['group']}' could not be found.", 404
            )
        known = self._there(sub, asked.path)
        if known is not None and asked.headers.get("if-none-match") == "*":
            raise Refused("PreconditionFailed", "The resource exists already: If-None-Match", 412)
        if known is not None and known.state == "Deleting":
            raise Refused("OperationNotAllowed", f"The VM '{known.name}' is marked for deletion.", 409)
        if known is not None and known.doc["properties"]["osProfile"] != doc["properties"]["osProfile"]:
            raise Refused("PropertyChangeNotAllowed", "Changing property 'osProfile' is not allowed.", 409)
        if known is not None:
            return Reply(body=self.shown(known, view=False))
        vm = self._checked(sub, asked)
        if vm.size in sub.gives:
            vm.size = vm.doc["properties"]["hardwareProfile"]["vmSize"] = sub.gives[vm.size]
        fault = self.arm.inside(sub, "PUT virtualMachines")
        if fault is not None:
            vm.fails = (fault.code, fault.message, fault.late_s)
        elif self._full(sub, vm):
            vm.fails = ("AllocationFailed", NO_ROOM, sub.allocate_s)
        sub.vms[f"{key(vm.id)}#{len(sub.vms)}"] = vm
        self._belongings(sub, vm)
        self.tick_vm(sub, vm, time.time())
        body = self.shown(vm, view=False)
        body["properties"]["provisioningState"] = "Creating"
        return self.arm.begun(asked, vm.region, 201, body, {"vm": vm})

    def _checked(self, sub: Subscription, asked: Asked) -> Vm:
        doc, properties = asked.body, asked.body["properties"]
        region, name = doc["location"], properties["hardwareProfile"]["vmSize"]
        market = "spot" if properties.get("priority") == "Spot" else "on_demand"
        size = sub.sizes.get(name)
        zone = (doc.get("zones") or [None])[0]
        if size is None:
            raise Refused("InvalidParameter", f"The value {name} provided for the VM size is not valid.")
        if size.barred or (zone is not None and zone not in size.zones):
            raise Refused(
                "SkuNotAvailable",
                "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: "
                f"{name}' is currently not available in location '{region}'.",
                409,
            )
        if sub.policy is not None and sub.policy not in (doc.get("tags") or {}):
            raise Refused(
                "RequestDisallowedByPolicy", f"Resource was disallowed by policy: tag {sub.policy}", 403
            )
        self._image(sub, properties["storageProfile"]["imageReference"])
        data = properties["osProfile"].get("customData", "")
        if len(data) > 65535:
            raise Refused("InvalidParameter", "Custom data is too long")
        if not properties["osProfile"]["linuxConfiguration"].get("ssh", {}).get("publicKeys"):
            raise Refused("InvalidParameter", "Authentication using either SSH or password must be enabled.")
        for nic in properties["networkProfile"]["networkInterfaceConfigurations"]:
            for one in nic["properties"]["ipConfigurations"]:
                subnet = key(one["properties"]["subnet"]["id"])
                vnet = sub.documents.get(subnet.split("/subnets/")[0])
                if vnet is None:
                    raise Refused("InvalidResourceReference", f"Resource {subnet} referenced was not found.")
                if vnet["location"] != region:
                    raise Refused("InvalidResourceReference", "the subnet is in another location")
        self._fits(sub, region, name, market)
        cap = (properties.get("billingProfile") or {}).get("maxPrice")
        price = self._price(sub, region, name, market)
        if market == "spot" and cap not in (None, -1, -1.0) and price is not None and price > cap:
            raise Refused("OperationNotAllowed", f"maxPrice {cap} is lower than the price now, {price}", 409)
        own = "SystemAssigned" in (doc.get("identity") or {}).get("type", "")
        return Vm(
            id=asked.path,
            doc=doc,
            region=region,
            zone=zone,
            size=name,
            market=market,
            user_data=base64.b64decode(data).decode(),
            max_usd=None if cap in (None, -1, -1.0) else float(cap),
            created_s=time.time(),
            principal=fresh_id() if own else None,
        )

    def _image(self, sub: Subscription, image: Doc) -> None:
        if "id" in image:
            return
        if image.get("publisher") != "microsoft-dsvm" or image.get("sku") not in sub.images:
            raise Refused("PlatformImageNotFound", f"The platform image '{image}' is not available.", 404)

    def _fits(self, sub: Subscription, region: str, name: str, market: str) -> None:
        size = sub.sizes[name]
        wanted = ["lowPriorityCores"] if market == "spot" else [size.family, "cores"]
        for quota in wanted:
            used, limit = self.used(sub, region, quota), sub.quotas.get((region, quota), 1000.0)
            if used + size.vcpus > limit:
                shown = {"lowPriorityCores": "LowPriorityCores", "cores": "Total Regional Cores"}.get(
                    quota, quota
                )
                raise Refused(
                    "OperationNotAllowed",
                    "Operation could not be completed as it results in exceeding approved "
                    f"{shown} quota. "
                    f"Additional details - Deployment Model: Resource Manager, Location: {region}, Current "
                    f"Limit: {limit:g}, Usage: {used:g}, Additional Required: {size.vcpus}, New Limit "
                    f"Required: {used + size.vcpus:g}. Submit a request for Quota increase at https://aka.ms/q",
                    409,
                )

    def used(self, sub: Subscription, region: str, quota: str) -> float:
        total = 0.0
        for vm in sub.live():
            size = sub.sizes[vm.size]
            counts = {"lowPriorityCores"} if vm.market == "spot" else {size.family, "cores"}
            total += size.vcpus if vm.region == region and quota in counts else 0
        return total

    def _full(self, sub: Subscription, vm: Vm) -> bool:
        most = sub.capacity.get((vm.region, vm.size, vm.market))
        like = [v for v in sub.live() if (v.region, v.size, v.market) == (vm.region, vm.size, vm.market)]
        return most is not None and sum(v.fails is None for v in like) >= most

    def _price(self, sub: Subscription, region: str, name: str, market: str) -> float | None:
        steps = sub.usd.get((region, name, market))
        return None if not steps else [usd for since_s, usd in steps if since_s <= time.time()][-1]

    def _belongings(self, sub: Subscription, vm: Vm) -> None:
        base = vm.id.split("/providers/")[0]
        (nic,) = vm.doc["properties"]["networkProfile"]["networkInterfaceConfigurations"]
        (one,) = nic["properties"]["ipConfigurations"]
        interface = f"{base}/providers/Microsoft.Network/networkInterfaces/{nic['name']}"
        guard = nic["properties"].get("networkSecurityGroup")
        number = len(sub.vms)
        at = {
            "privateIPAddress": f"10.83.{number // 250}.{number % 250 + 4}",
            "subnet": one["properties"]["subnet"],
        }
        self.resources.write(
            sub,
            interface,
            {
                "location": vm.region,
                "tags": nic.get("tags"),
                "properties": {
                    "ipConfigurations": [{"name": one["name"], "properties": at}],
                    "virtualMachine": {"id": vm.id},
                    **({"networkSecurityGroup": guard} if guard else {}),
                },
            },
        )
        address = one["properties"].get("publicIPAddressConfiguration")
        if address:
            self.resources.write(
                sub,
                f"{base}/providers/Microsoft.Network/publicIPAddresses/{address['name']}",
                {
                    "location": vm.region,
                    "tags": address.get("tags"),
                    "sku": address.get("sku"),
                    "properties": {"ipConfiguration": {"id": f"{interface}/ipConfigurations/{one['name']}"}},
                },
            )
        disk = vm.doc["properties"]["storageProfile"]["osDisk"]
        made = self.resources.write(
            sub,
            f"{base}/providers/Microsoft.Compute/disks/{disk['name']}",
            {
                "location": vm.region,
                "tags": vm.doc.get("tags"),
                "properties": {"diskSizeGB": disk.get("diskSizeGB", 64)},
            },
        )
        made["managedBy"] = vm.id

    # ------------------------------------------------------------ ended

    def delete(self, asked: Asked, match: re.Match[str]) -> Reply:
        vm = self._there(asked.sub, asked.path)
        if vm is None:
            return Reply(status=204)
        named = (vm.doc.get("identity") or {}).get("userAssignedIdentities") or {}
        own = asked.principal in (vm.principal, *named)
        claims = {"xms_mirid": vm.id} if own else {"oid": asked.principal}
        self.end(asked.sub, vm, "self" if own else "delete", claims)
        return self.arm.begun(asked, vm.region, 202, None, {"vm": vm, "deleted": True})

    def end_by_id(self, sub: Subscription, vm_id: str) -> None:
        vm = self._there(sub, vm_id)
        if vm is not None:
            self.end(sub, vm, "delete", {})

    def end(self, sub: Subscription, vm: Vm, cause: str, claims: Doc) -> None:
        if vm.state == "Deleting":
            return
        vm.state, vm.cause = "Deleting", cause
        vm.ending_s = time.time() if vm.ending_s is None else vm.ending_s
        name = "virtualMachines/evictSpotVM/action" if cause == "evicted" else "virtualMachines/delete"
        sub.log.append(
            {
                "operationName": {"value": f"Microsoft.Compute/{name}"},
                "status": {"value": "Succeeded"},
                "eventTimestamp": _iso(vm.ending_s),
                "resourceId": vm.id,
                "claims": claims,
            }
        )
        self.tick_vm(sub, vm, time.time())

    def switched_off(self, sub: Subscription, vm: Vm) -> None:
        """``shutdown`` inside: Azure bills it on."""
        vm.power = "stopped"

    def notice(self, sub: Subscription, vm: Vm, notice_s: float | None) -> None:
        vm.notice_acts_s = time.time() + (sub.notice_s if notice_s is None else notice_s)
        vm.event_id = fresh_id()

    def _gone(self, sub: Subscription, vm: Vm) -> None:
        if self.boots is not None:
            self.boots.stop(vm.id)
        vm.gone = True
        base = vm.id.split("/providers/")[0]
        for space, kind, suffix in (
            ("Microsoft.Network", "networkInterfaces", "nic"),
            ("Microsoft.Network", "publicIPAddresses", "ip"),
            ("Microsoft.Compute", "disks", "disk"),
        ):
            at = key(f"{base}/providers/{space}/{kind}/{vm.name}-{suffix}")
            if vm.fails is None or kind != "disks":  # what never was a machine leaves its disk behind
                sub.documents.pop(at, None)
            elif at in sub.documents:
                sub.documents[at]["managedBy"] = None

    # ------------------------------------------------------------ what goes by itself

    def tick(self, sub: Subscription, now_s: float) -> None:
        for vm in sub.there():
            self.tick_vm(sub, vm, now_s)

    def tick_vm(self, sub: Subscription, vm: Vm, now_s: float) -> None:
        if vm.gone:
            return
        if vm.state == "Creating" and vm.fails is not None and now_s >= vm.created_s + vm.fails[2]:
            vm.state, vm.power = "Failed", "deallocated"
        if vm.state == "Creating" and vm.fails is None:
            if now_s >= vm.created_s + sub.allocate_s:
                vm.power = "running"
            if now_s >= vm.created_s + max(sub.boot_s, sub.allocate_s):
                vm.state = "Succeeded"
                self._boot(sub, vm)
        price = self._price(sub, vm.region, vm.size, vm.market)
        if (
            vm.live
            and vm.max_usd is not None
            and price is not None
            and price > vm.max_usd
            and vm.notice_acts_s is None
        ):
            self.notice(sub, vm, None)
        if vm.live and vm.notice_acts_s is not None and now_s >= vm.notice_acts_s:
            self.end(sub, vm, "evicted", {})
        if vm.state == "Deleting" and now_s >= (vm.ending_s or 0) + sub.end_s:
            self._gone(sub, vm)

    def _boot(self, sub: Subscription, vm: Vm) -> None:
        if vm.booted or self.boots is None:
            return
        vm.booted = True
        self.boots.start(
            Booting(
                instance_id=vm.id,
                user_data=vm.user_data,
                region=vm.region,
                zone=vm.zone,
                instance_type=vm.size,
                market=vm.market,
                gpus=sub.sizes[vm.size].gpus,
                environ=dict(self.environ),
            )
        )

    def _there(self, sub: Subscription, path: str) -> Vm | None:
        return next((vm for vm in sub.there() if key(vm.id) == key(path)), None)


def _statuses(vm: Vm) -> list[Doc]:
    code = f"ProvisioningState/{vm.state.lower()}"
    found: list[Doc] = [{"code": code, "level": "Info"}]
    if vm.state == "Failed" and vm.fails is not None:
        found = [{"code": f"{code}/{vm.fails[0]}", "level": "Error", "message": vm.fails[1]}]
    if vm.power is not None:
        found.append({"code": f"PowerState/{vm.power}", "level": "Info"})
    return found


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
