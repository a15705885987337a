"""EC2 as it behaves: moto in one process, behind a WSGI overlay that adds what moto lacks.

* ``ClientToken`` is idempotent; the same token with other parameters is IdempotentParameterMismatch.
* Spot prices move (``Account.spot``); MaxPrice is enforced at launch and afterwards; interruptions come after
  a notice, with StateReason Server.SpotInstanceTermination.
* Capacity, quotas, offerings by zone, images, instance profiles and the 16 KB of user data are checked.
* New machines are pending for a while, and may be missing in lists; ended ones shut down for a while.
* Scripted faults (``Account.faults``), also such that act late, or whose answer is lost.

Each access key is an account of its own, so tests share one server. Real SDKs talk to it over HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree
from xml.sax.saxutils import escape
from zlib import crc32

from clouds.aws.account import Account, Fault, Life
from clouds.boots import Booting, Boots
from clouds.broken import broken
from clouds.prices.aws import _attributes, _described, _product
from clouds.served import Cut, carry_out
from clouds.stores.awsaccess import Asked, NotAllowed, Session, Sessions, asked_by, iso

from arylcloud.core.offer import Market, Offer

if TYPE_CHECKING:
    from moto.ec2.models import EC2Backend

NS = "http://ec2.amazonaws.com/doc/2016-11-15"
IMAGES = {"x86_64": "ami-0d1000000000000aa", "arm64": "ami-0d1000000000000bb"}
"""The deep-learning images, as SSM's parameter names them."""
QUOTA_CODES = {
    ("p", "on_demand"): "L-417A185B",
    ("g", "on_demand"): "L-DB2E81BA",
    ("p", "spot"): "L-7212CCBC",
    ("g", "spot"): "L-3819A6DF",
}
USER_DATA_BYTES = 16384
TICK_S = 0.05
Answer = tuple[int, str, bytes]
_LISTS = "arn:aws:pricing:::price-list/aws/AmazonEC2/USD"
_STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}


class Refused(Exception):
    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


class AwsEmulator:
    """``with AwsEmulator() as aws: account = aws.account()``; a client needs ``aws.environ(account)``."""

    def __init__(self, boots: Boots | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        self.boots = boots
        self._lock = threading.RLock()  # moto is not made for threads
        self.sessions = Sessions()
        self._numbers = count(1)
        self._closing = threading.Event()
        if boots is not None:
            boots.exited = self.ended_itself
            boots.credentials = self.credentials_of

    # ------------------------------------------------------------ for tests

    def account(self, *, key: str | None = None, **changes: Any) -> Account:
        """A new one; one that had its ``key`` before is not reached any more."""
        number = next(self._numbers)
        key = key or f"AKIAEMULATED{number:08d}"
        made = Account(id=f"1{number:011d}", key=key, lock=self._lock, **changes)
        self.accounts[made.key] = made
        return made

    def environ(self, account: Account) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": account.key,
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def interrupt(self, account: Account, instance_id: str, notice_s: float | None = None) -> None:
        """AWS wants the machine back: notice now, the end ``notice_s`` later."""
        with self._lock:
            self._notice(account, account.lives[instance_id], notice_s)

    def ended_itself(self, instance_id: str) -> None:
        """``shutdown`` in the machine, with InstanceInitiatedShutdownBehavior terminate."""
        with self._lock:
            for account in self.accounts.values():
                life = account.lives.get(instance_id)
                if life is not None and life.live:
                    self._end(account, life, "Client.InstanceInitiatedShutdown", "")

    def credentials_of(self, instance_id: str) -> tuple[str, dict[str, str]] | None:
        """What the instance's metadata service shows of its role."""
        with self._lock:
            for account in self.accounts.values():
                if (profile := account.profiles.get(instance_id)) is not None:
                    session = self.sessions.of_instance(account, profile)
                    return None if session is None else (str(session.role), session.document)
        return None

    def __enter__(self) -> AwsEmulator:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: Any) -> None:
                pass

        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # 0.1 CPU s for each account and region
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=Quiet)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="aws", daemon=True).start()
        self._clock = threading.Thread(target=self._tick_on, name="aws-clock", daemon=True)
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._clock.join()
        self._server.shutdown()
        self._server.server_close()

    # ------------------------------------------------------------ HTTP

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = asked_by(environ)
        session = self.sessions.by_key.get(asked.key) if asked else None
        account = session.account if session else self.accounts.get(asked.key) if asked else None
        if asked is None or account is None:
            query = asked is None or asked.service in ("ec2", "sts", "iam")
            answer = _refusal(
                Refused("AuthFailure", "AWS was not able to validate the provided access credentials", 401),
                "ec2" if query else "json",
            )
        elif asked.service == "s3":
            return self._s3(environ, start, account, asked, session, body)
        elif session is not None and b"Action=GetCallerIdentity" in body:
            answer = 200, "text/xml", session.caller
        elif session is not None:
            answer = _refusal(Refused("AccessDenied", "of a session", 403), "query")
        else:
            try:
                with self._lock:
                    answer = self._answer(environ, account, asked.region, asked.service, body)
            except Cut:
                environ["werkzeug.socket"].close()
                return []
            except Exception as error:  # noqa: BLE001 - of the emulator itself, and what moto lacks
                protocol = "json" if "HTTP_X_AMZ_TARGET" in environ else "ec2"
                answer = _refusal(Refused("EmulatorBroken", broken(error), 500), protocol)
        status, kind, data = answer
        headers = [("Content-Type", kind), ("Content-Length", str(len(data)))]
        start(f"{status} {'OK' if status < 400 else 'Refused'}", headers)
        return [data]

    def _s3(
        self,
        environ: dict[str, Any],
        start: Callable[..., Any],
        account: Account,
        asked: Asked,
        session: Session | None,
        body: bytes,
    ) -> Iterable[bytes]:
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = account.id
        environ["wsgi.input"] = io.BytesIO(body)
        got: list[Any] = []
        with self._lock:
            try:
                self.sessions.check(asked, session.secret if session else "emulated", session, environ, body)
                parts = list(self._moto(environ, lambda *given: got.append(given)))
                if session and got[0][0].startswith("404"):
                    self.sessions.hide(session, environ)
            except NotAllowed as refused:
                data = b"" if environ["REQUEST_METHOD"] == "HEAD" else refused.document
                headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(data)))]
                start(f"{refused.status} Refused", headers)
                return [data]
        start(*got[0])
        return parts

    def _answer(
        self, environ: dict[str, Any], account: Account, region: str, service: str, body: bytes
    ) -> Answer:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        asked = {} if target else dict(parse_qsl(body.decode(), keep_blank_values=True))
        operation = target.rpartition(".")[2] or asked.get("Action", "")
        account.calls.append((region, operation))
        self._tick(account)
        protocol = "json" if target else ("ec2" if service == "ec2" else "query")

        def act() -> Answer:
            try:
                self._allowed(account, region, service, operation, protocol)
                own = getattr(self, f"_{operation}", None)
                if own is None:
                    return self._to_moto(environ, account, body)
                answer: Answer = own(environ, account, region, json.loads(body) if target else asked)
            except Refused as refused:
                return _refusal(refused, protocol)
            return answer

        fault = next(
            (
                f
                for f in account.faults
                if f.operation == operation and f.times and f.region in (None, region)
            ),
            None,
        )
        if fault is None:
            return act()
        if carry_out(fault, act, self._lock):
            return fault.status, "text/html", b"<html><body>Bad Gateway"
        return _refusal(Refused(fault.code, fault.message, fault.status), protocol)

    def _allowed(self, account: Account, region: str, service: str, operation: str, protocol: str) -> None:
        if operation in account.denied:
            code = {"json": "AccessDeniedException", "ec2": "UnauthorizedOperation"}.get(
                protocol, "AccessDenied"
            )
            raise Refused(code, f"You are not authorized to perform: {operation}", 403)
        if service == "ec2" and region not in account.regions and operation != "DescribeRegions":
            raise Refused("AuthFailure", "the region is not enabled", 401)

    def _to_moto(self, environ: dict[str, Any], account: Account, body: bytes) -> Answer:
        copy = {
            **environ,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_X_MOTO_ACCOUNT_ID": account.id,
        }
        got: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            got["status"] = int(status.split()[0])
            got["kind"] = {k.lower(): v for k, v in headers}.get("content-type", "text/xml")

        data = b"".join(self._moto(copy, start))
        return got["status"], got["kind"], data

    def _backend(self, account: Account, region: str) -> EC2Backend:
        from moto.ec2 import ec2_backends

        return ec2_backends[account.id][region]

    # ------------------------------------------------------------ machines

    def _RunInstances(self, environ: dict[str, Any], account: Account, region: str, asked: dict) -> Answer:
        token = asked.get("ClientToken", "")
        what = hashlib.sha256(repr(sorted(asked.items())).encode()).hexdigest()
        if token in account.tokens:
            before, instance_id = account.tokens[token]
            if before != what:
                raise Refused(
                    "IdempotentParameterMismatch",
                    "Client token already used before with different parameters",
                )
            query = {"Action": "DescribeInstances", "Version": "2016-11-15", "InstanceId.1": instance_id}
            _, kind, data = self._to_moto(environ, account, urlencode(query).encode())
            reservation = _tree(data).find(f".//{{{NS}}}reservationSet/{{{NS}}}item")
            assert reservation is not None
            reservation.tag = f"{{{NS}}}RunInstancesResponse"
            return 200, kind, self._shown(account, reservation)
        spot = asked.get("InstanceMarketOptions.MarketType") == "spot"
        market = "spot" if spot else "on_demand"
        name = asked["InstanceType"]
        zone_name, zone_id = self._zone(account, region, asked)
        info = self._checked(account, region, zone_id, name, market, asked)
        if asked.get("DryRun") == "true":
            raise Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        cap = asked.get("InstanceMarketOptions.SpotOptions.MaxPrice")
        price = account.price_at(zone_id, name, time.time())
        if spot and price is None:
            raise Refused("Unsupported", f"there is no spot market for {name} in {zone_name}")
        if spot and cap is not None and price is not None and price > float(cap):
            raise Refused(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {cap} is lower than the minimum required Spot request "
                f"fulfillment price of {price}.",
            )
        self._fits(account, region, zone_id, name, market, info)
        status, kind, data = self._to_moto(environ, account, urlencode(asked).encode())
        if status != 200:
            return status, kind, data
        tree = _tree(data)
        found = tree.find(f".//{{{NS}}}instanceId")
        assert found is not None, data
        assert found.text
        instance = self._backend(account, region).get_instance(found.text)
        life = Life(
            instance=instance,
            region=region,
            zone_id=zone_id,
            instance_type=name,
            market=market,
            user_data=base64.b64decode(asked.get("UserData", "")).decode(),
            max_usd=float(cap) if cap else None,
            vcpus=info["VCpuInfo"]["DefaultVCpus"],
            gpus=sum(g["Count"] for g in info.get("GpuInfo", {}).get("Gpus", [])),
            spot_request=f"sir-{next(self._numbers):08x}" if spot else None,
            launched_s=instance.launch_time and _seconds(instance.launch_time),
            placement=asked.get("Placement.GroupName"),
            efas=sum(value == "efa" for key, value in asked.items() if key.endswith(".InterfaceType")),
        )
        account.lives[instance.id] = life
        if profile := asked.get("IamInstanceProfile.Name") or asked.get("IamInstanceProfile.Arn"):
            account.profiles[instance.id] = profile
        account.tokens[token] = (what, instance.id)
        _set_state(life, "pending")
        return 200, kind, self._shown(account, tree)

    def _zone(self, account: Account, region: str, asked: dict[str, str]) -> tuple[str, str]:
        backend = self._backend(account, region)
        named = asked.get("SubnetId") or asked.get("NetworkInterface.1.SubnetId")
        subnet = next((s for s in backend.describe_subnets() if s.id == named), None)
        if subnet is None:
            raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{named}' does not exist")
        return str(subnet.availability_zone), str(subnet.availability_zone_id)

    def _checked(
        self, account: Account, region: str, zone_id: str, name: str, market: str, asked: dict[str, str]
    ) -> dict[str, Any]:
        info = self._info(account, name)
        if info is None:
            raise Refused("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        asked_for = {
            "LocationType": "availability-zone-id",
            "Filter.1.Name": "instance-type",
            "Filter.1.Value.1": name,
            "Filter.2.Name": "location",
            "Filter.2.Value.1": zone_id,
        }
        if account.types:
            offered = b"<item>" in self._DescribeInstanceTypeOfferings({}, account, region, asked_for)[2]
        else:
            offered = self._backend(account, region).describe_instance_type_offerings(
                location_type="availability-zone-id", filters={"instance-type": [name], "location": [zone_id]}
            )
        if not offered:
            raise Refused(
                "Unsupported",
                f"Your requested instance type ({name}) is not supported in your Availability Zone.",
            )
        self._placed(account, region, zone_id, name, asked, info)
        if asked["ImageId"] not in IMAGES.values():
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{asked['ImageId']}]' does not exist")
        if len(base64.b64decode(asked.get("UserData", ""))) > USER_DATA_BYTES:
            raise Refused("InvalidParameterValue", "User data is limited to 16384 bytes")
        profile = asked.get("IamInstanceProfile.Name") or asked.get("IamInstanceProfile.Arn")
        if profile is not None:
            from moto.iam import iam_backends

            known = [
                p
                for p in iam_backends[account.id]["aws"].get_instance_profiles()
                if time.time() >= p.create_date.replace(tzinfo=UTC).timestamp() + account.profile_lag_s
            ]
            if profile not in {p.name for p in known} | {p.arn for p in known}:
                raise Refused(
                    "InvalidParameterValue",
                    f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. "
                    "Invalid IAM Instance Profile name",
                )
        return info

    def _placed(
        self,
        account: Account,
        region: str,
        zone_id: str,
        name: str,
        asked: dict[str, str],
        info: dict[str, Any],
    ) -> None:
        group = asked.get("Placement.GroupName")
        if group is not None and (region, group) not in account.placements:
            raise Refused("InvalidPlacementGroup.Unknown", f"The placement group '{group}' is unknown.")
        if group is not None and "cluster" not in info["PlacementGroupInfo"]["SupportedStrategies"]:
            raise Refused(
                "InvalidParameterCombination", f"Cluster placement groups are not supported by {name}"
            )
        members = [life for life in account.live() if group is not None and life.placement == group]
        if any(life.zone_id != zone_id for life in members):
            raise Refused("InvalidParameterValue", "A cluster placement group is in one Availability Zone.")
        efas = [key for key, value in asked.items() if key.endswith(".InterfaceType") and value == "efa"]
        most = info["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        if len(efas) > most:
            raise Refused("AttachmentLimitExceeded", f"EFA interfaces: {len(efas)} asked for, {most} allowed")
        interfaces = [key for key in asked if re.fullmatch(r"NetworkInterface\.\d+\.SubnetId", key)]
        if len(interfaces) > 1 and any(key.endswith(".AssociatePublicIpAddress") for key in asked):
            raise Refused(
                "InvalidParameterCombination",
                "The associatePublicIPAddress parameter cannot be specified with multiple network interfaces",
            )

    def _CreatePlacementGroup(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        name = asked["GroupName"]
        if (region, name) in account.placements:
            raise Refused("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' is in use.")
        prefix = "TagSpecification.1.Tag."
        tags = {
            asked[key]: asked.get(key.replace(".Key", ".Value"), "")
            for key in asked
            if key.startswith(prefix) and key.endswith(".Key")
        }
        account.placements[region, name] = tags
        return _xml("CreatePlacementGroup", "<return>true</return>")

    def _DescribePlacementGroups(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        wanted = asked.get("Filter.1.Name", ""), asked.get("Filter.1.Value.1", "")
        items = ""
        for (where, name), tags in account.placements.items():
            key = wanted[0].removeprefix("tag:")
            hit = wanted[1] in tags if wanted[0] == "tag-key" else tags.get(key) == wanted[1]
            if where == region and (hit or not wanted[0]):
                shown = "".join(f"<item><key>{k}</key><value>{v}</value></item>" for k, v in tags.items())
                items += (
                    f"<item><groupName>{name}</groupName><strategy>cluster</strategy>"
                    f"<state>available</state><tagSet>{shown}</tagSet></item>"
                )
        return _xml("DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>")

    def _DeletePlacementGroup(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        name = asked["GroupName"]
        if (region, name) not in account.placements:
            raise Refused("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
        if any(life.placement == name and life.state != "terminated" for life in account.lives.values()):
            raise Refused("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
        del account.placements[region, name]
        return _xml("DeletePlacementGroup", "<return>true</return>")

    def _fits(
        self, account: Account, region: str, zone_id: str, name: str, market: str, info: dict[str, Any]
    ) -> None:
        family = "p" if name.startswith("p") else "g"
        quota = account.quotas.get((region, QUOTA_CODES[family, market]), 1000.0)
        used = sum(
            life.vcpus
            for life in account.live()
            if life.region == region and life.market == market and life.instance_type.startswith(family)
        )
        if used + info["VCpuInfo"]["DefaultVCpus"] > quota:
            if market == "spot":
                raise Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            raise Refused(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {quota:.0f} allows "
                "for the instance bucket that the specified instance type belongs to.",
            )
        room = account.capacity.get((zone_id, name, market))
        here = [v for v in account.live(zone_id) if (v.instance_type, v.market) == (name, market)]
        if room is not None and len(here) >= room:
            raise Refused(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {name} capacity in the Availability Zone "
                "you requested.",
                500,
            )

    def _TerminateInstances(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        ids = [value for key, value in asked.items() if key.startswith("InstanceId.")]
        here = {i for i, life in account.lives.items() if life.region == region}
        if missing := [i for i in ids if i not in here]:
            raise Refused("InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist")
        items = ""
        for instance_id in ids:
            life = account.lives[instance_id]
            before = life.state
            if life.live:
                self._end(account, life, "Client.UserInitiatedShutdown", "User initiated")
            items += (
                f"<item><instanceId>{instance_id}</instanceId><currentState><code>{_STATES[life.state]}</code>"
                f"<name>{life.state}</name></currentState><previousState><code>{_STATES[before]}</code>"
                f"<name>{before}</name></previousState></item>"
            )
        return _xml("TerminateInstances", f"<instancesSet>{items}</instancesSet>")

    def _DescribeInstances(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        if account.page and not any(key.startswith("InstanceId") for key in asked):
            asked = {**asked, "MaxResults": str(account.page)}
        status, kind, data = self._to_moto(environ, account, urlencode(asked).encode())
        if status != 200:
            return status, kind, data
        tree = _tree(data)
        now_s = time.time()
        for reservation in tree.iterfind(f".//{{{NS}}}reservationSet/{{{NS}}}item"):
            instances = reservation.find(f"{{{NS}}}instancesSet")
            assert instances is not None
            for item in list(instances):
                life = account.lives.get(item.findtext(f"{{{NS}}}instanceId") or "")
                if life is not None and now_s < life.launched_s + account.lag_s:
                    instances.remove(item)
        return status, kind, self._shown(account, tree)

    def _shown(self, account: Account, tree: ElementTree.Element) -> bytes:
        """Instances as EC2 shows them: with their spot request, the zone's id, and their state."""
        for item in tree.iterfind(f".//{{{NS}}}instancesSet/{{{NS}}}item"):
            life = account.lives.get(item.findtext(f"{{{NS}}}instanceId") or "")
            if life is None:
                continue
            if life.spot_request:
                ElementTree.SubElement(item, f"{{{NS}}}spotInstanceRequestId").text = life.spot_request
            placement = item.find(f"{{{NS}}}placement")
            if placement is not None:
                ElementTree.SubElement(placement, f"{{{NS}}}availabilityZoneId").text = life.zone_id
            state = item.find(f"{{{NS}}}instanceState")
            if state is not None:
                for tag, text in (("code", str(_STATES[life.state])), ("name", life.state)):
                    child = state.find(f"{{{NS}}}{tag}")
                    if child is not None:
                        child.text = text
        return ElementTree.tostring(tree, encoding="utf-8")

    def _DescribeSpotInstanceRequests(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        wanted = {value for key, value in asked.items() if key.startswith("SpotInstanceRequestId.")}
        items = ""
        for life in account.lives.values():
            if life.spot_request not in wanted or life.region != region:
                continue
            taken = life.cause == "Server.SpotInstanceTermination"
            code = "fulfilled" if life.live else "instance-terminated-by-user"
            code = "instance-terminated-no-capacity" if taken else code
            at = _iso(life.launched_s if life.ending_s is None else life.ending_s)
            items += (
                f"<item><spotInstanceRequestId>{life.spot_request}</spotInstanceRequestId>"
                f"<instanceId>{life.instance_id}</instanceId>"
                f"<state>{'active' if life.live else 'closed'}</state>"
                f"<status><code>{code}</code><updateTime>{at}</updateTime><message>.</message></status></item>"
            )
        return _xml(
            "DescribeSpotInstanceRequests", f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>"
        )

    def _DeleteSecurityGroup(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        group = asked["GroupId"]
        for nic in self._backend(account, region).enis.values():
            if group in {one.id for one in nic.group_set}:
                raise Refused("DependencyViolation", f"resource {group} has a dependent object")
        return self._to_moto(environ, account, urlencode(asked).encode())

    # ------------------------------------------------------------ sessions

    def _AssumeRole(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        from moto.iam import iam_backends

        for_s = int(asked.get("DurationSeconds", 3600))
        name = asked["RoleArn"].rpartition("/")[2]
        roles = {role.name: role for role in iam_backends[account.id]["aws"].roles.values()}
        role = roles.get(name)
        if role is None or role.arn != asked["RoleArn"]:
            raise Refused("AccessDenied", f"not authorized to perform: sts:AssumeRole on {name}", 403)
        if not 900 <= for_s <= role.max_session_duration:
            raise Refused("ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration")
        return _session("AssumeRole", self.sessions.issue(account, name, asked.get("Policy"), for_s))

    def _GetFederationToken(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        if not 2 <= len(asked["Name"]) <= 32:
            raise Refused("ValidationError", "Name has between 2 and 32 characters")
        for_s = int(asked.get("DurationSeconds", 43200))
        return _session("GetFederationToken", self.sessions.issue(account, None, asked.get("Policy"), for_s))

    # ------------------------------------------------------------ what goes by itself

    def _tick_on(self) -> None:
        while not self._closing.wait(TICK_S):
            with self._lock:
                for account in list(self.accounts.values()):
                    self._tick(account)

    def _tick(self, account: Account) -> None:
        now_s = time.time()
        for life in list(account.lives.values()):
            if life.state == "pending" and now_s >= life.launched_s + account.boot_s:
                self._boot(account, life)
            if life.live and life.market == "spot" and life.max_usd is not None:
                price = account.price_at(life.zone_id, life.instance_type, now_s)
                if price is not None and price > life.max_usd and life.notice_acts_s is None:
                    self._notice(account, life, None)
            if life.live and life.notice_acts_s is not None and now_s >= life.notice_acts_s:
                self._end(account, life, "Server.SpotInstanceTermination", "Service initiated")
            if life.state == "shutting-down" and now_s >= (life.ending_s or 0) + account.end_s:
                self._gone(account, life)

    def _boot(self, account: Account, life: Life) -> None:
        _set_state(life, "running")
        if self.boots is not None:
            self.boots.start(
                Booting(
                    instance_id=life.instance_id,
                    user_data=life.user_data,
                    region=life.region,
                    zone=life.zone_id,
                    instance_type=life.instance_type,
                    market=life.market,
                    gpus=life.gpus,
                )
            )

    def _notice(self, account: Account, life: Life, notice_s: float | None) -> None:
        life.notice_acts_s = time.time() + (account.notice_s if notice_s is None else notice_s)
        if self.boots is not None:
            self.boots.notice(life.instance_id, life.notice_acts_s)

    def _end(self, account: Account, life: Life, cause: str, reason: str) -> None:
        from moto.ec2.models.instances import StateReason

        life.ending_s, life.cause = time.time(), cause
        life.instance.terminate()
        told = bool(reason) and (account.says_when or not cause.startswith("Server."))
        at = datetime.fromtimestamp(life.ending_s, UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
        life.instance._reason = f"{reason} ({at})" if told else ""
        life.instance.state_reason = StateReason(f"{cause}: {reason.lower()}", cause)
        _set_state(life, "shutting-down")

    def _gone(self, account: Account, life: Life) -> None:
        if self.boots is not None:
            self.boots.stop(life.instance_id)
        backend = self._backend(account, life.region)
        for nic in list(life.instance.nics.values()):  # EC2 deletes the primary one with its machine
            if nic.id in backend.enis:
                nic.attachment_id = None
                del backend.enis[nic.id]
        _set_state(life, "terminated")

    # ------------------------------------------------------------ what can be asked

    def _DescribeRegions(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        items = "".join(
            f"<item><regionName>{r}</regionName><regionEndpoint>ec2.{r}.amazonaws.com</regionEndpoint>"
            "<optInStatus>opt-in-not-required</optInStatus></item>"
            for r in account.regions
        )
        return _xml("DescribeRegions", f"<regionInfo>{items}</regionInfo>")

    def _DescribeSpotPriceHistory(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        types = {value for key, value in asked.items() if key.startswith("InstanceType.")}
        zones = {z.zone_id: z.name for z in self._backend(account, region).describe_availability_zones()}
        begin_s = _when(asked, "StartTime") or 0.0
        end_s = min(_when(asked, "EndTime") or time.time(), time.time())
        rows = []
        for (zone_id, name), steps in account.spot.items():
            zone = zones.get(zone_id)
            if zone is None or (types and name not in types) or asked.get("AvailabilityZone", zone) != zone:
                continue
            past = [at_s for at_s, _ in steps if at_s <= begin_s]
            first_s = past[-1] if past else begin_s
            rows += [(at_s, usd, zone, zone_id, name) for at_s, usd in steps if first_s <= at_s <= end_s]
        rows.sort(reverse=True)
        size, start = int(asked.get("MaxResults") or account.page or 1000), int(asked.get("NextToken") or 0)
        items = "".join(
            f"<item><instanceType>{name}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{usd:.6f}</spotPrice><timestamp>{_iso(at_s)}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone><availabilityZoneId>{zone_id}</availabilityZoneId></item>"
            for at_s, usd, zone, zone_id, name in rows[start : start + size]
        )
        more = str(start + size) if start + size < len(rows) else ""
        return _xml(
            "DescribeSpotPriceHistory",
            f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{more}</nextToken>",
        )

    def _GetSpotPlacementScores(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        """Of zones; the ten best at most."""
        (name,) = (value for key, value in asked.items() if key.startswith("InstanceType."))
        if int(asked["TargetCapacity"]) < 1 or asked.get("SingleAvailabilityZone") != "true":
            raise Refused("InvalidParameterValue", "of zones, for at least one machine")
        wanted = {value for key, value in asked.items() if key.startswith("RegionName.")}
        rows = [
            (account.scores.get((zone.zone_id, name), 3), where, zone.zone_id)
            for where in account.regions
            if not wanted or where in wanted
            for zone in self._backend(account, where).describe_availability_zones()
        ]
        rows.sort(key=lambda row: -row[0])
        items = "".join(
            f"<item><region>{where}</region><availabilityZoneId>{zone}</availabilityZoneId><score>{score}</score>"
            "</item>"
            for score, where, zone in rows[:10]
            if score
        )
        return _xml("GetSpotPlacementScores", f"<spotPlacementScoreSet>{items}</spotPlacementScoreSet>")

    def _DescribeImages(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        wanted = [value for key, value in asked.items() if key.startswith("ImageId.")]
        if missing := [i for i in wanted if i not in IMAGES.values()]:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{missing[0]}]' does not exist")
        items = "".join(
            f"<item><imageId>{i}</imageId><imageState>available</imageState><rootDeviceName>/dev/sda1</rootDeviceName>"
            "<rootDeviceType>ebs</rootDeviceType><blockDeviceMapping><item><deviceName>/dev/sda1</deviceName>"
            "<ebs><snapshotId>snap-1</snapshotId><volumeSize>75</volumeSize></ebs></item></blockDeviceMapping></item>"
            for i in wanted
        )
        return _xml("DescribeImages", f"<imagesSet>{items}</imagesSet>")

    def _GetParameter(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, Any]
    ) -> Answer:
        found = re.fullmatch(
            r"/aws/service/deeplearning/ami/(x86_64|arm64)/base-oss-nvidia-driver-gpu-ubuntu-2[24]\.04/latest/ami-id",
            asked["Name"],
        )
        if found is None:
            raise Refused("ParameterNotFound", "")
        return _json({"Parameter": {"Name": asked["Name"], "Type": "String", "Value": IMAGES[found[1]]}})

    def _GetServiceQuota(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, Any]
    ) -> Answer:
        code = asked["QuotaCode"]
        if asked["ServiceCode"] != "ec2" or code not in QUOTA_CODES.values():
            raise Refused("NoSuchResourceException", "The request failed because the specified quota")
        value = account.quotas.get((region, code), 1000.0)
        return _json({"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": value, "Unit": "None"}})

    def _GetProducts(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, Any]
    ) -> Answer:
        wanted = {one["Field"]: one["Value"] for one in asked.get("Filters", [])}
        found = []
        for (where, name), usd in account.on_demand.items():
            attributes = _attributes(where, _offer(where, name, usd))
            for number, variant in enumerate(({}, {"operatingSystem": "Windows"}, {"tenancy": "Dedicated"})):
                full = {**attributes, **variant}
                if all(full.get(key) == value for key, value in wanted.items()):
                    found.append(json.dumps(_product(full, usd * (1 + number / 2), number)))
        start, size = int(asked.get("NextToken") or 0), min(int(asked.get("MaxResults") or 100), 100)
        more = {"NextToken": str(start + size)} if start + size < len(found) else {}
        return _json({"FormatVersion": "aws_v1", "PriceList": found[start : start + size], **more})

    def _ListPriceLists(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, Any]
    ) -> Answer:
        """A region's list has another version whenever one of its prices is another."""
        prices: dict[str, list[tuple[str, float]]] = {}
        for (where, name), usd in sorted(account.on_demand.items()):
            prices.setdefault(where, []).append((name, usd))
        lists = [
            {
                "PriceListArn": f"{_LISTS}/{crc32(repr(these).encode())}/{where}",
                "RegionCode": where,
                "CurrencyCode": "USD",
                "FileFormats": ["json", "csv"],
            }
            for where, these in prices.items()
            if asked.get("RegionCode") in (None, where)
        ]
        return _json({"PriceLists": lists})

    # ------------------------------------------------------------ types that moto has not heard of

    def _info(self, account: Account, name: str) -> dict[str, Any] | None:
        """As DescribeInstanceTypes says it, as far as we look at it; None for no type."""
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        if name in INSTANCE_TYPES:
            return dict(INSTANCE_TYPES[name])
        sold = account.types.get(name)
        if sold is None:
            return None
        gpus = [{"Name": sold.gpu, "Count": sold.gpu_count or 0, "Manufacturer": "NVIDIA"}]
        return {
            "VCpuInfo": {"DefaultVCpus": int(sold.vcpus or 4)},
            "GpuInfo": {"Gpus": gpus},
            "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
            "NetworkInfo": {},
        }

    def _DescribeInstanceTypeOfferings(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        if not account.types:
            return self._to_moto(environ, account, urlencode(asked).encode())
        kind, wanted = asked.get("LocationType", "region"), _filters(asked)
        zones = {z.zone_id: z.name for z in self._backend(account, region).describe_availability_zones()}
        there = {(name, zone_id) for zone_id, name in account.spot if zone_id in zones}
        spotted = {name for name, _ in there}
        for where, name in account.on_demand:  # without a spot market: in every zone
            if where == region and name not in spotted:
                there |= {(name, zone_id) for zone_id in zones}
        place = {"availability-zone-id": lambda z: z, "availability-zone": zones.get}.get(
            kind, lambda z: region
        )
        found = sorted({(name, str(place(zone_id))) for name, zone_id in there})
        items = "".join(
            f"<item><instanceType>{name}</instanceType><locationType>{kind}</locationType>"
            f"<location>{where}</location></item>"
            for name, where in found
            if name in wanted.get("instance-type", [name]) and where in wanted.get("location", [where])
        )
        return _xml(
            "DescribeInstanceTypeOfferings", f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>"
        )

    def _DescribeInstanceTypes(
        self, environ: dict[str, Any], account: Account, region: str, asked: dict[str, str]
    ) -> Answer:
        named = [value for key, value in asked.items() if key.startswith("InstanceType.")]
        named += _filters(asked).get("instance-type", [])
        sold = [account.types[name] for name in named if name in account.types]
        if not sold:
            return self._to_moto(environ, account, urlencode(asked).encode())
        items = "".join(_described(one) for one in sold)
        return _xml("DescribeInstanceTypes", f"<instanceTypeSet>{items}</instanceTypeSet>")


def _filters(asked: dict[str, str]) -> dict[str, list[str]]:
    """``Filter.1.Name`` and ``Filter.1.Value.1`` as EC2 is sent them."""
    found = {}
    for key, name in asked.items():
        if key.startswith("Filter.") and key.endswith(".Name"):
            values = key.removesuffix("Name") + "Value."
            found[name] = [value for other, value in asked.items() if other.startswith(values)]
    return found


def _offer(region: str, name: str, usd: float) -> Offer:
    return Offer(
        cloud="aws",
        region=region,
        zone=None,
        instance_type=name,
        gpu=None,
        gpu_count=None,
        gpu_mem_gib=None,
        vcpus=None,
        mem_gib=None,
        market=Market.ON_DEMAND,
        usd_per_hour=usd,
        as_of=None,
        source="emulator",
    )


def _set_state(life: Life, state: str) -> None:
    life.state = state
    life.instance._state.name, life.instance._state.code = state, _STATES[state]


def _tree(data: bytes) -> ElementTree.Element:
    ElementTree.register_namespace("", NS)
    return ElementTree.fromstring(data)


def _seconds(text: Any) -> float:
    if isinstance(text, datetime):
        return (text if text.tzinfo else text.replace(tzinfo=UTC)).timestamp()
    return datetime.fromisoformat(str(text)).timestamp()


def _when(asked: dict[str, str], key: str) -> float | None:
    return datetime.fromisoformat(asked[key]).timestamp() if key in asked else None


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _xml(operation: str, body: str) -> Answer:
    text = f'<{operation}Response xmlns="{NS}"><requestId>r-1</requestId>{body}</{operation}Response>'
    return 200, "text/xml;charset=UTF-8", text.encode()


def _session(operation: str, made: Session) -> Answer:
    body = (
        f"<{operation}Result><Credentials><AccessKeyId>{made.key}</AccessKeyId>"
        f"<SecretAccessKey>{made.secret}</SecretAccessKey><SessionToken>{made.token}</SessionToken>"
        f"<Expiration>{iso(made.expires_s)}</Expiration></Credentials></{operation}Result>"
    )
    text = (
        f'<{operation}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{body}'
        f"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></{operation}Response>"
    )
    return 200, "text/xml", text.encode()


def _json(document: dict[str, Any]) -> Answer:
    return 200, "application/x-amz-json-1.1", json.dumps(document).encode()


def _refusal(refused: Refused, protocol: str) -> Answer:
    code, message = escape(refused.code), escape(refused.message)
    if protocol == "json":
        body = json.dumps({"__type": refused.code, "message": refused.message}).encode()
        return refused.status, "application/x-amz-json-1.1", body
    if protocol == "query":
        text = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            "<RequestId>r-1</RequestId></ErrorResponse>"
        )
    else:
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            "<RequestID>r-1</RequestID></Response>"
        )
    return refused.status, "text/xml", text.encode()


__all__ = ["Account", "AwsEmulator", "Fault"]
