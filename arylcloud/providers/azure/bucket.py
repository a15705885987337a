"""``Storage`` on Azure: a container opened with the user's own token, one account made once, links."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import AccessError, ArylError, OtherCloudError, UsageError
from arylcloud.core.stores import SIGNED_S, Address
from arylcloud.providers.azure import sas
from arylcloud.providers.azure.adapter import KNOWN
from arylcloud.providers.azure.client import Arm, items
from arylcloud.providers.azure.permissions import VERSION as ROLES_API
from arylcloud.providers.azure.tags import companys
from arylcloud.providers.settings import known_only
from arylcloud.providers.web import NoRedirect, endpoint

STORAGE_API: Final = "2024-01-01"
SCOPE: Final = "https://storage.azure.com/.default"
CONTAINER: Final = "arylcloud"
GROUP: Final = "arylcloud-stores"
"""Where accounts go: a group that ``gc`` does not know, since buckets stay."""
CONTRIBUTOR: Final = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor: an owner of the subscription reads no blob without it."""
ENV_ACCOUNT: Final = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
USABLE_TRIES: Final = 60
USABLE_EVERY_S: Final = 5.0
"""Azure says that a role may take minutes until it holds."""
MADE_TRIES: Final = 120
MADE_EVERY_S: Final = 1.0
_FRESH: Final = timedelta(minutes=6)
_KEY_S: Final = 6 * 86400.0
"""Of a user delegation key; Azure gives a week at most."""


def create(state_dir: Path, settings: Mapping[str, str]) -> AzureStorage:
    """The factory in ``providers/registry``. No call goes out here."""
    del state_dir
    known_only("azure", settings, KNOWN)
    return AzureStorage(Arm(settings), settings)


class AzureStorage:
    """Safe to use from several threads."""

    signs_as_job = False

    def __init__(self, arm: Arm, settings: Mapping[str, str]) -> None:
        self._arm = arm
        self._settings = settings
        named = settings.get("blob_endpoint")
        self._endpoint = endpoint(named, "", what="[azure] blob_endpoint") if named else None
        self._lock = threading.Lock()
        self._keys: dict[str, sas.Key] = {}

    def account(self, address: Address) -> str:
        environ = next((os.environ[name] for name in ENV_ACCOUNT if os.environ.get(name)), None)
        found = address.account or self._settings.get("storage_account") or environ
        if not found:
            raise UsageError(
                f"{address.uri} names no storage account",
                hint=f"az://{address.bucket}@ACCOUNT/…, or [azure] storage_account",
            )
        return found

    def base(self, account: str) -> str:
        """Of the account's blobs. One of the user's own has the account in its path, as emulators do."""
        return f"{self._endpoint}/{account}" if self._endpoint else f"https://{account}.blob.core.windows.net"

    # ------------------------------------------------------------ opening

    def options(self, address: Address) -> Mapping[str, Any]:
        return {**self.for_machines(address, None), "credential_provider": self._token}

    def for_machines(self, address: Address, identity: str | None) -> Mapping[str, str]:
        account = self.account(address)
        found = {"account_name": account}
        if self._endpoint:
            found["endpoint"] = self.base(account)
        if identity is not None:  # a machine may have several
            found["msi_resource_id"] = identity
        return found

    def _token(self) -> dict[str, Any]:
        token, expires_s = self.token()
        soon = datetime.now(UTC) + _FRESH
        return {"token": token, "expires_at": min(soon, datetime.fromtimestamp(expires_s, UTC))}

    def token(self) -> tuple[str, float]:
        """(the user's token for storage, wall seconds of its end); azure-identity renews it in time."""
        found = self._arm.act("a token", lambda: self._arm.credential().get_token(SCOPE))
        return str(found.token), float(found.expires_on)

    # ------------------------------------------------------------ the usual one

    def usual(self, region: str) -> str:
        """Names of accounts are the whole world's, and have 24 characters at most."""
        name = hashlib.sha256(f"{self._arm.subscription}|{region}".encode()).hexdigest()[:20]
        return f"az://{CONTAINER}@aryl{name}"

    def missing(self, address: Address) -> bool:
        """One of ours by its account, which may be new; one of the user's by asking for the container."""
        account = self.account(address)
        if address.bucket == CONTAINER and self.find(account) is None:
            return True
        try:
            self._ask("HEAD", f"{self.base(account)}/{address.bucket}?restype=container", account)
        except ArylError as error:
            if error.code in ("ContainerNotFound", "HTTP_404"):
                return True
            raise
        return False

    def place(self, address: Address) -> str | None:
        """Of an account of another subscription nobody tells us."""
        found = self.find(self.account(address))
        region = "" if found is None else str(found.get("location", "")).replace(" ", "").lower()
        return f"azure/{region}" if region else None

    def find(self, account: str) -> Mapping[str, Any] | None:
        """As the Resource Manager knows it; None = not in this subscription."""
        path = f"{self._arm.scope}/providers/Microsoft.Storage/storageAccounts"
        listed = items(self._arm, "storage accounts", path, STORAGE_API)
        return next((dict(one) for one in listed if one["name"] == account), None)

    apart = False

    def make(self, address: Address, region: str, journal_id: str) -> None:
        del journal_id  # its tag would make the group ``gc``'s
        account = self.account(address)
        name = self._settings.get("resource_group") or GROUP
        group = f"{self._arm.scope}/resourceGroups/{name}"
        if "resource_group" not in self._settings:
            body: dict[str, Any] = {"location": region, "tags": {"arylcloud": "stores"}}
            found = self._arm.find(name, lambda: self._arm.rest("GET", group, "2021-04-01"))
            if found is None:
                self._arm.act(f"make {name}", lambda: self._arm.rest("PUT", group, "2021-04-01", body))
        path = f"{group}/providers/Microsoft.Storage/storageAccounts/{account}"
        self._arm.act(f"make the storage account {account}", lambda: self._put_account(path, region))
        self._until_made(path)
        # no lifecycle rule: blocks that were never committed go by themselves after a week
        container = f"{path}/blobServices/default/containers/{address.bucket}"
        private = {"properties": {"publicAccess": "None"}}
        self._arm.act(
            f"make the container {address.bucket}",
            lambda: self._arm.rest("PUT", container, STORAGE_API, private),
        )
        self._give_user(path)
        self._until_usable(address)

    def _put_account(self, path: str, region: str) -> Any:
        body = {
            "location": region,
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "tags": {**companys(self._settings), "arylcloud": "stores"},
            "properties": {
                "allowBlobPublicAccess": False,
                "allowSharedKeyAccess": False,
                "minimumTlsVersion": "TLS1_2",
                "supportsHttpsTrafficOnly": True,
            },
        }
        return self._arm.rest("PUT", path, STORAGE_API, body)

    def _until_made(self, path: str) -> None:
        for _ in range(MADE_TRIES):
            found = self._arm.find(path, lambda: self._arm.rest("GET", path, STORAGE_API))
            if found is not None and found["properties"].get("provisioningState") == "Succeeded":
                return
            time.sleep(MADE_EVERY_S)
        raise OtherCloudError(f"azure: {path} is not there yet", code="NotMadeYet")

    def _give_user(self, path: str) -> None:
        from uuid import NAMESPACE_URL, uuid5

        who = self._arm.identity()
        role = f"{self._arm.scope}/providers/Microsoft.Authorization/roleDefinitions/{CONTRIBUTOR}"
        name = uuid5(NAMESPACE_URL, f"{path}|{who.object_id}".lower())
        body = {"properties": {"roleDefinitionId": role, "principalId": who.object_id}}
        url = f"{path}/providers/Microsoft.Authorization/roleAssignments/{name}"
        try:
            self._arm.act("let you use it", lambda: self._arm.rest("PUT", url, ROLES_API, body))
        except ArylError as error:
            if error.code != "RoleAssignmentExists":
                raise

    def _until_usable(self, address: Address) -> None:
        """By asking for a key to sign with, which is the user's, too."""
        for left in range(USABLE_TRIES, -1, -1):
            try:
                self.key(self.account(address))
                return
            except AccessError:
                if not left:
                    raise
            time.sleep(USABLE_EVERY_S)

    # ------------------------------------------------------------ links

    def sign(self, address: Address, key: str, for_s: float, identity: str | None = None) -> str:
        del identity
        from urllib.parse import quote

        account, blob = self.account(address), address.key(key)
        now_s = time.time()
        signature = sas.of_blob(
            self.key(account),
            account,
            address.bucket,
            blob,
            start_s=now_s - 300,  # clocks differ
            end_s=now_s + min(for_s, SIGNED_S),
        )
        return f"{self.base(account)}/{address.bucket}/{quote(blob, safe='/-_.~')}?{signature}"

    def key(self, account: str) -> sas.Key:
        """A user delegation key that is good for two days at least. AccessError, OtherCloudError."""
        now_s = time.time()
        with self._lock:
            known = self._keys.get(account)
            if known is None or known.expires_s - now_s < 2 * 86400:
                known = self._keys[account] = self._ask_key(account, now_s)
            return known

    def _ask_key(self, account: str, now_s: float) -> sas.Key:
        url = f"{self.base(account)}/?restype=service&comp=userdelegationkey"
        answer = self._ask("POST", url, account, sas.request(now_s - 300, now_s + _KEY_S))
        try:
            return sas.key_of(answer)
        except ValueError as error:
            raise OtherCloudError(f"azure: {account}: {error}") from error

    def _ask(self, method: str, url: str, account: str, body: bytes | None = None) -> bytes:
        """Blob storage itself, as the user. AccessError, OtherCloudError."""
        import urllib.error
        import urllib.request

        token, _ = self.token()
        headers = {"Authorization": f"Bearer {token}", "x-ms-version": sas.VERSION}
        # https, or plain http on this host: ``endpoint`` has seen to it
        request = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310
        try:
            # the token goes to this host, and to no other that it names
            with urllib.request.build_opener(NoRedirect).open(request, timeout=60) as answer:
                return bytes(answer.read(65536))
        except urllib.error.HTTPError as error:
            code = error.headers.get("x-ms-error-code") or f"HTTP_{error.code}"
            text = f"azure: the storage account {account}: {code}"
            if error.code in (401, 403):
                hint = "you need the role Storage Blob Data Contributor on the account"
                raise AccessError(text, code=code, hint=hint) from error
            raise OtherCloudError(text, code=code) from error
        except OSError as error:
            raise OtherCloudError(f"azure: the storage account {account}: {error}") from error
