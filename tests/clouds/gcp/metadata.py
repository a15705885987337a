"""Compute Engine's metadata service: what spot machines, and machines with an identity, live by.

    GET /computeMetadata/v1/instance/preempted   Metadata-Flavor: Google
        FALSE, then TRUE; held with wait_for_change=true&last_etag=…&timeout_sec=…
    GET /computeMetadata/v1/instance/{name,id,zone}, project/project-id
    GET /computeMetadata/v1/instance/service-accounts/default/{email,token}

Without the header every GET is 403.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from clouds.boots import Boots, Metadata
from clouds.gcp.project import Life, Project

from arylcloud.core.clock import SystemClock
from arylcloud.providers.local.metadata import MetadataService, Tokens, _Handler

if TYPE_CHECKING:
    from clouds.gcp.emulator import GcpEmulator

ROOT = "/computeMetadata/v1/"


class GceMetadata(MetadataService):
    emulator: GcpEmulator

    def of(self, name: str) -> tuple[Project, Life] | None:
        for project in list(self.emulator.server.projects.values()):
            if (life := project.lives.get(name)) is not None:
                return project, life
        return None


def serve_for(emulator: GcpEmulator) -> object:
    """For ``Boots(serve=…)``."""

    def serve(boots: Boots) -> Metadata:
        made = GceMetadata(
            lookup=boots.lookup,
            renew=lambda instance_id, until_s: None,
            tokens=Tokens(secrets.token_bytes(32), SystemClock()),
            own_addresses=sys.platform == "linux",
        )
        made.emulator, made.handler = emulator, _GceHandler
        return made

    return serve


class _GceHandler(_Handler):
    server_version = "Metadata Server for VM"

    def do_GET(self) -> None:
        if self.headers.get("Metadata-Flavor") != "Google":
            return self._answer(HTTPStatus.FORBIDDEN)
        path, _, query = self.path.partition("?")
        asked = dict(part.partition("=")[::2] for part in query.split("&") if part)
        value = self._value(path.removeprefix(ROOT)) if path.startswith(ROOT) else None
        until_s = time.monotonic() + float(asked.get("timeout_sec", "3600"))
        if asked.get("wait_for_change") == "true":
            while value is not None and _etag(value) == asked.get("last_etag") and time.monotonic() < until_s:
                time.sleep(0.02)
                value = self._value(path.removeprefix(ROOT))
        if value is None:
            return self._answer(HTTPStatus.NOT_FOUND)
        return self._answer(HTTPStatus.OK, value, {"ETag": _etag(value), "Metadata-Flavor": "Google"})

    def _value(self, path: str) -> str | None:
        assert isinstance(self.service, GceMetadata)
        found = self.service.of(self.instance_id)
        if found is None:
            return None
        project, life = found
        account = next(iter(life.doc.get("serviceAccounts", [])), {}).get("email")
        if path == "instance/service-accounts/default/token" and account:
            token = self.service.emulator.token_for(account)
            project.accounts[token] = account
            return json.dumps({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
        return {
            "instance/preempted": "TRUE" if life.preempted else "FALSE",
            "instance/name": life.name,
            "instance/id": str(life.doc["id"]),
            "instance/zone": f"projects/1234567890/zones/{life.zone}",
            "project/project-id": project.id,
            "instance/service-accounts/default/email": account,
        }.get(path)


def _etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
