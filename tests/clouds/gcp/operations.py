"""Operations: what every change is. They take their time, and carry the error where there is one."""

from __future__ import annotations

import secrets
import time
from typing import Any

from clouds.gcp.project import Doc, Project
from clouds.gcp.server import ROOT, rfc3339


def begin(
    project: Project,
    kind: str,
    target: str,
    target_id: str,
    *,
    user: str,
    zone: str = "",
    region: str = "",
    takes_s: float | None = None,
    request: str = "",
) -> Doc:
    """A running operation; ``due_s`` (ours) is when it comes to its end."""
    now_s = time.time()
    name = f"operation-{int(now_s * 1000)}-{secrets.token_hex(6)}"
    base = f"{ROOT}/projects/{project.id}"
    scope = f"zones/{zone}" if zone else f"regions/{region}" if region else "global"
    doc: Doc = {
        "kind": "compute#operation",
        "id": str(secrets.randbits(62)),
        "name": name,
        "operationType": kind,
        "targetLink": f"{base}/{target}",
        "targetId": target_id,
        "status": "RUNNING",
        "progress": 0,
        "user": user,
        "insertTime": rfc3339(now_s),
        "startTime": rfc3339(now_s),
        "selfLink": f"{base}/{scope}/operations/{name}",
        "due_s": now_s + (project.op_s if takes_s is None else takes_s),
    }
    if zone:
        doc["zone"] = f"{base}/zones/{zone}"
    if region:
        doc["region"] = f"{base}/regions/{region}"
    if request:
        doc["clientOperationId"] = request
        project.requests[request] = name
    project.operations[name] = doc
    return doc


def end(doc: Doc, error: Doc | None = None, at_s: float | None = None) -> None:
    doc |= {"status": "DONE", "progress": 100, "endTime": rfc3339(time.time() if at_s is None else at_s)}
    if error is not None:
        doc |= {"error": {"errors": [error]}, **_status(error["code"])}


def _status(code: str) -> Doc:
    if code.startswith("ZONE_RESOURCE_POOL"):
        return {"httpErrorStatusCode": 503, "httpErrorMessage": "SERVICE UNAVAILABLE"}
    if code == "QUOTA_EXCEEDED":
        return {"httpErrorStatusCode": 403, "httpErrorMessage": "FORBIDDEN"}
    return {"httpErrorStatusCode": 400, "httpErrorMessage": "BAD REQUEST"}


def shown(doc: Doc) -> Doc:
    """As Compute Engine answers."""
    return {key: value for key, value in doc.items() if key not in ("due_s", "then")}


def settle(project: Project, now_s: float) -> None:
    """What was due has come to its end, with its effect."""
    for doc in list(project.operations.values()):
        if doc["status"] != "DONE" and doc["due_s"] <= now_s:
            then: Any = doc.pop("then", None)
            error = then() if then is not None else None
            end(doc, error)
