"""The metadata service of emulated machines: name and id, scheduled events, tokens of the machine's own
identity. Each machine has a listener of its own, as in the local cloud's service.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clouds.boots import Boots, Metadata

from arylcloud.providers.local import metadata as local

AUDIENCES = ("https://management.azure.com", "https://storage.azure.com")
EVENTS = "/metadata/scheduledevents"
Document = dict[str, Any]


class AzureMetadata(local.MetadataService):
    """``events(machine)``, ``started(machine, event)``, ``token(machine, identity)``: the emulator's."""

    def __init__(
        self,
        boots: Boots,
        events: Callable[[str], list[Document]],
        started: Callable[[str, str], None],
        token: Callable[[str, str | None], str | None],
    ) -> None:
        super().__init__(
            lookup=boots.lookup,
            renew=lambda instance_id, until_s: None,
            tokens=None,  # type: ignore[arg-type]  # EC2's
            own_addresses=sys.platform == "linux",
        )
        self.events, self.started, self.token = events, started, token
        self.handler = _Handler


class _Handler(local._Handler):
    service: AzureMetadata

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if self.headers.get("Metadata") != "true" or "api-version" not in asked:
            return self._answer(HTTPStatus.BAD_REQUEST)
        if parts.path == "/metadata/instance/compute/name":
            return self._answer(HTTPStatus.OK, self.instance_id.rpartition("/")[2])
        if parts.path == "/metadata/instance/compute/resourceId":
            return self._answer(HTTPStatus.OK, self.instance_id)
        if parts.path == EVENTS:
            events = self.service.events(self.instance_id)
            return self._answer(
                HTTPStatus.OK, json.dumps({"DocumentIncarnation": len(events), "Events": events})
            )
        if parts.path == "/metadata/identity/oauth2/token":
            token = self.service.token(self.instance_id, asked.get("msi_res_id"))
            if token is None or asked.get("resource", "").rstrip("/") not in AUDIENCES:
                return self._answer(HTTPStatus.BAD_REQUEST, json.dumps({"error": "invalid_request"}))
            until_s = int(time.time() + 3600)
            told = {"access_token": token, "token_type": "Bearer", "expires_on": str(until_s)}
            return self._answer(HTTPStatus.OK, json.dumps({**told, "expires_in": "3600"}))
        return self._answer(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Metadata") != "true" or urlsplit(self.path).path != EVENTS:
            return self._answer(HTTPStatus.BAD_REQUEST, read=False)
        for one in json.loads(body)["StartRequests"]:
            self.service.started(self.instance_id, one["EventId"])
        return self._answer(HTTPStatus.OK, read=False)

    do_PUT = do_POST  # noqa: N815


def event(event_id: str, name: str, acts_at_s: float) -> Document:
    return {
        "EventId": event_id,
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [name],
        "EventStatus": "Scheduled",
        "NotBefore": formatdate(acts_at_s, usegmt=True),
        "DurationInSeconds": -1,
        "EventSource": "Platform",
        "Description": "",
    }


__all__ = ["AzureMetadata", "Metadata", "event"]
