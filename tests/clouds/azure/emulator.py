"""Azure as it behaves, on one port, for the real SDK: its Resource Manager, tokens, prices.

Orders are taken and come to their end later, or to nothing with HTTP 200; lists lag; a spot machine that
Azure takes is gone without a trace but in the activity log; one that is only shut down is paid for. Each
subscription is an account of its own, so tests share one server.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clouds.azure.arm import SECRET, TENANT, Arm, Reply
from clouds.azure.lists import Lists
from clouds.azure.machines import Machines
from clouds.azure.metadata import AzureMetadata, event
from clouds.azure.resources import Resources
from clouds.azure.subscription import Subscription, Vm, fresh_id
from clouds.boots import Boots
from clouds.prices.azure import _condition, _item

TICK_S = 0.05
DAY_S = 86400.0


class AzureEmulator:
    """``with AzureEmulator() as azure: sub = azure.subscription()``; a client needs ``azure.environ(sub)``.
    ``ca``: a folder for certificates: TLS then, else plain http. ``boots``: a folder: machines boot then."""

    def __init__(self, *, ca: Path | None = None, boots: Path | None = None) -> None:
        self._ca = None if ca is None else ca / "azure-ca.pem"
        self.arm = Arm(None if ca is None else self._tls(ca))
        self.boots = None if boots is None else Boots(boots, serve=self._metadata)
        self.resources = Resources(self.arm)
        self.machines = Machines(self.arm, self.resources, self.boots)
        Lists(self.arm, self.machines)
        self.arm.open = self._open
        self.arm.before = self._tick
        self._numbers = count(1)
        self._closing = threading.Event()
        if self.boots is not None:
            self.boots.exited = self._exited

    # ------------------------------------------------------------ for tests

    def subscription(self, **changes: Any) -> Subscription:
        made = Subscription(id=fresh_id(), client=fresh_id(), lock=self.arm.lock, **changes)
        self.arm.subscriptions[made.id] = made
        return made

    def environ(self, sub: Subscription) -> dict[str, str]:
        """What a client needs, and its machines."""
        found = {
            "AZURE_SUBSCRIPTION_ID": sub.id,
            "ARYLCLOUD_AZURE__RESOURCE_MANAGER": self.url,
            "ARYLCLOUD_AZURE__RETAIL_PRICES": f"{self.url}/{sub.id}",
            **self._trust(),
        }
        if self._ca is None:  # a client over plain http has a managed identity
            return {**found, "IDENTITY_ENDPOINT": f"{self.url}/msi/token/{sub.id}", "IDENTITY_HEADER": SECRET}
        return {
            **found,
            "AZURE_AUTHORITY_HOST": self.url,
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": sub.client,
            "AZURE_CLIENT_SECRET": SECRET,
        }

    def settings(self, sub: Subscription) -> dict[str, str]:
        return {"subscription": sub.id, "resource_manager": self.url, "retail_prices": f"{self.url}/{sub.id}"}

    @property
    def url(self) -> str:
        return self.arm.url

    def evict(self, sub: Subscription, instance_id: str, notice_s: float | None = None) -> None:
        """Azure wants the machine back: an event now, its end ``notice_s`` later."""
        with self.arm.lock:
            self.machines.notice(sub, sub.vm(instance_id), notice_s)

    # ------------------------------------------------------------ the server

    def __enter__(self) -> AzureEmulator:
        self.arm.start()
        self.machines.environ = self._trust()
        self._clock = threading.Thread(target=self._tick_on, name="azure-clock", daemon=True)
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._clock.join()
        self.arm.close()
        if self.boots is not None:
            self.boots.close()

    def _tls(self, folder: Path) -> ssl.SSLContext:
        import trustme

        authority = trustme.CA()
        assert self._ca is not None
        authority.cert_pem.write_to_path(str(self._ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return context

    def _trust(self) -> dict[str, str]:
        return (
            {} if self._ca is None else {"REQUESTS_CA_BUNDLE": str(self._ca), "SSL_CERT_FILE": str(self._ca)}
        )

    def _tick_on(self) -> None:
        while not self._closing.wait(TICK_S):
            with self.arm.lock:
                for sub in list(self.arm.subscriptions.values()):
                    self._tick(sub)

    def _tick(self, sub: Subscription) -> None:
        now_s = time.time()
        self.machines.tick(sub, now_s)
        self.resources.tick(sub, now_s)

    # ------------------------------------------------------------ without a token

    def _open(self, method: str, path: str, query: dict[str, str]) -> Reply | None:
        parts = path.strip("/").split("/")
        if path.endswith("/.well-known/openid-configuration"):
            base = f"{self.url}/{TENANT}"
            return Reply(
                body={
                    "token_endpoint": f"{base}/oauth2/v2.0/token",
                    "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                    "issuer": f"{base}/v2.0",
                }
            )
        if path.endswith("/oauth2/v2.0/token"):
            return self._token(query.get("client_id", ""), query.get("client_secret", ""))
        if path.startswith("/msi/token/"):
            sub = self.arm.subscriptions[parts[-1]]
            token = self.arm.token(sub.client, {"appid": sub.client}, sub.token_s)
            return Reply(body={"access_token": token, "expires_on": str(int(time.time() + sub.token_s))})
        if path.endswith("/api/retail/prices") and parts[0] in self.arm.subscriptions:
            return self._prices(self.arm.subscriptions[parts[0]], query)
        return None

    def _token(self, client: str, secret: str) -> Reply:
        sub = next((s for s in self.arm.subscriptions.values() if s.client == client), None)
        if sub is None or secret != SECRET:
            body = {
                "error": "invalid_client",
                "error_description": "AADSTS7000215: Invalid client secret provided.",
            }
            return Reply(status=401, body=body)
        token = self.arm.token(client, {"appid": client}, sub.token_s)
        return Reply(body={"token_type": "Bearer", "expires_in": int(sub.token_s), "access_token": token})

    def _prices(self, sub: Subscription, query: dict[str, str]) -> Reply:
        """Only what is in force, and what will be: the API keeps no past."""
        sub.calls.append("GET prices")
        if "GET prices" in sub.denied:
            return Reply(
                status=403, body={"error": {"code": "Forbidden", "message": "prices are not to be seen"}}
            )
        conditions = [_condition(part) for part in query["$filter"].split(" and ")]
        now_s, items = time.time(), []
        with self.arm.lock:
            for (region, name, market), steps in sub.usd.items():
                current = max((at_s for at_s, _ in steps if at_s <= now_s), default=0.0)
                size = name.removeprefix("Standard_").replace("_", " ")
                for since_s, usd in steps:
                    if since_s >= current:
                        since = (
                            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_s))
                            + f".{int(since_s % 1 * 1e6):06d}Z"
                        )
                        items += [
                            _item(
                                region=region,
                                name=name,
                                size=size,
                                product=f"Virtual Machines {size}{system}",
                                suffix=" Spot" if market == "spot" else "",
                                usd=usd * times,
                                since=since,
                            )
                            for system, times in (("", 1.0), (" Windows", 1.6))
                        ]
        found = [item for item in items if all(holds(item) for holds in conditions)]
        skip = int(query.get("$skip", 0))
        size = sub.page or 1000
        link = None
        if skip + size < len(found):
            asked = f"$filter={quote(query['$filter'])}&$skip={skip + size}"
            link = f"https://prices.azure.com:443/api/retail/prices?{asked}"
        return Reply(body={"Items": found[skip : skip + size], "NextPageLink": link, "Count": size})

    # ------------------------------------------------------------ machines that boot

    def _metadata(self, boots: Boots) -> Any:
        return AzureMetadata(boots, self._events, self._started, self._identity_token)

    def _of(self, vm_id: str) -> tuple[Subscription, Vm] | None:
        sub = self.arm.subscriptions.get(vm_id.split("/")[2])
        found = None if sub is None else next((vm for vm in sub.there() if vm.id == vm_id), None)
        return None if sub is None or found is None else (sub, found)

    def _events(self, vm_id: str) -> list[dict[str, Any]]:
        with self.arm.lock:
            known = self._of(vm_id)
            if known is None or known[1].notice_acts_s is None:
                return []
            return [event(known[1].event_id or "", known[1].name, known[1].notice_acts_s)]

    def _started(self, vm_id: str, event_id: str) -> None:
        """The machine says that it is ready to go."""
        with self.arm.lock:
            known = self._of(vm_id)
            if known is not None and known[1].event_id == event_id:
                known[1].notice_acts_s = time.time()

    def _identity_token(self, vm_id: str, identity: str | None) -> str | None:
        """``identity`` None: of the machine's own, or of the only one that it has."""
        with self.arm.lock:
            known = self._of(vm_id)
            if known is None:
                return None
            several = list((known[1].doc.get("identity") or {}).get("userAssignedIdentities") or {})
            if identity is None and known[1].principal is not None:
                return self.arm.token(known[1].principal, {"xms_mirid": vm_id}, 3600.0)
            if identity is None and len(several) == 1:
                identity = several[0]
            if identity not in several:
                return None
            return self.arm.token(identity, {"xms_mirid": identity}, 3600.0)

    def _exited(self, vm_id: str) -> None:
        """Its user data has come to its end, or it was shut down: only the latter changes anything."""
        assert self.boots is not None
        if not (self.boots.home(vm_id) / ".off").exists():
            return
        with self.arm.lock:
            known = self._of(vm_id)
            if known is not None:
                self.machines.switched_off(*known)


def pretty(sub: Subscription) -> str:
    """For a failing test."""
    return json.dumps(
        [{"id": vm.id, "state": vm.state, "cause": vm.cause} for vm in sub.vms.values()], indent=1
    )
